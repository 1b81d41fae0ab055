"""Each kind of command, at a limit: the time it takes, and its worst second.

Each command runs under a limit that lets it take about two seconds, once on
what it dirties and once on the WAL that it writes, in a group of its own, two
commands at the same time. *Ideal* is what the group has used in this time,
divided by its limit. *Worst second* is the most that it has used in any second.
*In flight* is the part of the time in which no process of the group paused after
a transaction.

A command counts only if the machine was quiet while it ran: a process that
sleeps for 10 ms again and again was never more than 20 ms late, and where the
kernel tells (/proc/pressure/cpu), processes did not wait for a processor for more
than a tenth of the time. Others are tried once more, and then "not measured".
"""

import json
import os
import subprocess

from bench.canary import Canary

PGXS_PERL = 'src/test/perl'
TRIES = 2
TARGET = 1.05               # of the ideal time


def seconds(mode):
    return {'full': 300, 'quick': 180, 'tiny': 30}[mode]


def _measure(ctx, canary, rows, names):
    """{(name, limit on): figures} of the commands of these names."""
    pgxs = subprocess.check_output([os.environ['PG_CONFIG'], '--pgxs'],
                                   text=True).strip()
    root = os.path.dirname(os.path.dirname(os.path.dirname(pgxs)))
    work = ctx.path('commands')
    output = os.path.join(work, 'results.json')
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.makedirs(work, exist_ok=True)
    if os.path.exists(output):
        os.unlink(output)
    env = dict(os.environ, DT_OUTPUT=output, DT_ROWS=str(rows),
               DT_COMMANDS='^(%s)$' % names, TESTDIR=work, TESTDATADIR=work,
               TESTLOGDIR=work, LC_MESSAGES='C',
               PG_REGRESS=os.path.join(root, 'src/test/regress/pg_regress'))
    with open(os.path.join(work, 'log'), 'a') as log:
        status = subprocess.call(
            ['perl', '-I', os.path.join(root, PGXS_PERL),
             os.path.join(top, 'bench', 'commands.pl')],
            cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log)
    if not os.path.exists(output):
        with open(os.path.join(work, 'log')) as log:
            raise RuntimeError('commands.pl ended with %d\n%s'
                               % (status, log.read()[-3000:]))
    with open(output) as f:
        cases = json.load(f)
    for case in cases:
        case['quiet'] = canary.was_quiet(case['start'], case['end'])
    return {(case['name'], case['by']): case for case in cases}


def _quoted(name):
    """As a part of a regular expression of Perl."""
    return ''.join(c if c.isalnum() else '\\' + c for c in name)


def _measure_quiet(ctx, canary):
    """Those for which the machine was not quiet are measured again."""
    rows = {'full': 100000, 'quick': 50000, 'tiny': 10000}[ctx.mode]
    cases = _measure(ctx, canary, rows,
                     'CREATE INDEX b.*' if ctx.mode == 'tiny' else '.*')
    for _ in range(TRIES - 1):
        again = {name for (name, _), case in cases.items()
                 if not case['quiet']}
        if not again:
            break
        ctx.progress('%d kinds again: the machine was not quiet' % len(again))
        for key, case in _measure(ctx, canary, rows,
                                  '|'.join(map(_quoted, again))).items():
            if case['quiet']:
                cases[key] = case
    return cases


def run(ctx, result):
    with Canary(ctx) as canary:
        cases = _measure_quiet(ctx, canary)
    measured = [case for case in cases.values() if case['quiet']]
    result.csv('commands',
               ['command', 'limit on', 'limit KB/s', 'used KB', 'ideal s',
                'took s', 'worst second %', 'in flight %', 'quiet'],
               [[case[k] for k in ('name', 'by', 'limit', 'kb', 'ideal',
                                   'took', 'worst', 'in_flight', 'quiet')]
                for case in cases.values()])
    result.table(
        'Commands: time and worst second in relation to the limit',
        ['Command', 'Limit on', 'KB/s', 'ideal, s', 'took, s',
         'took, %', 'worst second, %', 'in flight, %'],
        [[case['name'], case['by'], float(case['limit'])]
         + ([case['ideal'], case['took'], 100 * case['took'] / case['ideal'],
             case['worst'], case['in_flight']] if case['quiet']
            else ['not measured'] + [None] * 4)
         for case in cases.values()])
    result.text('%d of %d were measured while the machine was quiet. Within '
                '%g %% of the ideal time: %d of these.' % (
                    len(measured), len(cases), 100 * (TARGET - 1),
                    sum(abs(case['took'] / case['ideal'] - 1) <= TARGET - 1
                        for case in measured)))
