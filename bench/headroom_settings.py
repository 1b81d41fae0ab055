"""What others notice of an UPDATE in batches, by load and configuration.

As scenario `headroom`, with more fixed limits, so that the best of them is known;
with loads of 20 and 60 % of what the machine can do; with pgbench's script
simple-update; with a larger max_wal_size; and with a synchronous standby.
"""

from bench import headroom

LIMITS = [5000, 10000, headroom.LIMIT, 40000, 80000]
PLANS = {
    'full': {'seconds': 30, 'rounds': 3, 'rows': 1000000},
    'quick': {'seconds': 14, 'rounds': 1, 'rows': 1000000},
    'tiny': {'seconds': 6, 'rounds': 1, 'rows': 50000},
}


def settings():
    def setting(label, **how):
        return headroom.Setting('UPDATE in batches', label, **how)

    return [setting('several limits', limits=LIMITS),
            setting('load of 20 %', share=20),
            setting('load of 60 %', share=60),
            setting('simple-update', script='simple-update'),
            setting('max_wal_size 8 GB', max_wal_size='8GB'),
            setting('synchronous standby', synchronous=True)]


def seconds(mode):
    return headroom.estimate(PLANS[mode], settings())


def run(ctx, result):
    headroom.run_settings(ctx, result, PLANS[ctx.mode], settings())
