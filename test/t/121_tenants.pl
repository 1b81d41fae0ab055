# A group whose limits hold for each role, or for each database: its instances.  To
# the byte, on a clock that stands still while statements run.
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use List::Util qw(max min sum);
use Test::More;

# expect-in-log: WARNING:  this session shares the limits of resource group

my $second = 1_000_000;
my $kb = 1000;
my $dt = DirtyThrottle::Clock->new('tenants', conf => q{
dirty_throttle.transaction_grace = 0
dirty_throttle.max_groups = 12
max_connections = 80
dirty_throttle.max_blocking_time = 100ms
});

$dt->sql(
	q{CREATE ROLE a LOGIN; CREATE ROLE b LOGIN; CREATE ROLE c LOGIN; CREATE ROLE gold LOGIN;
	CREATE ROLE dba SUPERUSER LOGIN;
	CREATE DATABASE other;
	CREATE PROCEDURE job() LANGUAGE plpgsql AS $$
		BEGIN LOOP
			PERFORM pg_logical_emit_message(true, 'x', repeat('x', 8000));
			COMMIT;
		END LOOP; END $$});

sub alter
{
	my ($group, $what) = @_;
	$dt->sql("SELECT alter_resource_group('$group', $what)");
}

# A new group that each role in database postgres is in, until forget().
sub tenants
{
	my ($what) = @_;
	alter('tenants', $what);
	$dt->sql(q{ALTER DATABASE postgres SET dirty_throttle."group" = 'tenants'});
}

sub forget
{
	my (@sessions) = @_;

	$dt->sql('ALTER DATABASE postgres RESET dirty_throttle."group"');
	$_->finished || $dt->cancel_ms($_) foreach @sessions;
	$dt->sql(q{SELECT drop_resource_group('tenants', force => true)});
	$_->wait, $_->quit foreach @sessions;
}

sub instance
{
	my ($name) = @_;
	return $dt->_row(
		qq{SELECT g.* FROM dirty_throttle_groups() g
			JOIN (SELECT oid, rolname AS name FROM pg_roles
				UNION ALL SELECT oid, datname FROM pg_database) n ON n.oid = g.instance
			WHERE n.name = '$name'});
}

sub instances
{
	return $dt->sql(q{SELECT coalesce(string_agg(instance || '=' || members, ' ' ORDER BY instance), '')
		FROM dirty_throttle_groups});
}

# What an instance has used since it began, and been paid for, in bytes.
sub paid
{
	my ($name) = @_;
	my $row = instance($name);
	return $row->{wal_bytes} - sprintf('%.0f', 1000 * $row->{wal_debt});
}

# The same of a session.
sub paid_to
{
	my ($session) = @_;
	my $row = $dt->session_row($session);
	return $row->{wal_bytes} - sprintf('%.0f', 1000 * $row->{wal_debt});
}

sub job
{
	my ($user, %opt) = @_;
	my $s = $dt->session(user => $user, %opt);

	$s->send('CALL job()');
	$dt->settle;
	return $s;
}

subtest 'each role has the limit, whoever else works' => sub {
	tenants("wal_limit => $kb, scope => 'role'");
	my $row = $dt->group_row('tenants');
	is("$row->{scope} $row->{instances} $row->{members}", 'role 0 0', 'at first there is none');
	my $at = $dt->now;
	my @jobs = map { job($_) } qw(a a a b);
	is(instances(), 'a=3 b=1', 'two roles, two instances');
	foreach my $seconds (1, 3)
	{
		$dt->advance($seconds * $second);
		my $earned = $kb * 1000 * ($dt->now - $at) / 1e6 + new_credit($kb);
		foreach my $role ('a', 'b')
		{
			cmp_ok(abs(paid($role) - $earned), '<=', 3, "role $role after $seconds s: all of its limit");
		}
		my @each = map { paid_to($_) } @jobs[ 0 .. 2 ];
		cmp_ok(max(@each) - min(@each), '<=', new_credit($kb) + 2, 'its sessions have the same each');
	}
	$row = $dt->group_row('tenants');
	is("$row->{instances} $row->{members} $row->{paused}", '2 4 4', 'the group: sums');
	cmp_ok($row->{wal_bytes}, '==', instance('a')->{wal_bytes} + instance('b')->{wal_bytes},
		'of what was written, too');
	forget(@jobs);
	is(instances(), '', 'a dropped group has no instances');
};


