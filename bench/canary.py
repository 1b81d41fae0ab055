"""Was the machine quiet?  What measures times or rates counts only then.

A process that sleeps for 10 ms again and again was never more than 20 ms late
in that time.  And where the kernel tells (/proc/pressure/cpu), processes did
not wait for a processor for more than a tenth of it.
"""

import bisect
import multiprocessing
import os
import signal
import time

PERIOD = 0.01
MOST_LATE = 0.02
MOST_WAITED = 0.1           # of the time
NOTE_EVERY = 0.1
PRESSURE = '/proc/pressure/cpu'


def _waited():
    """Seconds for which some process has waited for a processor, or None."""
    try:
        with open(PRESSURE) as f:
            return int(f.readline().split('total=')[1]) / 1e6
    except (OSError, IndexError):
        return None


def _watch(path):
    """Write down again and again: the time, the most that it has been late
    since it did so last, and what processes have waited."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    late = 0.0
    before = noted = time.time()
    with open(path, 'w', buffering=1) as f:
        while os.getppid() == parent:
            time.sleep(PERIOD)
            now = time.time()
            late = max(late, now - before - PERIOD)
            if now - noted >= NOTE_EVERY:
                print(now, late, _waited(), file=f)
                noted, late = now, 0.0
            before = now


class Canary:
    """Watches until the end of the "with" block."""

    def __init__(self, ctx):
        self.path = ctx.path('canary')
        self.notes = []

    def __enter__(self):
        open(self.path, 'w').close()
        self.process = multiprocessing.Process(target=_watch, args=(self.path,),
                                               daemon=True)
        self.process.start()
        return self

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.join()

    def _read(self):
        with open(self.path) as f:
            self.notes = [[None if word == 'None' else float(word)
                           for word in line.split()]
                          for line in f if line.endswith('\n')]

    def was_quiet(self, start, end, busy=False):
        """In that time, in seconds since 1970, which is over?

        busy: what is measured keeps the processors busy, so that processes
        wait for them on a quiet machine, too; only the canary tells.
        """
        while not self.notes or self.notes[-1][0] <= end:
            time.sleep(NOTE_EVERY)
            self._read()
        times = [note[0] for note in self.notes]
        first = bisect.bisect_left(times, start)
        last = bisect.bisect_left(times, end)
        if any(late > MOST_LATE for _, late, _ in self.notes[first:last + 1]):
            return False
        (since, _, before), (until, _, after) = (self.notes[max(first - 1, 0)],
                                                 self.notes[last])
        return (busy or after is None or
                after - before <= MOST_WAITED * (until - since))
