"""What others notice of other bulk jobs on a server that has headroom.

As scenario `headroom`, beside COPY, CREATE INDEX CONCURRENTLY, and a DELETE in
batches.
"""

from bench import headroom

JOBS = ['COPY', 'CREATE INDEX', 'DELETE in batches']


def seconds(mode):
    return headroom.estimate(headroom.PLANS[mode], map(headroom.Setting, JOBS))


def run(ctx, result):
    headroom.run_settings(ctx, result, headroom.PLANS[ctx.mode],
                          list(map(headroom.Setting, JOBS)))
