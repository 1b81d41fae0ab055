"""What a bulk job does to everybody else, unthrottled and at several limits.

The others are pgbench's TPC-B transactions from four clients at a fixed rate,
a third of what the machine can do, so that latency means something; latency
counts from when a transaction should have begun. The job loads a table larger
than shared_buffers with COPY, then UPDATEs every row of it. Each case lasts
the same time: the job starts with it and ends when it ends, the others go on,
so that what the job leaves behind, a checkpoint for example, is in the
figures too. Latencies are given for the time while the job runs, and for the
whole case. The server is as PostgreSQL comes (fsync on), except for
checkpoints (30 s or 512 MB of WAL) and shared_buffers; each case begins with
new pgbench tables and a CHECKPOINT.

*Shared rows*: the same with a job that UPDATEs the rows that the OLTP
transactions update, too: at full speed; in a group in one transaction, which
sleeps while it holds its row locks; and in the same group cut into small
transactions, which pay after they have released theirs.
"""

import os
import threading
import time

from bench import measure, plot, server
from bench.measure import KB_PER_BLOCK

PLANS = {
    'full': {'shared_buffers': '128MB', 'seconds': 28, 'repeats': 3,
             'rows': 1000000, 'shared': 25000,
             'limits': [20000, 40000, 80000], 'shared_repeats': 2},
    'quick': {'shared_buffers': '64MB', 'seconds': 10, 'repeats': 1,
              'rows': 600000, 'shared': 12500,
              'limits': [32000, 64000], 'shared_repeats': 1},
    'tiny': {'shared_buffers': '16MB', 'seconds': 4, 'repeats': 1,
             'rows': 150000, 'shared': 4000,
             'limits': [32000], 'shared_repeats': 1},
}
SCALE = 5
CLIENTS = 4
SHARE_OF_MAXIMUM = 0.33
MAXIMUM_RATE = 1000             # transactions per second
BATCH = 100                     # shared rows in a small transaction
PERCENTILES = [50, 95, 99, 99.9]
CONF = dict(autovacuum='on', checkpoint_timeout='30s', max_wal_size='512MB')


def cases(plan):
    """(name, limit of the job or None, kind of job), and how often."""
    result = [('alone', None, None), ('unthrottled', 0, 'bulk')]
    result += [('%d KB/s' % kb, kb, 'bulk') for kb in plan['limits']]
    low = plan['limits'][0] // 4
    shared = [('shared rows, unthrottled', 0, 'shared'),
              ('shared rows, %d KB/s, one transaction' % low, low, 'shared'),
              ('shared rows, %d KB/s, small transactions' % low, low,
               'batches')]
    return ([(c, plan['repeats']) for c in result]
            + [(c, plan['shared_repeats']) for c in shared])


def seconds(mode):
    plan = PLANS[mode]
    return 8 + sum(n for _, n in cases(plan)) * (plan['seconds'] + 2.5)


def prepare(ctx, srv, plan):
    srv.create_extension()
    path = ctx.path('job.copy')
    with open(path, 'w') as f:
        for i in range(plan['rows']):
            f.write('%d\t%s\n' % (i, 'x' * 120))
    return path


def create_accounts(srv):
    srv.program('pgbench', '-i', '-q', '-s', SCALE)


def maximum(srv):
    create_accounts(srv)
    text = srv.program('pgbench', '-n', '-M', 'prepared', '-c', CLIENTS, '-T',
                       4)
    return float([line for line in text.split('\n')
                  if line.startswith('tps')][0].split()[2])


class Job(threading.Thread):
    """The bulk job; knows afterwards when it ended and what it dirtied."""

    def __init__(self, srv, plan, kind, group, path):
        super().__init__(daemon=True)
        self.connection = srv.connect(group)
        self.plan, self.kind, self.path = plan, kind, path
        self.ended = self.error = None

    def work(self):
        execute = self.connection.execute
        if self.kind == 'bulk':
            execute("COPY job FROM '%s'" % self.path)
            execute('UPDATE job SET id = id + 1')
            return
        # spread over the whole table
        step = SCALE * 100000 // self.plan['shared']
        update = "UPDATE pgbench_accounts SET filler = 'job' WHERE "
        if self.kind == 'shared':
            execute(update + 'aid %% %d = 0' % step)
        else:
            for first in range(0, SCALE * 100000, BATCH * step):
                execute(update + 'aid > %d AND aid <= %d AND aid %% %d = 0'
                        % (first, first + BATCH * step, step))

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.error = error
        self.ended = time.time()

    def close(self):
        self.join()
        self.connection.close()
        if self.error:
            raise self.error


