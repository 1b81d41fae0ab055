# The dashboard and the alerts as they are used: postgres_exporter asks a server
# on which something happens, Prometheus asks the exporter, and every query of
# monitoring/grafana-dashboard.json and every alert of docs/monitoring.md is
# put to Prometheus, as Grafana would.
#
# On demand, as variables for test/run:
#
#	DT_DASHBOARD_SECONDS=n	how long the scene lasts, 20
#	DT_DASHBOARD_DATA=file	write what Grafana would show, as JSON, for
#							bench/dashboard.py
#
# takes-about: 26 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Programs;
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $exe = need_programs(
	'prometheus' => 'prometheus',
	'prometheus-postgres-exporter' => 'prometheus-postgres-exporter');

my $top = "$FindBin::RealBin/../..";
my $seconds = $ENV{DT_DASHBOARD_SECONDS} // 20;
my $data_file = $ENV{DT_DASHBOARD_DATA};
my $scrape = 1;    # seconds
my $dashboard =
  decode_json(slurp_file("$top/monitoring/grafana-dashboard.json"));

# -------------------------------------------------------------------- servers

my $dt = DirtyThrottle->new(
	'dashboard', conf => q{
dirty_throttle.max_commit_pause = 10min
full_page_writes = off
});
my $dir = PostgreSQL::Test::Utils::tempdir();
my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() }
  qw(exporter prometheus);

sub get
{
	my ($url) = @_;
	my $r = HTTP::Tiny->new(timeout => 30)->get($url);
	return $r->{content};
}

