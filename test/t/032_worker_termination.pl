# A background worker of an extension ends by the core's own handler of SIGTERM,
# which up to 18 is FATAL at once, at whatever instruction the worker is.  When
# that is one at which it holds a group's spinlock, the lock must not stay
# locked, lest the worker itself, at exit, and all members of the group wait for
# it for ever.  Nor may SIGTERM stay blocked.
#
# expect-in-log: a^

use strict;
use warnings FATAL => 'all';

use Config;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $ROUNDS = 50;

plan skip_all => 'the traps are made for Linux' if $Config{osname} ne 'linux';

my $worker = compile_library('worker');
plan skip_all => 'the traps cannot be compiled here' unless $worker;

my $dt = DirtyThrottle::Life->new('termination',
	conf => q{
max_worker_processes = 20
dirty_throttle.transaction_grace = 600s
});
my $node = $dt->node;

# In database work everybody is in group fast, in which there are few charges.
# In group watched there is one with each block, in slow there are debts.
$dt->limit(fast => 16000000);
$dt->limit(slow => 1);
$dt->limit(watched => 1);
$dt->sql(q{SELECT alter_resource_group('watched', mode => 'observe')});
$dt->sql('CREATE ROLE app LOGIN; CREATE DATABASE work OWNER app');
$dt->sql(q{ALTER DATABASE work SET dirty_throttle."group" = 'fast'});
$dt->session(dbname => 'work')->query(
	qq{CREATE FUNCTION launch(text) RETURNS int AS '$worker' LANGUAGE c;
	CREATE FUNCTION use_block() RETURNS void AS '$worker' LANGUAGE c;
	CREATE FUNCTION trap_lock() RETURNS void AS '$worker' LANGUAGE c;
	CREATE EXTENSION dirty_throttle;
	CREATE TABLE t (pad text DEFAULT repeat('x', 900)) WITH (fillfactor = 10);
	GRANT ALL ON t TO app});
my $member = $dt->session(dbname => 'work', user => 'app');
my $INSERT = 'INSERT INTO t DEFAULT VALUES';

sub launch
{
	my ($sql) = @_;
	return $member->query('SELECT launch($$' . $sql . '$$)');
}

# Whoever is stuck takes the server along.
sub bail_if
{
	my ($stuck) = @_;

	return unless $stuck;
	$node->stop('immediate', fail_ok => 1);
	$node->kill9;
	done_testing();
	exit 1;
}

# The worker ends, and nothing of it is left: a test that fails else.
sub ends
{
	my ($pid, $what) = @_;
	my $gone = $pid eq '' || poll_until(sub { gone($pid) });

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($gone, "$what: the worker ends");
	bail_if(!$gone);
}

# Nobody is a member any more but ourselves, and the group works.
sub check_group
{
	my ($what) = @_;
	my $row;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# the view answers: nothing is locked
	$row = $dt->group_row('fast');
	is("$row->{members} $row->{paused}",
		'1 0', "$what: nothing is left of the worker");
	is($member->run($INSERT)->{sqlstate}, undef, "$what: a member goes on");
}

#
# SIGTERM while a group is locked.
#
{
	my $what = 'a charge';
	my $mark;

	# on a busy machine it may fall into another one first
	foreach my $attempt (1 .. 5)
	{
		$mark = $dt->log_mark;
		my $pid = launch(q{SET dirty_throttle."group" = watched;}
			  . ' SELECT trap_lock() FROM pg_am');    # once a row

		ok( poll_until(
				sub { $dt->log_since($mark) =~ /fault: SIGTERM while/ }),
			"$what: SIGTERM comes while a group is locked");
		ends($pid, $what);
		last if $dt->log_since($mark) =~ /watched is locked$/m;
	}
	like($dt->log_since($mark), qr/watched is locked$/m, "$what: it was that lock");
	like($dt->log_since($mark),
		qr/FATAL:  terminating background worker/,
		"$what: it was the core's handler");
	unlike($dt->log_since($mark), qr/ERROR|PANIC/, "$what: and nothing else");
	check_group($what);
}

#
# At random moments: workers that charge most of the time, some in debt.  They
# pause between rows only.  The core makes a message for each check, and where
# its handler of SIGTERM interrupts the translation of a message, the exit may
# wait for ever for a lock that the translation holds.
#
$dt->set_conf('dirty_throttle.interrupt_pauses', 'off', $member);
$dt->set_conf('dirty_throttle.transaction_grace', '50ms', $member);
my $work = 'SELECT count(use_block()) FROM generate_series(1,9999)a,'
  . 'generate_series(1,9999)b';
my $running = 0;
my @stuck;

foreach my $round (1 .. $ROUNDS / 5)
{
	my $mark = $dt->log_mark;
	$dt->limit(slow => $_) foreach 0, 1;    # they do not wait for each other
	my @pids = map {
		my $group = $_ == 5 ? 'slow' : 'watched';
		launch(qq{SET dirty_throttle."group"=$group;$work})
	} 1 .. 5;

	last
	  unless poll_until(
		sub { 5 == (() = $dt->log_since($mark) =~ /fault: counting/g) });
	$running += 5;
	foreach my $pid (@pids)
	{
		sleep rand 0.01;
		kill 'TERM', $pid;
	}
	@stuck = grep {
		my $pid = $_;
		!poll_until(sub { gone($pid) })
	} @pids;
	last if @stuck;
}
is($running, $ROUNDS, "at random: workers that were at work");
is("@stuck", '', "at random: $ROUNDS workers end when told to");
bail_if(@stuck);
check_group('at random');
is($dt->group_row($_)->{members}, 0, "at random: nobody is in $_")
  foreach qw(watched slow);

# The groups keep their rates.
$dt->check_limit('afterwards', 'fast',
	sub { $member->query('INSERT INTO t SELECT FROM generate_series(1, 200)') },
	limit => 4000);

$member->quit;
$dt->finish;
