# grant_group_use(): a role that may not set dirty_throttle."group" may join
# the groups that were opened to it, and leave them again, and nothing else.
# Grants follow their role and their group when these are renamed, go with
# them when they are dropped, and last over restarts.
#
# expect-in-log: WARNING:  resource group "[a-z_]+" does not exist

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 20000;    # KB/s

my $dt = DirtyThrottle::Life->new('grants', init => [ allows_streaming => 1 ]);
my $version = $dt->sql("SELECT current_setting('server_version_num')");
$dt->limit(grp_a => $limit);
$dt->limit(grp_b => 0);
$dt->limit(home => 0);
$dt->table('t');
$dt->sql(
	q{CREATE ROLE team; CREATE ROLE club;
	CREATE ROLE app LOGIN;
	CREATE ROLE child LOGIN IN ROLE team;
	CREATE ROLE grandchild LOGIN IN ROLE child;
	CREATE ROLE outcast LOGIN NOINHERIT IN ROLE team;
	CREATE ROLE stranger LOGIN;
	CREATE ROLE boss SUPERUSER LOGIN;
	CREATE ROLE resident LOGIN;
	ALTER ROLE resident SET dirty_throttle."group" = 'home';
	GRANT ALL ON t TO PUBLIC});

# All grants: 'grp_a:app grp_b:team'.
sub grants
{
	return $dt->sql(
		q{SELECT coalesce(string_agg(group_name || ':' || role_name, ' '
			ORDER BY group_name COLLATE "C", role_name COLLATE "C"), '')
		FROM dirty_throttle_groups, unnest(granted_to) AS role_name});
}

sub allow
{
	my ($group, $role) = @_;
	$dt->sql("SELECT grant_group_use('$group', '$role')");
}

# The group a session is in: what it says, and what the view says of it.
sub check_place
{
	my ($name, $s, $group) = @_;
	my $row = $dt->session_row($s);

	is($row ? $row->{group_name} : '', $group, "$name: the view");
	is($s->query('SHOW dirty_throttle."group"'), $group, "$name: SHOW");
}

# A call ends with this SQLSTATE, or undef.
sub check_call
{
	my ($name, $s, $call, $sqlstate) = @_;
	my $r = $s->run("SELECT $call");

	is($r->{sqlstate}, $sqlstate, "$name: $call") or diag $r->{err};
	return $r;
}

# ------------------------------------------------------------ join and leave

my $app = $dt->session(user => 'app');
check_call('not granted', $app, "join_group('grp_a')", '42501');
check_call('not granted', $app, 'leave_joined_group()', '55000');
check_place('not granted', $app, '');

allow('grp_a', 'app');
is(grants(), 'grp_a:app', 'the view of grants');
check_call('granted', $app, "join_group('grp_a')", undef);
check_place('granted', $app, 'grp_a');
is($dt->session_row($app)->{moved}, 'false', 'a session that has joined was not moved');
is($dt->group_row('grp_a')->{members}, 1, 'one member');
$dt->check_limit('a session that has joined', 'grp_a',
	sub { $app->query(insert_sql('t', 800)) }, limit => $limit);

# the group it has, and no other one
check_call('another group', $app, "join_group('grp_b')", '42501');
check_call('no group of that name', $app, "join_group('nobody')", '42704');
check_call('no name', $app, 'join_group(NULL)', '22004');
check_call('an empty name', $app, "join_group('')", '22023');
check_call('a long name', $app, "join_group(repeat('x', 64))", '22023');
foreach my $sql (
	q{SET dirty_throttle."group" = 'grp_a'},
	q{SET dirty_throttle."group" = ''},
	'RESET dirty_throttle."group"',
	q{BEGIN; SET LOCAL dirty_throttle."group" = 'grp_a'; COMMIT},
	q{SELECT set_config('dirty_throttle.group', 'grp_a', false)},
	q{ALTER ROLE app SET dirty_throttle."group" = 'grp_a'})
{
	is($app->run($sql)->{sqlstate}, '42501', "a grant is not the privilege to: $sql");
}
check_place('after all of this', $app, 'grp_a');
check_call('joined', $app, "join_group('grp_a')", undef);
check_place('joined twice', $app, 'grp_a');
check_call('joined', $app, 'leave_joined_group()', undef);
check_place('left', $app, '');
check_call('left', $app, 'leave_joined_group()', '55000');

