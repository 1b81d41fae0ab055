# Pauses at checks for interrupts (src/backend/interrupt.c): where they work and where
# they cannot, that what long commands use is seen to be near the limit all the
# time, pg_log_backend_memory_contexts() at any time, every way to interrupt
# such a pause, and another extension with the same hook.
#
# takes-about: 45 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $bound = 700;     # ms, for what must happen at once

my $include = `pg_config --includedir-server`;
chomp $include;
my ($library, $other) = map {
	compile_library("$FindBin::RealBin/../fault/log_hook.c",
		PostgreSQL::Test::Utils::tempdir_short() . "/$_.so",
		"-I '$include' -DCLASS='\"$_\"'")
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
	  grep { /LOG:  (logging memory|level: |Grand total|dirty_throttle|\d+ more child)/ }
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
					+ (SELECT sum(paused_processes) FROM dirty_throttle_groups)});
			return $seen == 0;
		},
		2);
	is($seen, 0, "$name: nobody pauses");
}

# Let a session run a statement and look on until it has ended: a hash of
#	samples    of [time, position of the WAL] while it is in a transaction
#	in_flight  was it seen to pause in a transaction?
#	after      and after it?
#	pauses     how often
#	run_s      time until it was seen to be in none any more, or has ended
#	s          time until it has ended
sub watch
{
	my ($s, $sql) = @_;
	my $pid = $s->pid;
	my $pauses = $dt->session_row($s)->{pauses};
	my %r = (samples => [], in_flight => 0, after => 0);
	my $start = time;

	$s->send($sql);
	until ($s->finished(0.02))
	{
		my $then = time;
		my ($paused, $in_xact, $wal) = split /\|/,
		  $dt->sql("SELECT s.paused_since IS NOT NULL, a.xact_start IS NOT NULL,
				pg_current_wal_insert_lsn() - '0/0'
			FROM dirty_throttle_sessions s JOIN pg_stat_activity a USING (pid)
			WHERE pid = $pid");
		if ($in_xact eq 't')
		{
			push @{ $r{samples} }, [ ($then + time) / 2, $wal ];
			$r{in_flight} ||= $paused eq 't';
			$r{run_s} = time - $start;
		}
		else
		{
			$r{after} ||= $paused eq 't';
		}
	}
	$r{s} = time - $start;
	$r{run_s} //= 0;
	my $w = $s->wait;
	die "$sql: $w->{err}" if defined $w->{sqlstate};
	$r{pauses} = $dt->session_row($s)->{pauses} - $pauses;
	return \%r;
}

# ----------------------------------------- where it works, and where it cannot

$dt->limit(works => 0);
$dt->sql("SELECT set_group_wal_limit('works', 7000)");

# An index of 3.6 MB.
sub check_works
{
	my ($name, $works, %opt) = @_;
	my $mark = $dt->log_mark;
	my $s = $dt->session(group => 'works', options => $opt{options});
	my $r;

	$s->query("$opt{sql}; SELECT 1") if $opt{sql};
	is($dt->session_row($s)->{pauses_in_commands},
		$works ? 'true' : 'false', "$name: pauses_in_commands");
	sleep 0.1;
	$r = watch($s, 'CREATE INDEX i ON t (id)');
	note sprintf '%s: %.2f s, in a transaction %.2f s, %d pauses',
	  $name, $r->{s}, $r->{run_s}, $r->{pauses};
	between($r->{s}, 0.43, 5, "$name: it pays: s");
	if ($works)
	{
		ok($r->{in_flight}, "$name: it pauses in the transaction");
		ok($r->{pauses} >= 2, "$name: again and again");
	}
	else
	{
		ok(!$r->{in_flight}, "$name: it does not pause in the transaction");
		ok($r->{after}, "$name: but after it");
		is($r->{pauses}, 1, "$name: all at once");
	}
	$outsider->query('DROP INDEX i');
	$s->quit;
	log_is_clean($mark, $name);
}

check_works('by default', 1);
check_works('log_min_messages = panic', 0, sql => 'SET log_min_messages = panic');
check_works('log_min_messages = fatal', 0,
	options => '-c log_min_messages=fatal');
check_works('log_min_messages = log', 1, sql => 'SET log_min_messages = log');
$dt->set_conf('dirty_throttle.interrupt_pauses', 'off', $outsider);
check_works('interrupt_pauses = off', 0);
$dt->set_conf('dirty_throttle.interrupt_pauses', 'on', $outsider);
SKIP:
{
	skip 'no library can be compiled here', 17 unless $library;
	check_works('another library keeps the messages', 0,
		options => '-c log_hook.chains=off');
	# or comes later
	check_works('another library is loaded and keeps the messages', 0,
		sql => "SELECT count(*) FROM t WHERE id < 0;
			SET other_hook.chains = off; LOAD '$other'");
	check_works('another library is loaded', 1,
		sql => "SELECT count(*) FROM t WHERE id < 0; LOAD '$other'");
}
check_works('in the end', 1);

# A query that changes log_min_messages itself; the messages take 1.1 s.
{
	my $s = $dt->session(group => 'works', options => '-c log_min_messages=fatal');
	my $r = watch($s, q{SELECT count(*) FROM generate_series(1,
			CASE set_config('log_min_messages', 'warning', false)
			WHEN 'warning' THEN 8000 END) i
		WHERE pg_logical_emit_message(false, '', repeat('x', 1000)) IS NULL});
	ok($r->{pauses} >= 4, 'log_min_messages is changed by a query: it pauses as it runs');
	$s->quit;
}

# -------------------------------------------------------- paced while it runs

my $limit = 10000;    # KB/s
$dt->limit(paced => 0);
$dt->sql("SELECT set_group_wal_limit('paced', $limit)");
my $file = PostgreSQL::Test::Utils::tempdir_short() . '/data';
$dt->sql("COPY t TO '$file'");
chmod 0755, $file =~ s,/[^/]*$,,r;
my $s = $dt->session(group => 'paced');
my $paced_mark = $dt->log_mark;

sub check_paced
{
	my ($name, $sql, %opt) = @_;
	my ($r, $most, @percent);

	foreach (1 .. 3)
	{
		$outsider->query($_) foreach @{ $opt{before} // [] };
		sleep 0.2;
		$r = watch($s, $sql);
		my @samples = @{ $r->{samples} };
		@percent = ();
		while (@samples)
		{
			my $first = $samples[0];
			my ($last) = grep { $_->[0] >= $first->[0] + 0.5 } @samples;

			last unless $last;
			push @percent, 100 * ($last->[1] - $first->[1]) / 1000 / $limit
			  / ($last->[0] - $first->[0]);
			shift @samples;
		}
		note sprintf '%s: %.2f s, in a transaction %.2f s, %d pauses; 0.5 s: '
		  . '%.0f %.0f %.0f %% of the limit',
		  $name, $r->{s}, $r->{run_s}, $r->{pauses},
		  (sort { $a <=> $b } @percent)[ 0, $#percent / 2, -1 ];
		($most) = sort { $b <=> $a } @percent;
		# a tick that the machine delays by 10 ms may be worth 0.5 s
		last if @percent && median(@percent) >= 80 && $most <= 135;
	}
	# who oversleeps gets 100 ms back
	between($most, 80, 135, "$name: most in 0.5 s, % of the limit");
	between(median(@percent), 80, 115, "$name: in 0.5 s, % of the limit");
	ok($r->{run_s} > 0.8 * $r->{s}, "$name: nearly all of it is paid in flight");
}

check_paced('CREATE INDEX CONCURRENTLY', 'CREATE INDEX CONCURRENTLY i ON t (filler)',
	before => ['DROP INDEX IF EXISTS i']);
$outsider->query('DROP INDEX i');
check_paced('ALTER TABLE', 'ALTER TABLE t ALTER id TYPE bigint USING id + 1',
	before => ['ALTER TABLE t ALTER id TYPE int']);
check_paced('COPY', "COPY copied FROM '$file'",
	before => ['DROP TABLE IF EXISTS copied; CREATE TABLE copied (LIKE t)']);
check_paced('VACUUM', 'VACUUM (FREEZE) copied',
	before => ['TRUNCATE copied', 'INSERT INTO copied SELECT * FROM t LIMIT 100000',
		'UPDATE copied SET id = id + 1', 'CHECKPOINT']);
check_paced('a function in a query of one row', "SELECT count(pg_logical_emit_message(true, 'x', repeat('x', 50)))
	FROM generate_series(1, 120000)");
log_is_clean($paced_mark, 'paced');
nobody_pauses('paced');
$s->quit;

# ---------------------------------------- genuine requests for memory contexts

# Every session, what it does, and how often it is asked.
my $emit = "SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 50)))
	FROM t a, t b";
my $rewrite =
  'ALTER TABLE mid ALTER id TYPE int USING id + length(pg_sleep(0.001)::text)';
my $busy = 'DO $$ BEGIN LOOP END LOOP; END $$';
my $naps = 'DO $$ BEGIN FOR i IN 1..1000000 LOOP
	PERFORM pg_sleep(0.001); END LOOP; END $$';
my @asked = (
	{ name => 'pauses at checks, briefly', group => 'paced', sql => $emit, calls => 300,
		checks => 1 },
	{ name => 'pauses at checks, long', group => 'asked1', limit => 20,
		sql => $rewrite, calls => 200, checks => 1 },
	{ name => 'pauses between rows', group => 'asked2', limit => 20,
		sql => insert_sql('between_rows', 5000), calls => 100 },
	{ name => 'pauses after a transaction', group => 'asked3', stop => 1,
		sql => 'SELECT 1', calls => 100 },
	{ name => 'a member that runs unthrottled', group => 'asked4', sql => $busy,
		calls => 100 },
	{ name => 'an idle member', group => 'asked4', calls => 50 },
	{ name => 'in no group', sql => $naps, calls => 100 },
	{ name => 'in no group, idle', calls => 50 });

$dt->table('between_rows');
foreach my $a (@asked)
{
	$dt->limit($a->{group} => $a->{limit} // 0) if $a->{group};
	$a->{s} = $dt->session(
		group => $a->{group} // '',
		options => $a->{options});
	$dt->sql("SELECT suspend_group('$a->{group}')") if $a->{stop};
	$a->{s}->send($a->{sql}) if $a->{sql};
	$dt->wait_paused($a->{s}, $a->{name} =~ /after/ ? 'after transaction' : 'in flight')
	  or fail("$a->{name}: it pauses")
	  if $a->{name} =~ /pauses/;
	@$a{qw(done lost listed)} = (0, 0, 0);
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

my $asked_from = time;
while (my @now = grep { $_->{done} < $_->{calls} } @asked)
{
	$dt->sql(join ';', map { 'SELECT pg_log_backend_memory_contexts(' . $_->{s}->pid . ')' } @now);
	$_->{done}++ foreach @now;
	my $from = time;
	poll_until(
		sub {
			read_log();
			my @late = grep { ($ends{ $_->{s}->pid } // 0) + $_->{lost} < $_->{done} } @now;

			# what may be lost is not waited for so long
			return !grep { !$_->{checks} || time - $from < 0.3 } @late;
		},
		1);
	$_->{lost} = $_->{done} - ($ends{ $_->{s}->pid } // 0) foreach @now;
	sleep rand 0.01;    # at any moment of what they do
}
my $asked_s = time - $asked_from;
sleep 0.3;
read_log();
my $calls = 0;
foreach my $a (@asked)
{
	my $pid = $a->{s}->pid;
	my $lost = $a->{calls} - ($ends{$pid} // 0);

	$calls += $a->{calls};
	note sprintf '%s: %d of %d lost; %d pauses', $a->{name}, $lost, $a->{calls},
	  ($dt->session_row($a->{s}) // {})->{pauses} // 0;
	is($headers{$pid}, $ends{$pid}, "$a->{name}: each list is complete");
	ok($asked_lines{$pid} >= 10 * $ends{$pid}, "$a->{name}: and has its lines");
	# while it is not to be told from ours, or the core serves ours already
	between($lost, 0, $a->{checks} ? 0.15 * $a->{calls} : 0, "$a->{name}: lost");
}
is($calls, 1000, 'this many calls');
is( join(' ', grep { my $pid = $_; !grep { $_->{s}->pid == $pid } @asked } keys %headers),
	'', 'nobody else lists anything');
note sprintf '1000 calls in %.1f s', $asked_s;
ok(!$_->{s}->finished, "$_->{name}: it was all the time")
  foreach grep { $_->{sql} } @asked;
$dt->sql('SELECT pg_terminate_backend(' . $_->{s}->pid . ')') foreach @asked;
$_->{s}->quit foreach @asked;
$dt->sql("SELECT resume_group('asked3')");
nobody_pauses('asked');

# ------------------------------------------------- interrupts in such a pause

my $interrupts_mark = $dt->log_mark;
$dt->limit(int => 0);

# A session that pauses at a check.
sub pausing
{
	my ($sql, %opt) = @_;
	my $s = $dt->session(group => 'int', options => $opt{options});

	$dt->limit(int => 0);
	$dt->limit(int => 20);
	$s->query($opt{sql}) if $opt{sql};
	$s->send($sql);
	ok($dt->wait_paused($s, 'in flight'), "$opt{name}: it pauses");
	sleep 0.1;
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
		}, 5);
}

{
	my $name = 'cancel';
	my $s = pausing($rewrite, name => $name);
	my $r;

	between(elapsed_ms(sub {
				$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
				$r = $s->wait;
			}), 0, $bound, "$name: ms");
	is($r->{sqlstate}, '57014', "$name: its error");
	goes_on($s, $name);
}

{
	my $name = 'terminate';
	my $s = pausing($rewrite, name => $name);

	between($dt->terminate_ms($s), 0, $bound, "$name: ms");
	ok(backend_is_gone($s->pid), "$name: it is gone");
	$s->quit;
	nobody_pauses($name);
}

{
	my $name = 'client killed';
	my $s = pausing($rewrite, name => $name,
		options => '-c client_connection_check_interval=100ms');

	between(elapsed_ms(sub {
				$s->hang_up;
				backend_is_gone($s->pid);
			}), 0, 100 + $bound, "$name: ms");
	$s->quit;
	nobody_pauses($name);
}

{
	my $name = 'statement_timeout';
	my $s = pausing($rewrite, name => $name, sql => "SET statement_timeout = '600ms'");
	my $r = $s->wait;

	is($r->{sqlstate}, '57014', "$name: its error");
	like($r->{err}, qr/statement timeout/, "$name: its own");
	between($r->{ms}, 600, 600 + $bound, "$name: ms");
	goes_on($s, $name);
}

{
	my $name = 'lock_timeout of others';
	my $s = pausing($rewrite, name => $name,
		options => '-c dirty_throttle.max_blocking_time=-1');
	my $r = $outsider->run("SET lock_timeout = '400ms';
		SELECT count(*) FROM mid; RESET lock_timeout");

	is($r->{sqlstate}, '55P03', "$name: their error");
	between($r->{ms}, 400, 400 + $bound, "$name: ms");
	ok($dt->wait_paused($s, 'in flight', 2), "$name: it pauses on");
	$outsider->query('RESET lock_timeout');
	$dt->cancel_ms($s);
	goes_on($s, $name);
}

{
	my $name = 'reload';
	my $s = pausing($rewrite, name => $name);
	my $paused = $dt->session_row($s)->{paused_time};

	between(elapsed_ms(sub { $dt->set_conf('work_mem', '5MB') }), 0, $bound, "$name: ms");
	ok(poll_until(sub { $dt->session_row($s)->{paused_time} > $paused + 300 }, 5), "$name: it pauses on");
	ok(!$s->finished, "$name: and is not done");
	$dt->cancel_ms($s);
	goes_on($s, $name);
}

{
	my $name = 'barrier';
	my @ms;

	$outsider->query("CREATE DATABASE victim$_") foreach 1, 2;
	my $base = elapsed_ms(sub { $outsider->query('DROP DATABASE victim1') });
	my $s = pausing($rewrite, name => $name);
	my $paused = $dt->session_row($s)->{paused_time};

	between(elapsed_ms(sub { $outsider->query('DROP DATABASE victim2') }),
		0, 2 * $base + $bound, "$name, DROP DATABASE: ms");
	ok(poll_until(sub { $dt->session_row($s)->{paused_time} > $paused + 300 }, 5), "$name: it pauses on");
	$dt->cancel_ms($s);
	goes_on($s, $name);
}

{
	my $name = 'caught cancel';
	my $s = pausing(
		"DO \$\$ BEGIN
			BEGIN $rewrite;
			EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'caught';
			END;
			$rewrite;
		END \$\$", name => $name);
	my $xact = "SELECT xact_start FROM pg_stat_activity WHERE pid = " . $s->pid;
	my $started = $dt->sql($xact);
	my $paused;

	foreach my $n (1 .. 2)
	{
		$paused = $dt->session_row($s)->{paused_time};
		ok(poll_until(sub { $dt->session_row($s)->{paused_time} > $paused + 300 }, 5),
			"$name: it pauses again and again ($n)");
		is($dt->sql($xact), $started, "$name: in the same transaction ($n)");
		$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
		sleep 0.2 if $n == 1;
	}
	my $r = $s->wait;
	like($r->{err}, qr/caught/, "$name: it was caught once");
	is($r->{sqlstate}, '57014', "$name: and then was not");
	goes_on($s, $name);
}

# The leader pauses for hint bits that it has set; its worker fails meanwhile.
{
	my $name = 'parallel worker fails';

	$dt->sql(
		q{CREATE TABLE many WITH (parallel_workers = 1, autovacuum_enabled = off) AS
			SELECT i FROM generate_series(1, 20000) i;
		CHECKPOINT;
		CREATE FUNCTION fails(leader int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE
		AS $$ BEGIN
			IF pg_backend_pid() <> leader THEN
				PERFORM pg_sleep(1.2);
				RAISE 'the worker fails';
			END IF;
			PERFORM pg_sleep(0.001);
			RETURN 1;
		END $$});
	my $s = $dt->session(group => 'int', options => '-c max_parallel_workers_per_gather=1');
	$dt->limit(int => 0);
	my $start = time;
	$s->send('SELECT count(fails(' . $s->pid . ')) FROM many');
	sleep 0.4;                 # the worker runs by then
	$dt->limit(int => 1);
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*) FROM pg_stat_activity
					WHERE wait_event IN ('Extension', 'DirtyThrottle') AND pid = " . $s->pid) == 1;
			}, 0.8),
		"$name: the leader pauses");
	my $r = $s->wait;
	between((time - $start) * 1000, 1200, 1700 + $bound, "$name: ms");
	like($r->{err}, qr/the worker fails/, "$name: its error");
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
	my $r = watch($s, 'CREATE INDEX i ON t (id)');
	ok($r->{in_flight} && $r->{pauses} >= 2, "$name: pauses at checks");
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

SKIP:
{
	skip 'no library can be compiled here', 12 unless $library;
	check_other('another hook in front', in_front => 1);
	$outsider->quit;
	$dt->disconnect;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$library, dirty_throttle'");
	$node->restart;
	$outsider = $dt->session;
	check_other('another hook behind');
}

$dt->finish;
