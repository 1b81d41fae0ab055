# kill -9 of backends that pause, backends that run, the checkpointer and the
# postmaster, once each, while 25 members of several groups work and
# their limits change: after each recovery the groups are there, nothing is
# left of the sessions that were, and the load goes on.
#
# DT_ROUNDS in the environment is how many kills; each fifth is of a kind.
#
# COPY FROM PROGRAM is terminated with its program
# expect-in-log: (\(PID [0-9]+\) was terminated by signal 9|child process was terminated by signal 15)
# takes-about: 8 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $ROUNDS = $ENV{DT_ROUNDS} // 5;

my $dt = DirtyThrottle::Life->new('kill', conf => 'restart_after_crash = on');
my $node = $dt->node;
my $tmp = PostgreSQL::Test::Utils::tempdir();
my $seed = $ENV{DT_TEST_SEED} // int(time) % 100000;

srand $seed;
note "seed (DT_TEST_SEED): $seed";

#
# The load: for each group its limit in KB/s, the number of members, and what
# each of them does again and again, in a table of its own.
#
my %load = (
	in_flight => {
		limit => 2000,
		members => 7,
		setup => 'CREATE TABLE %s (id int, pad text) WITH (fillfactor = 10)',
		sql => "INSERT INTO %s SELECT i, repeat('x', 900)"
		  . ' FROM generate_series(1, 200) i; TRUNCATE %s'
	},
	in_copy => {
		limit => 2000,
		members => 4,
		setup => 'CREATE TABLE %s (id int) WITH (fillfactor = 10)',
		sql => "COPY %s FROM PROGRAM 'seq 1 4000'; TRUNCATE %s"
	},
	after_commit => {
		limit => 4000,
		members => 7,
		setup => 'CREATE TABLE %s WITH (fillfactor = 10) AS'
		  . " SELECT i AS id, repeat('x', 900) AS pad FROM generate_series(1, 40) i",
		sql => DirtyThrottle::pays_after(
			'ALTER TABLE %s ALTER id TYPE bigint;'
			  . ' ALTER TABLE %s ALTER id TYPE int')
	},
	# its limit changes while it is there
	changing => {
		limit => 3000,
		members => 2,
		setup => 'CREATE TABLE %s (id int, pad text) WITH (fillfactor = 10)',
		sql => "INSERT INTO %s SELECT i, repeat('x', 900)"
		  . ' FROM generate_series(1, 100) i; TRUNCATE %s'
	},
	# never pauses; sleeps a little, lest it leaves nothing to the others
	running => {
		limit => 1000000,
		members => 5,
		setup => 'CREATE TABLE %s AS SELECT generate_series(1, 50) AS id',
		sql => 'UPDATE %s SET id = id + 1;'
		  . ' SELECT sum(i) FROM generate_series(1, 20000) i; SELECT pg_sleep(0.3)'
	});
my $members = 0;
$members += $_->{members} foreach values %load;

# Start a program in the background, its messages are of no interest.
sub start
{
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	exec @_ or POSIX::_exit(127);
}

# The members of a group: a shell that runs pgbench again whenever that has lost
# its connections, as long as the script is there, so until the load is stopped
# or the test ends.
sub start_members
{
	my ($group) = @_;
	my $script = "$tmp/$group.sql";
	my $sql = $load{$group}{sql} =~ s/%s/${group}_:client_id/gr;

	append_to_file($script, "$sql;\n");
	local $ENV{PGOPTIONS} = "-c dirty_throttle.group=$group";
	return {
		script => $script,
		pid => start(
			'sh',
			'-c',
			'while [ -e "$0" ]; do pgbench -n -T 100000 -f "$0" "$@"; sleep 0.25; done',
			$script,
			'-c',
			$load{$group}{members},
			'postgres')
	};
}

foreach my $group (sort keys %load)
{
	$dt->limit($group => $load{$group}{limit});
	$dt->sql($load{$group}{setup} =~ s/%s/${group}_$_/r)
	  foreach 0 .. $load{$group}{members} - 1;
}
$dt->limit(fast => 16000000);
$dt->table('fast');
$dt->limit(idle => 0.001);
$dt->create_sleep_tables;
my $expected = $dt->definitions;

# All groups and limits, but for the one that changes: it is returned as well.
sub definitions
{
	my $definitions = $dt->definitions;
	my ($changing) = $definitions =~ s/changing=\K([\d.]+)/3000/ ? $1 : undef;

	return ($definitions, $changing);
}

