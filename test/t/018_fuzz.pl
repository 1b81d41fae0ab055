# Sessions join and leave groups at random, work, fail, cancel and move each other,
# while somebody alters, renames, drops and creates the groups.  Whatever the
# order: the server lives, and nothing is left when all have gone.
#
# DT_SEED repeats a sequence of statements (not their timing), DT_SECONDS
# makes it longer.
#
# expect-in-log: WARNING:  this session shares the limits of resource group
# expect-in-log: WARNING:  resource group "(g[1-6]|h)" does not exist
# expect-in-log: WARNING:  batch job "b[1-8]" is not throttled, as this session is in no resource group
# expect-in-log: WARNING:  statement_timeout ends the CALL after [0-9]+ ms, however many batches
# A cancelled BEGIN or ROLLBACK leaves the rest of its block to say so:
# expect-in-log: WARNING:  there is (no|already a) transaction in progress
# expect-in-log: WARNING:  SET LOCAL can only be used in transaction blocks
# expect-in-log: WARNING:  PID [0-9]+ is not a PostgreSQL (server|backend) process
# expect-in-log: DETAIL:  child process was terminated by signal 2

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Fuzz;
use DirtyThrottle::Life;
use Test::More;

my $seed = $ENV{DT_SEED} // time ^ $$;
my $seconds = $ENV{DT_SECONDS} // 6;
srand $seed;
note "DT_SEED=$seed";

my $dt = DirtyThrottle::Life->new('fuzz', conf => q{
dirty_throttle.max_groups = 8
dirty_throttle.max_commit_pause = 2s
dirty_throttle.transaction_grace = 20ms
});
my $fuzz = DirtyThrottle::Fuzz->new;

$fuzz->create($dt);
$fuzz->connect($dt);
$fuzz->run($seconds);
$fuzz->finish;
$fuzz->check;
is( $dt->sql(
		q{SELECT coalesce(sum(paused), 0) FROM dirty_throttle_groups WHERE instance IS NULL}),
	0, 'nobody pauses');
is( $dt->sql('SELECT sum(members) FROM dirty_throttle_groups WHERE instance IS NULL'),
	$dt->sql('SELECT count(*) FROM dirty_throttle_sessions'),
	'members by both views');
$fuzz->leave;
is($dt->left_over, '', 'no member, pause or debt is left');

my $definitions = $dt->definitions;
$dt->sql('CHECKPOINT');    # there is no point in waiting for the redo
is($dt->crashes, '', 'no crash');
$dt->stop('immediate');
my $mark = $dt->log_mark;
$dt->node->start;
is($dt->definitions, $definitions, 'a restart finds the same groups');
unlike($dt->log_since($mark), qr/is damaged/, 'in a sound file');

# and it still works
my $group = $definitions =~ /^(\w+)=/ ? $1 : 'g1';
$dt->limit($group => 2000);
$dt->sql("SELECT alter_resource_group('$group', mode => 'enforce')");
my $s = $dt->session(group => $group);
$s->send(insert_sql('shared', 2000));
ok($dt->wait_paused($s, 'in flight'), 'a session is throttled');
$dt->cancel_ms($s);
$s->quit;
$dt->stop;
done_testing();
