# Every interrupt that the server can raise, against each kind of pause (the
# kinds are in test/perl/DirtyThrottle/Pauses.pm).  What it must come to:
#
#	interrupt                    in flight    before a     after a
#	                                          transaction  transaction
#	cancel                       error        error        ends
#	terminate                    session      session      session ends
#	client gone                  session      session      session ends
#	recovery conflict, database  session      session      session ends
#	recovery conflict, others    error        -            -
#	statement_timeout            error        error        goes on
#	transaction_timeout          session      session      goes on
#	idle_..._timeout             goes on      goes on      goes on
#	procsignal barrier           goes on      goes on      goes on
#	log memory contexts          goes on      goes on      goes on
#	NOTIFY                       goes on      goes on      goes on
#	sinval catch-up              goes on      goes on      goes on
#	statistics timer             goes on      goes on      goes on
#	reload                       goes on, unless what it changes frees it
#	parallel message             served       -            -
#
# "In flight" is between two rows, and at a check for interrupts.
#
# A COMMIT in a procedure is "after a transaction" for interrupts that go on,
# and its statement goes on with the error of the others.
#
# An apply worker's pause is cut by no timer of ours, and a cancel is not lost
# while the client's connection is being looked at.
#
# takes-about: 49 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pauses;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $bound = 1000;    # ms, for what must happen at once

# A library that makes the look at the client's connection slow, while there
# is this file.
my $slow = PostgreSQL::Test::Utils::tempdir_short() . '/slow';
my $library =
  compile_library("$FindBin::RealBin/../fault/slow_poll.c", "$slow.so");

