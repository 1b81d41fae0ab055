# Who coordinates holds locks while a member answers: a member does not pause
# after PREPARE TRANSACTION, nor around COMMIT PREPARED and ROLLBACK PREPARED,
# and with max_commit_pause = 0 not after any transaction.  What it owes it
# pays before its next statement that writes.
#
# expect-in-log: WARNING:  there is no transaction in progress

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $limit = 1;        # KB/s: to pay takes minutes
my $blocks = 100;

# Nothing pauses in flight.
my ($dt, $second) = map { DirtyThrottle->new($_, conf => 'dirty_throttle.transaction_grace = 1h') }
  'first', 'second';

foreach ($dt, $second)
{
	$_->limit(grp => 0);
	$_->sql(
		"CREATE TABLE t (id int, n int, filler text) WITH (fillfactor = 10);
		INSERT INTO t SELECT i, 0, repeat('x', 800)
			FROM generate_series(1, $blocks) i;
		CREATE TABLE small (id int, n int, filler text) WITH (fillfactor = 10);
		INSERT INTO small SELECT i, 0, repeat('x', 800)
			FROM generate_series(1, 40) i;
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
	my ($server, $kb) = @_;

	$server->limit(grp => 0);
	$server->limit(grp => $kb // $limit);
}

sub orphans
{
	my ($server) = @_;
	return $server->sql('SELECT count(*) FROM pg_prepared_xacts');
}

# ---------------------------------------------------------- two phases

my $patient = '-c dirty_throttle.max_commit_pause=1h';
my $s = $dt->session(group => 'grp', options => $patient);
my $other = $dt->session;

# What prepares nothing is no reason not to pause: outside of a block, and in one
# that has failed, also for the next transaction.
forgive($dt);
$s->send(rewrite('t') . ";PREPARE TRANSACTION 'p'");
ok($dt->wait_paused($s, 'after transaction'), 'PREPARE TRANSACTION outside of a block: it is paid for');
forgive($dt);
$s->wait;
$s->run($_) foreach 'BEGIN', 'SELECT 1 / 0', "PREPARE TRANSACTION 'p'";
$s->send(rewrite('t'));
ok($dt->wait_paused($s, 'after transaction'), 'PREPARE TRANSACTION that fails: the next transaction is paid for');
forgive($dt);
$s->wait;
is(orphans($dt), 0, 'nothing is prepared');

foreach my $finish ('COMMIT', 'ROLLBACK')
{
	forgive($dt);
	my $pauses = $dt->session_row($s)->{pauses};
	$s->query('BEGIN;' . rewrite('t') . ";PREPARE TRANSACTION 'p'");
	my $debt = $dt->session_row($s)->{dirty_debt};
	ok($debt > $blocks * $dt->block_kb * 0.7, 'PREPARE TRANSACTION: what is owed');
	$s->query("$finish PREPARED 'p'");
	is(orphans($dt), 0, "$finish PREPARED has done it");
	ok($dt->session_row($s)->{dirty_debt} > $debt / 2, "$finish PREPARED: still owed");

	# and again, without a pause in between
	$s->query("SET work_mem = '4MB'");
	$s->query('RESET work_mem');
	is($dt->session_row($s)->{pauses}, $pauses, "$finish PREPARED: no pause so far");

	$s->send($MAY_WRITE);
	ok($dt->wait_paused($s, 'in flight'), "$finish PREPARED: the next statement waits");
	is( $dt->sql("SELECT count(*) FROM pg_locks WHERE locktype <> 'virtualxid'
			AND pid = " . $s->pid),
		0, 'and holds no lock');
	forgive($dt);
	$s->wait;
}

# Who comes to a COMMIT PREPARED with a debt, or finishes somebody else's.
foreach my $finish ('COMMIT', 'ROLLBACK')
{
	forgive($dt);
	$other->query("BEGIN; INSERT INTO hot VALUES (2, 0); PREPARE TRANSACTION 'o'");
	$s->send(rewrite('t'));
	ok($dt->wait_paused($s, 'after transaction'), 'a member pays');
	$dt->cancel_ms($s);
	my $pauses = $dt->session_row($s)->{pauses};
	$s->query("$finish PREPARED 'o'");
	is($dt->session_row($s)->{pauses},
		$pauses, "$finish PREPARED of another session's, with a debt: no pause");
	$other->query('DELETE FROM hot WHERE id = 2');
	pass("$finish PREPARED: the locks are free");
	$s->send($MAY_WRITE);
	ok($dt->wait_paused($s), "$finish PREPARED: what is owed is paid next");
	forgive($dt);
	$s->wait;
}

# Prepared again and again: it pays in between, and there at the limit.
$dt->check_limit(
	'one prepared transaction after the other',
	'grp',
	sub {
		foreach (1 .. 3)
		{
			$s->query('BEGIN;' . rewrite('small')
				  . ";PREPARE TRANSACTION 'p';COMMIT PREPARED 'p'");
		}
		$s->query($MAY_WRITE);
	},
	limit => 1000);

# A session that is terminated where it pays leaves nothing prepared.
forgive($dt);
foreach my $round (1 .. 3)
{
	my $t = $dt->session(group => 'grp');

	$t->send('BEGIN;' . rewrite('t')
		  . ";PREPARE TRANSACTION 'p$round';\nCOMMIT PREPARED 'p$round';\n$MAY_WRITE");
	ok($dt->wait_paused($t), 'terminated: it pays');
	is(orphans($dt), 0, 'terminated: nothing is prepared while it pays');
	$dt->terminate_ms($t);
	is(orphans($dt), 0, 'terminated: nor afterwards');
	$t->quit;
	forgive($dt);
}

# What looks like a connection of Citus's is one like others.
{
	my $t = $dt->session(group => 'grp', options => $patient);

	$t->query("SET application_name = 'citus_internal gpid=1'");
	$t->send(rewrite('t'));
	ok($dt->wait_paused($t, 'after transaction'), "application_name: it pauses");
	forgive($dt);
	$t->wait;
	my $pauses = $dt->session_row($t)->{pauses};
	$t->query('BEGIN;' . rewrite('t') . ";PREPARE TRANSACTION 'c'");
	is($dt->session_row($t)->{pauses},
		$pauses, 'application_name: not after PREPARE TRANSACTION');
	$t->query("COMMIT PREPARED 'c'");
	$t->send($MAY_WRITE);
	ok($dt->wait_paused($t, 'in flight'), 'application_name: but before the next');
	forgive($dt);
	$t->quit;
}

# -------------------------------------- a coordinator, and two servers

# It updates a hot row on the first one, and works on both.  Each of them owes
# for minutes when it has done so, and the row is free.
{
	my @members = map { $_->session(group => 'grp', options => $patient) } $dt, $second;

	foreach my $round (1, 2)
	{
		forgive($_) foreach $dt, $second;
		$_->query('BEGIN') foreach @members;
		$members[0]->query('UPDATE hot SET n = n + 1 WHERE id = 1');
		foreach my $sql (rewrite('small'), "PREPARE TRANSACTION 'r$round'",
			"COMMIT PREPARED 'r$round'")
		{
			$_->send($sql) foreach @members;
			is($_->wait->{sqlstate}, undef, "a coordinator: $sql") foreach @members;
		}
		$other->query('UPDATE hot SET n = n + 1 WHERE id = 1');
		is(orphans($_), 0, 'a coordinator: all is finished') foreach $dt, $second;
		ok($dt->session_row($members[0])->{dirty_debt} > 100, 'a coordinator: it owes');
	}
	forgive($_) foreach $dt, $second;
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
is($dt->sql("SHOW $parameter"), '20s', 'max_commit_pause: the default');
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
	is($t->query("SHOW $parameter"), defined $sqlstate ? '20s' : '0',
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
forgive($dt);
my $pauses = $dt->session_row($s)->{pauses};
$s->query(rewrite('t'));
is($dt->session_row($s)->{pauses}, $pauses, 'max_commit_pause = 0: a command');
$dt->check_limit(
	'max_commit_pause = 0: a command and the next',
	'grp',
	sub {
		$s->query(rewrite('t'));
		$s->query($MAY_WRITE);
	},
	limit => 2000);

# A function's setting holds for the function, not for what comes after it.
forgive($dt);
$s->query("SET $parameter = '30s'; CREATE FUNCTION rewrites() RETURNS void
	LANGUAGE plpgsql SET $parameter = 0 AS \$\$
	BEGIN " . rewrite('small') . '; END $$');
$s->send('SELECT rewrites()');
ok($dt->wait_paused($s, 'after transaction'),
	'max_commit_pause of a function: not that of its transaction');
forgive($dt);
$s->wait;
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

	# An outsider waits for a row while the remote transaction commits: does it do
	# so until the remote session has paid?
	my $transaction = sub {
		$second->sql('TRUNCATE target');
		forgive($second);
		$local->query('SELECT postgres_fdw_disconnect_all()');
		$local->query("BEGIN; UPDATE hot SET n = n + 1; $insert");
		$outsider->send('UPDATE hot SET n = n + 1');
		ok(!$outsider->finished(0.05), 'postgres_fdw: an outsider waits');
		$local->send('COMMIT');
	};
	my $paused = "SELECT sum(paused) FROM dirty_throttle_groups";

	# the default: the remote session pays, and everybody waits
	$transaction->();
	ok(poll_until(sub { $second->sql($paused) == 1 }),
		'postgres_fdw: the remote session pauses');
	ok(!$outsider->finished(0.05), 'postgres_fdw: others wait for it');
	forgive($second);
	is($_->wait->{sqlstate}, undef, 'postgres_fdw: they go on') foreach $local, $outsider;

	$second->sql("ALTER ROLE remote SET $parameter = 0");
	$transaction->();
	is($_->wait->{sqlstate}, undef,
		'postgres_fdw, max_commit_pause = 0: others do not wait for minutes')
	  foreach $outsider, $local;
	$local->send('INSERT INTO remote VALUES (0)');
	ok(poll_until(sub { $second->sql($paused) == 1 }),
		'postgres_fdw, max_commit_pause = 0: the next transaction pays');
	forgive($second);
	$local->wait;
	$_->quit foreach $local, $outsider;
}

$second->stop;
$dt->finish;
