# run_in_batches() and everybody else: who runs, stops, cancels and forgets a job;
# what becomes of its table meanwhile; roles without privileges; functions that
# lie in wait in the search_path; publications, pg_dump and REFRESH.
#
# takes-about: 30 s
#
# expect-in-log: WARNING: .*"hostile".*
# expect-in-log: WARNING: .*canceling wait for synchronous replication

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Batches;
use Digest::MD5 qw(md5_hex);
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Batches->new(
	'batches', conf => q{
wal_level = logical
max_wal_senders = 2
synchronous_standby_names = nobody
synchronous_commit = local
log_min_messages = log
});
my $s = $dt->session;
my $other = $dt->session;
my $mark;

# Tables where a batch stays at a row for as long as somebody has a lock; it looks
# for that, so that it does not wait for it.
$dt->sql(q{CREATE TABLE stops (at bigint);
	CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE EXISTS (SELECT FROM stops WHERE at = NEW.id) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
		RETURN NEW; END $$});

sub staying
{
	my ($table, $rows) = @_;

	$dt->counted($table => $rows);
	$dt->sql("CREATE TRIGGER stay BEFORE UPDATE ON $table FOR EACH ROW EXECUTE FUNCTION stay()");
}

# The position of the batch before the one with this row: each has twice as many keys
# as the one before, from 1 to 10.
sub before
{
	my ($at) = @_;
	my ($position, $size) = (0, 1);

	while ($position + $size < $at)
	{
		$position += $size;
		$size = $size > 5 ? 10 : 2 * $size;
	}
	return $position;
}

# Run a job, and wait until it stays at a row.
sub run_to
{
	my ($session, $name, $table, $at, %opt) = @_;

	$dt->sql("INSERT INTO stops VALUES ($at)");
	$dt->send_batches($session, $name, $table, max_rows => 10, %opt);
	my $position = before($at);
	die "$name does not come to row $at"
	  unless $dt->wait_job($name, $position == 0 ? 'position IS NULL' : "position = '{$position}'")
	  && poll_until(sub { ($dt->sql('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $dt->worker($name)) // '') eq 'PgSleep' });
}

sub let_go
{
	$dt->sql('DELETE FROM stops');
}

# ------------------------------------------------------------ who runs a job

staying(t => 100);
run_to($s, 'job', 't', 55);
my $job = $dt->job('job');
my $pid = $dt->worker('job');
is($job->{state}, 'running', 'it runs: the view');
is($dt->sql("SELECT backend_type, application_name, query FROM pg_stat_activity WHERE pid = $pid"),
	'dirty_throttle batches|job|UPDATE t SET n = n + 1 WHERE {batch}', 'it runs: pg_stat_activity');
my $r = $dt->start($other, 'job', 't', max_rows => 10);
is($r->{sqlstate}, undef, 'somebody else starts it');
like($r->{err}, qr/NOTICE: .*batch job "job" is already being run by process $pid\b/, 'which changes nothing');
is($dt->start($other, 'job', 't', start => 5)->{sqlstate}, '42710', 'nor another one of that name');
$r = $other->run(q{SELECT forget_batches('job')});
is($r->{sqlstate}, '55006', 'it is not forgotten while it runs: the error');
like($r->{err}, qr/is being run by process $pid\n.*HINT: .*stop_batches\('job'\)/s, 'what it says');
is($dt->sql(q{SELECT stop_batches('job')}), '', 'it is stopped');
like($dt->start($other, 'job', 't', max_rows => 10)->{err}, qr/NOTICE: .*batch job "job" is already being run by process \d+.*HINT: .*being stopped.*when it has ended/s, 'it is stopped: who starts it now is told');
let_go();
$r = $s->wait;
like($r->{err}, qr/NOTICE: .*batch job "job" was stopped before its end: 55 of 55 rows.*HINT: .*SELECT start_batches\('job', unthrottled => true\) continues it/s, 'it ends after that batch');
is($r->{out}, '55|f', 'what it returns');
$job = $dt->job('job');
is("$job->{state} $job->{rows} " . ($job->{pid} // 'NULL'), 'stopped 55 NULL', 'the view');
like($other->run(q{SELECT stop_batches('job')})->{err}, qr/NOTICE: .*batch job "job" is not running/, 'stopped again: a notice');
is($dt->batches($other, 'job', 't')->{out}, '45|t', 'another session goes on with it');
is($dt->counts('t'), '1:100', 'each row once');

# Who starts it waits for its table meanwhile, and the job goes on and is stopped: the
# new start is from where that has ended.
staying(waited => 100);
run_to($s, 'waited', 'waited', 55);
$other->send('BEGIN; LOCK waited');
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $other->pid) }), 'somebody waits for the table');
my $starter = $dt->session;
$dt->send_batches($starter, 'waited', 'waited', max_rows => 10);
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $starter->pid) }), 'so does who starts the job');
$dt->sql(q{SELECT stop_batches('waited')});
let_go();
like($s->wait->{out}, qr/^55\|f$/, 'the job is stopped');
$other->wait;
$other->query('COMMIT');
is($starter->wait->{out}, '45|t', 'it goes on from there');
is($dt->counts('waited'), '1:100', 'each row once');
$starter->quit;
$dt->sql(q{SELECT forget_batches('waited')});

# The end is that of the start, though the snapshot of its transaction is older: than rows
# of others, or than a table that was rewritten while the start waited for it.
$dt->counted(newer => 100);
$s->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$dt->sql('INSERT INTO newer SELECT i FROM generate_series(101, 200) i');
$s->query($dt->start_call('newer', 'newer') . '; COMMIT');
ok($dt->wait_job('newer', q{state = 'finished'}), 'REPEATABLE READ: it finishes');
is($dt->counts('newer'), '1:200', 'REPEATABLE READ: each row once that was there at the start');
$other->query('BEGIN; ALTER TABLE newer ALTER id TYPE numeric');
$s->query(q{SET default_transaction_isolation = 'repeatable read'});
$dt->send_batches($s, 'rewritten', 'newer');
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $s->pid) }), 'REPEATABLE READ: the start waits for the table');
$other->query('COMMIT');
is($s->wait->{out}, '200|t', 'REPEATABLE READ: a table that was rewritten meanwhile is not empty');
is($dt->counts('newer'), '2:200', 'REPEATABLE READ: each row once');
$s->query('RESET default_transaction_isolation');

