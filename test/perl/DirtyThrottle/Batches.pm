# What the tests of run_in_batches() share: tables whose column n counts how often
# each row was changed, and CALLs.
#
#	my $dt = DirtyThrottle::Batches->new('batches');
#	$dt->counted('t', 1000);                     # id 1 .. 1000, n 0
#	my $r = $dt->batches($s, 'a', 't');          # n + 1, as wait() returns it
#	is($dt->counts('t'), '1:1000', '...');       # n:rows, ...
#	$dt->send_batches($s, 'a', 't', max_rows => 1);
#	$dt->start($s, 'a', 't');                    # start_batches(), the same
#	my $pid = $dt->worker('a');                  # when it runs

package DirtyThrottle::Batches;

use strict;
use warnings;

use parent 'DirtyThrottle::Life';

use DirtyThrottle;

# A table with so many rows, and autovacuum's statistics of it.
sub counted
{
	my ($self, $table, $rows) = @_;

	$self->sql(
		qq{CREATE TABLE $table (id bigint PRIMARY KEY, n int NOT NULL DEFAULT 0);
		INSERT INTO $table SELECT i FROM generate_series(1, $rows) i;
		ANALYZE $table});
}

# How many rows have been changed how often.
sub counts
{
	my ($self, $table) = @_;
	return $self->sql(
		qq{SELECT coalesce(string_agg(n || ':' || rows, ', ' ORDER BY n), '')
		   FROM (SELECT n, count(*) AS rows FROM $table GROUP BY n) x});
}

# The arguments.  Options are those of the procedure, and "statement"; a reference is to
# SQL.  However busy the machine is, it does not make batches smaller.
sub arguments
{
	my ($self, $name, $table, %opt) = @_;

	$opt{batch_time} //= '1 h';
	$opt{unthrottled} //= 'true';
	my $statement = delete $opt{statement} //
	  "UPDATE $table SET n = n + 1 WHERE {batch}";

	return join ', ', "'$name'", "'$table'",
	  "\$statement\$$statement\$statement\$",
	  map { "$_ => " . (ref $opt{$_} ? ${ $opt{$_} } : $opt{$_} =~ /^(true|false|\d+)$/ ? $opt{$_} : "'$opt{$_}'") }
	  sort keys %opt;
}

# The CALL, whatever search_path is.
sub call
{
	my ($self, @arguments) = @_;
	return sprintf 'CALL public.run_in_batches(%s)', arguments($self, @arguments);
}

# The same without waiting for the end.
sub start_call
{
	my ($self, @arguments) = @_;
	return sprintf 'SELECT public.start_batches(%s)', arguments($self, @arguments);
}

sub start
{
	my ($self, $session, @arguments) = @_;
	return $session->run($self->start_call(@arguments));
}

# The process ID of the worker that runs it, once that is there.
sub worker
{
	my ($self, $name) = @_;
	wait_job($self, $name, 'pid IS NOT NULL') or die "batches $name do not run";
	return job($self, $name)->{pid};
}

sub send_batches
{
	my ($self, $session, @call) = @_;
	return $session->send($self->call(@call));
}

sub batches
{
	my ($self, $session, @call) = @_;
	return $session->run($self->call(@call));
}

# What there is to know of a job, as a hash.
sub job
{
	my ($self, $name) = @_;
	return $self->_row(
		"SELECT * FROM dirty_throttle_batches() WHERE name = '$name'");
}

# Wait until it has come so far: a condition on that.
sub wait_job
{
	my ($self, $name, $condition) = @_;
	return poll_until(
		sub {
			$self->sql(
				"SELECT count(*) FROM dirty_throttle_batches()
				 WHERE name = '$name' AND ($condition)");
		});
}

1;
