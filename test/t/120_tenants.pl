# A group whose limits hold for each role, or for each database: its instances.  To
# the byte, on a clock that stands still while statements run.

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
		FROM dirty_throttle_instances});
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

$dt->finish;
