"""Servers to throw away: create, configure, start, stop, and talk to them."""

import os
import shutil
import subprocess
import tempfile

import psycopg

# What holds for all of them, unless a scenario says otherwise.
CONF = {
    'listen_addresses': '',
    'jit': 'off',
    'max_parallel_workers_per_gather': 0,
    'autovacuum': 'off',
    'logging_collector': 'off',
    'shared_preload_libraries': 'dirty_throttle',
}


def bindir():
    return os.path.dirname(os.environ['PG_CONFIG'])


def has_contrib(name):
    sharedir = subprocess.check_output(
        [os.environ['PG_CONFIG'], '--sharedir'], text=True).strip()
    return os.path.exists(os.path.join(sharedir, 'extension',
                                       name + '.control'))


def memory_mb():
    with open('/proc/meminfo') as f:
        return int(f.readline().split()[1]) // 1024


def shared_buffers(most_mb):
    """An eighth of the memory at most."""
    return '%dMB' % max(128, min(most_mb, memory_mb() // 8))


def need_disk(ctx, mb):
    free = shutil.disk_usage(ctx.work).free // 1000000
    if free < mb:
        raise RuntimeError('needs %d MB of disk space, but there are %d'
                           % (mb, free))


class Server:
    """A server with its data directory in ctx.work; use it with "with"."""

    def __init__(self, ctx, **conf):
        self.data = tempfile.mkdtemp(prefix='data.', dir=ctx.work)
        self.log = self.data + '.log'
        self.socket_dir = ctx.path('tmp')
        self.base = dict(CONF, unix_socket_directories=self.socket_dir)
        self.base.update(conf)
        self.running = False
        self.program('initdb', '-D', self.data, '-U', 'postgres',
                     '-A', 'trust', '--no-sync', '--locale=C',
                     '--encoding=UTF8')
        with open(os.path.join(self.data, 'postgresql.conf'), 'a') as f:
            f.write("include = 'bench.conf'\n")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop('immediate')
        shutil.rmtree(self.data, ignore_errors=True)

    def configure(self, **conf):
        """Write the configuration: the server's own plus conf."""
        with open(os.path.join(self.data, 'bench.conf'), 'w') as f:
            for name, value in dict(self.base, **conf).items():
                f.write("%s = '%s'\n" % (name, value))

    def start(self, **conf):
        self.configure(**conf)
        try:
            self.program('pg_ctl', '-D', self.data, '-l', self.log, '-w',
                         '-t', '120', '-s', 'start')
        except RuntimeError as error:
            with open(self.log) as f:
                raise RuntimeError('%s\n%s' % (error, f.read()[-3000:]))
        self.running = True

    def stop(self, mode='fast'):
        if self.running:
            self.running = False
            self.program('pg_ctl', '-D', self.data, '-w', '-t', '300', '-s',
                         '-m', mode, 'stop')

    def restart(self, **conf):
        self.stop()
        self.start(**conf)

    # ------------------------------------------------------------ clients

    def env(self, **more):
        return dict(os.environ, PGHOST=self.socket_dir, PGPORT='5432',
                    PGUSER='postgres', PGDATABASE='postgres', **more)

    def program(self, name, *args, group=None, **env):
        """Run a program of this installation; returns its output."""
        if group:
            env['PGOPTIONS'] = '-c dirty_throttle.group=' + group
        # not a pipe: a server that is started here would inherit it
        with tempfile.TemporaryFile('w+') as output:
            status = subprocess.call(
                [os.path.join(bindir(), name)] + [str(a) for a in args],
                env=self.env(**env), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT)
            output.seek(0)
            text = output.read()
        if status != 0:
            raise RuntimeError('%s %s: %s' % (name, ' '.join(map(str, args)),
                                              text[-3000:]))
        return text

    def popen(self, name, *args, group=None, **env):
        """Start a program; its output goes to the scratch log."""
        if group:
            env['PGOPTIONS'] = '-c dirty_throttle.group=' + group
        with open(self.data + '.clients', 'a') as log:
            return subprocess.Popen(
                [os.path.join(bindir(), name)] + [str(a) for a in args],
                env=self.env(**env), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)

    def connect(self, group=None, **options):
        if group:
            options['options'] = '-c dirty_throttle.group=' + group
        return psycopg.connect(host=self.socket_dir, port=5432,
                               user='postgres', dbname='postgres',
                               autocommit=True, **options)

    def create_extension(self):
        with self.connect() as c:
            c.execute('CREATE EXTENSION IF NOT EXISTS dirty_throttle')


def limit(connection, group, kb):
    """Set a group's limit, KB/s; creates the group; 0 = none."""
    connection.execute('SET client_min_messages = warning')
    connection.execute('SELECT set_group_dirty_limit(%s, %s::float8)',
                       (group, kb))


def drop(connection, group):
    connection.execute('SET client_min_messages = warning')
    connection.execute('SELECT drop_resource_group(%s, true, true)', (group,))


def wait_for(connection, query, seconds=60):
    """Until the query returns true."""
    import time
    end = time.monotonic() + seconds
    while not connection.execute(query).fetchone()[0]:
        if time.monotonic() > end:
            raise RuntimeError('did not come true: ' + query)
        time.sleep(0.02)
