"""A standby whose replay is slow, and an index build on its primary.

CREATE INDEX CONCURRENTLY writes its index to WAL, about as fast as the disk
allows. A standby that replays more slowly falls behind, and is behind until
long after the build has ended: failover takes that long, and who reads there
reads old data. The build is done by a member of a group without a limit, then
with a WAL limit below the replay speed.

The primary streams through a Unix socket to a standby on the same machine. To
give its replay a known speed, the startup process is stopped (SIGSTOP) as
soon as it is ahead of the schedule and continued (SIGCONT) when it is not, at
least 10 ms later, by a thread that reads pg_last_wal_replay_lsn() while it
runs; an idle standby saves up replay for 0.1 s. What speed that was is
measured, too. WAL of the primary is pg_current_wal_insert_lsn(), 50 times a
second. The lag in bytes is that less what is replayed, in seconds the time
since the primary's WAL ended where replay is now. fsync is off.
"""

import bisect
import os
import signal
import tempfile
import threading
import time

from bench import measure, plot, server

PLANS = {
    'full': {'rows': 500000, 'replay': 20000, 'limit': 15000},
    'quick': {'rows': 100000, 'replay': 20000, 'limit': 15000},
    'tiny': {'rows': 6000, 'replay': 6000, 'limit': 4500},
}
BYTES_PER_ROW = 1420            # of WAL, for the estimate
MAX_LAG = 2                     # seconds, with the limit
STOPPED = 0.01                  # seconds, at least
SAVED = 0.1
PERIOD = 0.02
HEADER = 100                    # bytes between records that are no record

QUERY = """
SELECT extract(epoch FROM clock_timestamp())::float8, w.*
FROM (SELECT (pg_current_wal_insert_lsn() - '0/0')::float8,
             (flush_lsn - '0/0')::float8, (sent_lsn - '0/0')::float8
      FROM pg_stat_replication OFFSET 0) AS w"""


def seconds(mode):
    plan = PLANS[mode]
    kb = plan['rows'] * BYTES_PER_ROW / 1000
    return 8 + kb / 30000 + kb / plan['replay'] + kb / plan['limit']


class Standby(server.Server):
    def __init__(self, ctx, primary):
        self.data = tempfile.mkdtemp(prefix='standby.', dir=ctx.work)
        self.log = self.data + '.log'
        self.socket_dir = tempfile.mkdtemp(prefix='s.', dir=ctx.work)
        self.base = dict(primary.base, unix_socket_directories=self.socket_dir)
        self.running = False
        primary.program('pg_basebackup', '-D', self.data, '-R', '-X',
                        'stream', '-c', 'fast', '--no-sync')


class Replay(threading.Thread):
    """Keeps the standby's replay at a speed, and knows where it was."""

    def __init__(self, standby, kb):
        super().__init__(daemon=True)
        self.connection = standby.connect()
        self.pid = self.connection.execute(
            'SELECT pid FROM pg_stat_activity'
            " WHERE backend_type = 'startup'").fetchone()[0]
        self.speed = kb * 1000
        self.times, self.positions = [], []
        self.error = None
        self.end = threading.Event()

    def read(self):
        position = self.connection.execute(
            "SELECT (pg_last_wal_replay_lsn() - '0/0')::float8",
            prepare=True).fetchone()[0]
        moved = not self.positions or position > self.positions[-1]
        self.positions.append(position)
        self.times.append(time.time())
        return moved

    def pace(self):
        self.read()
        allowed, before = self.positions[-1], time.monotonic()
        while not self.end.is_set():
            now = time.monotonic()
            allowed = min(allowed + (now - before) * self.speed,
                          self.positions[-1] + SAVED * self.speed)
            before = now
            ahead = (self.positions[-1] - allowed) / self.speed
            if ahead < 0:
                # never read while it is stopped: it may hold a spinlock
                if not self.read():
                    time.sleep(0.002)
            else:
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(max(STOPPED, ahead))
                os.kill(self.pid, signal.SIGCONT)

    def run(self):
        try:
            self.pace()
        except Exception as error:      # reported by __exit__
            self.error = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.end.set()
        self.join()
        os.kill(self.pid, signal.SIGCONT)
        self.connection.close()
        if self.error:
            raise self.error

    def wait_for(self, primary):
        """Until the primary's WAL is replayed; returns its end."""
        with primary.connect() as c:
            wal = c.execute("SELECT (pg_current_wal_insert_lsn()"
                            " - '0/0')::float8").fetchone()[0]
        while self.is_alive() and (not self.positions or
                                   self.positions[-1] < wal - HEADER):
            time.sleep(0.02)
        return wal

    def at(self, t):
        return self.positions[bisect.bisect_right(self.times, t) - 1]


