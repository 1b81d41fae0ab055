# Kinds of commands, each under a dirty and under a WAL limit: how long they take
# in relation to what the limit asks for, how much of that is paid while they
# run, and what the group uses in its worst second.  bench/commands.py runs this
# and makes a table of it; bench/run has prepared what it needs.
#
# Paid while it runs is what was paid when the last transaction of the command
# had ended, as time: that part of the time which it took in which no process of
# its group was seen from outside to pause after a transaction.
#
# Every command here checks for interrupts all the time.  But it is only then
# asked to pause when a timer has ticked, and while a command uses nothing, that
# is every 10 ms.  What it uses in less time than that at its very end is paid
# after its transaction, and what it uses so at any time comes in one go.  That
# is how some indexes get to the WAL: GIN, GiST with an operator class that
# cannot sort, and SP-GiST log all pages when they are done (log_newpage_range,
# with a check every 32 pages).
#
# In the environment:
#	DT_OUTPUT    where the results go, as JSON
#	DT_BESIDE=1  each command shares its group with a member that inserts rows all
#	             the time: the group as a whole gets its limit, the command half
#	DT_ROWS      rows of the tables; the limits are as much higher
#	DT_COMMANDS  only those commands run whose names match this expression

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../test/perl";

use DirtyThrottle;
use DirtyThrottle::Commands;
use JSON::PP;
use List::Util qw(first max);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = $ENV{DT_ROWS} // 50000;    # rows
my $aim = 2;           # s, which a command takes at its limit
my $slots = 2;         # commands at the same time
my $interval = 0.1;    # s, between two looks at all of them
my $beside = $ENV{DT_BESIDE};
my $wanted = $ENV{DT_COMMANDS} // '.';

my $dt = DirtyThrottle->new(
	'commands',
	init => [ allows_streaming => 'logical' ],
	conf => $COMMANDS_CONF . q{
autovacuum_naptime = 1s
autovacuum_vacuum_threshold = 1000000000
autovacuum_vacuum_insert_threshold = -1
autovacuum_analyze_threshold = 1000000000
autovacuum_vacuum_scale_factor = 0
autovacuum_vacuum_cost_delay = 0
wal_retrieve_retry_interval = 100ms
});

# ------------------------------------------------------------------ the cases

$dt->sql("CREATE TABLESPACE place LOCATION ''");
$dt->sql('CREATE DATABASE other');
my %db = (postgres => $dt->session, other => $dt->session(dbname => 'other'));
my $number = 0;

my @todo = command_todo($dt, $n, $aim, $wanted);

# Make what the case needs, in a new table; in that session, without waiting, if
# one is given.
sub set_up
{
	my ($case, $session) = @_;
	my $table = 't' . ++$number;
	my $of_its_own = sub { $_[0] =~ s/\btbl/$table/gr };

	$case->{group} = $case->{worker} ? $case->{worker}[1] : "grp_$number";
	$case->{table} = $table;
	$case->{command} = $of_its_own->($case->{sql});
	$db{other}->query($of_its_own->($case->{publish})) if $case->{publish};
	if ($case->{setup})
	{
		my $sql = $of_its_own->($case->{setup});

		$session ? $session->send($sql) : $db{ $case->{db} }->query($sql);
	}
	$dt->limit($case->{group} => 0);
	$dt->sql("SELECT set_group_burst('$case->{group}', 0)");
}

# The same for many, two at a time.
sub set_up_all
{
	my @sessions = ($db{postgres}, $dt->session);
	my @busy;

	my $wait = sub {
		my ($case, $s) = @{ shift @busy };
		my $r = $s->wait;

		die "$case->{name}: $r->{err}" if defined $r->{sqlstate};
		push @sessions, $s;
	};
	foreach my $case (@_)
	{
		if ($case->{db} ne 'postgres' || !$case->{setup})
		{
			set_up($case);
			next;
		}
		$wait->() unless @sessions;
		my $s = shift @sessions;
		set_up($case, $s);
		push @busy, [ $case, $s ];
	}
	$wait->() while @busy;
}

# ------------------------------------------------------------------ measuring

