# A DirtyThrottle whose clock stands still unless it is moved, on the library of
# test/clock/: statements take no time, so that rates and pauses are exact.
#
#	my $dt = DirtyThrottle::Clock->new('clock');
#	$dt->limit(g => 1000);                       # KB/s
#	my $s = $dt->session(group => 'g');
#	$s->send('INSERT ...');
#	$dt->settle;                                 # it sleeps, waits or has ended
#	$dt->advance(500_000);                       # us; who is due goes on
#	my $us = $dt->run;                           # until nobody pauses
#	is($s->wait->{out}, ...);
#
#	my $us = $dt->running(sub { $s->query('INSERT ...'); ... });
#
# While the clock is moved one process at a time goes on, each until it sleeps
# again, waits for another or for its client; and sessions that are due at the
# same time do so in the order in which they have fallen asleep.

package DirtyThrottle::Clock;

use strict;
use warnings;

use parent 'DirtyThrottle::Life';

use DirtyThrottle;
use DirtyThrottle::Books;
use Scalar::Util qw(weaken);
use Test::More;

our $BLOCK = $DirtyThrottle::Books::BLOCK;

# Everything that must happen does so within this, in seconds.
our $LIMIT = 180;

# Pauses are made as long as they can be, and none depends on when a timer makes
# a charge, unless conf says something else.
sub new
{
	my ($class, $name, %opt) = @_;
	my $self = $class->SUPER::new(
		$name, %opt,
		no_start => 1,
		conf => q{
dynamic_library_path = '$libdir/dirty_throttle_clock:$libdir'
dirty_throttle.test_clock = on
dirty_throttle.max_blocking_time = -1
dirty_throttle.transaction_grace = 1d
dirty_throttle.max_commit_pause = 20d
} . ($opt{conf} // ''));

	return $self if $opt{no_start};
	$self->node->start;
	$self->create;
	return $self;
}

# The extension, with the library that is loaded, and what moves its clock.
sub create
{
	my ($self) = @_;

	# CREATE EXTENSION loads the library without that clock, and would warn that
	# this was not preloaded, if it were not there yet
	$self->sql(
		q{LOAD '$libdir/dirty_throttle';
		CREATE EXTENSION dirty_throttle;
		UPDATE pg_proc SET probin = 'dirty_throttle'
			WHERE probin = '$libdir/dirty_throttle';
		CREATE FUNCTION dt_test_now() RETURNS bigint
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_advance(bigint) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_run(bigint) RETURNS bigint
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_run_on() RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_state(int) RETURNS text
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_running(int[]) RETURNS int
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_set_jitter(float8, float8) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_interrupt_at_commit() RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_hold_look(boolean) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_stopped(int) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_watch(int) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_wait_start(int, timestamptz) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_looker() RETURNS int
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_age_of_look() RETURNS bigint
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_others(bigint, bigint) RETURNS void
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_read_at(text) RETURNS bigint
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_commits() RETURNS bigint
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_worker(text, text) RETURNS int
			LANGUAGE C AS 'dirty_throttle';
		CREATE FUNCTION dt_test_reading(text, text, bigint, bigint) RETURNS void
			LANGUAGE C AS 'dirty_throttle'});
	# which a new session does not have
	$self->disconnect;
}

# What the sampler finds from now on where it looks at a signal, or at
# "kernel_limit"; see dt_test_reading() in test/clock/readings.c.
sub reading
{
	my ($self, $signal, $look, $value, $other) = @_;

	$self->sql(sprintf q{SELECT dt_test_reading('%s', '%s', %.0f, %.0f)},
		$signal, $look, $value // 0, $other // -1);
}

sub session
{
	my ($self, %opt) = @_;
	my $session = $self->SUPER::session(%opt);

	push @{ $self->{sessions} }, $session;
	weaken $self->{sessions}[-1];
	return $session;
}

# The time, in us since the server's start.
sub now
{
	my ($self) = @_;
	return $self->sql('SELECT dt_test_now()');
}

# What a session does: it 'sleeps' until the clock is moved, 'waits' for another
# process, is 'idle' or 'runs'.
sub state
{
	my ($self, $session) = @_;
	return $self->sql('SELECT dt_test_state(' . $session->pid . ')');
}

# Wait until no session runs, nor a worker of batches: each has ended what was sent, or
# sleeps, or waits for another.  One may have woken another that was looked at before it,
# so all are looked at twice.
sub settle
{
	my ($self) = @_;
	my $running;

	@{ $self->{sessions} } = grep { defined } @{ $self->{sessions} };
	weaken $_ foreach @{ $self->{sessions} };
	foreach (1, 2)
	{
		poll_until(
			sub {
				my $pids = join ',', map { $_->pid } grep { !$_->finished } @{ $self->{sessions} };

				$running = $self->sql("SELECT dt_test_running('{$pids}')");
				return $running eq '';
			},
			$LIMIT)
		  or die "process $running neither ends nor pauses";
	}
}

# Give a group limits, KB/s: none before, so that nothing is owed, and saved up
# only what a new limit comes with; its counters start anew.
sub fresh
{
	my ($self, $group, %kb) = @_;

	$self->sql(
		qq{SELECT set_group_dirty_limit('$group', 0), set_group_wal_limit('$group', 0)});
	$self->sql(
		qq{SELECT set_group_dirty_limit('$group', } . ($kb{dirty} // 0) . qq{),
			set_group_wal_limit('$group', } . ($kb{wal} // 0) . qq{),
			dirty_throttle_reset('$group')});
	$self->{fresh}{$group} = { %kb, at => $self->now };
}

# What the members of a group have used of a limit since then, in bytes, and what
# of that is owed.
sub used
{
	my ($self, $group, $what) = @_;
	my $row = $self->group_row($group);

	return $what eq 'wal'
	  ? ($row->{wal_bytes}, sprintf('%.0f', 1000 * $row->{wal_debt}))
	  : ($row->{blocks_dirtied} * $BLOCK, sprintf('%.0f', 1000 * $row->{dirty_debt}));
}

# A test: the books of a group whose limits are fresh, and which has paused since
# then whenever it could, balance to the byte.  What it has used, but for what it
# owes, is what the limit has earned it since then, and what that came with.
# What is owed is rounded up for each member; who pauses does so for whole
# microseconds, and what it has paid too much by that is saved up.
sub check_books
{
	my ($self, $group, $what, $name, %opt) = @_;
	my $fresh = $self->{fresh}{$group};
	my ($used, $owed) = $self->used($group, $what);
	my $rate = 1000 * $fresh->{$what};
	my $earned = $rate * ($self->now - $fresh->{at}) / 1e6 +
	  new_credit($fresh->{$what}, $opt{burst_ms});
	my $rest = $used - $earned - $owed;
	my $members = $opt{members} // 1;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $rest >= -$members * (1 + $rate / 1e6) && $rest <= $members,
		sprintf('%s: used %.0f = earned %.0f + owed %.0f', $name, $used, $earned, $owed))
	  or diag "the difference: $rest bytes";
}

# Move the clock by so many us.
sub advance
{
	my ($self, $us) = @_;

	$self->settle;
	$self->sql("SELECT dt_test_advance($us)");
	$self->settle;
}

# Move the clock until nobody pauses; by how many us it was moved.  Dies if that
# takes more than so many.
sub run
{
	my ($self, $most) = @_;
	my $us;

	$most //= 86_400_000_000;
	$self->settle;
	$us = $self->sql("SELECT dt_test_run($most)");
	$self->settle;
	my @asleep = grep { !$_->finished } @{ $self->{sessions} };
	die @asleep . " sessions still pause or wait after $us us" if @asleep;
	return $us;
}

# Run the code while the clock moves on whenever anybody pauses; by how many us
# it was moved.
sub running
{
	my ($self, $code) = @_;
	my $mover = DirtyThrottle::Session->new($self->node);
	my $start = $self->now;

	$mover->send('SELECT dt_test_run_on()');
	# a cancel that comes before it would be lost
	poll_until(
		sub {
			$self->sql(q{SELECT count(*) FROM pg_stat_activity
				WHERE state = 'active' AND query LIKE '%run_on%' AND pid = } .
				  $mover->pid);
		});
	$code->();
	$self->cancel_ms($mover);
	$mover->quit;
	return $self->now - $start;
}

1;
