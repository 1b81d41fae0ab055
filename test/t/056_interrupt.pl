# Pauses at checks for interrupts (src/session/check.c): where they work and where
# they cannot, pg_log_backend_memory_contexts() at any time, every way to interrupt
# such a pause, and another extension with the same hook.  That commands of all
# kinds pause while they run, and pay, see 057_commands.pl.
#
# takes-about: 28 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my ($library, $other) = map {
	compile_library('log_hook', as => $_, flags => "-DCLASS='\"$_\"'")
} qw(log_hook other_hook);

my $dt = DirtyThrottle::Life->new(
	'interrupt',
	init => [ allows_streaming => 1 ],
	conf => q{
maintenance_work_mem = 64MB
max_parallel_maintenance_workers = 0
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
max_wal_size = 8GB
autovacuum = off
}
	  # the one that is loaded last is called first
	  . ($library ? "shared_preload_libraries = 'dirty_throttle, $library'" : ''));
my $node = $dt->node;
my $outsider = $dt->session;

$dt->sql(
	q{CREATE TABLE t AS SELECT i AS id, md5(i::text) AS filler
		FROM generate_series(1, 200000) i;
	CREATE TABLE mid AS SELECT i AS id, repeat('x', 800) AS filler
		FROM generate_series(1, 5000) i;
	VACUUM ANALYZE});
$dt->sql(
	qq{CREATE FUNCTION log_hook_say() RETURNS void LANGUAGE c AS '$library';
	CREATE FUNCTION log_hook_seen() RETURNS text LANGUAGE c AS '$library'})
  if $library;

# A test: no lists of memory contexts in the log from there on, nor our own
# question.
sub log_is_clean
{
	my ($mark, $name) = @_;
	my @lines =
	  grep { /LOG:  (logging memory|level: |Grand total|dirty_throttle(?! \S+ has loaded)|\d+ more child)/ }
	  split /\n/, $dt->log_since($mark);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar(@lines), 0, "$name: no such lines in the server log")
	  or diag "for example $lines[0]";
}

# A test: nobody seems to pause.
sub nobody_pauses
{
	my ($name) = @_;
	my $seen;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until(
		sub {
			$seen = $dt->sql(
				q{SELECT (SELECT count(*) FROM dirty_throttle_sessions
						WHERE paused_since IS NOT NULL)
					+ (SELECT sum(paused) FROM dirty_throttle_groups)});
			return $seen == 0;
		});
	is($seen, 0, "$name: nobody pauses");
}

# A test: a member of the group "works" runs the statement, and pauses while it
# runs ($works) or after it, for minutes.  Then it is let go.
sub check_where
{
	my ($name, $s, $sql, $works) = @_;
	my $before = $dt->session_row($s)->{pauses};

	$dt->sql("SELECT set_group_wal_limit('works', 20)");
	$s->send($sql);
	if ($works)
	{
		ok($dt->wait_paused($s, 'in flight'), "$name: it pauses in the transaction");
		# where a pause at a check pays more than the work up to the next one
		$dt->sql("SELECT set_group_wal_limit('works', 500)");
		ok( poll_until(
				sub {
					$dt->session_row($s)->{pauses} >= $before + 3 || $s->finished;
				}),
			"$name: again and again, or there is no more to be paid");
	}
	else
	{
		ok($dt->wait_paused($s, 'after transaction'), "$name: it pauses after it");
		is($dt->session_row($s)->{pauses} - $before, 1, "$name: all at once");
	}
	$dt->sql("SELECT set_group_wal_limit('works', 0)");
	is($s->wait->{sqlstate}, undef, "$name: no error");
}

# ----------------------------------------- where it works, and where it cannot

$dt->limit(works => 0);

# An index of 14 MB, which is written row by row: 700 s.  A B-tree is written
# in a few milliseconds, perhaps between two ticks of the timers.
sub check_works
{
	my ($name, $works, %opt) = @_;
	my $mark = $dt->log_mark;
	my $s = $dt->session(group => 'works', options => $opt{options});

	$s->query("$opt{sql}; SELECT 1") if $opt{sql};
	$s->query(q{SET dirty_throttle.max_commit_pause = '1d'});
	check_where($name, $s, 'CREATE INDEX i ON t USING hash (id)', $works);
	$outsider->query('DROP INDEX i');
	$s->quit;
	log_is_clean($mark, $name);
}

check_works('by default', 1);
check_works('log_min_messages = panic', 1, sql => 'SET log_min_messages = panic');
check_works('log_min_messages = fatal', 1,
	options => '-c log_min_messages=fatal');