# What is wrong now with what the views tell; empty when nothing is.  Members
# may pause or go on between one view and the next, so ask again.
sub inconsistencies
{
	return $dt->sql(
		q{SELECT coalesce(string_agg(problem, '; '), '') FROM (
		  SELECT format('pid %s in group %s is no process', pid, group_name)
		  FROM dirty_throttle_sessions s
		  WHERE NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = s.pid)
		  UNION ALL
		  SELECT format('%s: %s members, %s counted; %s paused, %s counted',
		                group_name, n, members, p, paused)
		  FROM dirty_throttle_groups g, LATERAL (
		    SELECT count(*) AS n, count(paused_since) AS p
		    FROM dirty_throttle_sessions s WHERE s.group_name = g.group_name) s
		  WHERE (n, p) <> (members, paused)) _ (problem)});
}

# Members and blocks of the groups of the load, as text and by name.
sub progress
{
	my %row = map { /^(\w+)\|(\d+)\|(\d+)$/ ? ($1 => [ $2, $3 ]) : () }
	  split /\n/,
	  $dt->sql(
		q{SELECT group_name, members, blocks_dirtied
		  FROM dirty_throttle_groups() WHERE group_name NOT IN ('fast', 'idle')});
	my $text = join ', ', map { "$_ $row{$_}[0]" } sort keys %row;

	return ($text, \%row);
}

# Wait until all members are there, and each group has dirtied blocks since
# it was asked first.
my $all = join ', ', map { "$_ $load{$_}{members}" } sort keys %load;