foreach my $function (qw(stop_batches forget_batches))
{
	$r = $other->run("SELECT $function('nothing')");
	is($r->{sqlstate}, '42704', "$function: no such job");
	like($r->{err}, qr/batch job "nothing" does not exist\n.*HINT: .*dirty_throttle_batches/s, "$function: what it says");
}
$dt->sql(q{SELECT forget_batches('job')});
is($dt->job('job'), undef, 'forgotten');

# Somebody forgets it in a transaction that lasts: who calls it waits for that.
$dt->batches($s, 'job', 't');
my $spid = $s->pid;
foreach my $end ([ 'COMMIT', '100|t', 'then it begins anew' ], [ 'ROLLBACK', '0|t', 'it was not forgotten' ])
{
	$other->query(q{BEGIN; SELECT forget_batches('job')});
	$dt->send_batches($s, 'job', 't');
	ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE pid = $spid AND NOT granted") }), 'it waits');
	$other->query($end->[0]);
	is($s->wait->{out}, $end->[1], $end->[2]);
}
is($dt->counts('t'), '3:100', 'each row');

# Two forget it at once.
my $third = $dt->session;
$other->query(q{BEGIN; SELECT forget_batches('job')});
$third->send(q{SELECT forget_batches('job')});
my $third_pid = $third->pid;
ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE pid = $third_pid AND NOT granted") }), 'the second one waits');
$other->query('COMMIT');
$r = $third->wait;
is($r->{sqlstate}, '42704', 'and finds none');
$third->quit;
is($dt->job('job'), undef, 'it is forgotten');

# What psql makes a transaction block, and what it does not.
my @psql = ('psql', '-X', '-q', '-A', '-t', '-d', $dt->node->connstr('postgres'));
my $psql_call = $dt->call('psql', 't');
my $in_block = qr/ERROR:  run_in_batches\(\) cannot run inside a transaction block or a function\n.*HINT:  Use SELECT start_batches/s;
$dt->node->command_checks_all([ @psql, '-1', '-c', $psql_call ], 1, [qr/^$/], [$in_block], 'psql -1');
$dt->node->command_checks_all([ @psql, '-c', "SELECT 1; $psql_call" ], 1, [qr/^1?$/], [$in_block], 'psql -c with two commands');
$dt->node->command_checks_all([ @psql, '-v', 'AUTOCOMMIT=off', '-c', 'SELECT 1', '-c', $psql_call ], 1, [qr/^1$/], [$in_block], 'psql without AUTOCOMMIT');
is($dt->job('psql'), undef, 'nothing is stored');
$dt->node->command_checks_all([ @psql, '-c', "SET dirty_throttle.log_min_pause = 0", '-c', $psql_call ], 0, [qr/^100\|t$/], [qr/has finished/], 'psql -c twice');

# run_time: it ends after a batch
staying(slow => 100);
$r = $dt->batches($s, 'run_time', 'slow', max_rows => 10, run_time => '1s',
	statement => 'UPDATE slow SET n = n + 1 + 0 * length(pg_sleep(0.02)::text) WHERE {batch}');
like($r->{out}, qr/^\d+\|f$/, 'run_time: it has not finished');
$job = $dt->job('run_time');
is($job->{state}, 'stopped', 'run_time: the view');
cmp_ok($job->{elapsed_time}, '>=', 1000, 'run_time: ms');
my @slow = (statement => 'UPDATE slow SET n = n + 1 + 0 * length(pg_sleep(0.02)::text) WHERE {batch}');
is($dt->batches($s, 'run_time', 'slow', @slow)->{out} =~ /\|t$/, 1, 'run_time: it has');
is($dt->counts('slow'), '1:100', 'run_time: each row once');

# from a procedure that loops
$dt->sql(q{UPDATE slow SET n = 0;
	CREATE PROCEDURE all_of_it() LANGUAGE plpgsql AS $$ DECLARE
		changed bigint; done boolean; times int := 0; total bigint := 0; BEGIN
		LOOP
			CALL run_in_batches('loop', 'slow', 'UPDATE slow SET n = n + 1 + 0 * length(pg_sleep(0.03)::text) WHERE {batch}',
				unthrottled => true, max_rows => 10, run_time => '1 s', rows => changed, finished => done);
			times := times + 1;
			total := total + changed;
			COMMIT;
			EXIT WHEN done;
		END LOOP;
		RAISE NOTICE 'times > 1: %, rows: %', times > 1, total; END $$});
like($s->run('CALL all_of_it()')->{err}, qr/times > 1: t, rows: 100/, 'a procedure that loops');
is($dt->counts('slow'), '1:100', 'each row once');

# --------------------------------------------- cancelled and terminated, anywhere

# Where a job is, and how to bring it there.
my %places = (
	'in the statement' => sub { run_to($_[0], $_[1], $_[1], 25) },
	'at a row that is locked' => sub {
		my ($session, $name) = @_;

		$other->query("BEGIN; UPDATE $name SET n = 0 WHERE id = 25");
		$dt->send_batches($session, $name, $name, max_rows => 10);
		ok($dt->wait_job($name, "position = '{15}'"), "$name: it is there");
	},
	'in a pause' => sub {
		my ($session, $name) = @_;

		$dt->sql("SELECT set_group_wal_limit('$name', 1)");
		$session->query(qq{SET dirty_throttle."group" = '$name'});
		$dt->send_batches($session, $name, $name, max_rows => 10);
		my $worker = $dt->worker($name);
		ok(poll_until(sub { $dt->sql("SELECT paused_since IS NOT NULL FROM dirty_throttle_sessions WHERE pid = $worker") eq 't' }), "$name: it pauses");
	});
