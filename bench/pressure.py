"""Limits that follow the server's pressure, beside fixed limits and none.

A fixed limit is too low at one time and too high at another. Each part does the
same job without a limit, with fixed limits, and with `set_group_pressure()`.

*replica_lag.* A primary and a streaming standby that replays at a known speed,
as in scenario `replica` (the startup process is stopped when it is ahead of its
schedule); 20 s after the job began the speed halves, 25 s later it doubles. The
jobs are an UPDATE of many rows and a CREATE INDEX CONCURRENTLY. Fixed are a WAL
limit below the usual speed, and one below the lowest. Lag is the time since the
primary's WAL ended where replay is now. *Best possible* is how long the replay
takes for the job's WAL at the speeds that it had; for the index the time
until its first WAL, as without a limit, is added. When the speed halves, what is
queued takes twice as long: the lag of a replay that was 2 s behind comes to 4 s
whatever the job does from then on. So the target is judged twice, also without
the 10 thresholds after the halving, and it is said when lag was below 1.3
thresholds again. fsync is off.

*checkpoint.* pgbench's TPC-B transactions at a fixed rate beside a bulk load
(COPY, then UPDATE of every row): alone, unthrottled,
with its fixed limits on dirtying, with `checkpoint`, and, for the same duration
of the job as with that, the dirty limit and the WAL limit that take as long.
Latencies are those while the job runs. Forced are the checkpoints that were
begun because of max_wal_size. Its settings are 30 s and 512 MB.

*kernel_dirty.* The load of scenario `host_memory`, with the kernel's settings as
they are; with vm.dirty_bytes of several sizes, vm.dirty_background_bytes the
half of each, where they may be written; with `kernel_dirty` of the same sizes;
and with that and vm.dirty_background_bytes. The kernel begins to write when its
own background threshold is exceeded, by default 10 % of memory, or after 30 s.
Whoever follows a threshold below that waits for it.

*Nothing presses.* Sessions of a group with a fixed limit INSERT without end;
thresholds that are out of reach are set and reset every few seconds, off on on
off, and on off off on. Four such slices give one ratio of the rates with and
without.
"""

import math
import threading
import time

import psycopg

from bench import host_memory, measure, oltp, plot, replica, server
from bench.measure import KB_PER_BLOCK

PLANS = {
    'full': {
        'longest': 400,
        'rows': 480000, 'replay': 16000, 'lag': 2,
        'phases': [(0, 1), (20, 0.5), (45, 1)],
        'jobs': ['UPDATE', 'CREATE INDEX'], 'fixed': [12000, 7000],
        'seconds': 65, 'load_rows': 900000, 'repeats': 2,
        'limits': [20000, 40000, 80000], 'shared_buffers': '128MB',
        'copy_rows': 7500000, 'kernel': [1000, 500, 100], 'copy_repeats': 2,
        'slice': 3, 'blocks': 12,
    },
    'quick': {
        'longest': 150,
        'rows': 360000, 'replay': 20000, 'lag': 2,
        'phases': [(0, 1), (12, 0.5), (34, 1)],
        'jobs': ['UPDATE'], 'fixed': [15000],
        'seconds': 45, 'load_rows': 750000, 'repeats': 1,
        'limits': [20000], 'shared_buffers': '128MB',
        'copy_rows': 2000000, 'kernel': [100], 'copy_repeats': 1,
        'slice': 2, 'blocks': 3,
    },
    'tiny': {
        'longest': 60,
        'rows': 6000, 'replay': 6000, 'lag': 2,
        'phases': [(0, 1), (1, 0.5), (2, 1)],
        'jobs': ['UPDATE'], 'fixed': [4500],
        'seconds': 4, 'load_rows': 50000, 'repeats': 1,
        'limits': [20000], 'shared_buffers': '16MB',
        'copy_rows': 200000, 'kernel': [50], 'copy_repeats': 1,
        'slice': 1, 'blocks': 1,
    },
}
LAG_TARGET = 1.3                # thresholds
TIME_TARGET = 1.1               # of the best possible
SETTLED = 10                    # seconds, from the start on
SETTLED_AGAIN = 10              # thresholds, from the halving on
BYTES_PER_ROW = 1450            # of WAL, both jobs, for the estimate
TPS = 600                       # of the OLTP load, or a third of the maximum
OTHERS_MB = 20                  # dirty memory of others that does not matter
FIXED = 6144                    # KB/s, where nothing presses
MEMBERS = 2
OUT_OF_REACH = [('replica_lag', '1h'), ('checkpoint', None),
                ('kernel_dirty', '100GB')]