# Look at their groups: when, what each has used so far, in KB, and whether a
# member pauses after its transaction.  A worker is found, and seen to have
# gone, by that, too.
sub look
{
	my ($running) = @_;
	my $groups = join ', ', map { "'$_->{group}'" } @$running;
	return unless $groups;
	my $out = $dt->sql(
		"SELECT group_name, extract(epoch FROM clock_timestamp()),
			blocks_dirtied * current_setting('block_size')::int / 1000.0,
			wal_bytes / 1000.0,
			EXISTS (SELECT FROM dirty_throttle_sessions s JOIN pg_stat_activity a USING (pid)
				WHERE s.group_name = g.group_name AND s.paused_since IS NOT NULL
				  AND a.xact_start IS NULL)
		FROM dirty_throttle_groups g WHERE group_name IN ($groups)");
	my %row = map { my @f = split /\|/; ($f[0] => \@f) } split /\n/, $out;

	foreach my $case (@$running)
	{
		my (undef, $at, $dirty, $wal, $after) = @{ $row{ $case->{group} } };

		push @{ $case->{looks} },
		  { at => $at, kb => $case->{by} eq 'dirty' ? $dirty : $wal,
			after => $after eq 't' };
		look_at_worker($case) if $case->{worker};
	}
}

sub look_at_worker
{
	my ($case) = @_;

	if (!$case->{pid})
	{
		$case->{pid} = $dt->sql("SELECT pid FROM $case->{worker}[0]
			WHERE relid = '$case->{table}'::regclass AND datname = 'postgres'");
		if ($case->{pid})
		{
			my @looks = @{ $case->{looks} };

			# it may have begun right after the look before
			$case->{start} = time;
			$case->{unseen} = $looks[-1]{at} - $looks[ @looks > 1 ? -2 : -1 ]{at};
		}
		elsif (time > ($case->{start} // time) + 60)
		{
			fail("$case->{name}, $case->{by}: the worker is seen");
			$case->{gone} = 1;
		}
	}
	elsif ($dt->sql("SELECT count(*) FROM dirty_throttle_sessions
		WHERE pid = $case->{pid}") == 0)
	{
		$case->{gone} = 1;
	}
}

sub set_limits
{
	my ($case) = @_;
	my ($group, $limit) = @$case{qw(group limit)};

	# what it has used before is not owed, and nothing is saved up
	$dt->sql("SELECT set_group_dirty_limit('$group', 0),
			set_group_wal_limit('$group', 0)");
	$dt->sql("SELECT set_group_$case->{by}_limit('$group', $limit)");
}

sub start
{
	my ($case) = @_;
	my $joins = !$case->{move} && !$case->{worker};
	my $s = $dt->session(
		dbname => $case->{db},
		$joins ? (group => $case->{group}) : ());

	$case->{session} = $s;
	$case->{looks} = [];
	$s->query($case->{settings}) if $case->{settings};
	set_limits($case);
	if ($beside)
	{
		my $b = $case->{beside} = $dt->session(group => $case->{group});
		$b->query("CREATE TABLE beside_$case->{table} (filler text)");
		$b->send("DO \$\$ BEGIN LOOP
			INSERT INTO beside_$case->{table} VALUES (repeat('x', 900)); END LOOP; END \$\$");
		$dt->wait_paused($b, 'in flight');
	}
	look([$case]);
	$case->{other_kb} = used_kb($case, $case->{beside}) if $beside;
	$case->{start} = time;
	$s->send($case->{command});
	if ($case->{move})
	{
		sleep $case->{move};
		$dt->sql('SELECT set_session_group(' . $s->pid . ", '$case->{group}')");
		$case->{start} = time;
	}
}

# What a session has used so far.
sub used_kb
{
	my ($case, $s) = @_;
	my $row = $dt->session_row($s);

	return $case->{by} eq 'dirty'
	  ? $row->{blocks_dirtied} * $dt->block_kb
	  : $row->{wal_bytes} / 1000;
}

sub has_ended
{
	my ($case) = @_;
	return $case->{worker} ? $case->{gone} : $case->{session}->finished;
}

# How long it took, what that comes to in seconds at the limit, how much of the
# limit it has used in its worst second, and how much of its time was over when
# its last transaction was, in %.
sub end
{
	my ($case) = @_;
	my $end = time;
	my $took = $end - $case->{start};

	look([$case]) unless $case->{gone};
	$case->{error} = $case->{session}->wait->{sqlstate};
	if ($beside)
	{
		$case->{other_kb} = used_kb($case, $case->{beside}) - $case->{other_kb};
		$dt->sql('SELECT pg_cancel_backend(' . $case->{beside}->pid . ')');
		$case->{beside}->wait;
		$case->{beside}->quit;
	}
	$case->{session}->quit;

	my @looks = @{ $case->{looks} };
	my $kb = $looks[-1]{kb} - $looks[0]{kb};
	my ($worst, $after) = (0, 0);
	foreach my $i (1 .. $#looks)
	{
		$worst = max($worst,
			map { ($looks[$i]{kb} - $looks[$_]{kb})
				/ max(1, $looks[$i]{at} - $looks[$_]{at}) } 0 .. $i - 1);
		$after += $looks[$i]{at} - $looks[ $i - 1 ]{at}
		  if $looks[ $i - 1 ]{after};
	}
	$case->{kb} = $kb;
	$case->{took} = $took;
	$case->{end} = $end;
	$case->{ideal} = $kb / $case->{limit};
	$case->{worst} = 100 * $worst / $case->{limit};
	$case->{in_flight} = 100 * (1 - $after / $took);
	$case->{share} = 100 * (1 - ($case->{other_kb} // 0) / $kb);
}

# Run the cases, several at a time.
sub run_all
{
	my @waiting = @_;
	my @running;
	my $next = 0;
	my $deadline = time + 3600;

	while (@waiting || @running)
	{
		die 'this takes too long: ' . join ', ', map { $_->{name} } @running
		  if time > $deadline;
		while (@running < $slots)
		{
			my %busy = map { $_->{alone} => 1 } grep { $_->{alone} } @running;
			my $i = first {
				!($waiting[$_]{alone} && $busy{ $waiting[$_]{alone} })
			} 0 .. $#waiting;

			last unless defined $i;
			my ($case) = splice @waiting, $i, 1;
			start($case);
			push @running, $case;
		}
		if (time >= $next)
		{
			look(\@running);
			$next = time + $interval;
		}
		end($_) foreach grep { has_ended($_) } @running;
		@running = grep { !defined $_->{took} } @running;
		sleep 0.003;
	}
}

# A new subscription waits for all transactions that run, which would let them
# go on without pausing.
my @workers = grep { $_->{worker} } @todo;
my @commands = grep { !$_->{worker} } @todo;
if ($beside)
{
	# whoever inserts holds a snapshot for which these would wait
	@commands = grep { $_->{name} !~ /CONCURRENTLY/ } @commands;
	@todo = @commands;
	@workers = ();
}
set_up_all(@todo);
$dt->sql('CHECKPOINT');

# First those that run one at a time; then, of the others, one of each half of the
# list by turns: those that keep the processor busy are close together in it.  Last
# those that are to be moved soon after they begin, when not so many run.
my @alone = grep { $_->{alone} } @commands;
my @moved = grep { $_->{move} } @commands;
@commands = grep { !$_->{alone} && !$_->{move} } @commands;
my $middle = int((@commands + 1) / 2);
@commands = (@alone,
	(grep { defined } map { @commands[ $_, $_ + $middle ] } 0 .. $middle - 1),
	@moved);
run_all(@commands);

$dt->sql("ALTER SYSTEM SET dirty_throttle.autovacuum_group = 'autovacuum'");
$dt->sql("ALTER SYSTEM SET dirty_throttle.apply_group = 'apply'");
$dt->set_conf('autovacuum', 'on');
run_all(@workers);
$dt->set_conf('autovacuum', 'off');

my @columns = qw(name by limit kb ideal start end took worst in_flight share error);
append_to_file(
	$ENV{DT_OUTPUT},
	encode_json(
		[
			map {
				my $case = $_;
				+{ map { $_ => $case->{$_} } @columns }
			} @todo
		]));
ok(!defined $_->{error}, "$_->{name}, $_->{by}") foreach @todo;
$dt->finish;
