# A throttle takes no part in deciding who is the primary.  Patroni asks its
# server with a time-out, and whoever does not answer loses the leader's key: to
# be suspended, or to pay for others of one's role, must not come between.
#
# Patroni's session is kept out of the groups of its database by being a
# superuser's, and if its role is in a group by its own setting, what it asks
# only reads.  Each of the two has to do alone.
#
# takes-about: 220 s
# expect-in-log: WARNING:  specified neither primary_conninfo nor restore_command

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Patroni;
use DirtyThrottle::Programs;
use Test::More;

# So often does Patroni look before we say that it does; once a second, or more
# seldom when the machine is busy.  Its time-outs are 2 and 3 s.
my $ROUNDS = 10;

my %memberships = (
	'the database is in a group' =>
	  q{ALTER DATABASE postgres SET dirty_throttle."group" = 'everyone'},
	'its role is in a group' =>
	  q{ALTER ROLE patroni SET dirty_throttle."group" = 'everyone'});

need_programs(patroni => 'patroni', etcd => 'etcd-server');

# Patroni's next connections are members if they are to be.
sub reconnect
{
	my ($node) = @_;
	$node->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name LIKE 'Patroni%'});
}

# Of one server, or of all.
sub suspend
{
	$_->sql(q{SELECT suspend_group('everyone')}) foreach @_;
}

sub resume
{
	my ($cluster) = @_;
	$_->sql(q{SELECT resume_group('everyone')}) foreach $cluster->nodes;
}

# There is one primary, which Patroni knows, and the other one follows.
sub check_one_primary
{
	my ($cluster, $name, $node) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($cluster->wait_rounds($node, $ROUNDS),
		"$name: Patroni looks after its primary, the only one");
}

my $number = 0;

foreach my $membership (sort keys %memberships)
{
	my $cluster =
	  DirtyThrottle::Patroni->new(user => 'patroni', name => 'c' . ++$number);
	my ($a, $b) = ($cluster->primary, $cluster->standby);

	$a->sql(q{CREATE EXTENSION dirty_throttle;
		SELECT set_group_wal_limit('everyone', '20 MB');
		CREATE TABLE t (id int)});
	$a->sql($memberships{$membership});
	reconnect($_) foreach $cluster->nodes;
	check_one_primary($cluster, "$membership, no harm", $a) or last;

	# somebody suspends it, first only where others would notice
	suspend($a);
	check_one_primary($cluster, "$membership, suspended", $a) or last;
	suspend($b);
	reconnect($_) foreach $cluster->nodes;
	check_one_primary($cluster, "$membership, suspended, new connections", $a) or last;

	# a switchover
	$cluster->patronictl('switchover', 'dt', '--force',
		'--leader', $a->{name}, '--candidate', $b->{name});
	ok(poll_until(sub { $b->is_primary && $a->is_up && !$a->is_primary }),
		"$membership, suspended: a switchover")
	  or last;
	suspend($cluster->nodes);
	check_one_primary($cluster, "$membership, after the switchover", $b) or last;

	# the primary dies, and Patroni starts it again or has the other one
	kill 'KILL', $b->postmaster;
	ok( poll_until(sub { $cluster->primaries == 1 && $cluster->standby }),
		"$membership, kill -9 of the primary: there is one again")
	  or last;
	suspend($cluster->nodes);
	check_one_primary($cluster, "$membership, after the crash", $cluster->primary)
	  or last;

	# with Patroni: the other one takes over when the key has expired
	my $dead = $cluster->primary;
	my ($other) = grep { $_ != $dead } $cluster->nodes;
	stop_program($dead->{patroni}, 'KILL');
	kill 'KILL', $dead->postmaster;
	ok(poll_until(sub { $other->is_primary }),
		"$membership, kill -9 of both: the other one is promoted")
	  or last;
	$dead->start_patroni;
	ok(poll_until(sub { $dead->is_up && !$dead->is_primary }),
		"$membership, kill -9 of both: and the dead one follows it");
	resume($cluster);

	# a session of the same role has left a debt of minutes
	my $p = $cluster->primary;
	$p->sql(q{SELECT set_group_wal_limit('everyone', 100)});
	my $s = $p->session(options => '-c dirty_throttle.group=everyone -c dirty_throttle.transaction_grace=20d');
	$s->query(q{SET dirty_throttle.max_commit_pause = 0;
		DO $$ DECLARE lsn pg_lsn; BEGIN
			lsn := pg_logical_emit_message(true, '', repeat('x', 58000000)); END $$});
	$s->quit;
	cmp_ok($p->sql(q{SELECT wal_debt FROM dirty_throttle_groups}),
		'>', 50000, "$membership: KB that the role owes");
	reconnect($p);
	check_one_primary($cluster, "$membership, debts of its role", $p) or last;

	$cluster->stop;
}

done_testing();