STATE_QUERY = """
SELECT extract(epoch FROM clock_timestamp())::float8, g.*
FROM (SELECT coalesce(effective_dirty_limit, 0), coalesce(effective_wal_limit, 0),
             p.pressure, p.signal
      FROM dirty_throttle_groups AS g
           LEFT JOIN dirty_throttle_pressure AS p USING (group_name)
      WHERE group_name = 'job'
      ORDER BY p.pressure DESC NULLS LAST LIMIT 1) AS g"""


STATE_HEADER = ['job', 'case', 'seconds', 'effective_dirty_limit',
                'effective_wal_limit', 'pressure', 'signal']


def seconds(mode):
    plan = PLANS[mode]
    size = plan['rows'] * BYTES_PER_ROW
    usual = best_time(plan, 0, size)
    lag = len(plan['jobs']) * sum(10 + max(usual, size / 1000 / (kb or size))
                                  for _, kb, _ in lag_cases(plan))
    beside = (plan['repeats'] * (5 + len(plan['limits']))
            * (plan['seconds'] + 3) + 10)
    mb = plan['copy_rows'] * host_memory.BYTES_PER_ROW / 1e6
    kernel = (plan['copy_repeats'] * (1 + 3 * len(plan['kernel']))
              * (mb / 60 + 2))
    return lag + beside + kernel + 4 * plan['slice'] * plan['blocks'] + 15


def press(signal, threshold):
    """A function that sets the pressure of a group."""
    def define(connection, group='job'):
        if threshold is None:
            connection.execute('SELECT set_group_pressure(%s, %s)',
                               (group, signal))
        else:
            connection.execute('SELECT set_group_pressure(%s, %s, %s)',
                               (group, signal, threshold))
    return define


# --------------------------------------------------------------- replica_lag

JOBS = {
    'UPDATE': 'UPDATE t SET id = id + 1 WHERE id <= %d',
    'CREATE INDEX': 'CREATE INDEX CONCURRENTLY built ON t (filler)',
}


def lag_cases(plan):
    """(name, WAL limit, is there pressure?)"""
    return ([('no limit', 0, False)]
            + [('WAL limit %d KB/s' % kb, kb, False) for kb in plan['fixed']]
            + [('replica_lag %d s' % plan['lag'], 0, True)])


def best_time(plan, start, size):
    """Seconds until a replay has done so many bytes that begins then."""
    left, now = size / 1000, start
    ends = [at for at, _ in plan['phases'][1:]] + [math.inf]
    for (_, factor), end in zip(plan['phases'], ends):
        kb = plan['replay'] * factor
        if left <= kb * (end - now):
            return now + left / kb
        if end > now:
            left -= kb * (end - now)
            now = end


class Schedule(threading.Thread):
    """Changes the speed of the replay at its times."""

    def __init__(self, plan, replay):
        super().__init__(daemon=True)
        self.plan, self.replay = plan, replay
        self.begin = time.time()
        self.end = threading.Event()

    def run(self):
        for at, factor in self.plan['phases']:
            if self.end.wait(max(0, self.begin + at - time.time())):
                return
            self.replay.speed = self.plan['replay'] * factor * 1000

    def stop(self):
        self.end.set()
        self.join()


def wait_for_standby(primary, standby):
    """Until the standby has replayed all, at full speed."""
    with primary.connect() as c, standby.connect() as s:
        wal = c.execute('SELECT pg_current_wal_insert_lsn()').fetchone()[0]
        server.wait_for(s, "SELECT pg_last_wal_replay_lsn() >= '%s'::pg_lsn"
                        ' - %d' % (wal, replica.HEADER), 120)


def create_rows(srv, plan):
    with srv.connect() as c:
        c.execute('SET client_min_messages = warning')
        c.execute('DROP TABLE IF EXISTS t')
        c.execute('CREATE TABLE t (id int, filler text)')
        # wide keys, not compressed: few rows, and a large index
        c.execute('ALTER TABLE t ALTER filler SET STORAGE EXTERNAL')
        c.execute("INSERT INTO t SELECT i, md5(i::text) || repeat('x', 968)"
                  ' FROM generate_series(1, %d) AS i' % plan['rows'])
        c.execute('VACUUM (FREEZE, ANALYZE) t')
        c.execute('CHECKPOINT')


