"""What it changes that a group has followed commit_latency before its job begins.

As scenario `headroom`, but only alone and beside a group that follows `commit_latency`:
one that is as new as there (*new*), and one that has followed the signal for a minute
before its job begins, as a group that is kept has (*protected*).
"""

from bench import headroom

WATCH = 60                      # seconds


class Watching(headroom.Setting):
    def cases(self):
        return [('alone', None, None), ('new', 0, headroom.SIGNAL),
                ('protected', 0, headroom.SIGNAL)]

    def lead(self, case):
        return WATCH if case[0] == 'protected' else headroom.LEAD


SETTINGS = [Watching('UPDATE in batches')]


def seconds(mode):
    return headroom.estimate(headroom.PLANS[mode], SETTINGS)


def run(ctx, result):
    headroom.run_settings(ctx, result, headroom.PLANS[ctx.mode], SETTINGS)
