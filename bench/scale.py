"""Many sessions and many groups: cost of a charge, 500 sessions, memory.

*Cost of a charge*: a C program with the extension's rate engine in shared
memory, in 1 to 64 processes that charge one group, or one group each; CPU
time by charges, the clock and the spinlock included, when they do nothing
else, the worst case for the lock; and the duration of a charge by the clock
when each works for 100 us between two charges, without the lock, as a session
does that dirties blocks. Where there are more processes than cores, the
slowest charges (p99, 100 us and more are counted as 100 us) wait for a core,
themselves or the holder of the lock.

*500 sessions in 250 groups* on a server, two in each group of 100 KB/s, for
some time: the rate of every group, and the CPU time of all server processes
while they are idle, wait in a statement, and are throttled.

*Memory*: the shared memory that the library asks for at two settings of
max_groups and of max_connections; the differences are what a group and a
session need. The rest is calculated on paper from these figures.
"""

import os
import subprocess
import time

from bench import measure, plot, server
from bench.measure import Curve

PLANS = {
    'full': {'processes': [1, 2, 4, 8, 16, 32, 64], 'seconds': 1.0,
             'repeats': 5, 'groups': 250, 'run': 30},
    'quick': {'processes': [1, 8, 64], 'seconds': 0.5, 'repeats': 1,
              'groups': 250, 'run': 8},
    'tiny': {'processes': [1, 4], 'seconds': 0.1, 'repeats': 1, 'groups': 20,
             'run': 2},
}
WORK_NS = [0, 100000]
LIMIT = 100                     # KB/s of each group
SESSIONS_PER_GROUP = 2
MANY = 10000


def seconds(mode):
    plan = PLANS[mode]
    return (12 + len(plan['processes']) * 2 * len(WORK_NS)
            * plan['repeats'] * (plan['seconds'] + 0.3) + 2.2 * plan['run'])


# ---------------------------------------------------------- cost of a charge

def charge_costs(ctx, plan):
    """[(processes, groups, work_ns, run, ns, charges per second)]"""
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.dirname(here) + '/src'
    program = ctx.path('charge')
    subprocess.check_call(['gcc', '-std=gnu11', '-O2', '-I' + source, '-o',
                           program, here + '/charge.c',
                           source + '/engine/rate.c'])
    rows = []
    for run in range(plan['repeats']):
        ctx.progress('cost of a charge, %d of %d' % (run + 1,
                                                     plan['repeats']))
        for work_ns in WORK_NS:
            for n in plan['processes']:
                for groups in sorted({1, n}):
                    fields = subprocess.check_output(
                        [program, str(n), str(groups), str(work_ns),
                         str(plan['seconds'])], text=True).split()
                    charges, cpu, p50, p99 = map(int, fields[:4])
                    mean, clock = map(float, fields[4:])
                    rows.append((n, groups, work_ns, run + 1,
                                 charges / plan['seconds'],
                                 None if work_ns else cpu / charges,
                                 p50, p99, mean, clock))
    return rows


def report_costs(ctx, result, plan, rows):
    """Returns ns per charge to calculate with."""
    result.csv('scale_charge', ['processes', 'groups', 'work_ns', 'run',
                                'charges_per_s', 'cpu_ns', 'p50_ns', 'p99_ns',
                                'mean_ns', 'clock_ns'], rows)

    def values(n, own, work_ns, column):
        return [r[column] for r in rows if r[0] == n and r[2] == work_ns
                and r[1] == (n if own else 1)]

    fig, ax = plot.figure(1, 1, 7, 4)
    for own, style in ((False, 's--'), (True, 'o-')):
        who = 'a group each' if own else 'one group'
        for work_ns, column, text in (
                (0, 5, 'CPU time, nothing else to do'),
                (WORK_NS[1], 6, 'median, work of 100 us between'),
                (WORK_NS[1], 7, 'p99, work of 100 us between')):
            ax.plot(plan['processes'],
                    [measure.median(values(n, own, work_ns, column))
                     for n in plan['processes']], style,
                    color='C%d' % (column - 5), ms=4,
                    label='%s, %s' % (who, text))
    ax.set_xscale('log', base=2)
    ax.set_yscale('log')
    ax.set_xticks(plan['processes'], plan['processes'])
    ax.set_xlabel('processes')
    ax.set_ylabel('a charge, ns')
    ax.legend(fontsize=7)
    result.plot(plot.save(ctx, fig, 'scale'), 'cost of a charge')
    result.table(
        'One charge in ns, one or two readings of the clock (%.0f ns each)'
        ' included: median (least .. most) of %d runs' % (
            measure.median([r[9] for r in rows]), plan['repeats']),
        ['Processes', 'CPU time, one group, nothing else',
         'CPU time, a group each, nothing else',
         'median, one group, 100 us between', 'p99',
         'median, a group each, 100 us between', 'p99'],
        [[n, *('%.0f (%.0f .. %.0f)' % measure.spread(
            values(n, own, work_ns, column)) for own, work_ns, column in (
                (False, 0, 5), (True, 0, 5), (False, WORK_NS[1], 6),
                (False, WORK_NS[1], 7), (True, WORK_NS[1], 6),
                (True, WORK_NS[1], 7)))]
         for n in plan['processes']])
    last = plan['processes'][-1]
    cpu = measure.median(values(last, False, 0, 5))
    result.finding('one charge, %d processes in one group' % last,
                   '%.0f ns of CPU when they do nothing else; with 100 us'
                   ' between, median %.0f ns' % (cpu, measure.median(
                       values(last, False, WORK_NS[1], 6))))
    return cpu


