"""Measured rate / limit, fairness, and the worst short windows.

For each number of sessions, limit and kind of statement there is a group of
that limit, and that many sessions in it which dirty as much as they may:

- INSERT, UPDATE: one long statement a session, one row a block;
- DELETE: the same, rolled back at the end;
- COPY: one long COPY FROM a session, rows of 500 bytes, so that one of its
  batches (64 kB of input) is about nine blocks;
- mix: transactions of four blocks each, at random an INSERT, a COPY, an
  UPDATE or a DELETE with ROLLBACK.

The pages that are updated or deleted from are clean because of a CHECKPOINT
before; nothing but the sessions dirties or cleans a buffer meanwhile (no
autovacuum, no background writer, no checkpoint; fsync is off). Cells of low
limits do not disturb each other and run side by side: all of 100 KB/s, then
all of 1000 KB/s, then for each kind (--quick: for all) those of 6144 KB/s; the
others alone.

Measured is the steady state: after a time to settle, three windows in a row,
of which only those count in which the machine was quiet: a process that sleeps
for 10 ms again and again was never more than 20 ms late, and where the kernel
tells (/proc/pressure/cpu), processes did not wait for a processor for more than
a tenth of the time. The latter is not asked above 50 000 KB/s, where the
sessions themselves keep the processors busy. Without such a window a cell is
tried once more, and then "not measured". So are the manual's examples, each run
of which is one window.

It settles when what the members dirtied at first has been paid: each of them
may owe its transaction's grace (50 ms of the limit) and one charge before it
pauses, so 64 that begin together dirty 3.2 s worth of the limit at once, and a
batch of COPY each. The rate from the first statement on, which has all of that,
is given as well. At 500 000 KB/s
this would be more than fits into memory; there transaction_grace is 0.

The rate is seen from outside: a session reads `dirty_throttle_groups` 100
times a second, what the sessions dirty shows there when it is charged. As a
check on that counter, the tables that INSERT and COPY fill must have grown by
as many blocks. *Rate* is the blocks of the steady state by its time. Where a
session gets less than 100 charges in it, that would count charges, not
measure; there it is the sum over the sessions of the rate from their first to
their last charge, and so are the sessions' rates in *Jain's index*. Where a
limit above 10 000 KB/s is missed, the same statements without a limit tell the
machine's own speed.

The *worst windows* are the fastest 1 s and 100 ms, at any place of the steady
state. Members use first and pay afterwards, so a window can have more than the
limit allows in its time: a single block is 82 % of 100 ms at 100 KB/s, and when
every one of 64 members is charged a block within one second that is 524 % of
it. The *bound* of what n members can use in a window of T seconds at R bytes/s
follows from the rate engine's books (src/engine/rate.c). What was used is the
income, plus what the pool had saved up when the window began, plus what members
owe more at its end than at its beginning:

- R x T, the income;
- R x 100 ms, the credit that the pool may keep: what members overslept;
- R x min_pause: a member runs on while it owes less than its share of the
  shortest pause worth making, 10 ms x (1 + log2(n)), at most 80 ms;
- n charges, one a member, which come on top of that before it pauses. A charge
  is what is dirtied between two safe points (INSERT, UPDATE, DELETE: a block;
  COPY: a batch, ten blocks; mix: a transaction, four blocks), or, where that is
  more, the threshold below which nothing is charged: all members' together are
  R x min_pause / 2, at most R x 50 ms.

The transaction_grace of the members is part of it only in the mix: a long
statement has used up its grace before the window, and a small transaction
cannot owe more than all that it dirties, which is the four blocks above. In the
rate from the first statement on all graces are included. rate.c grants two
things more, which the bound leaves out: an overdraft of R x 200 ms, for members
that use less than their share, which these do not, and what jitter left of a
member's charge before the last.

The reference manual's four examples, with 10 000 blocks a session and figures
from `pg_stat_statements`, are those of `make demo`; examples 2 to 4 run side
by side here.
"""

import subprocess
import threading
import time

from bench import measure, plot, server
from bench.canary import Canary
from bench.measure import Curve, KB_PER_BLOCK

KINDS = ['INSERT', 'COPY', 'UPDATE', 'DELETE', 'mix']
SESSIONS = [1, 2, 4, 8, 32, 64]
LIMITS = [100, 1000, 6144, 50000, 500000]
WINDOWS = 3
TRIES = 2                       # until the machine is quiet
NOT_MEASURED = 'not measured'

