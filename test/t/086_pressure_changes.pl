# What is changed of a group that follows signals holds with the next sample, for
# which the sampler is woken: a limit by a signal that it does not follow any more
# is not let go slowly, and the signal is not named as the reason.
#
# takes-about: 5 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Pressure;
use Test::More;

my $dt = DirtyThrottle::Pressure->new('changes', conf => q{
checkpoint_timeout = 1h
max_wal_size = 100GB
autovacuum = off
});
$dt->sql(q{SELECT create_resource_group('batch')});
$dt->follow('batch', 'slot_lag', '1GB');

sub paused_by
{
	my ($cause) = @_;
	return $dt->sql("SELECT count(*) FROM dirty_throttle_sessions
		WHERE group_name = 'batch' AND paused_by = '$cause'");
}

# Until a member pauses for a signal that is far above its threshold.
sub press
{
	$dt->follow('batch', 'disk_free', '100%');
	ok( $dt->wait_group(
			'batch',
			sub {
				($_[0]->{pressure_signal} // '') eq 'disk_free'
				  && $_[0]->{effective_wal_limit} > 0
				  && $_[0]->{effective_wal_limit} < 1000;
			},
			180),
		'the group is limited');
	ok(poll_until(sub { paused_by('disk_free') > 0 }, 180),
		'and a member pauses for that');
}

# The limits of the group after a change, one after the other, until it is this
# one; and the signals that were told.
sub limits_after
{
	my ($change, $last) = @_;
	my (@limits, %signals);

	$dt->sql($change);
	poll_until(
		sub {
			my $row = $dt->group_row('batch');
			my $limit = $row->{effective_wal_limit};

			push @limits, $limit unless @limits && $limits[-1] == $limit;
			$signals{ $row->{pressure_signal} // '' } = 1;
			return $limit == $last;
		},
		180);
	return (\@limits, \%signals);
}

$dt->start_job('batch');
press();
my $before = $dt->group_row('batch')->{effective_wal_limit};
my ($limits, $signals) = limits_after(q{SELECT reset_group_pressure('batch', 'disk_free')}, 0);
is($limits->[-1], 0, 'the signal is taken away: there is no limit');
is(join(' ', grep { $_ != 0 && $_ != $before } @$limits), '', 'nor one in between');
ok(!$signals->{disk_free}, 'nor is it told as the reason');
ok(poll_until(sub { paused_by('disk_free') == 0 }, 180),
	'no member pauses for it any more');
is($dt->group_row('batch')->{effective_wal_limit}, 0,
	'and there is still no limit');

press();
($limits) = limits_after(q{SELECT set_group_floor('batch', 50000)}, 50000);
is($limits->[-1], 50000, 'another floor holds');
ok(poll_until(sub { paused_by('disk_free') == 0 || $dt->group_row('batch')->{wal_rate} > 1000 }, 180),
	'and the job goes on');
$dt->stop_jobs;
is($dt->crashes, '', 'no crash');
$dt->finish;