# from group to group
allow('grp_b', 'app');
check_call('granted', $app, "join_group('grp_a')", undef);
check_call('granted', $app, "join_group('grp_b')", undef);
check_place('joined the second', $app, 'grp_b');
check_call('joined', $app, 'leave_joined_group()', undef);
check_place('left the second', $app, '');
$app->query("SELECT join_group('grp_a'), join_group('grp_b')");
check_place('both in one statement', $app, 'grp_b');
$app->query('SELECT leave_joined_group()');

# back to what his role's setting says
allow('grp_a', 'resident');
my $resident = $dt->session(user => 'resident');
check_place('a setting of the role', $resident, 'home');
check_call('in the group of his setting', $resident,
	'leave_joined_group()', '55000');
foreach my $leave ('SELECT leave_joined_group()', 'DISCARD ALL', 'RESET ALL')
{
	check_call('a setting of the role', $resident, "join_group('grp_a')", undef);
	check_place('joined from there', $resident, 'grp_a');
	$resident->query($leave);
	check_place($leave, $resident, 'home');
	check_call($leave, $resident, 'leave_joined_group()', '55000');
}

# ---------------------------------------------------------- transactional

$app->query("BEGIN; SELECT join_group('grp_a')");
check_place('in the transaction', $app, 'grp_a');
$app->query('ROLLBACK');
check_place('ROLLBACK of a join', $app, '');
check_call('ROLLBACK of a join', $app, 'leave_joined_group()', '55000');
$app->query("BEGIN; SELECT join_group('grp_a'); COMMIT");
check_place('COMMIT of a join', $app, 'grp_a');
$app->query('BEGIN; SELECT leave_joined_group()');
check_place('left in the transaction', $app, '');
$app->query('ROLLBACK');
check_place('ROLLBACK of a leave', $app, 'grp_a');
$app->query("BEGIN; SAVEPOINT a; SELECT join_group('grp_b'); ROLLBACK TO a; COMMIT");
check_place('ROLLBACK TO of a join', $app, 'grp_a');
is($app->run("BEGIN; SELECT join_group('grp_b'); SELECT 1/0; COMMIT")->{sqlstate},
	'22012', 'an error after a join');
check_place('an error after a join', $app, 'grp_a');
$app->query('SELECT leave_joined_group()');
check_place('left', $app, '');

# -------------------------------------------------------- whose privileges

$dt->sql(q{SELECT revoke_group_use('grp_b', 'app')});
is(grants(), 'grp_a:app grp_a:resident', 'taken back');
check_call('taken back', $app, "join_group('grp_b')", '42501');
check_call('the other one is still there', $app, "join_group('grp_a')", undef);
my $r = $dt->session->run("SELECT revoke_group_use('grp_b', 'app')");
is($r->{sqlstate}, undef, 'taken back twice: no error');
like($r->{err}, qr/NOTICE/, 'taken back twice: a notice');
$dt->sql(q{SELECT grant_group_use('grp_a', 'app')});
is(grants(), 'grp_a:app grp_a:resident', 'granted twice: once');

# who has joined stays
$dt->sql(q{SELECT revoke_group_use('grp_a', 'app')});
check_place('taken back from a member', $app, 'grp_a');
is($app->query('SELECT 1'), '1', 'taken back from a member: it works on');
check_call('taken back from a member', $app, 'leave_joined_group()', undef);
check_call('taken back from a member', $app, "join_group('grp_a')", '42501');

