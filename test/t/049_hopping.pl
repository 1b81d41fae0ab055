# What a session does of its own will does not get it out of its debt: joining
# and leaving groups, SET and RESET in every form, functions with a SET clause,
# savepoints.  What it owes when it leaves a group, the group keeps for its role,
# and it pays that when it is back: so in the long run no group is used faster than
# its limit.  Outside of a transaction, SET and RESET pay first.  And many small
# debts that were left do not starve another role.
# On a clock that stands still while statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use List::Util qw(max);
use Test::More;

my $rate = 4000;     # KB/s
my $blocks = 256;    # of each case, 0.5 s
my $chunk = 4;       # dirtied at a time, takes less than the shortest pause
my $grace_us = 50_000;
my @many = map { "g$_" } 1 .. 12;
my @groups = ('a', 'b', @many);

# With wal_level minimal a rewrite writes its pages when it commits, and the
# next one dirties them again, for hint bits.
my $dt = DirtyThrottle::Clock->new('hopping', conf => q{
wal_level = replica
dirty_throttle.transaction_grace = 50ms
dirty_throttle.max_commit_pause = 30s
});
$dt->table('t');
$dt->limit($_ => 0) foreach @groups;
$dt->sql("SELECT set_group_burst('$_', 0)") foreach @groups;

# A role that may join, one that may choose, one whose setting puts it into a
# group; f() and g() are what the DBA has made.
$dt->sql(
	q{CREATE ROLE app LOGIN;
	SELECT grant_group_use('a', 'app'), grant_group_use('b', 'app');
	CREATE ROLE chooser LOGIN;
	GRANT SET ON PARAMETER dirty_throttle."group" TO chooser;
	CREATE ROLE batch LOGIN;
	ALTER ROLE batch SET dirty_throttle."group" = 'a';
	GRANT app TO batch, chooser;
	GRANT SET ON PARAMETER dirty_throttle.interrupt_pauses TO chooser, batch;
	CREATE TABLE big (id int, pad text) WITH (fillfactor = 10);
	ALTER TABLE big OWNER TO app;
	GRANT CREATE ON SCHEMA public TO app;
	GRANT ALL ON t TO PUBLIC;
	CREATE FUNCTION work() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN } . insert_sql('t', $chunk) . q{; RETURN 1; END $$;
	CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql
		SECURITY DEFINER SET dirty_throttle."group" = 'b' AS 'BEGIN RETURN 1; END';
	CREATE FUNCTION work_in_a() RETURNS int LANGUAGE plpgsql
		SECURITY DEFINER SET dirty_throttle."group" = 'a' AS 'BEGIN RETURN work(); END';
	CREATE FUNCTION work_in_none() RETURNS int LANGUAGE plpgsql
		SECURITY DEFINER SET dirty_throttle."group" = '' AS 'BEGIN RETURN 1; END';
	CREATE FUNCTION hop() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM join_group('a');
			PERFORM work();
			PERFORM leave_joined_group();
			RETURN 1;
		END $$});
$dt->sql(insert_sql('big', $blocks));
my $rewrite = 'ALTER TABLE big ALTER id TYPE int USING id + 1';

# Nobody owes anything, and nothing was saved up.
sub fresh_limits
{
	my ($kb) = @_;

	$dt->sql('TRUNCATE t');
	# of two in one transaction only the second would be in force
	$dt->sql("SELECT set_group_dirty_limit(group_name, $_) FROM dirty_throttle_groups")
	  foreach 0, $kb;
	$dt->sql('SELECT dirty_throttle_reset()');
}

