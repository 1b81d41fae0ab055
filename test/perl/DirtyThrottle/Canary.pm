# How late processes wake up on this machine, which nobody can be blamed for: a
# process that sleeps for 10 ms again and again.
#
#	my $before = overslept_ms(0);
#	...
#	my $late = overslept_ms() - $before;    # all that it was late meanwhile
#
# Who pauses does so for 10 ms at least, and so wakes up less often.

package DirtyThrottle::Canary;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);

our @EXPORT = qw(monotonic_time overslept_ms);

my $PROGRAM = q{
	my ($file, $parent) = @ARGV;
	my ($late, $then) = (0, clock_gettime(CLOCK_MONOTONIC));

	open my $out, '>', $file or die "$file: $!";
	while (getppid() == $parent)
	{
		sleep 0.01;
		my $now = clock_gettime(CLOCK_MONOTONIC);
		$late += $now - $then - 0.01;
		$then = $now;
		sysseek $out, 0, 0;
		syswrite $out, pack('dd', $now, $late);
	}
};
my ($owner, $pid, $file);

# Seconds on a clock that nobody sets.
sub monotonic_time
{
	return clock_gettime(CLOCK_MONOTONIC);
}

# A new program, as a copy of this one would keep its connections open.
sub start
{
	$file = PostgreSQL::Test::Utils::tempdir() . '/canary';
	$owner = $$;
	$pid = fork // die "fork: $!";
	return if $pid;
	open STDOUT, '>', '/dev/null';
	open STDERR, '>&', \*STDOUT;
	{
		exec $^X, '-MTime::HiRes=sleep,clock_gettime,CLOCK_MONOTONIC', '-e',
		  $PROGRAM, $file, $owner;
	}
	POSIX::_exit(127);
}

# Up to that time, by default now, for which it has to wake up once more.
sub overslept_ms
{
	my ($up_to) = @_;

	$up_to //= monotonic_time();
	start() unless $pid;
	for (my $left = 18_000; $left > 0; $left--)
	{
		my $note = '';

		if (open my $in, '<', $file) { sysread $in, $note, 16 }
		my ($at, $late) = unpack 'dd', $note;
		return 1000 * $late if defined $late && $at >= $up_to;
		sleep 0.01;
	}
	die 'the canary is dead';
}

END
{
	local $?;
	if ($pid && $owner == $$) { kill 'KILL', $pid; waitpid $pid, 0; }
}

1;