# For each limit: seconds to settle, seconds of each of the windows, and what
# runs side by side: everything, the cells of one kind, or none.
PLANS = {
    'full': {
        'sessions': SESSIONS,
        'limits': {100: (45, 45, 'all'), 1000: (10, 10, 'all'),
                   6144: (3, 4, 'kind'), 50000: (0.8, 1.4, 'none'),
                   500000: (0.8, 0.6, 'none')},
        'repeats': 2, 'most_sessions': {},
    },
    'quick': {
        'sessions': [1, 8, 64],
        'limits': {100: (10, 6, 'all'), 1000: (5, 4, 'all'),
                   6144: (2, 2, 'all'), 50000: (0.5, 0.7, 'none'),
                   500000: (0.6, 0.5, 'none')},
        'repeats': 0, 'most_sessions': {500000: 8},
    },
    'tiny': {
        'sessions': [1, 4],
        'limits': {1000: (1, 1, 'all'), 50000: (0.3, 0.4, 'none')},
        'repeats': 0, 'most_sessions': {},
    },
}
CHARGES = 100                   # of a session: enough to count them
BATCH = {'COPY': 9}             # blocks that are charged at a time; else 1
MOST_AT_ONCE = {'COPY': 10, 'mix': 4}   # between two safe points, or in a
                                        # transaction; else 1
# Of src/engine/rate.c, ms:
CREDIT_MS = 100
PAUSE_UNIT_MS = 10
PAUSE_CROWD_MS = 80
ROWS_PER_BLOCK = 14             # of COPY
LINE = '1,' + 'x' * 500
MIX_BLOCKS = 4
MARGIN = 1.05                   # more work than can be done in the time
GRACE_MS = 50                   # default of transaction_grace
FAST = 100000                   # KB/s; above this the grace is 0
OWN_SPEED_BLOCKS = 40000

# All begin together, when the lock is released.
GATE = 'SELECT pg_advisory_xact_lock_shared(1);\n'


def seconds(mode):
    plan = PLANS[mode]
    return (10 + 60 * plan['repeats']
            + sum(settle + WINDOWS * window + (1 if len(cells) == 1 else 4)
                  + (2.5 if cells[0].limit > FAST else 0)
                  for cells, settle, window, _ in batches(plan)))


def grace_ms(limit):
    return 0 if limit > FAST else GRACE_MS


def bound(kind, sessions, limit, width):
    """The most that can be dirtied in a window of that many seconds, as a
    rate in KB/s; see above."""
    pause = 0
    ratio = sessions
    while ratio >= 2:           # the logarithm is linear between powers of two
        ratio /= 2
        pause += PAUSE_UNIT_MS
    pause = min(pause + PAUSE_UNIT_MS * ratio, PAUSE_CROWD_MS)
    threshold = min(pause / 2, CREDIT_MS / 2)       # of all members
    charges = sessions * MOST_AT_ONCE.get(kind, 1) * KB_PER_BLOCK
    return limit + (limit * (CREDIT_MS + pause + threshold) / 1000
                    + charges) / width


def time_to_settle(group, limit, least):
    """What all of them dirty at once, each its grace and its first charge,
    must have been paid.  group: (kind, sessions) of the cells."""
    at_once = max(n * (grace_ms(limit) / 1000
                       + MOST_AT_ONCE.get(kind, 1) * KB_PER_BLOCK / limit)
                  for kind, n in group)
    return max(least, 1.3 * at_once + 0.4)


def batches(plan):
    """[(cells that run side by side, seconds to settle, of a window, text)]"""
    result = []
    for limit, (least, window, together) in plan['limits'].items():
        sessions = [n for n in plan['sessions']
                    if n <= plan['most_sessions'].get(limit, n)]
        groups = [[(kind, n)] for kind in KINDS for n in sessions]
        text = '%s, %d sessions'
        if together == 'kind':
            groups = [[(kind, n) for n in sessions] for kind in KINDS]
            text = '%s'
        elif together == 'all':
            groups = [[(kind, n) for kind in KINDS for n in sessions]]
            text = 'all kinds'
        for group in groups:
            settle = time_to_settle(group, limit, least)
            cells = [Cell(kind, n, limit, settle + WINDOWS * window + 0.2)
                     for kind, n in group]
            result.append((cells, settle, window,
                           text % group[0][:text.count('%')]))
    return result


