"""What it costs sessions that are not throttled.

Five configurations, on three servers with copies of the same data, all within
shared buffers, fsync off:

- A: the library is not loaded;
- A/A: a second such server, the control: what differs here is not the
  library's doing;
- B: the library is loaded, the session is in no group;
- C: member of a group without a limit;
- D: member of a group whose limit is out of reach (16 777 216 KB/s).

*Speed.* The machine's own speed drifts by more than the library could cost, so
the servers run side by side and are compared in slices of a quarter of a
second: A X X A and, in the next round, X A A X, where X is one of the others.
A slice is pgbench (select-only and TPC-B, with one and two clients, prepared
statements), or an INSERT ... SELECT or a COPY FROM of 20 000 rows into an empty
table, or a count(*) of them, several times in a new session. Four slices give
one ratio, the geometric mean of X / A. After each round the servers are started
anew and change roles, so that the place of their memory and of their files
counts for neither. A line of the table has the mean of the middle half of the
ratios and its 95 % interval (bootstrap over the rounds). It is measured until
that interval is narrower than 1 %; when the time is over, what is still wider
is said to be. A target is met when the interval is above it, missed when it is
below, not decided when it includes it, or when the control's is not around 1.

*Instructions* do not drift: they are the figure that counts. They are counted
by `perf` where the machine has counters, otherwise by valgrind's callgrind in
the server process (of a server: a single-user session is in no group). Of two
runs of different length the difference is taken, so that what happens once per
session cancels out. Under valgrind time passes some 50 times slower in
comparison, so what happens by the clock would be overstated: the handler of the
timers that look what a running statement has used, every few milliseconds, is
not counted there. Even so equal runs differ, by up to 1 %. So callgrind's counts
are taken apart, too: *own* is what the library's functions execute themselves
and in the functions of the core that they call, less what the core would have
done without them (standard_ExecutorRun() and the like, the plan's nodes, the
check of the stack's depth at the first row). A target holds for the totals where equal runs differ by less than
the difference and by less than the target, otherwise for the library's own
part. overhead_functions.csv has each function.
"""

import contextlib
import glob
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from bench import measure, plot, server

CONFIGURATIONS = ['A', 'B', 'C', 'D']
COMPARED = ['A/A', 'B', 'C', 'D']               # in speed, with A
TEXT = {'A': 'not loaded', 'A/A': 'not loaded, control', 'B': 'no group',
        'C': 'no limit', 'D': 'limit out of reach'}
COLORS = {'A/A': '0.5', 'B': 'tab:green', 'C': 'tab:blue', 'D': 'tab:orange'}
OUT_OF_REACH = 16777216
SPEED_TARGET = 0.995
NARROW = 0.01                                   # an interval of the speed
INSTRUCTIONS_TARGET = {'B': 0.1, 'C': 0.5, 'D': 0.5}     # per cent

# seconds: when to give up; least: rounds before an interval is believed
PLANS = {
    'full': {'slice': 0.25, 'seconds': 900, 'least': 12, 'scale': 5,
             'rows': 20000, 'counted': 5},
    'quick': {'slice': 0.2, 'seconds': 90, 'least': 3, 'scale': 5,
              'rows': 20000, 'counted': 1},
    'tiny': {'slice': 0.05, 'seconds': 0, 'least': 1, 'scale': 1,
             'rows': 2000, 'counted': 1},
}

