# What the books of src/engine/rate.c grant: how much more than limit x time the
# members of a group may have used, whatever the machine does.
#
#	my $bytes = granted(kb => 2000, members => 3);
#	ok($used <= 2000 * 1000 * $seconds + $bytes, '...');
#
# That is a theorem: $seconds from before the first to after the last reading,
# $used between the two, the limit not changed meanwhile.  So nobody needs a
# margin.  Nothing here is measured; the names are those of rate.c and tick.c.

package DirtyThrottle::Books;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(max min);

our @EXPORT = qw(granted grantable lone_pause_us
	min_pause_us new_credit threshold);

our $BLOCK = 8192;

# Of src/engine/rate.c, in seconds.
our $LAG = 0.2;
use constant CREDIT => 0.1;
use constant PAUSE_UNIT => 0.01;
use constant PAUSE_CROWD => 0.08;
use constant THRESHOLD_MAX => 1024;    # blocks
use constant DEFAULT_BURST => 0.02;

# The shortest pause that is worth making when so many owe, in us.
sub min_pause_us
{
	my ($debtors) = @_;
	my ($ratio, $pause) = ($debtors, 0);

	while ($ratio >= 2 && $pause < PAUSE_CROWD)
	{
		$ratio /= 2;
		$pause += PAUSE_UNIT;
	}
	return int(1e6 * min($pause + PAUSE_UNIT * $ratio, PAUSE_CROWD) + 0.5);
}

# How many bytes a member may use before it is charged again, at most; while
# fewer owe it is more.
sub threshold
{
	my ($kb, $members) = @_;
	my $rate = $kb * 1000;
	my $bytes = min($rate * PAUSE_UNIT / 2, $rate * CREDIT / 2 / $members);

	return max(1, min(int($bytes / $BLOCK), THRESHOLD_MAX)) * $BLOCK;
}

# The pause of a lone debtor that owes so many bytes, in us.
sub lone_pause_us
{
	my ($bytes, $kb) = @_;
	my $us = int($bytes * 1000 / $kb);

	return $us * $kb < $bytes * 1000 ? $us + 1 : $us;
}

# What a new limit comes with, in bytes.
sub new_credit
{
	my ($kb, $burst_ms) = @_;
	return $kb * min($burst_ms // 1000 * DEFAULT_BURST, 1000 * DEFAULT_BURST);
}

# What the pool may keep and lend in time, in bytes, and what those who were
# overpaid while they slept too long may keep of that besides.
sub grantable
{
	my (%case) = @_;
	my $rate = $case{kb} * 1000;
	my $burst = ($case{burst_ms} // 1000 * DEFAULT_BURST) / 1000;
	# a lone member lags behind nobody
	my $lag = $case{members} > 1 ? $LAG : 0;

	return $rate * $lag + new_credit($case{kb}, $case{burst_ms}) if $case{new};
	return $rate * ($lag + 2 * max(CREDIT, $burst));
}

# granted(kb => LIMIT, ...) in bytes.  What else there is:
#	members   sessions that are or were members in that time and use something
#	          (1); one that has left in debt counts, too
#	processes with their parallel workers (as many as members)
#	burst_ms  of the group (20)
#	grace_ms  dirty_throttle.transaction_grace (50)
#	charge    the most that one process uses between two places where it is
#	          charged and may pause, in bytes: a row with its index entries, all
#	          between two checks for interrupts (one block)
#	new       the limit is new, there was none until the first reading
sub granted
{
	my (%case) = (members => 1, grace_ms => 50, charge => $BLOCK, @_);
	my $rate = $case{kb} * 1000;
	my $processes = $case{processes} // $case{members};
	my $charge = threshold($case{kb}, $case{members}) + $case{charge};

	# Each owes up to its grace and then pauses; or together what is not worth
	# a pause.  Who was woken early by jitter owes half of that still.
	my $owed =
	  $rate * max($case{members} * $case{grace_ms} / 1000,
		min_pause_us($case{members}) / 1e6);
	my $charges = 2 * $processes * $charge;

	return int(grantable(%case) + $owed + $charges + 1);
}

1;