class Cell:
    """One number of sessions at one limit with one kind of statement."""

    def __init__(self, kind, sessions, limit, seconds):
        self.kind = kind
        self.sessions = sessions
        self.limit = limit
        self.name = '%s_%d_%d' % (kind.lower(), limit, sessions)
        self.work = limit * seconds / KB_PER_BLOCK      # blocks
        # whoever begins first is ahead of the others by the initial burst and
        # its grace
        ahead = limit * (20 + 2 * grace_ms(limit)) / 1000 / KB_PER_BLOCK
        self.span = int(self.work * MARGIN / sessions + ahead) + 64
        self.chunks = sessions + 1
        self.own_speed = None
        self.by = NOT_MEASURED
        self.rate = self.jain = self.worst_1s = self.worst_100ms = None
        self.bound_1s = bound(kind, sessions, limit, 1.0)
        self.bound_100ms = bound(kind, sessions, limit, 0.1)
        self.from_start = self.plain = self.blocks = None
        self.counted = self.grown = None
        self.windows = []

    def pages(self):
        """Of the table of pages, how many does it need?"""
        if self.kind in ('UPDATE', 'DELETE', 'mix'):
            return self.span * self.chunks
        return 0


class Bench:
    """The server, its tables, and the running of cells."""

    def __init__(self, ctx, srv, canary, pages):
        self.ctx = ctx
        self.canary = canary
        self.server = srv
        self.admin = srv.connect()
        self.admin.execute('SET client_min_messages = warning')
        self.pages = pages
        self.admin.execute(
            'CREATE TABLE pages (c1 int, c2 character(500))'
            ' WITH (fillfactor = 10)')
        self.admin.execute(
            "INSERT INTO pages SELECT generate_series(1, %d), 'aaa'" % pages)
        self.file = ctx.path('mix.csv')
        with open(self.file, 'w') as f:
            f.write((LINE + '\n') * (ROWS_PER_BLOCK * MIX_BLOCKS))

    def scripts(self, cell):
        """pgbench scripts of a cell: options for pgbench."""
        inserted, copied = 'i_' + cell.name, 'c_' + cell.name
        mix = cell.kind == 'mix'
        step = MIX_BLOCKS if mix else cell.span
        texts = []
        if cell.kind in ('INSERT', 'mix'):
            texts.append("INSERT INTO %s SELECT generate_series(1, %d), 'aaa';"
                         % (inserted, step))
        if cell.kind == 'COPY':
            texts.append("COPY %s FROM PROGRAM 'yes %s | head -n %d'"
                         " (DELIMITER ',');"
                         % (copied, LINE, step * ROWS_PER_BLOCK))
        if mix:
            texts.append("COPY %s FROM '%s' (DELIMITER ',');"
                         % (copied, self.file))
        where = "WHERE ctid >= '(:low,0)' AND ctid < '(:high,0)'"
        if mix:
            move = ('\\set low :first + :client_id * :span + :position\n'
                    '\\set position :position + %d\n' % step)
        else:
            # whoever is through with a chunk takes the next one
            move = ("SELECT nextval('chunk_%s') - 1 AS chunk \\gset\n"
                    '\\if :chunk >= %d\n\\sleep 1000\n\\endif\n'
                    '\\set low :first + :chunk * :span\n'
                    % (cell.name, cell.chunks))
        move += '\\set high :low + %d\n' % step
        if cell.kind in ('UPDATE', 'mix'):
            texts.append(move + 'UPDATE pages SET c1 = c1 + 1 %s;' % where)
        if cell.kind in ('DELETE', 'mix'):
            texts.append(move + 'BEGIN;\nDELETE FROM pages %s;\nROLLBACK;'
                         % where)
        options = []
        for i, text in enumerate(texts):
            path = self.ctx.path('%s.%d.sql' % (cell.name, i))
            with open(path, 'w') as f:
                f.write(GATE + text + '\n')
            options += ['-f', path]
        return options

    def prepare(self, cells):
        first = 0
        for cell in cells:
            cell.first = first
            first += cell.pages()
            self.admin.execute(
                'CREATE TABLE i_%s (c1 int, c2 character(500))'
                ' WITH (fillfactor = 10)' % cell.name)
            self.admin.execute('CREATE TABLE c_%s (c1 int, c2 text)'
                               % cell.name)
            self.admin.execute('CREATE SEQUENCE chunk_' + cell.name)
            server.limit(self.admin, cell.name, cell.limit)
        if first > self.pages:
            raise RuntimeError('%d pages are needed, but there are %d'
                               % (first, self.pages))
        self.set_grace(grace_ms(cells[0].limit))
        self.admin.execute('CHECKPOINT')
        self.admin.execute('SELECT pg_advisory_lock(1)')

    def set_grace(self, ms):
        self.admin.execute(
            "ALTER SYSTEM SET dirty_throttle.transaction_grace = '%dms'" % ms)
        self.admin.execute('SELECT pg_reload_conf()')
        server.wait_for(
            self.admin, "SELECT setting = '%d' FROM pg_settings WHERE name ="
            " 'dirty_throttle.transaction_grace'" % ms)

    def open_gate(self, cells):
        server.wait_for(
            self.admin, 'SELECT count(*) = %d FROM pg_locks WHERE locktype ='
            " 'advisory' AND NOT granted" % sum(c.sessions for c in cells))
        self.admin.execute('SELECT pg_advisory_unlock(1)')

    def clean_up(self, cells):
        for cell in cells:
            self.admin.execute('DROP TABLE i_%s, c_%s'
                               % (cell.name, cell.name))
            self.admin.execute('DROP SEQUENCE chunk_' + cell.name)
            server.drop(self.admin, cell.name)

    def start(self, cells, transactions):
        return [self.server.popen(
            'pgbench', '-n', '-c', c.sessions, '-M', 'simple', *transactions,
            '--random-seed=1', '-D', 'first=%d' % c.first,
            '-D', 'span=%d' % c.span, '-D', 'position=0', *self.scripts(c),
            group=c.name) for c in cells]

    def stop(self, clients):
        """End the cells' sessions, in whatever they do."""
        self.admin.execute('SELECT pg_terminate_backend(pid)'
                           ' FROM dirty_throttle_sessions()')
        for process in clients:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:       # pgbench sleeps
                process.kill()
                process.wait()
        server.wait_for(self.admin, 'SELECT count(*) = 0'
                        ' FROM dirty_throttle_sessions()')

    def measure(self, cells, settle, window):
        """Run cells side by side and put what they did into them.  False when
        the machine was not quiet in any of the windows."""
        self.prepare(cells)
        groups = measure.Sampler(self.server, measure.GROUPS_QUERY, 0.01)
        members = measure.Sampler(self.server, measure.SESSIONS_QUERY, 0.1)
        groups.start()
        members.start()
        clients = self.start(cells, ['-T', '100000'])
        try:
            self.open_gate(cells)
            settled = time.time() + settle
            time.sleep(settle)
            group_of = dict(self.admin.execute(
                'SELECT pid, group_name FROM dirty_throttle_sessions()'))
            time.sleep(max(0, settled + WINDOWS * window + 0.1 - time.time()))
        finally:
            samples, member_samples = groups.stop(), members.stop()
            self.stop(clients)

        starts = [settled + i * window for i in range(WINDOWS + 1)]
        windows = list(zip(starts, starts[1:]))
        steady = longest_run([
            w for w in windows
            if self.canary.was_quiet(*w, busy=cells[0].limit > FAST)])
        order = sorted(c.name for c in cells)
        sessions = {}
        for t, pids, blocks in member_samples:
            if pids and steady and steady[0][0] <= t <= steady[-1][1]:
                for pid, count in zip(pids, blocks):
                    sessions.setdefault(pid, []).append((t, count))
        for cell in cells:
            column = order.index(cell.name)
            if steady:
                evaluate(
                    cell, Curve([(t, blocks[column]) for t, blocks in samples]),
                    [Curve(points) for pid, points in sessions.items()
                     if group_of.get(pid) == cell.name], steady)
            self.cross_check(cell)
        self.clean_up(cells)
        return bool(steady)

    def cross_check(self, cell):
        """The counter of the view and the growth of the cell's table."""
        cell.counted = self.admin.execute(
            'SELECT blocks_dirtied FROM dirty_throttle_groups'
            ' WHERE group_name = %s', (cell.name,)).fetchone()[0]
        table = {'INSERT': 'i_', 'COPY': 'c_'}.get(cell.kind)
        if table:
            cell.grown = self.admin.execute(
                "SELECT pg_relation_size(%s) / current_setting('block_size')"
                "::int", (table + cell.name,)).fetchone()[0]

    def own_speed(self, cell):
        """KB/s of the same statements without a limit."""
        free = Cell(cell.kind, cell.sessions, 0, 0)
        free.span = OWN_SPEED_BLOCKS // cell.sessions
        free.chunks = cell.sessions
        self.prepare([free])
        sampler = measure.Sampler(self.server, measure.GROUPS_QUERY, 0.01)
        sampler.start()
        count = (free.span // MIX_BLOCKS if cell.kind == 'mix' else 1)
        clients = self.start([free], ['-t', str(count)])
        try:
            self.open_gate([free])
            for process in clients:
                process.wait(120)
        finally:
            samples = sampler.stop()
            self.stop(clients)
        self.clean_up([free])
        curve = Curve([(t, blocks[0]) for t, blocks in samples])
        steps = [i for i in range(1, len(curve.counts))
                 if curve.counts[i] > curve.counts[i - 1]]
        return curve.cut(curve.times[steps[0] - 1],
                         curve.times[steps[-1]]).rate()


def longest_run(windows):
    """Of some (start, end), the most that follow upon each other."""
    runs = []
    for window in windows:
        if runs and runs[-1][-1][1] == window[0]:
            runs[-1].append(window)
        else:
            runs.append([window])
    return max(runs, key=len, default=[])


def evaluate(cell, curve, sessions, windows):
    """Rates and windows of a cell from its samples, in these windows in a
    row."""
    settled, end = windows[0][0], windows[-1][1]
    steady = curve.cut(settled, end)
    first = next(i for i, n in enumerate(curve.counts) if n > 0)
    cell.from_start = curve.cut(curve.times[max(first - 1, 0)], end).rate()
    cell.plain = steady.rate()
    cell.windows = [curve.cut(*w).rate() for w in windows]
    cell.blocks = steady.blocks()
    cell.worst_1s = steady.worst(1.0) if end - settled > 1.2 else None
    cell.worst_100ms = steady.worst(0.1)

    charges = cell.blocks / cell.sessions / BATCH.get(cell.kind, 1)
    # a pause pays for a block at least
    apart = KB_PER_BLOCK * cell.sessions / cell.limit / 2
    if len(sessions) != cell.sessions:
        cell.by = 'failed: %d sessions were seen' % len(sessions)
        cell.rate = cell.jain = None
    elif charges >= CHARGES:
        cell.by = 'blocks'
        cell.rate = cell.plain
        cell.jain = measure.jain([s.blocks() for s in sessions])
    elif all(len(s.charges(apart)) >= 3 for s in sessions):
        cell.by = 'charges'
        rates = [s.charge_to_charge(apart) for s in sessions]
        cell.rate = sum(rates)
        cell.jain = measure.jain(rates)
    else:
        cell.by = 'too few charges'
        cell.rate = cell.jain = None


# ------------------------------------------------------- the manual's examples

# Groups of the sessions, and what the manual reports for them, KB/s.
EXAMPLES = {
    1: [(None, 33692)],
    2: [('two', 6072)],
    3: [('three', 2467), ('three', 2679)],
    4: [('four_b', 2885), ('four_b', 2614), ('four_c', 1554), ('four_c', 1462)],
}
EXAMPLE_LIMITS = {'two': 6144, 'three': 6144, 'four_b': 6144, 'four_c': 3072}
EXAMPLE_ROWS = 10000


def run_examples(srv, numbers):
    """[(example, group, blocks, seconds, blocks by the view)] for each
    session, by pg_stat_statements."""
    with srv.connect() as admin:
        admin.execute('SET client_min_messages = warning')
        admin.execute('CREATE EXTENSION IF NOT EXISTS pg_stat_statements')
        for group, kb in EXAMPLE_LIMITS.items():
            server.limit(admin, group, kb)
        sessions = []
        for number in numbers:
            for i, (group, _) in enumerate(EXAMPLES[number]):
                table = 'example_%d_%d' % (number, i)
                admin.execute('CREATE TABLE %s (c1 INTEGER, c2 CHARACTER(500))'
                              ' WITH (FILLFACTOR = 10)' % table)
                sessions.append((number, group, table, srv.connect(group)))
        admin.execute('SELECT pg_stat_statements_reset()')
        errors = []

        def insert(connection, table):
            try:
                connection.execute(
                    "INSERT INTO %s VALUES (generate_series(1, %d), 'aaa')"
                    % (table, EXAMPLE_ROWS))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=insert, args=(s[3], s[2]))
                   for s in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        viewed = dict(admin.execute(
            'SELECT pid, blocks_dirtied FROM dirty_throttle_sessions()'))
        result = []
        for number, group, table, connection in sessions:
            blocks, ms = admin.execute(
                'SELECT shared_blks_dirtied, total_exec_time'
                ' FROM pg_stat_statements WHERE query LIKE %s',
                ('INSERT INTO %s VALUES%%' % table,)).fetchone()
            result.append((number, group, blocks, ms / 1000,
                           viewed.get(connection.info.backend_pid)))
            connection.close()
            admin.execute('DROP TABLE ' + table)
        for group in EXAMPLE_LIMITS:
            server.wait_for(admin, 'SELECT count(*) = 0'
                            ' FROM dirty_throttle_sessions()')
            server.drop(admin, group)
    return result