# -------------------------------------------------------------- 500 sessions

def process_cpu(pid):
    """CPU seconds of a process so far."""
    with open('/proc/%d/schedstat' % pid) as f:
        return int(f.read().split()[0]) / 1e9


def server_cpu(connection, without=()):
    """CPU seconds of the server's processes so far, and context switches."""
    cpu, switches = 0, 0
    for (pid,) in connection.execute('SELECT pid FROM pg_stat_activity'):
        if pid in without:
            continue
        try:
            cpu += process_cpu(pid)
            with open('/proc/%d/status' % pid) as f:
                switches += sum(int(line.split()[1]) for line in f
                                if 'ctxt_switches' in line)
        except FileNotFoundError:       # it has ended
            pass
    return cpu, switches


def used_cpu(connection, seconds, without=None):
    """Per cent of a core, and context switches per second, from now on."""
    without = without or [connection.info.backend_pid]
    start, before = time.time(), server_cpu(connection, without)
    time.sleep(seconds)
    after, elapsed = server_cpu(connection, without), time.time() - start
    return (100 * (after[0] - before[0]) / elapsed,
            (after[1] - before[1]) / elapsed)


def count_pauses(connection):
    return float(connection.execute(
        'SELECT sum(pauses) FROM dirty_throttle_groups()'
        ' WHERE instance IS NULL').fetchone()[0])


def many_sessions(ctx, result, srv, plan):
    groups = plan['groups']
    sessions = groups * SESSIONS_PER_GROUP
    settle = plan['run'] / 3
    idle_seconds = plan['run'] / 3
    rows = int(LIMIT / SESSIONS_PER_GROUP / measure.KB_PER_BLOCK
               * (plan['run'] + settle) * 1.5) + 100
    script = ctx.path('many.sql')
    # idle for some time when all are connected, then all wait for a lock
    with open(script, 'w') as f:
        f.write("\\set g :client_id / %d\n" % SESSIONS_PER_GROUP
                + "SELECT set_config('dirty_throttle.group', 'g%04d', false)"
                .replace('%04d', "' || lpad(:g::text, 4, '0') || '") + ';\n'
                + '\\sleep %d ms\n' % (1000 * (idle_seconds + 3))
                + 'SELECT pg_advisory_lock_shared(1);\n'
                + "INSERT INTO many SELECT generate_series(1, %d), 'aaa';\n"
                % rows)
    with srv.connect() as admin:
        admin.execute('CREATE TABLE many (c1 int, c2 character(500))'
                      ' WITH (fillfactor = 10)')
        for g in range(groups):
            server.limit(admin, 'g%04d' % g, LIMIT)
        admin.execute('SELECT pg_advisory_lock(1)')
        clients = srv.popen('pgbench', '-n', '-c', sessions, '-t', '1', '-f',
                            script)
        try:
            server.wait_for(
                admin, 'SELECT count(*) = %d FROM dirty_throttle_sessions()'
                % sessions, 120)
            time.sleep(1)
            idle = used_cpu(admin, idle_seconds)
            server.wait_for(
                admin, 'SELECT count(*) = %d FROM pg_locks WHERE locktype ='
                " 'advisory' AND NOT granted" % sessions, 120)
            time.sleep(1)
            waiting = used_cpu(admin, idle_seconds)
            admin.execute('SELECT pg_advisory_unlock(1)')
            time.sleep(settle)
            sampler = measure.Sampler(srv, measure.GROUPS_QUERY, 0.05)
            sampler.start()
            members = measure.Sampler(srv, measure.SESSIONS_QUERY, 0.1)
            members.start()
            # what watching costs is not theirs
            watching = [c.info.backend_pid for c in (
                admin, sampler.connection, members.connection)]
            pauses = count_pauses(admin)
            start = time.time()
            busy = used_cpu(admin, plan['run'], watching)
            elapsed = time.time() - start
            pauses = count_pauses(admin) - pauses
            samples, member_samples = sampler.stop(), members.stop()
        finally:
            admin.execute('SELECT pg_terminate_backend(pid)'
                          ' FROM dirty_throttle_sessions()')
            clients.wait(60)
    curves = [Curve([(t, blocks[g]) for t, blocks in samples])
              for g in range(groups)]
    percents = [100 * c.rate() / LIMIT for c in curves]
    worst = [100 * c.worst(1.0) / LIMIT for c in curves]
    by_pid = {}
    for t, pids, blocks in member_samples:
        for pid, count in zip(pids, blocks):
            by_pid.setdefault(pid, []).append((t, count))
    jains = measure.jain([Curve(p).blocks() for p in by_pid.values()])
    result.csv('scale_groups', ['group', 'blocks', 'percent_of_limit',
                                'worst_1s_percent'],
               [(g, c.blocks(), p, w) for g, (c, p, w)
                in enumerate(zip(curves, percents, worst))])
    result.table(
        '%d sessions in %d groups of %d KB/s for %d s, %d blocks per group'
        % (sessions, groups, LIMIT, plan['run'],
           round(measure.median([c.blocks() for c in curves]))),
        ['', 'Median', 'Least', 'Most'],
        [['Rate of a group, % of the limit', *measure.spread(percents)],
         ['Worst 1 s of a group, % of the limit', *measure.spread(worst)],
         ['All groups together, % of all limits',
          sum(percents) / len(percents), None, None],
         ['Jain\'s index of all sessions', jains, None, None]])
    result.table(
        'The server with all %d sessions connected: CPU in %% of one core, and'
        ' what happens in a second' % sessions,
        ['All sessions are', 'CPU, %', 'Context switches', 'Pauses'],
        [['idle', *idle, None],
         ['waiting for a lock, in a statement', *waiting, None],
         ['inserting, throttled', *busy, pauses / elapsed]])
    return percents, {
        'sessions': sessions, 'cpu': busy[0] - idle[0],
        'pauses': pauses / elapsed}


