"""Results: CSV files, and a summary in Markdown of all scenarios."""

import csv
import datetime
import glob
import inspect
import json
import os

from bench import machine

ORDER = ['accuracy', 'commands', 'reaction', 'overhead', 'headroom',
         'headroom_jobs', 'headroom_settings', 'headroom_watch', 'trace', 'long_statement',
         'tail', 'protection', 'budget', 'host_memory', 'replica', 'pressure', 'batches',
         'tenants', 'scale']
MODES = {
    'full': 'the full set',
    'quick': '--quick: fewer cases and repetitions',
    'tiny': '--tiny: a test of the benchmark itself. THE FIGURES MEAN NOTHING',
}


def number(value):
    """As people write it; None is a dash."""
    if value is None:
        return '–'
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value == int(value):
        return '{:,}'.format(int(value)).replace(',', ' ')
    if abs(value) >= 1000:
        return '{:,.0f}'.format(value).replace(',', ' ')
    return '%.3g' % value if abs(value) < 1 else '%.4g' % value


def cell(value):
    return number(value).replace('|', '\\|')


class Result:
    """What a scenario found.  Everything is kept as JSON, too, so that the
    summary can be put together from several runs."""

    def __init__(self, module, ctx):
        self.ctx = ctx
        self.errors = []
        self.data = {
            'scenario': ctx.name,
            'how': inspect.cleandoc(module.__doc__),
            'mode': ctx.mode,
            'command': ctx.command,
            'date': datetime.datetime.now(datetime.timezone.utc)
                .strftime('%Y-%m-%d %H:%M UTC'),
            'machine': machine.describe(ctx),
            'parts': [],
            'targets': [],
            'files': [],
        }

    def csv(self, name, header, rows):
        """Write raw data: rows of numbers and text."""
        file = '%s.csv' % name
        with open(os.path.join(self.ctx.out, file), 'w', newline='') as f:
            writer = csv.writer(f, lineterminator='\n')
            writer.writerow(header)
            for row in rows:
                writer.writerow(['' if v is None else
                                 '%.6g' % v if isinstance(v, float) else v
                                 for v in row])
        self.data['files'].append(file)

    def table(self, caption, header, rows):
        lines = ['', '**%s**' % caption, '',
                 '| ' + ' | '.join(header) + ' |',
                 '|' + '|'.join(['---'] + ['--:'] * (len(header) - 1)) + '|']
        lines += ['| ' + ' | '.join(map(cell, row)) + ' |' for row in rows]
        self.data['parts'].append('\n'.join(lines + ['']))

    def plot(self, file, text):
        self.data['parts'].append('\n![%s](%s)\n' % (text, file))

    def text(self, text):
        self.data['parts'].append('\n' + text + '\n')

    def target(self, text, met, detail):
        """met: True, False, or None when it was not or could not be told."""
        self.data['targets'].append([text, met, detail])

    def finding(self, text, detail):
        """What nobody has set a target for."""
        self.data['targets'].append([text, 'none', detail])

    def error(self, text):
        """Something could not be measured; the rest is still worth it."""
        self.errors.append(text)
        self.text('**Failed:** ' + text)

    def save(self):
        self.data['seconds'] = round(self.ctx.elapsed())
        path = os.path.join(self.ctx.out, self.data['scenario'] + '.json')
        with open(path, 'w') as f:
            json.dump(self.data, f, indent=1, ensure_ascii=False)
            f.write('\n')


VERDICT = {True: 'met', False: '**missed**', None: '*not decided*',
           'none': '(no target)'}


def summarize(out, mode):
    results = []
    for path in glob.glob(os.path.join(out, '*.json')):
        with open(path) as f:
            results.append(json.load(f))
    results.sort(key=lambda r: ORDER.index(r['scenario']))

    lines = ['# Benchmarks', '',
             'Written by `make bench`; not edited by hand. `bench/run --help` '
             'says how to run it or a part of it.', '']
    machines = []
    for r in results:
        # how long a flush takes differs each time
        about = {k: v.split(';')[0] for k, v in r['machine'].items()}
        if about not in machines:
            machines.append(about)
            lines += ['| Machine%s | |' % (' %d' % len(machines)
                                           if len(machines) > 1 else ''),
                      '|---|---|']
            lines += ['| %s | %s |' % item for item in r['machine'].items()]
            lines += ['']
        r['on'] = machines.index(about) + 1

    lines += ['| Scenario | Date | Command | Set | Took |'
              + (' Machine |' if len(machines) > 1 else ''),
              '|---|---|---|---|--:|' + ('--:|' if len(machines) > 1 else '')]
    for r in results:
        lines.append('| [%s](#%s) | %s | `%s` | %s | %d s |' % (
            r['scenario'], r['scenario'], r['date'], r['command'],
            MODES[r['mode']], r['seconds'])
            + (' %d |' % r['on'] if len(machines) > 1 else ''))
    lines += ['', '## Targets', '', '| Scenario | | Target | Measured |',
              '|---|---|---|---|']
    for r in results:
        for text, met, detail in r['targets']:
            lines.append('| %s | %s | %s | %s |' % (
                r['scenario'], text, VERDICT[met], detail))
            print('report: %s: %s: %s (%s)' % (
                r['scenario'], text, VERDICT[met].strip('*'), detail))
    for r in results:
        lines += ['', '## ' + r['scenario'], '', r['how'], '']
        lines += r['parts']
        lines += ['', 'Raw data: ' + ', '.join(
            '[%s](%s)' % (f, f) for f in r['files'])]
    text = '\n'.join(lines) + '\n'
    while '\n\n\n' in text:
        text = text.replace('\n\n\n', '\n\n')
    with open(os.path.join(out, 'summary.md'), 'w') as f:
        f.write(text)
