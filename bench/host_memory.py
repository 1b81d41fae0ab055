"""The kernel's dirty memory in a bulk load: bounded by whom?

One session loads a table with COPY into a server with small shared_buffers,
so that the server keeps writing to the kernel; `Dirty` and `Writeback` of
/proc/meminfo are sampled ten times a second, less what they were before. Then
a CHECKPOINT makes all of it durable. Before each load the kernel's dirty
memory is flushed with sync.

It is done with the kernel's settings as they are and no limit; with
vm.dirty_bytes and vm.dirty_background_bytes at several values and no limit,
where they may be written (as root, not in most containers; they are restored
afterwards); and with the kernel's settings as they are and the session in a
group with a limit. The server writes data through the kernel's cache and
flushes only WAL, and data at a checkpoint, so a group's limit bounds how fast
dirty memory grows, not how much there is: how much depends on how fast the
kernel writes it back, which by default begins after 30 s (dirty_expire) or
at 10 % of memory. A row in the table for limits has backend_flush_after, too,
with which the server asks the kernel to write back at once.
"""

import os
import threading
import time

from bench import measure, plot, server

PLANS = {
    'full': {'rows': 7500000, 'limits': [100000, 50000, 25000], 'repeats': 3,
             'kernel': [(1000, 500), (500, 250), (100, 50)]},
    'quick': {'rows': 2000000, 'limits': [100000, 50000], 'repeats': 1,
              'kernel': [(500, 250), (100, 50)]},
    'tiny': {'rows': 200000, 'limits': [50000], 'repeats': 1,
             'kernel': [(100, 50)]},
}
BYTES_PER_ROW = 136             # in the table
FLUSH_AFTER = '2MB'


def cases(plan):
    """(text, kernel's MB, limit, backend_flush_after)"""
    return ([('kernel as it is, no limit', None, 0, None)]
            + [('vm.dirty_bytes %d MB, background %d MB, no limit' % mb, mb, 0,
                None) for mb in plan['kernel']]
            + [('limit %d KB/s' % kb, None, kb, None)
               for kb in plan['limits']]
            + [('limit %d KB/s, backend_flush_after %s' % (kb, FLUSH_AFTER),
                None, kb, FLUSH_AFTER) for kb in plan['limits'][1:2]
               or plan['limits']])


def seconds(mode):
    plan = PLANS[mode]
    mb = plan['rows'] * BYTES_PER_ROW / 1e6
    once = sum(mb * 1000 / kb if kb else mb / 140
               for _, _, kb, _ in cases(plan)) + 1.5 * len(cases(plan))
    return 5 + plan['repeats'] * once


class KernelSettings:
    """Asks bench/run, which may be root, to change vm.dirty_*."""

    def __init__(self, ctx):
        self.directory = ctx.path('sysctl')
        self.possible = os.path.isdir(self.directory)

    def set(self, mb):
        """(bytes, background bytes) in MB, or None for as it was."""
        if not self.possible:
            return False
        numbers = [m * 1000000 for m in mb] if mb else [0, 0]
        # the kernel takes whole pages
        numbers = [n - n % os.sysconf('SC_PAGE_SIZE') for n in numbers]
        request = os.path.join(self.directory, 'request')
        answer = os.path.join(self.directory, 'answer')
        if os.path.exists(answer):
            os.unlink(answer)
        with open(request + '.new', 'w') as f:
            f.write('%d %d\n' % tuple(numbers))
        os.rename(request + '.new', request)
        for _ in range(100):
            time.sleep(0.05)
            if os.path.exists(answer):
                with open(answer) as f:
                    return f.read().strip() == 'ok'
        return False


def dirty_mb():
    """Dirty and Writeback of the machine, MB (10^6 bytes)."""
    with open('/proc/meminfo') as f:
        values = dict(line.split(':') for line in f)
    return [int(values[k].split()[0]) * 1024 / 1e6
            for k in ('Dirty', 'Writeback')]


