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
# while the client's connection is being looked at.  That a client has gone, see
# 077_interrupted_pauses.pl.
#
# Every pause would last for hours; so what is over within the time-out was ended by
# the interrupt.  Each kind of pause meets "goes on" and "ends" once with looks at
# the client's connection and once without.
#
# takes-about: 25 s

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

# A library that makes the look at the client's connection slow, while there
# is this file.
my $slow = PostgreSQL::Test::Utils::tempdir_short() . '/slow';
my $library = compile_library('slow_poll');

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

# Every kind in a new session each: a list of [kind, session].
sub put_all
{
	my ($which, %opt) = @_;
	my @all;

	foreach my $kind (grep { $which->($_) } @kinds)
	{
		my $sql = ref $opt{sql} ? $opt{sql}->($kind) : $opt{sql};
		my $s = $pauses->session($kind, sql => $sql);
		my $paused = $pauses->put($s, $kind, $opt{settings}, $opt{may_end});

		push @all, [ $kind, $s, $paused ];
	}
	return @all;
}

# The looks at the client: of every second kind, and then of the others.
sub looks
{
	my ($kind, $turn) = @_;
	my ($n) = $kind->{table} =~ /(\d+)/;

	return "SET client_connection_check_interval = "
	  . ($n % 2 == $turn ? "'10ms'" : '0');
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
sub put_to_stay
{
	return put_all(sub { $_[0]{name} eq 'after COPY' });
}
my ($stays) = put_to_stay();
my $stays_since = time;

$outsider->query("SET allow_in_place_tablespaces = on");
$outsider->query("CREATE TABLESPACE place LOCATION ''");
my $columns = join ', ', map { "c$_ int" } 1 .. 1500;
$outsider->query("CREATE DATABASE victim STRATEGY file_copy");

{
	my $listen = sub { 'LISTEN news; ' . looks($_[0], 0) };
	my @all = put_all(sub { $_[0]{name} ne 'after COPY' }, sql => $listen);
	my $mark;

	my $check = sub {
		my ($what) = @_;

		foreach (@all)
		{
			my ($kind, $s) = @$_;

			# put it back, so that each interrupt is tested by itself
			next if $pauses->check_stays($s, $kind, $what);
			$pauses->let_go($kind);
			$s->quit;
			$s = $pauses->session($kind, sql => $listen->($kind));
			$pauses->put($s, $kind);
			$_->[1] = $s;
		}
	};

	$check->('nothing');
	is($pauses->holds($_->[1]), 'no lock, no snapshot',
		"$_->[0]{name}: it holds nothing")
	  foreach grep { $_->[0]{where} eq 'after transaction' } @all;

	# procsignal barriers
	is( $outsider->run('ALTER DATABASE victim SET TABLESPACE place')->{sqlstate},
		undef, 'ALTER DATABASE SET TABLESPACE');
	$check->('barrier, ALTER DATABASE');
	is($outsider->run('DROP DATABASE victim')->{sqlstate}, undef, 'DROP DATABASE');
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
			}),
		'memory contexts: all are logged');
	$check->('memory contexts');

	# many at once, of each kind
	$outsider->query("NOTIFY news, 'hello'");
	$outsider->query(
		"CREATE TABLE wide$_ ($columns); DROP TABLE wide$_") foreach 1, 2;
	$check->('NOTIFY and catch-up');

	# a reload that changes something else
	$dt->set_conf('work_mem', '5MB');
	$dt->set_conf('dirty_throttle.max_blocking_time', '200ms');
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

		is($r->{sqlstate}, undef, "$kind->{name}: then it goes on")
		  or diag $r->{err};
		$r = $s->run($kind->{sql} =~ /^BEGIN/ && $kind->{order} ne 'after'
			? 'COMMIT;
			SELECT 1' : 'SELECT 1');
		like($r->{out}, qr/^1$/m, "$kind->{name}: and works on");
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
			}),
		'NOTIFY: the listener is told when the pause ends');
	$s->quit;
}

# ---------------------------------------------------------------- cancel

