# pg_squeeze's worker as a member.  It copies a table by functions of the server,
# without an executor and without checks for interrupts, so it pays when that is
# done: at the checks of the index builds, and before it goes on.
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Programs;
use Test::More;

need_extensions(pg_squeeze => 'squeeze');

my $limit = 4000;    # KB/s

my $dt = DirtyThrottle::Life->new(
	'squeeze',
	init => [ allows_streaming => 'logical' ],
	conf => q{
shared_preload_libraries = 'pg_squeeze, dirty_throttle'
max_worker_processes = 20
full_page_writes = off
}, no_start => 1);
my $node = $dt->node;

allow_output_plugins($node, 'pg_squeeze');
$node->start;
$dt->sql(q{CREATE EXTENSION dirty_throttle;
	CREATE EXTENSION pg_squeeze;
	CREATE ROLE maint LOGIN SUPERUSER;
	CREATE TABLE s (id int PRIMARY KEY, filler text);
	INSERT INTO s SELECT i, repeat('x', 500) FROM generate_series(1, 40000) i;
	SELECT set_group_wal_limit('batch', 0);
	ALTER ROLE maint SET dirty_throttle."group" = 'batch'});

my $s = $dt->session(user => 'maint');
my $worker = "FROM dirty_throttle_sessions
	WHERE usename = 'maint' AND paused_since IS NOT NULL AND pid <> "
  . $s->pid;

# All that it writes is charged, and paid for.
my $r = $dt->check_limit(
	'squeeze_table()', 'batch',
	sub {
		is($s->run(q{SELECT squeeze.squeeze_table('public', 's')})->{sqlstate},
			undef, 'squeeze_table() ends without an error');
	},
	limit => $limit,
	wal => 1,
	members => 2);
cmp_ok($r->{kb}, '>', 20000, 'what it writes is charged');

# Nobody who pauses goes on by himself: it is terminated, and shut down.
$dt->sql(q{SELECT set_group_wal_limit('batch', 0); SELECT set_group_wal_limit('batch', 1)});
$s->send(q{SELECT squeeze.squeeze_table('public', 's')});
my $pid = poll_until(sub { $dt->sql("SELECT pid $worker") });
ok($pid, 'the worker pauses in flight');
$dt->sql("SELECT pg_terminate_backend($pid)");
ok(poll_until(sub { gone($pid) }), 'it ends when it is terminated');
$s->wait;

$s->send(q{SELECT squeeze.squeeze_table('public', 's')});
ok(poll_until(sub { $dt->sql("SELECT pid $worker") }), 'the next one pauses');
$dt->disconnect;
is($node->stop('fast', fail_ok => 1), 1, 'a fast shutdown does not wait for it');
$node->stop('immediate', fail_ok => 1);
done_testing();