subtest 'fifty sessions of one tenant' => sub {
	tenants("wal_limit => $kb, scope => 'role'");
	my $at = $dt->now;
	my @many = map { job('a') } 1 .. 50;
	my $alone = job('b');
	$dt->advance(5 * $second);
	my $earned = $kb * 1000 * ($dt->now - $at) / 1e6 + new_credit($kb);
	cmp_ok(abs(paid('a') - $earned), '<=', 60, 'together they have the limit');
	cmp_ok(abs(paid('b') - $earned), '<=', 3, 'and the other role all of its own');
	my @each = map { paid_to($_) } @many;
	cmp_ok(max(@each) - min(@each), '<=', new_credit($kb) + 2, 'each of them the same');
	forget(@many, $alone);
};

# A new connection as a role runs these: how many bytes does its instance use of that?
sub uses
{
	my ($user, $name, %opt) = @_;
	my @sql = @{ $opt{sql} // [ q{SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))} ] };
	my $s = $dt->session(user => $user, dbname => $opt{dbname} // 'postgres');
	my $before = (instance($opt{instance} // $user) // { wal_bytes => 0 })->{wal_bytes};

	foreach (@sql)
	{
		$s->send($_);
		$dt->settle;
		last unless $s->finished;
		$s->wait;
	}
	my $used = instance($opt{instance} // $user)->{wal_bytes} - $before;
	$s->quit, return $used if $s->finished;
	$dt->terminate_ms($s);
	return $used;
}

subtest 'who wants more than its share' => sub {
	my @write = ('DO $$ BEGIN PERFORM pg_logical_emit_message(false, $m$x$m$, repeat($m$x$m$, 1000000)); END $$');

	tenants("wal_limit => 100, scope => 'role'");
	$dt->sql(q{ALTER DATABASE other SET dirty_throttle."group" = 'tenants'; GRANT b, c TO a});
	cmp_ok(uses('a', 'first', sql => \@write), '>', 1_000_000, 'the first transaction owes 10 s');
	poll_until(sub { instance('a')->{members} == 0 }, 180);
	is(uses('a', 'again', sql => \@write), 0, 'a new connection waits for that');
	is(uses('a', 'other', sql => \@write, dbname => 'other'), 0, 'in another database, too');
	is(uses('a', 'SET ROLE', sql => [ 'SET ROLE b', @write ]), 0, 'SET ROLE changes nothing');
	is(uses('a', 'several', sql => [ 'SET ROLE c', 'RESET ROLE', 'SET search_path = public', @write ]), 0, 'nor does anything else');
	is(uses('a', 'parameter', sql => [ q{SET dirty_throttle."group" = ''}, @write ]), 0, 'and the group is not its own to leave');
	cmp_ok(uses('b', 'somebody else', sql => \@write), '>', 1_000_000, 'another role owes nothing of it');
	is(instances(), 'a=0 b=0', 'both are kept while they owe');

	$dt->sql('ALTER ROLE a RENAME TO renamed');
	is(uses('renamed', 'renamed', sql => \@write), 0, 'a renamed role is the same');
	$dt->sql('ALTER ROLE renamed RENAME TO a');
	# what a role owes, which is dropped and made anew, stays on the books
	my $owed = $dt->group_row('tenants')->{wal_debt};
	my $oid = $dt->sql(q{SELECT oid FROM pg_roles WHERE rolname = 'a'});
	$dt->sql('DROP ROLE a');
	cmp_ok(abs($dt->group_row('tenants')->{wal_debt} - $owed), '<', 0.01, 'a dropped role: the debt stays');
	is(instances(), "$oid=0 b=0", 'and is shown under its OID');
	is($dt->sql(q{SELECT count(*) FROM dirty_throttle_groups WHERE group_name = 'tenants' AND instance IS NULL}),
		1, 'the group itself has one row');
	$dt->sql(q{CREATE ROLE a LOGIN; SELECT alter_resource_group('tenants', burst => '1h')});
	my $s = job('a');
	cmp_ok(instance('a')->{wal_bytes}, '<=', 100_000 * 0.02 + 100_000 * 0.01 + 2 * 8200,
		'one with its name begins without a burst');
	$dt->sql('ALTER DATABASE other RESET dirty_throttle."group"');
	forget($s);
};

subtest 'one role in two groups, by database' => sub {
	tenants("wal_limit => $kb, scope => 'role'");
	alter('others', "wal_limit => 300, scope => 'role'");
	$dt->sql(q{ALTER DATABASE other SET dirty_throttle."group" = 'others'});
	$dt->sql(q{DROP PROCEDURE IF EXISTS x});
	my $o = $dt->session(user => 'postgres', dbname => 'other');
	$o->query(q{CREATE PROCEDURE job() LANGUAGE plpgsql AS $$
		BEGIN LOOP
			PERFORM pg_logical_emit_message(true, 'x', repeat('x', 8000));
			COMMIT;
		END LOOP; END $$});
	$o->quit;
	my $at = $dt->now;
	my @jobs = (job('a'), job('a', dbname => 'other'));
	is(instances(), 'a=1 a=1', 'an instance of each');
	$dt->advance(4 * $second);
	foreach my $case ([ tenants => $kb ], [ others => 300 ])
	{
		my ($group, $rate) = @$case;
		my $row = $dt->group_row($group);
		my $paid = $row->{wal_bytes} - 1000 * $row->{wal_debt};
		cmp_ok(abs($paid - $rate * 1000 * ($dt->now - $at) / 1e6 - new_credit($rate)), '<=', 3, "$group: its own limit");
	}

	# the same role counts as two where the scope is the database
	alter('others', "wal_limit => $kb, scope => 'database'");
	$dt->sql(q{ALTER DATABASE postgres SET dirty_throttle."group" = 'others'});
	push @jobs, job('a'), job('b');
	is($dt->sql(q{SELECT string_agg(instance || '=' || members, ' ' ORDER BY instance)
			FROM dirty_throttle_groups WHERE group_name = 'others'}),
		'other=1 postgres=2', 'by database');
	$dt->sql('ALTER DATABASE other RESET dirty_throttle."group"');
	$_->finished || $dt->cancel_ms($_) foreach @jobs;
	$dt->sql(q{SELECT drop_resource_group('others', force => true)});
	forget(@jobs);
};

subtest 'instances that differ' => sub {
	tenants("wal_limit => $kb, scope => 'role'");
	foreach my $case (
		[ q{'tenants', wal_limit => '1 MB', instance => 'nobody'}, '42704' ],
		[ q{'tenants', scope => 'role', instance => 'gold'}, '22023' ],
		[ q{'nothing', wal_limit => 1, instance => 'gold'}, '42704' ],
		[ q{'tenants', wal_limit => 'much', instance => 'gold'}, '22023' ],
		[ q{'tenants', scope => 'tenant'}, '22023' ],
		[ q{'tenants', weight => 0}, '22023' ],
		[ q{NULL, wal_limit => 1}, '22004' ])
	{
		my ($arguments, $sqlstate) = @$case;
		my $r = $dt->session->run("SELECT alter_resource_group($arguments)");
		is($r->{sqlstate}, $sqlstate, "$arguments: SQLSTATE") or diag $r->{err};
	}
	$dt->limit(plain => 1);
	is($dt->session->run(q{SELECT alter_resource_group('plain', weight => 2, instance => 'gold')})->{sqlstate},
		'55000', 'a group without instances has none that differ');
	$dt->sql(q{SELECT drop_resource_group('plain')});

	my $gold = job('gold');
	alter('tenants', q{wal_limit => '5 MB', weight => 4, instance => 'gold'});
	my $row = instance('gold');
	is("$row->{wal_limit} $row->{weight} $row->{members}", '5000 4 1', 'it has what differs');
	alter('tenants', q{burst => 70, wal_limit => 2000});
	$row = instance('gold');
	is("$row->{wal_limit} $row->{weight} $row->{burst}", '5000 4 70', 'and all else of the group');
	is($dt->sql(q{SELECT (regexp_split_to_array(split_part(setconfig[1], 'groups=', 2), E'\n'))[2]
			FROM pg_db_role_setting WHERE setrole = 'dirty_throttle'::regrole}),
		'tenants instance=gold wal=5000 weight=4', 'its line in the definitions');
	$dt->sql('ALTER ROLE gold RENAME TO golden');
	is(instance('golden')->{wal_limit}, 5000, 'a renamed role keeps it');
	$dt->sql('ALTER ROLE golden RENAME TO gold');
	$dt->sql(q{SELECT rename_resource_group('tenants', 'lodgers'), rename_resource_group('lodgers', 'tenants')});
	is(instance('gold')->{wal_limit}, 5000, 'and so does a renamed group');
	forget_job($gold);
	$dt->sql(q{SELECT alter_resource_group('tenants', instance => 'gold')});
	$row = instance('gold');
	is("$row->{wal_limit} $row->{weight}", '2000 1', 'until nothing differs any more');

	# a dropped role is forgotten, one that is restored later found
	$dt->sql(q{CREATE ROLE late LOGIN; SELECT alter_resource_group('tenants', wal_limit => 77, instance => 'late')});
	is(instance('late')->{wal_limit}, 77, 'it is there before anybody comes');
	my $setting = $dt->sql(q{SELECT split_part(setconfig[1], 'groups=', 2)
			FROM pg_db_role_setting WHERE setrole = 'dirty_throttle'::regrole});
	$dt->sql('DROP ROLE late');
	unlike($dt->sql(q{SELECT setconfig[1] FROM pg_db_role_setting WHERE setrole = 'dirty_throttle'::regrole}),
		qr/late/, 'a dropped role does not differ any more');
	$dt->sql(qq{ALTER ROLE dirty_throttle SET "dirty_throttle.groups" = \$\$$setting\$\$});
	is(instance('late'), undef, 'a restore before the role');
	$dt->sql('CREATE ROLE late LOGIN');
	is(instance('late')->{wal_limit}, 77, 'and when that comes, its limit is there');
	# a role that gets the name which a restored one waits for
	$dt->sql('DROP ROLE late');
	$dt->sql(qq{ALTER ROLE dirty_throttle SET "dirty_throttle.groups" = \$\$$setting\$\$});
	$dt->sql('ALTER ROLE c RENAME TO late');
	is(instance('late')->{wal_limit}, 77, 'a renamed role has what was restored for it');
	$dt->sql('ALTER ROLE late RENAME TO c');
	is(instance('c')->{wal_limit}, 77, 'and keeps it');
	$dt->sql(q{SELECT alter_resource_group('tenants', instance => 'c')});
	$dt->sql(qq{ALTER ROLE dirty_throttle SET "dirty_throttle.groups" = \$\$$setting\$\$});
	$dt->sql(q{SELECT alter_resource_group('tenants', wal_limit => 66, instance => 'gold')});
	$dt->sql('ALTER ROLE gold RENAME TO late');
	is(instance('late')->{wal_limit}, 66, 'unless it has something of its own');
	$dt->sql('ALTER ROLE late RENAME TO gold');
	$dt->sql('CREATE ROLE late LOGIN');
	alter('tenants', q{scope => 'database'});
	$dt->sql(q{SELECT alter_resource_group('tenants', wal_limit => 88, instance => 'other')});
	$dt->sql('ALTER DATABASE other RENAME TO elsewhere');
	is(instance('elsewhere')->{wal_limit}, 88, 'a renamed database keeps it');
	$dt->sql('ALTER DATABASE elsewhere RENAME TO other');
	$dt->sql('CREATE DATABASE third');
	$dt->sql(q{SELECT alter_resource_group('tenants', wal_limit => 99, instance => 'third')});
	$setting = $dt->sql(q{SELECT split_part(setconfig[1], 'groups=', 2)
			FROM pg_db_role_setting WHERE setrole = 'dirty_throttle'::regrole});
	$dt->sql('DROP DATABASE third');
	unlike($dt->sql(q{SELECT setconfig[1] FROM pg_db_role_setting WHERE setrole = 'dirty_throttle'::regrole}),
		qr/third/, 'a dropped database does not differ any more');
	$dt->sql(qq{ALTER ROLE dirty_throttle SET "dirty_throttle.groups" = \$\$$setting\$\$});
	$dt->sql('CREATE DATABASE third');
	is(instance('third')->{wal_limit}, 99, 'one that is restored later is found');
	$dt->sql('DROP DATABASE third');
	$dt->sql('DROP ROLE late');
	forget();
};

subtest 'a scope that changes while they work' => sub {
	tenants("wal_limit => $kb");
	my @jobs = map { job($_) } qw(a b b c);
	is(instances(), '', 'no scope, no instances');
	foreach my $case ([ role => 'a=1 b=2 c=1' ], [ database => 'postgres=4' ], [ role => 'a=1 b=2 c=1' ], [ group => '' ])
	{
		my ($scope, $expected) = @$case;

		alter('tenants', "scope => '$scope'");
		$dt->settle;
		is(instances(), $expected, "$scope: who is where");
		# each member that is moved has used more meanwhile; see clock.c
		is($dt->sql(q{SELECT wal_debt FROM dirty_throttle_groups WHERE group_name = 'tenants' AND instance IS NULL}) -
			$dt->sql(q{SELECT coalesce(sum(ceil(wal_debt)), 0) FROM dirty_throttle_groups()
				WHERE group_name = 'tenants' AND (instance IS NOT NULL OR scope = 'group')}) <= 0 ? 'none' : 'some', 'none',
			"$scope: nothing is owed to a slot whose members have left it");
		my $before = $dt->group_row('tenants');
		my $at = $dt->now;
		$dt->advance(3 * $second);
		my $row = $dt->group_row('tenants');
		my $n = $scope eq 'role' ? 3 : 1;
		is("$row->{members} $row->{paused}", '4 4', "$scope: all of them");
		my $paid = $row->{wal_bytes} - 1000 * $row->{wal_debt} - $before->{wal_bytes} + 1000 * $before->{wal_debt};
		my $earned = $n * $kb * 1000 * ($dt->now - $at) / 1e6;
		cmp_ok($paid - $earned, '<=', $n * new_credit($kb) + 10, "$scope: no more than the limit of each");
		cmp_ok($earned - $paid, '<=', $n * $kb * 1000 * 0.02, "$scope: and no less");
	}
	forget(@jobs);
};

subtest 'suspended, observed, moved' => sub {
	tenants("wal_limit => $kb, scope => 'role'");
	$dt->sql('SELECT suspend_group($$tenants$$)');
	my $s = $dt->session(user => 'a');
	$s->send('CREATE TEMP TABLE t ()');
	$dt->settle;
	is($dt->session_row($s)->{paused_by}, 'suspend_group', 'an instance that begins is suspended as its group is');
	$dt->sql('SELECT resume_group($$tenants$$)');
	$dt->run;
	$s->wait;
	alter('tenants', q{mode => 'observe', instance => 'a'});
	my @jobs = (job('b'));
	alter('tenants', q{mode => 'observe'});
	is(instance('b')->{mode}, 'observe', 'mode observe is that of all instances');
	$dt->cancel_ms($jobs[0]);
	alter('tenants', q{mode => 'enforce'});
	is(instance('a')->{mode} . ' ' . instance('b')->{mode}, 'observe enforce', 'but of the one that differs');

	my $moved = $dt->session(user => 'dba');
	$moved->query('SELECT 1');
	$dt->sql('SELECT set_session_group(' . $moved->pid . q{, 'tenants')});
	like(instances(), qr/\bdba=1/, 'a move leads into the instance of the session');
	$dt->sql('SELECT set_session_group(' . $moved->pid . q{, NULL)});
	like(instances(), qr/\bdba=0/, 'and out of it');
	$dt->sql(q{SELECT dirty_throttle_reset('tenants')});
	is(instance('b')->{wal_bytes}, 0, 'reset: the counters of instances');
	forget(@jobs, $s, $moved);
};

subtest 'more of them than slots' => sub {
	my @roles = map { "r$_" } 1 .. 14;

	$dt->sql(join ';', map { "CREATE ROLE $_ LOGIN" } @roles);
	tenants("wal_limit => $kb, scope => 'role'");
	my $mark = $dt->log_mark;
	my @s = map { $dt->session(user => $_) } @roles;
	$_->query(q{SELECT pg_logical_emit_message(false, 'x', 'x')}) foreach @s;
	is($dt->group_row('tenants')->{instances}, 11, 'an instance for each slot');
	my @warned = $dt->log_since($mark) =~ /WARNING:.*this session shares the limits of resource group "tenants"/g;
	is(scalar @warned, 3, 'the others are warned');
	is($dt->group_row('tenants')->{members}, 14, 'and are members all the same');
	my $written = $dt->group_row('tenants')->{wal_bytes};
	$_->quit foreach @s[ 0 .. 4 ];
	poll_until(sub { $dt->group_row('tenants')->{members} == 9 }, 180);
	is($dt->group_row('tenants')->{instances}, 11, 'who leaves keeps it for now');
	my $new = $dt->session(user => 'a');
	$new->query('SELECT 1');
	like(instances(), qr/\ba=1/, 'the next role gets one of those that are idle');
	is($dt->group_row('tenants')->{wal_bytes}, $written, 'what was counted there is still counted');
	# in a suspended group who has slipped, and left, is still known
	$dt->sql(q{SELECT suspend_group('tenants')});
	my $late = $dt->session(user => 'b');
	$late->query('SELECT 1');
	unlike(instances(), qr/\bb=/, 'but none of a group that is suspended');
	$dt->sql(q{SELECT resume_group('tenants')});
	$late->quit;
	$dt->limit(plain => 5);
	is($dt->group_row('plain')->{dirty_limit}, 5, 'a new group gets a slot of an instance');
	$_->quit foreach @s[ 5 .. 7 ];
	# all that are left work; then a defined one takes the slot of one of these
	my @jobs = map { job($_) } @roles[ 0 .. 8 ];
	$dt->limit("plain$_" => 5) foreach 1 .. 3;
	is($dt->group_row('plain3')->{dirty_limit}, 5, 'also of one that is in use');
	is($dt->group_row('tenants')->{paused}, 9, 'whose members share the rest');
	$dt->sql(q{SELECT drop_resource_group(g) FROM unnest('{plain, plain1, plain2, plain3}'::text[]) g});
	forget(@jobs, $new, @s[ 8 .. 13 ]);
};

# A budget for the whole server, of so many MB/s, that the sampler has seen.
sub budget
{
	my ($mb) = @_;
	$dt->sql("SELECT set_group_pressure('tenants', 'wal_rate', '$mb MB')");
	$dt->advance(10 * $second);
}

# What each role writes within so many s.
sub written_in
{
	my ($seconds, @roles) = @_;
	my %before = map { $_ => paid($_) } @roles;

	$dt->advance($seconds * $second);
	return map { paid($_) - $before{$_} } @roles;
}

subtest 'who owes keeps its slot' => sub {
	tenants("wal_limit => $kb, scope => 'role'");
	my $owes = $dt->session(user => 'r14');
	$owes->send(q{DO $$ BEGIN PERFORM pg_logical_emit_message(true, 'x', repeat('x', 50000000)); END $$});
	$dt->settle;
	$dt->terminate_ms($owes);
	poll_until(sub { $dt->group_row('tenants')->{members} == 0 }, 180);
	my @s = map { $dt->session(user => "r$_") } 1 .. 12;
	$_->query('SELECT 1') foreach @s;
	is($dt->group_row('tenants')->{instances}, 11, 'there is no slot left');
	cmp_ok((instance('r14') // { wal_debt => 0 })->{wal_debt}, '>', 49_000, 'what a role owes that is gone is still there');
	forget(@s);
};

# A session of this role waits for a row that a bulk of role a has locked: for how long?
sub waits_for_bulk
{
	my ($role) = @_;
	my $bulk = $dt->session(user => 'a');
	my $other = $dt->session(user => $role);

	$bulk->query('BEGIN');
	$bulk->query('UPDATE shared SET n = n + 1');
	$bulk->send(q{DO $$ BEGIN
		FOR i IN 1..100 LOOP
			PERFORM pg_logical_emit_message(true, 'x', repeat('x', 10000));
		END LOOP; END $$; COMMIT});
	$dt->settle;
	$other->send('UPDATE shared SET n = n + 1');
	$dt->settle;
	my $begin = $dt->now;
	$dt->advance(10_000) while !$other->finished && $dt->now < $begin + 30_000_000;
	my $us = $dt->now - $begin;
	is($dt->session_row($bulk)->{paused_by}, 'wal', "$role: the bulk pays after its transaction");
	$dt->cancel_ms($bulk);
	$_->wait, $_->quit foreach $bulk, $other;
	return $us;
}

subtest 'who is made to wait by a tenant' => sub {
	$dt->sql('CREATE TABLE shared (n int); INSERT INTO shared VALUES (0); GRANT ALL ON shared TO PUBLIC');
	tenants("wal_limit => 100, scope => 'role'");
	cmp_ok(waits_for_bulk('b'), '<=', 250_000, 'another tenant is outside of it');
	$dt->advance(60 * $second);
	cmp_ok(waits_for_bulk('a'), '<=', 250_000, 'its own application, which owes nothing, counts, too');
	forget();
};

subtest 'a budget over all is shared by weight' => sub {
	tenants("scope => 'role'");
	budget(4);
	alter('tenants', q{weight => 2, instance => 'gold'});
	my @jobs = map { job($_) } qw(a b gold);
	$dt->advance(10 * $second);
	my @used = written_in(20, qw(a b gold));
	my $all = 4_000_000 * 59 / 60 * 20;
	foreach my $i (0 .. 2)
	{
		my $share = $all * ($i == 2 ? 2 : 1) / 4;
		cmp_ok(abs($used[$i] - $share), '<', $share / 64, sprintf('%s: %.0f of %.0f', (qw(a b gold))[$i], $used[$i], $share));
	}
	# five sessions of b are still one tenant
	push @jobs, map { job('b') } 1 .. 5;
	$dt->advance(10 * $second);
	@used = written_in(20, qw(a b gold));
	cmp_ok(abs($used[$_] - $all / 4), '<', $all / 4 / 64, (qw(a b))[$_] . ', whoever has more sessions') foreach 0, 1;
	forget(@jobs);
};

subtest 'all at their floors' => sub {
	my @roles = map { "r$_" } 1 .. 8;
	tenants("scope => 'role', floor => '500 kB'");
	budget(2);
	my $mark = $dt->log_mark;
	my @jobs = map { job($_) } @roles;
	$dt->advance(20 * $second);
	my @used = written_in(10, @roles);
	cmp_ok(abs(sum(@used) - 8 * 5_000_000), '<', 8 * 5_000_000 / 64, 'each has its floor, whatever the budget is');
	my @told = $dt->log_since($mark) =~ /resource group "tenants" is slowed down to its floor/g;
	is(scalar @told, 1, 'one message says that of all');
	is($dt->sql(q{SELECT string_agg(group_name, ' ') FROM dirty_throttle_pressure WHERE signal = 'wal_rate'}),
		'tenants', 'and one row is there for all in the view of signals');
	forget(@jobs);
};

subtest 'who begins does so at the share that is free' => sub {
	my @roles = map { "r$_" } 1 .. 8;
	tenants("scope => 'role'");
	budget(8);
	my $at = $dt->now;
	my @jobs = map { job($_) } @roles;
	my @lowest;
	foreach (1 .. 15)
	{
		$dt->advance(200_000);
		push @lowest, $dt->sql(q{SELECT min(effective_wal_limit) FROM dirty_throttle_groups WHERE instance IS NOT NULL AND members > 0});
	}
	cmp_ok(min(@lowest), '>', 600, 'eight that begin at once: none is at its floor (' . join(' ', @lowest) . ')');
	my $used = sum(map { instance($_)->{wal_bytes} } @roles);
	cmp_ok($used, '<=', 8_000_000 * (($dt->now - $at) / 1e6 + 8), 'and the first moment is a bounded one');
	my $late = job('a');
	cmp_ok(instance('a')->{effective_wal_limit}, '<', 1100, 'one that comes later is limited at once');
	# coming again and again, it writes no more than that
	my $before = $dt->group_row('tenants')->{wal_bytes};
	forget_job($late);
	foreach (1 .. 20)
	{
		my $again = job('a');
		$dt->terminate_ms($again);
	}
	cmp_ok(instance('a')->{wal_bytes}, '<', 1_100_000, 'also when it connects again and again');
	forget(@jobs);
};

subtest 'a burst is spent while the budget has room' => sub {
	my @roles = map { "r$_" } 1 .. 8;
	tenants("scope => 'role', wal_limit => 200, burst => '1 min'");
	my @s = map { $dt->session(user => $_) } @roles;
	$_->query('SELECT 1') foreach @s;
	budget(2);
	$dt->advance(120 * $second);
	my $alone = job('r1');
	my ($used) = written_in(3, 'r1');
	cmp_ok($used, '>', 3 * 1_900_000, 'one alone spends it as fast as the budget allows');
	cmp_ok($used, '<', 3 * 2_100_000, 'and no faster');
	$dt->advance(20 * $second);
	$used = instance('r1')->{wal_bytes};
	cmp_ok($used, '<', 12_000_000 + 23 * 200_000 + 2_000_000 * 0.4, 'until it is spent');
	cmp_ok($used, '>', 11_900_000, 'all of it');
	($used) = written_in(10, 'r1');
	cmp_ok(abs($used - 10 * 200_000), '<', 50_000, 'then it has its limit');
	forget_job($alone);
	$dt->advance(120 * $second);
	my $before = $dt->group_row('tenants')->{wal_bytes};
	my $at = $dt->now;
	my @jobs = map { job($_) } @roles;
	$dt->advance(10 * $second);
	$used = $dt->group_row('tenants')->{wal_bytes} - $before;
	my $seconds = ($dt->now - $at) / 1e6;
	cmp_ok($used, '<', 2_000_000 * ($seconds + 4), sprintf('eight at once: %.1f MB/s together', $used / 1e6 / $seconds));
	cmp_ok($used, '>', 2_000_000 * $seconds * 0.8, 'and not less');
	forget(@jobs, @s);
};

sub forget_job
{
	my ($s) = @_;
	$dt->cancel_ms($s);
	$s->wait;
	$s->quit;
}

$dt->finish;