def lag_case(srv, standby, plan, job, case):
    _, kb, pressed = case
    create_rows(srv, plan)
    wait_for_standby(srv, standby)
    with srv.connect() as c:
        server.limit(c, 'job', 0)
        c.execute("SELECT set_group_wal_limit('job', %s::float8)", (kb,))
        if pressed:
            press('replica_lag', '%ds' % plan['lag'])(c)
    statement = JOBS[job]
    if '%d' in statement:
        statement %= plan['rows'] * 2 // 3
    with replica.Replay(standby, plan['replay']) as replay:
        replay.wait_for(srv)
        sampler = measure.Sampler(srv, replica.QUERY, replica.PERIOD)
        state = measure.Sampler(srv, STATE_QUERY, 0.1)
        sampler.start()
        state.start()
        time.sleep(0.5)
        schedule = Schedule(plan, replay)
        with srv.connect('job') as member:
            start = time.time()
            schedule.start()
            try:
                member.execute(statement)
                end = time.time()
                wal = replay.wait_for(srv)
                time.sleep(0.5)
            finally:
                schedule.stop()
                rows = replica.series(sampler.stop(), replay)
                states = state.stop()
    with srv.connect() as c:
        server.drop(c, 'job')
    base = rows[0][1]
    size = wal - base
    until = next(r[0] for r in rows
                 if r[0] >= end and r[4] >= wal - replica.HEADER)
    halved, doubled = (at for at, _ in plan['phases'][1:])
    # all that could have been better: from the start's end to the last byte
    late = [(r[0] - start, r[5]) for r in rows
            if start + SETTLED < r[0] <= until] or [(0, 0.0)]
    calm = [lag for t, lag in late if not
            halved <= t < halved + SETTLED_AGAIN * plan['lag']] or [0.0]
    above = [t - halved for t, lag in late if halved <= t < doubled
             and lag > LAG_TARGET * plan['lag']]
    return {
        'rows': [(r[0] - start, *(p - base for p in r[1:5]), r[5])
                 for r in rows],
        'states': [(t - start, *values) for t, *values in states],
        'size': size, 'job': end - start, 'until': until - start,
        'before': next(r[0] for r in rows if r[1] - base >= size * 0.01)
                  - start,
        'p50': measure.percentile(sorted(lag for _, lag in late), 50),
        'p99': measure.percentile(sorted(lag for _, lag in late), 99),
        'max': max(lag for _, lag in late), 'calm': max(calm),
        'again': max(above) if above else 0.0,
        'behind': max(r[1] - r[4] for r in rows),
    }


