"""A budget of WAL for the whole server: the signal wal_rate.

Two groups with weights 3 and 1 follow `wal_rate`, and have a job each that
UPDATEs every row of a table again and again. How much WAL the server writes is
its own position, read every 20 ms, and how much of it the groups write are their
counters. Every other while somebody in no group writes half of the budget,
beginning at any moment. Judged are: the WAL of each second, whenever it begins,
but for those in which others have just begun; the mean; the ratio of the groups;
and the WAL from 300 ms to 800 ms after others have begun.
"""

import random
import threading
import time

from bench import measure, plot, server

PLANS = {'full': {'repeats': 10, 'seconds': 5},
         'quick': {'repeats': 5, 'seconds': 4},
         'tiny': {'repeats': 1, 'seconds': 2}}
BUDGET = 20                     # MB/s
ROWS = 300000
SETTLE = 5                      # seconds
GIVEN_BACK = 0.3                # seconds
PERIOD = 0.02
WEIGHTS = {'heavy': 3, 'light': 1}

QUERY = """
SELECT extract(epoch FROM clock_timestamp())::float8, wal, bytes
FROM (SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS wal,
             array_agg(wal_bytes::float8 ORDER BY group_name COLLATE "C") AS bytes
      FROM dirty_throttle_groups()
      WHERE instance IS NULL OFFSET 0) AS g"""


def seconds(mode):
    plan = PLANS[mode]
    return 15 + SETTLE + plan['repeats'] * 2 * (plan['seconds'] + 1)


class Job(threading.Thread):
    def __init__(self, srv, group):
        super().__init__(daemon=True)
        self.connection = srv.connect(group)
        self.group = group

    def run(self):
        try:
            while True:
                self.connection.execute('UPDATE %s SET id = id + 1' % self.group)
        except Exception:
            pass                    # terminated


class Others(threading.Thread):
    """Write so many bytes/s between begin() and end()."""

    def __init__(self, srv, rate):
        super().__init__(daemon=True)
        self.connection = srv.connect()
        self.rate = rate
        self.active = threading.Event()

    def run(self):
        try:
            due = time.monotonic()
            while True:
                self.active.wait()
                due = max(due + 0.01, time.monotonic() - 0.05)
                self.connection.execute(
                    "SELECT pg_logical_emit_message(false, 'others',"
                    " repeat('x', %d))" % (self.rate * 0.01))
                time.sleep(max(0, due - time.monotonic()))
        except Exception:
            pass


def rates(samples, start, end, width):
    """MB/s of WAL in each window of that width, whenever it begins."""
    result = []
    j = 0
    for t, wal, _ in samples:
        while j < len(samples) and samples[j][0] - t < width:
            j += 1
        if j == len(samples) or samples[j][0] > end:
            break
        if t >= start:
            result.append((samples[j][1] - wal) / (samples[j][0] - t) / 1e6)
    return result


def measure_all(ctx, srv, plan):
    """The samples, when all had begun, and when others began and ended."""
    chance = random.Random(1)
    with srv.connect() as admin:
        admin.execute('SET client_min_messages = warning')
        jobs = []
        for group, weight in WEIGHTS.items():
            admin.execute("CREATE TABLE %s AS SELECT g AS id, repeat('x', 100) AS"
                          ' filler FROM generate_series(1, %d) AS g'
                          % (group, ROWS))
            admin.execute('SELECT alter_resource_group(%s, weight => %s)', (group, weight))
            admin.execute("SELECT set_group_pressure(%s, 'wal_rate', %s)",
                          (group, '%dMB' % BUDGET))
            jobs.append(Job(srv, group))
        admin.execute('CHECKPOINT')
        others = Others(srv, BUDGET * 1e6 / 2)
        sampler = measure.Sampler(srv, QUERY, PERIOD)
        sampler.start()
        others.start()
        for job in jobs:
            job.start()
        time.sleep(SETTLE)
        begun, bursts = time.time(), []
        for i in range(plan['repeats']):
            ctx.progress('others, %d of %d' % (i + 1, plan['repeats']))
            time.sleep(plan['seconds'] + chance.random())
            bursts.append([time.time()])
            others.active.set()
            time.sleep(plan['seconds'] + chance.random())
            others.active.clear()
            bursts[-1].append(time.time())
        samples = sampler.stop()
        admin.execute('SELECT pg_terminate_backend(pid) FROM pg_stat_activity'
                      " WHERE backend_type = 'client backend'"
                      ' AND pid <> pg_backend_pid()')
    return samples, begun, bursts


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 4000)
    with server.Server(ctx, max_wal_size='2GB', checkpoint_timeout='30min',
                       shared_buffers='256MB', autovacuum='on') as srv:
        ctx.progress('preparing')
        srv.create_extension()
        samples, begun, bursts = measure_all(ctx, srv, plan)
    ends = samples[-1][0]
    starts = [begun] + [moment for burst in bursts for moment in burst]
    kept, used, back = [], [], []
    for start, end in zip(starts, starts[1:] + [ends]):
        kept += rates(samples, start + GIVEN_BACK, end, 1)
        used += rates(samples, start + 1, end, 1)
    for start, _ in bursts:
        back += rates(samples, start + GIVEN_BACK, start + GIVEN_BACK + 0.55, 0.5)
    first = next(s for s in samples if s[0] >= begun)
    gained = [b - a for a, b in zip(first[2], samples[-1][2])]
    ratio = gained[0] / gained[1] / WEIGHTS['heavy'] * WEIGHTS['light']
    mean = ((samples[-1][1] - first[1]) / (ends - first[0]) / 1e6)

    def percent(value):
        return '%.1f %%' % (100 * value / BUDGET)
    result.target('wal_rate: at most 105 % of the budget in each second',
                  max(kept) <= 1.05 * BUDGET, 'highest %s, median %s, of %d seconds' % (
                      percent(max(kept)), percent(measure.median(kept)), len(kept)))
    result.target('at least 95 % of it is used', mean >= 0.95 * BUDGET,
                  'mean %s, least second %s' % (percent(mean), percent(min(used))))
    result.target('3 to 1 by weight, within 5 %', abs(ratio - 1) <= 0.05,
                  '%.3f' % (3 * ratio))
    result.target('given back within 300 ms', max(back) <= 1.05 * BUDGET,
                  'from then on half a second at most %s, median %s' % (
                      percent(max(back)), percent(measure.median(back))))
    fig, ax = plot.figure(1, 1, 9, 3)
    points = [(samples[i][0] - begun,
               (samples[i][1] - samples[i - 10][1])
               / (samples[i][0] - samples[i - 10][0]) / 1e6)
              for i in range(10, len(samples), 5)]
    ax.plot([t for t, _ in points], [mb for _, mb in points], lw=0.8)
    ax.axhline(BUDGET, ls='--', lw=0.8, color='gray')
    for start, end in bursts:
        ax.axvspan(start - begun, end - begun, alpha=0.15)
    ax.set_xlabel('seconds; shaded: others write half of the budget')
    ax.set_ylabel('WAL of the server, MB/s')
    result.plot(plot.save(ctx, fig, 'budget'), 'WAL of the whole server over time')
    result.csv('budget', ['seconds', 'wal_bytes', 'heavy_bytes', 'light_bytes'],
               [(t - begun, wal - first[1], *(b - a for a, b in zip(first[2], by)))
                for t, wal, by in samples[::5]])
