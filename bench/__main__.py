"""What bench/run calls: estimate, run one scenario, or write the summary."""

import argparse
import importlib
import signal
import sys

from bench.context import Context
from bench import report


def main():
    parser = argparse.ArgumentParser(prog='bench')
    parser.add_argument('action', choices=['estimate', 'run', 'report'])
    parser.add_argument('scenarios', nargs='*')
    parser.add_argument('--mode', choices=['full', 'quick', 'tiny'],
                        required=True)
    parser.add_argument('--out', required=True)
    parser.add_argument('--work', required=True)
    parser.add_argument('--command', required=True)
    args = parser.parse_args()

    # servers are stopped on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    if args.action == 'report':
        report.summarize(args.out, args.mode)
        return
    modules = [importlib.import_module('bench.' + name)
               for name in args.scenarios]
    if args.action == 'estimate':
        seconds = {m.__name__[6:]: m.seconds(args.mode) for m in modules}
        print('estimate: %s; together %.0f minutes' % (
            ', '.join('%s %d s' % item for item in seconds.items()),
            sum(seconds.values()) / 60))
        return
    for module in modules:
        ctx = Context(module, args)
        result = report.Result(module, ctx)
        module.run(ctx, result)
        result.save()
        ctx.progress('done')
        if result.errors:
            sys.exit('\n'.join(result.errors))


main()
