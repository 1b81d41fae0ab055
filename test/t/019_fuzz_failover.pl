# As 018_fuzz.pl, on a primary with a standby, while backends and postmasters are
# killed, sessions terminated, and standbys promoted.  Each time the groups are
# those that were there before, and nothing is left of the sessions that were.
#
# DT_SEED repeats a sequence of statements (not their timing), DT_SECONDS makes it
# longer: a few seconds between two of these events.
#
# expect-in-log: WARNING:  this session shares the limits of resource group
# expect-in-log: WARNING:  resource group "(g[1-6]|h)" does not exist
# expect-in-log: WARNING:  batch job "b[1-8]" is not throttled, as this session is in no resource group
# expect-in-log: WARNING:  statement_timeout ends the CALL after [0-9]+ ms, however many batches
# expect-in-log: WARNING:  there is (no|already a) transaction in progress
# expect-in-log: WARNING:  SET LOCAL can only be used in transaction blocks
# expect-in-log: WARNING:  PID [0-9]+ is not a PostgreSQL (server|backend) process
# expect-in-log: WARNING:  terminating connection because of crash of another server process
# expect-in-log: DETAIL:  child process was terminated by signal (2|15)
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# takes-about: 25 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Fuzz;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $seed = $ENV{DT_SEED} // time ^ $$;
my $seconds = $ENV{DT_SECONDS} // 8;
my $BETWEEN = 2;    # seconds from one event to the next
$ENV{PGCTLTIMEOUT} = 180;    # for the recovery, on a busy machine
srand $seed;
note "DT_SEED=$seed";

# No parallel workers, nor workers for I/O: when the postmaster goes while there are
# some, the core's abort of the transaction fails itself, and with assertions that is
# a crash.
my $conf = q{
max_parallel_workers = 0
restart_after_crash = on
wal_keep_size = 1GB
dirty_throttle.max_groups = 8
dirty_throttle.max_commit_pause = 2s
dirty_throttle.transaction_grace = 20ms
};
$conf .= "io_method = sync\n" if `pg_config --version` =~ / (\d+)/ && $1 >= 18;
my $primary = DirtyThrottle::Standby->primary('server0', conf => $conf);
my $fuzz = DirtyThrottle::Fuzz->new(lost => 1);
my $servers = 0;

$fuzz->create($primary);

sub new_standby
{
	$servers++;
	return $primary->standby("server$servers");
}

my $standby = new_standby();

# A session of it ends as if the kernel had killed it, and all others with it; not
# one that others have terminated already.
sub kill_backend
{
	my ($dt) = @_;
	my $pid = pick(split /\n/, $dt->sql(q{SELECT pid FROM pg_stat_activity
		WHERE pid <> pg_backend_pid()
		  AND backend_type IN ('client backend', 'background writer')}));
	my @others = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');

	kill KILL => $pid;
	poll_until(sub { !grep { !gone($_) } @others }, 180)
	  or die 'sessions are left after a crash';
	poll_until(sub { eval { $dt->disconnect; $dt->sql('SELECT 1') } }, 180)
	  or die 'the server does not come back';
}

sub kill_postmaster
{
	my ($dt) = @_;
	my ($postmaster) = slurp_file($dt->node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my @pids = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');

	$dt->disconnect;
	$dt->node->kill9;
	poll_until(sub { !grep { !gone($_) } $postmaster, @pids }, 180)
	  or die 'processes are left without a postmaster';
	$dt->bury($postmaster);
	$dt->node->start;
}

# The primary is gone for good, with its sessions.
sub promote
{
	$standby->replay($primary);
	$primary->stop('immediate');
	is($primary->crashes =~ s/.*was terminated by signal 9.*\n?//gr, '',
		"server of before: no crash");
	$standby->node->promote;
	$primary->node->clean_node;
	$primary = $standby;
	$standby = new_standby();
}

my %event = (
	'a backend is killed' => sub { kill_backend($primary) },
	'the postmaster is killed' => sub { kill_postmaster($primary) },
	"the standby's postmaster is killed" => sub { kill_postmaster($standby) },
	'the standby is promoted' => \&promote);
my @events = sort keys %event;
my %times;
my $end = time + $seconds;

do
{
	my $event = pick(@events);

	# each of them in a short run, too
	@events = grep { $_ ne $event } @events;
	@events = sort keys %event unless @events;
	$fuzz->connect($primary);
	my $reader = $standby->session(options => '-c dirty_throttle.group=g1');
	$reader->send('SELECT count(*) FROM shared; SELECT pg_sleep(0.5); ' x 3);
	$fuzz->run($BETWEEN);
	$fuzz->calm;
	my $definitions = $primary->definitions;

	$event{$event}->();
	$times{$event}++;
	is($primary->definitions, $definitions, "$event: the groups are the same");
	$standby->replay($primary);
	is($standby->definitions, $definitions, "$event: on the standby, too");
	$_->{session}->hang_up foreach @{ $fuzz->{sessions} }, $fuzz->{admin};
	$reader->hang_up;
	$primary->sql("SELECT pg_terminate_backend(pid, 180000) FROM pg_stat_activity
		WHERE application_name = 'test' AND pid <> pg_backend_pid()");
	is($primary->left_over, '', "$event: no member, pause or debt is left");
	# what a lost session had prepared
	$primary->sql("ROLLBACK PREPARED '$_'")
	  foreach split /\n/, $primary->sql('SELECT gid FROM pg_prepared_xacts');
} while (time < $end || keys %times < keys %event);

$fuzz->check;
note join ', ', map { "$_: $times{$_}" } sort keys %times;
foreach my $dt ($primary, $standby)
{
	$dt->stop;
	is($dt->crashes =~ s/.*was terminated by signal 9.*\n?//gr, '', 'no crash');
}
done_testing();