def examples(ctx, result, srv, canary, repeats):
    if not server.has_contrib('pg_stat_statements'):
        result.text('The manual\'s examples were not measured: this'
                    ' PostgreSQL has no pg_stat_statements.')
        return
    runs = []
    for _ in range(TRIES * repeats):
        ctx.progress('the manual\'s examples, %d of %d'
                     % (len(runs) + 1, repeats))
        alone = run_examples(srv, [1])
        start = time.time()
        others = run_examples(srv, [2, 3, 4])
        if canary.was_quiet(start, time.time()):
            runs.append(alone + others)
        if len(runs) == repeats:
            break
    if not runs:
        result.text('The manual\'s examples were not measured: the machine'
                    ' was not quiet.')
        return
    reference = [kb for number in EXAMPLES for _, kb in EXAMPLES[number]]
    result.csv('accuracy_examples',
               ['run', 'example', 'group', 'limit_kb', 'blocks', 'seconds',
                'kb_per_s', 'blocks_by_view', 'manual_kb_per_s'],
               [(i + 1, number, group, EXAMPLE_LIMITS.get(group), blocks, sec,
                 blocks * KB_PER_BLOCK / sec, viewed, manual)
                for i, run in enumerate(runs)
                for (number, group, blocks, sec, viewed), manual
                in zip(run, reference)])
    rows = []
    for number in EXAMPLES:
        for group in dict(EXAMPLES[number]):
            totals = [sum(b * KB_PER_BLOCK / s for n, g, b, s, _ in run
                          if (n, g) == (number, group)) for run in runs]
            manual = sum(kb for g, kb in EXAMPLES[number] if g == group)
            kb = EXAMPLE_LIMITS.get(group)
            row = ['%d%s' % (number, '' if len(set(EXAMPLES[number])) < 3 or not
                             group else ', ' + group[-1]),
                   len([1 for g, _ in EXAMPLES[number] if g == group]), kb]
            row += measure.spread(totals)
            row += [100 * row[3] / kb if kb else None, manual,
                    100 * manual / kb if kb else None]
            rows.append(row)
    result.table(
        'The manual\'s examples: KB/s of each group by pg_stat_statements,'
        ' %d runs; the manual\'s own from its machine' % len(runs),
        ['Example', 'Sessions', 'Limit', 'Median', 'Least', 'Most',
         '% of limit', 'Manual', '% of limit'], rows)
    off = [abs(viewed / blocks - 1) for run in runs
           for _, group, blocks, _, viewed in run if group]
    result.text('The extension\'s own counter differs from pg_stat_statements'
                ' by at most %.2f %% in these.' % (100 * max(off)))


