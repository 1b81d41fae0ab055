"""What the figures were measured on: what the results must say of it."""

import os
import platform
import re
import statistics
import subprocess
import time

from bench.server import memory_mb


def _output(*command):
    try:
        return subprocess.check_output(command, text=True,
                                       stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return ''


def _cpu():
    with open('/proc/cpuinfo') as f:
        names = re.findall(r'^model name\s*:\s*(.*)$', f.read(), re.M)
    return '%d x %s' % (len(os.sched_getaffinity(0)),
                        names[0] if names else platform.machine())


def _disk(directory):
    """File system and kind of device."""
    kind = 'unknown device'
    device = os.stat(directory).st_dev
    path = os.path.realpath('/sys/dev/block/%d:%d' % (os.major(device),
                                                      os.minor(device)))
    for top in (path, os.path.dirname(path)):     # a partition has none
        try:
            with open(top + '/queue/rotational') as f:
                kind = 'rotating disk' if f.read().strip() == '1' else 'SSD'
            name = os.path.basename(top)
            if name.startswith('vd'):
                kind = 'virtual disk (virtio)'
            elif name.startswith('nvme'):
                kind = 'NVMe'
            break
        except OSError:
            pass
    return '%s on %s' % (_file_system(directory), kind)


def _file_system(directory):
    best = ('', 'unknown file system')
    with open('/proc/mounts') as f:
        for line in f:
            _, point, fstype = line.split()[:3]
            if (directory + '/').startswith(point.rstrip('/') + '/'):
                best = max(best, (point, fstype), key=lambda b: len(b[0]))
    return best[1]


def _flush_ms(directory):
    """Median time of writing a block and fdatasync."""
    path = os.path.join(directory, 'flush')
    times = []
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for i in range(50):
            os.pwrite(fd, bytes(8192), 8192 * i)
            start = time.perf_counter()
            os.fdatasync(fd)
            times.append(time.perf_counter() - start)
    finally:
        os.close(fd)
        os.unlink(path)
    return statistics.median(times) * 1000


def describe(ctx):
    pg_config = os.environ['PG_CONFIG']
    flags = _output(pg_config, '--cflags').split()
    kept = [f for f in flags
            if f.startswith(('-O', '-g', '-march', '-mtune', '-f'))
            and 'prefix-map' not in f]
    compiler = _output('gcc', '--version').split('\n')[0]
    configure = _output(pg_config, '--configure')
    return {
        'CPU': _cpu(),
        'Virtual': _output('systemd-detect-virt') or 'unknown',
        'RAM': '%.1f GB' % (memory_mb() * 1.048576 / 1000),
        'Disk': '%s; a block written and flushed takes %.2f ms' % (
            _disk(ctx.work), _flush_ms(ctx.work)),
        'Kernel': '%s %s' % (platform.system(), platform.release()),
        'PostgreSQL': _output(pg_config, '--version') + (
            ', WITH ASSERTIONS' if 'cassert' in configure else ''),
        'Compiler': '%s, %s' % (compiler, ' '.join(kept)),
    }
