# Who is told to end does not pause any more, whoever it is, wherever it pauses,
# and however it is told: by pg_terminate_backend(), and by the server when it
# stops.  All that pauses here does so for hours.
#
# A background worker whose handler of SIGTERM only sets a variable ends when its
# statement has ended, so that goes on at full speed; and its handler is called as
# without us.  A smart shutdown changes nothing for sessions.
#
# who works for another one that was told before it may have gone by then
# expect-in-log: WARNING:  PID [0-9]+ is not a PostgreSQL (backend|server) process
# takes-about: 45 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pauses;
use DirtyThrottle::Session;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = compile_library('ending_worker');
plan skip_all => 'the workers cannot be compiled here' unless $library;

# A transaction of ten rows owes less than the grace, and one of a hundred more.
my $FEW = q{INSERT INTO %t SELECT i FROM generate_series(1, 10) i};
my $MANY = $FEW =~ s/10\)/100)/r;
# Somewhere a worker is told to end while it works, before it has paused.
my $TOLD = $MANY . ' WHERE i <> 5 OR told()';
my $REWRITE = 'ALTER TABLE %t ALTER n TYPE int USING n + 1';

# Where the workers pause, each in a group of its own: what they run, which
# suspension there is, and whether it is the only reason.
my %scenes = (
	rows => { sql => $MANY },
	check => { sql => $REWRITE },
	before => { sql => $FEW },
	soft => { sql => $FEW, suspended => 'soft' });

# What the handlers of each kind of worker tell in the end, if it has any.
my %kinds = (
	core => undef,
	die => undef,
	flag => '1 calls, 0 by another handler',
	info => '1 calls, 0 by another handler, with all information',
	late => '1 calls, 0 by another handler',
	chained => '1 calls, 1 by another handler',
	restored => '2 calls, 1 by another handler',
	ignored => '0 calls, 0 by another handler');

my $dt = DirtyThrottle::Life->new(
	'told_to_end',
	init => [ allows_streaming => 'logical' ],
	conf => qq{
$DirtyThrottle::Pauses::CONF
max_connections = 60
max_worker_processes = 80
max_logical_replication_workers = 8
max_parallel_workers = 16
wal_retrieve_retry_interval = 100ms
wal_receiver_timeout = 0
dirty_throttle.apply_group = applied
dirty_throttle.max_commit_pause = 1d
dirty_throttle.max_blocking_time = -1
});
my $node = $dt->node;
my $pauses = DirtyThrottle::Pauses->new($dt);
my @sessions;    # of Pauses, with their kinds

# A worker in a group owns its table, lest one waits for another.
my %workers;     # by its name: pid, scene