class MemorySampler(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.samples = []
        self.end = threading.Event()

    def run(self):
        due = time.monotonic()
        while not self.end.is_set():
            self.samples.append((time.time(), *dirty_mb()))
            due += 0.1
            self.end.wait(max(0, due - time.monotonic()))

    def stop(self):
        self.end.set()
        self.join()
        return self.samples


def quiet():
    """Flush the kernel's dirty memory and wait until it is gone."""
    os.sync()
    for _ in range(100):
        if sum(dirty_mb()) < 20:
            break
        time.sleep(0.1)


def load(srv, plan, case, define=None):
    """define: a function that defines more of the group "load"."""
    text, _, kb, flush_after = case
    with srv.connect() as c:
        c.execute('SET client_min_messages = warning')
        c.execute('DROP TABLE IF EXISTS loaded')
        c.execute('CREATE TABLE loaded (id int, filler text)')
        c.execute('CHECKPOINT')
        server.limit(c, 'load', kb)
        if define:
            define(c)
        if flush_after:
            c.execute("SET backend_flush_after = '%s'" % flush_after)
        c.execute('SET dirty_throttle."group" = \'load\'')
        quiet()
        before = sum(dirty_mb())
        sampler = MemorySampler()
        sampler.start()
        start = time.time()
        c.execute("COPY loaded FROM PROGRAM 'yes \"1\t%s\" | head -n %d'"
                  % ('x' * 96, plan['rows']))
        loaded = time.time()
        c.execute('CHECKPOINT')
        durable = time.time()
        samples = sampler.stop()
        c.execute('RESET dirty_throttle."group"')
        c.execute('DROP TABLE loaded')
        c.execute('CHECKPOINT')
        server.drop(c, 'load')
    points = [(t - start, d, w) for t, d, w in samples]
    during = [d + w - before for t, d, w in points if t <= loaded - start]
    return {'points': points, 'before': before, 'max_dirty': max(during),
            'max_with_checkpoint': max(d + w - before for _, d, w in points),
            'load': loaded - start, 'durable': durable - start,
            'rows_per_second': plan['rows'] / (loaded - start),
            'rows_per_second_durable': plan['rows'] / (durable - start)}


def every_tenth(points):
    """Of a long series at most some 300 points, the highest of each piece."""
    n = len(points) // 300 + 1
    return [max(points[i:i + n], key=lambda p: p[1] + p[2])
            for i in range(0, len(points), n)]


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 5 * plan['rows'] * BYTES_PER_ROW // 1000000)
    kernel = KernelSettings(ctx)
    by_case, refused = {}, False
    with server.Server(ctx, shared_buffers='128MB', max_wal_size='8GB',
                       checkpoint_timeout='1h', wal_compression='off') as srv:
        srv.create_extension()
        for i in range(plan['repeats']):
            for case in cases(plan):
                if case[1] and (refused or not kernel.set(case[1])):
                    refused = True
                    continue
                ctx.progress('%s, %d of %d' % (case[0], i + 1,
                                               plan['repeats']))
                try:
                    by_case.setdefault(case[0], []).append(
                        load(srv, plan, case))
                finally:
                    if case[1]:
                        kernel.set(None)

    keys = ['max_dirty', 'load', 'rows_per_second', 'max_with_checkpoint',
            'durable', 'rows_per_second_durable']
    result.csv('host_memory',
               ['setting', 'run', 'max_dirty_mb', 'load_s', 'rows_per_s',
                'max_dirty_with_checkpoint_mb', 'durable_s',
                'rows_per_s_durable'],
               [(name, i + 1, *(r[k] for k in keys))
                for name, runs in by_case.items() for i, r in enumerate(runs)])
    result.csv('host_memory_series', ['setting', 'seconds', 'dirty_mb',
                                      'writeback_mb'],
               [(name, *(float(v) for v in p)) for name, runs
                in by_case.items() for p in every_tenth(runs[0]['points'])])

    fig, ax = plot.figure(1, 1, 10, 4.5)
    for name, runs in by_case.items():
        points = every_tenth(runs[0]['points'])
        ax.plot([p[0] for p in points], [p[1] + p[2] for p in points], lw=1.2,
                label=name)
        ax.axvline(runs[0]['load'], lw=0.6, ls=':',
                   color=ax.get_lines()[-1].get_color())
    ax.set_xlabel('seconds; dotted: the load has ended, the CHECKPOINT begins')
    ax.set_ylabel('Dirty + Writeback, MB')
    ax.legend(fontsize=7)
    result.plot(plot.save(ctx, fig, 'host_memory'),
                'dirty memory of the kernel during the load')
    result.table('The load of %.1f million rows, %.0f MB: median of %d runs;'
                 ' 1 MB is 10^6 bytes' % (
                     plan['rows'] / 1e6,
                     plan['rows'] * BYTES_PER_ROW / 1e6, plan['repeats']),
                 ['Setting', 'Max dirty, MB', 'least .. most', 'Time, s',
                  'Rows per second'],
                 [[name, round(middle(runs, 'max_dirty')),
                   '%.0f .. %.0f' % (min(r['max_dirty'] for r in runs),
                                     max(r['max_dirty'] for r in runs)),
                   '%.1f' % middle(runs, 'load'),
                   round(middle(runs, 'rows_per_second'))]
                  for name, runs in by_case.items()])
    result.table('The same with the CHECKPOINT included: until all is durable',
                 ['Setting', 'Max dirty, MB', 'CHECKPOINT, s',
                  'Time in all, s', 'Rows per second'],
                 [[name, round(middle(runs, 'max_with_checkpoint')),
                   '%.1f' % (middle(runs, 'durable') - middle(runs, 'load')),
                   '%.1f' % middle(runs, 'durable'),
                   round(middle(runs, 'rows_per_second_durable'))]
                  for name, runs in by_case.items()])
    if refused:
        result.text('**The kernel\'s settings were not measured**: vm.dirty_*'
                    ' could not be written (not root, a container, or'
                    ' --no-sysctl).')
    free = by_case['kernel as it is, no limit']
    limits = [(kb, by_case['limit %d KB/s' % kb]) for kb in plan['limits']]
    result.finding('max dirty memory',
                   'no limit %.0f MB; ' % middle(free, 'max_dirty')
                   + ', '.join('%d KB/s %.0f MB' % (kb, middle(runs, 'max_dirty'))
                              for kb, runs in limits)
                  + ('; the kernel\'s settings could not be changed'
                     if refused else ''))


def middle(runs, key):
    return measure.median([r[key] for r in runs])