def series(samples, replay):
    """[(time, written, flushed, sent, replayed, lag in seconds)]"""
    result = []
    j = 0                       # the last sample that is replayed
    for i, (t, written, flushed, sent) in enumerate(samples):
        replayed = replay.at(t)
        while j < i and samples[j + 1][1] <= replayed + HEADER:
            j += 1
        lag = 0.0
        if j < i:
            (t0, w0), (t1, w1) = (s[:2] for s in samples[j:j + 2])
            lag = t - t0 - (max(0, replayed - w0) / max(1, w1 - w0)
                            * (t1 - t0))
        result.append((t, written, flushed, sent, replayed, lag))
    return result


def build(srv, standby, plan, kb):
    with srv.connect() as c:
        c.execute("SELECT set_group_wal_limit('build', %s::float8)", (kb,))
    with Replay(standby, plan['replay']) as replay:
        replay.wait_for(srv)
        sampler = measure.Sampler(srv, QUERY, PERIOD)
        sampler.start()
        time.sleep(0.5)
        start = time.time()
        with srv.connect('build') as member:
            member.execute('CREATE INDEX CONCURRENTLY built ON t (filler)')
        end = time.time()
        wal = replay.wait_for(srv)
        time.sleep(0.5)
        rows = series(sampler.stop(), replay)
    with srv.connect() as c:
        c.execute('DROP INDEX built')
    base = rows[0][1]
    size = wal - base
    # while it writes the index: all but the first and the last hundredth
    first, last = (next(r for r in rows if r[1] - base >= size * part)
                   for part in (0.01, 0.99))
    # only then the replay has as much to do as it may
    late = [r for r in rows if r[1] - r[4] > size * 0.1]
    return {
        'rows': [(r[0] - start, *(p - base for p in r[1:5]), r[5])
                 for r in rows],
        'size': size, 'build': end - start,
        'before': first[0] - start, 'writing': last[0] - first[0],
        'rate': (last[1] - first[1]) / (last[0] - first[0]),
        'speed': (late[-1][4] - late[0][4]) / (late[-1][0] - late[0][0])
                 if len(late) > 1 else None,
        'max_bytes': max(r[1] - r[4] for r in rows),
        'max_seconds': max(r[5] for r in rows),
        'caught_up': next(r[0] - end for r in rows
                          if r[0] >= end and r[4] >= wal - HEADER),
    }


def tenths(rows):
    """Ten points a second with KB/s of WAL since the last one."""
    result, last = [], rows[0]
    for r in rows:
        if r[0] - last[0] >= 0.1 - PERIOD / 2:
            result.append((*r, (r[1] - last[1]) / (r[0] - last[0]) / 1000))
            last = r
    return result


