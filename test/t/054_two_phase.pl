# Who coordinates holds locks while a member answers: a member does not pause
# after PREPARE TRANSACTION, nor around COMMIT PREPARED and ROLLBACK PREPARED,
# and with max_commit_pause = 0 not after any transaction.  What it owes it
# pays before its next transaction.
#
# takes-about: 40 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 500;      # KB/s
my $blocks = 300;     # 5 s
my $at_once = 700;    # ms

# Rewrites pay after their transactions; what is inserted through the first
# server does not pause in flight, either.
my $dt = DirtyThrottle->new('first',
	conf => 'dirty_throttle.interrupt_pauses = off');
my $second = DirtyThrottle->new('second',
	conf => 'dirty_throttle.transaction_grace = 1h');

foreach ($dt, $second)
{
	$_->limit(grp => 0);
	$_->sql(
		"CREATE TABLE t (id int, n int, filler text) WITH (fillfactor = 10);
		INSERT INTO t SELECT i, 0, repeat('x', 800)
			FROM generate_series(1, $blocks) i;
		CREATE TABLE small (id int, n int, filler text) WITH (fillfactor = 10);
		INSERT INTO small SELECT i, 0, repeat('x', 800)
			FROM generate_series(1, 20) i;
		CREATE TABLE hot (id int PRIMARY KEY, n int);
		INSERT INTO hot VALUES (1, 0)");
}
my $version = $dt->sql("SELECT current_setting('server_version_num')");

# Dirties all of a table.
sub rewrite
{
	my ($table) = @_;
	return "ALTER TABLE $table ALTER n TYPE int USING n + 1";
}

sub forgive
{
	my ($server) = @_;

	$server->limit(grp => 0);
	$server->limit(grp => $limit);
}

sub orphans
{
	my ($server) = @_;
	return $server->sql('SELECT count(*) FROM pg_prepared_xacts');
}

# ---------------------------------------------------------- two phases

my $s = $dt->session(group => 'grp');
my $other = $dt->session;

foreach my $finish ('COMMIT', 'ROLLBACK')
{
	forgive($dt);
	my $before = $dt->session_row($s)->{blocks_dirtied};
	my $start = time;
	my $prepare = elapsed_ms(
		sub { $s->query('BEGIN;' . rewrite('t') . ";PREPARE TRANSACTION 'p'") });
	my $debt = $dt->session_row($s)->{debt_kb};
	my $end = elapsed_ms(sub { $s->query("$finish PREPARED 'p'") });

	between($prepare, 0, $at_once, 'PREPARE TRANSACTION answers: ms');
	ok($debt > $blocks * $dt->block_kb * 0.7, 'PREPARE TRANSACTION: what is owed');
	between($end, 0, $at_once, "$finish PREPARED is not kept waiting: ms");
	is(orphans($dt), 0, "$finish PREPARED has done it");
	ok($dt->session_row($s)->{debt_kb} > $debt / 2, "$finish PREPARED: still owed");

	# and again, without a pause in between
	$end = elapsed_ms(
		sub {
			$s->query("SET work_mem = '4MB'");
			$s->query('RESET work_mem');
		});
	between($end, 0, $at_once, 'SET and RESET: ms');

	$s->send('BEGIN');
	ok($dt->wait_paused($s, 'in flight'), "$finish PREPARED: BEGIN waits");
	is( $dt->sql("SELECT count(*) FROM pg_locks WHERE locktype <> 'virtualxid'
			AND pid = " . $s->pid),
		0, 'and holds no lock');
	$s->wait;
	my $kb = ($dt->session_row($s)->{blocks_dirtied} - $before) * $dt->block_kb;
	between(100 * $kb / (time - $start) / $limit, 85, 115,
		'all is paid then: % of the limit');
	between($s->run('COMMIT')->{ms}, 0, $at_once, 'the next is free: ms');
}

# Who comes to a COMMIT PREPARED with a debt, or finishes somebody else's.
foreach my $finish ('COMMIT', 'ROLLBACK')
{
	forgive($dt);
	$other->query("BEGIN; INSERT INTO hot VALUES (2, 0); PREPARE TRANSACTION 'o'");
	$s->send(rewrite('t'));
	ok($dt->wait_paused($s, 'after transaction'), 'a member pays');
	$dt->cancel_ms($s);
	between(elapsed_ms(sub { $s->query("$finish PREPARED 'o'") }),
		0, $at_once, "$finish PREPARED of another session's, with a debt: ms");
	between(elapsed_ms(sub { $other->query('DELETE FROM hot WHERE id = 2') }),
		0, $at_once, "$finish PREPARED: the locks are free: ms");
	$s->send('SELECT 1');
	ok($dt->wait_paused($s), "$finish PREPARED: what is owed is paid next");
	forgive($dt);
	$s->wait;
}

# Prepared again and again: it pays in between, and there at the limit.
at_limit(
	sub {
		forgive($dt);
		my $before = $dt->session_row($s)->{blocks_dirtied};
		my $start = time;

		foreach (1 .. 3)
		{
			$s->query('BEGIN;' . rewrite('small')
				  . ";PREPARE TRANSACTION 'p';COMMIT PREPARED 'p'");
		}
		$s->query('BEGIN; COMMIT');
		return 100 * ($dt->session_row($s)->{blocks_dirtied} - $before)
		  * $dt->block_kb / (time - $start) / $limit;
	},
	'one prepared transaction after the other');

# A session that is terminated where it pays leaves nothing prepared.
forgive($dt);
foreach my $round (1 .. 3)
{
	my $t = $dt->session(group => 'grp');

	$t->send('BEGIN;' . rewrite('t')
		  . ";PREPARE TRANSACTION 'p$round';\nCOMMIT PREPARED 'p$round';\nBEGIN");
	ok($dt->wait_paused($t), 'terminated: it pays');
	is(orphans($dt), 0, 'terminated: nothing is prepared while it pays');
	$dt->terminate_ms($t);
	is(orphans($dt), 0, 'terminated: nor afterwards');
	$t->quit;
	forgive($dt);
}

# What looks like a connection of Citus's is one like others.
{
	my $t = $dt->session(group => 'grp');

	$t->query("SET application_name = 'citus_internal gpid=1'");
	$t->send(rewrite('t'));
	ok($dt->wait_paused($t, 'after transaction'), "application_name: it pauses");
	forgive($dt);
	$t->wait;
	between(
		elapsed_ms(
			sub { $t->query('BEGIN;' . rewrite('t') . ";PREPARE TRANSACTION 'c'") }),
		0, $at_once, 'application_name: not after PREPARE TRANSACTION: ms');
	$t->query("COMMIT PREPARED 'c'");
	$t->send('BEGIN');
	ok($dt->wait_paused($t, 'in flight'), 'application_name: but before the next');
	forgive($dt);
	$t->quit;
}

# -------------------------------------- a coordinator, and two servers

# It updates a hot row on the first one, and works on both: for how long is
# the row locked?
sub coordinate_ms
{
	my ($round, @members) = @_;
	my $start;

	$_->query('BEGIN') foreach @members;    # here they pay
	$members[0]->query('UPDATE hot SET n = n + 1 WHERE id = 1');
	$start = time;
	$_->send(rewrite('small')) foreach @members;
	$_->wait foreach @members;
	$_->send("PREPARE TRANSACTION 'r$round'") foreach @members;
	$_->wait foreach @members;
	$_->send("COMMIT PREPARED 'r$round'") foreach @members;
	$_->wait foreach @members;
	return (time - $start) * 1000;
}

{
	my @members = map { $_->session(group => 'grp') } $dt, $second;
	my (%ms, %owed);

	forgive($_) foreach $dt, $second;
	foreach my $enabled ('off', 'on', 'off', 'on')
	{
		$_->set_conf('dirty_throttle.enabled', $enabled) foreach $dt, $second;
		foreach (1 .. 3)
		{
			my $start = time;

			push @{ $ms{$enabled} }, coordinate_ms($_, @members);
			$owed{$enabled} += $_->session_row($members[0])->{debt_kb}
			  foreach $dt;
		}
		is(orphans($_), 0, "a coordinator, $enabled: all is finished")
		  foreach $dt, $second;
		$_->query('BEGIN; COMMIT') foreach @members;
	}
	my ($without, $with) = map { median(@{ $ms{$_} }) } 'off', 'on';
	diag(sprintf 'a coordinator holds its locks for %.1f ms without, %.1f ms with',
		$without, $with);
	is($owed{off}, 0, 'a coordinator, off: nothing is owed');
	ok($owed{on} > 500, 'a coordinator, on: they are throttled');
	between($with, 0, $without + 100, 'a coordinator: its locks: ms');
	$_->quit foreach @members;
}

# ------------------------------------------------- max_commit_pause: whose

my $parameter = 'dirty_throttle.max_commit_pause';
$dt->sql(q{CREATE ROLE plain LOGIN;
	CREATE ROLE may_set LOGIN;
	CREATE ROLE configured LOGIN;
	CREATE DATABASE configured;
	GRANT SET ON PARAMETER dirty_throttle.max_commit_pause TO may_set;
	ALTER ROLE configured SET dirty_throttle.max_commit_pause = 0;
	ALTER DATABASE configured SET dirty_throttle.max_commit_pause = '7s'});
is($dt->sql("SHOW $parameter"), '30s', 'max_commit_pause: the default');
is( $dt->sql("SELECT context FROM pg_settings WHERE name = '$parameter'"),
	'superuser', 'max_commit_pause: who may set it');
foreach my $case (
	[ undef, 'postgres', '0', undef, 'a superuser' ],
	[ undef, 'postgres', '-1', '22023', 'a negative one' ],
	[ undef, 'postgres', "'a while'", '22023', 'no time' ],
	[ 'plain', 'postgres', '0', '42501', 'a plain role' ],
	[ 'plain', 'postgres', "'1h'", '42501', 'a plain role, to pause longer' ],
	[ 'may_set', 'postgres', '0', undef, 'a role with SET on it' ])
{
	my ($user, $dbname, $value, $sqlstate, $name) = @$case;
	my $t = $dt->session(dbname => $dbname, $user ? (user => $user) : ());

	is($t->run("SET $parameter = $value")->{sqlstate},
		$sqlstate, "max_commit_pause: $name");
	is($t->query("SHOW $parameter"), defined $sqlstate ? '30s' : '0',
		"max_commit_pause: $name: what it is");
	$t->quit;
}
{
	my $t = $dt->session(user => 'configured');
	is($t->query("SHOW $parameter"), '0', 'max_commit_pause: of a role');
	is($t->run("SET $parameter = DEFAULT")->{sqlstate},
		'42501', 'max_commit_pause: of a role: not its to reset');
	$t->quit;
	$t = $dt->session(dbname => 'configured', user => 'plain');
	is($t->query("SHOW $parameter"), '7s', 'max_commit_pause: of a database');
	$t->quit;
	$t = $dt->session(user => 'plain');
	is($t->run("ALTER ROLE plain SET $parameter = 0")->{sqlstate},
		'42501', 'max_commit_pause: ALTER ROLE by a plain role');
	$t->quit;
}

# 0: the answer at once, and all is paid before the next transaction.
$s->query("SET $parameter = 0");
at_limit(
	sub {
		forgive($dt);
		my $before = $dt->session_row($s)->{blocks_dirtied};
		my $start = time;

		between($s->run(rewrite('t'))->{ms}, 0, $at_once,
			'max_commit_pause = 0: a command: ms');
		$s->query('SELECT 1');
		return 100 * ($dt->session_row($s)->{blocks_dirtied} - $before)
		  * $dt->block_kb / (time - $start) / $limit;
	},
	'max_commit_pause = 0: a command and the next');

# A function's setting holds for the function, not for what comes after it.
forgive($dt);
$s->query("SET $parameter = '30s'; CREATE FUNCTION rewrites() RETURNS void
	LANGUAGE plpgsql SET $parameter = 0 AS \$\$
	BEGIN " . rewrite('small') . '; END $$');
# a long pause, but not in flight
my $grace = $dt->sql('SHOW dirty_throttle.transaction_grace');
$dt->set_conf('dirty_throttle.transaction_grace', '1h', $s);
$dt->limit(grp => 10);
$s->send('SELECT rewrites()');
ok($dt->wait_paused($s, 'after transaction'),
	'max_commit_pause of a function: not that of its transaction');
forgive($dt);
$s->wait;
$dt->set_conf('dirty_throttle.transaction_grace', $grace);
$_->quit foreach $s, $other;

# ------------------------------------------------------------ postgres_fdw

# The second server's member is a role whose transactions the first one
# commits while it holds its own locks.
SKIP:
{
	my $local = $dt->session;

	skip 'no postgres_fdw', 1
	  if defined $local->run('CREATE EXTENSION postgres_fdw')->{sqlstate};

	my ($host, $port) = ($second->node->host, $second->node->port);
	my $outsider = $dt->session;
	my $insert = 'INSERT INTO remote SELECT i FROM generate_series(1, 100) i';

	$second->sql(q{CREATE TABLE target (id int, filler text DEFAULT repeat('x', 800))
			WITH (fillfactor = 10);
		CREATE ROLE remote LOGIN;
		GRANT ALL ON target TO remote;
		ALTER ROLE remote SET dirty_throttle."group" = 'grp'});
	$local->query("CREATE SERVER second FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER second
			OPTIONS (user 'remote', password_required 'false');
		CREATE FOREIGN TABLE remote (id int) SERVER second
			OPTIONS (table_name 'target')");

	# How long others wait for a row while the remote transaction commits, how
	# long the next one takes, and the % of the limit of both.
	my $transaction = sub {
		$second->sql('TRUNCATE target');
		forgive($second);
		$local->query('SELECT postgres_fdw_disconnect_all()');
		my $before = $second->group_row('grp')->{blocks_dirtied};
		my $start = time;
		my ($wait, $next);

		$local->query("BEGIN; UPDATE hot SET n = n + 1; $insert");
		$outsider->send('UPDATE hot SET n = n + 1');
		ok(!$outsider->finished(0.05), 'postgres_fdw: an outsider waits');
		$wait = elapsed_ms(
			sub {
				$local->send('COMMIT');
				$outsider->wait;
			});
		$local->wait;
		$next = elapsed_ms(sub { $local->query('SELECT count(*) FROM remote') });
		my $kb = ($second->group_row('grp')->{blocks_dirtied} - $before)
		  * $dt->block_kb;
		return ($wait, $next, 100 * $kb / (time - $start) / $limit, $kb);
	};

	# the default: the remote session pays, and everybody waits
	my ($wait, $next, $percent, $kb) = $transaction->();
	diag(sprintf 'postgres_fdw: %.0f KB, others wait for %.0f ms', $kb, $wait);
	between($wait, 0.7 * 1000 * $kb / $limit, 60000,
		'postgres_fdw: others wait for the remote pause: ms');

	$second->sql("ALTER ROLE remote SET $parameter = 0");
	($wait, $next, $percent, $kb) = $transaction->();
	diag(sprintf 'postgres_fdw, max_commit_pause = 0: others wait for %.0f ms, '
		  . 'the next remote transaction takes %.0f ms', $wait, $next);
	between($wait, 0, $at_once,
		'postgres_fdw, max_commit_pause = 0: others do not wait: ms');
	between($next, 0.7 * 1000 * $kb / $limit, 60000,
		'postgres_fdw, max_commit_pause = 0: the next transaction pays: ms');
	between($percent, 85, 115,
		'postgres_fdw, max_commit_pause = 0: both: % of the limit');
	$_->quit foreach $local, $outsider;
}

$second->stop;
$dt->finish;