def draw_lag(ctx, result, plan, by_job):
    fig, axes = plot.figure(len(by_job), 3, 14, 3.6 * len(by_job),
                            squeeze=False)
    for row, (job, runs) in zip(axes, by_job.items()):
        for name, r in runs.items():
            points = replica.tenths(r['rows'])
            points = points[::len(points) // 300 + 1]
            xs = [p[0] for p in points]
            row[0].plot(xs, [p[5] for p in points], lw=1.2, label=name)
            color = row[0].get_lines()[-1].get_color()
            row[0].axvline(r['job'], lw=0.6, ls=':', color=color)
            row[1].plot(xs, [p[1] / 1e6 for p in points], lw=1.2, color=color,
                        label=name)
            row[1].plot(xs, [p[4] / 1e6 for p in points], lw=0.8, ls='--',
                        color=color)
            if name.startswith('replica_lag'):
                states = [s for s in r['states'] if s[2]]     # else free
                row[2].plot([s[0] for s in states],
                            [s[2] / 1000 for s in states], lw=1, color=color,
                            label='effective WAL limit')
                row[2].plot(xs, [p[6] / 1000 for p in points], lw=0.6,
                            color='0.6', label='WAL written')
        last = max(r['until'] for r in runs.values())
        times = [at for at, _ in plan['phases']] + [max(
            last, plan['phases'][-1][0] + 1)]
        row[2].step(times, [plan['replay'] * f / 1000 for _, f in
                            plan['phases'] + [plan['phases'][-1]]],
                    where='post', color='tab:red', lw=1,
                    label='speed of the replay')
        row[2].set_ylim(0, plan['replay'] * 3 / 1000)
        row[0].axhline(plan['lag'], color='tab:red', lw=0.8, ls='--')
        row[0].set_yscale('symlog', linthresh=4)
        for ax, title in zip(row, (
                'lag, seconds (dotted: the job has ended)',
                'WAL written, MB (dashed: replayed)',
                'replica_lag: MB/s')):
            ax.set_title('%s: %s' % (job, title), fontsize=9)
            ax.set_xlabel('seconds')
            ax.legend(fontsize=7)
    result.plot(plot.save(ctx, fig, 'pressure_replica_lag'),
                'lag of the standby, WAL, and the limit in force')


def replica_lag(ctx, result, plan):
    by_job = {job: {} for job in plan['jobs']}
    with server.Server(ctx, shared_buffers='128MB', fsync='off',
                       max_wal_size='8GB', checkpoint_timeout='1h',
                       wal_compression='off', wal_level='replica',
                       statement_timeout='%ds' % plan['longest'],
                       max_parallel_maintenance_workers=0) as srv:
        srv.create_extension()
        with replica.Standby(ctx, srv) as standby:
            with srv.connect() as c:
                server.wait_for(c, 'SELECT count(*) = 1 FROM'
                                " pg_stat_replication WHERE state = 'streaming'"
                                ' AND replay_lsn IS NOT NULL')
            for job in plan['jobs']:
                for case in lag_cases(plan):
                    ctx.progress('%s, %s' % (job, case[0]))
                    try:
                        by_job[job][case[0]] = lag_case(srv, standby, plan,
                                                        job, case)
                    except psycopg.errors.QueryCanceled:
                        result.error('%s, %s: did not end within %d s' % (
                            job, case[0], plan['longest']))
                        with srv.connect() as c:
                            server.drop(c, 'job')
    result.csv('pressure_replica_lag_series',
               ['job', 'case', 'seconds', 'wal_bytes', 'wal_kb_per_s',
                'replayed_bytes', 'lag_s'],
               [(job, name, t, int(w), kb, int(r), lag)
                for job, runs in by_job.items() for name, run in runs.items()
                for t, w, _, _, r, lag, kb in replica.tenths(run['rows'])])
    result.csv('pressure_replica_lag_states',
               STATE_HEADER,
               [(job, name, *s) for job, runs in by_job.items()
                for name, run in runs.items() for s in run['states']])
    by_job = {job: runs for job, runs in by_job.items() if runs}
    if by_job:
        draw_lag(ctx, result, plan, by_job)
    pressed_name = lag_cases(plan)[-1][0]
    for job, runs in by_job.items():
        free = runs.get('no limit')
        wait = free['before'] if free and job != 'UPDATE' else 0
        for r in runs.values():
            r['best'] = best_time(plan, wait, r['size'])
        result.table(
            'replica_lag, %s: the standby replays %s KB/s; lag from %d s after'
            ' the start until all is replayed' % (job, ', then '.join(
                '%d' % (plan['replay'] * f) for _, f in plan['phases']),
                SETTLED),
            ['Case', 'WAL, MB', 'Job, s', 'best possible, s',
             'job / best, %', 'Lag p50, s', 'p99', 'max',
             'max, not after the halving', 'Above %.1f s until, after it, s'
             % (LAG_TARGET * plan['lag']), 'Most behind, MB',
             'All replayed after, s'],
            [[name, round(r['size'] / 1e6), '%.1f' % r['job'],
              '%.1f' % r['best'], '%.1f' % (100 * r['job'] / r['best']),
              *('%.2f' % r[k] for k in ('p50', 'p99', 'max', 'calm')),
              '%.1f' % r['again'], round(r['behind'] / 1e6), '%.1f' % r['until']]
             for name, r in runs.items()])
        if pressed_name not in runs:
            continue
        r = runs[pressed_name]
        most = LAG_TARGET * plan['lag']
        detail = 'p99 %.2f s, max %.2f s' % (r['p99'], r['max'])
        if free:
            detail += '; without a limit %.1f s' % free['max']
        result.target('%s, %s: lag <= %.1f s after %d s' % (
            pressed_name, job, most, SETTLED), r['max'] <= most, detail)
        result.target('%s, %s: the same, not in the %d s after the replay'
                      ' halved its speed' % (
                          pressed_name, job, SETTLED_AGAIN * plan['lag']),
                      r['calm'] <= most,
                      'max %.2f s; after the halving it is above for %.1f s' % (
                          r['calm'], r['again']))
        result.target('%s, %s: job at most %.0f %% slower than best possible'
                      % (pressed_name, job, 100 * TIME_TARGET - 100),
                      r['job'] <= TIME_TARGET * r['best'],
                      '%.1f s, best %.1f s: %+.1f %%; %s' % (
                          r['job'], r['best'],
                          100 * (r['job'] / r['best'] - 1), ', '.join(
                              '%s %+.0f %%' % (n, 100 * (
                                  o['job'] / o['best'] - 1))
                              for n, o in runs.items() if o is not r)))


# ---------------------------------------------------------------- checkpoint

def checkpoint(ctx, result, plan):
    conf = dict(oltp.CONF, shared_buffers=plan['shared_buffers'],
                statement_timeout='%ds' % plan['longest'])
    by_case = {}
    oltp_plan = {'seconds': plan['seconds'], 'rows': plan['load_rows']}
    with server.Server(ctx, **conf) as srv:
        ctx.progress('checkpoint: preparing')
        path = oltp.prepare(ctx, srv, oltp_plan)
        top = oltp.maximum(srv)
        rate = min(TPS, top * oltp.SHARE_OF_MAXIMUM)

        def run_case(name, kb, kind, i, define=None):
            ctx.progress('checkpoint: %s, %d of %d' % (name, i + 1,
                                                       plan['repeats']))
            state = measure.Sampler(srv, STATE_QUERY, 0.2)
            state.start()
            try:
                run = oltp.run_case(ctx, srv, oltp_plan, rate, path,
                                          (name, kb, kind), define)
            except psycopg.errors.QueryCanceled:
                result.error('%s: the job did not end within %d s' % (
                    name, plan['longest']))
                with srv.connect() as c:
                    server.drop(c, 'job')
                return None
            finally:
                # there are none before the group is created
                states = [s for s in state.stop() if s]
            run['states'] = [(t - run['started'], *values)
                             for t, *values in states]
            by_case.setdefault(name, []).append(run)
            return run

        for i in range(plan['repeats']):
            run_case('alone', None, None, i)
            run_case('unthrottled', 0, 'bulk', i)
            for kb in plan['limits']:
                run_case('dirty limit %d KB/s' % kb, kb, 'bulk', i)
            pressed = run_case('checkpoint', 0, 'bulk', i,
                               press('checkpoint', None))
            if not pressed:
                continue
            # limits that make the job take as long as it took
            kb = round(pressed['dirtied'] * 1000 / pressed['job'])
            run_case('dirty limit for the same time', kb, 'bulk', i)
            wal_kb = round(pressed['job_wal'] / 1000 / pressed['job'])
            run_case('WAL limit for the same time', 0, 'bulk', i,
                     lambda c: c.execute(
                         "SELECT set_group_wal_limit('job', %s::float8)",
                         (wal_kb,)))

    names = ['p%g' % p for p in oltp.PERCENTILES] + ['max']
    result.csv('pressure_checkpoint',
               ['case', 'run', 'limit_kb', 'job_s', 'dirtied_mb', 'job_wal_mb',
                'transactions', *('beside_%s_ms' % n for n in names),
                'checkpoints_timed', 'checkpoints_requested'],
               [(name, i + 1, r['limit'], r['job'], r['dirtied'],
                 r['job_wal'] / 1e6, r['transactions'], *r['beside'],
                 *map(float, r['checkpoints'][:2]))
                for name, runs in by_case.items() for i, r in enumerate(runs)])
    result.csv('pressure_checkpoint_states', STATE_HEADER,
               [('', name, *s) for name, runs in by_case.items()
                if name == 'checkpoint' for s in runs[0]['states']])
    draw_checkpoint(ctx, result, by_case)
    middle = oltp.middle
    result.table(
        'checkpoint: OLTP latency in ms while the job runs (alone: all the'
        ' time), %.0f transactions per second, %d s a case; median of %d runs'
        % (rate, plan['seconds'], plan['repeats']),
        ['Case', 'Job, s', *names, 'Forced checkpoints, each run', 'by time',
         'WAL of the job, MB'],
        [[name, None if runs[0]['job'] is None
          else '%.1f' % middle(runs, 'job')
          + (' (longer than the case)' if any(r['late'] for r in runs)
             else ''),
          *(middle(runs, 'beside', i) for i in range(len(names))),
          ', '.join('%d' % r['checkpoints'][1] for r in runs),
          ', '.join('%d' % r['checkpoints'][0] for r in runs),
          round(middle(runs, 'job_wal') / 1e6)]
         for name, runs in by_case.items()])
    if 'checkpoint' not in by_case:
        return
    forced = [r['checkpoints'][1] for r in by_case['checkpoint']]
    result.target(
        'checkpoint: no forced checkpoint', not any(forced),
        '%s in the runs; unthrottled %s' % (
            ', '.join('%d' % n for n in forced),
            ', '.join('%d' % r['checkpoints'][1]
                      for r in by_case['unthrottled'])))
    result.finding('checkpoint: p99 (p99.9) of OLTP beside the job', ', '.join(
        '%s %.1f (%.1f) ms' % (name, middle(runs, 'beside', 2),
                               middle(runs, 'beside', 3))
        for name, runs in by_case.items()))


def draw_checkpoint(ctx, result, by_case):
    fig, axes = plot.figure(1, 3, 15, 4)
    for name, runs in by_case.items():
        seconds = {}
        for t, ms in runs[0]['points']:
            seconds.setdefault(int(t), []).append(ms)
        xs = sorted(s for s in seconds if s >= 0)
        axes[0].plot(xs, [measure.percentile(sorted(seconds[s]), 99)
                          for s in xs], lw=1, label=name)
    axes[0].set_yscale('log')
    axes[0].set_xlabel('seconds')
    axes[0].set_ylabel('p99 of each second, ms')
    axes[0].legend(fontsize=7)
    jobs = [n for n, runs in by_case.items() if runs[0]['job'] is not None]
    for i, p in ((2, 'p99'), (3, 'p99.9')):
        axes[1].plot([oltp.middle(by_case[n], 'job') for n in jobs],
                     [oltp.middle(by_case[n], 'beside', i)
                      for n in jobs], 'o', label=p)
        if 'alone' in by_case:
            axes[1].axhline(oltp.middle(by_case['alone'], 'beside', i),
                            ls='--', lw=0.8, color='C%d' % (i - 2),
                            label=p + ' alone')
    for n in jobs:
        axes[1].annotate(n, (oltp.middle(by_case[n], 'job'),
                             oltp.middle(by_case[n], 'beside', 3)),
                         fontsize=7, xytext=(3, 4),
                         textcoords='offset points')
    axes[1].set_yscale('log')
    axes[1].set_xlabel('duration of the job, s')
    axes[1].set_ylabel('OLTP latency, ms')
    axes[1].legend(fontsize=7)
    if 'checkpoint' in by_case:
        run = by_case['checkpoint'][0]
        states = [s for s in run['states'] if s[2]]         # else free
        axes[2].plot([s[0] for s in states], [s[2] / 1000 for s in states],
                     lw=1)
        axes[2].axvline(run['job'], lw=0.6, ls=':', color='0.5')
    axes[2].set_xlabel('seconds; dotted: the job has ended')
    axes[2].set_ylabel('checkpoint: effective WAL limit, MB/s')
    result.plot(plot.save(ctx, fig, 'pressure_checkpoint'),
                'OLTP latency beside the job')


# -------------------------------------------------------------- kernel_dirty

def kernel_cases(plan):
    """(name, kernel's MB, threshold in MB)"""
    return ([('kernel as it is, no limit', None, None)]
            + [('vm.dirty_bytes %d MB, background %d MB' % (mb, mb // 2),
                (mb, mb // 2), None) for mb in plan['kernel']]
            + [('kernel_dirty %d MB' % mb, None, mb) for mb in plan['kernel']]
            + [('kernel_dirty %d MB, vm.dirty_background_bytes %d MB'
                % (mb, mb // 2), (server.memory_mb() // 5, mb // 2), mb)
               for mb in plan['kernel']])


def kernel_dirty(ctx, result, plan):
    kernel = host_memory.KernelSettings(ctx)
    by_case, refused = {}, False
    copy_plan = {'rows': plan['copy_rows']}
    with server.Server(ctx, shared_buffers='128MB', max_wal_size='8GB',
                       checkpoint_timeout='1h', wal_compression='off',
                       statement_timeout='%ds' % plan['longest']) as srv:
        srv.create_extension()
        for i in range(plan['copy_repeats']):
            for name, mb, threshold in kernel_cases(plan):
                if mb and (refused or not kernel.set(mb)):
                    refused = True
                    continue
                ctx.progress('kernel_dirty: %s, %d of %d' % (
                    name, i + 1, plan['copy_repeats']))
                define = threshold and press('kernel_dirty',
                                             '%dMB' % threshold)
                try:
                    by_case.setdefault(name, []).append(host_memory.load(
                        srv, copy_plan, (name, mb, 0, None),
                        define and (lambda c: define(c, 'load'))))
                except psycopg.errors.QueryCanceled:
                    result.error('%s: the load did not end within %d s' % (
                        name, plan['longest']))
                    with srv.connect() as c:
                        server.drop(c, 'load')
                except psycopg.errors.FeatureNotSupported as error:
                    result.text('**%s was not measured**: %s' % (name, error))
                finally:
                    if mb:
                        kernel.set(None)
    by_case = {name: runs for name, runs in by_case.items() if runs}
    middle = host_memory.middle
    result.csv('pressure_kernel_dirty',
               ['setting', 'run', 'max_dirty_mb', 'load_s', 'rows_per_s',
                'max_dirty_with_checkpoint_mb', 'durable_s',
                'rows_per_s_durable'],
               [(name, i + 1, *(r[k] for k in (
                   'max_dirty', 'load', 'rows_per_second',
                   'max_with_checkpoint', 'durable',
                   'rows_per_second_durable')))
                for name, runs in by_case.items() for i, r in enumerate(runs)])
    fig, ax = plot.figure(1, 1, 10, 4.5)
    for name, runs in by_case.items():
        points = host_memory.every_tenth(runs[0]['points'])
        ax.plot([p[0] for p in points], [p[1] + p[2] for p in points], lw=1.2,
                label=name)
        ax.axvline(runs[0]['load'], lw=0.6, ls=':',
                   color=ax.get_lines()[-1].get_color())
    ax.set_xlabel('seconds; dotted: the load has ended, the CHECKPOINT begins')
    ax.set_ylabel('Dirty + Writeback, MB')
    ax.legend(fontsize=7)
    result.plot(plot.save(ctx, fig, 'pressure_kernel_dirty'),
                'dirty memory of the kernel during the load')
    size = 'The load of %.1f million rows, %.0f MB' % (
        plan['copy_rows'] / 1e6,
        plan['copy_rows'] * host_memory.BYTES_PER_ROW / 1e6)
    result.table('kernel_dirty. %s: median of %d runs; 1 MB is 10^6 bytes' % (
                     size, plan['copy_repeats']),
                 ['Setting', 'Max dirty, MB', 'Time, s', 'Rows per second',
                  'with the CHECKPOINT: max dirty, MB', 'Time, s',
                  'Rows per second'],
                 [[name, round(middle(runs, 'max_dirty')),
                   '%.1f' % middle(runs, 'load'),
                   round(middle(runs, 'rows_per_second')),
                   round(middle(runs, 'max_with_checkpoint')),
                   '%.1f' % middle(runs, 'durable'),
                   round(middle(runs, 'rows_per_second_durable'))]
                  for name, runs in by_case.items()])
    others = max(r['before'] for runs in by_case.values() for r in runs)
    if others > OTHERS_MB:
        result.text('**Other programs disturbed this**: before a load, after'
                    ' sync, up to %.0f MB were dirty, which count for the'
                    ' threshold and not in the table.' % others)
    if refused:
        result.text('**The kernel\'s settings were not measured**: vm.dirty_*'
                    ' could not be written (not root, a container, or'
                    ' --no-sysctl).')
    result.finding('kernel_dirty: max dirty memory (time of the load)',
                   ', '.join('%s %.0f MB (%.1f s)' % (
                       name, middle(runs, 'max_dirty'), middle(runs, 'load'))
                       for name, runs in by_case.items()))


# ----------------------------------------------------------- nothing presses

class Inserter(threading.Thread):
    """A session that inserts until it is terminated."""

    def __init__(self, srv):
        super().__init__(daemon=True)
        self.connection = srv.connect('job')

    def run(self):
        try:
            self.connection.execute(
                "INSERT INTO endless SELECT generate_series(1, 1000000000),"
                " 'aaa'")
        except psycopg.Error:
            pass                    # terminated
        self.connection.close()


def set_out_of_reach(connection, on, refused):
    for signal, threshold in OUT_OF_REACH:
        if signal in refused:
            continue
        try:
            if on:
                press(signal, threshold)(connection)
            else:
                connection.execute("SELECT reset_group_pressure('job', %s)",
                                   (signal,))
        except psycopg.errors.FeatureNotSupported:
            refused.add(signal)


def nothing_presses(ctx, result, plan):
    ratios, slices, refused = [], [], set()
    with server.Server(ctx, shared_buffers=server.shared_buffers(1024),
                       fsync='off', max_wal_size='8GB',
                       checkpoint_timeout='1h',
                       bgwriter_lru_maxpages=0) as srv:
        srv.create_extension()
        with srv.connect() as admin:
            admin.execute('SET client_min_messages = error')
            admin.execute('CREATE TABLE endless (c1 int, c2 character(500))'
                          ' WITH (fillfactor = 10)')
            server.limit(admin, 'job', FIXED)
            members = [Inserter(srv) for _ in range(MEMBERS)]
            sampler = measure.Sampler(srv, measure.GROUPS_QUERY, 0.01)
            state = measure.Sampler(srv, STATE_QUERY, 0.1)
            for thread in (*members, sampler, state):
                thread.start()
            time.sleep(1)
            for block in range(plan['blocks']):
                ctx.progress('nothing presses, %d of %d' % (block + 1,
                                                            plan['blocks']))
                for on in ((False, True, True, False) if block % 2 == 0
                           else (True, False, False, True)):
                    set_out_of_reach(admin, on, refused)
                    time.sleep(0.3)
                    start = time.time()
                    time.sleep(plan['slice'])
                    slices.append((block + 1, on, start, time.time()))
            curve = measure.Curve([(t, blocks[0])
                                   for t, blocks in sampler.stop()])
            states = state.stop()
            admin.execute('SELECT pg_terminate_backend(pid)'
                          ' FROM dirty_throttle_sessions()')
            for member in members:
                member.join()
            server.drop(admin, 'job')
    rates = [(block, on, curve.cut(start, end).rate())
             for block, on, start, end in slices]
    for block in range(1, plan['blocks'] + 1):
        logs = [math.log(rate) * (1 if on else -1)
                for b, on, rate in rates if b == block]
        ratios.append(math.exp(sum(logs) / 2))
    result.csv('pressure_nothing', ['block', 'with_pressure', 'kb_per_s'],
               [(b, 'on' if on else 'off', rate) for b, on, rate in rates])
    mid, low, high = measure.interval(ratios, measure.mean)
    signals = [s for s, _ in OUT_OF_REACH if s not in refused]
    lowest = min(s[1] for s in states)
    result.table(
        'Nothing presses: two sessions that INSERT at %d KB/s, with and'
        ' without thresholds out of reach for %s' % (FIXED,
                                                     ', '.join(signals)),
        ['', 'Median, KB/s', 'Least', 'Most'],
        [[text, *measure.spread([r for _, o, r in rates if o == on])]
         for text, on in (('without', False), ('with', True))])
    met = None                  # cannot be told
    if not signals or lowest != FIXED:
        met = False
    elif len(ratios) < 3:
        pass
    elif high < 0.995 or low > 1.005:
        met = False
    elif low >= 0.995 and high <= 1.005:
        met = True
    result.target(
        'nothing presses: no difference, within 0.5 %', met,
        'rate with / without %.4f (%.4f .. %.4f), %d ratios; lowest effective'
        ' limit %g KB/s' % (mid, low, high, len(ratios), lowest))


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 12000)
    nothing_presses(ctx, result, plan)
    replica_lag(ctx, result, plan)
    checkpoint(ctx, result, plan)
    kernel_dirty(ctx, result, plan)
