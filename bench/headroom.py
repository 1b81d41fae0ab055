"""What others notice of a bulk job on a server that has headroom.

pgbench runs at a fixed rate, 35 % of what the machine can do with it, in an open
loop: the latency of a transaction counts from when it should have begun, so what
waits for another one counts, too. Beside it a job in a group writes as fast as the
group may, for the whole case: an UPDATE of every row, in batches of 2000 rows.
(Scenario `long_statement` has the same as one statement.) How fast it goes is the WAL
that it writes.

The cases are: the load alone; an unthrottled job; fixed WAL limits; and groups
that follow `commit_latency`, which need no number: "protected" is the threshold that
protect_from() sets. They take turns within
a round, in another order in each round. Figures are medians of windows of 2 s, with
95 % intervals, of all rounds; in brackets the median of the ratios to `alone` of the
same round, so that what changes slowly does not count. *Stalls* are windows whose
p99 is above three times the median of `alone`, per 100 windows. *Spread* is the
fastest by the slowest of equal runs of the job. Windows in which the machine was
busy with something else (a process that sleeps for 10 ms was more than 20 ms late)
count as all others; how many of `alone` they are is said.

The configuration is the default one. Groups are new. (Scenario `headroom_jobs`
has other jobs, `headroom_settings` other loads and configurations, and `headroom_watch`
groups that have followed the signal before. `protection` is the other case:
there the load is a closed loop that uses all processors, and what it keeps of its
throughput depends on the share of the processors that the job leaves.)
"""

import contextlib
import random
import time

from bench import canary, measure, oltp, plot, protection, replica, server

