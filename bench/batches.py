"""A big job as one statement and in batches: its time, and what others feel.

The job UPDATEs every row of a table. The others are pgbench's TPC-B-like script
in an open loop, at a third of what it reaches; a transaction's latency counts
from when it should have begun. The script updates few rows all the time, and
their dead versions stay as long as any transaction runs, so the length of the
job's transactions counts, and not only its rate.

The cases are: the others alone; the job as one statement and by
run_in_batches(), without a limit, with a WAL limit of 20 MB/s, and with
commit_latency '50%'; and a loop as people write it by hand, which commits after
each thousand keys and then sleeps, for so long that its mean rate is that of the
batches with the limit. They take turns within a round, in another order in each
round, but for the loop, which needs to know that rate. The latencies are those
from the beginning of the job to its end: the median of the p50 of windows of 2 s,
and the p99 of all. Each case begins at a checkpoint, after which the others write
whole pages at first and are slower, so what is compared with is the same time of
the case alone. Before that, the job is run alone, as pairs, to see what batches cost.
"""

import random
import time

from bench import measure, oltp, server

PLANS = {
    'full': {'rows': 2000000, 'scale': 50, 'rounds': 3, 'pairs': 5, 'alone': 90},
    'quick': {'rows': 400000, 'scale': 20, 'rounds': 3, 'pairs': 5, 'alone': 20},
    'tiny': {'rows': 20000, 'scale': 1, 'rounds': 1, 'pairs': 1, 'alone': 4},
}
KB = 20000                      # the fixed limit
KEYS = 1000                     # in a round of the loop
CLIENTS = 8
LEAD = 3                        # seconds before the job begins
WINDOW = 2
MOST = 600                      # seconds that a job may take
CONF = dict(autovacuum='on', checkpoint_timeout='5min', max_wal_size='8GB',
            shared_buffers='512MB')
UPDATE = 'UPDATE job SET filler = upper(filler)'
LOOP = """
CREATE PROCEDURE by_hand(nap float8) LANGUAGE plpgsql AS $$ BEGIN
    FOR i IN 0 .. (SELECT max(id) / %d FROM job) LOOP
        UPDATE job SET filler = upper(filler)
            WHERE id >= i * %d AND id < (i + 1) * %d;
        COMMIT;
        PERFORM pg_sleep(nap);
    END LOOP;
END $$""" % (KEYS, KEYS, KEYS)
CALL = ("CALL run_in_batches('job', 'job', '%s WHERE {batch}',"
        " restart => true, unthrottled => true)" % UPDATE)
HAND = 'loop with pg_sleep()'
LIMITS = {'no limit': (0, None), '20 MB/s': (KB, None),
          "commit_latency '50%'": (0, '50%')}


def cases():
    """[(name, statement or None, limit)]"""
    result = [('alone', None, None)]
    for limit in LIMITS:
        result += [('one statement, ' + limit, UPDATE, limit),
                   ('batches, ' + limit, CALL, limit)]
    return result


def seconds(mode):
    plan = PLANS[mode]
    job = plan['rows'] / 60000
    return int(20 + plan['scale'] + plan['pairs'] * 3 * job
               + plan['rounds'] * (plan['alone'] + 6 * job + 8 * (LEAD + 10)))


def prepare(srv, plan):
    srv.create_extension()
    srv.program('pgbench', '-i', '-q', '-s', plan['scale'])
    with srv.connect() as c:
        c.execute('CREATE TABLE source AS SELECT g AS id,'
                  " repeat('x', 100) || g AS filler"
                  ' FROM generate_series(1, %d) AS g' % plan['rows'])
        c.execute(LOOP)


def begin(admin, limit):
    """The same state before each case."""
    kb, threshold = LIMITS[limit] if limit else (0, None)
    admin.execute('SET client_min_messages = error')
    admin.execute('DROP TABLE IF EXISTS job')
    admin.execute('CREATE TABLE job AS TABLE source')
    admin.execute('ALTER TABLE job ADD PRIMARY KEY (id)')
    admin.execute('VACUUM ANALYZE job')
    admin.execute('VACUUM pgbench_accounts, pgbench_tellers, pgbench_branches')
    admin.execute('SELECT forget_batches(name) FROM dirty_throttle_batches')
    admin.execute("SELECT set_group_wal_limit('job', %s::float8)", (kb,))
    if threshold:
        admin.execute("SELECT set_group_pressure('job', 'commit_latency', %s)",
                      (threshold,))
    admin.execute('CHECKPOINT')


def run_job(srv, statement):
    """When it began and when it ended."""
    with srv.connect('job') as job:
        started = time.time()
        job.execute(statement)
        ended = time.time()
    return started, ended


def run_pair(srv, admin):
    result = []
    for statement in (UPDATE, CALL):
        begin(admin, 'no limit')
        started, ended = run_job(srv, statement)
        result.append(ended - started)
        server.drop(admin, 'job')
    return result


def p50(points, seconds):
    """The median of the p50 of windows."""
    middles = []
    for i in range(max(1, int(seconds / WINDOW))):
        ms = [ms for t, ms in points if i * WINDOW <= t < (i + 1) * WINDOW]
        if ms:
            middles.append(measure.median(ms))
    return measure.median(middles) if middles else None