# roles that have the privileges of the role
allow('grp_b', 'team');
foreach my $case (
	[ child => undef ],
	[ grandchild => undef ],
	[ boss => undef ],
	[ outcast => '42501' ],
	[ stranger => '42501' ])
{
	my ($user, $sqlstate) = @$case;
	my $s = $dt->session(user => $user);

	check_call("$user, granted to team", $s, "join_group('grp_b')", $sqlstate);
	check_place("$user, granted to team", $s, defined $sqlstate ? '' : 'grp_b');
	$s->quit;
}

# the role that counts is the current one
{
	my $s = $dt->session(user => 'outcast');

	$s->query('SET ROLE team');
	check_call('SET ROLE', $s, "join_group('grp_b')", undef);
	$s->query('RESET ROLE');
	check_place('RESET ROLE', $s, 'grp_b');
	check_call('RESET ROLE', $s, 'leave_joined_group()', undef);
	$s->quit;

	$s = $dt->session(user => 'boss');
	check_call('a superuser, nothing granted', $s, "join_group('grp_a')", undef);
	check_place('a superuser, nothing granted', $s, 'grp_a');
	$s->query('SELECT leave_joined_group()');
	$s->query('SET ROLE stranger');
	check_call('a superuser as another', $s, "join_group('grp_a')", '42501');
	$s->quit;
}

# whose function it is that calls counts, and for whom: the session stays in the group
{
	my %runs = (child => undef, stranger => '42501', boss => undef);

	$dt->sql(
		q{CREATE TABLE guarded (i integer);
		GRANT INSERT ON guarded TO PUBLIC;
		CREATE FUNCTION join_b() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
			AS $$BEGIN PERFORM join_group('grp_b'); RETURN new; END$$;
		CREATE TRIGGER join_b BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION join_b();
		GRANT stranger TO child});
	foreach my $owner ('boss', 'child')
	{
		$dt->sql("ALTER FUNCTION join_b() OWNER TO $owner");
		foreach my $user (sort keys %runs)
		{
			my $s = $dt->session(user => $user);
			my $name = "a trigger of $owner, $user writes";

			is($s->run('INSERT INTO guarded VALUES (1)')->{sqlstate}, $runs{$user}, $name);
			check_place($name, $s, $runs{$user} ? '' : 'grp_b');
			$s->quit;
		}
	}

	# the role of SET ROLE, as a pooler uses it, and not the one that has logged in
	foreach my $case ([ child => 'stranger', '42501' ], [ outcast => 'team', undef ])
	{
		my ($user, $role, $sqlstate) = @$case;
		my $s = $dt->session(user => $user);
		my $name = "a trigger, $user writes as $role";

		$s->query("SET ROLE $role");
		is($s->run('INSERT INTO guarded VALUES (1)')->{sqlstate}, $sqlstate, $name);
		check_place($name, $s, $sqlstate ? '' : 'grp_b');
		$s->quit;
	}
	my $s = $dt->session(user => 'boss');
	$s->query('SET SESSION AUTHORIZATION stranger');
	is($s->run('INSERT INTO guarded VALUES (1)')->{sqlstate}, '42501',
		'a trigger, SET SESSION AUTHORIZATION');
	$s->quit;

	# a function of somebody who may not join it
	$dt->sql('ALTER FUNCTION join_b() OWNER TO stranger');
	$s = $dt->session(user => 'child');
	my $r = $s->run('INSERT INTO guarded VALUES (1)');
	is($r->{sqlstate}, '42501', 'a trigger of stranger');
	like($r->{err}, qr/grant_group_use\('grp_b', 'stranger'\)/, 'a trigger of stranger: the hint');
	$s->quit;
	$dt->sql('DROP TABLE guarded; DROP FUNCTION join_b(); REVOKE stranger FROM child');
}

