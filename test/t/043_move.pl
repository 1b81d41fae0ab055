# set_session_group(): a session is in another group when the function
# returns, whatever it does at that moment.  It is slowed down or let go at
# once, every block is charged to one of the two groups, the old one keeps the
# debt, and nothing that the session does undoes it.
#
# expect-in-log: WARNING:  resource group "[a-z_]+" does not exist
# takes-about: 25 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my ($fast, $slow) = (20000, 5000);    # KB/s
my $n = 600;                          # blocks: about 0.25 s at the first

# With wal_level minimal a commit dirties buffers that EXPLAIN does not see.
my $dt = DirtyThrottle->new(
	'move',
	init => [ allows_streaming => 1 ],
	conf => q{
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
$dt->limit(fast => $fast);
$dt->limit(slow => $slow);
$dt->limit(free => 0);
$dt->limit(sleepy => 1);
$dt->create_sleep_tables;
my $columns = '(id int, filler text) WITH (fillfactor = 10, parallel_workers = 2)';
my $filler = "repeat('x', 800)";

sub move
{
	my ($session, $group) = @_;
	my $to = defined $group ? "'$group'" : 'NULL';

	$dt->sql('SELECT set_session_group(' . $session->pid . ", $to)");
}

# The group that everybody sees a session in, and whether it was moved there.
sub place
{
	my ($session) = @_;
	my $row = $dt->session_row($session);

	return 'none' unless $row;
	return $row->{group_name} . ($row->{moved} eq 'true' ? ', moved' : '');
}

# The view is asked first: a statement of the session itself could mend what
# the move has left undone.
sub check_place
{
	my ($name, $session, $expected) = @_;
	my ($group) = $expected =~ /^(\w+)/;

	is(place($session), $expected, "$name: the view");
	is($session->query('SHOW dirty_throttle."group"'),
		$group eq 'none' ? '' : $group, "$name: SHOW");
	is(place($session), $expected, "$name: after that, too");
}

sub group_blocks
{
	my ($group) = @_;
	return $dt->group_row($group)->{blocks_dirtied};
}

# Forget what was owed and credited so far.
sub fresh_limit
{
	my ($group, $kb) = @_;

	$dt->limit($group => 0);
	$dt->limit($group => $kb);
}

# An empty table, one with rows that nobody has looked at, and catalogs in
# which nothing is left to be done: what a statement dirties then is what
# EXPLAIN says.
sub create_tables
{
	my ($fresh) = @_;

	$fresh //= $n;
	$dt->sql("DROP TABLE IF EXISTS t, fresh; CREATE TABLE t $columns;
		CREATE TABLE fresh $columns");
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql("INSERT INTO fresh SELECT i, $filler FROM generate_series(1, $fresh) i");
	$dt->sql('VACUUM (FREEZE) pg_class; SELECT count(*) FROM pg_class');
	$dt->sql('CHECKPOINT');
}

sub explained_blocks
{
	my ($out) = @_;
	my ($execution) = $out =~ /"Shared Dirtied Blocks": (\d+)/;
	my ($planning) =
	  $out =~ /"Planning": \{[^}]*"Shared Dirtied Blocks": (\d+)/;

	return $execution + ($planning // 0);
}

my $copied = PostgreSQL::Test::Utils::tempdir() . '/copy.data';
append_to_file($copied,
	join('', map { "$_\t" . 'x' x 800 . "\n" } 1 .. $n));

my $explain = 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)';

# To set hint bits in all of the pages takes less CPU time than the timer tells, which
# finds what a worker has used if that began late; so it computes something, too.
my @statements = (
	[ INSERT => "$explain INSERT INTO t
		SELECT i, $filler FROM generate_series(1, $n) i" ],
	[ COPY => "COPY t FROM '$copied'" ],
	[ 'parallel query' => "$explain SELECT count(*) FROM fresh
		WHERE md5(repeat(filler, 50)) <> ''" ],
	[ VACUUM => 'VACUUM fresh' ]);

my $s = $dt->session;
$s->query('SET max_parallel_workers_per_gather = 2');

# ------------------------------------------- in the middle of a statement

# A group in which nobody has left anything to pay.
my $stuck = 0;

sub stuck_group
{
	my $group = 'stuck_' . ++$stuck;

	$dt->limit($group => 10);
	return $group;
}

# It sleeps in the first group, where it would do so for minutes, and goes on in
# the second one at that one's rate.
sub check_move
{
	my ($name, $sql, $to) = @_;
	my ($r, $at_move);
	my $from = stuck_group();

	# these do a lot before they are asked to pause
	create_tables($name =~ /parallel|VACUUM/ ? 8 * $n : $n);
	move($s, undef);
	$s->query("SET dirty_throttle.\"group\" = '$from'");
	$s->query('EXPLAIN SELECT * FROM t, fresh');
	my $first = group_blocks($from);
	$s->send($sql);
	ok(poll_until(sub { group_blocks($from) > $first }), "$name: it runs");
	my $moved = $dt->check_limit(
		$name, $to,
		sub {
			move($s, $to);
			is(place($s), "$to, moved", "$name: it is moved at once");
			$at_move = group_blocks($from);
			return $s->wait;
		},
		limit => $to eq 'fast' ? $fast : $slow);
	$r = $moved->{result};
	is($r->{sqlstate}, undef, "$name: no error") or diag $r->{err};
	is(group_blocks($from), $at_move, "$name: the old group is charged no more");
	cmp_ok($moved->{blocks}, '>', 0, "$name: blocks of the new group");
	is( $at_move - $first + $moved->{blocks},
		explained_blocks($r->{out}),
		"$name: blocks of both groups")
	  if $sql =~ /EXPLAIN/;
	is($dt->group_row($_)->{paused}, 0, "$name: nobody pauses in $_")
	  foreach $from, $to;
	is($dt->group_row($from)->{members}, 0, "$name: the old group");
	is($dt->group_row($to)->{members}, 1, "$name: the new one");
	$dt->limit($from => 0);    # it has left a debt there, and would pay when it is back
}

foreach my $statement (@statements)
{
	my ($name, $sql) = @$statement;

	check_move("$name, to fast", $sql, 'fast');
	check_move("$name, to slow", $sql, 'slow') if $name !~ /parallel/;
}

# To and fro: no block is lost, and none is charged twice.
foreach my $statement (grep { $_->[1] =~ /EXPLAIN/ } @statements)
{
	my ($name, $sql) = @$statement;
	my ($here, $there) = ('fast', 'fast_too');
	my $moves = 0;

	create_tables();
	$dt->limit($_ => $fast / 8) foreach $here, $there;
	move($s, undef);
	$s->query("SET dirty_throttle.\"group\" = '$here'");
	$s->query('EXPLAIN SELECT * FROM t, fresh');
	my %before = map { $_ => group_blocks($_) } $here, $there;
	$s->send($sql);
	while (!$s->finished(0.002))
	{
		($here, $there) = ($there, $here);
		move($s, $here);
		$moves++;
	}
	my $r = $s->wait;
	my @blocks = map { group_blocks($_) - $before{$_} } sort keys %before;
	note "$name: $moves moves, blocks: @blocks";
	ok($moves > 0, "$name, to and fro: moved");
	is($blocks[0] + $blocks[1], explained_blocks($r->{out}),
		"$name, to and fro: blocks");
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*) FROM dirty_throttle_groups
					WHERE group_name ~ '^fast'
					  AND (dirty_debt > 0 OR paused > 0)") == 0;
			}),
		"$name, to and fro: all is paid");
	is( $dt->sql("SELECT sum(members) FROM dirty_throttle_groups"),
		1, "$name, to and fro: it is one member");
}

# -------------------------------------------------------- from no group

# What runs for long, and is moved into a group, pauses there; out of it, it goes
# on, and is not charged any more.
foreach my $case (
	[ 'INSERT ... SELECT', "INSERT INTO long SELECT i, $filler
		FROM (SELECT i, pg_sleep(0.001) FROM generate_series(1, 500000) i OFFSET 0) q" ],
	[ 'a DO loop', "DO \$\$ BEGIN FOR i IN 1..500000 LOOP
		INSERT INTO long VALUES (i, $filler);
		PERFORM pg_sleep(0.001); END LOOP; END \$\$" ])
{
	my ($name, $sql) = @$case;
	my $outsider = $dt->session;
	my $grows = sub {
		my $size = "SELECT pg_relation_size('long')";
		my $before = $dt->sql($size);
		return poll_until(sub { $dt->sql($size) > $before + 100000 });
	};

	$dt->sql("DROP TABLE IF EXISTS long; CREATE TABLE long $columns");
	my $group = stuck_group();
	$outsider->send($sql);
	ok($grows->(), "$name in no group: it works");
	move($outsider, $group);
	is(place($outsider), "$group, moved", "$name in no group: is moved at once");
	ok($dt->wait_paused($outsider, 'in flight'), "$name in no group: and pauses");
	move($outsider, undef);
	is(place($outsider), 'none', "$name: it is released at once");
	my $blocks = group_blocks($group);
	ok($grows->(), "$name: and goes on");
	is(group_blocks($group), $blocks, "$name: nor is it charged");
	$dt->cancel_ms($outsider);
	$outsider->quit;
}

# It may wait for a lock meanwhile: it pauses when it has got that.
foreach my $case (
	[ 'INSERT ... SELECT', "INSERT INTO long SELECT i, $filler
		FROM pg_advisory_xact_lock(43), generate_series(1, 20000) i" ],
	[ 'COPY', "COPY long (id) FROM PROGRAM 'seq 1 1000000'" ])
{
	my ($name, $sql) = @$case;
	my ($outsider, $locker) = ($dt->session, $dt->session);

	$dt->sql("DROP TABLE IF EXISTS long; CREATE TABLE long $columns");
	my $group = stuck_group();
	$locker->query('BEGIN; LOCK long; SELECT pg_advisory_xact_lock(43)');
	$outsider->send($sql);
	ok( poll_until(
			sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') == 1 }),
		"$name in no group: it waits for a lock");
	move($outsider, $group);
	$locker->query('COMMIT');
	ok($dt->wait_paused($outsider, 'in flight'),
		"$name in no group: moved while it waits, and pauses");
	$dt->cancel_ms($outsider);
	$_->quit foreach $outsider, $locker;
}

# COPY gets no safe points when it is under way: it comes to its end, and
# what follows is throttled.
{
	my $outsider = $dt->session;

	fresh_limit(slow => 5000);
	my $go_on = $dt->node->data_dir . '/go_on';
	$outsider->send("COPY sleep (id) FROM PROGRAM 'seq 1 20000;
		while [ ! -e $go_on ]; do sleep 0.05; done; seq 1 500'");
	poll_until(
		sub {
			$dt->sql('SELECT count(*) FROM pg_stat_progress_copy
				WHERE tuples_processed > 0') eq '1';
		});
	move($outsider, 'slow');
	is(place($outsider), 'slow, moved', 'COPY in no group: is moved at once');
	append_to_file($go_on, '');
	is($outsider->wait->{sqlstate}, undef, 'COPY in no group: no error');
	is($outsider->query('SELECT count(*) FROM sleep'),
		20500, 'COPY in no group: all rows');
	check_place('COPY in no group', $outsider, 'slow, moved');
	$outsider->send("INSERT INTO sleep
		SELECT i, $filler FROM generate_series(1, 50000) i");
	ok($dt->wait_paused($outsider, 'in flight'),
		'COPY in no group: then it is throttled');
	$dt->cancel_ms($outsider);
	$outsider->quit;
}
$dt->limit(slow => $slow);

# ------------------------------------------------------------- who sleeps

# A new member of the group of the lowest limit, which sleeps in this way,
# and has a debt.
sub sleeper
{
	my ($kind) = @_;
	my $sleeper = $dt->session(group => 'sleepy');

	$dt->put_to_sleep($sleeper, 'sleepy', $kind);
	return $sleeper;
}

# It is moved, and goes on.  What it owes stays behind.  One that sleeps at
# checks works a little between two pauses, so its debt may grow until then.
sub check_wake
{
	my ($name, $sleeper, $to) = @_;
	my $expected = $to ne '' ? "$to, moved" : 'none';
	my $start = time;
	my $before = group_blocks('sleepy');
	my $debt = $dt->group_row('sleepy')->{dirty_debt};
	my $r;

	move($sleeper, $to);
	$r = $sleeper->wait;
	is($r->{sqlstate}, undef, "$name: no error");
	my $left = $dt->group_row('sleepy')->{dirty_debt};
	my $more = (group_blocks('sleepy') - $before) * $dt->block_kb;
	cmp_ok($left, '<=', $debt + $more,
		"$name: the old group keeps the debt: KB");
	cmp_ok($left, '>=', $debt - (time - $start) - 1, "$name: nearly: KB");
	is($dt->group_row('sleepy')->{paused},
		0, "$name: nobody pauses in the old group");
	is($dt->group_row('sleepy')->{members},
		0, "$name: nobody is in the old group");
	is($dt->session_row($sleeper)->{dirty_debt}, 0, "$name: it owes nothing")
	  if $expected ne 'none';
	check_place($name, $sleeper, $expected);
	is($sleeper->run('INSERT INTO rewrite VALUES (0)')->{sqlstate},
		undef, "$name: its next statement does not pay");
	$dt->sql('DELETE FROM rewrite WHERE id = 0');
}

foreach my $kind (sort keys %DirtyThrottle::KINDS)
{
	foreach my $to ('free', '')
	{
		my $name = "asleep $kind, moved to '$to'";
		my $sleeper = sleeper($kind);

		check_wake($name, $sleeper, $to);
		$sleeper->quit;
	}
}

# The pause that was evaded, before a transaction
{
	my $sleeper = sleeper('after commit');

	$dt->cancel_ms($sleeper);
	$sleeper->send($MAY_WRITE);
	ok($dt->wait_paused($sleeper, 'in flight'), 'asleep before a transaction');
	check_wake('asleep before a transaction', $sleeper, 'free');
	$sleeper->quit;
}
# Into another group in which there is something to pay for, it goes on, and
# pays there what it dirties there.
{
	my $sleeper = sleeper('in flight');

	$dt->limit(sleepy_too => 1);
	move($sleeper, 'sleepy_too');
	ok( poll_until(
			sub {
				my $row = $dt->session_row($sleeper);
				$row->{group_name} eq 'sleepy_too'
				  && defined $row->{paused_since}
				  && $row->{blocks_dirtied} > 0;
			}),
		'moved from limit to limit: it goes on, and sleeps there');
	is($dt->group_row('sleepy')->{paused},
		0, 'moved from limit to limit: nobody pauses in the old group');
	is($dt->group_row('sleepy_too')->{paused},
		1, 'moved from limit to limit: but in the new one');
	$dt->cancel_ms($sleeper);
	$sleeper->quit;
}

# The old group repays at its own rate.
{
	my $sleeper = sleeper('after commit');
	my $repaid = 200;    # KB/s, for a debt of 400 KB and more

	$dt->limit(sleepy => $repaid);
	move($sleeper, '');
	is($sleeper->wait->{sqlstate}, undef, 'a debt is left');
	$dt->check_limit('the old group repays', 'sleepy', sub { sleep 0.2 });
	$dt->limit(sleepy => 2000);
	ok(poll_until(sub { $dt->group_row('sleepy')->{dirty_debt} == 0 }), 'to the end');
	$sleeper->quit;
}

# ---------------------------------------------------- what ends a move

# Not the session, whatever it does with the parameter.
move($s, undef);
$s->query(q{SET dirty_throttle."group" = 'fast'});
check_place('SET', $s, 'fast');
move($s, 'free');
check_place('moved', $s, 'free, moved');
is($dt->session_row($s)->{blocks_dirtied}, 0,
	'moved: counters begin in the new group');
foreach my $sql (
	q{SET dirty_throttle."group" = 'fast'},
	q{SET dirty_throttle."group" = 'free'},
	q{SET dirty_throttle."group" = ''},
	'RESET dirty_throttle."group"',
	'DISCARD ALL',
	q{BEGIN; SET LOCAL dirty_throttle."group" = 'fast'; COMMIT},
	q{BEGIN; SET dirty_throttle."group" = 'fast'; ROLLBACK},
	q{SET dirty_throttle."group" = 'slow'})
{
	$s->query($sql);
	check_place("moved, $sql", $s, 'free, moved');
}
$s->query('SET max_parallel_workers_per_gather = 2');
$s->query(q{BEGIN; SET LOCAL dirty_throttle."group" = 'fast'});
move($s, 'fast');
is(place($s), 'fast, moved', 'moved while SET LOCAL is in force');
$s->query('COMMIT');
check_place('moved, the end of SET LOCAL', $s, 'fast, moved');

# NULL does: then what the parameter says counts from the next statement on.
move($s, undef);
is(place($s), 'none', 'the end of a move');
$s->query('SELECT 1');
check_place('the next statement', $s, 'slow');
move($s, undef);
check_place('NULL for who was not moved', $s, 'slow');
move($s, '');
check_place('moved out', $s, 'none');
$s->query(q{SET dirty_throttle."group" = 'fast'});
check_place('moved out, SET', $s, 'none');
move($s, undef);
$s->query('SELECT 1');
check_place('moved out, the end of that', $s, 'fast');
$s->query('RESET dirty_throttle."group"');

# The transaction has ended, its pause has not.
$dt->limit(sleepy => 0);
$dt->limit(sleepy => 1);
$s->send(DirtyThrottle::pays_after(
		'BEGIN; SET LOCAL dirty_throttle."group" = \'sleepy\';'
		  . ' ALTER TABLE rewrite ALTER id TYPE int USING id + 1; COMMIT'));
ok($dt->wait_paused($s, 'after transaction'), 'SET LOCAL, and a pause');
is(place($s), 'sleepy', 'SET LOCAL: it pays to that group');
move($s, 'free');
is($s->wait->{sqlstate}, undef, 'moved in the pause after SET LOCAL: no error');
check_place('moved in the pause after SET LOCAL', $s, 'free, moved');

$s->query('BEGIN; SELECT 1; ROLLBACK');
is($s->run('SELECT 1/0')->{sqlstate}, '22012', 'an error');
$s->query("SET work_mem = '1MB'");
$dt->sql('SELECT pg_reload_conf()');
sleep 0.1;
check_place('transactions, errors, a reload', $s, 'free, moved');
$dt->sql("SELECT rename_resource_group('free', 'freed')");
check_place('the group is renamed', $s, 'freed, moved');
$dt->sql("SELECT rename_resource_group('freed', 'free')");
move($s, 'free');
check_place('moved to where it is', $s, 'free, moved');
move($s, 'fast');
check_place('moved again', $s, 'fast, moved');

# Its own process ID
$s->query("SELECT set_session_group(pg_backend_pid(), 'slow')");
check_place('moves itself', $s, 'slow, moved');
$s->query("SELECT set_session_group(pg_backend_pid(), NULL)");
check_place('releases itself', $s, 'none');
my $own = stuck_group();
$s->query("SELECT set_session_group(pg_backend_pid(), '$own')");
$s->send("INSERT INTO sleep SELECT i, $filler FROM generate_series(1, 50) i");
ok($dt->wait_paused($s, 'in flight'), 'moves itself: and is throttled');
move($s, undef);
is($s->wait->{sqlstate}, undef, 'until it is released');

# A reload of the configuration does not end a move either.
$dt->sql('CREATE ROLE app LOGIN');
$dt->sql(q{ALTER SYSTEM SET dirty_throttle."group" = 'free'});
$dt->sql('SELECT pg_reload_conf()');
{
	my $member = $dt->session(user => 'app');

	# which sees the reload when it does something, if it is older
	poll_until(sub { $member->query('SELECT 1'); place($member) eq 'free' });
	check_place("the server's default", $member, 'free');
	move($member, 'fast');
	# who begins later than the others have been told
	my $reload = sub {
		my ($to) = @_;

		$dt->sql('SELECT pg_reload_conf()');
		poll_until(sub { my $new = $dt->session(user => 'app'); $new->query('SELECT 1'); my $is = place($new); $new->quit; $is eq $to });
	};
	foreach my $to ('free', 'slow')
	{
		$dt->sql(qq{ALTER SYSTEM SET dirty_throttle."group" = '$to'});
		$reload->($to);
		check_place("moved from the server's default, which is $to now",
			$member, 'fast, moved');
	}
	move($member, undef);
	$member->query('SELECT 1');
	check_place("the end of that: the server's default", $member, 'slow');

	# the server has no default any more
	move($member, 'fast');
	$dt->sql(q{ALTER SYSTEM RESET dirty_throttle."group"});
	$reload->('none');
	check_place('moved, and no default any more', $member, 'fast, moved');
	move($member, undef);
	$member->query('SELECT 1');
	check_place('the end of that: no group', $member, 'none');
	$member->quit;
}

# The group goes, so does the membership.  What the session itself has set is
# in force again, from its next statement on.
move($s, undef);
$s->query(q{SET dirty_throttle."group" = 'slow'});
$dt->limit(doomed => 1);
move($s, 'doomed');
$dt->limit(doomed => 0);
$dt->limit(doomed => 1);
$s->send("INSERT INTO sleep SELECT i, $filler FROM generate_series(1, 50) i");
ok($dt->wait_paused($s, 'in flight'), 'the group of a moved session');
is($dt->session->run("SELECT drop_resource_group('doomed')")->{sqlstate},
	'55006', 'it is in use');
$dt->sql("SELECT drop_resource_group('doomed', force => true)");
is($s->wait->{sqlstate}, undef, 'dropped by force: no error');
isnt(place($s), 'doomed, moved', 'dropped by force: the view');
is($s->run('INSERT INTO rewrite VALUES (0)')->{err}, '',
	'dropped by force: it works on');
check_place('dropped by force', $s, 'slow');

# ------------------------------------------------ who cannot end it

$dt->sql(q{CREATE ROLE free_app LOGIN;
	ALTER ROLE free_app SET dirty_throttle."group" = 'free';
	SELECT grant_group_use('free', 'app'), grant_group_use('free', 'free_app')});
foreach my $user ('app', 'free_app')
{
	my $member = $dt->session(user => $user);
	my $name = "$user, moved";

	move($member, 'slow');
	check_place($name, $member, 'slow, moved');
	foreach my $sql ('DISCARD ALL', 'RESET ALL', 'DISCARD ALL',
		'RESET SESSION AUTHORIZATION')
	{
		$member->run($sql);
		check_place("$name, $sql", $member, 'slow, moved');
	}
	foreach my $sql (
		'RESET dirty_throttle."group"',
		q{SET dirty_throttle."group" = ''},
		q{BEGIN; SET LOCAL dirty_throttle."group" = 'free'; COMMIT},
		q{SELECT set_config('dirty_throttle.group', 'free', false)},
		'SELECT set_session_group(pg_backend_pid(), NULL)')
	{
		is($member->run($sql)->{sqlstate}, '42501', "$name, $sql: not allowed");
	}
	is($member->run("SELECT join_group('free')")->{sqlstate},
		'55000', "$name: it cannot join");
	is($member->run('SELECT join_group(NULL)')->{sqlstate},
		'55000', "$name: nor leave");
	check_place("$name, after all of this", $member, 'slow, moved');

	# which are the means, once it is let go
	move($member, undef);
	$member->query('SELECT 1');
	check_place("$user, released", $member, $user eq 'app' ? 'none' : 'free');
	$member->quit;
}

# What it has joined before it was moved is not a way out either.
{
	my $member = $dt->session(user => 'app');

	$member->query("SELECT join_group('free')");
	check_place('joined', $member, 'free');
	move($member, 'slow');
	check_place('joined, then moved', $member, 'slow, moved');
	foreach my $sql ('DISCARD ALL', 'RESET ALL')
	{
		$member->query($sql);
		check_place("joined, then moved, $sql", $member, 'slow, moved');
	}
	$member->quit;

	$member = $dt->session(user => 'app');
	$member->query("BEGIN; SELECT join_group('free')");
	move($member, 'slow');
	$member->query('ROLLBACK');
	check_place('joined, then moved, ROLLBACK', $member, 'slow, moved');
	$member->quit;
}

# ------------------------------------------------------------------ errors

sub check_error
{
	my ($name, $session, $pid, $group, $sqlstate) = @_;
	my $r = $session->run("SELECT set_session_group($pid, $group)");

	is($r->{sqlstate}, $sqlstate, "$name: the error") or diag $r->{err};
}

my $me = $dt->session;
my $pid = $s->pid;
foreach my $unknown (0, -1, 2147483647, -2147483648)
{
	check_error("process ID $unknown", $me, "'$unknown'", "'slow'", '42704');
}
my $gone = $dt->session;
$gone->quit;
poll_until(
	sub {
		$dt->sql('SELECT count(*) FROM pg_stat_activity WHERE pid = '
			  . $gone->pid) == 0;
	});
check_error('a session that has gone', $me, $gone->pid, "'slow'", '42704');
check_error('no such group', $me, $pid, "'nobody'", '42704');
check_error('a name too long', $me, $pid, "repeat('x', 64)", '22023');
check_error('no process ID', $me, 'NULL', "'slow'", '22004');
foreach my $type ('checkpointer', 'background writer', 'walwriter',
	'logical replication launcher')
{
	check_error($type, $me,
		"(SELECT pid FROM pg_stat_activity WHERE backend_type = '$type')",
		"'slow'", '55000');
}

# so much that workers do not come to its end before they pause
my $many = 40000;
create_tables($many);
$s->query(q{SET dirty_throttle."group" = 'slow'});
fresh_limit(slow => 10);
$s->send('SELECT count(*) FROM fresh');
my $worker;
ok( poll_until(
		sub {
			$worker = $dt->sql("SELECT pid FROM pg_stat_activity
				WHERE backend_type = 'parallel worker' LIMIT 1");
		}),
	'a parallel worker');
check_error('a parallel worker', $me, $worker, "'free'", '55000');
is(place($s), 'slow', 'a parallel worker: its leader is not moved');
move($s, '');
is($s->wait->{out}, $many, 'its leader, released, comes to its end');
$dt->limit(slow => $slow);

# Who may EXECUTE it may move anybody.
$dt->sql('CREATE ROLE mover LOGIN; CREATE ROLE boss SUPERUSER LOGIN');
my $mover = $dt->session(user => 'mover');
my $app = $dt->session(user => 'app');
check_error('not granted', $mover, $app->pid, "'slow'", '42501');
$dt->sql('GRANT EXECUTE ON FUNCTION set_session_group TO mover');
check_error('granted', $mover, $app->pid, "'slow'", undef);
check_place('moved by another role', $app, 'slow, moved');
my $boss = $dt->session(user => 'boss');
check_error("granted, a superuser's session", $mover, $boss->pid, "'slow'", undef);
check_place('a superuser', $boss, 'slow, moved');
check_error('granted, his own', $mover, 'pg_backend_pid()', "'slow'", undef);
check_error('by a superuser', $boss, $mover->pid, 'NULL', undef);
check_place('released by another', $mover, 'none');
$_->quit foreach $mover, $app, $boss;

# --------------------------------------------------- they come and go

$dt->limit("race_$_" => $fast) foreach 'a', 'b';
$dt->sql("CREATE TABLE race $columns");
$dt->sql(
	q{CREATE FUNCTION move_all(OUT moved int, OUT gone int) LANGUAGE plpgsql AS $$
	DECLARE
		one int;
		place text;
	BEGIN
		moved := 0;
		gone := 0;
		FOR one IN SELECT pid FROM pg_stat_activity
			WHERE application_name = 'race' OR
				  (backend_type = 'client backend' AND application_name = '')
		LOOP
			place := (ARRAY['race_a', 'race_b', NULL, ''])[1 + floor(random() * 4)];
			BEGIN
				PERFORM set_session_group(one, place);
				moved := moved + 1;
			EXCEPTION
				-- not there any more, or not quite there yet
				WHEN undefined_object OR object_not_in_prerequisite_state THEN
					gone := gone + 1;
			END;
		END LOOP;
	END $$});

my $connection = $dt->node->connstr('postgres') . ' application_name=race';
my $insert = "INSERT INTO race SELECT i, $filler FROM generate_series(1, 20) i";
my @loops;
foreach my $group ('', 'race_a')
{
	my $loop = fork // die "fork: $!";
	if ($loop == 0)
	{
		$ENV{PGOPTIONS} = "-c dirty_throttle.group=$group";
		exec 'sh', '-c', 'i=0; while [ $i -lt 40 ]; do
			psql -Xq -d "$1" -c "$2" >/dev/null 2>&1; i=$((i + 1)); done',
		  'sh', $connection, $insert;
	}
	push @loops, $loop;
}
my ($moved, $not_there) = (0, 0);
while (@loops)
{
	my ($m, $g) = split /\|/, $dt->sql('SELECT * FROM move_all()');

	$moved += $m;
	$not_there += $g;
	@loops = grep { waitpid($_, 1) == 0 } @loops;    # WNOHANG
}
note "80 sessions: $moved moves, $not_there had gone";
ok($moved > 0, 'sessions that come and go are moved');
is($dt->sql('SELECT count(*) FROM race'), 1600, 'none of them has failed');
ok( poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM pg_stat_activity
				WHERE application_name IN ('race', '')
				  AND backend_type = 'client backend'") == 0;
		}),
	'all have gone');
foreach my $group ('race_a', 'race_b')
{
	my $row = $dt->group_row($group);

	is("$row->{members} $row->{paused}",
		'0 0', "$group: no member is left, nor a pause");
	is($dt->session->run("SELECT drop_resource_group('$group')")->{sqlstate},
		undef, "$group: not in use");
}
is( $dt->sql("SELECT count(*) FROM dirty_throttle_sessions s
		WHERE NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = s.pid)"),
	0, 'no phantoms');

# A process ID, or a place in shared memory, that was moved is nothing to who
# has it next.
$s->quit;
foreach (1 .. 20)
{
	my $next = $dt->session;

	die 'a new session is in group ' . place($next)
	  unless place($next) eq 'none';
	move($next, 'free');
	$next->quit;
}
pass('new sessions are in no group');

$dt->finish;
