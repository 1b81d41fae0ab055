"""Where the slow transactions of scenario `headroom` come from.

First, what one part of a job does by itself, beside the same load: a snapshot that
is held as long as a big statement would hold it, and nothing is written; a quarter
of a processor, in runs of 5 ms every 20 ms or of 1 ms every 4 ms, and nothing is
written; WAL at the fixed limit, in large messages, which take hardly any processor;
the job itself at that limit, in batches also with the lowest priority that the kernel gives a process (*nice*);
and an index build at that limit, by three processes and by one. Rounds, figures and
brackets are as in `headroom`.

Then the load and the jobs of that scenario, alone and beside a group that follows
`commit_latency` at 50 %, while what the sessions of the load wait for is read from
pg_stat_activity, some 200 times a second. What is found in 100 ms is put together:
how many sessions of the load wait for what, on average; what the checkpointer does;
and how much WAL the job writes. Then these tenths of a second are compared: those in
which no transaction was late, those with one that took longer than the p99 of
`alone` (*late*), and those with one above three times that (*stalled*). What is there
more often when transactions are late is where to look; it is no proof of a cause.

A session that waits for nothing is at the processor, or waits for one.
"""

import multiprocessing
import os
import signal
import time

import psycopg

from bench import headroom, measure, server

JOBS = ['UPDATE', 'UPDATE in batches']
PLANS = {
    'full': {'seconds': 60, 'rows': 1000000, 'jobs': JOBS,
             'parts': {'seconds': 16, 'rounds': 3, 'rows': 1000000}},
    'quick': {'seconds': 40, 'rows': 1000000, 'jobs': JOBS,
              'parts': {'seconds': 12, 'rounds': 1, 'rows': 1000000}},
    'tiny': {'seconds': 6, 'rows': 50000, 'jobs': JOBS[1:],
             'parts': {'seconds': 4, 'rounds': 1, 'rows': 50000}},
}
PERIOD = 0.005
BIN = 0.1
KINDS = ['in time', 'late', 'stalled']

QUERY = """
SELECT backend_type = 'checkpointer',
       coalesce(wait_event_type || ':' || wait_event, 'processor')
FROM pg_stat_activity
WHERE backend_type = 'checkpointer'
   OR application_name = 'pgbench' AND state = 'active'"""

# What the checkpointer waits for, and what it does then.
PHASES = {'Activity:CheckpointerMain': 'nothing',
          'Timeout:CheckpointWriteDelay': 'writes', 'IO:DataFileWrite': 'writes',
          'IO:DataFileSync': 'syncs', 'IO:SLRUSync': 'syncs', 'IO:WALSync': 'syncs'}
SHARE = 1 / 4                   # of a processor


class Snapshot(headroom.Job):
    def work(self):
        self.connection.execute('BEGIN ISOLATION LEVEL REPEATABLE READ')
        self.connection.execute('SELECT pg_sleep(3600)')


class Processor(headroom.Job):
    RUN = 0.005                 # seconds

    def work(self):
        def count(n):
            self.connection.execute('SELECT count(*) FROM generate_series(1, %d)' % n)

        n = 1000000
        begun = time.monotonic()
        count(n)
        n *= self.RUN / (time.monotonic() - begun)
        while not self.ends:
            count(n)
            time.sleep(self.RUN / SHARE - self.RUN)


class ShortRuns(Processor):
    RUN = 0.001


class Messages(headroom.Job):
    def work(self):
        while not self.ends:
            self.connection.execute("SELECT pg_logical_emit_message(false, 'bench',"
                                    " repeat('x', 100000)) FROM generate_series(1, 10)")


class Nice(headroom.Job):
    def work(self):
        os.setpriority(os.PRIO_PROCESS, self.connection.info.backend_pid, 19)
        super().work()


class Single(headroom.Job):
    def work(self):
        self.connection.execute('SET max_parallel_maintenance_workers = 0')
        super().work()


class Parts(headroom.Setting):
    """What one part of a job does by itself, and the jobs that have all of them."""

    FIXED = headroom.NAMES[2]
    # limit, and the job
    PARTS = {
        'a snapshot': (0, Snapshot, 'UPDATE'),
        'a quarter of a processor, 5 ms': (0, Processor, 'UPDATE'),
        'a quarter of a processor, 1 ms': (0, ShortRuns, 'UPDATE'),
        'WAL, ' + FIXED: (headroom.LIMIT, Messages, 'UPDATE'),
        'UPDATE, ' + FIXED: (headroom.LIMIT, headroom.Job, 'UPDATE'),
        'UPDATE in batches, ' + FIXED: (headroom.LIMIT, headroom.Job, 'UPDATE in batches'),
        'UPDATE in batches, nice': (headroom.LIMIT, Nice, 'UPDATE in batches'),
        'CREATE INDEX, ' + FIXED: (headroom.LIMIT, headroom.Job, 'CREATE INDEX'),
        'CREATE INDEX, one process': (headroom.LIMIT, Single, 'CREATE INDEX'),
    }

    def cases(self):
        return [('alone', None, None)] + [(name, kb, None)
                                          for name, (kb, _, _) in self.PARTS.items()]

    def make(self, case, srv, rows, path):
        if case[0] not in self.PARTS:
            return None
        _, make, job = self.PARTS[case[0]]
        return make(srv, job, rows, path)


PARTS = Parts('UPDATE', 'parts')


def seconds(mode):
    plan = PLANS[mode]
    return (headroom.estimate(plan['parts'], [PARTS])
            + len(plan['jobs']) * 2 * (plan['seconds'] + headroom.LEAD + 6))