# Hint bits, which a standby's sessions dirty, are not in the WAL then.
my @init = `initdb --help` =~ /--no-data-checksums/ ? '--no-data-checksums' : ();
local $ENV{DT_SLOW_POLL} = $slow;
local $ENV{LD_PRELOAD} = $library if $library;
my $dt = DirtyThrottle::Life->new(
	'interrupts',
	init => [ allows_streaming => 'logical', extra => \@init ],
	conf => $DirtyThrottle::Pauses::CONF . q{
allow_in_place_tablespaces = on
max_connections = 100
wal_log_hints = off
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
delete $ENV{LD_PRELOAD};
my $version = $dt->sql("SELECT current_setting('server_version_num')");
my $pauses = DirtyThrottle::Pauses->new($dt);
my @kinds = @{ $pauses->kinds };
my $outsider = $dt->session;

# Is the backend gone?  Milliseconds until then, from the code on.
sub gone_ms
{
	my ($pid, $code) = @_;

	return elapsed_ms(
		sub {
			$code->();
			poll_until(
				sub {
					$dt->sql("SELECT count(*) FROM pg_stat_activity
						WHERE pid = $pid") == 0;
				}, 5);
		});
}

# Every kind in a new session each: a list of [kind, session].
sub put_all
{
	my ($which, %opt) = @_;
	my @all;

	foreach my $kind (grep { $which->($_) } @kinds)
	{
		my $settings = ref $opt{settings} ? $opt{settings}->($kind) : $opt{settings};
		my $s = $pauses->session($kind, sql => $opt{sql});

		$pauses->put($s, $kind, $settings);
		push @all, [ $kind, $s ];
	}
	return @all;
}

sub end_all
{
	foreach (@_)
	{
		my ($kind, $s) = @$_;

		$pauses->let_go($kind);
		$s->quit;
	}
}

# --------------------------------------------------------- it pauses on

# One that stays until the end, longer than any timer of the server's runs.
my ($stays) = put_all(
	sub { $_[0]{name} eq 'after COPY' },
	sql => q{SET dirty_throttle.max_commit_pause = '10min'});
my $stays_since = time;
$dt->limit($stays->[0]{group} => 0.2);
my @others = grep { $_->{name} ne 'after COPY' } @kinds;

$outsider->query("SET allow_in_place_tablespaces = on");
$outsider->query("CREATE TABLESPACE place LOCATION ''");
my $columns = join ', ', map { "c$_ int" } 1 .. 1500;
my $base = 0;
foreach my $n (0 .. 3)
{
	$outsider->query("CREATE DATABASE victim$n STRATEGY file_copy");
}
foreach my $n (0, 1)
{
	my $ms = elapsed_ms(sub { $outsider->query("DROP DATABASE victim$n") });
	$base = $ms if $ms > $base;
	$outsider->query("CREATE DATABASE victim$n STRATEGY file_copy") if $n == 0;
}

foreach my $interval ('0', '10ms')
{
	my $name = "client_connection_check_interval = $interval";
	my @all = put_all(
		sub { $_[0]{name} ne 'after COPY' },
		sql => "LISTEN news; SET client_connection_check_interval = '$interval'");
	my $mark;
	my $ms;

	my $check = sub {
		my ($what) = @_;

		foreach (@all)
		{
			my ($kind, $s) = @$_;

			# put it back, so that each interrupt is tested by itself
			next if $pauses->check_stays($s, $kind, "$what ($name)");
			$pauses->let_go($kind);
			$s->quit;
			$s = $pauses->session($kind, sql => "LISTEN news;
				SET client_connection_check_interval = '$interval'");
			$pauses->put($s, $kind);
			$_->[1] = $s;
		}
	};

	sleep 0.1;
	$check->('nothing');
	is($pauses->holds($_->[1]), 'no lock, no snapshot',
		"$_->[0]{name}: it holds nothing ($name)")
	  foreach grep { $_->[0]{where} eq 'after transaction' } @all;

	# procsignal barriers
	my $victim = $interval eq '0' ? 'victim2' : 'victim3';
	$ms = elapsed_ms(
		sub { $outsider->query("ALTER DATABASE $victim SET TABLESPACE place") });
	between($ms, 0, 2 * $base + $bound, "ALTER DATABASE SET TABLESPACE: ms ($name)");
	$check->('barrier, ALTER DATABASE');
	$ms = elapsed_ms(sub { $outsider->query("DROP DATABASE $victim") });
	between($ms, 0, $base + $bound, "DROP DATABASE: ms ($name)");
	$check->('barrier, DROP DATABASE');

	# memory contexts
	$mark = $dt->log_mark;
	$outsider->query('SELECT pg_log_backend_memory_contexts(' . $_->[1]->pid . ')')
	  foreach @all;
	ok( poll_until(
			sub {
				# at checks one may be taken for a request of ours
				my $n = () = $dt->log_since($mark) =~ /Grand total:/g;
				return $n >= grep { $_->[0]{name} !~ /^at a check/ } @all;
			},
			$bound / 1000),
		"memory contexts: all are logged ($name)");
	$check->('memory contexts');

	# many at once, of each kind
	$outsider->query("NOTIFY news, 'hello'");
	$outsider->query(
		"CREATE TABLE wide$_ ($columns); DROP TABLE wide$_") foreach 1, 2;
	sleep 0.05;
	$check->('NOTIFY and catch-up');

	# a reload that changes something else
	$dt->set_conf('work_mem', $interval eq '0' ? '5MB' : '6MB');
	$dt->set_conf('dirty_throttle.max_blocking_time', $interval eq '0' ? '200ms' : '100ms');
	sleep 0.05;
	$check->('reload');

	# signals that mean nothing
	foreach (1 .. 5)
	{
		kill 'USR1', $_->[1]->pid foreach @all;
		sleep 0.01;
	}
	$check->('SIGUSR1');

	# each was served all the same, and is not lost
	$pauses->let_go($_->[0]) foreach @all;
	foreach (@all)
	{
		my ($kind, $s) = @$_;
		my $r = $s->wait;

		is($r->{sqlstate}, undef, "$kind->{name}: then it goes on ($name)")
		  or diag $r->{err};
		$r = $s->run($kind->{sql} =~ /^BEGIN/ && $kind->{order} ne 'after'
			? 'COMMIT;
			SELECT 1' : 'SELECT 1');
		like($r->{out}, qr/^1$/m, "$kind->{name}: and works on ($name)");
		$s->quit;
	}
}

# A listener is told when its pause ends.
{
	my ($kind) = grep { $_->{name} eq 'after a transaction' } @kinds;
	my $s = $pauses->session($kind, sql => 'LISTEN news');
	my $r;

	$pauses->put($s, $kind);
	$outsider->query("NOTIFY news, 'hello'");
	$pauses->let_go($kind);
	$r = $s->wait;
	ok( poll_until(
			sub {
				$r->{out} .= $s->run('SELECT 1')->{out};
				return $r->{out} =~ /"news".*"hello"/s;
			},
			2),
		'NOTIFY: the listener is told when the pause ends');
	$s->quit;
}

# ---------------------------------------------------------------- cancel

foreach my $interval ('0', '10ms')
{
	my $name = "client_connection_check_interval = $interval";
	my $nested = sub { $_[0]{name} =~ /procedure/ };

	foreach (put_all(
			sub { $_[0]{name} ne 'after COPY' },
			sql => "SET client_connection_check_interval = '$interval'"))
	{
		my ($kind, $s) = @$_;
		my $what = "cancelled $kind->{name} ($name)";
		my $ran = "SELECT count(*) FROM $kind->{table} WHERE id = -1";
		my $before = $kind->{order} eq 'before' ? $dt->sql($ran) : undef;
		my $r;

		between(
			elapsed_ms(
				sub {
					$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
					$r = $s->wait;
				}),
			0, $bound, "$what: ms");
		is( $r->{sqlstate},
			$kind->{order} eq 'after' && !$nested->($kind) ? undef : '57014',
			"$what: the error");
		if ($kind->{order} eq 'before')
		{
			is($dt->sql($ran), $before, "$what: the statement is not run");
			ok($dt->session_row($s)->{debt_kb} > 50, "$what: the debt stays")
			  if $kind->{by} eq 'limit';
		}
		$pauses->let_go($kind);
		$s->quit;
	}
}

# ------------------------------------------------- terminate, client gone

foreach (put_all(sub { $_[0]{name} ne 'after COPY' }))
{
	my ($kind, $s) = @$_;
	my $pid = $s->pid;
	my $ms = gone_ms($pid, sub { $dt->sql("SELECT pg_terminate_backend($pid)") });

	between($ms, 0, $bound, "terminated $kind->{name}: ms");
	$s->quit;
	$pauses->let_go($kind);
}

foreach (put_all(
		sub { $_[0]{name} ne 'after COPY' },
		sql => "SET client_connection_check_interval = '50ms'"))
{
	my ($kind, $s) = @$_;
	my $ms = gone_ms($s->pid, sub { $s->hang_up });

	between($ms, 0, 50 + $bound, "client gone, $kind->{name}: ms");
	$s->quit;
	$pauses->let_go($kind);
}

# --------------------------------------------------------------- timeouts

# Of an idle session: not in a pause, neither before nor after 0.25 s.
my @idle = put_all(
	sub { $_[0]{name} ne 'after COPY' },
	settings => q{SET idle_in_transaction_session_timeout = '250ms';
		SET idle_session_timeout = '250ms'});
sleep 0.4;
$pauses->check_stays($_->[1], $_->[0], 'idle timeouts') foreach @idle;
end_all(@idle);

# Of a statement: where it has not been done yet.
my @timed = put_all(
	sub { $_[0]{name} ne 'after COPY' },
	settings => q{SET lock_timeout = '250ms'; SET statement_timeout = '250ms'});
sleep 0.3;
foreach (@timed)
{
	my ($kind, $s) = @$_;
	my $name = "statement_timeout $kind->{name}";

	if ($kind->{order} eq 'after' && $kind->{name} !~ /procedure/)
	{
		$pauses->check_stays($s, $kind, 'statement_timeout');
	}
	elsif (ok($s->finished($bound / 1000), "$name: it ends"))
	{
		my $r = $s->wait;

		is($r->{sqlstate}, '57014', "$name: with an error");
		like($r->{err}, qr/statement timeout/, "$name: its own");
	}
}
end_all(@timed);

SKIP:
{
	skip 'no transaction_timeout before 17', 1 if $version < 170000;

	@timed = put_all(
		sub { $_[0]{name} ne 'after COPY' },
		settings => q{SET transaction_timeout = '250ms'});
	sleep 0.3;
	foreach (@timed)
	{
		my ($kind, $s) = @$_;
		my $name = "transaction_timeout $kind->{name}";

		if ($kind->{order} eq 'after')
		{
			$pauses->check_stays($s, $kind, 'transaction_timeout');
		}
		elsif (ok($s->finished($bound / 1000), "$name: it ends"))
		{
			is($s->wait->{sqlstate}, '25P04', "$name: with its error");
		}
	}
	end_all(@timed);
}

# ----------------------------------------- a reload that lets everybody go

@others = put_all(sub { $_[0]{by} eq 'limit' && $_[0]{name} ne 'after COPY' });
$pauses->no_naps($_->[0]) foreach @others;
$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
$dt->sql('SELECT pg_reload_conf()');
ok($_->[1]->finished($bound / 1000),
	"switched off: $_->[0]{name}: it goes on")
  foreach @others;
ok($stays->[1]->finished($bound / 1000), 'switched off: after COPY: it goes on');
end_all(@others);
$stays->[1]->quit;
$dt->set_conf('dirty_throttle.enabled', 'on');
($stays) = put_all(
	sub { $_[0]{name} eq 'after COPY' },
	sql => q{SET dirty_throttle.max_commit_pause = '10min'});
$stays_since = time;
$dt->limit($stays->[0]{group} => 0.2);

# ----------------------------------------------------- parallel messages

# The leader is stopped between two rows; its worker, which comes to no row, fails
# meanwhile.
$dt->set_conf('dirty_throttle.interrupt_pauses', 'off');
$dt->sql(
	q{CREATE TABLE many WITH (parallel_workers = 1) AS
		SELECT i FROM generate_series(1, 20000) i;
	CREATE FUNCTION slow(leader int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE
	AS $$
	DECLARE
		i int;
	BEGIN
		-- no query, at whose end it could be stopped
		IF pg_backend_pid() <> leader THEN
			i := length(pg_sleep(1.5)::text);
			RAISE 'the worker fails';
		END IF;
		i := length(pg_sleep(0.001)::text);
		RETURN i;
	END $$;
	CHECKPOINT;
	SELECT create_resource_group('parallel')});
{
	my $s = $dt->session(group => 'parallel',
		options => '-c max_parallel_workers_per_gather=1');
	$s->send('SELECT slow(' . $s->pid . ') FROM many');
	sleep 0.3;
	$dt->sql("SELECT suspend_group('parallel', true)");
	ok($dt->wait_paused($s, 'in flight', 1), 'parallel message: the leader pauses');
	ok( poll_until(
			sub { $pauses->place($s) !~ /in flight/ }, 1.5 + $bound / 1000),
		'parallel message: it is served');
	$dt->sql("SELECT resume_group('parallel')");
	like($s->wait->{err}, qr/the worker fails/,
		"parallel message: the worker's error is the leader's");
	$dt->set_conf('dirty_throttle.interrupt_pauses', 'on');
	$s->quit;
}

# ------------------------- a barrier does not let a suspended session hold locks

$dt->sql('CREATE TABLE batch (id int); SELECT create_resource_group($$batch$$)');
$outsider->query('CREATE DATABASE victim4 STRATEGY file_copy');
{
	my $s = $dt->session(group => 'batch');
	my $ms;

	$dt->sql("SELECT suspend_group('batch')");
	$s->send(join ";\n", map { "INSERT INTO batch VALUES ($_)" } 1 .. 5);
	ok($dt->wait_paused($s, 'after transaction'), 'soft, barrier: it stops');
	$outsider->query('DROP DATABASE victim4');
	sleep 0.3;
	is($pauses->holds($s), 'no lock, no snapshot',
		'soft, barrier: it holds nothing');
	is($dt->sql('SELECT count(*) FROM batch'), 1,
		'soft, barrier: it does not begin anything else');
	$outsider->query("SET lock_timeout = '${bound}ms'");
	is($outsider->run('ALTER TABLE batch ADD x int')->{sqlstate},
		undef, 'soft, barrier: ALTER TABLE by others works');
	$outsider->query('RESET lock_timeout');
	ok(!$s->finished, 'soft, barrier: it is still stopped');
	$dt->sql("SELECT resume_group('batch')");
	ok($s->finished(5), 'soft, barrier: it goes on with its group');
	$s->quit;
}

# ------------- a cancel while the client's connection is being looked at

my (@looked_at, $looked_at_since);
SKIP:
{
	skip 'no library can be preloaded here', 8 unless $library;

	my ($kind) = grep { $_->{name} eq 'after a transaction, suspended' } @kinds;
	my @cancelled = map {
		$pauses->session($kind, sql => "SET client_connection_check_interval = '10ms'")
	} 1 .. 15;
	my @ms;

	append_to_file($slow, '20'); # each look takes so many ms
	$dt->sql("SELECT suspend_group('$kind->{group}')");
	$_->send('SELECT 1') foreach @cancelled;
	my @asleep =
	  grep { $dt->wait_paused($_, 'after transaction', 2) } @cancelled;
	sleep 0.12;                      # our own timers are quiet then
	foreach my $n (1 .. @asleep)
	{
		my $s = $asleep[ $n - 1 ];

		push @ms, elapsed_ms(
			sub {
				kill 'USR1', $s->pid;
				sleep 0.002 * $n;
				kill 'INT', $s->pid;
				$s->wait;
			});
	}
	unlink $slow;
	@ms = sort { $a <=> $b } @ms;
	is(scalar(@ms), 15, 'a cancel while the client is looked at: all ended');
	between($ms[-1], 0, 300, 'a cancel while the client is looked at: longest ms');
	note sprintf '%d of %d cancels took longer than 300 ms',
	  scalar(grep { $_ > 300 } @ms), scalar @ms;
	$pauses->let_go($kind);
	$_->quit foreach @cancelled;

	# nor is the pause over when something else comes then, nor is that lost
	my @looked;
	foreach my $name ('after a transaction', 'after a transaction, suspended',
		'in flight, in a block')
	{
		my ($kind) = grep { $_->{name} eq $name } @kinds;
		my $s = $pauses->session($kind,
			sql => "SET client_connection_check_interval = '10ms';
				SET dirty_throttle.max_commit_pause = '10min'");

		$pauses->put($s, $kind);
		push @looked, [ $kind, $s ];
	}
	my $mark = $dt->log_mark;
	append_to_file($slow, '20');
	foreach my $n (1 .. 12)
	{
		$outsider->query(
			'SELECT pg_log_backend_memory_contexts(' . $_->[1]->pid . ')')
		  foreach @looked;
		sleep 0.06 + 0.005 * $n;    # they look again after each signal
	}
	my $lists = sub {
		my $pid = $_[0]->pid;
		my $n = () = $dt->log_since($mark) =~ /\[$pid\].*Grand total:/g;
		return $n;
	};
	poll_until(sub { @looked == grep { $lists->($_->[1]) == 12 } @looked }, 2);
	unlink $slow;
	foreach (@looked)
	{
		my ($kind, $s) = @$_;
		my $name = $kind->{name};

		is($lists->($s), 12,
			"memory contexts while the client is looked at: $name: all are logged");
		$pauses->check_stays($s, $kind, 'memory contexts while the client is looked at');
		if ($name eq 'after a transaction')
		{
			@looked_at = ($kind, $s);
			$looked_at_since = time;
			next;
		}
		$pauses->let_go($kind);
		$s->quit;
	}
}

# ------------------------------------------- logical replication: a timer

# A subscription within one server; the trigger's SQL starts our own timer.
$dt->limit(apply => 0);
$dt->sql(q{CREATE DATABASE sub});
my $sub = $dt->session(dbname => 'sub');
$_->query('CREATE TABLE repl (id int PRIMARY KEY, filler text)
	WITH (fillfactor = 10)') foreach $outsider, $sub;
$sub->query(
	q{CREATE FUNCTION count_them() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM count(*) FROM pg_class WHERE oid = 1;
		RETURN NEW;
	END $$;
	CREATE TRIGGER count_them BEFORE INSERT ON repl FOR EACH ROW
		EXECUTE FUNCTION count_them();
	ALTER TABLE repl ENABLE ALWAYS TRIGGER count_them});
$outsider->query('CREATE PUBLICATION pub FOR TABLE repl');
$outsider->query(
	"SELECT pg_create_logical_replication_slot('sub', 'pgoutput')");
$dt->set_conf('dirty_throttle.apply_group', 'apply');
$sub->query("CREATE SUBSCRIPTION sub CONNECTION '" . $dt->node->connstr
	  . " dbname=postgres' PUBLICATION pub WITH (create_slot = false, slot_name = 'sub', copy_data = false)");
sub replicate
{
	my ($from, $n) = @_;
	$outsider->query("INSERT INTO repl SELECT i, repeat('x', 800)
		FROM generate_series($from, $from + $n - 1) i");
}
sub replicated
{
	my ($n) = @_;
	return poll_until(
		sub { $sub->query('SELECT count(*) FROM repl') == $n }, 30);
}
replicate(1, 1);
ok(replicated(1), 'apply: it works');
replicate(2, 1);
ok(replicated(2), 'apply: on');
ok( poll_until(
		sub { $dt->group_row('apply')->{active_processes} == 1 }, 10),
	'apply: the worker is a member');
my $rate = 2500;    # KB/s
at_limit(
	sub {
		my $rows = $sub->query('SELECT max(id) FROM repl') + 1;

		$dt->limit(apply => 0);
		$dt->limit(apply => $rate);
		replicate($rows, 1);    # it sees the limit
		replicated($rows);
		sleep 0.2;

		my $row = $dt->group_row('apply');
		my $start = time;

		replicate($rows + 1 + 40 * $_, 40) foreach 0 .. 7;
		poll_until(
			sub { $sub->query('SELECT max(id) FROM repl') == $rows + 320 }, 30);

		# the last one is paid after it has arrived
		my $s = time - $start;
		my $kb = 7 / 8 * $dt->block_kb
		  * ($dt->group_row('apply')->{blocks_dirtied} - $row->{blocks_dirtied});

		note sprintf '8 transactions with a trigger: %.0f KB in %.1f s', $kb, $s;
		return 100 * $kb / $s / $rate;
	},
	'apply, a trigger that runs SQL');
$dt->limit(apply => 0);
$sub->query('ALTER SUBSCRIPTION sub DISABLE');
$sub->query('ALTER SUBSCRIPTION sub SET (slot_name = NONE)');
$sub->query('DROP SUBSCRIPTION sub');
poll_until(
	sub {
		$dt->sql('SELECT count(*) FROM pg_replication_slots WHERE active') == 0;
	},
	10);
$outsider->query("SELECT pg_drop_replication_slot('sub')");

# ------------------------------------------------------ recovery conflicts

$outsider->query('DROP TABLESPACE place');

$dt->set_conf('dirty_throttle.apply_group', '');
$outsider->query('CREATE DATABASE hints');
my $hints = $dt->session(dbname => 'hints');
$hints->query("CREATE TABLE h (id int, filler text) WITH (fillfactor = 10);
	INSERT INTO h SELECT i, repeat('x', 800) FROM generate_series(1, 50) i");
$hints->quit;
my @conflicts = (
	[ 'after transaction, limit', 'after transaction' ],
	[ 'before BEGIN, limit', 'in flight' ],
	[ 'after transaction, soft', 'after transaction' ],
	[ 'before SELECT, soft', 'in flight' ],
	[ 'in flight, hard', 'in flight' ]);
$dt->node->backup('b');
my $standby_node = PostgreSQL::Test::Cluster->new('standby');
$standby_node->init_from_backup($dt->node, 'b', has_streaming => 1);
$standby_node->append_conf('postgresql.conf', q{
max_standby_streaming_delay = 100ms
wal_receiver_status_interval = 1s
hot_standby_feedback = off
dirty_throttle.transaction_grace = 1h
});
$standby_node->start;
my $standby = DirtyThrottle::Life->over($standby_node);
ok($standby_node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_wal_receiver WHERE status = 'streaming'"),
	'a standby streams');
# the standby copies files, so no page is in a buffer, and dirty
foreach my $n (0 .. 2 * @conflicts)
{
	$outsider->query("CREATE DATABASE lost$n TEMPLATE hints STRATEGY file_copy");
}
$dt->node->wait_for_catchup('standby');

# Milliseconds until the standby has replayed what the code does.
sub replay_ms
{
	my ($code) = @_;
	my $start = time;

	$code->();
	my $lsn = $outsider->query('SELECT pg_current_wal_insert_lsn()');
	poll_until(
		sub { $standby->sql("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' },
		5);
	return (time - $start) * 1000;
}

my $lost = 0;
my $free = replay_ms(sub { $outsider->query("DROP DATABASE lost" . $lost++) });
foreach my $interval ('0', '10ms')
{
	foreach (@conflicts)
	{
		my ($kind, $where) = @$_;
		my $name = "recovery conflict, $kind "
		  . "(client_connection_check_interval = $interval)";
		my $database = "lost$lost";
		my $group = "grp$lost";
		my $s = $standby->session(dbname => $database, group => '');
		my $ms;

		$lost++;
		replay_ms(sub { $dt->limit($group => $kind =~ /limit/ ? 1 : 0) });
		$s->query("SET client_connection_check_interval = '$interval';
			SET dirty_throttle.\"group\" = '$group'");
		$standby->sql("SELECT suspend_group('$group')") if $kind =~ /soft/;
		if ($kind =~ /hard/)
		{
			$s->send('SELECT count(pg_sleep(0.001)) FROM generate_series(1, 2000)');
			sleep 0.05;
			$standby->sql("SELECT suspend_group('$group', true)");
		}
		else
		{
			$s->send('SELECT count(*) FROM h');
		}
		if ($kind =~ /before (\w+)/)
		{
			my $next = $1;

			ok($standby->wait_paused($s, 'after transaction'), "$name: first after");
			$standby->cancel_ms($s);
			$s->send($next eq 'BEGIN' ? 'BEGIN' : 'SELECT 1');
		}
		ok($standby->wait_paused($s, $where), "$name: it pauses");
		$ms = replay_ms(sub { $outsider->query("DROP DATABASE $database") });
		between($ms, 0, $free + $bound, "$name: replay goes on: ms");
		ok($s->finished($bound / 1000), "$name: the session ends");
		$standby->sql("SELECT resume_group('$group')") if $kind =~ /soft|hard/;
		$s->quit;
	}
}

# with a lock, and with the snapshot, of a session that is stopped in flight
replay_ms(sub { $dt->limit(hard => 0) });
$outsider->query('CREATE TABLE locked AS SELECT 1 AS id');
$outsider->query('CREATE TABLE vacuumed AS SELECT i FROM generate_series(1, 500) i');
foreach my $case (
	[ 'a lock', 'ALTER TABLE locked ADD x int' ],
	[ 'a snapshot', 'DELETE FROM vacuumed; VACUUM vacuumed' ])
{
	my ($what, $sql) = @$case;
	my $name = "recovery conflict with $what, in flight";
	my $s = $standby->session(group => 'hard');
	my $ms;

	$dt->node->wait_for_catchup('standby');
	$s->query("SET client_connection_check_interval = '10ms'");
	$s->send('SELECT count(pg_sleep(0.001)) FROM
		locked, vacuumed, generate_series(1, 10)');
	sleep 0.05;
	$standby->sql("SELECT suspend_group('hard', true)");
	ok($standby->wait_paused($s, 'in flight'), "$name: it pauses");
	$ms = replay_ms(sub { $outsider->query($_) foreach split /; /, $sql });
	between($ms, 0, $free + 100 + $bound, "$name: replay goes on: ms");
	# it is stopped again after it
	ok( poll_until(
			sub {
				$standby->sql('SELECT count(*) FROM pg_stat_activity
					WHERE xact_start IS NOT NULL AND pid = ' . $s->pid) == 0;
			},
			$bound / 1000),
		"$name: the statement ends");
	$standby->sql("SELECT resume_group('hard')");
	is($s->wait->{sqlstate}, '40001', "$name: with an error");
	$s->quit;
}
$standby->stop;

# -------------------------------------------------- the statistics timer

poll_until(sub { time - $stays_since > 10.5 });
$pauses->check_stays($stays->[1], $stays->[0], 'more than 10 s');
end_all($stays);
if (@looked_at)
{
	poll_until(sub { time - $looked_at_since > 10.5 });
	$pauses->check_stays($looked_at[1], $looked_at[0],
		'memory contexts while the client is looked at, then 10 s');
	end_all(\@looked_at);
}

$dt->finish;