# a membership that ends
{
	my $s = $dt->session(user => 'child');

	check_call('a member of the role', $s, "join_group('grp_b')", undef);
	$s->query('SELECT leave_joined_group()');
	$dt->sql('REVOKE team FROM child');
	check_call('not any more', $s, "join_group('grp_b')", '42501');
	$dt->sql('GRANT team TO child');
	check_call('and again', $s, "join_group('grp_b')", undef);
	$s->quit;
}

# a session that was moved
{
	my $s = $dt->session(user => 'child');

	$dt->sql('SELECT set_session_group(' . $s->pid . ", 'home')");
	check_call('moved', $s, "join_group('grp_b')", '55000');
	check_call('moved', $s, 'leave_joined_group()', '55000');
	check_place('moved', $s, 'home');
	$s->quit;
}

# ------------------------------------------------------------------ errors

my $dba = $dt->session;
foreach my $function ('grant_group_use', 'revoke_group_use')
{
	check_call('no such group', $dba, "$function('nobody', 'app')", '42704');
	check_call('no such role', $dba, "$function('grp_a', 'nobody')", '42704');
	check_call('no group', $dba, "$function(NULL, 'app')", '22004');
	check_call('no role', $dba, "$function('grp_a', NULL)", '22004');
	check_call('an empty name', $dba, "$function('', 'app')", '22023');
	check_call('a long name', $dba, "$function(repeat('x', 64), 'app')", '22023');
}
is(grants(), 'grp_a:resident grp_b:team', 'nothing has changed');

$dt->sql("BEGIN; SELECT grant_group_use('grp_a', 'club'); ROLLBACK");
$dt->sql("BEGIN; SELECT revoke_group_use('grp_b', 'team'); ROLLBACK");
is(grants(), 'grp_a:resident grp_b:team', 'nor has what is rolled back');

# everybody may see them
my $stranger = $dt->session(user => 'stranger');
is($stranger->query('SELECT sum(cardinality(granted_to)) FROM dirty_throttle_groups'),
	2, 'grants are for everybody to see');

# ----------------------------------------------------------------- durable

allow('grp_a', 'app');
my $all = grants();
$_->quit foreach $app, $resident, $stranger, $dba;
foreach my $mode ('fast', 'immediate')
{
	$dt->stop($mode);
	$dt->node->start;
	is(grants(), $all, "grants after a restart, $mode");
}
$app = $dt->session(user => 'app');
check_call('after a restart', $app, "join_group('grp_a')", undef);

# ------------------------------------------------------- roles and groups

my $before;

# renamed
$app->quit;
$dt->sql('ALTER ROLE app RENAME TO "App 2"');
is(grants(), 'grp_a:App 2 grp_a:resident grp_b:team', 'a role is renamed');
$dt->sql('BEGIN; ALTER ROLE "App 2" RENAME TO apple; ROLLBACK');
is(grants(), 'grp_a:App 2 grp_a:resident grp_b:team', 'or not');
$dt->sql('ALTER ROLE "App 2" RENAME TO app');
$dt->sql("SELECT rename_resource_group('grp_a', 'grp_z')");
is(grants(), 'grp_b:team grp_z:app grp_z:resident', 'a group is renamed');
$app = $dt->session(user => 'app');
check_call('a group is renamed', $app, "join_group('grp_z')", undef);
$app->quit;
$dt->stop;
$dt->node->start;
is(grants(), 'grp_b:team grp_z:app grp_z:resident', 'also after a restart');
$dt->sql("SELECT rename_resource_group('grp_z', 'grp_a')");

# a dropped group takes its grants with it
$dt->limit(brief => 0);
allow('brief', 'app');
allow('brief', 'team');
like(grants(), qr/brief:app brief:team/, 'grants of a group');
$dt->sql("SELECT drop_resource_group('brief')");
unlike(grants(), qr/brief/, 'a dropped group has none');
$dt->limit(brief => 0);
unlike(grants(), qr/brief/, 'nor has another one of that name');
$dt->stop;
$dt->node->start;
unlike(grants(), qr/brief/, 'also after a restart');
$dt->sql("SELECT drop_resource_group('brief')");

