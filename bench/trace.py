r"""Commits of others beside a job at fixed rates, for the simulator of commit_latency.

pgbench runs as in scenario `headroom`, in an open loop at 35 % of what the machine can
do with it, and each of its sessions records when its commits end and how long they
take, as the signal has them. Beside it a job writes at a fixed WAL limit, or none does.
What was recorded becomes a file of histograms, one for each fifth of a second, which
`test/unit/latency_sim --traces FILE` reads: so its noise and weather are those of a
machine, not what one thinks that they are. The file in test/unit has two of the
settings. It is made anew by

    bench/run --quick --out /tmp/trace trace
    awk '/^trace/ {p = /^trace (simple|tpcb) batches,/} p' /tmp/trace/latency.traces \
        > test/unit/latency.traces

Run it while the machine does nothing else.
"""

import glob
import os
import shlex
import struct
import subprocess

from bench import headroom, measure

RATES = [0, 10000, 20000, 40000, 80000]         # KB/s
PLANS = {
    'full': {'seconds': 30, 'rows': 1000000},
    'quick': {'seconds': 16, 'rows': 1000000},
    'tiny': {'seconds': 3, 'rows': 50000},
}
SLICE = 0.2                     # seconds
PRELUDE = 2                     # seconds, until the job's effect is there
EPOCH = 946684800               # 2000, as timestamps are counted


def settings(mode):
    batches, statement = 'UPDATE in batches', 'UPDATE'
    return [headroom.Setting(job, label, script=script, synchronous=synchronous)
            for label, job, script, synchronous in [
                ('simple batches', batches, 'simple-update', False),
                ('simple statement', statement, 'simple-update', False),
                ('tpcb batches', batches, 'tpcb-like', False),
                ('tpcb statement', statement, 'tpcb-like', False),
                ('simple batches standby', batches, 'simple-update', True),
                ('tpcb batches standby', batches, 'tpcb-like', True),
            ][:1 if mode == 'tiny' else None]]


def seconds(mode):
    return 40 + len(settings(mode)) * (
        30 + len(RATES) * (PLANS[mode]['seconds'] + PRELUDE + headroom.LEAD + 8))


def build(ctx):
    """The library that records; its path without the suffix."""
    def config(option):
        return subprocess.check_output([os.environ['PG_CONFIG'], option],
                                       text=True).strip()

    path = ctx.path('commit_trace')
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'commit_trace.c')
    subprocess.check_call(
        shlex.split(config('--cc')) + ['-O2', '-shared', '-fPIC', '-I',
                                       config('--includedir-server'), '-o', path + '.so', source])
    return path


def read(data):
    """[(time, us)] of all sessions, and removes their files."""
    commits = []
    for name in glob.glob(os.path.join(data, 'commit_trace.*')):
        with open(name, 'rb') as f:
            commits += struct.iter_unpack('=qq', f.read())
        os.unlink(name)
    return sorted((at / 1e6 + EPOCH, us) for at, us in commits)


def bucket(us):
    """As dt_latency_bucket()."""
    us = max(us, 16)
    octave = us.bit_length() - 1
    return min((octave - 5) * 4 + (us >> (octave - 2)), 79)


def histogram(times):
    """The first bucket that is not empty, and the counts from there on."""
    if not times:
        return '0'
    buckets = [bucket(us) for us in times]
    return ' '.join(map(str, [min(buckets)] + [
        buckets.count(b) for b in range(min(buckets), max(buckets) + 1)]))


def record(srv, plan, setting, kb, rate, library, path):
    """[(time, us)] beside a job at that limit, and what it wrote, MB/s."""
    begun, ended, mb = headroom.run_beside(
        srv, plan, setting, ('', kb, None) if kb else ('alone', None, None), rate, path,
        prelude=PRELUDE, PGOPTIONS='-c session_preload_libraries=' + library)
    return [(at - begun, us) for at, us in read(srv.data) if begun <= at < ended], mb


def write(out, setting, mb, commits, plan):
    slices = {}
    for at, us in commits:
        slices.setdefault(int(at / SLICE), []).append(us)
    print('trace %s, %.1f MB/s' % (setting.label, mb), file=out)
    for i in range(round(plan['seconds'] / SLICE)):
        print(histogram(slices.get(i, [])), file=out)


def run(ctx, result):
    plan, path = PLANS[ctx.mode], ctx.path('job.copy')
    library, rows = build(ctx), []
    name = os.path.join(ctx.out, 'latency.traces')
    with open(name, 'w') as out:
        print('# Made by bench/trace.py: of each 0.2 s the first bucket, and counts',
              file=out)
        for setting in settings(ctx.mode):
            with headroom.serving(ctx, setting, plan, path) as srv:
                rate = headroom.maximum(srv, setting) * setting.share / 100
                for kb in RATES:
                    ctx.progress('%s, %d KB/s' % (setting.label, kb))
                    commits, mb = record(srv, plan, setting, kb, rate, library, path)
                    write(out, setting, mb, commits, plan)
                    times = sorted(us / 1000 for _, us in commits)
                    rows.append([setting.label, kb, mb, len(times)] + [
                        measure.percentile(times, p) for p in (50, 90, 95, 99)])
    result.table('Commits of others, ms', ['Setting', 'Limit, KB/s', 'WAL of the job, MB/s',
                                           'commits', 'p50', 'p90', 'p95', 'p99'], rows)