# ------------------------------------------------------------------- results

def percent(value, limit):
    return None if value is None else 100 * value / limit


def by_key(cells):
    return {(c.kind, c.sessions, c.limit): c for c in cells}


def matrix(result, caption, cells, plan, value):
    limits = list(plan['limits'])
    by = by_key(cells)
    result.table(caption, ['', *('%s KB/s' % measure_number(k)
                                 for k in limits)],
                 [['%s, %d' % (kind, n),
                   *(value(by[kind, n, k]) if (kind, n, k) in by else None
                     for k in limits)]
                  for kind in KINDS for n in plan['sessions']])


def measure_number(n):
    return '{:,}'.format(n).replace(',', ' ')


# The worst windows and their bounds.
WORST = [('1 s', lambda c: c.worst_1s, lambda c: c.bound_1s),
         ('100 ms', lambda c: c.worst_100ms, lambda c: c.bound_100ms)]


def shown_worst(cell, value, limit):
    if value(cell) is None:
        return None
    return '%.0f of %.0f %%' % (percent(value(cell), cell.limit),
                                percent(limit(cell), cell.limit))


def shown_rate(cell):
    if cell.by == NOT_MEASURED:
        return NOT_MEASURED
    text = ('–' if cell.rate is None
            else '%.1f' % percent(cell.rate, cell.limit))
    if cell.own_speed is not None:
        text += ' (machine: %.0f)' % percent(cell.own_speed, cell.limit)
    return text