PLANS = {
    'full': {'seconds': 36, 'rounds': 5, 'rows': 1000000},
    'quick': {'seconds': 14, 'rounds': 3, 'rows': 1000000},
    'tiny': {'seconds': 6, 'rounds': 2, 'rows': 50000},
}
SCALE = 10
CLIENTS = 8
SHARE = 35                      # percent of the maximum
LIMIT = 20000                   # KB/s
LIMITS = (LIMIT // 2, LIMIT, 2 * LIMIT)
SIGNAL = ('commit_latency', '50%')      # what protect_from() sets
LOWER = '20%'                   # the other threshold that is tried
LEAD = 4                        # seconds before the job begins, most often
WINDOW = 2                      # seconds
STALL = 3                       # times the median p99 of `alone`
SPOILT = 2                      # the same, of all of `alone` in a round: it does not count
BATCH = 2000                    # rows
MIDDLE, TAIL, STALLS, TIME, SPREAD = 1.1, 1.5, 2, 1.25, 1.5     # the targets
NAMES = ['alone', 'unthrottled', protection.fixed(LIMIT), 'protected']


class Setting:
    """A job beside a load, on a configuration."""

    def __init__(self, job, label=None, share=SHARE, script='tpcb-like',
                 limits=(LIMIT,), lower=None, synchronous=False, **conf):
        self.job = job
        self.label = label or job
        self.share, self.script, self.synchronous = share, script, synchronous
        self.limits, self.lower, self.conf = limits, lower, conf

    def cases(self):
        """[(name, WAL limit or 0, signal and its threshold or None)]"""
        return ([('alone', None, None), ('unthrottled', 0, None)]
                + [(protection.fixed(kb), kb, None) for kb in self.limits]
                + [('protected', 0, SIGNAL)]
                + ([(self.lower, 0, (SIGNAL[0], self.lower))] if self.lower else []))

    def lead(self, case):
        """How long the load runs before the job begins, s."""
        return LEAD

    def make(self, case, srv, rows, path):
        """The job of a case, or None."""
        return Job(srv, self.job, rows, path) if case[1] is not None else None


SETTINGS = [Setting('UPDATE in batches', limits=LIMITS, lower=LOWER)]


def seconds(mode):
    return estimate(PLANS[mode], SETTINGS)


def estimate(plan, settings):
    return 40 + sum(plan['rounds'] * (plan['seconds'] + s.lead(case) + 6)
                    for s in settings for case in s.cases())


def statements(job, rows, path):
    """What the job runs again and again, each a transaction."""
    ranges = ['id >= %d AND id < %d' % (i, i + BATCH)
              for i in range(0, rows, BATCH)]
    if job == 'UPDATE in batches':
        return ['UPDATE job SET n = n + 1 WHERE ' + r for r in ranges]
    if job == 'DELETE in batches':
        return (['DELETE FROM job WHERE ' + r for r in ranges]
                + ['INSERT INTO job SELECT * FROM source WHERE ' + r
                   for r in ranges])
    return {'UPDATE': ['UPDATE job SET n = n + 1'],
            'COPY': ["COPY job FROM '%s'" % path],
            'CREATE INDEX': ['CREATE INDEX CONCURRENTLY again ON job (filler, id)',
                             'DROP INDEX again']}[job]


class Job(protection.Job):
    def __init__(self, srv, job, rows, path):
        oltp.Job.__init__(self, srv, 'job', path)
        self.statements = statements(job, rows, path)
        self.ends = False

    def work(self):
        while not self.ends:
            for statement in self.statements:
                if not self.ends:
                    self.connection.execute(statement)


def prepare(srv, plan, path):
    srv.create_extension()
    srv.program('pgbench', '-i', '-q', '-s', SCALE)
    with srv.connect() as c:
        c.execute('CREATE UNLOGGED TABLE source AS SELECT g AS id, 0 AS n,'
                  " repeat('x', 100) || g AS filler"
                  ' FROM generate_series(0, %d) AS g' % (plan['rows'] - 1))
        c.execute('ALTER TABLE source ADD PRIMARY KEY (id)')
        c.execute('CREATE TABLE job (LIKE source)')
        c.execute("COPY source TO '%s'" % path)


@contextlib.contextmanager
def serving(ctx, setting, plan, path):
    """A server for a setting, with its standby, if it has one."""
    with server.Server(ctx, autovacuum='on', **setting.conf) as srv:
        prepare(srv, plan, path)
        if not setting.synchronous:
            yield srv
            return
        with replica.Standby(ctx, srv):
            with srv.connect() as c:
                c.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                c.execute('SELECT pg_reload_conf()')
            yield srv


def begin_case(admin, case):
    """The same state before each case."""
    _, kb, signal = case
    admin.execute('SET client_min_messages = warning')
    admin.execute('DROP TABLE job')
    admin.execute('CREATE TABLE job (LIKE source)')
    admin.execute('INSERT INTO job TABLE source')
    admin.execute('CREATE INDEX ON job (id)')
    admin.execute('VACUUM job, pgbench_accounts, pgbench_tellers,'
                  ' pgbench_branches')
    admin.execute('TRUNCATE pgbench_history')
    admin.execute("SELECT set_group_wal_limit('job', %s::float8)", (kb or 0,))
    if signal:
        admin.execute("SELECT set_group_pressure('job', %s, %s)", signal)
    admin.execute('CHECKPOINT')


def pgbench(srv, setting, duration, *options):
    return ['pgbench', '-n', '-b', setting.script, '-M', 'prepared', '-c',
            CLIENTS, '-T', duration, *options]


def maximum(srv, setting):
    text = srv.program(*pgbench(srv, setting, 8))
    return float([line for line in text.split('\n')
                  if line.startswith('tps')][0].split()[2])


def run_beside(srv, plan, setting, case, rate, path, *options, prelude=0,
               watch=contextlib.nullcontext(), **env):
    """Run a case, and measure after the job's first `prelude` seconds.

    Returns when that began and ended, and what the job wrote meanwhile, MB/s.
    options, env: of the load.  watch: a context that watches meanwhile.
    """
    lead = setting.lead(case)
    duration = lead + prelude + plan['seconds'] + 2
    with srv.connect() as admin:
        begin_case(admin, case)
        load = srv.popen(*pgbench(srv, setting, duration, '-R', '%.0f' % rate, *options),
                         **env)
        time.sleep(lead)
        job = setting.make(case, srv, plan['rows'], path)
        if job:
            job.start()
        time.sleep(prelude)
        begun, wal = time.time(), protection.job_wal(admin)
        with watch:
            time.sleep(plan['seconds'])
        wal, ended = protection.job_wal(admin) - wal, time.time()
        if job:
            job.cancel(admin)
        load.wait(duration * 4 + 60)
        if load.returncode:
            raise RuntimeError('pgbench failed')
        server.drop(admin, 'job')
    return begun, ended, wal / (ended - begun) / 1e6


def run_case(ctx, srv, plan, setting, case, rate, path, **options):
    log = ctx.path('open_log')
    begun, ended, mb = run_beside(srv, plan, setting, case, rate, path,
                                  '-l', '--log-prefix', log, **options)
    windows = {}
    points = [(at, ms) for at, ms in oltp.latencies(log) if begun <= at < ended]
    for at, ms in points:
        windows.setdefault(int((at - begun) / WINDOW), []).append(ms)
    windows = [sorted(w) for i, w in sorted(windows.items())
               if i < plan['seconds'] // WINDOW]
    return {'begun': begun, 'points': points, 'mb': mb,
            'p50': [measure.percentile(w, 50) for w in windows],
            'p99': [measure.percentile(w, 99) for w in windows]}


def run_rounds(ctx, srv, plan, setting, path):
    """[{case: run}], and the rate of the load."""
    chance = random.Random(1)
    rate = maximum(srv, setting) * setting.share / 100
    rounds = []
    for i in range(plan['rounds']):
        order = setting.cases()
        chance.shuffle(order)
        runs = {}
        for case in order:
            ctx.progress('%s, round %d of %d: %s' % (
                setting.label, i + 1, plan['rounds'], case[0]))
            runs[case[0]] = run_case(ctx, srv, plan, setting, case, rate, path)
        rounds.append(runs)
    return rounds, rate


def compare(rounds, name):
    def windows(case, key):
        return [ms for r in rounds for ms in r[case][key]]

    def ratio(key):
        return measure.median([measure.median(r[name][key])
                               / measure.median(r['alone'][key])
                               for r in rounds])

    most = STALL * measure.median(windows('alone', 'p99'))
    tails = windows(name, 'p99')
    mb = [r[name]['mb'] for r in rounds]
    return {'p50': measure.interval(windows(name, 'p50'), measure.median),
            'p99': measure.interval(tails, measure.median),
            'middle': ratio('p50'), 'tail': ratio('p99'),
            'stalls': 100 * sum(ms > most for ms in tails) / len(tails),
            'mb': (measure.median(mb), min(mb), max(mb))}


def judge(result, setting, figures):
    """The targets, for the group that follows a signal."""
    label, mine, alone = setting.label, figures['protected'], figures['alone']
    result.target('%s: p50 at most %g x alone' % (label, MIDDLE),
                  mine['middle'] <= MIDDLE, '%.2f' % mine['middle'])
    result.target('%s: p99 at most %g x alone' % (label, TAIL),
                  mine['tail'] <= TAIL, '%.2f' % mine['tail'])
    result.target('%s: at most %d stalls in 100 windows more than alone' % (
        label, STALLS), mine['stalls'] <= alone['stalls'] + STALLS,
        '%.1f; alone %.1f' % (mine['stalls'], alone['stalls']))
    spread = mine['mb'][2] / max(mine['mb'][1], 1e-9)
    result.target('%s: the fastest of equal jobs at most %g x the slowest' % (
        label, SPREAD), spread <= SPREAD, '%.2f' % spread)
    if len(setting.limits) == 1:
        return
    good = {n: f['mb'][0] for n, f in figures.items()
            if n.endswith('KB/s') and f['middle'] <= max(mine['middle'], MIDDLE)
            and f['tail'] <= max(mine['tail'], TAIL)}
    best = max(good, key=good.get, default=None)
    result.target('%s: the job takes at most %g x its time with the best fixed'
                  ' limit that does as well' % (label, TIME),
                  None if best is None else good[best] <= TIME * mine['mb'][0],
                  '%.1f MB/s; %s' % (mine['mb'][0], 'none does' if best is None
                                     else '%s: %.1f' % (best, good[best])))


def table(result, title, figures):
    ms = '%.2f (%.2f to %.2f) [%.2f]'
    result.table(
        title, ['Case', 'p50, ms', 'p99, ms', 'stalls in 100', 'WAL of the job, MB/s'],
        [[n, ms % (*f['p50'], f['middle']), ms % (*f['p99'], f['tail']),
          '%.1f' % f['stalls'], '%.1f (%.1f to %.1f)' % f['mb']]
         for n, f in figures.items()])


def unspoilt(rounds):
    """Rounds in which the host itself stalled tell nothing of a job: `alone` shows it."""
    tails = [measure.median(r['alone']['p99']) for r in rounds]
    return [r for r, ms in zip(rounds, tails) if ms <= SPOILT * measure.median(tails)]


def report(result, setting, rounds, rate, quiet):
    made, rounds = len(rounds), unspoilt(rounds)
    figures = {case[0]: compare(rounds, case[0]) for case in setting.cases()}
    table(result, '%s: %d rounds, beside %.0f transactions a second; %d of %d runs of'
          ' `alone` were quiet, %d rounds were spoilt by the host and do not count' % (
              setting.label, made, rate, quiet, made, made - len(rounds)),
          figures)
    judge(result, setting, figures)
    return figures


def draw(ctx, result, figures):
    """What somebody sees in five seconds: figures of several jobs."""
    colors = ['#888888', '#c0392b', '#d9a441', '#2e7d32']
    fig, axes = plot.figure(len(figures), 2, 9, 1.9 * len(figures), squeeze=False,
                            width_ratios=[3, 2])
    for row, (label, f) in zip(axes, figures.items()):
        for i, name in enumerate(reversed(NAMES)):
            color = colors[NAMES.index(name)]
            row[0].plot([f[name]['p50'][0], f[name]['p99'][0]], [i, i], '-',
                        color=color, lw=6, alpha=0.4, solid_capstyle='round')
            row[0].plot(f[name]['p50'][0], i, 'o', color=color, ms=9)
            row[0].annotate('%.2g to %.2g ms' % (f[name]['p50'][0], f[name]['p99'][0]),
                            (f[name]['p99'][0], i),
                            textcoords='offset points', xytext=(8, -3))
            if name != 'alone':
                row[1].barh(i, f[name]['mb'][0], color=color, height=0.6)
                row[1].annotate('%.0f MB/s' % f[name]['mb'][0], (f[name]['mb'][0], i),
                                textcoords='offset points', xytext=(4, -3))
        for ax in row:
            ax.set_ylim(-0.6, len(NAMES) - 0.4)
            ax.set_yticks(range(len(NAMES)))
            ax.grid(axis='y', visible=False)
        row[0].set_yticklabels(reversed(NAMES))
        row[1].set_yticklabels([])
        row[0].set_xscale('log')
        row[0].set_xlim(0.4, 200)
        row[0].set_xlabel('ms')
        row[1].margins(x=0.3)
        row[0].set_title('%s: transactions of others, p50 (dot) to p99' % label,
                         fontsize=9, loc='left')
        row[1].set_title('WAL of the job', fontsize=9, loc='left')
    result.plot(plot.save(ctx, fig, 'headroom'),
                'Latency of others beside a job, alone, unthrottled, with a fixed'
                ' limit, and protected')


def run(ctx, result):
    draw(ctx, result, run_settings(ctx, result, PLANS[ctx.mode], SETTINGS))


def run_settings(ctx, result, plan, settings):
    """{label: {case: figures}}"""
    path = ctx.path('job.copy')
    server.need_disk(ctx, 12000)
    rows, figures = [], {}
    with canary.Canary(ctx) as watch:
        for setting in settings:
            with serving(ctx, setting, plan, path) as srv:
                rounds, rate = run_rounds(ctx, srv, plan, setting, path)
            quiet = sum(watch.was_quiet(r['alone']['begun'],
                                        r['alone']['begun'] + plan['seconds'], True)
                        for r in rounds)
            figures[setting.label] = report(result, setting, rounds, rate, quiet)
            rows += [(setting.label, i + 1, n, w, p50, p99, r['mb'])
                     for i, runs in enumerate(rounds) for n, r in runs.items()
                     for w, (p50, p99) in enumerate(zip(r['p50'], r['p99']))]
    result.csv(ctx.name, ['setting', 'round', 'case', 'window', 'p50_ms',
                            'p99_ms', 'job_wal_mb_per_s'], rows)
    return figures
