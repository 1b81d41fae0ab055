"""Plots as small files."""

import os

import matplotlib
import matplotlib.pyplot as plt

matplotlib.rcParams.update({
    'svg.fonttype': 'none',             # text as text: small files
    'svg.hashsalt': 'dirty_throttle',   # the same data give the same file
    'font.family': 'sans-serif',
    'font.size': 9,
    'axes.grid': True,
    'grid.alpha': 0.3,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'path.simplify': True,
    'path.simplify_threshold': 0.3,
})


def figure(rows=1, columns=1, width=9, height=4, **options):
    return plt.subplots(rows, columns, figsize=(width, height),
                        layout='constrained', **options)


def save(ctx, fig, name, form='svg'):
    """Write a plot to the results; returns the file's name.  PNG is smaller
    where there is much text."""
    file = '%s.%s' % (name, form)
    fig.savefig(os.path.join(ctx.out, file), dpi=80,
                metadata={'Date': None} if form == 'svg' else None)
    plt.close(fig)
    return file