check_works('log_min_messages = log', 1, sql => 'SET log_min_messages = log');
SKIP:
{
	skip 'no library can be compiled here', 1 unless $library;
	check_works('another library keeps the messages', 0,
		options => '-c log_hook.chains=off');
	check_works('another library copies the messages', 0,
		options => '-c log_hook.copies=on');
	check_works('another library would keep the messages, but there are none', 1,
		options => '-c log_hook.chains=off -c log_min_messages=fatal');
	# or comes later
	check_works('another library is loaded and keeps the messages', 0,
		sql => "SELECT count(*) FROM t WHERE id < 0;
			SET other_hook.chains = off; LOAD '$other'");
	check_works('another library is loaded', 1,
		sql => "SELECT count(*) FROM t WHERE id < 0; LOAD '$other'");
}
check_works('in the end', 1);

# A query that changes log_min_messages itself; the messages take 400 s.
{
	my $s = $dt->session(group => 'works', options => '-c log_min_messages=fatal');

	check_where('log_min_messages is changed by a query', $s,
		q{SELECT count(*) FROM generate_series(1,
			CASE set_config('log_min_messages', 'warning', false)
			WHEN 'warning' THEN 8000 END) i
		WHERE pg_logical_emit_message(false, '', repeat('x', 1000)) IS NULL}, 1);
	$s->quit;
}
nobody_pauses('where it works');

# Where there are no messages, a session that is moved is reached in a command, too.
{
	my $name = 'moved';
	my $s = $dt->session(options => '-c log_min_messages=fatal');

	$dt->sql("SELECT set_group_wal_limit('works', 20)");
	$s->send('ALTER TABLE mid ALTER id TYPE int USING id + length(pg_sleep(0.001)::text)');
	$dt->sql("SELECT set_session_group(${\ $s->pid}, 'works')");
	ok($dt->wait_paused($s, 'in flight'), "$name: it pauses in the command");
	$dt->cancel_ms($s);
	$s->quit;
	$dt->sql("SELECT set_group_wal_limit('works', 0)");
}

# A command that has waited, for longer than it then works, pauses all the same; and
# while it waits nothing wakes it up, but the search for a deadlock.
{
	my $name = 'after a wait';
	my $s = $dt->session(group => 'works');
	my $wake_ups = sub {
		return slurp_file('/proc/' . $s->pid . '/status') =~ /^voluntary_ctxt_switches:\s*(\d+)/m
		  ? $1 : 0;
	};

	$dt->sql("SELECT set_group_wal_limit('works', 20)");
	$outsider->query('SELECT pg_advisory_lock(1)');
	$s->send(q{ALTER TABLE t ALTER id TYPE bigint USING
		CASE WHEN id = 1 THEN length(pg_advisory_xact_lock(1)::text) ELSE id END});
	poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
		});
	sleep 1.2;
	my $before = -r '/proc/self/status' ? $wake_ups->() : undef;
	sleep 0.8;
	cmp_ok($wake_ups->() - $before, '<=', 1, "$name: wake-ups meanwhile") if defined $before;
	$outsider->query('SELECT pg_advisory_unlock(1)');
	ok($dt->wait_paused($s, 'in flight'), "$name: it pauses in the transaction");
	$dt->sql("SELECT set_group_wal_limit('works', 0)");
	is($s->wait->{sqlstate}, undef, "$name: no error");
	$s->quit;
}

# ---------------------------------------- genuine requests for memory contexts

# Every session, what it does, and how many lists are wanted of it.
my $emit = "SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 50)))
	FROM t a, t b";
my $rewrite =
  'ALTER TABLE mid ALTER id TYPE int USING id + length(pg_sleep(0.001)::text)';
my $busy = 'DO $$ BEGIN LOOP END LOOP; END $$';
my $naps = 'DO $$ BEGIN FOR i IN 1..1000000 LOOP
	PERFORM pg_sleep(0.001); END LOOP; END $$';
my @asked = (
	{ name => 'pauses at checks, briefly', group => 'paced', sql => $emit,
		lists => 20, checks => 1 },
	{ name => 'pauses at checks, long', group => 'asked1', limit => 20,
		sql => $rewrite, lists => 20, checks => 1 },
	{ name => 'pauses between rows', group => 'asked2', limit => 20,
		sql => insert_sql('between_rows', 5000), lists => 20 },
	{ name => 'pauses after a transaction', group => 'asked3',
		options => '-c dirty_throttle.max_commit_pause=1d',
		before_stop => "BEGIN; $MAY_WRITE", sql => 'COMMIT', lists => 20 },
	{ name => 'a member that runs unthrottled', group => 'asked4', sql => $busy,
		lists => 20 },
	{ name => 'an idle member', group => 'asked4', lists => 10 },
	{ name => 'in no group', sql => $naps, lists => 20 },
	{ name => 'in no group, idle', lists => 10 });

