"""One long statement beside hot rows, through to its end.

pgbench runs at a fixed rate in an open loop, on a default configuration; the job UPDATEs
every row of a table with four indexes. Dead versions of rows that others update all the
time stay until the transaction ends, so a job that takes longer may harm others more.
Windows of some seconds do not show that; here the figures are those of all transactions
that were scheduled from the begin of the job to its end, and what was waited is counted
from when they should have begun.

Cases: no limit; a fixed WAL limit, as one statement and in batches; the same statement as
a group that follows `commit_latency`; each as one statement that goes on without a limit
once others have used N transaction IDs since it began, which is what a guard in the
extension would do (the limit is lifted by hand here); and a snapshot that is held for as
long as the limited statement takes, with no job.
"""

import threading
import time

from bench import headroom, measure, oltp, server

PLANS = {
    'full': {'rows': 2000000, 'scale': 20, 'rate': 1500, 'rounds': 3,
             'guards': [10000, 50000, 200000], 'most': 180,
             'scripts': ['tpcb-like', 'simple-update']},
    'quick': {'rows': 500000, 'scale': 10, 'rate': 800, 'rounds': 1,
              'guards': [10000], 'most': 45, 'scripts': ['tpcb-like']},
    'tiny': {'rows': 30000, 'scale': 1, 'rate': 100, 'rounds': 1,
             'guards': [500], 'most': 10, 'scripts': ['tpcb-like']},
}
LIMIT = 20000                   # KB/s
LEAD = 3                        # seconds before the job begins


def cases(plan):
    """[(name, WAL limit or 0, signal or None, batches, transaction IDs or None)]"""
    fixed = 'fixed %d KB/s' % LIMIT
    return ([('unthrottled', 0, None, False, None),
             (fixed, LIMIT, None, False, None),
             (fixed + ', batches', LIMIT, None, True, None),
             ('protected', 0, headroom.SIGNAL, False, None),
             ('protected, batches', 0, headroom.SIGNAL, True, None)]
            + [('%s until %d transactions' % (name, n), kb, signal, False, n)
               for name, kb, signal in [(fixed, LIMIT, None),
                                        ('protected', 0, headroom.SIGNAL)]
               for n in plan['guards']]
            + [('a snapshot', None, None, False, None)])


def seconds(mode):
    plan = PLANS[mode]
    return 60 + len(plan['scripts']) * plan['rounds'] * len(cases(plan)) * (plan['most'] // 2 + 15)


def prepare(srv, plan):
    srv.create_extension()
    srv.program('pgbench', '-i', '-q', '-s', plan['scale'])


def begin_case(admin, plan, case):
    _, kb, signal, _, _ = case
    admin.execute('SET client_min_messages = warning')
    admin.execute('DROP TABLE IF EXISTS job')
    admin.execute('CREATE TABLE job AS SELECT g AS id, mod(g, 1000) AS a, mod(g, 77) AS b,'
                  " md5(g::text) AS c, repeat('x', 100) AS filler"
                  ' FROM generate_series(1, %d) AS g' % plan['rows'])
    admin.execute('ALTER TABLE job ADD PRIMARY KEY (id)')
    for column in 'abc':
        admin.execute('CREATE INDEX ON job (%s)' % column)
    admin.execute('VACUUM ANALYZE')
    admin.execute("SELECT set_group_wal_limit('job', %s::float8)", (kb or 0,))
    if signal:
        admin.execute("SELECT set_group_pressure('job', %s, %s)", signal)
    admin.execute('CHECKPOINT')


class Job(threading.Thread):
    """The UPDATE, to its end."""

    def __init__(self, srv, batches):
        super().__init__(daemon=True)
        self.connection = srv.connect('job')
        self.batches, self.error = batches, None

    def run(self):
        try:
            if self.batches:
                self.connection.execute(
                    "CALL run_in_batches('long %d', 'job',"
                    " 'UPDATE job SET a = a + 1 WHERE {batch}')" % time.time())
            else:
                self.connection.execute('UPDATE job SET a = a + 1')
        except Exception as error:
            self.error = error


def next_xid(admin):
    return admin.execute('SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8'
                         ).fetchone()[0]


def lift(admin, case):
    """What a guard would do: the statement goes on as if somebody waited."""
    if case[2]:
        admin.execute("SELECT set_group_pressure('job', %s, NULL)", case[2][:1])
    admin.execute("SELECT set_group_wal_limit('job', 0)")


def run_job(srv, admin, plan, case, hold):
    """Until it has ended, or for "most" seconds; returns whether it has."""
    _, kb, _, batches, guard = case
    if kb is None:
        with srv.connect() as c, c.transaction():
            c.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
            c.execute('SELECT txid_current()')
            time.sleep(hold)
        return True
    job, first = Job(srv, batches), next_xid(admin)
    job.start()
    end = time.monotonic() + plan['most']
    while job.is_alive() and time.monotonic() < end:
        if guard and next_xid(admin) - first >= guard:
            lift(admin, case)
            guard = None
        job.join(0.2)
    ended = not job.is_alive()
    if not ended:
        admin.execute('SELECT pg_terminate_backend(%s)',
                      (job.connection.info.backend_pid,))
        job.join()
    elif job.error:
        raise job.error
    return ended


def run_case(ctx, srv, plan, script, case, hold):
    log = ctx.path('long_log')
    with srv.connect() as admin:
        begin_case(admin, plan, case)
        load = srv.popen('pgbench', '-n', '-b', script, '-M', 'prepared', '-c', 8, '-T',
                         plan['most'] + 60, '-R', plan['rate'], '-l', '--log-prefix', log)
        time.sleep(LEAD)
        begun = time.time()
        ended = run_job(srv, admin, plan, case, hold)
        took = time.time() - begun
        # those that are late are still to be counted
        time.sleep(3 + took / 4)
        load.terminate()
        load.wait()
        server.drop(admin, 'job')
    waited = sorted(ms for at, ms in oltp.latencies(log)
                    if begun <= at - ms / 1000 < begun + took)
    return {'took': took, 'ended': ended, 'average': sum(waited) / max(len(waited), 1),
            'p50': measure.percentile(waited, 50), 'p99': measure.percentile(waited, 99),
            'sum': sum(waited) / 1000}


def run(ctx, result):
    plan, rows = PLANS[ctx.mode], []
    for script in plan['scripts']:
        with server.Server(ctx, autovacuum='on') as srv:
            prepare(srv, plan)
            for i in range(plan['rounds']):
                hold = 1
                for case in cases(plan):
                    ctx.progress('%s, round %d: %s' % (script, i + 1, case[0]))
                    r = run_case(ctx, srv, plan, script, case, hold)
                    hold = max(hold, r['took']) if case[1] and not case[3] else hold
                    rows.append([script, i + 1, case[0], r['took'] if r['ended'] else None,
                                 r['average'], r['p50'], r['p99'], r['sum']])
    result.table('Others, from the begin of the job to its end',
                 ['Script', 'Round', 'Case', 'the job took, s', 'average, ms', 'p50, ms',
                  'p99, ms', 'all together waited, s'], rows)
    result.csv('long_statement', ['script', 'round', 'case', 'took_s', 'average_ms', 'p50_ms',
                                  'p99_ms', 'sum_s'], rows)
