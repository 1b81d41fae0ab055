"""Sampling from outside, and the statistics of what was sampled."""

import bisect
import random
import statistics
import threading
import time

KB_PER_BLOCK = 8.192            # checked against the server by Sampler


class Sampler(threading.Thread):
    """Runs a query in a session of its own, every "period" seconds.

    The samples are rows whose first column is the time in seconds since
    1970, by the server's clock, taken after the rest of the row.
    """

    def __init__(self, server, query, period):
        super().__init__(daemon=True)
        self.connection = server.connect(application_name='sampler')
        size = self.connection.execute('SHOW block_size').fetchone()[0]
        if int(size) != round(KB_PER_BLOCK * 1000):
            raise RuntimeError('this server\'s blocks have %s bytes' % size)
        self.query = query
        self.period = period
        self.samples = []
        self.error = None
        self.end = threading.Event()

    def run(self):
        due = time.monotonic()
        try:
            with self.connection.cursor() as cursor:
                while not self.end.is_set():
                    cursor.execute(self.query, prepare=True)
                    self.samples.append(cursor.fetchone())
                    due = max(due + self.period, time.monotonic())
                    time.sleep(max(0, due - time.monotonic()))
        except Exception as error:      # reported by stop()
            self.error = error

    def stop(self):
        self.end.set()
        self.join()
        self.connection.close()
        if self.error:
            raise self.error
        return self.samples


# Blocks dirtied by each group, groups in the order of their names.
GROUPS_QUERY = """
SELECT extract(epoch FROM clock_timestamp())::float8, blocks
FROM (SELECT array_agg(blocks_dirtied ORDER BY group_name COLLATE "C") AS blocks
      FROM dirty_throttle_groups()
      WHERE instance IS NULL OFFSET 0) AS g"""

# Blocks dirtied by each member of a group.
SESSIONS_QUERY = """
SELECT extract(epoch FROM clock_timestamp())::float8, pids, blocks
FROM (SELECT array_agg(pid ORDER BY pid) AS pids,
             array_agg(blocks_dirtied ORDER BY pid) AS blocks
      FROM dirty_throttle_sessions() OFFSET 0) AS s"""


class Curve:
    """A counter over time: blocks that were dirtied."""

    def __init__(self, points):
        self.times = [t for t, _ in points]
        self.counts = [n for _, n in points]

    def cut(self, start, end):
        """The samples within this time."""
        i = bisect.bisect_left(self.times, start)
        j = bisect.bisect_right(self.times, end)
        return Curve(list(zip(self.times[i:j], self.counts[i:j])))

    def blocks(self):
        return self.counts[-1] - self.counts[0]

    def seconds(self):
        return self.times[-1] - self.times[0]

    def rate(self):
        """KB/s from the first to the last sample."""
        return self.blocks() * KB_PER_BLOCK / self.seconds()

    def worst(self, width):
        """The highest rate in any window of at least this width, KB/s."""
        result = 0.0
        j = 0
        for i, start in enumerate(self.times):
            while j < len(self.times) and self.times[j] - start < width:
                j += 1
            if j == len(self.times):
                break
            result = max(result, (self.counts[j] - self.counts[i])
                         / (self.times[j] - start))
        return result * KB_PER_BLOCK

    def charges(self, apart):
        """[(time, blocks)] of the increases; those that follow within less
        than that many seconds belong to the one before."""
        result = []
        last = None
        for i in range(1, len(self.times)):
            n = self.counts[i] - self.counts[i - 1]
            if n <= 0:
                continue
            if last is not None and self.times[i] - last < apart:
                result[-1] = (result[-1][0], result[-1][1] + n)
            else:
                result.append((self.times[i], n))
            last = self.times[i]
        return result

    def charge_to_charge(self, apart):
        """KB/s between the first and the last charge, or None.

        For a session that does little else than sleep: it is charged, then
        pauses for as long as that costs.  So the last charge, whose pause has
        not ended, does not count.
        """
        charges = self.charges(apart)
        if len(charges) < 2:
            return None
        return (sum(n for _, n in charges[:-1]) * KB_PER_BLOCK
                / (charges[-1][0] - charges[0][0]))

    def every(self, period):
        """[(time, KB/s since the last point)], with points about this far
        apart: for plots and files."""
        result = []
        last = 0
        for i in range(1, len(self.times)):
            dt = self.times[i] - self.times[last]
            if dt >= period:
                result.append((self.times[i],
                               (self.counts[i] - self.counts[last])
                               * KB_PER_BLOCK / dt))
                last = i
        return result


def jain(values):
    """Jain's fairness index: 1 when all are equal, 1/n when one has all."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def median(values):
    return statistics.median(values)


def mean(values):
    return statistics.fmean(values)


def spread(values):
    """'median (least .. most)'"""
    return (statistics.median(values), min(values), max(values))


def percentile(sorted_values, p):
    """The smallest value that is not exceeded by p percent of them."""
    if not sorted_values:
        return None
    i = int(-(-len(sorted_values) * p // 100)) - 1
    return sorted_values[max(0, min(i, len(sorted_values) - 1))]


def interval(values, statistic, confidence=0.95, resamples=5000):
    """A statistic and its bootstrap confidence interval: (it, low, high)."""
    generator = random.Random(1)        # the same data give the same interval
    drawn = sorted(statistic(generator.choices(values, k=len(values)))
                   for _ in range(resamples))
    tail = (1 - confidence) / 2
    return (statistic(values), drawn[int(tail * resamples)],
            drawn[int((1 - tail) * resamples) - 1])
