#!/usr/bin/env python3
"""The picture in docs/operators.md: what the Grafana dashboard shows.

Draws docs/dashboard.png from what test/systems/dashboard.pl has written with
DT_DASHBOARD_DATA: the panels of monitoring/grafana-dashboard.json, at their
places, with what Prometheus has answered to their queries. It is not a picture
that Grafana has drawn. It needs matplotlib.

    bench/dashboard.py FILE
"""

import json
import os
import sys

import matplotlib

matplotlib.use('agg')

import matplotlib.pyplot as plt                             # noqa: E402
from matplotlib.ticker import EngFormatter, FuncFormatter   # noqa: E402

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
COLUMNS = 24                    # of the grid
WIDTH = 15                      # inches
ROW = 0.26                      # inches a row of the grid

FORMATS = {
    'Bps': EngFormatter('B/s'),
    'decbytes': EngFormatter('B'),
    's': EngFormatter('s'),
    'percentunit': FuncFormatter(lambda v, _: '%.0f %%' % (100 * v)),
}


def axes_at(fig, pos, rows, left, right, above, below):
    """Axes in a panel, with so much room around them, in inches."""
    width, height = fig.get_size_inches()
    return fig.add_axes((
        pos['x'] / COLUMNS + left / width,
        1 - (pos['y'] + pos['h']) / rows + below / height,
        pos['w'] / COLUMNS - (left + right) / width,
        pos['h'] / rows - (above + below) / height))


def draw_number(fig, panel, series, rows):
    ax = axes_at(fig, panel['gridPos'], rows, 0.05, 0.05, 0.05, 0.05)
    ax.set_xticks([])
    ax.set_yticks([])
    value = series[0][1][-1][1]
    mappings = panel['fieldConfig']['defaults']['mappings']
    text = '%g' % value
    for mapping in mappings:
        text = mapping['options'].get(text, {}).get('text', text)
    color = None
    for step in panel['fieldConfig']['defaults']['thresholds']['steps']:
        if step['value'] is None or value >= step['value']:
            color = step['color']
    ax.text(0.5, 0.86, panel['title'], ha='center', va='center', fontsize=9)
    ax.text(0.5, 0.4, text, ha='center', va='center', fontsize=22,
            color='tab:' + color)


def draw_series(fig, panel, series, seconds, rows, colors):
    ax = axes_at(fig, panel['gridPos'], rows, 0.62, 0.12, 0.32, 0.55)
    drawn = set()
    for name, points in series:
        group = next((w for w in name.split() if w in colors), None)
        # the second series of a group, its limit for example, is dashed
        ax.plot([p[0] for p in points], [p[1] for p in points], lw=1.2,
                color=colors.get(group), label=name,
                ls='--' if group and group in drawn else '-')
        drawn.add(group)
    ax.set_xlim(0, seconds)
    ax.set_ylim(bottom=0)
    ax.set_title(panel['title'], fontsize=9, loc='left')
    ax.tick_params(labelsize=7)
    ax.grid(alpha=0.3)
    unit = FORMATS.get(panel['fieldConfig']['defaults'].get('unit'))
    if unit:
        ax.yaxis.set_major_formatter(unit)
    columns = 4 if panel['gridPos']['w'] >= 8 else 3
    ax.legend(fontsize=5.5, ncols=columns, loc='upper left', frameon=False,
              bbox_to_anchor=(-0.02, -0.12), borderpad=0, columnspacing=0.8)


def main():
    with open(os.path.join(TOP, 'monitoring', 'grafana-dashboard.json')) as f:
        panels = json.load(f)['panels']
    with open(sys.argv[1]) as f:
        data = json.load(f)
    series_of = {p['id']: p['series'] for p in data['panels']}
    members = next(p['id'] for p in panels
                   if p['title'] == 'Members' and p['type'] == 'timeseries')
    groups = sorted({name.split()[0] for name, _ in series_of[members]})
    colors = {group: 'C%d' % i for i, group in enumerate(groups)}
    rows = max(p['gridPos']['y'] + p['gridPos']['h'] for p in panels)

    fig = plt.figure(figsize=(WIDTH, rows * ROW))
    for panel in panels:
        if panel['type'] == 'row':
            pos = panel['gridPos']
            fig.text(0.004, 1 - (pos['y'] + 0.6) / rows, panel['title'],
                     fontsize=11, weight='bold', va='center')
        elif panel['type'] == 'stat':
            draw_number(fig, panel, series_of[panel['id']], rows)
        else:
            draw_series(fig, panel, series_of[panel['id']], data['seconds'],
                        rows, colors)
    fig.savefig(os.path.join(TOP, 'docs', 'dashboard.png'), dpi=80,
                metadata={'Software': None})


main()