# -------------------------------------------------------------------- memory

def shared_bytes(srv, **conf):
    srv.restart(**conf)
    with srv.connect() as c:
        return int(c.execute(
            'SELECT sum(allocated_size) FROM pg_shmem_allocations'
            " WHERE name LIKE 'dirty_throttle%'").fetchone()[0])


def memory(srv):
    """Bytes of shared memory per group and per possible session."""
    base = shared_bytes(srv, **{'dirty_throttle.max_groups': 300,
                                'max_connections': 300})
    groups = shared_bytes(srv, **{'dirty_throttle.max_groups': 1300,
                                  'max_connections': 300})
    sessions = shared_bytes(srv, **{'dirty_throttle.max_groups': 300,
                                    'max_connections': 1300})
    return (groups - base) / 1000, (sessions - base) / 1000


def run(ctx, result):
    plan = PLANS[ctx.mode]
    costs = charge_costs(ctx, plan)
    many = plan['groups'] * SESSIONS_PER_GROUP
    with server.Server(
            ctx, shared_buffers=server.shared_buffers(1024),
            max_wal_size='4GB', checkpoint_timeout='1h', fsync='off',
            bgwriter_lru_maxpages=0, max_connections=many + 20,
            deadlock_timeout='1h',      # 500 wait for one lock to start together
            **{'dirty_throttle.max_groups': plan['groups']}) as srv:
        srv.create_extension()
        ctx.progress('memory')
        per_group, per_session = memory(srv)
        srv.restart()
        ctx.progress('%d sessions in %d groups' % (many, plan['groups']))
        percents, load = many_sessions(ctx, result, srv, plan)

    charge_ns = report_costs(ctx, result, plan, costs)
    result.table('Shared memory, bytes', ['', 'Bytes'],
                 [['a group that max_groups allows', round(per_group)],
                  ['a session that max_connections and the like allow',
                   round(per_session)]])
    result.table(
        'On paper: %d sessions in %d groups' % (MANY, MANY // 2),
        ['', '', 'How'],
        [['Shared memory, MB',
          '%.1f' % ((per_group * MANY / 2 + per_session * MANY) / 1e6),
          'measured bytes x number'],
         ['Pauses per second at %d KB/s a group' % LIMIT,
          '%.0f' % (load['pauses'] * MANY / load['sessions']),
          'measured x %.0f' % (MANY / load['sessions'])],
         ['CPU at %d KB/s a group, cores' % LIMIT,
          '%.2f' % (load['cpu'] / 100 * MANY / load['sessions']),
          'measured x %.0f; with the INSERTs' % (MANY / load['sessions'])],
         ['of it the charges, cores',
          '%.4f' % (load['pauses'] * MANY / load['sessions'] * 2
                    * charge_ns / 1e9),
          'two charges a pause, at %.0f ns' % charge_ns]])
    result.target('%d sessions in %d groups: each group 95 %% to 105 %%'
                  % (many, plan['groups']),
                  min(percents) >= 95 and max(percents) <= 105,
                  '%.1f %% to %.1f %% of their limits, median %.1f %%'
                  % (min(percents), max(percents), measure.median(percents)))
    result.finding('shared memory', '%.0f bytes a group, %.0f bytes a session'
                   % (per_group, per_session))