def checkpoints(connection):
    """Checkpoints by time and by WAL, ms writing, ms flushing."""
    if connection.info.server_version >= 170000:
        return connection.execute(
            'SELECT num_timed, num_requested, write_time, sync_time'
            ' FROM pg_stat_checkpointer').fetchone()
    return connection.execute(
        'SELECT checkpoints_timed, checkpoints_req, checkpoint_write_time,'
        ' checkpoint_sync_time FROM pg_stat_bgwriter').fetchone()


def latencies(prefix):
    """[(time it ended, ms)] from pgbench's logs, which are removed."""
    result = []
    directory, name = os.path.split(prefix)
    for file in os.listdir(directory):
        if file.startswith(name + '.'):
            path = os.path.join(directory, file)
            with open(path) as f:
                for line in f:
                    field = line.split()
                    if field[2].isdigit():      # else it failed or was skipped
                        result.append((int(field[4]) + int(field[5]) / 1e6,
                                       int(field[2]) / 1000))
            os.unlink(path)
    return result


def run_case(ctx, srv, plan, rate, path, case, define=None):
    """define: a function that defines more of the group "job"."""
    name, kb, kind = case
    log = ctx.path('oltp_log')
    create_accounts(srv)        # a job has moved its rows to other pages
    with srv.connect() as admin:
        admin.execute('SET client_min_messages = warning')
        admin.execute('DROP TABLE IF EXISTS job')
        admin.execute('CREATE TABLE job (id int, filler text)')
        server.limit(admin, 'job', kb or 0)
        if define:
            define(admin)
        admin.execute('CHECKPOINT')
        time.sleep(0.3)                 # until the statistics have it
        before = checkpoints(admin)
        wal = admin.execute('SELECT pg_current_wal_lsn()').fetchone()[0]
        oltp = srv.popen('pgbench', '-n', '-M', 'prepared', '-c', CLIENTS,
                         '-T', plan['seconds'], '-R', '%.0f' % rate, '-l',
                         '--log-prefix', log)
        started = time.time()
        job = Job(srv, plan, kind, 'job', path) if kind else None
        if job:
            time.sleep(0.5)             # pgbench has connected
            started = time.time()
            job.start()
        oltp.wait(plan['seconds'] * 4 + 60)
        if oltp.returncode:
            raise RuntimeError('pgbench failed')
        late = job is not None and job.is_alive()
        if job:
            job.close()
        ended = time.time()
        time.sleep(0.3)
        after = checkpoints(admin)
        wal_bytes = float(admin.execute(
            'SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)',
            (wal,)).fetchone()[0])
        dirtied, job_wal = admin.execute(
            'SELECT blocks_dirtied, wal_bytes FROM dirty_throttle_groups'
            " WHERE group_name = 'job'").fetchone()
        server.drop(admin, 'job')
    points = latencies(log)
    whole = sorted(ms for _, ms in points)
    # a transaction suffers when it began before the job ended
    until = job.ended if job else ended
    beside = sorted(ms for t, ms in points
                    if t >= started and t - ms / 1000 <= until)
    return {
        'case': name, 'limit': kb, 'late': late, 'started': started,
        'job': job.ended - started if job else None,
        'dirtied': dirtied * KB_PER_BLOCK / 1000, 'job_wal': job_wal,
        'transactions': len(whole),
        'beside': [measure.percentile(beside, p) for p in PERCENTILES]
                  + [beside[-1] if beside else None],
        'whole': [measure.percentile(whole, p) for p in PERCENTILES]
                 + [whole[-1]],
        'checkpoints': [b - a for a, b in zip(before, after)],
        'wal': wal_bytes / (ended - started) / 1e6,
        'points': [(t - started, ms) for t, ms in points],
    }


def middle(runs, key, i=None):
    values = [r[key] if i is None else r[key][i] for r in runs]
    values = [v for v in values if v is not None]
    return measure.median(values) if values else None