# Who is signalled with what, how the CALL ends, and what becomes of the job.
my @ways = (
	[ 'the client', 'pg_cancel_backend', qr/canceling statement due to user request\n.*HINT: .*ends after the current batch/s, 'stopped' ],
	[ 'the client', 'pg_terminate_backend', qr/terminating connection due to administrator command\n.*HINT: .*continues.*stop_batches/s, 'running' ],
	[ 'the worker', 'pg_cancel_backend', qr/was stopped before its end/, 'stopped' ],
	[ 'the worker', 'pg_terminate_backend', qr/batch job "\w+" was interrupted\n.*HINT: .*See the server log/s, 'interrupted' ]);
my $n = 0;

foreach my $place (sort keys %places)
{
	foreach my $way (@ways)
	{
		my ($whom, $how, $message, $state) = @$way;
		my $table = 'c' . ++$n;
		my $name = "$how of $whom $place";
		my $session = $dt->session;

		staying($table => 50);
		$places{$place}->($session, $table);
		$dt->sql("SELECT $how(" . ($whom =~ /client/ ? $session->pid : $dt->worker($table)) . ')');
		$r = $session->wait;
		let_go() if $whom =~ /client/;
		like($r->{err}, $message, "$name: the CALL ends");
		if ($state eq 'running')
		{
			isnt($dt->job($table)->{pid}, undef, "$name: it goes on") if $place =~ /pause|locked/;
			$dt->sql("SELECT stop_batches('$table')");
			ok(poll_until(sub { $dt->job($table)->{state} =~ /stopped|finished/ }), "$name: until it is stopped");
		}
		else
		{
			ok(poll_until(sub { $dt->job($table)->{state} eq $state || $dt->job($table)->{state} eq 'finished' }), "$name: it is $state")
			  or diag $dt->job($table)->{state};
		}
		let_go();
		$other->query('ROLLBACK') if $place =~ /locked/;
		$session->quit;
		$dt->sql("SELECT set_group_wal_limit('$table', 0)") if $place =~ /pause/;
		like($dt->batches($s, $table, $table)->{out}, qr/\|t$/, "$name: it goes on");
		is($dt->counts($table), '1:50', "$name: each row once");
	}
}
is($dt->sql('SELECT count(*) FROM dirty_throttle_batches WHERE pid IS NOT NULL'), 0, 'nothing runs');

# A COMMIT that waits for a standby that is gone: stop_batches() ends that wait, and the
# job; what was committed stays.
$dt->counted(synced => 50);
my @synced = ('synced', 'synced', max_rows => 10, statement => q{UPDATE synced SET n = n + 1 + 0 * length(
	set_config('synchronous_commit', CASE WHEN EXISTS (SELECT FROM stops WHERE at = id) THEN 'on' ELSE 'local' END, true)) WHERE {batch}});
