# Sessions join and leave groups at random, work, fail and cancel each other,
# while somebody alters, renames, drops and creates the groups.  Whatever the
# order: the server lives, and nothing is left when all have gone.
#
# DT_SEED repeats a sequence of statements (not their timing), DT_SECONDS
# makes it longer.
#
# expect-in-log: WARNING:  resource group "g[1-6]" does not exist
# A cancelled BEGIN or ROLLBACK leaves the rest of its block to say so:
# expect-in-log: WARNING:  there is (no|already a) transaction in progress
# expect-in-log: WARNING:  SET LOCAL can only be used in transaction blocks
# expect-in-log: DETAIL:  child process was terminated by signal 2

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(sleep time);

my $seed = $ENV{DT_SEED} // time ^ $$;
my $seconds = $ENV{DT_SECONDS} // 6;
srand $seed;
note "DT_SEED=$seed";

my $dt = DirtyThrottle::Life->new('fuzz', conf => q{
dirty_throttle.max_groups = 8
dirty_throttle.max_commit_pause = 2s
dirty_throttle.transaction_grace = 20ms
});
my $node = $dt->node;
my @names = map { "g$_" } 1 .. 6;

sub pick { return $_[ rand @_ ] }

$dt->sql("SELECT set_group_dirty_limit('$_', 5000)") foreach @names;
$dt->table('shared');
$dt->table("t$_") foreach 1 .. 8;

# The members
my @s = map {
	{   session => $dt->session,
		table   => "t$_",
		busy    => 0 }
} 1 .. 8;

sub statement
{
	my ($self) = @_;
	my $table = pick($self->{table}, $self->{table}, 'shared');
	my $group = pick(@names);
	my $insert = insert_sql($table, pick(1, 5, 50, 300));
	my $set = qq{SET dirty_throttle."group" = '$group'};
	my $other = pick(@s)->{session}->pid;

	return pick(
		$set,
		$set,
		'RESET dirty_throttle."group"',
		qq{BEGIN; SET LOCAL dirty_throttle."group" = '$group'; $insert; }
		  . pick('COMMIT', 'ROLLBACK'),
		qq{BEGIN; $insert; $set; $insert; } . pick('COMMIT', 'ROLLBACK'),
		$insert,
		$insert,
		$insert,
		"BEGIN; $insert; SELECT 1/0; COMMIT",
		"BEGIN; SAVEPOINT a; $insert; SELECT 1/0; ROLLBACK TO a; $insert; COMMIT",
		"BEGIN; SAVEPOINT a; $set; ROLLBACK TO a; $insert; COMMIT",
		"DO \$\$BEGIN FOR n IN 1..30 LOOP $insert; COMMIT; END LOOP; END\$\$",
		"DO \$\$BEGIN $insert; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN $insert; END\$\$",
		"SET statement_timeout = '50ms'; $insert; $insert; RESET statement_timeout",
		"COPY $table FROM PROGRAM 'seq 1 200 | sed s/\$/,x/' (FORMAT csv)",
		"TRUNCATE $self->{table}",
		"ALTER TABLE $self->{table} ALTER pad SET NOT NULL",
		"CREATE TEMP TABLE IF NOT EXISTS x AS SELECT 1",
		"SELECT pg_cancel_backend($other)",
		"SELECT pg_cancel_backend($other)",
		'SELECT count(*) FROM dirty_throttle_sessions',
		'SELECT count(*) FROM dirty_throttle_groups',
		"DELETE FROM $table WHERE random() < 0.3",
		'DISCARD ALL');
}

# The administrator
my $admin = { session => $dt->session, busy => 0 };
sub administrate
{
	my $group = pick(@names);
	my $limit = pick(0, 1, 0.5, 1000, 5000, 5000, 50000, 16777216);

	return pick(
		"SELECT set_group_dirty_limit('$group', $limit)",
		"SELECT set_group_dirty_limit('$group', $limit)",
		"SELECT set_group_dirty_limit('$group', $limit)",
		"SELECT reset_group_dirty_limit('$group')",
		"SELECT create_resource_group('$group', $limit)",
		"SELECT rename_resource_group('$group', '" . pick(@names, 'h') . "')",
		"SELECT rename_resource_group('h', '$group')",
		"SELECT drop_resource_group('$group')",
		"SELECT drop_resource_group('$group', true, force => true)",
		"SELECT drop_resource_group('$group', true, force => true), set_group_dirty_limit('$group', $limit)",
		'SELECT dirty_throttle_reset()',
		# so that the longest statement stays short, whatever DT_SECONDS is
		"SET lock_timeout = '100ms'; TRUNCATE shared; RESET lock_timeout",
		'SELECT pg_reload_conf()');
}

