# A session in the background, which DirtyThrottle::session makes:
#
#	my $s = $dt->session(group => 'grp_a');
#	my $rows = $s->query('SELECT ...');    # dies on an error
#	$s->send('INSERT ...; SELECT ...');    # does not wait
#	my $r = $s->wait;                      # out err sqlstate ms
#
# SQL is sent as psql does it: each statement is a query of its own, and after
# an error the next one follows.  All are sent at once.

package DirtyThrottle::Session;

use strict;
use warnings;

use DirtyThrottle::Wire;
use Time::HiRes qw(time);

our $TIMEOUT = 180;    # seconds, for what does not end

# Connects.  The node is anything with a host and a port; options are those of
# DirtyThrottle::session.
sub new
{
	my ($class, $node, %opt) = @_;
	my $group = delete $opt{group};
	my $self = bless {
		wire =>
		  DirtyThrottle::Wire->new($node, application_name => 'test', %opt),
		unanswered => 0,
		since      => time,
		process    => $$
	}, $class;

	$self->{result} = $self->{wire}->new_result;
	$self->query(qq{SET dirty_throttle."group" = '$group'}) if defined $group;
	return $self;
}

# The backend's process ID.
sub pid
{
	my ($self) = @_;
	return $self->{wire}->pid;
}

# The statements in SQL, each with its semicolon, and after COPY FROM STDIN its
# data, up to a line of \.; as in psql \; ends no statement.
sub _statements
{
	my ($sql) = @_;
	my @statements;
	my ($statement, $is_empty, $depth) = ('', 1, 0);

	pos($sql) = 0;
	while (pos($sql) < length $sql)
	{
		if ($depth == 0 && $sql =~ /\G;/gc)
		{
			push @statements, ["$statement;"] unless $is_empty;
			$statements[-1][1] = $1
			  if $statement =~ /^\s*COPY\b.*\bFROM\s+STDIN\b/is
			  && $sql =~ /\G\s*?\n(.*?)^\\\.\n?/gcms;
			($statement, $is_empty) = ('', 1);
		}
		elsif ($sql =~ /\G\\;/gc)
		{
			$statement .= ';';
		}
		elsif ($sql =~ m{\G(--.*|/\*(?s:.*?)\*/|\s+)}gc)
		{
			$statement .= $1;
		}
		else
		{
			$sql =~ m{\G( E'(?:[^'\\]|\\.|'')*'
				| '[^']*'
				| "[^"]*"
				| (\$\w*\$).*?\g{-1}
				| BEGIN\s+ATOMIC\b.*?\bEND\b
				| [\w\$]+
				| . )}gcsxi;
			$statement .= $1;
			$is_empty = 0;
			$depth += $1 eq '(' ? 1 : $1 eq ')' ? -1 : 0;
		}
	}
	push @statements, ["$statement;"] unless $is_empty;
	return map { [ $_->[0] =~ s/^\s+//r, $_->[1] ] } @statements;
}

# Start SQL, with the data of COPY FROM STDIN; wait() must follow before
# anything else is sent.
sub send
{
	my ($self, $sql) = @_;
	my $wire = $self->{wire};

	$self->{result} = $wire->new_result;
	$self->{since} = time;
	return if $self->{gone};
	foreach my $statement (_statements($sql))
	{
		my ($text, $data) = @$statement;

		$wire->simple($text);
		$wire->copy_data($data)->copy_done if defined $data;
		$self->{unanswered}++;
	}
	$wire->transmit;
}

# Has what was sent ended?  Waits for that up to timeout seconds.
sub finished
{
	my ($self, $timeout) = @_;
	my $deadline = time + ($timeout // 0);

	while ($self->{unanswered} > 0)
	{
		my $left = $deadline - time;
		my ($type, $body) =
		  eval { $self->{wire}->read($left > 0 ? $left : 0) };

		if ($@)
		{
			$self->{result}{err} .= $@;
			$self->{gone} = 1;
			$self->{unanswered} = 0;
		}
		elsif (!defined $type)
		{
			return 0;
		}
		else
		{
			$self->{wire}->take($self->{result}, $type, $body);
			$self->{unanswered}-- if $type eq 'Z';
		}
	}
	if (!defined $self->{result}{ms})
	{
		$self->{result}{ms} = (time - $self->{since}) * 1000;
		chomp @{ $self->{result} }{qw(out err)};
	}
	return 1;
}

# Wait for what was sent, and return a hash with its output (out), messages
# (err), the SQLSTATE of the first error or undef (sqlstate) and how long it
# has taken (ms).
sub wait
{
	my ($self, $timeout) = @_;

	die 'timed out waiting for backend ' . $self->pid
	  unless $self->finished($timeout // $TIMEOUT);
	return $self->{result};
}

sub run
{
	my ($self, $sql, $timeout) = @_;

	$self->send($sql);
	return $self->wait($timeout);
}

# The same, but return the output only, and die on an error.
sub query
{
	my ($self, $sql) = @_;
	my $result = $self->run($sql);

	die "$sql: $result->{err}" if defined $result->{sqlstate} || $self->{gone};
	return $result->{out};
}

# Is the connection still there?  While something runs, that is not looked at.
sub alive
{
	my ($self) = @_;

	return 0 if $self->{gone};
	return $self->{unanswered} > 0 || $self->{wire}->alive;
}

# End it; also what it still does.
sub quit
{
	my ($self) = @_;

	$self->{wire}->terminate unless $self->{gone} || $self->{unanswered} > 0;
	$self->hang_up;
}

# Go without a word, as a client does that is killed.
sub hang_up
{
	my ($self) = @_;

	$self->{wire}->hang_up;
	@$self{qw(gone unanswered)} = (1, 0);
}

sub DESTROY
{
	my ($self) = @_;

	# the end of the process ends all; a child has inherited it only
	return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{process} != $$;

	# keep the exit status of a test that ends
	local ($?, $!, $@);
	$self->quit;
}

1;