PGBENCH = {                     # clients, arguments
    'select-only, 1 client': (1, ['-S']),
    'select-only, 2 clients': (2, ['-S']),
    'TPC-B, 1 client': (1, []),
    'TPC-B, 2 clients': (2, []),
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

LIBRARY = 'dirty_throttle.so'
FEW = 6                         # ratios: too few for an interval

# What the library calls because the core wanted it called.  Functions without
# a name are static ones of a stripped server: the plan's nodes.
PASSED_THROUGH = re.compile(
    r"standard_|Exec|check_stack_depth|0x|\(below main\)|\?\?\?")


def seconds(mode):
    plan = PLANS[mode]
    once = len(WORK) * len(COMPARED) * 4 * (plan['slice'] + 0.07) + 6
    return (20 + max(plan['seconds'] + once / 2, plan['least'] * once)
            + 4 * plan['counted'] * 20)


def configuration(letter):
    """Configuration of the server, and the group of its sessions."""
    if letter in ('A', 'A/A'):
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


class Copy(server.Server):
    """A server with a copy of the data of another one, which is stopped."""

    def __init__(self, ctx, other):
        self.data = tempfile.mkdtemp(prefix='copy.', dir=ctx.work)
        self.log = self.data + '.log'
        self.socket_dir = tempfile.mkdtemp(prefix='s.', dir=ctx.work)
        self.base = dict(other.base, unix_socket_directories=self.socket_dir)
        self.running = False
        shutil.copytree(other.data, self.data, dirs_exist_ok=True,
                        symlinks=True)

    def __enter__(self):
        return self


# --------------------------------------------------------------------- speed

def restart(srv, letter):
    """The same to begin with for all: clean tables, all of it in memory."""
    srv.restart(**configuration(letter)[0])
    with srv.connect() as c:
        c.execute('TRUNCATE pgbench_history, target')
        c.execute('VACUUM pgbench_branches, pgbench_tellers')
        for table in ('pgbench_accounts', 'source', 'small'):
            c.execute('SELECT count(*) FROM ' + table)
        c.execute('SET enable_seqscan = off')
        c.execute('SELECT count(aid) FROM pgbench_accounts')


class Speed:
    """Measures slices, of as much work as takes the time on this machine."""

    def __init__(self, ctx, plan):
        self.file = ctx.path('source.copy')
        self.slice = plan['slice']
        self.units = {}

    def calibrate(self, srv):
        for work in WORK:
            self.units[work] = 1
            for _ in range(3):
                per_second = self.measure(srv, None, work)
                clients = PGBENCH[work][0] if work in PGBENCH else 1
                self.units[work] = max(1, round(per_second * self.slice
                                                / clients))

    def measure(self, srv, group, work):
        """Units per second."""
        if work in PGBENCH:
            clients, arguments = PGBENCH[work]
            text = srv.program(
                'pgbench', '-n', '-M', 'prepared', '-c', clients, '-j',
                clients, '-t', self.units[work], *arguments, group=group)
            return float(re.search(r'^tps = ([\d.]+)', text, re.M)[1])
        before, statement = STATEMENTS[work]
        statement = statement.format(file=self.file)
        times = []
        with srv.connect(group) as c:
            for _ in range(1 + self.units[work]):
                c.execute(before)
                start = time.perf_counter()
                c.execute(statement)
                times.append(time.perf_counter() - start)
        return 1 / measure.median(times[1:])    # the first finds nothing ready


def middle_mean(values):
    """The mean of the middle half."""
    values = sorted(values)
    cut = len(values) // 4
    return measure.mean(values[cut:len(values) - cut])


def interval(ratios, resamples=2000):
    return measure.interval(ratios, middle_mean, resamples=resamples)


def is_narrow(ratios, resamples=500):
    if len(ratios) < FEW:
        return False
    _, low, high = interval(ratios, resamples)
    return high - low < NARROW


def one_round(speed, servers, number, todo):
    """[(letter, work, order, [speeds of the four slices])]"""
    # everybody is everything in turn
    turned = servers[number % 3:] + servers[:number % 3]
    by_letter = dict(zip(('A', 'A/A', 'B'), turned))
    for letter, srv in by_letter.items():
        restart(srv, letter)
    result = []
    for i, (letter, work) in enumerate(todo):
        group = configuration(letter)[1]
        other = by_letter.get(letter, by_letter['B'])
        order = 'AXXA' if (number + i) % 2 == 0 else 'XAAX'
        result.append((letter, work, order, [
            speed.measure(other, group, work) if who == 'X'
            else speed.measure(by_letter['A'], None, work) for who in order]))
    return result


def ratio(order, speeds):
    """X / A."""
    logs = [math.log(s) if who == 'X' else -math.log(s)
            for who, s in zip(order, speeds)]
    return math.exp(sum(logs) / 2)


def compare(ctx, plan, servers):
    """[rows of one_round(), with the number of the round before], and
    {(letter, work): ratios}."""
    speed = Speed(ctx, plan)
    restart(servers[0], 'A')
    speed.calibrate(servers[0])
    rows, number = [], 0
    ratios = {(letter, work): [] for work in WORK for letter in COMPARED}
    end = time.monotonic() + plan['seconds']
    while number < plan['least'] or time.monotonic() < end:
        todo = [k for k in ratios if number < plan['least']
                or not is_narrow(ratios[k])]
        if not todo:
            break
        ctx.progress('round %d: %d of %d intervals are narrow enough' % (
            number + 1, len(ratios) - len(todo), len(ratios)))
        for row in one_round(speed, servers, number, todo):
            rows.append((number + 1, *row))
            ratios[row[0], row[1]].append(ratio(*row[2:]))
        number += 1
    return rows, ratios


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
    return {'total': int(re.search(r'^(\d+),.*instructions', text, re.M)[1])}


def read_callgrind(text):
    """{'total': instructions, (function, who): of which ...}, where "who" is
    a function of the library, and the function itself or a function of the
    core that it calls."""
    counts = {'total': int(re.search(r'^totals: (\d+)', text, re.M)[1])}
    names = {'ob': {}, 'fn': {}}
    here, in_library = None, False
    callee, callee_object, is_call = None, None, False

    def name(kind, value):
        number, _, text = value.partition(' ')
        if text:
            names[kind][number] = text
        return names[kind].get(number, value)

    for line in text.split('\n'):
        key, equals, value = line.partition('=')
        if equals:
            if key == 'ob':
                in_library = os.path.basename(name('ob', value)) == LIBRARY
            elif key == 'fn':
                here = name('fn', value)
                callee_object = None
            elif key == 'cob':
                callee_object = os.path.basename(name('ob', value))
            elif key == 'cfn':
                callee = name('fn', value)
            elif key == 'calls':
                is_call = True
            continue
        if not re.match(r'[-+*\d]', line):
            continue
        if in_library:
            cost = int(line.split()[1])
            who = here
            if is_call:
                # without an object it is one of the library's own
                who = (callee if callee_object and callee_object != LIBRARY
                       and not PASSED_THROUGH.match(callee) else None)
            if who:
                counts[here, who] = counts.get((here, who), 0) + cost
        if is_call:
            is_call, callee_object = False, None
    return counts


def own(counts):
    return sum(n for who, n in counts.items() if who != 'total')


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
                 # in src/session/tick.c
                 '--toggle-collect=handle_signal',
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
                    text = f.read()
                if re.search(r'^totals: \d+\n', text, re.M):
                    return read_callgrind(text)
            except FileNotFoundError:
                pass
            time.sleep(0.05)
        raise RuntimeError('callgrind wrote no totals')


def per_unit(work, count):
    """What a unit takes: that of the longer run less that of the shorter."""
    _, few, many = COUNTED[work]
    less, more = count(few), count(many)
    return {who: (more.get(who, 0) - less.get(who, 0)) / (many - few)
            for who in {**less, **more}}


def instructions(ctx, srv, plan):
    """{(configuration, work): [counts per unit]}, and the tool."""
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
                for work in COUNTED:
                    counts.setdefault((letter, work), []).append(per_unit(
                        work, lambda units: count_by_perf(
                            ctx, srv, letter, work, units)))
                continue
            srv.stop()
            with UnderCallgrind(ctx, srv, letter) as callgrind:
                for work in COUNTED:
                    counts.setdefault((letter, work), []).append(per_unit(
                        work, lambda units: callgrind.count(work, units)))
    return counts, 'perf' if perf else 'callgrind'


def totals(counts, letter, work):
    return [c['total'] for c in counts[letter, work]]


class More:
    """Instructions more than when not loaded, in per cent."""

    def __init__(self, counts, letter, work, tool):
        here, base = totals(counts, letter, work), totals(counts, 'A', work)
        self.base = measure.median(base)
        self.total = 100 * (measure.median(here) / self.base - 1)
        # equal runs, at worst; of a single one nobody knows
        self.differ = math.inf if len(here) < 2 else max(
            100 * (max(values) / min(values) - 1) for values in (
                totals(counts, k, work) for k in CONFIGURATIONS))
        self.own = 100 / self.base * measure.median(
            [own(c) for c in counts[letter, work]])
        self.by_total = tool != 'callgrind' or self.differ < min(
            abs(self.total), INSTRUCTIONS_TARGET[letter])
        self.value = self.total if self.by_total else self.own


# ------------------------------------------------------------------- results

def percent_wide(low, high):
    return 100 * (high - low)


def judge_speed(result, plan, ratios, intervals):
    wide = [k for k in ratios if not is_narrow(ratios[k], 2000)]
    for letter in COMPARED:
        mine = {work: intervals[letter, work] for work in WORK}
        too_wide = [w for w in WORK if (letter, w) in wide]
        widest = max(mine, key=lambda w: mine[w][2] - mine[w][1])
        detail = 'widest %s: %.2f %% (%.4f .. %.4f)' % (
            widest, percent_wide(*mine[widest][1:]), *mine[widest][1:])
        if letter == 'A/A':
            away = [w for w in WORK if not mine[w][1] <= 1 <= mine[w][2]]
            result.target('speed: control\'s interval narrower than 1 %',
                          not too_wide, detail
                          + ('; not around 1: ' + ', '.join(away) if away
                             else '; all of them around 1'))
            continue
        low = [w for w in WORK if mine[w][2] < SPEED_TARGET]
        unsure = [w for w in WORK if mine[w][1] < SPEED_TARGET <= mine[w][2]]
        # a difference that the control has, too, is not the library's
        bias = {w: abs(intervals['A/A', w][0] - 1) for w in low
                if not (intervals['A/A', w][1] <= 1
                        <= intervals['A/A', w][2])}
        unsure += [w for w in low if mine[w][2] + bias.get(w, 0)
                   >= SPEED_TARGET]
        low = [w for w in low if w not in unsure]
        worst = min(mine, key=lambda w: mine[w][0])
        result.target(
            '%s: speed / not loaded >= %s' % (TEXT[letter], SPEED_TARGET),
            False if low else None if unsure else True,
            'worst %s: %.4f (%.4f .. %.4f)' % (worst, *mine[worst])
            + ('; below: ' + ', '.join(low) if low else '')
            + ('; interval includes it: ' + ', '.join(unsure) if unsure
               else '')
            + '; ' + detail)
    if wide:
        result.text('After %d s the intervals of %d of %d comparisons are not'
                    ' narrower than 1 %%: this machine cannot tell them.' % (
                        plan['seconds'], len(wide), len(intervals)))


def judge_instructions(result, counts, tool):
    for letter in 'BCD':
        text = '%s: instructions <= +%.1f %%' % (TEXT[letter],
                                                 INSTRUCTIONS_TARGET[letter])
        if not tool:
            result.target(text, None, 'neither perf nor valgrind is here')
            continue
        more = {work: More(counts, letter, work, tool) for work in COUNTED}
        result.target(
            text, all(m.value <= INSTRUCTIONS_TARGET[letter]
                      for m in more.values()),
            ', '.join('%s %+.2f %%%s' % (work, m.value,
                                         '' if m.by_total else ' (own)')
                      for work, m in more.items()))


def draw(ctx, result, intervals, counts, tool):
    fig, axes = plot.figure(1, 2, 11, 4)
    for k, letter in enumerate(COMPARED):
        for y, work in enumerate(WORK):
            mid, low, high = intervals[letter, work]
            axes[0].errorbar(mid, y + 0.2 * (k - 1.5),
                             xerr=[[mid - low], [high - mid]], fmt='o',
                             ms=3, capsize=2, color=COLORS[letter],
                             label=TEXT[letter] if y == 0 else None)
    axes[0].axvline(1, color='0.5', lw=0.8)
    axes[0].axvline(SPEED_TARGET, color='tab:red', lw=0.8, ls='--')
    axes[0].set_yticks(range(len(WORK)), WORK)
    axes[0].invert_yaxis()
    axes[0].set_xlabel('speed / speed when not loaded, 95 % intervals')
    axes[0].legend(fontsize=7)
    if tool:
        for k, letter in enumerate('BCD'):
            values = [More(counts, letter, w, tool).value for w in COUNTED]
            axes[1].barh([y + 0.25 * (k - 1) for y in range(len(COUNTED))],
                         values, 0.22, color=COLORS[letter])
        for target in set(INSTRUCTIONS_TARGET.values()):
            axes[1].axvline(target, color='tab:red', lw=0.8, ls='--')
        axes[1].set_yticks(range(len(COUNTED)), list(COUNTED))
        axes[1].invert_yaxis()
        axes[1].set_xlabel('instructions, %% more than when not loaded (%s)'
                           % tool)
    result.plot(plot.save(ctx, fig, 'overhead'), 'speed and instructions')


def tabulate_instructions(result, plan, counts, tool):
    rows = []
    for work in COUNTED:
        for letter in 'BCD':
            m = More(counts, letter, work, tool)
            rows.append(['%s: %s' % (work, TEXT[letter]), round(m.base),
                         '%+.2f %%' % m.total,
                         None if math.isinf(m.differ) else
                         '%.2f %%' % m.differ,
                         '%.3f %%' % m.own if tool == 'callgrind' else None,
                         'totals' if m.by_total else 'own'])
    result.table(
        'Instructions per unit (%s), more than when not loaded: median of %d'
        ' runs' % (tool, plan['counted']),
        ['Unit', 'Not loaded', 'Totals', 'Equal runs differ by', 'Own',
         'What counts'], rows)


def run(ctx, result):
    plan = PLANS[ctx.mode]
    server.need_disk(ctx, 8000)
    with contextlib.ExitStack() as stack:
        srv = stack.enter_context(server.Server(
            ctx, shared_buffers=server.shared_buffers(512), fsync='off',
            max_wal_size='2GB', min_wal_size='1GB', checkpoint_timeout='1h',
            bgwriter_lru_maxpages=0))
        ctx.progress('preparing')
        prepare(ctx, srv, plan)
        srv.stop()
        servers = [srv] + [stack.enter_context(Copy(ctx, srv))
                           for _ in range(2)]
        rows, ratios = compare(ctx, plan, servers)
        for other in servers[1:]:
            other.stop()
        counts, tool = instructions(ctx, srv, plan)

    result.csv('overhead_speed', ['round', 'configuration', 'work', 'order',
                                  *('slice_%d_per_second' % (i + 1)
                                    for i in range(4))],
               [(*row[:4], *row[4]) for row in rows])
    result.csv('overhead_instructions',
               ['run', 'configuration', 'work', 'instructions', 'own', 'tool'],
               [(i + 1, letter, work, n['total'],
                 own(n) if tool == 'callgrind' else None, tool)
                for (letter, work), values in counts.items()
                for i, n in enumerate(values)])
    result.csv('overhead_functions',
               ['configuration', 'work', 'function', 'itself_or_calls',
                'instructions'],
               [(letter, work, *who, n)
                for (letter, work), values in counts.items()
                for who, n in sorted(
                    ((who, measure.median([v.get(who, 0) for v in values]))
                     for who in {w for v in values for w in v} - {'total'}),
                    key=lambda item: -item[1]) if n >= 0.5])
    intervals = {k: interval(v) for k, v in ratios.items()}
    judge_instructions(result, counts, tool)
    judge_speed(result, plan, ratios, intervals)
    draw(ctx, result, intervals, counts, tool)
    if tool:
        tabulate_instructions(result, plan, counts, tool)
    else:
        result.text('Instructions were not counted: neither perf with counters'
                    ' nor valgrind is here.')
    result.table(
        'Speed / speed when not loaded: mean of the middle half of the ratios'
        ' (95 % interval; number of ratios)',
        ['Work', 'Not loaded, per second', *(TEXT[k] for k in COMPARED)],
        [[work, measure.median([s for row in rows if row[2] == work
                                for who, s in zip(row[3], row[4])
                                if who == 'A']),
          *('%.4f (%.4f .. %.4f; %d)' % (*intervals[k, work],
                                         len(ratios[k, work]))
            for k in COMPARED)] for work in WORK])
