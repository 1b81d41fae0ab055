# transaction_timeout does not count a pause before a transaction writes, and counts
# one in flight.  However such a pause ends, the clock goes on afterwards.
#
# On a machine that is so slow that the time is over before the pause there is
# nothing to be seen.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(sleep);

my $dt = DirtyThrottle->new('transaction_timeout');
plan skip_all => 'transaction_timeout is new in 17'
  if $dt->sql(q{SELECT current_setting('server_version_num')::int < 170000}) eq 't';

my $timeout = 2;    # s
$dt->create_sleep_tables;
$dt->limit(grp => 0);

# A member with that timeout that owes for minutes.
sub debtor
{
	my $s = $dt->session(group => 'grp');

	$dt->limit(grp => 0);
	$s->query("SET transaction_timeout = '${timeout}s'");
	$dt->limit(grp => 1);
	$s->query(q{BEGIN; SET LOCAL dirty_throttle.transaction_grace = '20d';
		ALTER TABLE rewrite ALTER id TYPE int USING id + 1; ROLLBACK});
	return $s;
}

# It has paused for longer than that.
sub pauses_long
{
	my ($name, $s) = @_;

	if (!$dt->wait_paused($s, 'in flight'))
	{
		note "$name: it did not come to its pause in time";
		return 0;
	}
	sleep $timeout + 1;
	return 1;
}

# By the timeout, which is still to come.
sub check_ends
{
	my ($name, $s) = @_;

	ok(poll_until(sub { !$s->alive }), "$name: then the time is over");
	$s->quit;
}

foreach my $case (
	[ 'DO', $MAY_WRITE ],
	[ 'INSERT', q{INSERT INTO sleep VALUES (1)} ],
	[ 'a block', "BEGIN; $MAY_WRITE", 1 ],
	[ 'a block that has read', "BEGIN; SELECT count(*) FROM rewrite; $MAY_WRITE", 1 ],
	[ 'a subtransaction', "BEGIN; SAVEPOINT a; $MAY_WRITE", 1 ])
{
	my ($name, $sql, $in_block) = @$case;
	my $s = debtor();

	$s->send($sql);
	if (pauses_long($name, $s))
	{
		ok(!$s->finished, "$name: a pause before it does not count");
		$dt->limit(grp => 0);
		is($s->wait->{sqlstate}, undef, "$name: it goes on");
		check_ends($name, $s) if $in_block;
	}
	$s->quit;
}

# In a suspended group, too.
{
	my $s = debtor();

	$dt->sql(q{SELECT suspend_group('grp')});
	$s->send($MAY_WRITE);
	if (pauses_long('suspended', $s))
	{
		ok(!$s->finished, 'suspended: a pause before it does not count');
	}
	$dt->limit(grp => 0);
	$dt->sql(q{SELECT resume_group('grp')});
	is($s->wait->{sqlstate}, undef, 'suspended: it goes on');
	$s->quit;
}

# What only reads has nothing to wait for.
{
	my $s = debtor();

	is($s->run('SELECT 1')->{sqlstate}, undef, 'what only reads');
	is($s->run('BEGIN; SELECT 1; COMMIT')->{sqlstate}, undef, 'also in a block');
	$s->quit;
}

# A cancel in the pause, also in a subtransaction.  Any error ends the server's own
# clock, also for a transaction that goes on after it; the next one has its clock.
foreach my $case (
	[ 'a cancel', "BEGIN; $MAY_WRITE", 'ROLLBACK' ],
	[ 'a cancel in a subtransaction', "BEGIN; SAVEPOINT a; $MAY_WRITE", 'ROLLBACK TO a; COMMIT' ],
	[ 'a cancel after a read', "BEGIN; SELECT 1; SAVEPOINT a; $MAY_WRITE", 'ROLLBACK TO a; COMMIT' ])
{
	my ($name, $sql, $after) = @$case;
	my $s = debtor();

	$s->send($sql);
	if (pauses_long($name, $s))
	{
		$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
		is($s->wait->{sqlstate}, '57014', "$name: ends the pause");
		is($s->run($after)->{sqlstate}, undef, "$name: $after");
		sleep $timeout + 1;
		is($s->run('SELECT 1')->{sqlstate}, undef, "$name: no transaction, no timeout");
		$s->run('BEGIN');
		check_ends("$name, the next transaction", $s);
	}
	$s->quit;
}

# In flight it counts.
{
	my $s = $dt->session(group => 'grp');

	$dt->limit(grp => 0);
	$s->query("SET transaction_timeout = '${timeout}s'");
	$dt->limit(grp => 1);
	$s->send(q{INSERT INTO sleep SELECT i, repeat('x', 800) FROM generate_series(1, 100) i});
	is($s->wait->{sqlstate}, '25P04', 'a pause in flight counts');
	$s->quit;
}

$dt->finish;