sub setup
{
	$dt->sql("CREATE FUNCTION launch_ending(text, text, text) RETURNS int
			LANGUAGE c AS '$library';
		CREATE FUNCTION told() RETURNS bool LANGUAGE c AS '$library'");
	foreach my $kind (sort keys %kinds)
	{
		$dt->limit("${_}_$kind" => 0) foreach sort keys %scenes;
		foreach my $scene (sort keys %scenes)
		{
			my $name = "${scene}_$kind";

			$dt->sql("CREATE ROLE $name LOGIN SUPERUSER;
				ALTER ROLE $name SET dirty_throttle.\"group\" = '$name';
				CREATE TABLE $name (id int, n int DEFAULT 0,
					filler text DEFAULT repeat('x', 800)) WITH (fillfactor = 10);
				INSERT INTO $name SELECT generate_series(1, 100)");
		}
	}
}

# What the others need.
sub setup_others
{
	foreach my $name ('parallel_session', 'parallel_worker', 'walsender')
	{
		$dt->limit($name => 0);
		$dt->sql("CREATE ROLE $name LOGIN SUPERUSER REPLICATION;
			ALTER ROLE $name SET dirty_throttle.\"group\" = '$name';
			ALTER ROLE $name SET max_parallel_workers_per_gather = 2;
			ALTER ROLE $name SET parallel_setup_cost = 0;
			ALTER ROLE $name SET min_parallel_table_scan_size = 0;
			CREATE TABLE $name (LIKE rows_flag INCLUDING ALL) WITH (fillfactor = 10)");
	}
	$dt->limit(applied => 0);
	$dt->sql('CREATE DATABASE published');
	my $publisher = $dt->session(dbname => 'published');
	$publisher->query("CREATE TABLE replicated (n int);
		CREATE PUBLICATION p FOR TABLE replicated;
		SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
	$publisher->quit;
	my $connection = $node->connstr . ' dbname=published';
	$dt->sql(qq{CREATE TABLE replicated (n int,
			filler text DEFAULT repeat('x', 800)) WITH (fillfactor = 10);
		CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p
			WITH (create_slot = false, copy_data = false, slot_name = s)});
}

sub wait_until
{
	my ($query, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { $dt->sql($query) eq 't' }), $name);
}

# The processes of these IDs pause.
sub all_pause
{
	my ($name, @pids) = @_;
	my $pids = join ',', @pids;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until(
		'SELECT count(*) = ' . @pids . " FROM dirty_throttle_sessions()
			WHERE paused_since IS NOT NULL AND pid IN ($pids)", $name)
	  or diag $dt->sql("SELECT pid, application_name, state, query
		FROM pg_stat_activity WHERE pid IN ($pids) AND pid NOT IN (
			SELECT pid FROM dirty_throttle_sessions() WHERE paused_since IS NOT NULL)");
}

# Start one, in a group with the lowest of all limits, in which nothing is owed.  Its
# login dirties a block, with a hint bit of the database's setting, which is read when
# the role's setting has made it a member, and it has no handler yet: it must not pause.
sub launch
{
	my ($kind, $scene, $sql) = @_;
	my $name = "${scene}_$kind";
	my $suspended = $scenes{$scene}{suspended} // '';

	$dt->limit($name => 0);
	$dt->limit($name => 1) if $suspended ne 'soft';
	$dt->sql("SELECT suspend_group('$name')") if $suspended eq 'soft';
	$sql //= $scenes{$scene}{sql};
	$sql =~ s/%t/$name/;
	$dt->sql('ALTER DATABASE postgres SET seq_page_cost = 1');
	$dt->sql('CHECKPOINT');
	return $dt->sql("SELECT launch_ending('$kind', '$name', \$\$$sql\$\$)");
}

# Start all of them, and wait until they pause where they should.
sub launch_all
{
	%workers = ();
	foreach my $scene (sort keys %scenes)
	{
		$workers{"${scene}_$_"} = launch($_, $scene) foreach sort keys %kinds;
	}
	all_pause('workers: all pause', values %workers);
	foreach my $name (sort keys %workers)
	{
		my ($scene) = $name =~ /^([^_]+)/;

		$dt->limit($name => 0.02) if !$scenes{$scene}{suspended};
	}
}

sub resume_all
{
	$dt->sql("SELECT resume_group(group_name) FROM dirty_throttle_groups
		WHERE suspended_since IS NOT NULL");
}

# They are gone, and have told of their handlers what they should.  A server that
# stops sends the signal twice, to a worker and to its process group.
sub workers_have_ended
{
	my ($name, $mark, $calls) = @_;
	my %left;
	my $log;

	poll_until(
		sub {
			%left = map { gone($workers{$_}) ? () : ($_ => 1) } keys %workers;
			return !%left;
		});
	is(join(' ', sort keys %left), '', "$name: all workers have ended");
	return if %left;
	$log = $dt->log_since($mark);
	my $is_well = Test::More->builder->is_passing;
	# who waits for parallel workers that were told as well gets an error
	delete $workers{parallel_flag} if $calls > 1;
	foreach my $kind (sort keys %kinds)
	{
		my $n = () = $log =~ /worker "$kind": (.*)/g;

		is($n, defined $kinds{$kind} ? scalar grep { /_$kind$/ } keys %workers : 0,
			"$name: so many workers \"$kind\" have come to their own end")
		  || diag join "\n", map { "$_ $workers{$_}" } grep { /_$kind$/ } keys %workers;
		next if $calls > 1;
		my @wrong = grep { $_ ne ($kinds{$kind} // '') } $log =~ /worker "$kind": (.*)/g;
		is("@wrong", '', "$name: handlers \"$kind\" were called as they should");
	}
	diag $log if $is_well && !Test::More->builder->is_passing;
}

# Sessions pause in all ways.
sub sessions_pause
{
	@sessions = ();
	foreach my $kind (@{ $pauses->kinds })
	{
		my $s = $pauses->session($kind);

		$pauses->put($s, $kind);
		push @sessions, [ $s, $kind ];
	}
}

# Parallel workers pause, those of a session and those of a worker of an extension,
# which waits for them.
my %leaders;

sub leaders_pause
{
	foreach my $leader ('session', 'worker')
	{
		my $name = "parallel_$leader";
		my $query = "SELECT count(n) FROM $name";

		# of these rows nobody knows yet that they are committed
		$dt->sql("TRUNCATE $name; INSERT INTO $name SELECT generate_series(1, 100000);
			CHECKPOINT");
		$dt->limit($name => 0);
		$dt->limit($name => 1);
		if ($leader eq 'session')
		{
			$leaders{session} = $dt->session(user => $name);
			$leaders{session}->send($query);
		}
		else
		{
			$workers{parallel_flag} =
			  $dt->sql("SELECT launch_ending('flag', '$name', '$query')");
		}
	}
	foreach my $pid ($leaders{session}->pid, $workers{parallel_flag})
	{
		wait_until("SELECT count(*) >= 2 FROM pg_stat_activity
			WHERE leader_pid = $pid AND wait_event_type = 'Extension'",
			'a parallel query: two workers pause');
	}
	$dt->limit("parallel_$_" => 0.02) foreach 'session', 'worker';
}

# Logical replication from another database, which pauses after a transaction,
# because of its limit or of suspend_group().
sub apply_pauses
{
	my ($suspended) = @_;
	my $publisher = $dt->session(dbname => 'published');

	$dt->limit(applied => 0);
	$dt->limit(applied => 100000);
	# it becomes a member, and learns of limits, when a transaction ends
	$publisher->query('INSERT INTO replicated VALUES (0)');
	wait_until("SELECT members > 0 FROM dirty_throttle_groups
		WHERE group_name = 'applied'", 'an apply worker is a member');
	$publisher->query('INSERT INTO replicated VALUES (0)');
	wait_until("SELECT count(*) >= 2 FROM replicated", 'it works');
	$suspended ? $dt->sql("SELECT suspend_group('applied')")
	  : $dt->limit(applied => 1);
	$publisher->query('INSERT INTO replicated SELECT generate_series(1, 100)');
	wait_until("SELECT paused > 0 FROM dirty_throttle_groups
		WHERE group_name = 'applied'", 'an apply worker pauses');
	$dt->limit(applied => 0.02) unless $suspended;
	$publisher->quit;
}

# A walsender of a role whose group is suspended does not pause.
my $walsender;

sub walsender_answers
{
	$dt->sql(q{SELECT suspend_group('walsender')});
	$walsender = $dt->session(user => 'walsender', replication => 'database');
	is($walsender->query('SELECT count(*) FROM pg_class WHERE oid = 0'),
		0, 'a walsender does not pause');
}

# Everything at once.
sub all_begin
{
	my ($suspended) = @_;

	launch_all();
	sessions_pause();
	leaders_pause();
	apply_pauses($suspended);
	walsender_answers();
}

# The processes of the server, for the case that it does not stop.
sub processes
{
	my $postmaster = shift;

	return map {
		open my $file, '<', $_ or next;
		my ($parent) = <$file> =~ /^.*\) \S (\d+)/;
		$parent == $postmaster ? slurp_file(s/stat$/cmdline/r) =~ s/\0+/ /gr : ();
	} glob '/proc/[0-9]*/stat';
}

# The server stops; tests what it leaves.
sub stops
{
	my ($name, $code) = @_;
	my $file = $node->data_dir . '/postmaster.pid';
	my $postmaster = (split /\n/, slurp_file($file))[0];

	$code->();
	my $stopped = poll_until(sub { gone($postmaster) });

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($stopped, "$name: the server stops")
	  or diag join "\n", processes($postmaster);
	$_->[0]->hang_up foreach @sessions;
	$_->hang_up foreach values %leaders, $walsender;
	$dt->disconnect;
	$node->stop('immediate', fail_ok => 1) unless $stopped;
	$node->stop('fast', fail_ok => 1);    # it is; now the module knows
	return $stopped;
}

sub pg_ctl_stop
{
	my ($mode) = @_;
	run_log([ 'pg_ctl', '-D', $node->data_dir, '-m', $mode, '-W', 'stop' ]);
}

setup();
setup_others();

# ------------------------------------------------------ pg_terminate_backend()

{
	my $mark = $dt->log_mark;

	all_begin(0);
	my $apply = $dt->sql('SELECT pid FROM pg_stat_subscription');
	my $walsenders = $dt->sql("SELECT string_agg(pid::text, ', ')
		FROM pg_stat_activity WHERE backend_type = 'walsender'");
	my $all = join ', ', $apply, $walsenders, values %workers,
	  map({ $_->[0]->pid } @sessions), $leaders{session}->pid;

	$dt->sql("SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[$all]) pid");
	workers_have_ended('terminated', $mark, 1);
	foreach (@sessions, [ $leaders{session}, { name => 'leader' } ])
	{
		my ($s, $kind) = @$_;
		ok(poll_until(sub { gone($s->pid) }), "terminated: $kind->{name}: it has ended");
	}
	ok(poll_until(sub { gone($apply) }), 'terminated: the apply worker has ended');
	ok(poll_until(sub { gone($_) }), 'terminated: a walsender has ended')
	  foreach split /, /, $walsenders;
	$_->[0]->hang_up foreach @sessions;
	$_->hang_up foreach values %leaders, $walsender;
	resume_all();

	# between two pauses, or before the first; what it uses afterwards would take a
	# quarter of an hour
	$mark = $dt->log_mark;
	%workers = map { ("rows_$_" => launch($_, 'rows', $TOLD)) } keys %kinds;
	workers_have_ended('told at work', $mark, 1);
}

# --------------------------------------------------------- the server stops

foreach my $suspended (0, 1)
{
	my $mark = $dt->log_mark;
	my $name = 'stop -m fast' . ($suspended ? ', apply_group suspended' : '');

	all_begin($suspended);
	stops($name, sub { pg_ctl_stop('fast') })
	  and workers_have_ended($name, $mark, 2);
	$node->start;
}

all_begin(0);
stops('stop -m immediate', sub { pg_ctl_stop('immediate') });
$node->start;

# A smart one waits until the sessions have gone.
{
	my $mark = $dt->log_mark;

	all_begin(0);
	my @pids = values %workers;
	stops(
		'stop -m smart',
		sub {
			pg_ctl_stop('smart');
			ok(poll_until(sub { $dt->log_since($mark) =~ /received smart shutdown/ }),
				'stop -m smart: the server knows');
			$pauses->check_stays(@$_, 'stop -m smart') foreach @sessions;
			all_pause('stop -m smart: workers pause on', @pids);
			$_->[0]->hang_up foreach @sessions;
			$_->hang_up foreach values %leaders, $walsender;
			$dt->disconnect;
		}) and workers_have_ended('stop -m smart', $mark, 2);
}

done_testing();