sub wait_for_load
{
	my (undef, $first) = progress();
	my $start = time;
	my $text;

	poll_until(
		sub {
			my $row;
			($text, $row) = progress();
			sleep 0.05;
			return $text eq $all
			  && !grep { $row->{$_}[1] <= ($first->{$_}[1] // 0) } keys %load;
		});
	return ($text, time - $start);
}

# A member of the group without a narrow limit is not held up.
sub check_fast
{
	my ($what) = @_;
	my $s = $dt->session(group => 'fast');
	my $r = $s->run(insert_sql('fast', 200));
	my $row = $dt->session_row($s);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($r->{sqlstate}, undef, "$what: a new member works") or diag $r->{err};
	cmp_ok($row->{blocks_dirtied}, '>=', 200, "$what: is counted");
	is($row->{pauses}, 0, "$what: is not held up");
	$s->quit;
}

# A session that sets the limit of 'changing' to 3000.001, 3000.002, ... as
# fast as it can; the last one that the server has confirmed is what matters.
my $last_change = 3000;

sub start_changes
{
	my $script = "$tmp/changes.sql";
	my $output = "$tmp/changes.out";
	my $pid;

	unlink $script, $output;
	append_to_file(
		$script,
		join '',
		map { "SELECT set_group_dirty_limit('changing', $_), '$_';\n" }
		  map { sprintf '%.3f', $last_change + $_ / 1000 } 1 .. 20000);
	$pid = start('psql', '-XAtq', '-d', 'postgres', '-f', $script, '-o', $output);
	poll_until(sub { (definitions())[1] > $last_change })
	  or die 'no limit was changed';
	return $pid;
}

# It has lost its connection and ended: is the limit the last one confirmed,
# or the one after that?  Returns how many there were.
sub check_changes
{
	my ($what, $pid, $changing) = @_;
	my $first = $last_change;

	waitpid $pid, 0;
	my ($confirmed) =
	  slurp_file("$tmp/changes.out") =~ /.*^[^\n]*\|([\d.]+)\n/ms;
	$confirmed //= $first;
	my $ahead = sprintf '%.0f', ($changing - $confirmed) * 1000;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $ahead == 0 || $ahead == 1,
		"$what: limit $changing after $confirmed was confirmed");
	$last_change = $changing;
	return sprintf '%.0f', ($changing - $first) * 1000;
}

# The process to be killed.
sub victim
{
	my ($kind) = @_;
	my $condition = {
		'paused in flight' =>
		  'paused_since IS NOT NULL AND pg_stat_activity.xact_start IS NOT NULL',
		'paused after commit' =>
		  'paused_since IS NOT NULL AND pg_stat_activity.xact_start IS NULL',
		'running' =>
		  "paused_since IS NULL AND state = 'active' AND wait_event IS NULL"
	}->{$kind};
	my $pid;

	return slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/ ? $1 : 0
	  if $kind eq 'postmaster';
	poll_until(
		sub {
			my @pids = split /\n/, $dt->sql(
				$condition
				? "SELECT pid FROM dirty_throttle_sessions JOIN
				     pg_stat_activity USING (pid) WHERE $condition"
				: "SELECT pid FROM pg_stat_activity
				   WHERE backend_type = 'checkpointer'");
			$pid = $pids[ rand @pids ];
		});
	return $pid // die "there is no $kind";
}

my @load;

# Also when the test has been given up.
sub stop_load
{
	unlink map { $_->{script} } @load;
}

END
{
	local ($?, $!);
	stop_load();
}

@load = map { start_members($_) } sort keys %load;
is((wait_for_load())[0], $all, "$members members work");

#
# The rounds
#
my @kinds = (
	'paused in flight',
	'paused after commit',
	'running', 'checkpointer', 'postmaster');
my (%times, %changes);

foreach my $round (1 .. $ROUNDS)
{
	my $kind = $kinds[ ($round - 1) % @kinds ];
	my $what = "round $round, $kind";
	my $changer = $round % 2 ? start_changes() : undef;

	# somebody leaves a debt that would take hours
	my $debtor = $dt->session(group => 'idle');
	$debtor->send(DirtyThrottle::pays_after(
			'ALTER TABLE rewrite ALTER id TYPE int USING id + 1'));
	ok($dt->wait_paused($debtor, 'after transaction'),
		"$what: a member owes");
	$dt->terminate_ms($debtor);
	$debtor->quit;
	cmp_ok($dt->group_row('idle')->{dirty_debt}, '>', 100,
		"$what: leaves its debt");

	my @pids = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');
	my $victim = victim($kind);
	my $mark = $dt->log_mark;
	my $start = time;
	$dt->disconnect;
	if ($kind eq 'postmaster')
	{
		$node->kill9;
		ok(poll_until(sub { !grep { !gone($_) } $victim, @pids }),
			"$what: no process of the old server is left");
		$dt->bury($victim);
		$node->start;
	}
	else
	{
		kill 'KILL', $victim or die "kill: $!";
		ok( poll_until(
				sub { $dt->log_since($mark) =~ /ready to accept connections/ }),
			"$what: the server has recovered");
	}
	push @{ $times{$kind} }, time - $start;
	is($dt->crashes($mark) =~ s/.*\(PID $victim\) was terminated.*\n?//r,
		'', "$what: nothing else has crashed");
	unlike($dt->log_since($mark), qr/is damaged/,
		"$what: the definitions file is sound");

	my ($definitions, $changing) = definitions();
	is($definitions, $expected, "$what: the groups are all there");
	if ($changer)
	{
		my $n = check_changes($what, $changer, $changing);
		push @{ $changes{$kind} }, $n;
	}
	else
	{
		cmp_ok($changing, '==', $last_change, "$what: and the one that changes");
	}
	is(join(' ', @{ $dt->group_row('idle') }{qw(members dirty_debt)}),
		'0 0', "$what: nobody owes anything for the one who has gone");
	check_fast($what);

	my ($text, $seconds) = wait_for_load();
	is($text, $all, "$what: all members are back and work");
	ok(poll_until(sub { inconsistencies() eq '' }), "$what: and no others")
	  or diag inconsistencies();
	note sprintf '%s: pid %s; recovered in %.2f s, all back in %.2f s more; %s',
	  $what, $victim, $times{$kind}[-1], $seconds, $text;

	# the other rounds would take as long to fail
	last unless Test::More->builder->is_passing;
}

#
# The end of the load
#
stop_load();
$dt->sql('SELECT pg_terminate_backend(pid) FROM dirty_throttle_sessions');
waitpid $_->{pid}, 0 foreach @load;
is($dt->left_over, '', 'no member, no pause and no debt is left');
is(inconsistencies(), '', 'nor a phantom');
is($dt->sql('SELECT count(*) FROM dirty_throttle_sessions'),
	0, 'nor a session');

# The groups work as on the first day.
$dt->limit(fast => 20000);
{
	my $s = $dt->session(group => 'fast');
	$s->query('TRUNCATE fast');
	$dt->check_limit('a new member alone', 'fast',
		sub { $s->query(insert_sql('fast', 1000)) }, limit => 20000);
	$s->quit;
}

note sprintf '%d kills of %s: recovered in %s s%s', scalar @{ $times{$_} }, $_,
  join(' ', map { sprintf '%.2f', $_ } @{ $times{$_} }),
  $changes{$_}
  ? '; in ' . @{ $changes{$_} } . ' of them while limits were changed ('
  . "@{ $changes{$_} } times)"
  : ''
  foreach grep { $times{$_} } @kinds;
$dt->stop;
done_testing();