sub charged
{
	return split /\n/, $dt->sql(
		'SELECT group_name || $$ $$ || blocks_dirtied
		 FROM dirty_throttle_groups WHERE blocks_dirtied > 0');
}

# The code dirties so many blocks as a member; then the session, or each of
# them, runs another transaction.  By then each group has been paid for what was
# dirtied in it, in the time that this has taken, but for what a session may leave:
# the grace, and what it dirties at a time.  It has taken no longer than all groups
# need, one after the other.
sub check_paid
{
	my ($name, $expected, $code, @sessions) = @_;
	my ($total, $most_paid, $most_owed) = (0, 0, 0);

	fresh_limits($rate);
	my $us = $dt->running(
		sub {
			$code->();
			$_->value($MAY_WRITE) foreach @sessions;
		});
	my @charged = charged();
	foreach (@charged)
	{
		my ($group, $blocks) = split / /;
		my $owed = ($dt->used($group, 'dirty'))[1];

		$total += $blocks;
		$most_paid = max($most_paid, $blocks * 8192 - $owed);
		$most_owed = max($most_owed, $owed);
	}
	# a group in which nobody works for a while saves something up, which it may
	# use or not
	my $saved = @charged + @sessions > 2 ? 1e6 * DirtyThrottle::Books::CREDIT : 0;
	cmp_ok($most_paid, '<=', $rate * ($us + $saved) / 1000,
		"$name: bytes paid by any group in $us us");
	cmp_ok($most_owed, '<=',
		@sessions * ($rate * ($grace_us + min_pause_us(1)) / 1000 + $chunk * 8192),
		"$name: bytes left unpaid in any group");
	# what a member owes, and what it has left there before, are paid side by
	# side, so the last pause may be longer than it had to be
	cmp_ok($us, '<=', ideal_us($total) + $saved + 1000 + @sessions * min_pause_us(1),
		"$name: us, at most");
	between($total, $expected, 1.05 * $expected + 10, "$name: blocks charged");
}

sub ideal_us
{
	my ($n) = @_;
	return $n * 8192 * 1000 / $rate;
}

sub wire
{
	my (%opt) = @_;
	return DirtyThrottle::Wire->new($dt->node, %opt);
}

# All of these, that many times.
sub rounds
{
	my ($n, $w, @sql) = @_;

	foreach (1 .. $n)
	{
		$w->value($_) foreach @sql;
	}
}

# ------------------------------------------------------- join, leave, SET, ...

my $hops = $blocks / $chunk;
my $app = wire(user => 'app');
my $chooser = wire(user => 'chooser');
my $batch = wire(user => 'batch');

check_paid('join, work, leave', $blocks,
	sub {
		rounds($hops, $app, q{SELECT join_group('a')},
			'SELECT work()', 'SELECT leave_joined_group()');
	},
	$app);
check_paid('join, work, leave, in one transaction', $blocks,
	sub {
		$app->value('BEGIN');
		rounds($hops, $app, q{SELECT join_group('a')},
			'SELECT work()', 'SELECT leave_joined_group()');
		$app->value('COMMIT');
	},
	$app);
check_paid('join, work, leave, in one statement', $blocks,
	sub { $app->value("SELECT sum(hop()) FROM generate_series(1, $hops)") },
	$app);
check_paid('from group to group', $blocks,
	sub {
		rounds($hops / 2, $app,
			q{SELECT join_group('a')}, 'SELECT work()',
			q{SELECT join_group('b')}, 'SELECT work()');
		$app->value('SELECT leave_joined_group()');
	},
	$app);
check_paid('join, work, ROLLBACK', $blocks,
	sub {
		rounds($hops, $app, 'BEGIN', q{SELECT join_group('a')},
			'SELECT work()', 'ROLLBACK');
	},
	$app);
foreach my $reset ('DISCARD ALL', 'RESET ALL')
{
	check_paid("join, work, $reset", $blocks,
		sub {
			rounds($hops, $app, q{SELECT join_group('a')},
				'SELECT work()', $reset);
		},
		$app);
}
check_paid('a function with a SET clause', $blocks,
	sub { rounds($hops, $app, 'SELECT work_in_a()') }, $app);
check_paid('a function with a SET clause, in one statement', $blocks,
	sub {
		$app->value("SELECT sum(work_in_a()) FROM generate_series(1, $hops)");
	},
	$app);
check_paid('SET, work, SET to nothing', $blocks,
	sub {
		rounds($hops, $chooser,
			q{SET dirty_throttle."group" = 'a'}, 'SELECT work()',
			q{SELECT set_config('dirty_throttle.group', '', false)});
	},
	$chooser);
check_paid('SET LOCAL', $blocks,
	sub {
		rounds($hops, $chooser, 'BEGIN',
			q{SET LOCAL dirty_throttle."group" = 'a'},
			'SELECT work()', 'COMMIT');
	},
	$chooser);
check_paid('SET, work, ROLLBACK TO SAVEPOINT', $blocks,
	sub {
		$chooser->value('BEGIN');
		rounds($hops, $chooser, 'SAVEPOINT s',
			q{SET LOCAL dirty_throttle."group" = 'a'},
			'SELECT work()', 'ROLLBACK TO s');
		$chooser->value('COMMIT');
	},
	$chooser);

# One big debt, that functions with a SET clause do not wipe.
foreach my $function ('f', 'work_in_none')
{
	check_paid("a rewrite, then $function() again and again", $blocks,
		sub {
			$batch->value("BEGIN; $rewrite");
			$batch->value("DO 'DECLARE x int; BEGIN
				FOR i IN 1..100 LOOP x := $function(); END LOOP; END'");
			$batch->value('COMMIT');
		},
		$batch);
}

# Who leaves within a transaction does not pay after it, but the next time that he
# is in the group.
my @left = (
	q{SET dirty_throttle.interrupt_pauses = off; BEGIN; SET dirty_throttle."group" = 'a'},
	$rewrite, 'RESET dirty_throttle."group"', 'COMMIT', $MAY_WRITE);

sub owed_us
{
	my ($group) = @_;
	return ($dt->used($group, 'dirty'))[1] * 1000 / $rate;
}

fresh_limits($rate);
my $start = $dt->now;
rounds(1, $chooser, @left);
is($dt->now, $start, 'SET, rewrite, RESET, in a transaction: no pause, nor later');
my $owed = owed_us('a');
cmp_ok($owed, '>=', ideal_us($blocks) - min_pause_us(1), 'the group keeps what is owed');
$chooser->value(q{SET dirty_throttle."group" = 'a'});
is($dt->now, $start, 'and is joined again at once');

# Outside of a transaction he leaves when he has paid.  Who cancels that is in the
# group still, and does not get his next statement that writes either.
foreach my $sql (
	'RESET dirty_throttle."group"',
	q{SET dirty_throttle."group" = 'b'},
	'CREATE TABLE evaded ()')
{
	$chooser->simple($sql)->transmit;
	ok(poll_until(sub { $dt->sql('SELECT dt_test_state(' . $chooser->pid . ')') eq 'sleeps' }),
		"evade, $sql: it pauses");
	$dt->sql('SELECT pg_cancel_backend(' . $chooser->pid . ')');
	is($chooser->wait->{sqlstate}, '57014', "evade, $sql: cancelled");
	is($chooser->value('SHOW dirty_throttle."group"'), 'a', "evade, $sql: it has not left");
}
is($dt->sql(q{SELECT to_regclass('evaded') IS NULL}), 't', 'the statement was not run');
is($dt->now, $start, 'he has paid nothing so far');
is(owed_us('a'), $owed, 'and owes it all');
$chooser->simple('RESET dirty_throttle."group"')->transmit;
ok(poll_until(sub { $dt->sql('SELECT dt_test_state(' . $chooser->pid . ')') eq 'sleeps' }),
	'he leaves');
is($dt->sql('SELECT dt_test_run(100000000)'), $owed, 'when he has paid all');
is($chooser->wait->{sqlstate}, undef, 'without an error');
is($chooser->value('SHOW dirty_throttle."group"'), '', 'he is in no group');

# More groups than a session is likely to owe.  It owes all of them at once, if
# it wants to, but each what it has dirtied there.
$dt->sql(
	q{CREATE FUNCTION tour(names text[]) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE name text;
		BEGIN
			FOREACH name IN ARRAY names LOOP
				PERFORM set_config('dirty_throttle.group', name, false);
				PERFORM work();
			END LOOP;
			RETURN 1;
		END $$});
my $tour = "tour(string_to_array('@many', ' '))";
my $n_tours = 40;
my %tours = (
	'in one statement' =>
	  ["SELECT sum($tour) FROM generate_series(1, $n_tours)"],
	'in one transaction' =>
	  [ 'BEGIN', ("SELECT $tour") x $n_tours, 'COMMIT' ],
	'in many transactions' => [ ("SELECT $tour") x $n_tours ]);
foreach my $in (sort keys %tours)
{
	my $each = $n_tours * $chunk;
	check_paid("twelve groups in turn, $in", 12 * $each,
		sub {
			rounds(1, $chooser, @{ $tours{$in} },
				'RESET dirty_throttle."group"');
		},
		$chooser);
	is_deeply(
		[ grep { abs((split / /)[1] - $each) > 0.05 * $each } charged() ],
		[], "twelve groups in turn, $in: each is charged with its own");
}

# Two sessions.
my $other = wire(user => 'app');
check_paid('two sessions', 2 * $blocks,
	sub {
		foreach my $w ($app, $other)
		{
			$w->simple("SELECT sum(hop()) FROM generate_series(1, $hops)")
			  ->transmit;
		}
		is($_->wait->{sqlstate}, undef, 'no error') foreach $app, $other;
	},
	$app, $other);
$other->terminate;

# WAL, which has an account of its own.
fresh_limits(0);
$dt->sql(q{SELECT set_group_wal_limit('a', 4000)});
my $us = $dt->running(
	sub {
		$app->value("SELECT sum(hop()) FROM generate_series(1, 8 * $hops)");
		$app->value($MAY_WRITE);
	});
my ($wal, $wal_owed) = $dt->used('a', 'wal');
cmp_ok($wal, '>', 1_500_000, 'WAL that was charged, bytes');
cmp_ok($wal_owed, '<=', 4 * ($grace_us + min_pause_us(1)), 'WAL: bytes left unpaid');
cmp_ok(abs($us - ($wal - $wal_owed) / 4), '<=', 2 * min_pause_us(1), 'WAL: us');
$dt->sql(q{SELECT reset_group_wal_limit('a')});

# ------------------------------------------------------- who leaves a debt

fresh_limits($rate);
$batch->value('SET dirty_throttle.interrupt_pauses = off');	# so that it pays after it
my $begun = $dt->now;
$batch->simple($rewrite)->transmit;
ok(poll_until(sub { $dt->sql('SELECT dt_test_state(' . $batch->pid . ')') eq 'sleeps' }),
	'a session pays');
$dt->sql('SELECT set_session_group(' . $batch->pid . ", 'b')");
$batch->wait;
$batch->value($MAY_WRITE);
is($dt->now, $begun, 'who is moved goes on in no time');
{
	my $row = $dt->group_row('a');
	is(sprintf('%.0f', 1000 * $row->{dirty_debt}), 8192 * $row->{blocks_dirtied},
		'and leaves its debt to the group');
}
$_->terminate foreach $chooser, $batch;

# Many sessions that end in debt.  They weigh no more than one of another role
# that comes after them: it gets half of the rate.
$dt->set_conf('dirty_throttle.max_commit_pause', 0);
$dt->set_conf('dirty_throttle.transaction_grace', '10s');
my $left_limit = 100;
my $sessions = 80;
fresh_limits($left_limit);
my @many_sessions = map { wire(user => 'batch') } 1 .. $sessions;
$_->value($MAY_WRITE) foreach @many_sessions;    # they wait for nobody
foreach my $w (@many_sessions)
{
	$w->value('SELECT work()');
	$w->hang_up;
}
ok( poll_until(sub { $dt->group_row('a')->{members} == 0 }),
	"$sessions sessions");
my $row = $dt->group_row('a');
is(sprintf('%.0f', 1000 * $row->{dirty_debt}), 8192 * $row->{blocks_dirtied},
	'which have left all that they have used');
cmp_ok($row->{blocks_dirtied}, '>=', $sessions * $chunk, 'and that is a lot');
$app->value("SELECT join_group('a')");
$us = $dt->running(
	sub {
		$app->query(insert_sql('t', 10));
		$app->value($MAY_WRITE);
	});
my $done = $dt->group_row('a')->{blocks_dirtied} - $row->{blocks_dirtied};
is($us, 2 * $done * 8192 * 1000 / $left_limit, 'a member of another role gets half of the rate');
$app->terminate;

$dt->finish;