foreach my $at (25, 40, 50)
{
	$dt->sql("INSERT INTO stops VALUES ($at)");
	$dt->send_batches($s, @synced);
	$pid = $dt->worker('synced');
	ok(poll_until(sub { ($dt->sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") // '') eq 'SyncRep' }),
		"COMMIT of row $at: it waits for a standby");
	$dt->sql(q{SELECT stop_batches('synced')});
	my $result = $s->wait;
	is($result->{out}, (25 => '25|f', 40 => '15|f', 50 => '10|t')[2 * ($at == 40) + 4 * ($at == 50) + 1], "COMMIT of row $at: until it is stopped");
	let_go();
}
is($dt->batches($s, @synced)->{out}, '0|t', 'after that nothing is left');
is($dt->counts('synced'), '1:50', 'each row once');

# What a session has set is stored, SET LOCAL as well: the job is what it would have been
# there.
$dt->counted(called => 10);
$dt->sql('CREATE SCHEMA tenant; CREATE TABLE tenant.called (LIKE called INCLUDING ALL);
	INSERT INTO tenant.called SELECT i FROM generate_series(1, 10) i');
$dt->counted(articles => 30);
$r = $s->run(q{BEGIN; SET LOCAL search_path = tenant, public; } . $dt->start_call('called local', 'called') . '; COMMIT');
is($r->{sqlstate}, undef, 'SET LOCAL search_path');
ok($dt->wait_job('called local', q{state = 'finished'}), 'SET LOCAL search_path: it runs');
is($dt->counts('tenant.called'), '1:10', 'SET LOCAL search_path: each row once in that table');
is($dt->sql('SELECT sum(n) FROM called'), 0, 'SET LOCAL search_path: none in the other one');

# The transaction that starts a job has not ended: others do not find it.
$other->query('BEGIN; ' . $dt->start_call('begins', 'articles'));
is($dt->session->run(q{SELECT stop_batches('begins')})->{sqlstate}, '42704', 'before COMMIT there is no job');
$other->query('ROLLBACK');
is($dt->job('begins'), undef, 'after ROLLBACK neither');

# What a foreign server reports of itself is no cancel of the CALL.
$dt->sql(q{CREATE FUNCTION foreign_error() RETURNS int LANGUAGE plpgsql AS
	$$ BEGIN RAISE 'another server was canceled' USING ERRCODE = '57014'; END $$});
is($dt->batches($s, 'foreign', 'articles', statement => 'UPDATE articles SET n = foreign_error() WHERE {batch}')->{sqlstate}, '57014', 'an error like a cancel');
$job = $dt->job('foreign');
is("$job->{state} $job->{error}", 'failed another server was canceled', 'an error like a cancel: the view');

# The server's statistics get what was done while it runs, so that autovacuum begins.
staying(vacuumed => 1000);
run_to($s, 'vacuumed', 'vacuumed', 995, statement =>
	  'UPDATE vacuumed SET n = n + 1 + length(pg_sleep(0.002)::text) WHERE {batch}');
cmp_ok($dt->sql(q{SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'vacuumed'}), '>', 0, 'statistics of a table while batches run');
let_go();
like($s->wait->{out}, qr/^1000\|t$/, 'it ends');

# What comes beyond the end while it runs is left.
staying(g => 20);
run_to($s, 'no more', 'g', 15);
$dt->sql('INSERT INTO g SELECT i, 0 FROM generate_series(21, 40) i');
let_go();
is($s->wait->{out}, '20|t', 'what comes beyond the end is left');
# ------------------------------------------------- what becomes of the table

# Each while the session stays in the second batch: what is done meanwhile waits for
# that, or is done when it was stopped; and what comes of it.
my @changes = (
	[ 'TRUNCATE %s', qr/^15\|t$/, undef, '' ],
	[ 'ALTER TABLE %s ADD COLUMN x int DEFAULT 5', qr/^50\|t$/, undef, '1:50' ],
	[ 'ALTER TABLE %s ALTER id TYPE int', qr/^50\|t$/, undef, '1:50' ],
	[ 'ALTER TABLE %s ALTER id TYPE numeric', undef, '42704', undef,
		qr/no longer has an index in the order that the batch job follows.*HINT: .*forget_batches/s ],
	[ 'ALTER TABLE %1$s DROP CONSTRAINT %1$s_pkey', undef, '42704', undef, qr/no longer has an index/ ],
	[ 'BEGIN; ALTER TABLE %1$s DROP CONSTRAINT %1$s_pkey; CREATE UNIQUE INDEX ON %1$s (id DESC, n); COMMIT', qr/^50\|t$/, undef, '1:50' ],
	[ 'DROP TABLE %s', undef, '42P01', undef, qr/the table of batch job "\w+" no longer exists.*HINT: .*SELECT forget_batches\('\w+'\)/s ],
	[ 'ALTER TABLE %1$s RENAME id TO key', undef, '42703', undef, qr/column "id" of table "\w+" does not exist/ ],
	[ 'ALTER TABLE %1$s RENAME TO %1$s_new', undef, '42P01', undef, qr/relation "\w+" does not exist.*HINT: .*rename it back/s ],
	[ 'REINDEX TABLE CONCURRENTLY %s', qr/^50\|t$/, undef, '1:50' ],
	[ 'VACUUM FULL %s', qr/^50\|t$/, undef, '1:50' ],
	[ 'ALTER TABLE %s DISABLE TRIGGER ALL', qr/^50\|t$/, undef, '1:50' ]);

foreach my $change (@changes)
{
	my ($command, $out, $sqlstate, $counts, $message) = @$change;
	my $table = 'm' . ++$n;
	my $sql = sprintf $command, $table;

	staying($table => 50);
	run_to($s, $table, $table, 15);
	$other->send($sql);
	ok(poll_until(sub { $other->finished || $dt->sql(
		'SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $other->pid) }), "$sql: it waits");
	let_go();
	$r = $s->wait;
	is($other->wait->{sqlstate}, undef, "$sql: it is done");
	is($r->{sqlstate}, $sqlstate, "$sql: the SQLSTATE") or diag $r->{err};
	like($r->{out}, $out, "$sql: the result") if $out;
	is($dt->counts($table), $counts, "$sql: the rows") if defined $counts;
	like($r->{err}, $message, "$sql: what it says") if $message;
}

# A long statement is stored once, and not with each batch.
$dt->counted(long => 200);
my $long = join ', ', map { "'" . md5_hex($_) . "'" } 1 .. 2000;
is($dt->batches($s, 'long', 'long', max_rows => 10,
		statement => "UPDATE long SET n = n + 1 WHERE {batch} AND id::text NOT IN ($long)")->{out},
	'200|t', 'a long statement');
cmp_ok($dt->sql(q{SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'dirty_throttle_stored_batches'}),
	'<', 3 * length($long), 'is stored once');

# Its row is locked or deleted by somebody else: SQL cannot do that; REFRESH keeps it.
staying(v => 50);
run_to($s, 'refresh', 'v', 15);
$dt->sql('INSERT INTO stops VALUES (35)');
$other->send('REFRESH MATERIALIZED VIEW dirty_throttle_stored_progress');
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $other->pid) }), 'REFRESH waits for a batch');
$dt->sql('DELETE FROM stops WHERE at = 15');
is($other->wait->{sqlstate}, undef, 'REFRESH');
let_go();
is($s->wait->{out}, '50|t', 'REFRESH: it goes on');
is($dt->counts('v'), '1:50', 'REFRESH: each row once');
is($dt->job('refresh')->{rows}, 50, 'REFRESH: the row is there');

# It has the row when a batch fails: that is stored later, and is in the log by then.
$dt->sql('UPDATE v SET n = 0');
run_to($s, 'refresh', 'v', 12, restart => 'true', statement => 'UPDATE v SET n = n + 1 / (id <> 14)::int WHERE {batch}');
$pid = $dt->worker('refresh');
$other->send('BEGIN; REFRESH MATERIALIZED VIEW dirty_throttle_stored_progress');
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $other->pid) }), 'REFRESH waits for a batch that fails');
$mark = $dt->log_mark;
let_go();
is($other->wait->{sqlstate}, undef, 'REFRESH after a batch that fails');
ok(poll_until(sub { $dt->log_since($mark) =~ /batch job "refresh" has failed: .*\n.*division by zero/ }, 20), 'REFRESH after a batch that fails: the log');
# longer than a batch waits for a lock, and through a cancel
ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $pid") }), 'REFRESH after a batch that fails: the worker waits for the store');
$dt->sql("SELECT pg_cancel_backend($pid)");
$other->query('SELECT pg_sleep(0.5); COMMIT');
is($s->wait->{sqlstate}, '22012', 'REFRESH after a batch that fails: the CALL');
is($dt->job('refresh')->{state}, 'failed', 'REFRESH after a batch that fails: the view');

