"""An OLTP load beside a bulk job, as more than one scenario measures it.

The load is pgbench's TPC-B-like script; the job fills a table with COPY and
then UPDATEs every row of it.
"""

import os
import threading
import time

from bench import measure, server
from bench.measure import KB_PER_BLOCK

SCALE = 5
CLIENTS = 4
SHARE_OF_MAXIMUM = 0.33
PERCENTILES = [50, 95, 99, 99.9]
CONF = dict(autovacuum='on', checkpoint_timeout='30s', max_wal_size='512MB')


def prepare(ctx, srv, plan):
    srv.create_extension()
    path = ctx.path('job.copy')
    with open(path, 'w') as f:
        for i in range(plan['rows']):
            f.write('%d\t%s\n' % (i, 'x' * 120))
    return path


def create_accounts(srv):
    srv.program('pgbench', '-i', '-q', '-s', SCALE)


def maximum(srv):
    create_accounts(srv)
    text = srv.program('pgbench', '-n', '-M', 'prepared', '-c', CLIENTS, '-T',
                       4)
    return float([line for line in text.split('\n')
                  if line.startswith('tps')][0].split()[2])


class Job(threading.Thread):
    """The bulk job; knows afterwards when it ended and what it dirtied."""

    def __init__(self, srv, group, path):
        super().__init__(daemon=True)
        self.connection = srv.connect(group)
        self.path = path
        self.ended = self.error = None

    def work(self):
        self.connection.execute("COPY job FROM '%s'" % self.path)
        self.connection.execute('UPDATE job SET id = id + 1')

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.error = error
        self.ended = time.time()

    def close(self):
        self.join()
        self.connection.close()
        if self.error:
            raise self.error


def checkpoints(connection):
    """Checkpoints by time and by WAL, ms writing, ms flushing."""
    if connection.info.server_version >= 170000:
        return connection.execute(
            'SELECT num_timed, num_requested, write_time, sync_time'
            ' FROM pg_stat_checkpointer').fetchone()
    return connection.execute(
        'SELECT checkpoints_timed, checkpoints_req, checkpoint_write_time,'
        ' checkpoint_sync_time FROM pg_stat_bgwriter').fetchone()


def latencies(prefix):
    """[(time it ended, ms)] from pgbench's logs, which are removed.

    One that was terminated has left a line without its end.
    """
    result = []
    directory, name = os.path.split(prefix)
    for file in os.listdir(directory):
        if file.startswith(name + '.'):
            path = os.path.join(directory, file)
            with open(path) as f:
                for line in f:
                    field = line.split() if line.endswith('\n') else []
                    # else it failed or was skipped
                    if len(field) > 5 and field[2].isdigit():
                        result.append((int(field[4]) + int(field[5]) / 1e6,
                                       int(field[2]) / 1000))
            os.unlink(path)
    return result


def run_case(ctx, srv, plan, rate, path, case, define=None):
    """define: a function that defines more of the group "job"."""
    name, kb, kind = case
    log = ctx.path('oltp_log')
    create_accounts(srv)        # a job has moved its rows to other pages
    with srv.connect() as admin:
        admin.execute('SET client_min_messages = warning')
        admin.execute('DROP TABLE IF EXISTS job')
        admin.execute('CREATE TABLE job (id int, filler text)')
        server.limit(admin, 'job', kb or 0)
        if define:
            define(admin)
        admin.execute('CHECKPOINT')
        time.sleep(0.3)                 # until the statistics have it
        before = checkpoints(admin)
        wal = admin.execute('SELECT pg_current_wal_lsn()').fetchone()[0]
        oltp = srv.popen('pgbench', '-n', '-M', 'prepared', '-c', CLIENTS,
                         '-T', plan['seconds'], '-R', '%.0f' % rate, '-l',
                         '--log-prefix', log)
        started = time.time()
        job = Job(srv, 'job', path) if kind else None
        if job:
            time.sleep(0.5)             # pgbench has connected
            started = time.time()
            job.start()
        oltp.wait(plan['seconds'] * 4 + 60)
        if oltp.returncode:
            raise RuntimeError('pgbench failed')
        late = job is not None and job.is_alive()
        if job:
            job.close()
        ended = time.time()
        time.sleep(0.3)
        after = checkpoints(admin)
        wal_bytes = float(admin.execute(
            'SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)',
            (wal,)).fetchone()[0])
        dirtied, job_wal = admin.execute(
            'SELECT blocks_dirtied, wal_bytes FROM dirty_throttle_groups'
            " WHERE group_name = 'job'").fetchone()
        server.drop(admin, 'job')
    points = latencies(log)
    whole = sorted(ms for _, ms in points)
    # a transaction suffers when it began before the job ended
    until = job.ended if job else ended
    beside = sorted(ms for t, ms in points
                    if t >= started and t - ms / 1000 <= until)
    return {
        'case': name, 'limit': kb, 'late': late, 'started': started,
        'job': job.ended - started if job else None,
        'dirtied': dirtied * KB_PER_BLOCK / 1000, 'job_wal': job_wal,
        'transactions': len(whole),
        'beside': [measure.percentile(beside, p) for p in PERCENTILES]
                  + [beside[-1] if beside else None],
        'whole': [measure.percentile(whole, p) for p in PERCENTILES]
                 + [whole[-1]],
        'checkpoints': [b - a for a, b in zip(before, after)],
        'wal': wal_bytes / (ended - started) / 1e6,
        'points': [(t - started, ms) for t, ms in points],
    }


def middle(runs, key, i=None):
    values = [r[key] if i is None else r[key][i] for r in runs]
    values = [v for v in values if v is not None]
    return measure.median(values) if values else None
