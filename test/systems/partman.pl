# pg_partman's background worker as a member: its handler of SIGTERM only sets a
# flag, and it has to end soon all the same, terminated or by a shutdown, in
# flight or suspended.
#
# The group owes so much that nobody who pauses goes on by himself, and the
# partitions that are made are real ones.
#
# takes-about: 15 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Programs;
use Test::More;

need_extensions(pg_partman => 'partman');

my $dt = DirtyThrottle::Life->new('partman', conf => 'max_worker_processes = 20');

$dt->sql(q{CREATE ROLE maint LOGIN SUPERUSER;
	CREATE SCHEMA partman;
	CREATE EXTENSION pg_partman SCHEMA partman;
	CREATE TABLE public.events (id bigint NOT NULL, filler text) PARTITION BY RANGE (id);
	SELECT set_group_wal_limit('batch', 0);
	ALTER ROLE maint SET dirty_throttle."group" = 'batch'});

$dt->sql($dt->sql(q{SELECT extversion < '5' FROM pg_extension WHERE extname = 'pg_partman'}) eq 't'
	? q{SELECT partman.create_parent('public.events', 'id', 'native', '10')}
	: q{SELECT partman.create_parent('public.events', 'id', '10')});
$dt->sql(q{INSERT INTO events VALUES (1, '')});

# Not before its role exists: it ends for ten minutes when a worker ends too soon.
$dt->node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'pg_partman_bgw, dirty_throttle'
pg_partman_bgw.interval = 1
pg_partman_bgw.dbname = 'postgres'
pg_partman_bgw.role = 'maint'});
$dt->disconnect;
$dt->node->restart;

# It may pause as soon as it has logged in, before it has set its application_name.
my $bgw = q{FROM dirty_throttle_sessions JOIN pg_stat_activity a USING (pid)
	WHERE a.usename = 'maint'};

# The next maintenance has many partitions to make, and is in this situation: both
# begin with one commit, as it may be over soon.
my $premade = 4;

sub much_to_do
{
	my ($situation) = @_;

	$premade += 60;
	$dt->sql("UPDATE partman.part_config SET premake = $premade; SELECT $situation");
}

# The worker that has come to a pause: its process ID.
sub pausing_worker
{
	my ($what) = @_;
	my $pid = poll_until(
		sub { $dt->sql("SELECT pid $bgw AND paused_since IS NOT NULL") });

	ok($pid, "$what: the worker of pg_partman pauses");
	return $pid;
}

my %situations = (
	'in flight' => q{set_group_wal_limit('batch', 1)});

foreach my $what (sort keys %situations)
{
	much_to_do($situations{$what});
	my $pid = pausing_worker($what) or last;

	$dt->sql("SELECT pg_terminate_backend($pid)");
	ok(poll_until(sub { gone($pid) }), "$what: it ends when it is terminated")
	  or last;

	pausing_worker("$what, the next one") or last;
	$dt->disconnect;
	is($dt->node->stop('fast', fail_ok => 1),
		1, "$what: a fast shutdown does not wait for it")
	  or last;
	$dt->node->start;

	# nothing is wrong with its work
	$dt->sql(q{SELECT set_group_wal_limit('batch', 0)});
	ok( poll_until(
			sub {
				$dt->sql(q{SELECT count(*) FROM partman.show_partitions('public.events')}) >
				  $premade;
			}),
		"$what: the next one does the work");
}

$dt->node->stop('immediate');
done_testing();