# a dropped role as well, once that is committed
$dt->sql('CREATE ROLE temp LOGIN');
allow('grp_a', 'temp');
allow('grp_b', 'temp');
my $with = grants();
like($with, qr/grp_a:temp.*grp_b:temp/, 'grants of a role');
my $without = $with =~ s/ ?grp_.:temp//gr;
foreach my $sql (
	'BEGIN; DROP ROLE temp; ROLLBACK',
	'BEGIN; SAVEPOINT a; DROP ROLE temp; ROLLBACK TO a; COMMIT',
	'BEGIN; DROP ROLE temp; SELECT 1/0; COMMIT',
	q{DO $$ BEGIN DROP ROLE temp; RAISE EXCEPTION 'no';
		EXCEPTION WHEN raise_exception THEN END $$})
{
	$dt->session->run($sql);
	is(grants(), $with, "kept: $sql");
}
{
	my $s = $dt->session;

	$s->query('BEGIN; DROP ROLE temp');
	is(grants(), $with, 'DROP ROLE, not yet committed: kept, for others');
	$s->query('COMMIT');
	is(grants(), $without, 'DROP ROLE: gone with the role');
}
$dt->sql('CREATE ROLE temp LOGIN');
is(grants(), $without, 'another role of that name has none');
$dt->stop('immediate');
$dt->node->start;
is(grants(), $without, 'DROP ROLE: also after a restart');
my $temp = $dt->session(user => 'temp');
check_call('another role of that name', $temp, "join_group('grp_a')", '42501');
$temp->quit;

allow('grp_a', 'temp');
allow('grp_a', 'club');
$dt->sql('BEGIN; SAVEPOINT a; DROP ROLE club; ROLLBACK TO a; DROP ROLE temp; COMMIT');
like(grants(), qr/grp_a:club/, 'two roles, one drop is rolled back: kept');
unlike(grants(), qr/temp/, 'two roles, the other one is not: gone');
$dt->sql('CREATE ROLE temp LOGIN; CREATE ROLE temp_too');
allow('grp_a', $_) foreach 'temp', 'temp_too';
$dt->sql('DROP ROLE temp, temp_too');
unlike(grants(), qr/temp/, 'two roles in one command');
$dt->sql('CREATE ROLE temp; DROP ROLE temp');    # without a grant
is($dt->sql('SELECT 1'), '1', 'a role without a grant is dropped');
like(grants(), qr/grp_a:club/, 'others are as they were');

