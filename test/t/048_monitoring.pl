# docs/monitoring.md and monitoring/: every query runs, as a superuser and as
# the role that the document creates, and says of members that pause for each
# of the reasons, and of those whom they block, what the views say.  Both
# exporters have the same metrics, their columns are the queries', and
# dashboard and alerts use these metrics and no others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $top = "$FindBin::RealBin/../..";

# ------------------------------------------------------------------ the files

# The SQL statements of a Markdown file, by the heading that they are under.
sub doc_statements
{
	my ($text) = @_;
	my ($heading, $language, %statements) = ('');

	foreach my $line (split /\n/, $text)
	{
		if ($line =~ /^```(\w*)/)
		{
			$language = defined $language ? undef : $1;
			push @{ $statements{$heading} }, '' if ($language // '') eq 'sql';
		}
		elsif (!defined $language)
		{
			$heading = $1 if $line =~ /^#+ (.*)/;
		}
		elsif ($language eq 'sql')
		{
			my $ended = $line =~ s/(?:;| \\watch \d+)$//;
			$statements{$heading}[-1] .= "$line\n";
			push @{ $statements{$heading} }, '' if $ended;
		}
	}
	@$_ = grep { /\S/ } @$_ foreach values %statements;
	return \%statements;
}

# The lines of a block with so many spaces before them.
sub block
{
	my ($lines, $indent) = @_;
	my $text = '';

	while (@$lines && $lines->[0] =~ /^(?: {$indent}(.*)|\s*)$/)
	{
		$text .= ($1 // '') . "\n";
		shift @$lines;
	}
	$text =~ s/\s+\z/\n/;
	return $text;
}

sub lines_of
{
	my ($text) = @_;
	return [ grep { !/^(?:#.*|\s*)$/ } split /\n/, $text ];
}

# The two files are YAML, but nothing of it is used that these cannot read.
# Each returns the queries by name, with text and columns, and the metrics by
# name, with type, help, labels, query and column.
sub postgres_exporter
{
	my ($lines) = @_;
	my (%queries, %metrics);

	while (defined(my $line = shift @$lines))
	{
		my ($name) = $line =~ /^(\w+):$/ or die "unexpected: $line";
		my %q = (columns => []);
		my @labels;

		while (@$lines && $lines->[0] =~ /^  \S/)
		{
			$line = shift @$lines;
			if ($line eq '  master: true') { $q{master} = 1; next }
			if ($line eq '  query: |') { $q{text} = block($lines, 4); next }
			die "unexpected: $line" if $line ne '  metrics:';

			while (@$lines && $lines->[0] =~ /^    - (\w+):$/)
			{
				my $column = $1;
				my ($usage) = $lines->[1] =~ /^        usage: "(\w+)"$/
				  or die "unexpected: $lines->[1]";
				my ($help) = $lines->[2] =~ /^        description: "([^"\\]+)"$/
				  or die "unexpected: $lines->[2]";

				splice @$lines, 0, 3;
				push @{ $q{columns} }, $column;
				push @labels, $column if $usage eq 'LABEL';
				next if $usage eq 'LABEL';
				die "two metrics ${name}_$column" if $metrics{"${name}_$column"};
				$metrics{"${name}_$column"} = {
					type => lc $usage,
					help => $help,
					labels => \@labels,
					query => $name,
					column => $column
				};
			}
		}
		$queries{$name} = \%q;
	}
	return { queries => \%queries, metrics => \%metrics };
}

sub sql_exporter
{
	my ($lines) = @_;
	my (%queries, %metrics, $part);

	while (defined(my $line = shift @$lines))
	{
		if ($line =~ /^(\w+):(?: (\w+))?$/)
		{
			$part = $1;
			die "unexpected: $line"
			  unless $line =~ /^(?:collector_name: dirty_throttle|metrics:|queries:)$/;
		}
		elsif ($part eq 'metrics' && $line =~ /^  - metric_name: (\w+)$/)
		{
			my $name = $1;
			my %m = (labels => []);

			while (@$lines && $lines->[0] =~ /^    (\w+): (.*)$/)
			{
				my ($key, $value) = ($1, $2);
				my ($list) = $value =~ /^\[(.*)\]$/;

				if ($key eq 'type') { $m{type} = $value }
				elsif ($key eq 'help') { ($m{help}) = $value =~ /^"([^"\\]+)"$/ }
				elsif ($key eq 'query_ref') { $m{query} = $value }
				elsif ($key eq 'values') { $m{column} = $list }
				elsif ($key eq 'key_labels') { $m{labels} = [ split /, /, $list ] }
				else { die "unexpected: $lines->[0]" }
				shift @$lines;
			}
			die "two metrics $name" if $metrics{$name};
			$metrics{$name} = \%m;
		}
		elsif ($part eq 'queries'
			&& $line =~ /^  - query_name: (\w+)$/
			&& shift @$lines eq '    query: |')
		{
			$line =~ /(\w+)$/;
			$queries{$1} = { text => block($lines, 6) };
		}
		else
		{
			die "unexpected: $line";
		}
	}
	return { queries => \%queries, metrics => \%metrics };
}

my $doc_text = slurp_file("$top/docs/monitoring.md");
my $doc = doc_statements($doc_text);
my $exporter = postgres_exporter(
	lines_of(slurp_file("$top/monitoring/postgres_exporter_queries.yaml")));
my $other = sql_exporter(
	lines_of(slurp_file(
		"$top/monitoring/sql_exporter_dirty_throttle.collector.yml")));
my $metrics = $exporter->{metrics};

# ------------------------------------------------------- exporters, dashboard

is_deeply($other->{metrics}, $metrics, 'both exporters have the same metrics');
is_deeply(
	{ map { $_ => $other->{queries}{$_}{text} } keys %{ $other->{queries} } },
	{ map { $_ => $exporter->{queries}{$_}{text} }
		  keys %{ $exporter->{queries} } },
	'and the same queries');
is( scalar(grep { !$_->{master} } values %{ $exporter->{queries} }),
	0, 'which run in one database only');
is_deeply(
	[ grep { ($metrics->{$_}{type} eq 'counter') ne /_total$/ } keys %$metrics ],
	[], 'counters, and no others, are named so');

# What an expression uses are metrics; rate() takes counters, and nothing else
# does.  Returns them.
sub check_expression
{
	my ($expr, $name) = @_;
	my @used = $expr =~ /\b(dirty_throttle\w*)/g;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(@used > 0, "$name: has metrics");
	is_deeply([ grep { !$metrics->{$_} } @used ],
		[], "$name: an exporter produces them");
	my @rates = $expr =~ /\brate\((dirty_throttle\w*)/g;
	is_deeply(
		[ sort @rates ],
		[ sort grep { ($metrics->{$_}{type} // '') eq 'counter' } @used ],
		"$name: rate() of counters");
	return @used;
}

my $dashboard =
  decode_json(slurp_file("$top/monitoring/grafana-dashboard.json"));
my %variables = map { $_->{name} => $_ } @{ $dashboard->{templating}{list} };
my (%ids, %shown, @area);

ok($dashboard->{schemaVersion} >= 36, 'dashboard: a recent schema');
is_deeply(
	[ map { $variables{datasource}{$_} } qw(type query) ],
	[ 'datasource', 'prometheus' ],
	'dashboard: the data source is a variable');
foreach my $name (qw(instance group))
{
	check_expression($variables{$name}{query}{query}, "variable $name");
}
foreach my $panel (@{ $dashboard->{panels} })
{
	my $name = "panel $panel->{title}";
	my $pos = $panel->{gridPos};
	my $overlaps = 0;

	ok(!$ids{ $panel->{id} }++, "$name: its own id");
	foreach my $x ($pos->{x} .. $pos->{x} + $pos->{w} - 1)
	{
		$overlaps += $area[$x][$_]++ || $x >= 24
		  foreach $pos->{y} .. $pos->{y} + $pos->{h} - 1;
	}
	is($overlaps, 0, "$name: its own place");
	next if $panel->{type} eq 'row';

	foreach my $target (@{ $panel->{targets} })
	{
		my $expr = $target->{expr};

		is_deeply(
			[ map { $_->{datasource}{uid} } $panel, $target ],
			[ ('${datasource}') x 2 ],
			"$name: data source");
		$shown{$_} = 1 foreach check_expression($expr, $name);
		is_deeply(
			[ grep { !$variables{$_} && $_ ne '__rate_interval' }
				  $expr =~ /\$\{?(\w+)/g ],
			[], "$name: variables");
		is_deeply(
			[ grep { !/^(?:instance|group_name)$/ } $expr =~ /(\w+)=~?"/g ],
			[], "$name: labels");
		is(() = $expr =~ /\(/g, () = $expr =~ /\)/g, "$name: parentheses");
	}
}
is_deeply([ grep { !$shown{$_} } sort keys %$metrics ],
	[], 'dashboard: shows all metrics');

my ($alerts) = $doc_text =~ /^## Alerts$(.*)/ms;
my @alerts = grep { /dirty_throttle/ } $alerts =~ /^\| `(.*?)` \|/mg;
ok(@alerts >= 5, 'alerts');
check_expression($_, "alert $_") foreach @alerts;

# ------------------------------------------------------- a night on the server

my $dt = DirtyThrottle->new('monitoring',
	conf => q{dirty_throttle.max_commit_pause = 10min
# somebody is to wait for a sleeper
dirty_throttle.max_blocking_time = -1
dirty_throttle.autovacuum_group = nowhere
});

$dt->create_sleep_tables;
$dt->sql($_) foreach @{ $doc->{Privileges} };
$dt->sql(q{CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot VALUES (1, 0), (2, 0);
	CREATE TABLE t (id int, filler text) WITH (fillfactor = 10);
	CREATE TABLE jobs (id int PRIMARY KEY, n int);
	INSERT INTO jobs SELECT i, 0 FROM generate_series(1, 4) i;
	ANALYZE jobs;
	CREATE ROLE etl LOGIN;
	CREATE ROLE app LOGIN;
	CREATE ROLE forgotten;
	GRANT ALL ON ALL TABLES IN SCHEMA public TO etl, app;
	SELECT set_group_dirty_limit('batch', 0);
	SELECT set_group_dirty_limit('nightly', 0);
	SELECT set_group_wal_limit('archive', 0);
	SELECT set_group_dirty_limit('trial', 100);
	SELECT set_group_mode('trial', 'observe');
	SELECT set_group_pressure('trial', 'wal_rate', '1TB');
	SELECT set_group_dirty_limit('suspended', 5000);
	SELECT set_group_dirty_limit('guests', 0);
	SELECT set_group_pressure('guests', 'checkpoint');
	SELECT set_group_dirty_limit('busy', 1000);
	SELECT set_group_wal_limit('busy', 100000);
	ALTER ROLE etl SET dirty_throttle."group" = 'batch';
	ALTER ROLE forgotten SET dirty_throttle."group" = 'renamed';
	VACUUM (FREEZE)});

my %user = (
	superuser => $dt->session,
	exporter => $dt->session(user => 'exporter'));
my $stranger = $dt->session(user => 'app');
my $superuser = $dt->sql('SELECT current_user');

sub rows
{
	my ($session, $query) = @_;
	return decode_json(
		$session->query("SELECT coalesce(json_agg(q), '[]') FROM (\n$query\n) AS q"));
}

# The rows of a query of the document, the n-th under its heading.
sub doc_rows
{
	my ($session, $heading, $n) = @_;
	my $query = $doc->{$heading}[ $n // 0 ];

	die "no query $heading" unless defined $query;
	return rows($session, $query);
}

# The rows of a query of the exporters by their label.
sub metric_rows
{
	my ($session, $name) = @_;
	return { map { ($_->{group_name} // $_->{name} // '') => $_ }
		  @{ rows($session, $exporter->{queries}{$name}{text}) } };
}

sub waits_for_lock
{
	my ($session) = @_;
	return poll_until(
		sub {
			$dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = '
				  . $session->pid);
		});
}

# Every query runs before anything has happened, and has a column for each
# metric and no other, in this order; labels are text, the others numbers.
foreach my $who (sort keys %user)
{
	foreach my $heading (sort grep { $_ ne 'Privileges' } keys %$doc)
	{
		foreach my $query (@{ $doc->{$heading} })
		{
			is($user{$who}->run($query)->{sqlstate},
				undef, "$who: $heading: no error");
		}
	}
	foreach my $name (sort keys %{ $exporter->{queries} })
	{
		my %q = %{ $exporter->{queries}{$name} };
		my @columns = map { [ split /\|/ ] } split /\n/,
		  $dt->node->safe_psql('postgres', "$q{text}\\gdesc",
			extra_params => $who eq 'exporter' ? [ '-U', $who ] : []);

		is_deeply([ map { $_->[0] } @columns ],
			$q{columns}, "$who: $name: columns");
		is_deeply(
			[ grep {
					my ($column, $type) = @$_;
					$type !~ ($metrics->{"${name}_$column"}
						? qr/^(?:integer|bigint|double precision)$/
						: qr/^(?:name|text)$/)
				} @columns ],
			[], "$who: $name: types");
	}
}
# A member pauses in a transaction that holds two rows.  A member of the same
# group waits for the one, an outsider for the other, a second one behind him.
my $batch = $dt->session(user => 'etl');
my $insider = $dt->session(user => 'etl');
$batch->query('BEGIN; UPDATE hot SET n = 1');
$insider->send('UPDATE hot SET n = 2 WHERE id = 2');
ok(waits_for_lock($insider), 'a member waits for a member');
$dt->put_to_sleep($batch, 'batch', 'in flight');
$dt->limit(batch => 0.01);    # lest it pays for a row meanwhile
my @outsiders = map { $dt->session(user => 'app') } 1, 2;
foreach my $outsider (@outsiders)
{
	$outsider->send('UPDATE hot SET n = 3 WHERE id = 1');
	ok(waits_for_lock($outsider), 'an outsider waits for a member');
}

# Others pause after a transaction, for their WAL, and because of suspend_group();
# one would have paused, and one was moved.
my $nightly = $dt->session(group => 'nightly');
$dt->put_to_sleep($nightly, 'nightly', 'after commit');
my $archive = $dt->session(group => 'archive');
$dt->sql("SELECT set_group_wal_limit('archive', 0.01)");
$archive->send(
	"INSERT INTO sleep SELECT generate_series(1, 200), repeat('x', 800)");
ok($dt->wait_paused($archive, 'in flight'), 'a member pauses for its WAL');
my $suspended = $dt->session(group => 'suspended');
$dt->sql("SELECT suspend_group('suspended')");
$suspended->send($MAY_WRITE);
ok($dt->wait_paused($suspended, 'in flight'), 'a member is suspended');
my $trial = $dt->session(group => 'trial');
$trial->query("INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 100) i");
my $moved = $dt->session;
$dt->sql('SELECT set_session_group(' . $moved->pid . ", 'guests')");
my $busy = $dt->session(group => 'busy');
$busy->send(
	"INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 1000000) i");

# Batch jobs in no group, of which some never end.
sub start_job
{
	my ($session, $name, $set) = @_;
	my $r = $session->run(qq{SELECT start_batches('$name', 'jobs', 'UPDATE jobs SET $set WHERE {batch}',
		unthrottled => true)});

	is($r->{sqlstate}, undef, "job $name begins") or diag $r->{err};
}

sub wait_jobs
{
	my ($n, $state) = @_;

	ok(poll_until(sub { $dt->sql("SELECT count(*) FROM dirty_throttle_batches WHERE state = '$state'") == $n }),
		"$state: $n");
}

start_job($stranger, 'done', 'n = 1');
wait_jobs(1, 'finished');
start_job($stranger, 'broken', 'n = 1 / (id - 2)');
wait_jobs(1, 'failed');
# one role's jobs never take the last of the workers
my $most = int($dt->sql('SHOW max_worker_processes') / 2) - 1;
start_job($user{superuser}, "stuck_$_", 'n = pg_sleep(1000)::text::int') foreach 1 .. $most;
wait_jobs($most, 'running');
start_job($user{superuser}, 'late', 'n = 1');
wait_jobs(1, 'waiting');

my %sleepers = (
	$batch->pid => [ 'batch', 'dirty', 'in a transaction' ],
	$nightly->pid => [ 'nightly', 'dirty', 'after its transaction' ],
	$archive->pid => [ 'archive', 'wal', 'in a transaction' ],
	$suspended->pid => [ 'suspended', 'suspend_group', 'in a transaction' ]);
my $insider_pid = $insider->pid;
my @outsider_pids = map { $_->pid } @outsiders;
my $event =
  $dt->sql("SELECT current_setting('server_version_num')::int >= 170000") eq 't'
  ? 'DirtyThrottle'
  : 'Extension';

foreach my $who (sort keys %user)
{
	my $session = $user{$who};
	my $rows;
	my %by_group;

	# Who pauses, and why; the busy one does now and then.
	$rows = doc_rows($session, 'Who pauses, and why');
	is_deeply(
		{ map { $_->{pid} => [ @$_{qw(group_name paused_by pausing)} ] }
			  grep { $_->{group_name} ne 'busy' } @$rows },
		\%sleepers,
		"$who: who pauses, and why");
	my ($owes) = grep { $_->{pid} == $nightly->pid } @$rows;
	between($owes->{dirty_debt}, 1, 500, "$who: what it owes");
	like($owes->{query}, qr/^ALTER TABLE rewrite/, "$who: what it does");

	# Who waits for a pausing session
	$rows = doc_rows($session, 'Who waits for a pausing session');
	is_deeply(
		{ map { $_->{waiting_pid} => [ @$_{qw(holder_pid group_name)} ] } @$rows },
		{ map { $_ => [ $batch->pid, 'batch' ] } $insider_pid, @outsider_pids },
		"$who: who waits for a pausing session");
	is(join(' ', sort map { $_->{waiting_usename} } @$rows),
		'app app etl', "$who: and that is");
	is(scalar(grep { $_->{waiting_ms} > 0 } @$rows), 3, "$who: for how long");
	is_deeply(
		doc_rows($session, 'Who waits for a pausing session', 1),
		[ { holder_pid => $batch->pid, holder_gid => undef, group_name => 'batch', held_up => 3,
				pids => [ sort { $a <=> $b } $insider_pid, @outsider_pids ] } ],
		"$who: all that it holds up");

	# Debt, and the time to pay it
	my $asked = time;
	%by_group = map { $_->{group_name} => $_ }
	  @{ doc_rows($session, 'Debt, and how long it takes to pay') };
	foreach my $debt (
		[ nightly => 'dirty_debt', 'dirty_debt', 'dirty_limit' ],
		[ archive => 'wal_debt', 'wal_debt', 'wal_limit' ])
	{
		my ($group, $shown, $kb, $limit) = @$debt;
		my $row = $dt->group_row($group);
		my $since = time - $asked;
		my ($h, $m, $s) = split /:/, $by_group{$group}{paid_in} // '0:0:0';

		# it has shrunk since, at the limit
		cmp_ok($by_group{$group}{$shown}, '>=', $row->{$kb} - 0.5, "$who: debt of $group: KB");
		cmp_ok($by_group{$group}{$shown}, '<=', $row->{$kb} + $since * $row->{$limit} + 1.5,
			"$who: and no more");
		cmp_ok($h * 3600 + $m * 60 + $s, '>=', $row->{$kb} / $row->{$limit} - 1,
			"$who: seconds to pay it");
	}
	my %debts = map { $_->{pid} => $_ }
	  @{ doc_rows($session, 'Debt, and how long it takes to pay', 1) };
	between($debts{ $nightly->pid }{dirty_debt},
		1, 500, "$who: who owes it: KB");

	# Wait events; now and then one is awake for a moment
	my @events = map { "$_ Extension $event" } qw(archive batch nightly suspended);
	my @seen;
	poll_until(sub {
		@seen = sort map { "$_->{group_name} " . ($_->{wait_event_type} // '') . ' ' . ($_->{wait_event} // '') }
		  grep { $_->{pausing} && $_->{group_name} ne 'busy' } @{ doc_rows($session, 'Wait events') };
		return "@seen" eq "@events";
	});
	is_deeply(\@seen, \@events, "$who: wait events");

	# Switches
	my $heading = 'Is something switched off, suspended, moved or misspelt';
	is(doc_rows($session, $heading)->[0]{enabled}, 'on', "$who: switched on");
	is_deeply(
		{ map { $_->{group_name} => [ $_->{mode}, defined $_->{suspended_since} ] }
			  @{ doc_rows($session, $heading, 1) } },
		{ suspended => [ 'enforce', 1 ], trial => [ 'observe', '' ] },
		"$who: suspended, or observing");
	is_deeply(
		[ map { [ @$_{qw(pid group_name)} ] } @{ doc_rows($session, $heading, 2) } ],
		[ [ $moved->pid, 'guests' ] ],
		"$who: moved");
	is_deeply(
		[ map { [ @$_{qw(rolname datname setting)} ] }
			  @{ doc_rows($session, $heading, 3) } ],
		[ [ 'forgotten', undef, 'dirty_throttle.group=renamed' ] ],
		"$who: misspelt");
	is_deeply(
		[ map { [ @$_{qw(name setting)} ] } @{ doc_rows($session, $heading, 4) } ],
		[ [ 'dirty_throttle.autovacuum_group', 'nowhere' ] ],
		"$who: misspelt for workers");

	# Observe mode
	$rows = doc_rows($session, 'Observe mode');
	is(join(' ', map { $_->{group_name} } @$rows), 'trial', "$who: observes");
	ok($rows->[0]{observed_pauses} > 0, "$who: observed pauses");
	cmp_ok($rows->[0]{observed_pause_s}, '<=', 12,
		"$who: for 0.8 MB at 100 KB/s: seconds");

	# Which signal slows a group down
	$heading = 'Which signal slows a group down';
	is_deeply(
		{ map { $_->{group_name} => [ @$_{qw(pressure_signal floor)} ] }
			  @{ doc_rows($session, $heading) } },
		{ guests => [ 'checkpoint', 64 ], trial => [ 'wal_rate', 64 ] },
		"$who: by what groups are slowed down");
	is_deeply(
		[ map { [ @$_{qw(group_name signal threshold unit set state)} ] }
			  @{ doc_rows($session, $heading, 1) } ],
		[
			[ 'guests', 'checkpoint', undef, 'bytes', undef, 'fresh' ],
			[ 'trial', 'wal_rate', 1_000_000_000_000, 'bytes/s', '1TB', 'fresh' ]
		],
		"$who: the signals that they follow");
	my %signals = map { $_->{signal} => $_ }
	  @{ rows($session, $exporter->{queries}{dirty_throttle_signal}{text}) };
	is_deeply(
		[ map { [ $_, @{ $signals{$_} }{qw(unit groups fresh)} ] } sort keys %signals ],
		[ [ 'checkpoint', 'bytes', 1, 1 ], [ 'wal_rate', 'bytes/s', 1, 1 ] ],
		"$who: metrics of signals");
	cmp_ok($signals{checkpoint}{value}, '>', 1e6, "$who: their values");

	# Every member is shown by what is for members, every group by the others.
	is_deeply(
		[ sort { $a <=> $b } map { $_->{pid} }
			  @{ doc_rows($session, 'How far the limits are used', 1) } ],
		[ sort { $a <=> $b } map { $_->pid } $batch, $insider, $nightly,
			$archive, $suspended, $trial, $moved, $busy ],
		"$who: which members use it");
	foreach my $query (
		[ 'How far the limits are used' ],
		[ 'How much has been paused' ])
	{
		is_deeply(
			[ sort map { $_->{group_name} } @{ doc_rows($session, @$query) } ],
			[ qw(archive batch busy guests nightly suspended trial) ],
			"$who: @$query: all groups");
	}

	is_deeply(
		[ sort map { $_->{group} } @{ doc_rows($session, 'Watch it') } ],
		[ qw(archive batch busy guests nightly suspended trial) ],
		"$who: watched: all groups");

	# The metrics of a group are the view's columns.  Debts shrink meanwhile,
	# and what is busy has the next test.
	my $metric = metric_rows($session, 'dirty_throttle_group');
	my $block = $dt->block_kb * 1000;
	my %view = map { $_->{group_name} => $_ }
	  @{ rows($session, 'SELECT * FROM dirty_throttle_groups()') };
	is_deeply([ sort keys %$metric ], [ sort keys %view ], "$who: groups");
	foreach my $group (sort grep { $_ ne 'busy' } keys %view)
	{
		my %m = %{ $metric->{$group} };
		my %v = %{ $view{$group} };

		foreach my $debt ([ 'dirty_debt_bytes', 'dirty_debt' ],
			[ 'wal_debt_bytes', 'wal_debt' ])
		{
			my ($bytes, $kb) = (delete $m{ $debt->[0] }, $v{ $debt->[1] });
			cmp_ok($bytes, '>=', int(1000 * $kb), "$who: $group: $debt->[0]")
			  unless $group eq 'trial';
		}
		my %signals = (
			effective_dirty_limit_bytes_per_second => 1000 * $v{effective_dirty_limit},
			effective_wal_limit_bytes_per_second => 1000 * $v{effective_wal_limit},
			pressure => $v{pressure} // 0);

		# what the sampler renews may have changed between the two
		if (defined $v{pressure_signal})
		{
			like(delete $m{$_}, qr/^[\d.]+$/, "$who: $group: $_") foreach sort keys %signals;
			%signals = ();
		}
		# a pause that goes on is counted each second
		if ($v{paused})
		{
			cmp_ok($m{paused_seconds_total}, '<=', $v{paused_time} / 1000 + 1e-6,
				"$who: $group: paused_seconds_total");
			$m{paused_seconds_total} = $v{paused_time} / 1000;
		}
		is_deeply(
			{ map { $_ => 0 + $m{$_} } grep { $_ ne 'group_name' } keys %m },
			{
				%signals,
				members => $v{members},
				paused_members => $v{paused},
				observe => $v{mode} eq 'observe' ? 1 : 0,
				suspended => defined $v{suspended_since} ? 1 : 0,
				dirty_limit_bytes_per_second => 1000 * $v{dirty_limit},
				dirtied_bytes_total => $block * $v{blocks_dirtied},
				wal_limit_bytes_per_second => 1000 * $v{wal_limit},
				wal_bytes_total => $v{wal_bytes},
				pauses_total => $v{pauses},
				wal_pauses_total => $v{wal_pauses},
				paused_seconds_total => $v{paused_time} / 1000,
				observed_pauses_total => $v{observed_pauses},
				observed_pause_seconds_total => $v{observed_pause_time} / 1000,
				pressure_forgiven_bytes_total => 1000 * $v{debt_forgiven},
			},
			"$who: $group: metrics are what the view says");
	}
	is_deeply(
		[ map { $metric->{$_}{paused_members} } qw(archive batch guests nightly suspended) ],
		[ 1, 1, 0, 1, 1 ],
		"$who: pausing members");
	is($metric->{batch}{members}, 2, "$who: members");
	is($metric->{suspended}{suspended}, 1, "$who: the suspended group");
	ok($metric->{trial}{observed_pause_seconds_total} > 0, "$who: observed pause time");

	$metric = metric_rows($session, 'dirty_throttle_pausing');
	is_deeply(
		[ map { $metric->{$_}{in_transaction} } qw(archive batch guests nightly suspended) ],
		[ 1, 1, 0, 0, 1 ],
		"$who: pausing in a transaction");
	my $longest = $dt->sql("SELECT extract(epoch FROM clock_timestamp() - paused_since)
		FROM dirty_throttle_sessions
		WHERE paused_since IS NOT NULL AND pid = " . $batch->pid) || 0;
	cmp_ok($metric->{batch}{longest_seconds}, '<=', $longest, "$who: the longest pause")
	  if $longest;
	is($metric->{guests}{longest_seconds}, 0, "$who: where nobody pauses");

	$metric = metric_rows($session, 'dirty_throttle_blocked');
	is_deeply(
		[ map { [ @{ $metric->{$_} }{qw(sessions outsiders)} ] } qw(batch nightly) ],
		[ [ 3, 2 ], [ 0, 0 ] ],
		"$who: blocked outsiders");
	cmp_ok($metric->{batch}{outsiders_longest_seconds},
		'>', 0, "$who: the longest wait of one");
	is($metric->{nightly}{outsiders_longest_seconds}, 0, "$who: where nobody waits");

	# The metrics of batch jobs, by the states of the scene.
	$metric = metric_rows($session, 'dirty_throttle_batches');
	my @flags = qw(running waiting suspended failed interrupted finished);
	is_deeply(
		{ map { my $job = $_; $job => join ' ', $metric->{$job}{owner}, grep { $metric->{$job}{$_} } @flags }
			  keys %$metric },
		{ done => 'app finished', broken => 'app failed', late => "$superuser waiting",
			map { ("stuck_$_" => "$superuser running") } 1 .. $most },
		"$who: batch jobs: owners and states");
	is_deeply(
		[ map { [ map { 0 + $_ } @{ $metric->{$_} }{qw(percent rows_total retries_total)} ] } qw(done broken late) ],
		[ [ 100, 4, 0 ], [ 25, 1, 0 ], [ 0, 0, 0 ] ],
		"$who: batch jobs: how far they are");
	is($metric->{stuck_1}{pid}, $dt->sql(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'stuck_1'}),
		"$who: batch jobs: the worker");
	is_deeply([ map { $metric->{$_}{pid} } qw(done broken late) ], [ 0, 0, 0 ], "$who: batch jobs: no worker");
	is_deeply([ map { $metric->{$_}{idle_seconds} > 0 } qw(stuck_1 late done broken) ], [ 1, 1, '', '' ],
		"$who: batch jobs: time without progress");

	is_deeply(
		metric_rows($session, 'dirty_throttle'),
		{ '' => { enabled => 1, settings_without_group => 1 } },
		"$who: the server");
}

# Without the privilege one sees the groups, but nobody else's sessions.
is(@{ doc_rows($stranger, 'Watch it') }, 7, 'unprivileged: all groups');
is(@{ doc_rows($stranger, $_) }, 0, "unprivileged: $_: nothing")
  foreach 'Who pauses, and why', 'Who waits for a pausing session', 'Wait events';

# What is busy is measured; in % of its limit it is what the view says.
poll_until(sub { $dt->group_row('busy')->{dirty_rate} > 0 });
{
	my $rows;

	# what the others did at first is forgotten after some seconds
	ok( poll_until(
			sub {
				$rows = doc_rows($user{exporter}, 'How far the limits are used');
				return $rows->[0]{group_name} eq 'busy';
			}),
		'the busiest group is the first one');
	my ($row) = grep { $_->{group_name} eq 'busy' } @$rows;
	is( $row->{wal_percent},
		sprintf('%.0f', 100 * $row->{wal_rate} / $row->{wal_limit}),
		'the same for WAL');
	is( $row->{dirty_percent},
		sprintf('%.0f', 100 * $row->{dirty_rate} / $row->{dirty_limit}),
		'and for dirtying');
}
my %watched = map { $_->{group} => $_ } @{ doc_rows($user{exporter}, 'Watch it') };
is_deeply([ @{ $watched{busy} }{qw(limit wal_limit)} ],
	[ 1000, 100000 ], 'watched: limits');
is($watched{nightly}{paused}, '1 of 1', 'watched: a member that pauses');
cmp_ok($watched{busy}{rate}, '>', 0, 'watched: rate');

# What psql prints when a query is watched fits on a screen of 80 columns:
# whatever the groups' names are with that of the document, names that are not
# long with that of README.md.
my ($of_readme) = grep { /dirty_throttle_groups/ }
  @{ doc_statements(slurp_file("$top/README.md"))->{'Getting started'} };
foreach my $case (
	[ 'README.md', $of_readme, 'twenty_characters___' ],
	[ 'docs/monitoring.md', $doc->{'Watch it'}[0], 'n' x 63 ])
{
	my ($name, $query, $group) = @$case;

	$dt->sql("SELECT set_group_dirty_limit('$group', 16777216),
		set_group_wal_limit('$group', 16777216)");
	# a rate and a number of members that are as wide
	my ($out, $err) = run_command(
		[
			'psql', '-X', '-P', 'pager=off', '-d',
			$dt->node->connstr('postgres'), '-c',
			"SELECT * FROM (\n$query) AS q" =~
			  s/dirty_rate AS/dirty_rate + 16777216 AS/r =~
			  s/ wal_rate,/ wal_rate + 16777216 AS wal_rate,/r =~
			  s/paused \|\|/100 + paused ||/r =~
			  s/\|\| members/|| 100 + members/r
		]);
	my ($longest) = sort { $b <=> $a } map { length } split /\n/, $out;

	like($out, qr/16777216 .*16777216/, "watched as in $name: it is watched");
	between($longest, 40, 80, "watched as in $name: columns of the screen");
	$dt->sql("SELECT drop_resource_group('$group')");
}
ok(!$busy->finished, 'it was busy all the time');
$dt->cancel_ms($busy);

# Everybody goes on, and nobody waits any more.
$dt->sql("SELECT set_group_dirty_limit('$_', 0), set_group_wal_limit('$_', 0)")
  foreach qw(batch nightly archive);
$dt->sql("SELECT resume_group('suspended')");
is($_->wait->{sqlstate}, undef, 'a sleeper goes on')
  foreach $batch, $nightly, $archive, $suspended;
$batch->query('ROLLBACK');
is($_->wait->{sqlstate}, undef, 'so does who has waited')
  foreach $insider, @outsiders;
is(@{ doc_rows($user{exporter}, 'Who pauses, and why') }, 0, 'nobody pauses');
is(@{ doc_rows($user{exporter}, 'Who waits for a pausing session') },
	0, 'nobody waits');
my $metric = metric_rows($user{exporter}, 'dirty_throttle_blocked')->{batch};
is_deeply([ @$metric{qw(sessions outsiders outsiders_longest_seconds)} ],
	[ 0, 0, 0 ], 'nor do the metrics say so');
ok(metric_rows($user{exporter}, 'dirty_throttle_group')
	  ->{nightly}{paused_seconds_total} > 0,
	'the pause counts now that it has ended');

$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
$dt->sql('SELECT pg_reload_conf()');
ok( poll_until(
		sub {
			metric_rows($user{exporter}, 'dirty_throttle')->{''}{enabled} == 0;
		}),
	'switched off: so does the metric say');

$_->quit
  foreach values %user, $stranger, $batch, $insider, @outsiders, $nightly,
  $archive, $suspended, $trial, $moved, $busy;
$dt->finish;
