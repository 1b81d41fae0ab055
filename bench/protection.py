"""An OLTP load beside bulk jobs: what it keeps, and what the jobs achieve.

This is the saturated case: the load is a closed loop that uses all processors, so
what it keeps depends on how much of them the job takes. Scenario `headroom` is the
one of a server that has some left.

The OLTP load is pgbench's script simple-update on a table that fits into
shared_buffers: four clients in a closed loop, whose throughput counts, and two
in an open one, at a rate that they reach easily, whose latency counts from when
a transaction should have begun. (The TPC-B-like script updates ten rows all the
time. As long as any transaction runs, their dead versions stay, so a job that
is slow harms it more than one that writes fast.) Beside it a job in a group
writes as fast as the group may, for the whole case: UPDATEs of every row of a
table; COPY; or CREATE INDEX CONCURRENTLY. How fast it goes is the WAL that it
writes, so the time for a job is the reciprocal of that.

The cases are: the load alone; an unthrottled job; fixed WAL limits in steps,
the frontier of what can be had by them; and groups that follow signals. They
take turns within a round, in another order in each round, and each is compared
with `alone` of the same round, so that what changes slowly does not count. The
figures are medians over the rounds, with the range. A round in which `alone`
itself is off the median of all by more than a third is thrown away. max_wal_size
is so large that the job alone forces no checkpoint. In the full set a standby
streams, too, and the same is measured with synchronous commits.
"""

import os
import random
import time

from bench import measure, oltp, plot, replica, server

PLANS = {
    'full': {'seconds': 30, 'rounds': 5, 'rows': 1000000,
             'limits': [10000, 20000, 40000, 60000, 80000, 100000],
             'few_limits': [20000, 60000],
             'jobs': ['UPDATE', 'COPY', 'CREATE INDEX'], 'standby': True},
    'quick': {'seconds': 25, 'rounds': 5, 'rows': 1000000,
              'limits': [20000, 40000, 60000],
              'jobs': ['UPDATE'], 'standby': False},
    'tiny': {'seconds': 4, 'rounds': 2, 'rows': 50000,
             'limits': [20000], 'jobs': ['UPDATE'], 'standby': False},
}
CLIENTS = 4                     # in the closed loop
OPEN_RATE = 100                 # transactions a second in the open one
LEAD = 4                        # seconds before the job begins
CONF = dict(autovacuum='off', checkpoint_timeout='30min', max_wal_size='16GB',
            shared_buffers='256MB')
OFF = 1 / 3                     # by so much `alone` may be off
KEPT, TAIL, TIME = 0.85, 1.5, 1.25      # the targets

STATEMENTS = {
    'UPDATE': ['UPDATE job SET id = id + 1'],
    'COPY': ["COPY job FROM '%(path)s'"],
    'CREATE INDEX': ['CREATE INDEX CONCURRENTLY ON job (filler, id)',
                     'DROP INDEX job_filler_id_idx'],
}


def cases(plan, limits):
    """[(name, WAL limit or 0, signal and its threshold or None)]"""
    result = [('alone', None, None), ('unthrottled', 0, None)]
    result += [(fixed(kb), kb, None) for kb in limits]
    signals = [('checkpoint', None), ('commit_latency', '50%'),
               ('commit_latency', '5ms')]
    if plan['standby']:
        signals.append(('replica_lag', '2s'))
    return result + [(' '.join(filter(None, s)), 0, s) for s in signals]


def fixed(kb):
    return '%d KB/s' % kb


def settings(plan):
    """[(job, synchronous standby, limits)]"""
    few = plan.get('few_limits', plan['limits'])
    return [(job, False, few if i else plan['limits'])
            for i, job in enumerate(plan['jobs'])] + (
        [('UPDATE', True, few)] if plan['standby'] else [])


def seconds(mode):
    plan = PLANS[mode]
    return 20 + sum(plan['rounds'] * len(cases(plan, limits))
                    * (plan['seconds'] + LEAD + 4)
                    for _, _, limits in settings(plan))


def prepare(srv, plan):
    srv.create_extension()
    srv.program('pgbench', '-i', '-q', '-s', 10)
    with srv.connect() as c:
        c.execute('CREATE UNLOGGED TABLE source AS SELECT g AS id,'
                  " repeat('x', 100) || g AS filler"
                  ' FROM generate_series(1, %d) AS g' % plan['rows'])
        c.execute('CREATE TABLE job (LIKE source)')


