"""How fast a group follows changes of its limit and of its members.

Four sessions of one group INSERT without end, one row a block. Every few
seconds something happens: the limit goes up and down, a fifth session joins
and leaves (it is terminated), the limit becomes 1 KB/s, which stops
everybody, and is raised again. fsync is on, so a change of a limit includes
making it durable.

The time series has the rate ten times a second, from the charges seen in the
views. Reaction times begin when the client sends the command, and come from
samples taken every 3 ms or so:

- *up*, *release*: until the first moment from which on the group's rate over
  the next 100 ms is at least 85 % of the new limit;
- *down*: until the first moment from which on it is at most 115 % of it.
  Debts are kept, so the group may owe for some more time what it dirtied at
  the old limit, and dirties less than the new one. *Settled* is when the rate
  over 250 ms is within 15 % of the limit;
- *pause*: until the last block is dirtied;
- *join*: until the new session's rate over 500 ms is within 25 % of a fifth of
  the limit; *leave*: until the rate of every other session is, of a quarter.
"""

import bisect
import threading
import time

from bench import measure, plot, server
from bench.measure import Curve, KB_PER_BLOCK

PLANS = {'full': {'phase': 3.0, 'repeats': 5},
         'quick': {'phase': 1.5, 'repeats': 2},
         'tiny': {'phase': 0.7, 'repeats': 1}}

# What happens at the beginning of each phase, and the limit that holds then.
PHASES = [
    ('start', 10000),
    ('up to 40 000', 40000),
    ('down to 10 000', 10000),
    ('down to 5 000', 5000),
    ('up to 20 000', 20000),
    ('a session joins', 20000),
    ('a session leaves', 20000),
    ('pause: 1 KB/s', 1),
    ('release: 20 000', 20000),
]
MEMBERS = 4
PERIOD = 0.003
CHANGED = {i for i in range(1, len(PHASES))
           if PHASES[i][1] != PHASES[i - 1][1]}


def seconds(mode):
    plan = PLANS[mode]
    return 3 + plan['repeats'] * (1 + plan['phase'] * len(PHASES))


class Inserter(threading.Thread):
    """A session that inserts until it is terminated."""

    def __init__(self, srv, group, rows):
        super().__init__(daemon=True)
        self.connection = srv.connect(group)
        self.pid = self.connection.info.backend_pid
        self.rows = rows

    def run(self):
        try:
            self.connection.execute(
                "INSERT INTO t SELECT generate_series(1, %d), 'aaa'"
                % self.rows)
        except Exception:
            pass                    # terminated
        self.connection.close()


def timeline(srv, phase):
    """One pass: the samples, and when each phase began."""
    with srv.connect() as admin:
        admin.execute('SET client_min_messages = warning')
        admin.execute('CREATE TABLE t (c1 int, c2 character(500))'
                      ' WITH (fillfactor = 10)')
        server.limit(admin, 'group', PHASES[0][1])
        most = max(kb for _, kb in PHASES) / KB_PER_BLOCK
        rows = int(most * phase * len(PHASES))
        members = [Inserter(srv, 'group', rows) for _ in range(MEMBERS)]
        late = Inserter(srv, 'group', rows)
        sampler = measure.Sampler(srv, measure.SESSIONS_QUERY, PERIOD)
        sampler.start()
        began = []
        for member in members:
            member.start()
        for i, (text, kb) in enumerate(PHASES):
            if i:
                time.sleep(max(0, began[0] + i * phase - time.time()))
            began.append(time.time())
            if 'joins' in text:
                late.start()
            elif 'leaves' in text:
                admin.execute('SELECT pg_terminate_backend(%s)', (late.pid,))
            elif i in CHANGED:
                server.limit(admin, 'group', kb)
        time.sleep(phase)
        ended = time.time()
        samples = sampler.stop()
        admin.execute('SELECT pg_terminate_backend(pid)'
                      ' FROM dirty_throttle_sessions()')
        for member in members:
            member.join()
        admin.execute('DROP TABLE t')
        server.drop(admin, 'group')
    # the counter of a session that leaves must not vanish from the sum
    last, total, curves = {}, [], {}
    for t, pids, blocks in samples:
        for pid, count in zip(pids or [], blocks or []):
            last[pid] = count
            curves.setdefault(pid, []).append((t, count))
        total.append((t, sum(last.values())))
    return (Curve(total), {m.pid: Curve(curves[m.pid])
                           for m in members + [late]},
            late.pid, began + [ended])


def first_moment(curve, start, end, width, condition):
    """ms from start until the rate over the following "width" seconds meets
    the condition, or None."""
    i = bisect.bisect_left(curve.times, start)
    j = i
    while i < len(curve.times):
        while (j < len(curve.times)
               and curve.times[j] - curve.times[i] < width):
            j += 1
        if j == len(curve.times) or curve.times[j] > end:
            return None
        rate = ((curve.counts[j] - curve.counts[i]) * KB_PER_BLOCK
                / (curve.times[j] - curve.times[i]))
        if condition(rate):
            return max(0.0, (curve.times[i] - start) * 1000)
        i += 1
    return None


