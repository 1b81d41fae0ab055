"""Two hundred tenants in one server, ten of them noisy.

Each tenant is a role with a table, and has two small transactions a second, whose
latency counts from when each was due (pgbench --rate). Ten of them also UPDATE
20 000 rows again and again. Each round has all cases in random order, and "alone",
without the noisy ones' bulk, is one of them: a case is compared with that of the same
round. What the DBA types for each case is in the code; in all of them the tenants are
in the group by `ALTER DATABASE postgres SET dirty_throttle."group" = 'tenants'`.
"""

import random
import time

from bench import measure, oltp, server
from bench.canary import Canary

PLANS = {'full': {'rounds': 10, 'seconds': 20, 'tenants': 200},
         'quick': {'rounds': 4, 'seconds': 12, 'tenants': 200},
         'tiny': {'rounds': 1, 'seconds': 3, 'tenants': 20}}
NOISY = 10
ROWS = 20000
SETTLE = 4                      # seconds
BUDGET = 10                     # MB/s, of all together
TAIL = 1.2                      # as slow as alone, at most
SHARE = 0.8                     # of the budget is used, at least

SCOPE = "SELECT alter_resource_group('tenants', scope => 'role'%s)"
BUDGETED = SCOPE + ", set_group_pressure('tenants', 'wal_rate', '%d MB')" % BUDGET
ALTER = "SELECT alter_resource_group('tenants', %s)"

# Name, what is typed, whether it has to meet the targets.  None: no group.
CASES = [
    ('alone', None, False),
    ('no limit', None, False),
    ('each 1 MB/s', SCOPE % ", wal_limit => '1 MB'", True),
    ('a budget of 10 MB/s', BUDGETED % '', True),
    ('each 1 MB/s and a burst of 1 min within the budget',
     BUDGETED % ", wal_limit => '1 MB', burst => '1 min'", True),
    ('all in one group, 10 MB/s, allowance 64 MB',
     ALTER % "wal_limit => '10 MB', allowance => '64 MB'", False),
    ('all in one group, 10 MB/s, allowance 1 MB',
     ALTER % "wal_limit => '10 MB', allowance => '1 MB'", False),
    ("commit_latency '50%', allowance 1 MB",
     ALTER % "scope => 'role', allowance => '1 MB'"
     + ", set_group_pressure('tenants', 'commit_latency', '50%')", False)]


def seconds(mode):
    plan = PLANS[mode]
    return 20 + plan['rounds'] * len(CASES) * (plan['seconds'] + SETTLE + 3)


def prepare(ctx, srv, plan):
    srv.create_extension()
    with srv.connect() as admin:
        for i in range(plan['tenants']):
            rows = ROWS if i < NOISY else 1
            admin.execute('CREATE ROLE t%d LOGIN' % i)
            for table, n in ('small', 100), ('bulk', rows):
                admin.execute(
                    'CREATE TABLE %s%d (id int PRIMARY KEY, n int, filler text);'
                    " INSERT INTO %s%d SELECT g, 0, repeat('x', 100) FROM"
                    ' generate_series(1, %d) AS g; ALTER TABLE %s%d OWNER TO t%d'
                    % (table, i, table, i, n, table, i, i))
    for name, sql in (('small', '\\set id random(1, 100)\n'
                       'UPDATE small:t SET n = n + 1 WHERE id = :id;'),
                      ('bulk', 'UPDATE bulk:t SET n = n + 1;')):
        with open(ctx.path(name + '.sql'), 'w') as f:
            f.write(sql + '\n')


def pgbench(ctx, srv, i, script, *more):
    return srv.popen('pgbench', '-n', '-U', 't%d' % i, '-D', 't=%d' % i, '-f',
                     ctx.path(script + '.sql'), *more)


