#!/usr/bin/env python3
"""The picture in docs/how-it-works.md: the rate of a group, and its limit.

Draws docs/rate.svg from docs/benchmarks/reaction_series.csv, which the
scenario "reaction" has measured.  It needs nothing but Python.
"""

import csv
import os

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'docs')

# What the scenario does at the beginning of each phase, and the limit that
# holds from then on, KB/s: PHASES in reaction.py.
PHASE_SECONDS = 3
PHASES = [
    ('four sessions', 10000),
    ('limit raised', 40000),
    ('lowered', 10000),
    ('lowered', 5000),
    ('raised', 20000),
    ('a session joins', 20000),
    ('it leaves', 20000),
    ('limit: 1 KB/s', 1),
    ('raised', 20000),
]

WIDTH, HEIGHT = 900, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 880, 30, 260
SECONDS = PHASE_SECONDS * len(PHASES)
HIGHEST = 50000


def x(seconds):
    return LEFT + (RIGHT - LEFT) * seconds / SECONDS


def y(kb_per_s):
    return BOTTOM - (BOTTOM - TOP) * kb_per_s / HIGHEST


def points(pairs):
    return ' '.join('%.1f,%.1f' % (x(s), y(kb)) for s, kb in pairs)


def text(at_x, at_y, words, more=''):
    return '<text x="%.1f" y="%.1f"%s>%s</text>' % (at_x, at_y, more, words)


def main():
    with open(os.path.join(DOCS, 'benchmarks', 'reaction_series.csv')) as f:
        rate = [(float(row['seconds']), float(row['kb_per_s']))
                for row in csv.DictReader(f) if row['session'] == 'group']
    limit = [(i * PHASE_SECONDS + end, kb)
             for i, (_, kb) in enumerate(PHASES)
             for end in (0, PHASE_SECONDS)]

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
           'viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" '
           'fill="#333">' % (WIDTH, HEIGHT, WIDTH, HEIGHT),
           '<title>The rate at which a group of four sessions dirties shared '
           'buffers, and its limit</title>',
           '<rect width="100%" height="100%" fill="#fff"/>']
    for kb in range(0, HIGHEST + 1, 10000):
        out += ['<path d="M%d %.1fH%d" stroke="#e4e4e4"/>' % (LEFT, y(kb),
                                                              RIGHT),
                text(LEFT - 6, y(kb) + 4, '{:,}'.format(kb).replace(',', ' '),
                     ' text-anchor="end"')]
    for i, (words, _) in enumerate(PHASES):
        at = x(i * PHASE_SECONDS)
        out += ['<path d="M%.1f %dV%d" stroke="#bbb" stroke-dasharray="2 3"/>'
                % (at, TOP - 14, BOTTOM),
                text(at + 4, TOP - 4, words, ' font-size="11"')]
    for seconds in range(0, SECONDS + 1, PHASE_SECONDS):
        out.append(text(x(seconds), BOTTOM + 16, '%d s' % seconds,
                        ' text-anchor="middle"'))
    out += ['<polyline fill="none" stroke="#1f5fa8" stroke-width="1.3" '
            'points="%s"/>' % points(rate),
            '<polyline fill="none" stroke="#d4351c" stroke-width="1.8" '
            'points="%s"/>' % points(limit)]
    legend = BOTTOM + 34
    out += ['<path d="M%d %dh24" stroke="#d4351c" stroke-width="1.8"/>'
            % (LEFT, legend - 4),
            text(LEFT + 30, legend, 'limit of the group, KB/s'),
            '<path d="M%d %dh24" stroke="#1f5fa8" stroke-width="1.3"/>'
            % (LEFT + 220, legend - 4),
            text(LEFT + 250, legend, 'what its sessions dirty together, KB/s, '
                 'ten samples a second'),
            '</svg>']
    with open(os.path.join(DOCS, 'rate.svg'), 'w') as f:
        f.write('\n'.join(out) + '\n')


main()
