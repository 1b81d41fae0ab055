"""What every scenario is given: how thorough to be, where to work, progress."""

import os
import time


class Context:
    def __init__(self, module, args):
        self.name = module.__name__.split('.')[-1]
        self.mode = args.mode
        self.work = args.work       # for servers and scratch files
        self.out = args.out         # for results
        self.command = args.command
        self.estimate = module.seconds(args.mode)
        self.started = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.started

    def progress(self, text):
        """A line that bench/run shows."""
        print('%s: %d s of about %d s: %s' % (
            self.name, self.elapsed(), self.estimate, text), flush=True)

    def path(self, *parts):
        return os.path.join(self.work, *parts)