def begin_case(admin, case, path):
    """The same state before each case."""
    _, kb, signal = case
    admin.execute('SET client_min_messages = warning')
    admin.execute('TRUNCATE job')
    admin.execute('INSERT INTO job TABLE source')
    admin.execute('VACUUM job, pgbench_accounts, pgbench_tellers,'
                  ' pgbench_branches')
    if not os.path.exists(path):
        admin.execute("COPY job TO '%s'" % path)
    admin.execute("SELECT set_group_wal_limit('job', %s::float8)", (kb or 0,))
    if signal:
        admin.execute("SELECT set_group_pressure('job', %s, %s)", signal)
    admin.execute('CHECKPOINT')


def pgbench(srv, log, duration, *options):
    return srv.popen('pgbench', '-n', '-b', 'simple-update', '-M', 'prepared',
                     '-T', duration, '-l', '--log-prefix', log, *options)


class Job(oltp.Job):
    """Runs its statements again and again until it is canceled."""

    def __init__(self, srv, kind, path):
        super().__init__(srv, 'job', path)
        self.statements = [s % {'path': path} for s in STATEMENTS[kind]]
        self.ends = False

    def work(self):
        while not self.ends:
            for statement in self.statements:
                self.connection.execute(statement)

    def cancel(self, admin):
        """Its connection is closed by whoever cancels it."""
        self.ends = True
        admin.execute('SELECT pg_terminate_backend(%s)',
                      (self.connection.info.backend_pid,))
        self.join()


def job_wal(admin):
    return admin.execute("SELECT wal_bytes::float8 FROM dirty_throttle_groups"
                         " WHERE group_name = 'job'").fetchone()[0]


def run_case(ctx, srv, plan, case, kind):
    path = ctx.path('job.copy')
    closed, opened = ctx.path('closed_log'), ctx.path('open_log')
    duration = plan['seconds'] + LEAD + 2
    with srv.connect() as admin:
        begin_case(admin, case, path)
        loads = [pgbench(srv, closed, duration, '-c', CLIENTS),
                 pgbench(srv, opened, duration, '-c', 2, '-R', OPEN_RATE)]
        time.sleep(LEAD)
        job = Job(srv, kind, path) if case[1] is not None else None
        begun, wal = time.time(), job_wal(admin)
        if job:
            job.start()
        time.sleep(plan['seconds'])
        wal, ended = job_wal(admin) - wal, time.time()
        if job:
            job.cancel(admin)
        for load in loads:
            load.wait(duration * 4 + 60)
            if load.returncode:
                raise RuntimeError('pgbench failed')
        server.drop(admin, 'job')
    done = [t for t, _ in oltp.latencies(closed) if begun <= t < ended]
    waited = sorted(ms for t, ms in oltp.latencies(opened)
                    if begun <= t < ended)
    return {'tps': len(done) / (ended - begun),
            'p99': measure.percentile(waited, 99),
            'mb': wal / (ended - begun) / 1e6}


def run_rounds(ctx, srv, plan, kind, label, limits):
    """{case: [run]}, of the rounds that count, and how many do not."""
    chance = random.Random(1)
    rounds = []
    for i in range(plan['rounds']):
        order = cases(plan, limits)
        chance.shuffle(order)
        runs = {}
        for case in order:
            ctx.progress('%s, round %d of %d: %s' % (
                label, i + 1, plan['rounds'], case[0]))
            runs[case[0]] = run_case(ctx, srv, plan, case, kind)
        rounds.append(runs)
    middle = measure.median([r['alone']['tps'] for r in rounds])
    good = [r for r in rounds
            if abs(r['alone']['tps'] / middle - 1) <= OFF]
    return good, len(rounds) - len(good)


def compare(rounds, name):
    """Medians and ranges over the rounds: (kept, p99 / alone, MB/s)."""
    def of(values):
        return measure.median(values), min(values), max(values)
    return {'kept': of([r[name]['tps'] / r['alone']['tps'] for r in rounds]),
            'tail': of([r[name]['p99'] / r['alone']['p99'] for r in rounds]),
            'mb': of([r[name]['mb'] for r in rounds])}


def frontier(limits):
    """The cases without a signal, from slow to fast."""
    return [fixed(kb) for kb in limits] + ['unthrottled']