def _watch(dsn, path):
    """Write down again and again: the time, the WAL of the job, what the
    checkpointer does, and what the sessions of the load wait for."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    with psycopg.connect(dsn, autocommit=True) as c, open(path, 'w', buffering=1) as f:
        noted, wal = 0, 0.0
        while os.getppid() == parent:
            now = time.time()
            if now - noted >= BIN:
                noted = now
                wal = headroom.protection.job_wal(c)
            rows = c.execute(QUERY).fetchall()
            print(now, wal, ' '.join([w for is_it, w in rows if is_it] or ['-']),
                  *[w for is_it, w in rows if not is_it], file=f)
            time.sleep(max(PERIOD - (time.time() - now), 0))


class Watch:
    """Watches until the end of the "with" block; samples are
    (time, WAL, phase of the checkpointer, [what sessions wait for])."""

    def __init__(self, ctx, dsn):
        self.path, self.dsn = ctx.path('waits'), dsn

    def __enter__(self):
        self.process = multiprocessing.Process(
            target=_watch, args=(self.dsn, self.path), daemon=True)
        self.process.start()
        return self

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.join()
        with open(self.path) as f:
            words = [line.split() for line in f if line.endswith('\n')]
        self.samples = [(float(w[0]), float(w[1]), PHASES.get(w[2], 'works'), w[3:])
                        for w in words]


def bins(points, samples, limits):
    """{kind: [(samples of it, MB of the job)]}, for each of the times BIN long;
    limits: the latencies, in ms, from which on it is late and stalled."""
    worst, found = {}, {}
    for at, ms in points:
        # it was slow before it ended, for as long as it took
        for i in range(int((at - ms / 1000) / BIN), int(at / BIN) + 1):
            worst[i] = max(worst.get(i, 0), ms)
    for s in samples:
        found.setdefault(int(s[0] / BIN), []).append(s)
    result = {kind: [] for kind in KINDS}
    for i, these in found.items():
        kind = KINDS[sum(worst.get(i, 0) > ms for ms in limits)]
        later = found.get(i + 1, these)
        result[kind].append((these, (later[0][1] - these[0][1]) / 1e6))
    return result


def waits(these):
    """{what sessions wait for: how many, on average}"""
    samples = [s for ss, _ in these for s in ss]
    result = {}
    for s in samples:
        for event in s[3]:
            result[event] = result.get(event, 0) + 1 / len(samples)
    return result


def share(these, phase):
    samples = [s for ss, _ in these for s in ss]
    return 100 * sum(s[2] == phase for s in samples) / max(len(samples), 1)


def report(result, label, found):
    """Returns rows for the CSV file."""
    kinds = [k for k in KINDS if found[k]]
    n = sum(len(found[k]) for k in kinds)
    by_kind = {k: waits(found[k]) for k in kinds}
    events = sorted({e for w in by_kind.values() for e in w},
                    key=lambda e: -max(w.get(e, 0) for w in by_kind.values()))[:8]
    rows = [['100 ms of %d' % n] + [len(found[k]) for k in kinds],
            ['WAL of the job, MB/s'] + [measure.mean([mb for _, mb in found[k]]) / BIN
                                        for k in kinds]]
    rows += [['checkpointer %s, %%' % phase] + [share(found[k], phase) for k in kinds]
             for phase in ('writes', 'syncs', 'works')]
    rows += [['sessions: %s' % e] + [by_kind[k].get(e, 0.0) for k in kinds]
             for e in events]
    result.table(label, [''] + kinds, rows)
    return [(label, row[0], kind, value)
            for row in rows for kind, value in zip(kinds, row[1:])]


def run_parts(ctx, result, plan, path):
    """What one part of a job does by itself.  Returns rows for the CSV file."""
    with headroom.serving(ctx, PARTS, plan, path) as srv:
        rounds, rate = headroom.run_rounds(ctx, srv, plan, PARTS, path)
    figures = {case[0]: headroom.compare(rounds, case[0]) for case in PARTS.cases()}
    headroom.table(result, 'Parts of a job, beside %.0f transactions a second' % rate,
                   figures)
    return [('parts', what, name, f[what][0]) for name, f in figures.items()
            for what in ('p50', 'p99')]


def run(ctx, result):
    plan = PLANS[ctx.mode]
    path = ctx.path('job.copy')
    server.need_disk(ctx, 12000)
    rows = run_parts(ctx, result, plan['parts'], path)
    for job in plan['jobs']:
        setting = headroom.Setting(job)
        with headroom.serving(ctx, setting, plan, path) as srv:
            rate = headroom.maximum(srv, setting) * setting.share / 100
            with srv.connect() as c:
                dsn = c.info.dsn
            runs = {}
            for case in setting.cases():
                if case[0] not in ('alone', 'protected'):
                    continue
                ctx.progress('%s: %s' % (job, case[0]))
                watch = Watch(ctx, dsn)
                runs[case[0]] = headroom.run_case(ctx, srv, plan, setting, case, rate,
                                                  path, watch=watch), watch.samples
        p99 = measure.percentile(sorted(ms for _, ms in runs['alone'][0]['points']), 99)
        for name, (r, samples) in runs.items():
            found = bins(r['points'], samples, (p99, headroom.STALL * p99))
            rows += report(result, '%s, %s; late is above %.1f ms' % (job, name, p99), found)
    result.csv('tail', ['case', 'what', 'transactions', 'value'], rows)