def draw(ctx, result, plan, runs):
    fig, axes = plot.figure(1, 3, 14, 3.8)
    for name, r in runs.items():
        points = tenths(r['rows'])
        points = points[::len(points) // 300 + 1]
        xs = [p[0] for p in points]
        for ax, ys in zip(axes, ([p[1] / 1e6 for p in points],
                                 [(p[1] - p[4]) / 1e6 for p in points],
                                 [p[5] for p in points])):
            ax.plot(xs, ys, lw=1.2, label=name)
            ax.axvline(r['build'], lw=0.6, ls=':',
                       color=ax.get_lines()[-1].get_color())
        axes[0].plot(xs, [p[4] / 1e6 for p in points], lw=0.8, ls='--',
                     color=axes[0].get_lines()[-1].get_color(),
                     label=name + ', replayed')
    for ax, title in zip(axes, ('WAL written and replayed, MB',
                                'Lag, MB', 'Lag, seconds')):
        ax.set_title(title)
        ax.set_xlabel('seconds; dotted: the build has ended')
        ax.legend(fontsize=7)
    result.plot(plot.save(ctx, fig, 'replica'),
                'WAL, and the lag of the standby in MB and in seconds')


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 8 * plan['rows'] * BYTES_PER_ROW // 1000000 + 500)
    runs = {}
    with server.Server(ctx, shared_buffers='128MB', fsync='off',
                       max_wal_size='8GB', checkpoint_timeout='1h',
                       wal_compression='off', wal_level='replica',
                       max_parallel_maintenance_workers=0) as srv:
        ctx.progress('preparing')
        srv.create_extension()
        with srv.connect() as c:
            c.execute('SET client_min_messages = warning')
            c.execute('CREATE TABLE t (filler text)')
            # wide keys, not compressed: few rows, and a large index
            c.execute('ALTER TABLE t ALTER filler SET STORAGE EXTERNAL')
            c.execute("INSERT INTO t SELECT md5(i::text) || repeat('x', 968)"
                      ' FROM generate_series(1, %d) AS i' % plan['rows'])
            c.execute('VACUUM (FREEZE, ANALYZE) t')
            server.limit(c, 'build', 0)
            c.execute('CHECKPOINT')
        with Standby(ctx, srv) as standby:
            with srv.connect() as c:
                server.wait_for(c, "SELECT count(*) = 1 FROM"
                                " pg_stat_replication WHERE state = 'streaming'"
                                ' AND replay_lsn IS NOT NULL')
            for kb in (0, plan['limit']):
                name = 'limit %d KB/s' % kb if kb else 'no limit'
                ctx.progress(name)
                runs[name] = build(srv, standby, plan, kb)

    result.csv('replica_series',
               ['case', 'seconds', 'wal_bytes', 'wal_kb_per_s',
                'current_minus_replay', 'sent_minus_replay',
                'flush_minus_replay', 'lag_s'],
               [(name, t, int(w), kb, int(w - r), int(s - r), int(f - r), lag)
                for name, run in runs.items()
                for t, w, f, s, r, lag, kb in tenths(run['rows'])])
    draw(ctx, result, plan, runs)
    result.table('The build, and the standby that replays %d KB/s; 1 MB is'
                 ' 10^6 bytes' % plan['replay'],
                 ['Case', 'WAL, MB', 'Build, s',
                  'of it before 1 % of the WAL, s', 'writing WAL, KB/s',
                  'Replay, KB/s, measured', 'Max lag, MB', 'Max lag, s',
                  'Behind after the build for, s'],
                 [[name, r['size'] / 1e6, r['build'], r['before'],
                   r['rate'] / 1000, r['speed'] and r['speed'] / 1000,
                   r['max_bytes'] / 1e6, r['max_seconds'], r['caught_up']]
                  for name, r in runs.items()])
    free, limited = runs.values()
    due = limited['size'] / plan['limit'] / 1000
    asked = free['size'] / plan['replay'] / 1000 - free['writing']
    result.target('limit below the replay speed: max lag <= %d s' % MAX_LAG,
                  limited['max_seconds'] <= MAX_LAG,
                  '%.2f s, %.1f MB' % (limited['max_seconds'],
                                       limited['max_bytes'] / 1e6))
    result.target('limit: writes WAL for WAL / limit, within 3 %',
                  abs(limited['rate'] / plan['limit'] / 1000 - 1) <= 0.03,
                  '%.0f KB/s, %.1f %% of the limit; the build %.1f s, of it'
                  ' %.1f s before 1 %% of the WAL; WAL / limit %.1f s' % (
                      limited['rate'] / 1000,
                      limited['rate'] / plan['limit'] / 10, limited['build'],
                      limited['before'], due))
    result.target('no limit: max lag = WAL / replay speed - time of writing it,'
                  ' within 10 %',
                  abs(free['max_seconds'] / asked - 1) <= 0.1,
                  '%.1f s, %.0f MB; WAL / replay speed -'
                  ' time of writing %.1f s; build %.1f s' % (
                      free['max_seconds'], free['max_bytes'] / 1e6, asked,
                      free['build']))