# What may happen: an error that somebody has asked for.
my %expected = map { $_ => 1 } (
	'42704',    # no such group
	'42710',    # there is one already
	'55006',    # it is in use
	'53400',    # no room
	'22012',    # 1/0
	'25P02',    # ... and after it
	'25P01',    # BEGIN was cancelled
	'55P03',    # somebody uses the table
	'57014',    # cancelled, timeout
	'2D000',    # COMMIT in a transaction that a cancelled one has left open
	'40P01',    # deadlock
	'25001',    # DISCARD ALL in such a transaction
	'23502',    # ALTER pad SET NOT NULL
	'38000',    # COPY's program, when COPY is cancelled
	'3B001');   # the savepoint went with the transaction
my %seen;
my $unexpected = 0;
my $nonsense = 0;
my $end = time + $seconds;
while (time < $end)
{
	foreach my $s (@s, $admin)
	{
		if ($s->{busy})
		{
			next unless $s->{session}->finished;
			my $r = $s->{session}->wait;
			foreach my $code ($r->{err} =~ /(?:ERROR|FATAL|PANIC):  (\w{5}): /g)
			{
				$seen{$code}++;
				next if $expected{$code};
				$unexpected++;
				diag "$s->{sql}: $r->{err}";
			}
			$seen{statements}++;
			if (!$s->{session}->alive)
			{
				diag "lost: $s->{sql}: $r->{err}";
				$unexpected++;
				$end = 0;
				last;
			}
		}
		# a failed transaction must not stay open
		$s->{sql} = $s == $admin ? administrate() : statement($s);
		$s->{session}->send(
			$s == $admin ? $s->{sql} : "$s->{sql};\nROLLBACK");
		$s->{busy} = 1;
	}
	$nonsense += $dt->sql(
		q{SELECT count(*) FROM dirty_throttle_groups()
		  WHERE members NOT BETWEEN 0 AND 8
		     OR paused NOT BETWEEN 0 AND 8
		     OR dirty_debt < 0 OR blocks_dirtied < 0 OR pauses < 0 OR paused_time < 0
		     OR dirty_rate < 0});
	sleep 0.003;
}
is($unexpected, 0, 'no error that was not asked for');
is($nonsense, 0, 'the view has shown nothing impossible');
note join ' ', map { "$_=$seen{$_}" } sort keys %seen;
cmp_ok($seen{statements} // 0, '>', 0, 'something has happened');

# Let everybody go, and what is owed be repaid soon: at limits that the
# administrator does not change any more.
ok(eval { $admin->{session}->wait }, 'the administrator comes to an end')
  or diag "$admin->{sql}: $@";
$dt->sql('SELECT set_group_dirty_limit(group_name, 1000000) FROM dirty_throttle_groups');
foreach my $s (@s)
{
	my $r = eval { $s->{session}->wait };
	ok($r, 'a session comes to its end') or diag "$s->{sql}: $@";
}
is( $dt->sql(
		q{SELECT coalesce(sum(paused), 0) FROM dirty_throttle_groups}),
	0, 'nobody pauses');
is( $dt->sql('SELECT sum(members) FROM dirty_throttle_groups'),
	$dt->sql('SELECT count(*) FROM dirty_throttle_sessions'),
	'members by both views');

# half of them leave, the others just go
$s[$_]{session}->query('RESET dirty_throttle."group"') foreach 0 .. 3;
$_->{session}->quit foreach @s, $admin;
is($dt->left_over, '', 'no member, pause or debt is left');

my $definitions = $dt->definitions;
$dt->sql('CHECKPOINT');    # there is no point in waiting for the redo
is($dt->crashes, '', 'no crash');
$dt->stop('immediate');
my $mark = $dt->log_mark;
$node->start;
is($dt->definitions, $definitions, 'a restart finds the same groups');
unlike($dt->log_since($mark), qr/is damaged/, 'in a sound file');

# and it still works
$dt->limit($definitions =~ /^(\w+)=/ ? $1 : 'g1', 2000);
my $s = $dt->session(group => $definitions =~ /^(\w+)=/ ? $1 : 'g1');
$s->send(insert_sql('shared', 2000));
ok($dt->wait_paused($s, 'in flight'), 'a session is throttled');
$dt->cancel_ms($s);
$s->quit;
$dt->stop;
done_testing();