# What is forgotten while the view is read is not in it.  It takes its time to read.
my $long_statement = 'SELECT id FROM v WHERE {batch} --' . join '', map { md5_hex($_) } 1 .. 3000;
$s->query("DO \$do\$ BEGIN FOR i IN 1 .. 60 LOOP PERFORM start_batches('read' || i, 'v', \$s\$$long_statement\$s\$, unthrottled => true); END LOOP; END \$do\$");
ok(poll_until(sub { !$dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE name LIKE 'read%' AND state <> 'finished'}) }), 'jobs with long statements');
$s->send('DO $$ BEGIN WHILE EXISTS (SELECT FROM dirty_throttle_batches WHERE name = \'read1\') LOOP PERFORM count(*) FROM dirty_throttle_batches; END LOOP; END $$');
$other->query("SELECT forget_batches('read$_')") foreach reverse 1 .. 60;
is($s->wait->{sqlstate}, undef, 'the view while jobs are forgotten');

$r = $dt->sql('SELECT count(*) FROM dirty_throttle_batches');
$dt->sql('REFRESH MATERIALIZED VIEW dirty_throttle_stored_batches;
	REFRESH MATERIALIZED VIEW CONCURRENTLY dirty_throttle_stored_batches;
	REFRESH MATERIALIZED VIEW dirty_throttle_stored_progress; VACUUM FULL dirty_throttle_stored_progress;
	VACUUM FULL dirty_throttle_stored_batches');
is($dt->sql('SELECT count(*) FROM dirty_throttle_batches'), $r, 'REFRESH, also CONCURRENTLY, and VACUUM FULL keep all rows');
foreach my $sql ('REFRESH MATERIALIZED VIEW dirty_throttle_stored_batches WITH NO DATA', 'REFRESH MATERIALIZED VIEW public.dirty_throttle_stored_progress WITH NO DATA')
{
	$r = $other->run($sql);
	is($r->{sqlstate}, '0A000', "$sql: refused");
	like($r->{err}, qr/DETAIL: .*forget the batch jobs of all roles.*HINT: .*forget_batches/s, "$sql: what it says");
}
foreach my $sql ('DELETE FROM dirty_throttle_stored_batches', 'TRUNCATE dirty_throttle_stored_batches',
	'UPDATE dirty_throttle_stored_progress SET rows = 0')
{
	is($other->run($sql)->{sqlstate}, '42809', "$sql: not even by a superuser");
}

# What is stored is written as a heap, whatever the default is.
$dt->sql(q{CREATE DATABASE elsewhere});
my $elsewhere = $dt->session(dbname => 'elsewhere');
$elsewhere->query('CREATE ACCESS METHOD other_heap TYPE TABLE HANDLER heap_tableam_handler; SET default_table_access_method = other_heap;
	CREATE EXTENSION dirty_throttle; CREATE TABLE t (id int PRIMARY KEY, n int) USING heap');
is($elsewhere->query(q{SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 'dirty_throttle_stored_batches'}), 'heap',
	'with another default_table_access_method: a heap');
$elsewhere->query('ALTER MATERIALIZED VIEW dirty_throttle_stored_batches SET ACCESS METHOD other_heap');
$r = $dt->batches($elsewhere, 'elsewhere', 't');
is($r->{sqlstate}, '55000', 'of another access method: the error');
like($r->{err}, qr/HINT: .*ALTER MATERIALIZED VIEW \.\.\. SET ACCESS METHOD heap/, 'of another access method: what to type');
$elsewhere->quit;

# A table that only the planner finds is rewritten: its rows are there all the same.
$dt->sql('CREATE TABLE orders (id int); CREATE TABLE orders_old () INHERITS (orders);
	INSERT INTO orders_old SELECT i FROM generate_series(1, 50) i');
$dt->counted(items => 50);
$other->query('BEGIN; ALTER TABLE orders_old ADD COLUMN x float8 DEFAULT random()');
$dt->send_batches($s, 'orphans', 'items', statement => 'DELETE FROM items i WHERE {batch i} AND NOT EXISTS
	(SELECT FROM orders o WHERE o.id = i.id)');
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') }), 'a child is rewritten: who plans it waits for it');
$other->query('COMMIT');
is($s->wait->{out}, '0|t', 'and finds all of its rows');

# The group is suspended between two batches, while the job waits until it tries again: it
# stops before the next one, when it holds nothing.
$dt->limit(stopped => 0);
my $member = $dt->session(group => 'stopped');
$dt->counted(w => 50);
$other->query('BEGIN; UPDATE w SET n = 5 WHERE id = 20');
$dt->send_batches($member, 'suspended', 'w');
ok($dt->wait_job('suspended', 'retries > 0'), 'a batch has failed');
$dt->sql(q{SELECT suspend_group('stopped')});
$other->query('COMMIT');
$pid = $dt->worker('suspended');
ok(poll_until(sub { $dt->sql("SELECT paused_since IS NOT NULL FROM dirty_throttle_sessions WHERE pid = $pid") eq 't' }), 'the group is suspended: it stops');
is($dt->job('suspended')->{state}, 'suspended', 'the view says so');
is($dt->sql("SELECT backend_xmin FROM pg_stat_activity WHERE pid = $pid"), '', 'it holds no snapshot');
is($dt->sql(qq{SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid = $pid}), 0, 'nor a table');
$dt->sql(q{SELECT resume_group('stopped')});
is($member->wait->{out}, '50|t', 'it goes on');
$member->quit;

# -------------------------------------------------------------------- roles

$dt->sql(q{CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE chief LOGIN IN ROLE alice, bob; CREATE ROLE watcher LOGIN;
	GRANT pg_read_all_stats TO watcher});
$dt->counted(a => 100);
$dt->sql('GRANT SELECT, UPDATE ON a TO alice; GRANT SELECT ON a TO bob; GRANT ALL ON stops TO PUBLIC');
$dt->sql('CREATE TRIGGER stay BEFORE UPDATE ON a FOR EACH ROW EXECUTE FUNCTION stay()');
my %as = map { $_ => $dt->session(user => $_) } qw(alice bob chief watcher);

run_to($as{alice}, 'hers', 'a', 55);
my $hers = $dt->session(user => 'alice');
is($hers->query(q{SELECT owner, state FROM dirty_throttle_batches}), 'alice|running', 'the owner sees it');
$hers->quit;
is($as{$_}->query(q{SELECT count(*) FROM dirty_throttle_batches WHERE name = 'hers'}), 1, "$_ sees it") foreach qw(chief watcher);
is($as{bob}->query('SELECT count(*) FROM dirty_throttle_batches'), 0, 'bob does not');
foreach my $sql (q{SELECT stop_batches('hers')}, q{SELECT forget_batches('hers')})
{
	is($as{$_}->run($sql)->{sqlstate}, '42704', "$_: $sql: no such job") foreach qw(bob watcher);
}
is($as{bob}->run('SELECT * FROM dirty_throttle_stored_batches')->{sqlstate}, '42501', 'nor what is stored');
is($as{bob}->run('SELECT * FROM dirty_throttle_stored_batches()')->{sqlstate}, '42501', 'by no function');
is($as{chief}->query(q{SELECT stop_batches('hers')}), '', 'who has her privileges stops it');
let_go();
is($as{alice}->wait->{out}, '55|f', 'it ends');

# A name is the owner's: others have jobs of their own, and their own privileges.
$r = $dt->batches($as{bob}, 'hers', 'a');
is($r->{sqlstate}, '42501', 'bob cannot change the table');
is($dt->counts('a'), '0:45, 1:55', 'nothing was changed');
is($as{bob}->query('SELECT name, owner, state, rows FROM dirty_throttle_batches'), 'hers|bob|failed|0', 'a job of his own');
my $values = q{SELECT string_agg(concat_ws(' ', owner, state, position::text, error), ', ' ORDER BY owner::text) FROM dirty_throttle_batches WHERE name = 'hers'};
is($as{watcher}->query($values), 'alice stopped, bob failed', 'who watches sees no keys, and no errors');
is($as{chief}->query($values), 'alice stopped {55}, bob failed permission denied for table a', 'who has their privileges does');
$r = $as{chief}->run(q{SELECT forget_batches('hers')});
is($r->{sqlstate}, '22023', 'two of that name: the error');
like($r->{err}, qr/several roles have a batch job "hers"\n.*HINT: .*SET ROLE/s, 'what it says');
is($as{chief}->query(q{SET ROLE bob; SELECT forget_batches('hers'); RESET ROLE}), '', 'SET ROLE');
is($as{bob}->query('SELECT count(*) FROM dirty_throttle_batches'), 0, 'his one is forgotten');
is($dt->batches($as{alice}, 'hers', 'a')->{out}, '45|t', 'she goes on');
is($dt->counts('a'), '1:100', 'each row once');
is($dt->sql(q{SELECT forget_batches('hers')}), '', 'a superuser forgets it');
is($dt->batches($as{bob}, 'no table', 't')->{sqlstate}, '42501', 'a table that he cannot read');
$r = $dt->batches($as{bob}, 'no table', 't', start => 1, finish => 50, dry_run => 'true');
is($r->{sqlstate}, '42501', 'dry_run: the same');
unlike($r->{err}, qr/about \d+ rows/, 'nor is he told how many rows it has there');

# She loses the privilege in the middle of a batch, which is allowed to end.
$dt->counted(revoked => 100);
$dt->sql('GRANT SELECT, UPDATE ON revoked TO alice;
	CREATE TRIGGER stay BEFORE UPDATE ON revoked FOR EACH ROW EXECUTE FUNCTION stay()');
run_to($as{alice}, 'revoked', 'revoked', 55);
$dt->sql('REVOKE UPDATE ON revoked FROM alice');
let_go();
is($as{alice}->wait->{sqlstate}, '42501', 'REVOKE in the middle: the next batch fails');
is($dt->counts('revoked'), '0:45, 1:55', 'REVOKE in the middle: what was committed stays');
is($dt->job('revoked')->{state}, 'failed', 'REVOKE in the middle: and is told');
is($dt->batches($as{alice}, 'revoked', 'revoked')->{sqlstate}, '42501', 'REVOKE in the middle: it does not go on');
$dt->sql('GRANT UPDATE ON revoked TO alice');
is($dt->batches($as{alice}, 'revoked', 'revoked')->{out}, '45|t', 'until she may again');
is($dt->counts('revoked'), '1:100', 'each row once');
$_->quit foreach values %as;

# A row whose key a trigger moves forward is met again where it is then; one that it
# moves back, or beyond the last key of the beginning, is not.
foreach my $case ([ 'forward' => 35, '1:90, 2:10' ], [ back => -1000, '1:100' ], [ beyond => 1001, '1:100' ])
{
	my ($where, $by, $counts) = @$case;

	$dt->counted($where => 1000);
	$dt->sql(qq{DELETE FROM $where WHERE id % 10 <> 0;
		CREATE FUNCTION move_$where() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN NEW.id := NEW.id + CASE WHEN NEW.id BETWEEN 10 AND 100 AND NEW.id % 10 = 0 THEN $by ELSE 0 END; RETURN NEW; END';
		CREATE TRIGGER move BEFORE UPDATE ON $where FOR EACH ROW EXECUTE FUNCTION move_$where()});
	is($dt->batches($s, "moves $where", $where, max_rows => 3)->{sqlstate}, undef, "rows are moved $where: it ends");
	is($dt->counts($where), $counts, "rows are moved $where: how often each is met");
}

# ------------------------------------------------------- what lies in wait

$dt->counted(h => 300);
$dt->sql(q{CREATE TABLE words (w text COLLATE "C" PRIMARY KEY, n int DEFAULT 0);
	INSERT INTO words SELECT chr(64 + i % 60) || i FROM generate_series(1, 300) i;
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.count() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING '"hostile"'; RETURN 0; END $$;
	CREATE TABLE evil.dirty_throttle_stored_batches (owner oid, name name);
	CREATE TABLE evil.h (id bigint PRIMARY KEY, n int DEFAULT 0);
	CREATE TYPE evil.int8 AS (x int);
	CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false);
	CREATE COLLATION evil."C" FROM "POSIX";
	DO $$ DECLARE op text; type text; BEGIN
		FOREACH type IN ARRAY ARRAY['pg_catalog.int8', 'pg_catalog.text', 'pg_catalog.int4', 'name', 'oid'] LOOP
			EXECUTE format('CREATE FUNCTION evil.trap(%s, %1$s) RETURNS boolean LANGUAGE plpgsql AS
				%L', type, 'BEGIN RAISE WARNING ''"hostile"''; RETURN true; END');
			FOREACH op IN ARRAY ARRAY['<', '<=', '=', '>=', '>', '<>'] LOOP
				EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %2$s, FUNCTION = evil.trap)', op, type);
			END LOOP;
		END LOOP;
	END $$});
$s->query('SET search_path = evil, pg_catalog, public');
my @plus = (statement => 'UPDATE public.h SET n = n OPERATOR(pg_catalog.+) 1 WHERE {batch}');
my $call = $dt->call('hostile', 'public.h', max_rows => 7, @plus);
$r = $s->run($call);
is($r->{out}, '300|t', 'hostile operators: to the end');
unlike($r->{err}, qr/"hostile"(?!.*(begin|finished|are not throttled))/, 'nothing hostile was called');
is($dt->counts('public.h'), '1:300', 'each row once');
$call = $dt->call('hostile words', 'public.words', max_rows => 7,
	statement => 'UPDATE public.words SET n = n OPERATOR(pg_catalog.+) 1 WHERE {batch}');
is($s->run($call)->{out}, '300|t', 'text: to the end');
is($dt->counts('public.words'), '1:300', 'each row once');
is($s->query(q{SELECT public.stop_batches('hostile'); SELECT public.forget_batches('hostile'); SELECT pg_catalog.count(*) FROM public.dirty_throttle_batches WHERE name::pg_catalog.text OPERATOR(pg_catalog.=) 'hostile'})
	=~ s/\n//gr, '0', 'stopped, forgotten, looked at');
$s->query('RESET search_path');
$dt->sql('DROP SCHEMA evil CASCADE');

# A domain can have operators, which anybody can create who may create something in the
# schema of those of its base type.
if ($dt->sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'}))
{
	$dt->sql(q{CREATE EXTENSION citext SCHEMA public;
		CREATE DOMAIN word AS public.citext;
		CREATE TABLE domains (w word PRIMARY KEY, n int DEFAULT 0);
		INSERT INTO domains SELECT chr(64 + i % 26) || i FROM generate_series(1, 300) i;
		CREATE FUNCTION trap(word, public.citext) RETURNS boolean LANGUAGE plpgsql AS
			'BEGIN RAISE WARNING ''"hostile"''; RETURN true; END';
		CREATE OPERATOR public.<= (LEFTARG = word, RIGHTARG = public.citext, FUNCTION = trap);
		CREATE OPERATOR public.> (LEFTARG = word, RIGHTARG = public.citext, FUNCTION = trap);
		CREATE OPERATOR public.>= (LEFTARG = word, RIGHTARG = public.citext, FUNCTION = trap)});
	foreach my $dry_run ('true', 'false')
	{
		$r = $dt->batches($s, 'hostile domain', 'domains', max_rows => 7, dry_run => $dry_run);
		is($r->{sqlstate}, '0A000', "a domain, dry_run $dry_run: refused");
		unlike($r->{err}, qr/WARNING: .*"hostile"$/m, "a domain, dry_run $dry_run: nothing hostile was called");
	}
	is($dt->counts('domains'), '0:300', 'a domain: nothing was changed');
	$dt->sql('DROP TABLE domains; DROP OPERATOR public.<= (word, public.citext); DROP OPERATOR public.> (word, public.citext);
		DROP OPERATOR public.>= (word, public.citext); DROP FUNCTION trap; DROP DOMAIN word');
}

# ------------------------------------------------ another table under that name

staying(swapped => 100);
$dt->counted(another => 100);
run_to($s, 'swapped', 'swapped', 55);
$other->send('BEGIN; ALTER TABLE swapped RENAME TO old; ALTER TABLE another RENAME TO swapped; COMMIT');
ok(poll_until(sub { $dt->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) }), 'a rename waits for the batch');
let_go();
$r = $s->wait;
is($r->{sqlstate}, '22023', 'another table has the name now: the error');
like($r->{err}, qr/the statement does not name table public\.old, .*HINT: .*the table was renamed/s, 'what it says');
is($other->wait->{sqlstate}, undef, 'the table was renamed');
is($dt->counts('swapped'), '0:100', 'nothing was changed in the other one');
is($dt->batches($s, 'swapped', 'old', statement => 'UPDATE swapped SET n = n + 1 WHERE {batch}', max_rows => 10)->{sqlstate},
	'22023', 'nor by a CALL with the new name of its table');
$dt->sql('ALTER TABLE swapped RENAME TO another; ALTER TABLE old RENAME TO swapped');
is($dt->batches($s, 'swapped', 'swapped', max_rows => 10)->{sqlstate}, undef, 'under its name it goes on');
is($dt->counts('swapped'), '1:100', 'each row once');

# --------------------------------------------------------------- deferred checks

# They take their time within the batch, which has fewer keys then.
$dt->counted(deferred => 100);
$dt->sql(q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()});
is($dt->batches($s, 'deferred', 'deferred', batch_time => '100 ms')->{out}, '100|t', 'checks that are deferred: to the end');
cmp_ok($dt->job('deferred')->{batches}, '>=', 7, 'in batches that are as short as the checks allow');

# ---------------------------------------------------------------- long texts

$r = $s->run(q{CALL run_in_batches('long', 'deferred', 'UPDATE deferred SET n = 1 WHERE {batch} --' || repeat('x', 2000000))});
is($r->{sqlstate}, '54000', 'a statement of 2 MB: the error');
like($r->{err}, qr/argument "statement" is too long\n.*DETAIL: .*It has \d+ bytes; 102400 are allowed\./s, 'what it says');
$r = $s->run(q{CALL run_in_batches('long error', 'deferred', $$UPDATE deferred SET n = repeat('€', 10000)::int WHERE {batch}$$, unthrottled => true)});
is($r->{sqlstate}, '22P02', 'one with a long message');
is($dt->sql(q{SELECT octet_length(error) BETWEEN 4000 AND 4096 FROM dirty_throttle_batches WHERE name = 'long error'}), 't', 'of which the beginning is kept');

# ---------------------------------------------------- publications, dumps

$dt->sql(q{CREATE PUBLICATION everything FOR ALL TABLES;
	SELECT pg_create_logical_replication_slot('sub', 'pgoutput')});
$dt->counted(pub => 100);
is($dt->batches($s, 'published', 'pub', max_rows => 30)->{out}, '100|t', 'a publication FOR ALL TABLES: it runs');
is($dt->sql(q{SELECT count(*) FROM pg_publication_tables WHERE tablename LIKE 'dirty%'}), 0, 'it has nothing of the extension');
my $changes = q{pg_logical_slot_peek_binary_changes('sub', NULL, NULL, 'proto_version', '1', 'publication_names', 'everything') AS c};
cmp_ok($dt->sql("SELECT count(*) FROM $changes WHERE data LIKE '%pub%'"), '>', 0, 'subscribers get the rows');
is($dt->sql("SELECT count(*) FROM $changes WHERE position('dirty_throttle'::bytea IN data) > 0"), 0, 'and nothing of how far it has come');
$dt->sql(q{SELECT pg_drop_replication_slot('sub'); DROP PUBLICATION everything});

# The owner of a database dumps it while a job runs there.
$dt->sql('CREATE ROLE dba LOGIN CREATEDB; CREATE DATABASE shop OWNER dba');
my $shop = $dt->session(dbname => 'shop');
$shop->query('CREATE EXTENSION dirty_throttle');
my $dba = $dt->session(dbname => 'shop', user => 'dba');
$dba->query('CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY, n int); INSERT INTO app.t SELECT i, 0 FROM generate_series(1, 100) i');
is($dba->run(q{CALL run_in_batches('mine', 'app.t', 'UPDATE app.t SET n = 1 WHERE {batch}', unthrottled => true)})->{out}, '100|t', 'he runs a job');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
command_ok([ 'pg_dump', '-U', 'dba', '-d', $dt->node->connstr('shop'), '-f', $dump ], 'pg_dump by who is no superuser');
unlike(slurp_file($dump), qr/stored_batches/, 'what is stored of jobs is not in it');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', do { $dt->sql('CREATE DATABASE copy'); $dt->node->connstr('copy') } ], 'it is restored');
is($dt->session(dbname => 'copy')->query('SELECT count(*) FROM dirty_throttle_batches'), 0, 'without jobs');
is($dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE name = 'mine'}), 0, 'other databases have their own');
$shop->query('CREATE SCHEMA elsewhere; ALTER EXTENSION dirty_throttle SET SCHEMA elsewhere');
is($shop->query('SELECT name, state FROM elsewhere.dirty_throttle_batches'), 'mine|finished', 'in another schema');
is($dba->run(q{CALL elsewhere.run_in_batches('mine', 'app.t', 'UPDATE app.t SET n = 1 WHERE {batch}', restart => true, unthrottled => true)})->{sqlstate},
	'42501', 'a schema without USAGE');
$shop->query('GRANT USAGE ON SCHEMA elsewhere TO dba');
is($dba->run(q{CALL elsewhere.run_in_batches('mine', 'app.t', 'UPDATE app.t SET n = 1 WHERE {batch}', restart => true, unthrottled => true)})->{out}, '100|t', 'with it');
$_->quit foreach $shop, $dba;

# The extension is dropped, and created again.
staying(dropped => 50);
foreach my $sql ('DROP EXTENSION dirty_throttle', 'BEGIN; DROP EXTENSION dirty_throttle; CREATE EXTENSION dirty_throttle; COMMIT')
{
	run_to($s, 'dropped', 'dropped', 15);
	$other->send($sql);
	ok(poll_until(sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $other->pid) }), "$sql: it waits");
	let_go();
	$r = $s->wait;
	is($r->{sqlstate}, '42P01', "$sql: the error");
	like($r->{err}, qr/relation "\w+" of extension dirty_throttle no longer exists\n.*HINT: .*start the batches from the beginning/s, "$sql: what it says");
	is($other->wait->{sqlstate}, undef, "$sql: it is done");
	$dt->sql('CREATE EXTENSION IF NOT EXISTS dirty_throttle');
	is($dt->job('dropped'), undef, "$sql: the job is forgotten");
}
$dt->sql('UPDATE dropped SET n = 0');
is($dt->batches($s, 'dropped', 'dropped')->{out}, '50|t', 'it begins anew');
is($dt->counts('dropped'), '1:50', 'each row once');

$dt->finish;