def heat_map(ctx, result, cells, plan):
    limits = list(plan['limits'])
    by = by_key(cells)
    labels = ['%s, %d' % (kind, n) for kind in KINDS for n in plan['sessions']]
    maps = [
        ('Rate, % of the limit', lambda c: percent(c.rate, c.limit), 95, 105,
         '%.1f', 'RdBu_r'),
        ('Jain\'s index', lambda c: c.jain, 0.95, 1, '%.3f', 'Reds_r'),
        ('Worst 1 s, % of the bound',
         lambda c: percent(c.worst_1s, c.bound_1s), 50, 130, '%.0f',
         'RdBu_r'),
        ('Worst 100 ms, % of the bound',
         lambda c: percent(c.worst_100ms, c.bound_100ms), 50, 130, '%.0f',
         'RdBu_r')]
    fig, axes = plot.figure(1, 4, 14, 1.5 + 0.21 * len(labels), sharey=True)
    for ax, (title, value, low, high, form, colors) in zip(axes, maps):
        grid = [[value(by[kind, n, k]) if (kind, n, k) in by else None
                 for k in limits]
                for kind in KINDS for n in plan['sessions']]
        ax.imshow([[float('nan') if v is None else v for v in row]
                   for row in grid], cmap=colors, vmin=low, vmax=high,
                  aspect='auto', interpolation='nearest')
        for y, row in enumerate(grid):
            for x, v in enumerate(row):
                ax.text(x, y, '–' if v is None else form % v, ha='center',
                        va='center', fontsize=7)
        ax.set_title(title)
        ax.set_xticks(range(len(limits)), [measure_number(k) for k in limits])
        ax.set_xlabel('limit, KB/s')
        ax.set_yticks(range(len(labels)), labels)
        ax.grid(False)
    result.plot(plot.save(ctx, fig, 'accuracy', 'png'),
                'rate, fairness and worst windows of every cell')