# a role that comes and goes in a transaction
$dt->limit(brief => 0);
$before = grants();
{
	my $s = $dt->session;

	$s->query(q{BEGIN; CREATE ROLE fresh; SELECT grant_group_use('brief', 'fresh'); ROLLBACK; CREATE ROLE fresh});
	is(grants(), $before, 'CREATE ROLE and a grant, rolled back');
	$s->query(q{BEGIN; SELECT grant_group_use('brief', 'fresh'); DROP ROLE fresh; COMMIT; CREATE ROLE fresh});
	is(grants(), $before, 'a grant and DROP ROLE');
	$s->query(q{BEGIN; ALTER ROLE fresh RENAME TO fresher; SELECT grant_group_use('brief', 'fresher');
		ALTER ROLE fresher RENAME TO freshest; COMMIT});
	is(grants() =~ s/brief:freshest ?//r, $before, 'RENAME, a grant and RENAME');
	is(grants() =~ /brief:freshest/, 1, 'it has the last name');

	# who grants waits for who drops or renames
	foreach (
		[ 'DROP ROLE freshest', 'COMMIT', '42704' ],
		[ 'CREATE ROLE freshest', 'COMMIT', undef ],
		[ 'DROP ROLE freshest', 'ROLLBACK', undef ],
		[ 'ALTER ROLE freshest RENAME TO last', 'COMMIT', undef ])
	{
		my ($sql, $end, $sqlstate) = @$_;

		$s->query(q{SELECT revoke_group_use('brief', 'freshest')}) unless $sql =~ /CREATE/;
		if ($sql =~ /CREATE/) { $s->query($sql); next }
		my $other = $dt->session;
		$s->query("BEGIN; $sql");
		$other->send(q{SELECT grant_group_use('brief', 'freshest')});
		ok( poll_until(sub {
				$dt->sql('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $other->pid) eq 'Lock' }, 180),
			"$sql: a grant waits");
		$s->query($end);
		is($other->wait->{sqlstate}, $sqlstate, "$end: then it is made, or not");
		$other->quit;
	}
	like(grants(), qr/brief:last/, 'a grant to a role that was renamed meanwhile');
	$s->query('DROP ROLE last');
	is(grants(), $before, 'and goes with it');
}

$dt->sql("SELECT drop_resource_group('brief')");

# ----------------------------------------- privileges of all new functions

my %calls = (
	set_group_wal_limit => "'grp_a', 1000",
	reset_group_wal_limit => "'grp_a'",
	set_group_burst => "'grp_a', 20",
	set_group_mode => "'grp_a', 'enforce'",
	set_group_floor => "'grp_a', 64",
	set_group_weight => "'grp_a', 2",
	set_group_allowance => "'grp_a', 2000",
	set_group_pressure => "'grp_a', 'checkpoint'",
	report_pressure => "'x', 1, '1 s'",
	reset_group_pressure => "'grp_a', 'checkpoint'",
	suspend_group => "'grp_a'",
	resume_group => "'grp_a'",
	set_session_group => 'pg_backend_pid(), NULL',
	grant_group_use => "'grp_a', 'stranger'",
	revoke_group_use => "'grp_a', 'stranger'");
my $definitions = $dt->definitions . grants();
$stranger = $dt->session(user => 'stranger');
foreach my $function (sort keys %calls)
{
	my $call = "$function($calls{$function})";

	check_call('an unprivileged role', $stranger, $call, '42501');
	# not even its arguments are looked at
	check_call('an unprivileged role', $stranger,
		"$function(" . join(', ', map { 'NULL' } split /, /, $calls{$function})
		  . ')', '42501');
}
is($dt->definitions . grants(), $definitions, 'an unprivileged role has changed nothing');
is($dt->sql("SELECT count(suspended_since) FROM dirty_throttle_groups"),
	0, 'nor has it paused anything');
foreach my $function (sort keys %calls)
{
	my $call = "$function($calls{$function})";
	my $forms = $dt->sql(qq{SELECT string_agg(oid::regprocedure::text, ', ')
		FROM pg_proc WHERE proname = '$function'});

	$dt->sql("GRANT EXECUTE ON FUNCTION $forms TO stranger");
	check_call('EXECUTE is granted', $stranger, $call, undef);
	$dt->sql('SELECT resume_group($$grp_a$$)');
	$dt->sql("REVOKE EXECUTE ON FUNCTION $forms FROM stranger");
	check_call('and taken back', $stranger, $call, '42501');
}
foreach my $query (
	'SELECT count(*) FROM dirty_throttle_groups()',
	'SELECT count(*) FROM dirty_throttle_blocking')
{
	is($stranger->run($query)->{sqlstate}, undef, "an unprivileged role: $query");
}

# who may revoke all from PUBLIC can close joining for everybody
$dt->sql('REVOKE EXECUTE ON FUNCTION join_group FROM PUBLIC');
$app = $dt->session(user => 'app');
check_call('joining is closed', $app, "join_group('grp_a')", '42501');

is($dt->crashes, '', 'no crash');
$dt->finish;