def p99(points, seconds):
    ms = sorted(ms for t, ms in points if t < seconds)
    return measure.percentile(ms, 99) if ms else None


def run_case(ctx, srv, rate, case, alone):
    name, statement, limit = case
    log = ctx.path('oltp_log')
    with srv.connect() as admin:
        begin(admin, limit)
        load = srv.popen('pgbench', '-n', '-M', 'prepared', '-c', CLIENTS,
                         '-T', MOST, '-R', '%.0f' % rate, '-l',
                         '--log-prefix', log)
        time.sleep(LEAD)
        if statement:
            started, ended = run_job(srv, statement)
        else:
            started = time.time()
            time.sleep(alone)
            ended = time.time()
        load.terminate()
        load.wait()
        wal, releases = admin.execute(
            'SELECT wal_bytes::float8, releases FROM dirty_throttle_groups'
            " WHERE group_name = 'job'").fetchone()
        server.drop(admin, 'job')
    took = ended - started
    points = [(t - started, ms) for t, ms in oltp.latencies(log)
              if started <= t < ended]
    return {'seconds': took, 'wal': wal / 1e6, 'mb': wal / 1e6 / took,
            'releases': releases, 'points': points,
            'p50': p50(points, took), 'p99': p99(points, took)}


def by_hand(runs, plan):
    """The loop at the rate of the batches with a limit."""
    more = runs['batches, 20 MB/s']['seconds'] - runs['batches, no limit']['seconds']
    nap = max(0.0, more * KEYS / plan['rows'])
    return ('loop with pg_sleep(%.3f)' % nap, 'CALL by_hand(%f)' % nap, 'no limit')


def run_round(ctx, srv, plan, rate, i, order):
    runs = {}
    for case in order:
        ctx.progress('round %d of %d: %s' % (i + 1, plan['rounds'], case[0]))
        runs[case[0]] = run_case(ctx, srv, rate, case, plan['alone'])
    case = by_hand(runs, plan)
    ctx.progress('round %d of %d: %s' % (i + 1, plan['rounds'], case[0]))
    runs[HAND] = run_case(ctx, srv, rate, case, plan['alone'])
    for r in runs.values():
        alone = runs['alone']['points']
        r['p50_alone'] = p50(alone, r['seconds'])
        r['p99_alone'] = p99(alone, r['seconds'])
    return runs


def of(rounds, name, key, relative=False):
    """Median and range over the rounds, as text and a number."""
    values = [r[name][key] / (r[name][key + '_alone'] if relative else 1)
              for r in rounds if r[name][key] is not None]
    if not values:
        return '–', None
    return ('%.2f (%.2f to %.2f)' % (measure.median(values), min(values),
                                      max(values)), measure.median(values))


def report(result, pairs, rounds):
    ratios = [b / a for a, b in pairs]
    ratio = measure.median(ratios)
    result.target('without a limit, batches take at most 1.1 x of one statement',
                  ratio <= 1.1, '%.2f (%.2f to %.2f), %d pairs' % (
                      ratio, min(ratios), max(ratios), len(ratios)))
    result.table('Medians over %d rounds, and the range' % len(rounds),
                 ['Case', 'Job, s', 'WAL of the job, MB/s', 'p50 / alone',
                  'p99 / alone', 'Releases'],
                 [[name] + [of(rounds, name, *key)[0]
                            for key in (['seconds'], ['mb'], ['p50', True],
                                        ['p99', True], ['releases'])]
                  for name in [case[0] for case in cases()] + [HAND]])
    name = 'batches, 20 MB/s'
    mb, releases = of(rounds, name, 'mb')[1], of(rounds, name, 'releases')[1]
    result.target('batches keep a limit of 20 MB/s, with no release',
                  mb <= KB / 1000 * 1.05 and releases == 0,
                  '%.1f MB/s, %d releases' % (mb, releases))
    text, p50 = of(rounds, "batches, commit_latency '50%'", 'p50', True)
    result.target("p50 of others beside batches with commit_latency '50%':"
                  ' at most 1.1 x alone', p50 is not None and p50 <= 1.1, text)


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 12000)
    chance = random.Random(1)
    with server.Server(ctx, **CONF) as srv:
        ctx.progress('preparing')
        prepare(srv, plan)
        with srv.connect() as admin:
            pairs = [run_pair(srv, admin) for _ in range(plan['pairs'])]
        rate = oltp.SHARE_OF_MAXIMUM * float(
            [line for line in srv.program(
                'pgbench', '-n', '-M', 'prepared', '-c', CLIENTS, '-T', 5
            ).split('\n') if line.startswith('tps')][0].split()[2])
        rounds = []
        for i in range(plan['rounds']):
            order = cases()
            chance.shuffle(order)
            rounds.append(run_round(ctx, srv, plan, rate, i, order))
    report(result, pairs, rounds)
    result.text('The others: %.0f transactions a second, %d clients.' % (
        rate, CLIENTS))
    result.csv('batches', ['round', 'case', 'seconds', 'wal_mb', 'p50_ms',
                           'p50_alone_ms', 'p99_ms', 'p99_alone_ms',
                           'releases'],
               [(i + 1, n, r['seconds'], r['wal'], r['p50'], r['p50_alone'],
                 r['p99'], r['p99_alone'], r['releases'])
                for i, runs in enumerate(rounds) for n, r in runs.items()])