$dt->table('between_rows');
$dt->limit(paced => 0);
$dt->sql("SELECT set_group_wal_limit('paced', 10000)");
foreach my $a (@asked)
{
	$dt->limit($a->{group} => $a->{limit} // 0) if $a->{group};
	$a->{s} = $dt->session(
		group => $a->{group} // '',
		options => $a->{options});
	if ($a->{before_stop})
	{
		$a->{s}->query($a->{before_stop});
		$dt->sql("SELECT suspend_group('$a->{group}')");
	}
	$a->{s}->send($a->{sql}) if $a->{sql};
	$dt->wait_paused($a->{s}, $a->{name} =~ /after/ ? 'after transaction' : 'in flight')
	  or fail("$a->{name}: it pauses")
	  if $a->{name} =~ /pauses/;
	@$a{qw(calls listed)} = (0, 0);
}

my $log;
my $asked_mark = $dt->log_mark;
open $log, '<', $node->logfile or die $!;
seek $log, $asked_mark, 0;
my (%headers, %ends, %asked_lines, $rest);

sub read_log
{
	local $/;
	my $text = ($rest // '') . (<$log> // '');

	seek $log, 0, 1;
	$rest = $text =~ s/([^\n]*)\z// ? $1 : '';
	while ($text =~ /\[(\d+)\] .*?LOG:  (?:(logging memory contexts of PID)|(Grand total:)|level: )/g)
	{
		if ($2) { $headers{$1}++; }
		elsif ($3) { $ends{$1}++; }
		else { $asked_lines{$1}++; }
	}
}

# The list that is asked for is written, always.  Of who pauses at checks it may be
# taken for what we ask for ourselves, and the core may serve both at once; who
# asks again gets it.
while (my @now = grep { $_->{listed} < $_->{lists} } @asked)
{
	my $ask = sub {
		$dt->sql(join ';', map { 'SELECT pg_log_backend_memory_contexts(' . $_->{s}->pid . ')' } @_);
		$_->{calls}++ foreach @_;
	};
	my $pid = sub { $_[0]{s}->pid };
	my $polls = 0;

	$ask->(@now);
	poll_until(
		sub {
			read_log();
			my @late = grep { ($ends{ $pid->($_) } // 0) <= $_->{listed} } @now;

			$ask->(grep { $_->{checks} } @late) if ++$polls % 20 == 0;
			return !@late;
		}) or last;
	$_->{listed} = $ends{ $pid->($_) } foreach @now;
	sleep rand 0.01;    # at any moment of what they do
}
# nothing comes later
$dt->sql('SELECT pg_log_backend_memory_contexts(' . $outsider->pid . ')');
poll_until(sub { read_log(); $ends{ $outsider->pid } });
foreach my $a (@asked)
{
	my $pid = $a->{s}->pid;

	note sprintf '%s: %d of %d listed; %d pauses', $a->{name}, $ends{$pid} // 0,
	  $a->{calls}, ($dt->session_row($a->{s}) // {})->{pauses} // 0;
	cmp_ok($a->{listed}, '>=', $a->{lists}, "$a->{name}: all lists that are wanted");
	# the last one may be on its way
	cmp_ok($headers{$pid} - $ends{$pid}, '<=', $a->{checks} ? 1 : 0,
		"$a->{name}: each list is complete");
	ok($asked_lines{$pid} >= 10 * $ends{$pid}, "$a->{name}: and has its lines");
	cmp_ok($ends{$pid}, '<=', $a->{calls}, "$a->{name}: nor more than asked for");
}
is( join(' ', grep { my $pid = $_; !grep { $_->{s}->pid == $pid } @asked, { s => $outsider } }
			keys %headers),
	'', 'nobody else lists anything');
ok(!$_->{s}->finished, "$_->{name}: it was all the time")
  foreach grep { $_->{sql} } @asked;
$dt->sql('SELECT pg_terminate_backend(' . $_->{s}->pid . ')') foreach @asked;
$_->{s}->quit foreach @asked;
$dt->sql("SELECT resume_group('asked3')");
nobody_pauses('asked');

# ------------------------------------------------- interrupts in such a pause

my $interrupts_mark = $dt->log_mark;
$dt->limit(int => 0);

# A session that pauses at a check, for minutes.
sub pausing
{
	my ($sql, %opt) = @_;
	my $s = $dt->session(group => 'int', options => $opt{options});

	$dt->limit(int => 0);
	$dt->limit(int => 10);
	$s->query($opt{sql}) if $opt{sql};
	$s->send($sql);
	ok($dt->wait_paused($s, 'in flight'), "$opt{name}: it pauses");
	return $s;
}

# It has ended, and can go on.
sub goes_on
{
	my ($s, $name) = @_;

	$dt->limit(int => 0);
	is($s->query('SELECT 1'), '1', "$name: the next statement works");
	$s->quit;
	nobody_pauses($name);
}

sub backend_is_gone
{
	my ($pid) = @_;
	return poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0;
		});
}

foreach my $level (qw(warning fatal))
{
	my $name = "cancel, log_min_messages = $level";
	my $s = pausing($rewrite, name => $name, options => "-c log_min_messages=$level");

	$dt->cancel_ms($s);
	is($s->wait->{sqlstate}, '57014', "$name: its error");
	goes_on($s, $name);
}

foreach my $level (qw(warning fatal))
{
	my $name = "terminate, log_min_messages = $level";
	my $s = pausing($rewrite, name => $name, options => "-c log_min_messages=$level");

	$dt->terminate_ms($s);
	ok(backend_is_gone($s->pid), "$name: it is gone");
	$s->quit;
	nobody_pauses($name);
}

{
	my $name = 'client killed';
	my $s = pausing($rewrite, name => $name,
		options => '-c client_connection_check_interval=100ms');

	$s->hang_up;
	ok(backend_is_gone($s->pid), "$name: it is gone");
	$s->quit;
	nobody_pauses($name);
}

{
	my $name = 'statement_timeout';
	my $s = $dt->session(group => 'int');

	# it comes to its pause before that, unless the machine is very slow
	$dt->limit(int => 10);
	$s->query("SET statement_timeout = '600ms'");
	my $r = $s->run($rewrite);

	is($r->{sqlstate}, '57014', "$name: its error");
	like($r->{err}, qr/statement timeout/, "$name: its own");
	cmp_ok($r->{ms}, '>=', 600, "$name: ms");
	goes_on($s, $name);
}

{
	my $name = 'lock_timeout of others';
	my $s = pausing($rewrite, name => $name,
		options => '-c dirty_throttle.max_blocking_time=-1');
	my $r = $outsider->run("SET lock_timeout = '400ms';
		SELECT count(*) FROM mid; RESET lock_timeout");

	is($r->{sqlstate}, '55P03', "$name: their error");
	cmp_ok($r->{ms}, '>=', 400, "$name: ms");
	ok($dt->wait_paused($s, 'in flight'), "$name: it pauses on");
	$outsider->query('RESET lock_timeout');
	$dt->cancel_ms($s);
	goes_on($s, $name);
}

{
	my $name = 'reload';
	my $s = pausing($rewrite, name => $name);
	my $paused = $dt->session_row($s)->{paused_time};

	$dt->set_conf('work_mem', '5MB');
	ok(poll_until(sub { $dt->session_row($s)->{paused_time} > $paused + 300 }), "$name: it pauses on");
	ok(!$s->finished, "$name: and is not done");
	$dt->cancel_ms($s);
	goes_on($s, $name);
}

{
	my $name = 'barrier';

	$outsider->query('CREATE DATABASE victim');
	my $s = pausing($rewrite, name => $name);
	is($outsider->run('DROP DATABASE victim')->{sqlstate}, undef,
		"$name: DROP DATABASE");
	my $paused = $dt->session_row($s)->{paused_time};

	ok(poll_until(sub { $dt->session_row($s)->{paused_time} > $paused + 300 }), "$name: it pauses on");
	$dt->cancel_ms($s);
	goes_on($s, $name);
}

foreach my $level (qw(warning fatal))
{
	my $name = "caught cancel, log_min_messages = $level";
	my $s = pausing(
		"DO \$\$ BEGIN
			BEGIN $rewrite;
			EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'caught';
			END;
			$rewrite;
		END \$\$", name => $name, options => "-c log_min_messages=$level");
	my $xact = "SELECT xact_start FROM pg_stat_activity WHERE pid = " . $s->pid;
	my $started = $dt->sql($xact);
	my $paused;

	foreach my $n (1 .. 2)
	{
		$paused = $dt->session_row($s)->{paused_time};
		ok(poll_until(sub { $dt->session_row($s)->{paused_time} > $paused + 300 }),
			"$name: it pauses again and again ($n)");
		is($dt->sql($xact), $started, "$name: in the same transaction ($n)");
		my $since = $dt->session_row($s)->{paused_since};
		$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
		next if $n == 2;
		poll_until(sub { ($dt->session_row($s)->{paused_since} // $since) ne $since });
	}
	my $r = $s->wait;
	like($r->{err}, qr/caught/, "$name: it was caught once");
	is($r->{sqlstate}, '57014', "$name: and then was not");
	goes_on($s, $name);
}

# The leader pauses for hint bits that it has set; its worker, which waits for a lock
# until then, fails meanwhile.
{
	my $name = 'parallel worker fails';

	$dt->sql(
		q{CREATE TABLE many WITH (fillfactor = 10, parallel_workers = 1, autovacuum_enabled = off) AS
			SELECT i, repeat('x', 800) FROM generate_series(1, 2000) i;
		CHECKPOINT;
		CREATE FUNCTION fails(leader int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE
		AS $$
		DECLARE
			i int;
		BEGIN
			IF pg_backend_pid() <> leader THEN
				-- no query, at whose end it could pause
				i := length(pg_advisory_xact_lock(9)::text);
				RAISE 'the worker fails';
			END IF;
			PERFORM pg_sleep(0.01);
			RETURN 1;
		END $$});
	my $s = $dt->session(group => 'int', options => '-c max_parallel_workers_per_gather=1');
	my $waits = "FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
	$dt->limit(int => 0);
	$outsider->query('SELECT pg_advisory_lock(9)');
	$s->send('SELECT count(fails(' . $s->pid . ')) FROM many');
	ok(poll_until(sub { $dt->sql("SELECT count(*) $waits") == 1 }),
		"$name: there is a worker");
	$dt->limit(int => 0.1);
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*) FROM pg_stat_activity
					WHERE wait_event IN ('Extension', 'DirtyThrottle') AND pid = " . $s->pid) == 1;
			}),
		"$name: the leader pauses");
	$outsider->query('SELECT pg_advisory_unlock(9)');
	like($s->wait->{err}, qr/the worker fails/, "$name: its error");
	goes_on($s, $name);
}

log_is_clean($interrupts_mark, 'interrupts');

# ------------------------------------------- another extension with that hook

# Options: does it see what is asked for us?
sub check_other
{
	my ($name, %opt) = @_;
	my $mark = $dt->log_mark;
	my $s = $dt->session(group => 'works');

	$s->query('SELECT log_hook_say()');
	check_where($name, $s, 'CREATE INDEX i ON t USING hash (id)', 1);
	$outsider->query('DROP INDEX i');
	like($s->query('SELECT log_hook_seen()'),
		$opt{in_front} ? qr/^own 1, probes \d, listings [1-9]/ : qr/^own 1, probes 0, listings 0, ends 0$/,
		"$name: what it sees");
	log_is_clean($mark, $name);
	is(scalar(() = $dt->log_since($mark) =~ /LOG:  log_hook speaks/g), 1,
		"$name: its message is in the log");

	my ($listings, $ends) = $s->query('SELECT log_hook_seen()') =~ /listings (\d+), ends (\d+)/;
	$s->query('SELECT pg_log_backend_memory_contexts(pg_backend_pid())');
	like($s->query('SELECT log_hook_seen()'),
		qr/listings @{[ $listings + 1 ]}, ends @{[ $ends + 1 ]}/, "$name: it sees a genuine list");
	is(scalar(() = $dt->log_since($mark) =~ /LOG:  Grand total/g), 1, "$name: so does the log");
	$s->quit;
}

# A session that others take out of a group, while it is idle, is asked no more.
sub check_released
{
	my $s = $dt->session;
	my $burn = q{DO $$ DECLARE n int; BEGIN FOR i IN 1 .. 300000 LOOP n := i % 7; END LOOP; END $$};

	$dt->limit(released => 1000);
	$s->query($burn);
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, 'released')});
	$s->query('INSERT INTO released VALUES (1)');
	$dt->sql('SELECT set_session_group(' . $s->pid . ', NULL)');
	my ($before) = $s->query('SELECT log_hook_seen()') =~ /listings (\d+)/;
	$s->query($burn) foreach 1 .. 5;
	my ($after) = $s->query('SELECT log_hook_seen()') =~ /listings (\d+)/;
	cmp_ok($after - $before, '<=', 3, 'taken out of its group: it is asked once or so');
	$s->quit;
}

SKIP:
{
	skip 'no library can be compiled here', 1 unless $library;
	$outsider->query('CREATE TABLE released (n int)');
	check_released();
	check_other('another hook in front', in_front => 1);
	$outsider->quit;
	$dt->disconnect;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$library, dirty_throttle'");
	$node->restart;
	$outsider = $dt->session;
	check_other('another hook behind');
}

$dt->finish;
