# A DirtyThrottle whose groups follow signals: what the tests of pressure share.

package DirtyThrottle::Pressure;

use strict;
use warnings;

use parent 'DirtyThrottle::Life';

use DirtyThrottle;
use Exporter 'import';
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(write_file);

# The row of a signal in dirty_throttle_pressure, as a hash: of those of several groups
# the one with the highest pressure.
sub signal
{
	my ($self, $signal) = @_;
	return $self->_row(
		"SELECT * FROM dirty_throttle_pressure WHERE signal = '$signal'
		 ORDER BY pressure DESC NULLS LAST");
}

# The row of the signal that presses a group most; an empty hash if none has a value.
sub worst
{
	my ($self, $group) = @_;
	return $self->_row(
		"SELECT * FROM dirty_throttle_pressure
		 WHERE group_name = '$group' AND pressure IS NOT NULL
		 ORDER BY pressure DESC") // {};
}

# The same, seen by the sampler from now on.  At what nobody follows it looks every
# 10 s, and after a change, as this one of the weight of group "batch".
sub signal_now
{
	my ($self, $signal) = @_;
	my $now = $self->sql('SELECT clock_timestamp()');

	$self->{weight} = 3 - ($self->{weight} // 1);
	$self->sql("SELECT alter_resource_group('batch', weight => $self->{weight})");
	poll_until(
		sub {
			$self->sql("SELECT measured_at > '$now' FROM dirty_throttle_pressure
				WHERE signal = 'disk_free'") eq 't';
		}) or die 'the sampler does not look';
	return $self->signal($signal);
}

# Make a group follow a signal, as SQL arguments; without a threshold 'on'.
sub follow
{
	my ($self, $group, @arguments) = @_;

	push @arguments, 'on' if @arguments == 1;
	$self->sql(
		"SELECT set_group_pressure("
		  . join(', ', map { "'$_'" } $group, @arguments) . ')');
}

# Wait until the code, which gets the row of a group, says yes: the row, or undef
# if it never does.
sub wait_group
{
	my ($self, $group, $code, $timeout) = @_;
	my $row;

	return poll_until(
		sub { $row = $self->group_row($group); $code->($row) }, $timeout) ? $row : undef;
}

# Have a member of the group write as much WAL as it may, about 100 kB a
# transaction, until stop_jobs(); the session.
sub start_job
{
	my ($self, $group) = @_;
	my $session = $self->session(group => $group);

	$self->sql(
		q{CREATE TABLE IF NOT EXISTS job_stops (stop bool);
		CREATE TABLE IF NOT EXISTS job (id int, pad text)});
	$session->send(
		q{DO $$ BEGIN
			WHILE NOT EXISTS (SELECT FROM job_stops) LOOP
				INSERT INTO job SELECT i, repeat('x', 500)
				FROM generate_series(1, 200) i;
				COMMIT;
			END LOOP;
		END $$});
	push @{ $self->{jobs} }, $session;
	return $session;
}

sub stop_jobs
{
	my ($self) = @_;

	$self->sql('INSERT INTO job_stops VALUES (true)');
	foreach my $session (@{ $self->{jobs} })
	{
		my $pid = $session->pid;

		diag $self->sql("SELECT state, wait_event_type, wait_event, s.*
			FROM pg_stat_activity LEFT JOIN dirty_throttle_sessions s USING (pid)
			WHERE pid = $pid")
		  unless $session->finished($DirtyThrottle::TIMEOUT);
		$session->wait;
		$session->quit;
	}
	$self->{jobs} = [];
	$self->sql('TRUNCATE job_stops, job');
}

# Write so much WAL, within a few percent, in segments that can be archived.
sub write_wal
{
	my ($self, $mb) = @_;
	$self->sql("SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 100000)))
		FROM generate_series(1, $mb * 10)");
}

# The WAL that a group's members write in a second, KB, measured for so long.
sub wal_kb
{
	my ($self, $group, $seconds) = @_;
	my $before = $self->group_row($group)->{wal_bytes};
	my $start = time;

	sleep $seconds;
	return ($self->group_row($group)->{wal_bytes} - $before) / 1000 /
	  (time - $start);
}

# How many lines of the log, from there on, match.
sub log_lines
{
	my ($self, $mark, $pattern) = @_;
	return scalar grep { /$pattern/ } split /\n/, $self->log_since($mark);
}

sub write_file
{
	my ($path, $content) = @_;

	open my $file, '>', "$path.new" or die "$path: $!";
	print $file $content;
	close $file or die "$path: $!";
	rename "$path.new", $path or die "$path: $!";
}

1;
