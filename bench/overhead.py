"""What it costs sessions that are not throttled.

Four configurations take turns, A B C D A B C D ..., on one data directory; the
server is started anew for each turn:

- A: the library is not loaded;
- B: loaded, the session is in no group;
- C: member of a group without a limit;
- D: member of a group whose limit is out of reach (16 777 216 KB/s).

A turn runs pgbench (select-only and TPC-B, with one and two clients, prepared
statements), an INSERT ... SELECT and a COPY FROM of 100 000 rows into a new
table, and a count(*) of that many rows, several times; fsync is off, all data
fit into shared buffers. Each round of four turns gives one ratio of speeds
B/A, C/A and D/A for each kind of work. The table has the median ratio and its
95 % confidence interval (bootstrap over the rounds). Turns before the first
round, which find everything cold, do not count. A target is met when the
interval is above it, missed when it is below, not decided when it is within.

Instructions are counted by `perf` where the machine has counters, otherwise
by valgrind's callgrind in the server process (of a server: a single-user
session is in no group); of two runs of different length the difference is taken, so that what happens once per session cancels out.
Under valgrind time passes some 50 times slower in comparison, so what happens
by the clock would be overstated: the handler of the timer that charges a
running statement, at most a thousand times a second, is not counted there.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import time

from bench import measure, plot, server

CONFIGURATIONS = ['A', 'B', 'C', 'D']
TEXT = {'A': 'not loaded', 'B': 'no group', 'C': 'no limit',
        'D': 'limit out of reach'}
OUT_OF_REACH = 16777216
SPEED_TARGET = 0.995
INSTRUCTIONS_TARGET = {'B': 0.1, 'C': 0.5, 'D': 0.5}     # per cent

PLANS = {
    'full': {'rounds': 14, 'pgbench': 2, 'repeats': 3, 'scale': 10,
             'rows': 100000, 'counted': 5, 'warm_up': 2},
    'quick': {'rounds': 3, 'pgbench': 1, 'repeats': 2, 'scale': 5,
              'rows': 100000, 'counted': 1, 'warm_up': 1},
    'tiny': {'rounds': 1, 'pgbench': 1, 'repeats': 1, 'scale': 1,
             'rows': 10000, 'counted': 1, 'warm_up': 0},
}

PGBENCH = {                     # arguments
    'select-only, 1 client': ['-S', '-c', '1'],
    'select-only, 2 clients': ['-S', '-c', '2', '-j', '2'],
    'TPC-B, 1 client': ['-c', '1'],
    'TPC-B, 2 clients': ['-c', '2', '-j', '2'],
}
STATEMENTS = {                  # prepare, measure
    'INSERT ... SELECT': ('TRUNCATE target',
                          'INSERT INTO target SELECT * FROM source'),
    'COPY FROM': ('TRUNCATE target', "COPY target FROM '{file}'"),
    'count(*)': ('SELECT 1', 'SELECT count(*) FROM source'),
}
WORK = [*PGBENCH, *STATEMENTS]

# Work whose instructions are counted: SQL for a unit, units of the two runs.
COUNTED = {
    'point SELECT': ('SELECT abalance FROM pgbench_accounts WHERE aid = {i}',
                     200, 1200),
    'TPC-B transaction': (
        'BEGIN; UPDATE pgbench_accounts SET abalance = abalance + 1'
        ' WHERE aid = {i}; SELECT abalance FROM pgbench_accounts WHERE'
        ' aid = {i}; UPDATE pgbench_tellers SET tbalance = tbalance + 1'
        ' WHERE tid = 1 + {i} % 10; UPDATE pgbench_branches SET'
        ' bbalance = bbalance + 1 WHERE bid = 1; INSERT INTO pgbench_history'
        ' (tid, bid, aid, delta, mtime) VALUES (1, 1, {i}, 1, now()); END',
        100, 400),
    'INSERT ... SELECT, 5000 rows': (
        'TRUNCATE target; INSERT INTO target SELECT * FROM small', 1, 4),
    'COPY FROM, 5000 rows': ("TRUNCATE target; COPY target FROM '{file}'",
                             1, 4),
    'count(*), 5000 rows': ('SELECT count(*) FROM small', 2, 22),
}


def seconds(mode):
    plan = PLANS[mode]
    turn = 1.5 + len(PGBENCH) * (plan['pgbench'] + 0.1) + plan['repeats'] * (
        3e-6 * plan['rows'])
    return (15 + (4 * plan['rounds'] + plan['warm_up']) * turn
            + 4 * plan['counted'] * 10)


def configuration(letter):
    """Configuration of the server, and the group of its sessions."""
    if letter == 'A':
        return {'shared_preload_libraries': ''}, None
    return {}, {'B': None, 'C': 'free', 'D': 'far'}[letter]


def prepare(ctx, srv, plan):
    srv.create_extension()
    srv.program('pgbench', '-i', '-q', '-s', plan['scale'])
    with srv.connect() as c:
        server.limit(c, 'free', 0)
        server.limit(c, 'far', OUT_OF_REACH)
        columns = '(id int, filler text)'
        for table, rows in (('source', plan['rows']), ('small', 5000)):
            c.execute('CREATE TABLE %s %s' % (table, columns))
            c.execute("INSERT INTO %s SELECT i, repeat('x', 80)"
                      ' FROM generate_series(1, %d) i' % (table, rows))
            c.execute("COPY %s TO '%s'" % (table, ctx.path(table + '.copy')))
        c.execute('CREATE TABLE target ' + columns)
        # hint bits, the visibility map: nothing is left to do for the first
        c.execute('VACUUM FREEZE ANALYZE')
        c.execute('CHECKPOINT')


def warm_up(srv):
    with srv.connect() as c:
        for table in ('pgbench_accounts', 'source', 'small'):
            c.execute('SELECT count(*) FROM ' + table)
        c.execute('SET enable_seqscan = off')
        c.execute('SELECT count(aid) FROM pgbench_accounts')


def turn(ctx, srv, plan, letter):
    """Speeds of one configuration: {work: per second}."""
    conf, group = configuration(letter)
    srv.restart(**conf)
    warm_up(srv)
    result = {}
    for work, arguments in PGBENCH.items():
        text = srv.program('pgbench', '-n', '-M', 'prepared', '-T',
                           plan['pgbench'], *arguments, group=group)
        result[work] = float(re.search(r'^tps = ([\d.]+)', text, re.M)[1])
    with srv.connect(group) as c:
        for work, (before, statement) in STATEMENTS.items():
            statement = statement.format(file=ctx.path('source.copy'))
            times = []
            for _ in range(plan['repeats'] * (3 if work == 'count(*)' else 1)):
                c.execute(before)
                start = time.perf_counter()
                c.execute(statement)
                times.append(time.perf_counter() - start)
            result[work] = 1 / measure.median(times)
    return result


# -------------------------------------------------------------- instructions

def perf_counts():
    """Has this machine counters that perf can read?"""
    if not shutil.which('perf'):
        return False
    text = subprocess.run(['perf', 'stat', '-x', ',', '-e', 'instructions:u',
                           'true'], capture_output=True, text=True).stderr
    return re.search(r'^\d+,.*instructions', text, re.M) is not None


def counted_sql(ctx, work, units):
    sql = COUNTED[work][0].replace('{file}', ctx.path('small.copy'))
    return [sql.replace('{i}', str(i + 1)) for i in range(units)]


def run_units(connection, statements):
    for sql in statements:
        connection.execute(sql, prepare=False)


def count_by_perf(ctx, srv, letter, work, units):
    conf, group = configuration(letter)
    with srv.connect(group) as c:
        run_units(c, counted_sql(ctx, work, 1))         # caches are filled
        perf = subprocess.Popen(
            ['perf', 'stat', '-x', ',', '-e', 'instructions:u', '-p',
             str(c.info.backend_pid)], stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)
        run_units(c, counted_sql(ctx, work, units))
        perf.send_signal(signal.SIGINT)
        text = perf.communicate()[1]
    return int(re.search(r'^(\d+),.*instructions', text, re.M)[1])


class UnderCallgrind:
    """The server, its processes under callgrind."""

    def __init__(self, ctx, srv, letter):
        self.ctx, self.srv = ctx, srv
        self.conf, self.group = configuration(letter)
        self.files = ctx.path('callgrind.')

    def __enter__(self):
        self.srv.configure(**self.conf)
        with open(self.ctx.path('callgrind.log'), 'a') as log:
            self.process = subprocess.Popen(
                ['valgrind', '--tool=callgrind', '--trace-children=yes',
                 '--callgrind-out-file=%s%%p' % self.files,
                 '--toggle-collect=tick',       # in src/backend/live.c
                 '--collect-atstart=yes',
                 os.path.join(server.bindir(), 'postgres'), '-D',
                 self.srv.data], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)
        for _ in range(600):
            try:
                self.srv.connect().close()
                return self
            except Exception:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise RuntimeError('the server does not start under valgrind')

    def __exit__(self, *exc):
        self.process.send_signal(signal.SIGINT)         # a fast shutdown
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for file in glob.glob(self.files + '*'):
            os.unlink(file)

    def count(self, work, units):
        with self.srv.connect() as c:       # the same to begin with
            c.execute('VACUUM pgbench_branches, pgbench_tellers')
        with self.srv.connect(self.group) as c:
            pid = c.info.backend_pid
            run_units(c, counted_sql(self.ctx, work, 1))
            run_units(c, counted_sql(self.ctx, work, units))
        file = '%s%d' % (self.files, pid)
        for _ in range(600):
            try:
                with open(file) as f:
                    found = re.search(r'^totals: (\d+)', f.read(), re.M)
                if found:
                    return int(found[1])
            except FileNotFoundError:
                pass
            time.sleep(0.05)
        raise RuntimeError('callgrind wrote no totals')


def instructions(ctx, srv, plan):
    """{(configuration, work): [instructions per unit]}, and the tool."""
    counts = {}
    perf = perf_counts()
    if not perf and not shutil.which('valgrind'):
        return counts, None
    for i in range(plan['counted']):
        for letter in CONFIGURATIONS:
            ctx.progress('instructions, configuration %s, %d of %d'
                         % (letter, i + 1, plan['counted']))
            if perf:
                srv.restart(**configuration(letter)[0])
                for work, (_, few, many) in COUNTED.items():
                    n = [count_by_perf(ctx, srv, letter, work, units)
                         for units in (few, many)]
                    counts.setdefault((letter, work), []).append(
                        (n[1] - n[0]) / (many - few))
                continue
            srv.stop()
            with UnderCallgrind(ctx, srv, letter) as callgrind:
                for work, (_, few, many) in COUNTED.items():
                    n = [callgrind.count(work, units)
                         for units in (few, many)]
                    counts.setdefault((letter, work), []).append(
                        (n[1] - n[0]) / (many - few))
    return counts, 'perf' if perf else 'callgrind'


# ------------------------------------------------------------------- results

def judge_speed(result, ratios):
    for letter in 'BCD':
        intervals = {work: measure.median_interval(ratios[letter, work])
                     for work in WORK}
        below = [w for w, (_, _, high) in intervals.items()
                 if high < SPEED_TARGET]
        within = [w for w, (_, low, high) in intervals.items()
                  if low < SPEED_TARGET <= high]
        worst = min(intervals.items(), key=lambda item: item[1][0])
        result.target(
            '%s: speed / not loaded >= %s' % (TEXT[letter], SPEED_TARGET),
            False if below else None if within else True,
            'worst %s: %.4f (%.4f .. %.4f)' % (worst[0], *worst[1])
            + ('; below: ' + ', '.join(below) if below else '')
            + ('; interval includes it: ' + ', '.join(within) if within
               else ''))


def judge_instructions(result, counts, tool):
    for letter in 'BCD':
        text = '%s: instructions <= +%.1f %%' % (TEXT[letter],
                                                 INSTRUCTIONS_TARGET[letter])
        if not tool:
            result.target(text, None, 'neither perf nor valgrind is here')
            continue
        more = {work: 100 * (measure.median(counts[letter, work])
                             / measure.median(counts['A', work]) - 1)
                for work in COUNTED}
        worst = max(more, key=more.get)
        result.target(text, more[worst] <= INSTRUCTIONS_TARGET[letter],
                      ', '.join('%s %+.2f %%' % item for item in more.items()))


def draw(ctx, result, ratios, counts, tool):
    fig, axes = plot.figure(1, 2, 11, 4)
    colors = {'B': 'tab:green', 'C': 'tab:blue', 'D': 'tab:orange'}
    for k, letter in enumerate('BCD'):
        for y, work in enumerate(WORK):
            mid, low, high = measure.median_interval(ratios[letter, work])
            axes[0].errorbar(mid, y + 0.22 * (k - 1),
                             xerr=[[mid - low], [high - mid]], fmt='o',
                             ms=3, capsize=2, color=colors[letter],
                             label=TEXT[letter] if y == 0 else None)
    axes[0].axvline(1, color='0.5', lw=0.8)
    axes[0].axvline(SPEED_TARGET, color='tab:red', lw=0.8, ls='--')
    axes[0].set_yticks(range(len(WORK)), WORK)
    axes[0].invert_yaxis()
    axes[0].set_xlabel('speed / speed when not loaded, 95 % intervals')
    axes[0].legend(fontsize=7)
    if tool:
        for k, letter in enumerate('BCD'):
            values = [100 * (measure.median(counts[letter, w])
                             / measure.median(counts['A', w]) - 1)
                      for w in COUNTED]
            axes[1].barh([y + 0.25 * (k - 1) for y in range(len(COUNTED))],
                         values, 0.22, color=colors[letter])
        axes[1].axvline(0.1, color='tab:red', lw=0.8, ls='--')
        axes[1].axvline(0.5, color='tab:red', lw=0.8, ls='--')
        axes[1].set_yticks(range(len(COUNTED)), list(COUNTED))
        axes[1].invert_yaxis()
        axes[1].set_xlabel('instructions, %% more than when not loaded (%s)'
                           % tool)
    result.plot(plot.save(ctx, fig, 'overhead'), 'speed and instructions')


def run(ctx, result):
    plan = PLANS[ctx.mode]
    speeds = []
    with server.Server(ctx, shared_buffers=server.shared_buffers(1024),
                       fsync='off', max_wal_size='4GB',
                       min_wal_size='2GB',
                       checkpoint_timeout='1h',
                       bgwriter_lru_maxpages=0) as srv:
        ctx.progress('preparing')
        prepare(ctx, srv, plan)
        for i in range(plan['warm_up']):
            turn(ctx, srv, plan, 'A')
        for i in range(plan['rounds']):
            ctx.progress('round %d of %d' % (i + 1, plan['rounds']))
            speeds.append({letter: turn(ctx, srv, plan, letter)
                           for letter in CONFIGURATIONS})
        counts, tool = instructions(ctx, srv, plan)

    result.csv('overhead_speed', ['round', 'configuration', 'work',
                                  'per_second'],
               [(i + 1, letter, work, r[letter][work])
                for i, r in enumerate(speeds) for letter in CONFIGURATIONS
                for work in WORK])
    result.csv('overhead_instructions',
               ['run', 'configuration', 'work', 'instructions', 'tool'],
               [(i + 1, letter, work, n, tool)
                for (letter, work), values in counts.items()
                for i, n in enumerate(values)])
    ratios = {(letter, work): [r[letter][work] / r['A'][work] for r in speeds]
              for letter in 'BCD' for work in WORK}
    judge_speed(result, ratios)
    judge_instructions(result, counts, tool)
    draw(ctx, result, ratios, counts, tool)
    result.table(
        'Speed / speed when not loaded: median ratio (95 %% interval) of %d'
        ' rounds' % plan['rounds'],
        ['Work', 'Not loaded, per second', *(TEXT[k] for k in 'BCD')],
        [[work, measure.median([r['A'][work] for r in speeds]),
          *('%.4f (%.4f .. %.4f)' % measure.median_interval(ratios[k, work])
            for k in 'BCD')] for work in WORK])
    if tool:
        result.table(
            'Instructions per unit (%s): more than when not loaded, median'
            ' (least .. most) of %d runs; the runs of "not loaded" differ by'
            ' the last column' % (tool, plan['counted']),
            ['Unit', 'Not loaded', *(TEXT[k] for k in 'BCD'), 'Differ by'],
            [[work, round(base), *('%+.2f %% (%+.2f .. %+.2f)' % tuple(
                100 * (v / base - 1)
                for v in measure.spread(counts[k, work])) for k in 'BCD'),
              '%.2f %%' % (100 * (max(counts['A', work])
                                  / min(counts['A', work]) - 1))]
             for work in COUNTED
             for base in [measure.median(counts['A', work])]])
    else:
        result.text('Instructions were not counted: neither perf with counters'
                    ' nor valgrind is here.')