{
	my @all = put_all(
		sub { $_[0]{name} ne 'after COPY' },
		sql => sub { looks($_[0], 1) });
	my %before;
	my $ran = sub { "SELECT count(*) FROM $_[0]{table} WHERE id = -1" };

	foreach (@all)
	{
		my ($kind, $s) = @$_;

		$before{ $kind->{name} } = $dt->sql($ran->($kind))
		  if $kind->{order} eq 'before';
		$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
	}
	foreach (@all)
	{
		my ($kind, $s) = @$_;
		my $what = "cancelled $kind->{name}";

		ok($s->finished($DirtyThrottle::TIMEOUT), "$what: it ends") or next;
		is( $s->wait->{sqlstate},
			$kind->{order} eq 'after' && $kind->{name} !~ /procedure/ ? undef : '57014',
			"$what: the error");
		if ($kind->{order} eq 'before')
		{
			is($dt->sql($ran->($kind)), $before{ $kind->{name} },
				"$what: the statement is not run");
			ok($dt->session_row($s)->{dirty_debt} > 50, "$what: the debt stays")
			  if $kind->{by} eq 'limit';
		}
	}
	end_all(@all);
}

# ------------------------------------------------------------- terminate

{
	my @all = put_all(sub { $_[0]{name} ne 'after COPY' });

	$dt->sql('SELECT pg_terminate_backend(' . $_->[1]->pid . ')') foreach @all;
	foreach (@all)
	{
		my $pid = $_->[1]->pid;

		ok( poll_until(
				sub {
					$dt->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0;
				}),
			"terminated $_->[0]{name}: it is gone");
	}
	end_all(@all);
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

# Of a statement: where it has not been done yet.  Of a transaction: where it has
# begun.  On a machine that is so slow that it comes before the pause there is
# nothing to be seen.
foreach my $case (
	[ 'statement_timeout', '57014', q{SET lock_timeout = '1s'; SET statement_timeout = '1s'} ],
	[ 'transaction_timeout', '25P04', q{SET transaction_timeout = '1s'} ])
{
	my ($setting, $error, $settings) = @$case;

	next if $setting =~ /transaction/ && $version < 170000;
	my @timed = put_all(
		sub { $_[0]{name} ne 'after COPY' },
		settings => $settings,
		may_end => 1);
	sleep 1.1;
	foreach (@timed)
	{
		my ($kind, $s, $paused) = @$_;
		my $name = "$setting $kind->{name}";

		if (!$paused)
		{
			note "$name: it did not come to its pause in time";
		}
		elsif ($setting =~ /transaction/
			? $kind->{order} ne 'in flight'
			: $kind->{order} eq 'after' && $kind->{name} !~ /procedure/)
		{
			$pauses->check_stays($s, $kind, $setting);
		}
		elsif (ok($s->finished($DirtyThrottle::TIMEOUT), "$name: it ends"))
		{
			is($s->wait->{sqlstate}, $error, "$name: with its error");
			like($s->wait->{err}, qr/statement timeout/, "$name: its own")
			  if $setting =~ /statement/;
		}
	}
	end_all(@timed);
}

# ----------------------------------------- a reload that lets everybody go

my @others = put_all(sub { $_[0]{by} eq 'limit' && $_[0]{name} ne 'after COPY' });
$pauses->no_naps($_->[0]) foreach @others;
$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
$dt->sql('SELECT pg_reload_conf()');
ok($_->[1]->finished($DirtyThrottle::TIMEOUT),
	"switched off: $_->[0]{name}: it goes on")
  foreach @others;
ok($stays->[1]->finished($DirtyThrottle::TIMEOUT),
	'switched off: after COPY: it goes on');
end_all(@others);
$stays->[1]->quit;
$dt->set_conf('dirty_throttle.enabled', 'on');
($stays) = put_to_stay();
$stays_since = time;

# ----------------------------------------------------- parallel messages

# The leader is stopped, as a rule between two rows; its worker, which comes to no row,
# fails meanwhile, when there is a file.
$dt->sql(
	q{CREATE TABLE many WITH (fillfactor = 10, parallel_workers = 1, autovacuum_enabled = off) AS
		SELECT i, repeat('x', 800) FROM generate_series(1, 2000) i;
	CREATE FUNCTION slow(leader int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE
	AS $$
	DECLARE
		i int;
	BEGIN
		-- no query, at whose end it could be stopped
		IF pg_backend_pid() <> leader THEN
			WHILE (pg_stat_file('fail', true)).size IS NULL LOOP
				i := length(pg_sleep(0.01)::text);
			END LOOP;
			RAISE 'the worker fails';
		END IF;
		i := length(pg_sleep(0.01)::text);
		RETURN i;
	END $$;
	CHECKPOINT;
	SELECT alter_resource_group('parallel')});
{
	my $s = $dt->session(group => 'parallel',
		options => '-c max_parallel_workers_per_gather=1');
	$s->send('SELECT slow(' . $s->pid . ') FROM many');
	poll_until(
		sub {
			# in that function
			$dt->sql("SELECT count(*) FROM pg_stat_activity
				WHERE wait_event = 'PgSleep' AND leader_pid = " . $s->pid) == 1;
		});
	# it pays for the hint bits that it sets
	$dt->limit(parallel => 0.1);
	ok($dt->wait_paused($s, 'in flight'), 'parallel message: the leader pauses');
	append_to_file($dt->node->data_dir . '/fail', '');
	ok( poll_until(sub { $pauses->place($s) !~ /in flight/ }),
		'parallel message: it is served');
	$dt->limit(parallel => 0);
	like($s->wait->{err}, qr/the worker fails/,
		"parallel message: the worker's error is the leader's");
	$s->quit;
}

# ------------------------- a barrier does not let a suspended session hold locks

$dt->sql('CREATE TABLE batch (id int); SELECT alter_resource_group($$batch$$)');
$outsider->query('CREATE DATABASE victim4 STRATEGY file_copy');
{
	my $s = $dt->session(group => 'batch');

	$s->query(q{SET dirty_throttle.max_commit_pause = '1d'});
	$s->query('BEGIN; INSERT INTO batch VALUES (1)');
	$dt->sql("SELECT suspend_group('batch')");
	$s->send(join ";\n", 'COMMIT', map { "INSERT INTO batch VALUES ($_)" } 2 .. 5);
	ok($dt->wait_paused($s, 'after transaction'), 'soft, barrier: it stops');
	$outsider->query('DROP DATABASE victim4');
	sleep 0.3;
	is($pauses->holds($s), 'no lock, no snapshot',
		'soft, barrier: it holds nothing');
	is($dt->sql('SELECT count(*) FROM batch'), 1,
		'soft, barrier: it does not begin anything else');
	$outsider->query("SET lock_timeout = '${DirtyThrottle::TIMEOUT}s'");
	is($outsider->run('ALTER TABLE batch ADD x int')->{sqlstate},
		undef, 'soft, barrier: ALTER TABLE by others works');
	$outsider->query('RESET lock_timeout');
	ok(!$s->finished, 'soft, barrier: it is still stopped');
	$dt->sql("SELECT resume_group('batch')");
	ok($s->finished($DirtyThrottle::TIMEOUT), 'soft, barrier: it goes on with its group');
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
	my $ended = 0;

	append_to_file($slow, '20'); # each look takes so many ms
	$_->query("BEGIN; $MAY_WRITE") foreach @cancelled;
	$dt->sql("SELECT suspend_group('$kind->{group}')");
	$_->send('COMMIT') foreach @cancelled;
	my @asleep = grep { $dt->wait_paused($_, 'after transaction') } @cancelled;
	sleep 0.12;                      # our own timers are quiet then
	foreach my $n (1 .. @asleep)
	{
		my $s = $asleep[ $n - 1 ];

		kill 'USR1', $s->pid;
		sleep 0.002 * $n;
		kill 'INT', $s->pid;
		# the group stays suspended
		$ended += $s->finished($DirtyThrottle::TIMEOUT);
	}
	unlink $slow;
	is($ended, 15, 'a cancel while the client is looked at: all ended');
	$pauses->let_go($kind);
	$_->quit foreach @cancelled;

	# nor is the pause over when something else comes then, nor is that lost
	my @looked;
	foreach my $name ('after a transaction', 'after a transaction, suspended',
		'in flight, in a block')
	{
		my ($kind) = grep { $_->{name} eq $name } @kinds;
		my $s = $pauses->session($kind,
			sql => "SET client_connection_check_interval = '10ms'");

		$pauses->put($s, $kind);
		push @looked, [ $kind, $s ];
	}
	my $mark = $dt->log_mark;
	append_to_file($slow, '20');
	my $lists = sub {
		my $pid = $_[0]->pid;
		my $n = () = $dt->log_since($mark) =~ /\[$pid\].*Grand total:/g;
		return $n;
	};
	foreach my $n (1 .. 12)
	{
		$outsider->query(
			'SELECT pg_log_backend_memory_contexts(' . $_->[1]->pid . ')')
		  foreach @looked;
		# two that are not served yet would be one
		poll_until(sub { @looked == grep { $lists->($_->[1]) == $n } @looked });
		sleep 0.005 * $n;    # they look again after each signal
	}
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
		sub { $sub->query('SELECT count(*) FROM repl') == $n });
}
replicate(1, 1);
ok(replicated(1), 'apply: it works');
replicate(2, 1);
ok(replicated(2), 'apply: on');
ok( poll_until(
		sub { $dt->group_row('apply')->{members} == 1 }),
	'apply: the worker is a member');
# A pause that was cut would leave what is owed; after a transaction as before it
# there is what one of them uses.
my $most = 0;
my $r = $dt->check_limit(
	'apply, a trigger that runs SQL',
	'apply',
	sub {
		replicate(10 + 40 * $_, 40) foreach 0 .. 7;
		poll_until(
			sub {
				my $owed = $dt->group_row('apply')->{dirty_debt};

				$most = $owed if $owed > $most;
				return $sub->query('SELECT max(id) FROM repl') == 10 + 319;
			});
	},
	limit => 2500);
# what the last one has used may not be charged yet when its rows are seen
cmp_ok($r->{kb}, '>=', 7 * 40 * $dt->block_kb, 'apply: KB of 7 of 8 transactions');
cmp_ok($most, '<=', $r->{kb} / 3, 'apply: the most that is owed, KB');
$dt->limit(apply => 0);
$sub->query('ALTER SUBSCRIPTION sub DISABLE');
$sub->query('ALTER SUBSCRIPTION sub SET (slot_name = NONE)');
$sub->query('DROP SUBSCRIPTION sub');
poll_until(
	sub {
		$dt->sql('SELECT count(*) FROM pg_replication_slots WHERE active') == 0;
	});
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
	[ 'before DO, limit', 'in flight' ],
	[ 'after transaction, soft', 'after transaction' ],
	[ 'before DO, soft', 'in flight' ]);
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
foreach my $n (0 .. $#conflicts)
{
	$outsider->query("CREATE DATABASE lost$n TEMPLATE hints STRATEGY file_copy");
}
$dt->node->wait_for_catchup('standby');

# Does the standby replay all?
sub replays
{
	my $lsn = $outsider->query('SELECT pg_current_wal_insert_lsn()');
	return poll_until(
		sub { $standby->sql("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' });
}

foreach my $n (0 .. $#conflicts)
{
	my ($kind, $where) = @{ $conflicts[$n] };
	my $name = "recovery conflict, $kind";
	my $database = "lost$n";
	my $group = "grp$n";
	my $s = $standby->session(dbname => $database, group => '');

	$dt->limit($group => $kind =~ /limit/ ? 1 : 0);    # 400 s
	replays();
	$s->query("SET client_connection_check_interval = @{[ 10 * ($n % 2) ]};
		SET dirty_throttle.max_commit_pause = '1d';
		SET dirty_throttle.\"group\" = '$group'");
	$s->query('BEGIN');
	$s->query('DO $$BEGIN PERFORM count(*) FROM h; END$$');
	$standby->sql("SELECT suspend_group('$group')") if $kind =~ /soft/;
	$s->send('COMMIT');
	if ($kind =~ /before/)
	{
		ok($standby->wait_paused($s, 'after transaction'), "$name: first after");
		$standby->cancel_ms($s);
		$s->send($MAY_WRITE);
	}
	ok($standby->wait_paused($s, $where), "$name: it pauses");
	$outsider->query("DROP DATABASE $database");
	ok(replays(), "$name: replay goes on");
	ok($s->finished($DirtyThrottle::TIMEOUT), "$name: the session ends");
	$standby->sql("SELECT resume_group('$group')") if $kind =~ /soft/;
	$s->quit;
}

$standby->stop;

# -------------------------------------------------- the statistics timer

sleep 0.1 while time - $stays_since < 10.5;
$pauses->check_stays($stays->[1], $stays->[0], 'more than 10 s');
end_all($stays);
if (@looked_at)
{
	sleep 0.1 while time - $looked_at_since < 10.5;
	$pauses->check_stays($looked_at[1], $looked_at[0],
		'memory contexts while the client is looked at, then 10 s');
	end_all(\@looked_at);
}

$dt->finish;