def draw(ctx, result, label, figures, limits):
    fig, axes = plot.figure(1, 2, 11, 4)
    line = frontier(limits)
    others = [n for n in figures if n not in line and n != 'alone']
    for ax, key, target, text in (
            (axes[0], 'kept', KEPT, 'OLTP throughput / alone'),
            (axes[1], 'tail', TAIL, 'OLTP p99 / alone')):
        for names, form in ((line, 'o-'), *(([n], 's') for n in others)):
            points = [figures[n] for n in names]
            y = [p[key][0] for p in points]
            ax.errorbar([p['mb'][0] for p in points], y,
                        yerr=[[p[key][0] - p[key][1] for p in points],
                              [p[key][2] - p[key][0] for p in points]],
                        fmt=form, lw=1, capsize=2,
                        label='fixed limits' if names is line else names[0])
        ax.axhline(target, ls='--', lw=0.8, color='gray')
        ax.set_xlabel('WAL of the job, MB/s')
        ax.set_ylabel(text)
    axes[1].set_yscale('log')
    axes[0].legend(fontsize=7)
    name = 'protection_' + label.lower().replace(',', '').replace(' ', '_')
    result.plot(plot.save(ctx, fig, name),
                '%s: what OLTP keeps against how fast the job is' % label)


def interval(values, form='%.2f'):
    return '%s (%s to %s)' % tuple(form % v for v in values)


def judge(result, label, figures, limits):
    """The targets, for commit_latency '50%'.  Fixed limits are compared with
    that do as well, or as well as is asked for."""
    mine = figures['commit_latency 50%']
    kept, tail, mb = (mine[key][0] for key in ('kept', 'tail', 'mb'))
    result.target('%s, commit_latency 50%%: OLTP keeps %.0f %%' % (
        label, 100 * KEPT), kept >= KEPT, interval(mine['kept']))
    result.target('%s: p99 at most %g x alone' % (label, TAIL), tail <= TAIL,
                  interval(mine['tail']))
    good = {n: figures[n]['mb'][0] for n in frontier(limits)
            if figures[n]['kept'][0] >= min(kept, KEPT)
            and figures[n]['tail'][0] <= max(tail, TAIL)}
    best = max(good, key=good.get, default=None)
    result.target('%s: the job takes at most %g x its time with the best fixed'
                  ' limit that does as well' % (label, TIME),
                  None if best is None else good[best] <= TIME * mb,
                  '%.1f MB/s; %s' % (mb, 'none does' if best is None
                                     else '%s: %.1f' % (best, good[best])))


def report(ctx, result, plan, label, rounds, dropped, limits):
    names = [case[0] for case in cases(plan, limits)]
    figures = {name: compare(rounds, name) for name in names}
    result.text('%s: %d rounds; %d more were thrown away.' % (
        label, len(rounds), dropped))
    result.table('%s: medians over the rounds, and the range' % label,
                 ['Case', 'OLTP throughput / alone', 'p99 / alone',
                  'WAL of the job, MB/s'],
                 [[n, interval(f['kept']), interval(f['tail']),
                   interval(f['mb'], '%.1f')] for n, f in figures.items()])
    draw(ctx, result, label, figures, limits)
    judge(result, label, figures, limits)


def run(ctx, result):
    plan = PLANS[ctx.mode]
    rows = []
    server.need_disk(ctx, 20000 if plan['standby'] else 12000)
    with server.Server(ctx, **CONF) as srv:
        ctx.progress('preparing')
        prepare(srv, plan)
        standby = replica.Standby(ctx, srv) if plan['standby'] else None
        if standby:
            standby.__enter__()
        try:
            for kind, synchronous, limits in settings(plan):
                label = kind + (', synchronous standby' if synchronous else '')
                with srv.connect() as c:
                    c.execute("ALTER SYSTEM SET synchronous_standby_names = '%s'"
                              % ('*' if synchronous else ''))
                    c.execute('SELECT pg_reload_conf()')
                rounds, dropped = run_rounds(ctx, srv, plan, kind, label, limits)
                report(ctx, result, plan, label, rounds, dropped, limits)
                rows += [(label, i + 1, n, r['tps'], r['p99'], r['mb'])
                         for i, runs in enumerate(rounds)
                         for n, r in runs.items()]
        finally:
            if standby:
                standby.__exit__(None, None, None)
    result.csv('protection', ['setting', 'round', 'case', 'tps', 'p99_ms',
                              'job_wal_mb_per_s'], rows)
