# suspend_group(): the members of a group stop, whether they owe anything or
# not: each after its transaction and never with a lock, or before its next
# statement that writes.  They can be cancelled, terminated and shut down all the same, and go
# on when the group is resumed, at once as 104 tests; nobody else notices anything.
# What only reads is not stopped: 062.
#
# expect-in-log: WARNING:  resource group "grp_a" does not exist

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $TIMEOUT = 180;    # seconds, for all that must happen

# A COMMIT is answered after max_commit_pause, as 104 tests.
my $dt = DirtyThrottle->new(
	'suspend_group', conf => q{
dirty_throttle.max_commit_pause = 1h
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
$dt->limit(grp_a => 0);
$dt->limit(grp_b => 20000);
my $columns = '(id int, filler text) WITH (fillfactor = 10, parallel_workers = 2)';
$dt->sql("CREATE TABLE t $columns; CREATE TABLE other $columns;
	CREATE TABLE hot (id int PRIMARY KEY, n int); INSERT INTO hot VALUES (1, 0)");
$dt->sql('CREATE PROCEDURE put(n int) LANGUAGE plpgsql AS $$ BEGIN
	FOR i IN 1..n LOOP
		INSERT INTO t VALUES (i);
		PERFORM gate(CASE i WHEN 1 THEN 200 END);
		COMMIT;
	END LOOP; END $$');

sub rows
{
	my ($n) = @_;
	return "SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

# Statements that stop in the middle until go_on() is called.
$dt->sql(q{CREATE FUNCTION gate(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	IF i = 200 THEN
		PERFORM pg_advisory_xact_lock_shared(1);
	END IF;
	RETURN i; END $$});
my $long_insert = "INSERT INTO t SELECT gate(i), repeat('x', 800) FROM generate_series(1, 400) i";
my $gate = $dt->session;

# The session is in the middle of this now.
sub start
{
	my ($session, $sql) = @_;

	$gate->query('SELECT pg_advisory_lock(1)');
	$session->send($sql);
	ok( poll_until(
			sub {
				$dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $session->pid);
			}),
		'it runs');
}

sub go_on
{
	$gate->query('SELECT pg_advisory_unlock(1)');
}

sub suspend
{
	$dt->sql("SELECT suspend_group('grp_a')");
}

# A transaction that has begun, and commits when its group is suspended.
sub commit_suspended
{
	my ($session, @sql) = @_;

	$session->query($_) foreach 'BEGIN', @sql;
	suspend();
	$session->send('COMMIT');
}

sub resume
{
	$dt->sql("SELECT resume_group('grp_a')");
}

sub count
{
	my ($table) = @_;
	return $dt->sql("SELECT count(*) FROM $table");
}

# A member of the group is shown as suspended, and by what.
sub check_suspended
{
	my ($name, $s, $where) = @_;

	ok($dt->wait_paused($s, $where), "$name: it stops $where") or return;
	is($dt->session_row($s)->{paused_by},
		'suspend_group', "$name: it is suspended by the group");
	is($dt->session_row($s)->{dirty_debt}, 0, "$name: it owes nothing");
}

# It stays where it is.
sub check_stays
{
	my ($name, $s) = @_;

	ok(!$s->finished(0.3), "$name: it stays there");
	ok(defined $dt->session_row($s)->{paused_since}, "$name: asleep");
}

# It goes on when the group is resumed; returns what wait() does.
sub check_resume
{
	my ($name, $s) = @_;
	my $r;

	resume();
	$r = $s->wait;
	is($r->{sqlstate}, undef, "$name: without an error") or diag $r->{err};
	is($dt->group_row('grp_a')->{paused},
		0, "$name: nobody pauses any more");
	return $r;
}

my $s = $dt->session(group => 'grp_a');
my $outsider = $dt->session;

# One that stays until the end of this test.
$dt->limit(grp_s => 0);
my $stays = $dt->session(group => 'grp_s');
$dt->sql("CREATE TABLE its_own $columns");
$stays->query('INSERT INTO its_own VALUES (0)');
$dt->sql("SELECT suspend_group('grp_s')");
$stays->send('INSERT INTO its_own VALUES (0)');
ok($dt->wait_paused($stays, 'in flight'), 'a member stops');

# --------------------------------------------------------------- the views

my $row = $dt->group_row('grp_a');
ok(!defined $row->{suspended_since}, 'a group that is not suspended');
my $then = $dt->sql('SELECT clock_timestamp()');
suspend();
$row = $dt->group_row('grp_a');
is( $dt->sql("SELECT suspended_since BETWEEN '$then' AND clock_timestamp()
		FROM dirty_throttle_groups WHERE group_name = 'grp_a'"),
	't', 'suspended_since');
ok(!defined $dt->group_row('grp_b')->{suspended_since}, 'and no other one');

# again: since when it was
suspend();
is($dt->group_row('grp_a')->{suspended_since}, $row->{suspended_since}, 'since when it was');
resume();
$row = $dt->group_row('grp_a');
ok(!defined $row->{suspended_since}, 'resumed');
is($row->{pauses}, 0, 'an idle member has not paused');

my $r = $outsider->run("SELECT resume_group('grp_a')");
like($r->{err}, qr/NOTICE: .*"grp_a"/, 'resumed twice: a notice');
is($r->{sqlstate}, undef, 'resumed twice: no error');
foreach my $case (
	[ "suspend_group('nobody')", '42704' ],
	[ "resume_group('nobody')", '42704' ],
	[ 'suspend_group(NULL)', '22004' ],
	[ 'resume_group(NULL)', '22004' ],
	[ "suspend_group('')", '22023' ])
{
	my ($call, $sqlstate) = @$case;
	is($outsider->run("SELECT $call")->{sqlstate}, $sqlstate, "$call: the error");
}
ok(!defined $dt->group_row('grp_a')->{suspended_since}, 'nothing was suspended by these');

# -------------------------------------------------------------------- soft

# A session that is idle stops before it begins; one that has begun comes to the end
# of its transaction, and stops after it.
foreach my $case (
	[ 'INSERT', 'INSERT INTO t VALUES (1)' ],
	[ 'a SELECT that locks rows', 'SELECT n FROM hot FOR UPDATE' ],
	[ 'a large INSERT', 'INSERT INTO t ' . rows(500) ],
	[ 'COPY', "COPY t (id) FROM PROGRAM 'seq 1 2000'" ],
	[ 'VACUUM', 'VACUUM t' ],
	[ 'a rewrite', 'ALTER TABLE other ALTER id TYPE bigint' ],
	[ 'a block', 'BEGIN; INSERT INTO t VALUES (1); SELECT 1; COMMIT' ])
{
	my ($what, $sql) = @$case;
	my $name = "soft, $what";
	my $blocks = $dt->session_row($s)->{blocks_dirtied};

	suspend();
	$s->send($sql);
	check_suspended($name, $s, 'in flight');
	is( $dt->sql("SELECT count(*) FROM pg_locks WHERE pid = @{[ $s->pid ]}
			AND locktype <> 'virtualxid' AND mode NOT IN ('RowExclusiveLock', 'RowShareLock')"),
		0, "$name: it holds no lock but one on the table of a query");
	is($dt->session_row($s)->{blocks_dirtied}, $blocks, "$name: it has not begun");
	$row = $dt->group_row('grp_a');
	is("$row->{paused} of $row->{members}",
		'1 of 1', "$name: members that pause");
	check_resume($name, $s);

	$name = "soft, $what has begun";
	if ($what eq 'VACUUM')
	{
		$outsider->query('BEGIN; LOCK t IN SHARE MODE');
		$s->send($sql);
		ok( poll_until(
				sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') == 1 }),
			"$name: it waits for a lock");
		suspend();
		$outsider->query('COMMIT');
	}
	else
	{
		commit_suspended($s, 'INSERT INTO t VALUES (0)', $sql =~ s/BEGIN;|; COMMIT//gr);
	}
	check_suspended($name, $s, 'after transaction');
	is($dt->sql('SELECT count(*) FROM pg_locks WHERE pid = ' . $s->pid),
		0, "$name: it holds no lock");
	check_resume($name, $s);
}

# A SELECT begins at once.  If it has called a function that writes, the session stops
# after that, for max_commit_pause at most, and whatever comes next has to wait.
$dt->sql(q{TRUNCATE t; CREATE FUNCTION put_one(i int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO t VALUES (i); RETURN i; END $$});
{
	my $name = 'soft, a SELECT that writes';

	suspend();
	$s->send('SELECT put_one(1)');
	check_suspended($name, $s, 'after transaction');
	is(count('t'), 1, "$name: it has begun at once, and has committed");
	is($dt->sql('SELECT count(*) FROM pg_locks WHERE pid = ' . $s->pid),
		0, "$name: it holds no lock");
	check_stays($name, $s);
	is(check_resume($name, $s)->{out}, 1, "$name: it has its result");
	is($s->query('SELECT 1'), 1, "$name: the next statement does not wait then");

	$s->query(q{SET dirty_throttle.max_commit_pause = '300ms'});
	foreach my $next ('SELECT 1', 'SELECT put_one(0)', 'BEGIN; SELECT 1; COMMIT')
	{
		my $then = "$name, then $next";

		$dt->sql('TRUNCATE t');
		suspend();
		my $r = $s->run('SELECT put_one(1)');
		is($r->{sqlstate}, undef, "$then: it is answered");
		cmp_ok($r->{ms}, '>=', 300, "$then: after max_commit_pause, ms");
		$s->send($next);
		check_suspended("$then, which", $s, 'in flight');
		is(count('t'), 1, "$then, which has not begun");
		check_stays("$then, which", $s);
		check_resume("$then, which", $s);
	}
	$s->query('RESET dirty_throttle.max_commit_pause');
	is($s->query('SELECT 1'), 1, "$name: and no more than that");
}

$s->query('BEGIN; INSERT INTO t VALUES (1)');
suspend();
$s->query('ROLLBACK');
$s->send($MAY_WRITE);
check_suspended('soft, after a ROLLBACK', $s, 'in flight');
check_resume('soft, after a ROLLBACK', $s);
commit_suspended($s, 'INSERT INTO t VALUES (-1)');
ok($dt->wait_paused($s, 'after transaction'), 'soft: it stops');
is($dt->sql('SELECT count(*) FROM t WHERE id = -1'), 1,
	'what it has done is committed, for everybody');
check_stays('soft', $s);
my $version = $dt->sql("SELECT current_setting('server_version_num')");
my $wait_event = $version >= 170000 ? 'Extension|DirtyThrottle' : 'Extension|Extension';
ok( poll_until(
		sub {
			$dt->sql('SELECT wait_event_type, wait_event
				FROM pg_stat_activity WHERE pid = ' . $s->pid) eq $wait_event;
		}),
	"the wait event is $wait_event");
my $counted = $dt->session_row($s)->{pauses};

# Nothing of that is left to be paid before the next transaction.
check_resume('soft', $s);
is($dt->session_row($s)->{pauses}, $counted, 'the session had counted it at once');
is($dt->group_row('grp_a')->{pauses}, $counted, 'it is a pause like others, also in the group');
commit_suspended($s, 'INSERT INTO t VALUES (-3)');
check_suspended('soft, after a long pause', $s, 'after transaction');
is($dt->sql('SELECT count(*) FROM t WHERE id = -3'),
	1, 'soft, after a long pause: it stops after its work, not before');

check_resume('soft, after a long pause', $s);
cmp_ok($dt->group_row('grp_a')->{paused_time}, '>', 250, 'the pauses are counted: ms');

# It does not stop while it holds a row lock, whatever it does.
$s->query('BEGIN; UPDATE hot SET n = n + 1');
my $pauses = $dt->session_row($s)->{pauses};
suspend();
foreach my $sql (
	'INSERT INTO t ' . rows(300), 'UPDATE t SET id = id + 1',
	'SAVEPOINT a', 'SELECT count(*) FROM t',
	"COPY t (id) FROM PROGRAM 'seq 1 3000'",
	'ROLLBACK TO a', 'DELETE FROM t WHERE id < 100')
{
	$s->send($sql);
	ok($s->finished($TIMEOUT), "soft, in a transaction: $sql");
	$s->wait;
}
is($dt->session_row($s)->{pauses}, $pauses, 'soft: it has not paused in flight');
$outsider->send('UPDATE hot SET n = n + 1');
ok(!$outsider->finished(0.2), 'somebody waits for its lock');
$s->send('COMMIT');
ok($outsider->finished($TIMEOUT), 'and gets it with the commit');
$outsider->wait;
check_suspended('soft, then the commit', $s, 'after transaction');
check_resume('soft, then the commit', $s);

# What is running when it is suspended comes to its end, too.
$dt->sql('TRUNCATE t');
start($s, $long_insert);
suspend();
go_on();
check_suspended('soft, a statement under way', $s, 'after transaction');
is(count('t'), 400, 'soft, a statement under way: it has done its work');
check_resume('soft, a statement under way', $s);

# A procedure stops after each of its transactions.
$dt->sql('TRUNCATE t');
start($s, 'CALL put(3)');
suspend();
go_on();
check_suspended('soft, a procedure', $s, 'after transaction');
is(count('t'), 1, 'soft, a procedure: it stops after its first transaction');
check_resume('soft, a procedure', $s);
is(count('t'), 3, 'soft, a procedure: and does the others then');

# A cancel ends the pause: what was committed is, and what comes next waits.
foreach my $sql ('INSERT INTO t SELECT 77 + 0 * gate(200)', 'COMMIT')
{
	my $name = "cancelled after: $sql";

	$dt->sql('TRUNCATE t');
	if ($sql eq 'COMMIT')
	{
		commit_suspended($s, 'INSERT INTO t VALUES (77)');
	}
	else
	{
		start($s, $sql);
		suspend();
		go_on();
	}
	ok($dt->wait_paused($s, 'after transaction'), "$name: it stops");
	$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
	is($s->wait->{sqlstate}, undef, "$name: it has succeeded");
	is(count('t'), 1, "$name: and has committed");
	foreach (1, 2)
	{
		$s->send('INSERT INTO t VALUES (78)');
		check_suspended("$name, the next", $s, 'in flight');
		check_stays("$name, the next", $s);
		$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
		is($s->wait->{sqlstate}, '57014', "$name, the next: the error");
	}
	is(count('t'), 1, "$name, the next: it was not run");
	$s->send('INSERT INTO t VALUES (79)');
	check_suspended("$name, the one after that", $s, 'in flight');
	check_resume("$name, the one after that", $s);
	is(count('t'), 2, "$name: the last one is run");
}

# statement_timeout bounds a pause before a transaction, not one after it.
commit_suspended($s, 'INSERT INTO t VALUES (80)', "SET statement_timeout = '300ms'");
ok($dt->wait_paused($s, 'after transaction'), 'statement_timeout: it stops');
ok(!$s->finished(0.5), 'statement_timeout: not after a transaction');
$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
is($s->wait->{sqlstate}, undef, 'statement_timeout: it has committed');
$r = $s->run('INSERT INTO t VALUES (81)');
is($r->{sqlstate}, '57014', 'statement_timeout: before a transaction');
cmp_ok($r->{ms}, '>=', 300, 'statement_timeout: before a transaction: ms');
resume();
$s->query('RESET statement_timeout');

# An idle session does not get anything done then.
$dt->sql('TRUNCATE t');
my $idle = $dt->session(group => 'grp_a');
suspend();
$idle->send('INSERT INTO t VALUES (1)');
check_suspended('an idle session', $idle, undef);
$outsider->send('BEGIN; LOCK t IN ACCESS EXCLUSIVE MODE; COMMIT');
$outsider->finished(0.3);
check_stays('an idle session', $idle);
check_resume('an idle session', $idle);
$outsider->wait;
is(count('t'), 1, 'an idle session: then it does it');

# statement_timeout
$idle->query("SET statement_timeout = '600ms'");
suspend();
$idle->send('INSERT INTO t SELECT i FROM generate_series(1, 2) i');
$r = $idle->wait;
is($r->{sqlstate}, '57014', 'an idle session, statement_timeout: the error');
cmp_ok($r->{ms}, '>=', 600, 'an idle session, statement_timeout: ms');
resume();
$idle->query('RESET statement_timeout');

# ---------------------------------------------------- nobody else notices

suspend();
my $other = $dt->session(group => 'grp_b');
$s->send($MAY_WRITE);
ok($dt->wait_paused($s), 'one is suspended');
$other->query('INSERT INTO other ' . rows(100));
$outsider->query('SELECT count(*) FROM hot');
ok(defined $dt->session_row($s)->{paused_since},
	'others, in another group and in none, work meanwhile');
is($dt->group_row('grp_b')->{paused}, 0,
	'another group: nobody pauses');

# Out of it, into it
$dt->sql('SELECT set_session_group(' . $s->pid . ", 'grp_b')");
ok($s->finished($TIMEOUT), 'moved out of a suspended group: it goes on');
$s->wait;
$dt->sql('SELECT set_session_group(' . $other->pid . ", 'grp_a')");
$other->send($MAY_WRITE);
ok($dt->wait_paused($other), 'moved into a suspended group: it stops');
$dt->sql('SELECT set_session_group(' . $other->pid . ', NULL)');
ok($other->finished($TIMEOUT), 'and released');
$other->wait;
$other->quit;
resume();

# A new member of a suspended group logs in all the same.
$dt->sql(q{CREATE ROLE batch LOGIN; ALTER ROLE batch SET dirty_throttle."group" = 'grp_a';
	GRANT ALL ON t TO batch});
suspend();
my $login = fork // die "fork: $!";
if ($login == 0)
{
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	exec 'psql', '-Xq', '-d', $dt->node->connstr('postgres') . ' user=batch',
	  '-c', 'INSERT INTO t VALUES (-2)';
}
ok( poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM dirty_throttle_sessions
				WHERE usename = 'batch' AND paused_by = 'suspend_group'") == 1;
		}),
	'a new session stops');
is($dt->sql('SELECT count(*) FROM t WHERE id = -2'), 0,
	'before its first statement that writes');
$dt->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE usename = 'batch'");
waitpid $login, 0;
$dt->sql('SELECT set_session_group(' . $s->pid . ', NULL)');
$s->query(q{SET dirty_throttle."group" = 'grp_b'});

# The one that has stopped in the beginning
ok(!$stays->finished, 'it has not gone on by itself');
$row = $dt->session_row($stays);
is("$row->{pauses} $row->{paused_by}", '1 suspend_group', 'it has stopped once');
$dt->sql("SELECT resume_group('grp_s')");
is($stays->wait->{sqlstate}, undef, 'it goes on');
$stays->quit;

# --------------------------------------- renamed, dropped, switched off

$s->query("BEGIN; $MAY_WRITE");
$s->query(q{SET dirty_throttle."group" = 'grp_a'});
$s->send('COMMIT');
ok($dt->wait_paused($s, 'after transaction'), 'it joins a suspended group');
$dt->sql("SELECT rename_resource_group('grp_a', 'grp_c')");
ok(defined $dt->group_row('grp_c')->{suspended_since},
	'renamed: the group is still suspended');
ok(!$s->finished(0.2), 'renamed: so is the member');
$dt->sql("SELECT rename_resource_group('grp_c', 'grp_a')");
is($outsider->run("SELECT drop_resource_group('grp_a')")->{sqlstate},
	'55006', 'it is in use');
$dt->sql("SELECT drop_resource_group('grp_a', force => true)");
is($s->wait->{sqlstate}, undef, 'dropped by force: it goes on');
$s->quit;
$idle->quit;
$dt->limit(grp_a => 0);
ok(!defined $dt->group_row('grp_a')->{suspended_since},
	'a new group of that name is not suspended');

{
	my $name = 'dirty_throttle.enabled = off';

	$s = $dt->session(group => 'grp_a');
	start($s, $long_insert);
	suspend();
	go_on();
	ok($dt->wait_paused($s), "$name: it is suspended");
	$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
	$dt->sql('SELECT pg_reload_conf()');
	ok($s->finished($TIMEOUT), "$name: it goes on");
	$s->wait;
	poll_until(sub { $s->query('SHOW dirty_throttle.enabled') eq 'off' });
	ok(defined $dt->group_row('grp_a')->{suspended_since},
		"$name: the group is suspended all the same");
	$dt->sql('ALTER SYSTEM RESET dirty_throttle.enabled');
	$dt->sql('SELECT pg_reload_conf()');
	poll_until(sub { $dt->sql('SHOW dirty_throttle.enabled') eq 'on' });
	$s->send($MAY_WRITE);
	ok($dt->wait_paused($s), "$name: and on: it stops again");
	resume();
	$s->wait;
	$s->quit;
}

# --------------------------------------------------------- one's own group

# A session that suspends the group that it is in gets its prompt back, and can resume it.
{
	my $name = "one's own group";
	my $other = $dt->session(group => 'grp_a');

	$s = $dt->session(group => 'grp_a');
	$s->send(q{SELECT suspend_group('grp_a')});
	ok($s->finished(180), "$name: the session that has suspended it goes on")
	  or resume();
	is($s->wait->{sqlstate}, undef, "$name: without an error");
	$other->send($MAY_WRITE);
	ok($dt->wait_paused($other), "$name: the others stop");
	$s->query("SELECT resume_group('grp_a')");
	is($other->wait->{sqlstate}, undef, "$name: it resumes the group");
	suspend();
	$s->send($MAY_WRITE);
	ok($dt->wait_paused($s), "$name: what writes stops");
	resume();
	$s->wait;
	$_->quit foreach $s, $other;
}

# ---------------------------------------------------------------- the end

# Terminated, wherever they are
foreach my $where ('after transaction', 'before a transaction')
{
	my $name = "terminated $where";

	$s = $dt->session(group => 'grp_a');
	if ($where eq 'after transaction')
	{
		commit_suspended($s, $MAY_WRITE);
	}
	else
	{
		suspend();
		$s->send($MAY_WRITE);
	}
	ok($dt->wait_paused($s, $where =~ /after/ ? $where : 'in flight'),
		"$name: it is suspended");
	$dt->terminate_ms($s);
	ok( poll_until(
			sub {
				my $g = $dt->group_row('grp_a');
				"$g->{members} $g->{paused}" eq '0 0';
			}),
		"$name: no member, no pause");
	resume();
}

# A fast shutdown does not wait for a session after its transaction, one before it
# or an idle one; and the suspension is not durable.
my @three = map { $dt->session(group => 'grp_a') } 1 .. 3;
commit_suspended($three[0], $MAY_WRITE);
ok($dt->wait_paused($three[0], 'after transaction'), 'one is suspended');
$three[1]->send($MAY_WRITE);
ok($dt->wait_paused($three[1], 'in flight'), 'and another one');
$dt->stop('fast');
pass('a fast shutdown');
$_->quit foreach @three;
$dt->node->start;
$row = $dt->group_row('grp_a');
ok(!defined $row->{suspended_since}, 'after a restart: the group is not suspended');
$s = $dt->session(group => 'grp_a');
$s->send('INSERT INTO t VALUES (1)');
ok($s->finished($TIMEOUT), 'after a restart: nobody stops');
$s->wait;
$s->quit;

$dt->finish;