# What the API of Prometheus answers; dies if that is no success.
sub prometheus
{
	my ($what, %parameters) = @_;
	my $query = HTTP::Tiny->new->www_form_urlencode(\%parameters);
	my $content = get("http://127.0.0.1:$port{prometheus}/api/v1/$what?$query");
	my $r = eval { decode_json($content) } // {};

	die "$what $query: $content" if ($r->{status} // '') ne 'success';
	return $r->{data};
}

append_to_file("$dir/prometheus.yml", "global:
  scrape_interval: ${scrape}s
scrape_configs:
  - job_name: dirty_throttle
    static_configs:
      - targets: ['127.0.0.1:$port{exporter}']
");
$dt->sql('CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter');
$ENV{DATA_SOURCE_NAME} = 'host=' . $dt->node->host . ' port=' . $dt->node->port
  . ' user=exporter dbname=postgres sslmode=disable';
start_program('exporter', $exe->{'prometheus-postgres-exporter'}, '--disable-default-metrics',
	'--disable-settings-metrics',
	"--extend.query-path=$top/monitoring/postgres_exporter_queries.yaml",
	"--web.listen-address=127.0.0.1:$port{exporter}");
start_program('prometheus', $exe->{prometheus}, "--config.file=$dir/prometheus.yml",
	"--storage.tsdb.path=$dir/tsdb",
	"--web.listen-address=127.0.0.1:$port{prometheus}");

# ---------------------------------------------------------------- the scene

# Work until it is cancelled: a few blocks a transaction.
$dt->sql(q{CREATE TABLE hot AS SELECT 1 AS id, 0 AS n;
	CREATE PROCEDURE work(name text, nap float8, fill int)
	LANGUAGE plpgsql AS $$ BEGIN
		EXECUTE format('CREATE TABLE %I (id int, filler text)
			WITH (fillfactor = %s)', name, fill);
		LOOP
			FOR i IN 1 .. 300 LOOP
				EXECUTE format($q$INSERT INTO %I SELECT i, repeat('x', 800)
					FROM generate_series(1, 10) i$q$, name);
				COMMIT;
				PERFORM pg_sleep(nap);
			END LOOP;
			EXECUTE format('TRUNCATE %I', name);
			COMMIT;
		END LOOP; END $$;
	SELECT set_group_dirty_limit('batch', 8000);
	SELECT set_group_wal_limit('batch', 5000);
	SELECT set_group_wal_limit('etl', 3000);
	SELECT set_group_dirty_limit('trial', 500);
	SELECT alter_resource_group('trial', mode => 'observe');
	SELECT set_group_pressure('trial', 'checkpoint', 'on');
	SELECT set_group_dirty_limit('nightly', 2000);
	SELECT set_group_wal_limit('nightly', 5000);
	SELECT alter_resource_group('etl', scope => 'role');
	ALTER ROLE exporter IN DATABASE template1 SET dirty_throttle."group" = 'renamed'});
# Batch jobs in no group, one of which fails.
$dt->sql(q{CREATE TABLE jobs AS SELECT i AS id, 0 AS n FROM generate_series(1, 200) i;
	ALTER TABLE jobs ADD PRIMARY KEY (id);
	ANALYZE jobs;
	SELECT start_batches('backfill', 'jobs', 'UPDATE jobs SET n = 1 WHERE {batch}', unthrottled => true);
	SELECT start_batches('broken', 'jobs', 'UPDATE jobs SET n = 1 / 0 WHERE {batch}', unthrottled => true)});
my %worker;
my $begun;

# The session that does something in a group; a nap is how long it does nothing
# after each transaction.  With a fill of 10 a row has a block of its own.
sub work
{
	my ($name, $group, $nap, $fill) = @_;

	$worker{$name} = $dt->session(group => $group);
	$worker{$name}->send("CALL work('$name', $nap, $fill)");
}

# Wait for that part of the scene.
sub until_part
{
	my ($part) = @_;
	my $left = $begun + $part * $seconds - time;
	sleep $left if $left > 0;
}

ok( poll_until(sub { eval { @{ prometheus('query', query => 'dirty_throttle_enabled')->{result} } } }),
	'Prometheus has heard of the server')
  or diag map { slurp_file(program_log($_)) } qw(exporter prometheus);
$begun = time;
work('batch_1', 'batch', 0, 10);
work('batch_2', 'batch', 0, 10);
work('etl_1', 'etl', 0, 100);
work('trial_1', 'trial', 0.05, 10);
work('nightly_1', 'nightly', 0.02, 10);
until_part(0.2);
$dt->limit(batch => 16000);
until_part(0.35);
$dt->sql(q{SELECT suspend_group('nightly')});
until_part(0.45);
$dt->limit(batch => 4000);

# A member that may keep others waiting, and one of them.
my $holder = $dt->session(group => 'batch');
$holder->query('SET dirty_throttle.max_blocking_time = -1;
	CREATE TABLE held (id int, filler text) WITH (fillfactor = 10)');
$holder->send("BEGIN; UPDATE hot SET n = 1;
	INSERT INTO held SELECT i, repeat('x', 800) FROM generate_series(1, 1000000) i");
ok($dt->wait_paused($holder, 'in flight'), 'a member pauses in flight');
my $outsider = $dt->session;
$outsider->send('UPDATE hot SET n = 2');
until_part(0.7);

# ---------------------------------------------------------- what Grafana asks

# The variables of the dashboard, as Grafana asks for their values.
sub label_values
{
	my ($query) = @_;
	my ($selector, $label) = $query =~ /^label_values\((.*), (\w+)\)$/
	  or die "no label_values(): $query";

	return prometheus("label/$label/values",
		'match[]' => $selector =~ s/\$instance/127.0.0.1:$port{exporter}/r);
}

my %variables = map { $_->{name} => $_ } @{ $dashboard->{templating}{list} };
is_deeply(label_values($variables{instance}{query}{query}),
	["127.0.0.1:$port{exporter}"], 'variable instance');
is_deeply(label_values($variables{group}{query}{query}),
	[qw(batch etl nightly trial)], 'variable group');

# A query with the variables' values; all groups is what the dashboard begins
# with.
sub expanded
{
	my ($expr) = @_;
	my %value = (
		instance => "127.0.0.1:$port{exporter}",
		group => $variables{group}{allValue},
		# at least four scrapes
		__rate_interval => 4 * $scrape . 's');

	return $expr =~ s/\$(\w+)/$value{$1} \/\/ die "no variable $1"/ger;
}

my @panels = grep { $_->{type} ne 'row' } @{ $dashboard->{panels} };
my %value;    # by the panel's title and the target; then by the series' name

sub ask
{
	my ($target) = @_;
	my $r = prometheus('query', query => expanded($target->{expr}));

	# what a panel calls a series
	return {
		map {
			my $labels = $_->{metric};
			$target->{legendFormat} =~
			  s/\{\{(\w+)\}\}/$labels->{$1} \/\/ "no label $1"/ger =>
			  $_->{value}[1]
		} @{ $r->{result} } };
}

foreach my $panel (@panels)
{
	foreach my $target (@{ $panel->{targets} })
	{
		my $name = "$panel->{title}, $target->{refId}";
		my $values = ask($target);

		ok(%$values > 0, "$name: has data");
		is_deeply([ grep { /no label/ } keys %$values ],
			[], "$name: has labels for the legend");
		is_deeply([ grep { !/^-?[\d.]+(?:e[-+]?\d+)?$/ } values %$values ],
			[], "$name: numbers");
		$value{$name} = $values;
	}
}

# What happens is what it shows.
is_deeply([ map { values %{ $value{"$_, A"} } }
		'Throttling', 'Blocked outsiders', 'Suspended groups', 'Settings without a group' ],
	[ 1, 1, 1, 1 ], 'the numbers at the top');
is_deeply($value{'Members, A'},
	{ batch => 3, etl => 1, nightly => 1, trial => 1 }, 'members');
is_deeply([ sort keys %{ $value{'Dirtied shared buffers, and the limit, A'} } ],
	[qw(batch etl nightly trial)], 'the rate of each group');
is_deeply($value{'Dirtied shared buffers, and the limit, B'},
	{ 'batch limit' => 4e6, 'nightly limit' => 2e6, 'trial limit' => 5e5 },
	'the limits');
is_deeply([ @{ $value{'Sessions that wait for a pausing member, A'} }{
		'outsiders, for batch', 'outsiders, for etl' } ],
	[ 1, 0 ], 'who is blocked');
cmp_ok($value{'Longest wait of an outsider, A'}{'for batch'},
	'>', 0, 'for how long, s');
cmp_ok($value{'Longest pause under way, A'}{nightly},
	'>', 0, 'the longest pause is that of the suspended group, s');
cmp_ok($value{'Observed pause time, seconds per second, A'}{trial},
	'>', 0, 'observed pauses');
is_deeply($value{'Progress of batch jobs, A'}, { backfill => 100, broken => 0 }, 'progress of batch jobs');
is($value{'State of batch jobs, D'}{'broken failed'}, 1, 'a batch job that has failed');
is($value{'State of batch jobs, F'}{'backfill finished'}, 1, 'and one that has finished');
foreach my $case ([ 'Limit used, A', 'batch dirty' ], [ 'Limit used, B', 'etl WAL' ])
{
	my ($name, $series) = @$case;
	my ($title, $ref) = $name =~ /^(.*), (\w)$/;
	my ($target) = map {
		my $panel = $_;
		grep { $panel->{title} eq $title && $_->{refId} eq $ref }
		  @{ $panel->{targets} }
	} @panels;

	ok(poll_until(sub { (ask($target)->{$series} // 0) > 0 }), "$name: $series");
}

# --------------------------------------------------------------------- alerts

my ($alerts) =
  slurp_file("$top/docs/monitoring.md") =~ /^## Alerts$(.*)/ms;
my @alerts = grep { /dirty_throttle/ } $alerts =~ /^\| `(.*?)` \|/mg;
cmp_ok(scalar(@alerts), '>=', 5, 'there are alerts');
my %fires;
foreach my $alert (@alerts)
{
	my $r = eval { prometheus('query', query => $alert)->{result} };

	ok(defined $r, "alert $alert: is a query") or diag $@;
	$fires{$alert} = join ' ', sort map { $_->{metric}{group_name} // $_->{metric}{name} // 'all' } @{ $r // [] };
}
is($fires{'dirty_throttle_group_suspended == 1'},
	'nightly', 'the alert about a suspended group');
is($fires{'dirty_throttle_settings_without_group > 0'},
	'all', 'the alert about a setting that names no group');
is($fires{'dirty_throttle_batches_failed == 1 or dirty_throttle_batches_interrupted == 1'},
	'broken', 'the alert about a batch job that has failed');
is($fires{'dirty_throttle_enabled == 0'}, '', 'no alert about throttling');

# --------------------------------------------------------------------- the end

$dt->cancel_ms($holder);
$holder->query('ROLLBACK');
is($outsider->wait->{sqlstate}, undef, 'the outsider goes on');
$dt->sql(q{SELECT resume_group('nightly')});
until_part(1);

# What each panel shows of the whole scene: [[name, [[time, value], ...]], ...].
if ($data_file)
{
	my $step = int($seconds / 150) || 1;
	my @shown;

	foreach my $panel (@panels)
	{
		my @series;

		foreach my $target (@{ $panel->{targets} })
		{
			my $r = prometheus(
				'query_range',
				query => expanded($target->{expr}),
				start => $begun,
				end => $begun + $seconds,
				step => $step);

			foreach my $one (@{ $r->{result} })
			{
				push @series,
				  [
					$target->{legendFormat} =~ s/\{\{(\w+)\}\}/$one->{metric}{$1}/gr,
					[ map { [ $_->[0] - $begun, 0 + $_->[1] ] } @{ $one->{values} } ]
				  ];
			}
		}
		push @shown, { id => $panel->{id}, series => \@series };
	}
	open my $file, '>', $data_file or die "$data_file: $!";
	print $file encode_json({ seconds => $seconds, panels => \@shown });
	close $file;
}
foreach my $name (sort keys %worker)
{
	$dt->cancel_ms($worker{$name});
	$worker{$name}->quit;
}
$_->quit foreach $holder, $outsider;
$dt->finish;
