# Groups outlive restarts and crashes; memberships and debts do not outlive
# the sessions they belong to.
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Life->new('restart', conf => q{
restart_after_crash = on
dirty_throttle.max_commit_pause = 1h
});
my $node = $dt->node;
my $big = 1000;    # blocks; far more than anybody waits for at SLOW KB/s
my $slow = 20;

$dt->sql('CREATE ROLE etl LOGIN SUPERUSER');

#
# Restart
#
my $long = 'n' x 63;
$dt->sql(
	qq{SELECT set_group_dirty_limit('grp_a', 12288.5),
	          set_group_dirty_limit('o''Brien "x"', 0.001),
	          set_group_dirty_limit('Grüße', 16777216),
	          set_group_dirty_limit('$long', 7),
	          create_resource_group('unlimited'),
	          set_group_dirty_limit('old', 11),
	          set_group_dirty_limit('gone', 12),
	          set_group_dirty_limit('reset', 13)});
$dt->sql(q{SELECT rename_resource_group('old', 'new'),
	              drop_resource_group('gone'),
	              reset_group_dirty_limit('reset')});
$dt->sql(q{ALTER ROLE etl SET dirty_throttle."group" = 'new'});

my $expected =
  qq{Grüße=16777216 grp_a=12288.5 new=11 $long=7 o'Brien "x"=0.001 reset=0 unlimited=0};
$expected = join ' ',
  sort { $a cmp $b } split / (?=Gr|grp|new|nnn|o'B|reset|unl)/, $expected;
is($dt->definitions, $expected, 'groups as defined');

foreach my $mode (qw(fast immediate))
{
	$dt->stop($mode);
	$node->start;
	is($dt->definitions, $expected, "groups after stop -m $mode");
	my $s = $dt->session(user => 'etl');
	is($s->query('SHOW dirty_throttle."group"'),
		'new', 'a role finds its renamed group');
	is($dt->group_row('new')->{members}, 1, 'and is counted in it');
	$s->quit;
}

#
# Crashes
#
$dt->sql(qq{SELECT set_group_dirty_limit('slow', $slow)});
$dt->table($_) foreach qw(in_flight after fresh);
$dt->sql(insert_sql('after', $big));
$dt->sql('CHECKPOINT');
$expected = $dt->definitions;

# One member that pauses in flight, one that pauses after its transaction,
# and one that runs.
sub occupy
{
	my %s = map { $_ => $dt->session(group => 'slow') }
	  qw(in_flight after running);

	$s{in_flight}->send(insert_sql('in_flight', $big));
	ok($dt->wait_paused($s{in_flight}, 'in flight'), 'one pauses in flight');
	$s{after}->send('SET dirty_throttle.interrupt_pauses = off; '
		  . 'BEGIN; ALTER TABLE after ALTER id TYPE '
		  . ($dt->sql(
				q{SELECT atttypid = 'int'::regtype FROM pg_attribute
				  WHERE attrelid = 'after'::regclass AND attname = 'id'}
			) eq 't' ? 'bigint' : 'int')
		  . '; COMMIT');
	ok($dt->wait_paused($s{after}, 'after transaction'),
		'one pauses after its transaction');
	$s{running}->send('SELECT pg_sleep(600)');
	return \%s;
}

# All is there, nothing is left of the sessions, and new ones are throttled.
sub check_recovered
{
	my ($what) = @_;

	is($dt->definitions, $expected, "$what: groups are all there");
	is( $dt->sql(
			q{SELECT count(*), coalesce(sum(members), 0),
			         coalesce(sum(paused), 0),
			         coalesce(sum(dirty_debt), 0), sum(blocks_dirtied)
			  FROM dirty_throttle_groups() WHERE instance IS NULL}),
		(() = $expected =~ /=/g) . '|0|0|0|0',
		"$what: no member, no pause, no debt, no block");
	is($dt->sql('SELECT count(*) FROM dirty_throttle_sessions'),
		0, "$what: no phantom session");

	my $s = $dt->session(group => 'slow');
	$s->send(insert_sql('fresh', $big));
	ok($dt->wait_paused($s, 'in flight'), "$what: a new session is throttled");
	is($dt->group_row('slow')->{paused},
		1, "$what: and is counted as paused");
	$dt->cancel_ms($s);
	$s->quit;
}

foreach my $victim (qw(in_flight after running checkpointer))
{
	my $s = occupy();
	my $mark = $dt->log_mark;
	my $pid =
		$victim eq 'checkpointer'
	  ? $dt->sql(
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'})
	  : $s->{$victim}->pid;

	is($dt->group_row('slow')->{members}, 3, 'three members');
	$dt->disconnect;
	kill 'KILL', $pid or die "kill: $!";
	ok( poll_until(sub {
				$dt->log_since($mark) =~
				  /ready to accept connections/ }),
		"kill -9 of $victim: the server has recovered");
	like($dt->log_since($mark), qr/terminated by signal 9/, 'it was a crash');
	check_recovered("kill -9 of $victim");
	$_->quit foreach values %$s;
	unlike($dt->log_since($mark), qr/PANIC|TRAP|is damaged/,
		"kill -9 of $victim: nothing else happened");
}

{
	my $s = occupy();
	$dt->stop('immediate');
	$_->quit foreach values %$s;
	$node->start;
	check_recovered('stop -m immediate');
}

#
# The postmaster goes: whoever sleeps must notice, after its transaction as
# well, where it may not exit.
#
{
	my $s = occupy();
	my $mark = $dt->log_mark;
	my @others = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');
	my ($postmaster) =
	  PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postmaster.pid')
	  =~ /^(\d+)/;
	my %gone;
	$node->kill9;
	poll_until(
		sub {
			foreach my $who (keys %$s)
			{
				$gone{$who} ||= gone($s->{$who}->pid);
			}
			return keys %$s == grep { $_ } values %gone;
		});
	ok($gone{$_}, "'$_' does not sleep on without the postmaster")
	  foreach qw(in_flight after);
	$_->quit foreach values %$s;
	$dt->disconnect;

	# Its shared memory is in use until the last one has gone.
	poll_until(sub { !grep { !gone($_) } @others });
	$dt->bury($postmaster);
	$node->start;
	is($dt->crashes($mark), '', 'no PANIC');
	check_recovered('kill -9 of the postmaster');
}

$dt->stop;
done_testing();