def judge_rates(result, cells):
    rates = [percent(c.rate, c.limit) for c in cells]
    good = sum(99 <= r <= 101 for r in rates)
    result.target('rate 99 % to 101 % of the limit', good == len(rates),
                  '%d of %d cells; %.1f %% to %.1f %%, median %.2f %%' % (
                      good, len(rates), min(rates), max(rates),
                      measure.median(rates)))
    jains = [c.jain for c in cells]
    good = sum(j >= 0.99 for j in jains)
    result.target('Jain\'s index >= 0.99', good == len(jains),
                  '%d of %d cells; worst %.4f' % (good, len(jains), min(jains)))


def judge_windows(result, cells):
    for text, value, limit in WORST:
        worst = [c for c in cells if value(c) is not None]
        if not worst:
            continue
        good = sum(value(c) <= limit(c) for c in worst)
        c = max(worst, key=lambda c: value(c) / limit(c))
        result.target('worst %s <= the bound' % text, good == len(worst),
                      '%d of %d cells; closest to it: %s (%s, %d sessions,'
                      ' %d KB/s); %d cells are within 110 %% of the limit' % (
                          good, len(worst), shown_worst(c, value, limit),
                          c.kind, c.sessions, c.limit,
                          sum(value(c) <= 1.1 * c.limit for c in worst)))
    early = max(cells, key=lambda c: c.from_start / c.limit)
    result.finding('from the first statement on',
                   'at most %.0f %% of the limit over the whole time of a cell'
                   ' (%s, %d sessions, %d KB/s)' % (
                       percent(early.from_start, early.limit), early.kind,
                       early.sessions, early.limit))


def judge(result, cells):
    run = [c for c in cells if c.blocks is not None]
    reachable = [c for c in run if c.own_speed is None
                 or c.own_speed >= 1.02 * c.limit]
    told = [c for c in reachable if c.rate is not None]
    if told:
        judge_rates(result, told)
    if reachable:
        judge_windows(result, reachable)
    else:
        result.target('rate 99 % to 101 % of the limit', None, NOT_MEASURED)
    not_quiet = sum(c.by == NOT_MEASURED for c in cells)
    if not_quiet:
        result.text('%d of %d cells were not measured: the machine was not'
                    ' quiet.' % (not_quiet, len(cells)))
    if len(run) + not_quiet < len(cells):
        result.text('%d cells were not run: what they dirty is more than a sixth'
                    ' of this machine\'s memory.'
                    % (len(cells) - len(run) - not_quiet))
    if len(reachable) < len(run):
        result.text('In %d of %d cells this machine dirties less than the'
                    ' limit (or not 2 %% more) even without one: they are in no'
                    ' target.' % (len(run) - len(reachable), len(run)))
    if len(told) < len(reachable):
        result.text('In %d cells (–) some session was charged less than three'
                    ' times in the steady state, too seldom for a rate: with'
                    ' many sessions at a low limit each waits long for its'
                    ' turn.' % (len(reachable) - len(told)))
    grown = [100 * (c.counted / c.grown - 1) for c in run
             if c.grown and c.grown >= 1000]
    if grown:
        result.text('The counter of the view is %.2f %% to %.2f %% (median'
                    ' %.2f %%) off the growth of the tables of INSERT and COPY,'
                    ' where that is 1000 blocks or more. Tables are extended'
                    ' ahead of use when many sessions insert.' % (
                        min(grown), max(grown), measure.median(grown)))


