# The purge each night, as the recipe for pg_cron has it: start_batches() as a command
# of pg_cron, by a background worker and by a connection.  Each minute here, which is
# the shortest time that all releases of pg_cron have.  And the line by which a job that
# a restart has interrupted goes on by itself.
#
# takes-about: 90 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Programs;
use PostgreSQL::Test::Utils;
use Test::More;

need_extensions(pg_cron => 'cron');

# the recipe's line, each minute
my $recipes = slurp_file("$FindBin::RealBin/../../docs/recipes.md");
my ($schedule) = $recipes =~ /^(SELECT cron\.schedule\('nightly'.*?;)$/ms
  or die 'the recipe has gone';
my ($go_on) = $recipes =~ /`(SELECT\s+cron\.schedule\('go on'.*?)`/s
  or die 'the line for a restart has gone';
$schedule =~ s/--.*//;
$schedule =~ s/'0 3 \* \* \*'/'* * * * *'/ or die 'the recipe has another time';

my $dt = DirtyThrottle->new('cron', no_start => 1);
my $node = $dt->node;
$node->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'pg_cron, dirty_throttle'
max_worker_processes = 20
cron.database_name = 'postgres'
cron.host = '} . $node->host . q{'
cron.use_background_workers = on
});
$node->start;
$dt->sql(q{CREATE EXTENSION dirty_throttle;
	CREATE EXTENSION pg_cron;
	CREATE ROLE etl LOGIN;
	GRANT USAGE ON SCHEMA cron TO etl;
	CREATE TABLE events (created timestamptz NOT NULL, filler text);
	CREATE INDEX ON events (created);
	GRANT ALL ON events TO etl;
	SELECT set_group_wal_limit('batch', '20 MB');
	ALTER ROLE etl SET dirty_throttle."group" = 'batch'});

my $rows = 5000;
my $old = q{created < now() - interval '90 days'};

sub runs
{
	return $dt->sql(q{SELECT count(*) FROM cron.job_run_details WHERE status = 'succeeded'});
}

# What is old then is gone after the next run, and nothing else.
sub check_purges
{
	my ($how) = @_;
	my $before = runs();
	my $wal = $dt->group_row('batch')->{wal_bytes};

	$dt->sql(qq{TRUNCATE events;
		INSERT INTO events SELECT now() - i * interval '1 minute', repeat('x', 100)
			FROM generate_series(1, $rows) i;
		INSERT INTO events SELECT now() - interval '100 days' - i * interval '1 minute', repeat('x', 100)
			FROM generate_series(1, $rows) i;
		ANALYZE events});
	ok(poll_until(sub { $dt->sql("SELECT count(*) FROM events WHERE $old") == 0 }, 180),
		"$how: what is old is gone");
	ok(poll_until(sub { runs() > $before }, 180), "$how: to pg_cron the command has succeeded");
	is($dt->sql('SELECT count(*) FROM events'), $rows, "$how: what is not old is there");
	is( $dt->sql(q{SELECT string_agg(DISTINCT status || ' ' || coalesce(return_message, ''), ', ')
			FROM cron.job_run_details WHERE status NOT IN ('succeeded', 'starting', 'running')}),
		'', "$how: no run has failed");
	is( $dt->sql(q{SELECT state || ' ' || owner FROM dirty_throttle_batches WHERE name = 'purge events'}),
		'finished etl', "$how: the job, as the view has it");
	cmp_ok($dt->group_row('batch')->{wal_bytes} - $wal, '>', 50 * $rows,
		"$how: what it writes is charged to the role's group");
}

my $etl = $dt->session(user => 'etl');
$etl->query($schedule);
$etl->query($go_on);
check_purges('a background worker');

# A job of another role, one that was stopped, and one that is interrupted in the middle.
$dt->sql(q{CREATE TABLE changed (id int PRIMARY KEY, n int);
	INSERT INTO changed SELECT i, 0 FROM generate_series(1, 40) i;
	GRANT ALL ON changed TO etl});
my $slow = q{'changed', 'UPDATE changed SET n = n + length(pg_sleep(0.05)::text) + 1 WHERE {batch}', max_rows => 2};
$dt->sql("SELECT start_batches('other', $slow, unthrottled => true)");
$etl->query("SELECT start_batches('stopped', $slow, run_time => '1 s')");
ok(poll_until(sub { $dt->sql(q{SELECT state FROM dirty_throttle_batches WHERE name = 'stopped'}) eq 'stopped' }),
	'one that was stopped');
$etl->query("SELECT start_batches('slow', $slow)");
ok(poll_until(sub { $dt->sql(q{SELECT rows > 4 FROM dirty_throttle_batches WHERE name = 'slow'}) eq 't' }),
	'one that runs');
my $others = q{SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM dirty_throttle_batches WHERE name IN ('other', 'stopped')};
$etl->quit;
$node->append_conf('postgresql.conf', 'cron.use_background_workers = off');
$dt->disconnect;
$node->restart;
ok(poll_until(sub { $dt->sql(q{SELECT state FROM dirty_throttle_batches WHERE name = 'slow'}) eq 'finished' }),
	'after a restart it goes on by itself');
like($dt->sql($others), qr/^other (?:interrupted|finished), stopped stopped$/, 'and no other one');
check_purges('a connection');
$dt->finish;