def reactions(total, sessions, late, began):
    """[(phase, what, ms, blocks dirtied after a pause was asked for)]"""
    result = []
    for i in range(1, len(PHASES)):
        text, kb = PHASES[i]
        start, end = began[i], began[i + 1]

        def add(what, curve, width, condition):
            result.append((text, what, first_moment(curve, start, end, width,
                                                    condition)))

        if 'joins' in text:
            share = kb / (MEMBERS + 1)
            add('its share', sessions[late], 0.5,
                lambda r: abs(r / share - 1) <= 0.25)
        elif 'leaves' in text:
            share = kb / MEMBERS
            times = [first_moment(c, start, end, 0.5,
                                  lambda r: abs(r / share - 1) <= 0.25)
                     for pid, c in sessions.items() if pid != late]
            result.append((text, 'shares of the others',
                           None if None in times else max(times)))
        elif kb == 1:
            piece = total.cut(start, end)
            steps = [k for k in range(1, len(piece.times))
                     if piece.counts[k] > piece.counts[k - 1]]
            result.append((text, 'last block', (piece.times[steps[-1]] - start)
                           * 1000 if steps else 0.0))
            result.append((text, 'blocks after it', float(piece.blocks())))
        elif kb > PHASES[i - 1][1]:
            add('follows', total, 0.1, lambda r: r >= 0.85 * kb)
            add('settled', total, 0.25, lambda r: abs(r / kb - 1) <= 0.15)
        else:
            add('follows', total, 0.1, lambda r: r <= 1.15 * kb)
            add('settled', total, 0.25, lambda r: abs(r / kb - 1) <= 0.15)
    return result


def draw(ctx, result, series, began):
    fig, (top, bottom) = plot.figure(2, 1, 10, 6, sharex=True)
    zero = began[0]
    times = [t - zero for t in began]
    for ax in (top, bottom):
        for i, (text, _) in enumerate(PHASES):
            ax.axvline(times[i], color='0.7', lw=0.7)
    limits = [kb for _, kb in PHASES] + [PHASES[-1][1]]
    top.step(times, limits, where='post', color='tab:red', lw=1,
             label='limit')
    top.plot([t - zero for t, _ in series[0]], [r for _, r in series[0]],
             color='tab:blue', lw=1, label='rate, 10 samples a second')
    high = max(kb for _, kb in PHASES) * 1.35
    for i, (text, _) in enumerate(PHASES):
        top.text(times[i], high, ' ' + text, va='top', fontsize=7)
    top.set_ylim(0, high * 1.02)
    top.set_ylabel('KB/s')
    top.legend(loc='center right')
    for number, points in enumerate(series[1:], 1):
        bottom.plot([t - zero for t, _ in points], [r for _, r in points],
                    lw=0.8, label='session %d' % number)
    bottom.set_ylabel('KB/s of each session')
    bottom.set_xlabel('seconds')
    bottom.legend(loc='upper right', ncols=5, fontsize=7)
    result.plot(plot.save(ctx, fig, 'reaction'),
                'rate of the group and of its sessions over time')


def run(ctx, result):
    plan = PLANS[ctx.mode]
    rows, passes = [], []
    with server.Server(ctx, shared_buffers=server.shared_buffers(1024),
                       max_wal_size='6GB', checkpoint_timeout='1h',
                       bgwriter_lru_maxpages=0) as srv:
        srv.create_extension()
        for i in range(plan['repeats']):
            ctx.progress('pass %d of %d' % (i + 1, plan['repeats']))
            total, sessions, late, began = timeline(srv, plan['phase'])
            passes.append(reactions(total, sessions, late, began))
            if i == 0:
                series = [c.cut(began[0], began[-1]).every(0.1)
                          for c in [total, *sessions.values()]]
                draw(ctx, result, series, began)
                for number, points in enumerate(series):
                    rows += [(number or 'group', t - began[0], r)
                             for t, r in points]
    result.csv('reaction_series', ['session', 'seconds', 'kb_per_s'], rows)
    result.csv('reaction', ['pass', 'event', 'what', 'ms_or_blocks'],
               [(i + 1, *row) for i, p in enumerate(passes) for row in p])

    table = []
    for i, (text, what, _) in enumerate(passes[0]):
        values = [p[i][2] for p in passes]
        seen = [v for v in values if v is not None]
        table.append([text, what, *(measure.spread(seen) if seen
                                    else (None, None, None)),
                      '%d of %d' % (len(seen), len(values))])
    result.table('Reaction times in ms, and after a pause was asked for the'
                 ' blocks dirtied nevertheless; %d passes' % plan['repeats'],
                 ['Event', 'What', 'Median', 'Least', 'Most', 'Seen'], table)
    result.text('Samples were %.1f ms apart (median).' % sample_distance(total))
    for what in ('follows', 'settled'):
        times = [p[i][2] for p in passes for i, row in enumerate(table)
                 if row[1] == what]
        seen = [t for t in times if t is not None]
        result.finding('a new limit: ' + what,
                       'within %.0f ms (median), %.0f ms at most; seen %d of'
                       ' %d times' % (measure.median(seen), max(seen),
                                      len(seen), len(times))
                       if seen else 'not seen')


def sample_distance(curve):
    return 1000 * measure.median([b - a for a, b in zip(curve.times,
                                                        curve.times[1:])])