def run_case(ctx, srv, plan, case):
    """Latencies of the quiet ones and the noisy ones, sorted, and WAL in MB/s."""
    name, typed, _ = case
    lsn = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"
    with srv.connect() as admin:
        admin.execute('SET client_min_messages = warning')
        if typed:
            admin.execute(typed)
            admin.execute('ALTER DATABASE postgres SET dirty_throttle."group"'
                          " = 'tenants'")
        admin.execute('CHECKPOINT')
        length = plan['seconds'] + SETTLE
        clients = [pgbench(ctx, srv, i, 'small', '-R', 2, '-T', length, '-l', '--log-prefix',
                           ctx.path('quiet' if i >= NOISY else 'noisy'))
                   for i in range(plan['tenants'])]
        noisy = [pgbench(ctx, srv, i, 'bulk', '-T', 10 * length)
                 for i in range(NOISY) if name != 'alone']
        time.sleep(SETTLE)
        begun, wal = time.time(), admin.execute(lsn).fetchone()[0]
        time.sleep(plan['seconds'] - 1)
        ended = time.time()
        wal = (admin.execute(lsn).fetchone()[0] - wal) / (ended - begun) / 1e6
        for client in noisy:
            client.terminate()
        admin.execute('SELECT pg_terminate_backend(pid) FROM pg_stat_activity'
                      " WHERE query LIKE 'UPDATE bulk%%'")
        if any([client.wait(120) for client in clients]):
            raise RuntimeError('pgbench failed')
        admin.execute('ALTER DATABASE postgres RESET dirty_throttle."group"')
        if typed:
            server.drop(admin, 'tenants')
    return [sorted(ms for at, ms in oltp.latencies(ctx.path(who))
                   if begun <= at <= ended) for who in ('quiet', 'noisy')] + [wal]


def figures(measured):
    quiet, noisy, wal = measured
    return [measure.percentile(quiet, 50), measure.percentile(quiet, 99),
            measure.percentile(quiet, 99.9), measure.percentile(noisy, 50),
            measure.percentile(noisy, 99), wal]


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 6000)
    chance = random.Random(1)
    rounds, busy = [], 0         # of the latter, measurements of "alone"
    with server.Server(ctx, max_connections=plan['tenants'] + NOISY + 20,
                       max_wal_size='2GB', autovacuum='on',
                       shared_buffers=server.shared_buffers(1024)) as srv:
        ctx.progress('preparing')
        prepare(ctx, srv, plan)
        for n in range(plan['rounds']):
            found = {}
            for case in chance.sample(CASES, len(CASES)):
                ctx.progress('round %d, %s' % (n + 1, case[0]))
                started = time.time()
                with Canary(ctx) as canary:
                    found[case[0]] = figures(run_case(ctx, srv, plan, case))
                    busy += case[0] == 'alone' and not canary.was_quiet(
                        started, time.time(), busy=True)
            rounds.append(found)

    def column(name, i):
        return [found[name][i] for found in rounds]

    def compare(name, i):
        ratios = [found[name][i] / found['alone'][i] for found in rounds]
        return measure.interval(ratios, measure.median)

    for name, _, judged in CASES:
        if not judged:
            continue
        for who, i in (('quiet, p50', 0), ('quiet, p99', 1),
                       ("the noisy ones' own, p50", 3), ("the noisy ones' own, p99", 4)):
            ratio = compare(name, i)
            result.target('%s, %s: at most %g x alone' % (name, who, TAIL),
                          ratio[0] <= TAIL if busy * 2 <= len(rounds) else None,
                          '%.2f (%.2f .. %.2f)' % ratio)
        wal = measure.median(column(name, 5))
        result.target('%s: at least %.0f %% of it is used' % (name, 100 * SHARE),
                      wal >= SHARE * BUDGET, '%.1f of %d MB/s' % (wal, BUDGET))
    result.table('Medians over %d rounds' % len(rounds),
                 ['case', 'quiet p50 ms', 'p99', 'p99.9', "noisy ones' own p50",
                  'p99', 'WAL MB/s'],
                 [[name] + [measure.median(column(name, i)) for i in range(6)]
                  for name, _, _ in CASES])
    result.text('In %d of %d rounds a process that sleeps for 10 ms was late while nobody'
                ' was noisy: the machine was busy with something else.' % (busy, len(rounds)))
    result.csv('tenants', ['round', 'case', 'quiet_p50_ms', 'quiet_p99_ms',
                           'quiet_p999_ms', 'noisy_p50_ms', 'noisy_p99_ms', 'wal_mb_s'],
               [[n, name] + found[name] for n, found in enumerate(rounds)
                for name, _, _ in CASES])