def run(ctx, result):
    plan = PLANS[ctx.mode]
    todo, too_large = [], []
    most = server.memory_mb() * 1024 // 6 // 8          # blocks
    for batch in batches(plan):
        if max(sum(c.work for c in batch[0]),
               sum(c.pages() for c in batch[0])) <= most:
            todo.append(batch)
        else:
            too_large += batch[0]
    pages = max(sum(c.pages() for c in batch[0]) for batch in todo)
    pages = max(pages, OWN_SPEED_BLOCKS)
    server.need_disk(ctx, 7000 + pages * 2 * KB_PER_BLOCK // 1000)

    preload = 'dirty_throttle'
    if server.has_contrib('pg_stat_statements'):
        preload += ',pg_stat_statements'
    ctx.progress('creating a table of %d pages' % pages)
    with Canary(ctx) as canary, server.Server(
            ctx, shared_preload_libraries=preload, max_connections=800,
            shared_buffers=server.shared_buffers(4096), fsync='off',
            checkpoint_timeout='1h', max_wal_size='6GB',
            bgwriter_lru_maxpages=0, deadlock_timeout='1h') as srv:
        srv.create_extension()
        bench = Bench(ctx, srv, canary, pages)
        done = []
        for cells, settle, window, text in todo:
            ctx.progress('%d KB/s, %s' % (cells[0].limit, text))
            for _ in range(TRIES):
                if bench.measure(cells, settle, window):
                    break
                ctx.progress('the machine was not quiet')
            for cell in cells:
                if (cell.rate is not None and cell.limit > 10000
                        and cell.rate < 0.99 * cell.limit):
                    cell.own_speed = bench.own_speed(cell)
                if cell.by.startswith('failed'):
                    result.error('%s: %s' % (cell.name, cell.by))
            done += cells
        for cell in too_large:
            cell.by = 'not run: needs %d blocks' % max(cell.work, cell.pages())
        done += too_large
        if plan['repeats']:
            examples(ctx, result, srv, canary, plan['repeats'])

    result.csv('accuracy',
               ['kind', 'sessions', 'limit_kb', 'blocks', 'rate_kb', 'rate_by',
                'blocks_by_time_kb', *('window_%d_kb' % (i + 1)
                                       for i in range(WINDOWS)),
                'from_start_kb', 'jain', 'worst_1s_kb', 'bound_1s_kb',
                'worst_100ms_kb', 'bound_100ms_kb',
                'machine_kb', 'blocks_counted', 'blocks_grown'],
               [(c.kind, c.sessions, c.limit, c.blocks, c.rate, c.by, c.plain,
                 *(c.windows + [None] * WINDOWS)[:WINDOWS], c.from_start, c.jain, c.worst_1s, c.bound_1s,
                 c.worst_100ms, c.bound_100ms,
                 c.own_speed, c.counted, c.grown) for c in done])
    judge(result, done)
    heat_map(ctx, result, done, plan)
    matrix(result, 'Rate, % of the limit, by kind and sessions', done, plan,
           shown_rate)
    for text, value, most in WORST:
        matrix(result, 'Worst %s, and its bound, in %% of the limit' % text,
               done, plan, lambda c: shown_worst(c, value, most))
    kinds = [(kind, [c for c in done if c.kind == kind]) for kind in KINDS]
    limits = list(plan['limits'])
    for caption, value, pick in (
            ('Rate, % of the limit: median (least .. most) of the three windows'
             ' of all numbers of sessions', None, None),
            ('Jain\'s index, the worst of all numbers of sessions',
             lambda c: c.jain, min),
            ('Rate from the first statement on, % of the limit, the highest of'
             ' all numbers of sessions',
             lambda c: percent(c.from_start, c.limit), max)):
        rows = []
        for kind, cells in kinds:
            row = [kind]
            for k in limits:
                mine = [c for c in cells if c.limit == k]
                if pick is None:
                    windows = [percent(w, k) for c in mine for w in c.windows]
                    row.append('%.1f (%.1f .. %.1f)' % measure.spread(windows)
                               if windows else None)
                else:
                    values = [value(c) for c in mine if value(c) is not None]
                    row.append(pick(values) if values else None)
            rows.append(row)
        result.table(caption, ['', *('%s KB/s' % measure_number(k)
                                     for k in limits)], rows)