def draw(ctx, result, plan, by_case):
    fig, axes = plot.figure(1, 3, 14, 4)
    bulk = [name for name, runs in by_case.items()
            if not name.startswith('shared') and name != 'alone']
    bulk.sort(key=lambda name: middle(by_case[name], 'job'))
    for i, p in ((2, 'p99'), (3, 'p99.9')):
        axes[0].plot([middle(by_case[n], 'job') for n in bulk],
                     [middle(by_case[n], 'beside', i) for n in bulk], 'o-',
                     label=p + ' beside the job')
        axes[0].axhline(middle(by_case['alone'], 'whole', i), ls='--', lw=0.8,
                        color='C%d' % (i - 2), label=p + ' alone')
    for n in bulk:
        axes[0].annotate(n, (middle(by_case[n], 'job'),
                             middle(by_case[n], 'beside', 3)), fontsize=7,
                         xytext=(3, 4), textcoords='offset points')
    axes[0].set_yscale('log')
    axes[0].set_xlabel('duration of the job, s')
    axes[0].set_ylabel('OLTP latency, ms')
    axes[0].set_title('The trade-off')
    axes[0].legend(fontsize=7)
    for ax, names, title in (
            (axes[1], ['alone', *bulk], 'p99 of each second, first run'),
            (axes[2], [n for n in by_case if n.startswith('shared')],
             'The job and the others share rows')):
        for name in names:
            seconds = {}
            for t, ms in by_case[name][0]['points']:
                seconds.setdefault(int(t), []).append(ms)
            xs = sorted(s for s in seconds if s >= 0)
            ax.plot(xs, [measure.percentile(sorted(seconds[s]), 99)
                         for s in xs], lw=1, label=name)
        ax.set_yscale('log')
        ax.set_xlabel('seconds')
        ax.set_ylabel('p99, ms')
        ax.set_title(title)
        ax.legend(fontsize=7)
    result.plot(plot.save(ctx, fig, 'protection'),
                'latency of the OLTP load against duration of the job')


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 4000)
    by_case = {}
    with server.Server(ctx, shared_buffers=plan['shared_buffers'],
                       **CONF) as srv:
        ctx.progress('preparing')
        path = prepare(ctx, srv, plan)
        top = maximum(srv)
        rate = min(MAXIMUM_RATE, top * SHARE_OF_MAXIMUM)
        rounds = max(n for _, n in cases(plan))
        for i in range(rounds):
            for case, repeats in cases(plan):
                if i < repeats:
                    ctx.progress('%s, %d of %d' % (case[0], i + 1, repeats))
                    by_case.setdefault(case[0], []).append(
                        run_case(ctx, srv, plan, rate, path, case))

    names = ['p%g' % p for p in PERCENTILES] + ['max']
    result.csv('protection',
               ['case', 'run', 'limit_kb', 'job_s', 'dirtied_mb',
                'transactions', *('beside_%s_ms' % n for n in names),
                *('whole_%s_ms' % n for n in names), 'checkpoints_timed',
                'checkpoints_requested', 'checkpoint_write_ms',
                'checkpoint_sync_ms', 'wal_mb_per_s'],
               [(name, i + 1, r['limit'], r['job'], r['dirtied'],
                 r['transactions'], *r['beside'], *r['whole'],
                 *map(float, r['checkpoints']), r['wal'])
                for name, runs in by_case.items() for i, r in enumerate(runs)])
    series = []
    for name, runs in by_case.items():
        seconds = {}
        for t, ms in runs[0]['points']:
            seconds.setdefault(int(t), []).append(ms)
        series += [(name, s, len(values), measure.percentile(values, 50),
                    measure.percentile(values, 99), values[-1])
                   for s, values in sorted((s, sorted(v))
                                           for s, v in seconds.items())]
    result.csv('protection_series', ['case', 'second', 'transactions',
                                     'p50_ms', 'p99_ms', 'max_ms'], series)
    draw(ctx, result, plan, by_case)
    result.text('The OLTP load: %.0f transactions per second; the machine can'
                ' do %.0f from %d clients. Each case lasts %d s. shared_buffers'
                ' is %s; the job dirties %.0f MB.' % (
                    rate, top, CLIENTS, plan['seconds'],
                    plan['shared_buffers'],
                    middle(by_case['unthrottled'], 'dirtied')))
    for key, caption in (('beside', 'OLTP latency in ms while the job runs'
                          ' (alone: all the time)'),
                         ('whole', 'OLTP latency in ms over the whole case')):
        result.table('%s: median of the runs' % caption,
                     ['Case', 'Runs', 'Job, s', *names,
                      'p99, least .. most'],
                     [[name, len(runs),
                       None if runs[0]['job'] is None else
                       '%.1f' % middle(runs, 'job')
                       + (' (longer than the case)'
                          if any(r['late'] for r in runs) else ''),
                       *(middle(runs, key, i) for i in range(len(names))),
                       '%.2f .. %.2f' % (
                           min(r[key][2] for r in runs),
                           max(r[key][2] for r in runs))]
                      for name, runs in by_case.items()])
    result.table('Checkpoints and WAL in a case: median of the runs',
                 ['Case', 'by time', 'by WAL', 'writing, s', 'flushing, s',
                  'WAL, MB/s'],
                 [[name, *(middle(runs, 'checkpoints', i) for i in (0, 1)),
                   *(middle(runs, 'checkpoints', i) / 1000 for i in (2, 3)),
                   middle(runs, 'wal')] for name, runs in by_case.items()])
    lowest = '%d KB/s' % plan['limits'][0]
    alone = middle(by_case['alone'], 'whole', 2)
    free = middle(by_case['unthrottled'], 'beside', 2)
    limited = middle(by_case[lowest], 'beside', 2)
    result.finding('p99 beside the job',
                   'alone %.2f ms, unthrottled %.2f ms, at %s %.2f ms' % (
                       alone, free, lowest, limited))
