# A client that speaks the frontend/backend protocol itself: any message, in
# any order, where libpq has a function for the usual ones.
#
#	my $w = DirtyThrottle::Wire->new($dt->node, user => 'app');
#	my $r = $w->query('SELECT 1');           # simple query protocol
#	$w->parse('', 'SELECT $1::int')->bind('', '', 42)->execute->sync;
#	$r = $w->wait;                           # up to ReadyForQuery
#	$r = $w->call($oid, @binary_arguments);  # function-call protocol
#	$r = $w->wait(cancel_every => 0.1);      # seconds
#
# A message is only queued by the method that makes it; sync(), flush(),
# query(), wait(), read() and transmit() send what is queued, and what the
# server does not take at once is sent by the next read().
#
# A result is a hash: rows (of lists), out (the same as psql -At has it, with
# data of COPY), tags, notices, errors (both as [SQLSTATE, message]), err (the
# same as psql has them with VERBOSITY verbose), sqlstate (of the first error,
# or undef), types (of all messages, a letter each), ms.

package DirtyThrottle::Wire;

use strict;
use warnings;

use IO::Socket::UNIX;
use Socket qw(SHUT_RDWR SOCK_STREAM);
use Time::HiRes qw(time);

our $TIMEOUT = 180;    # for one message, seconds

use constant {
	PROTOCOL_3     => 196608,
	CANCEL_REQUEST => 80877102
};

# A connection.  Options:
#	dbname, user      default: postgres, and the superuser
#	options           as PGOPTIONS
#	application_name
sub new
{
	my ($class, $node, %opt) = @_;
	my $self = bless {
		path   => $node->host . '/.s.PGSQL.' . $node->port,
		input  => '',
		output => ''
	}, $class;
	my %parameters = (
		user     => $opt{user} // scalar getpwuid($<),
		database => $opt{dbname} // 'postgres');

	foreach my $name (qw(options application_name replication))
	{
		$parameters{$name} = $opt{$name} if defined $opt{$name};
	}
	$self->{socket} = $self->_connect;
	$self->{socket}->blocking(0);
	my $startup = pack('N', PROTOCOL_3)
	  . join('', map { "$_\0$parameters{$_}\0" } sort keys %parameters) . "\0";
	$self->{output} = pack('N', 4 + length $startup) . $startup;
	my $r = $self->wait;
	die "connection failed: $r->{errors}[0][1]" if $r->{sqlstate};
	return $self;
}

sub _connect
{
	my ($self) = @_;
	return IO::Socket::UNIX->new(
		Type => SOCK_STREAM,
		Peer => $self->{path}) || die "$self->{path}: $!";
}

sub pid
{
	my ($self) = @_;
	return $self->{pid};
}

# ------------------------------------------------------------------- messages

# Any message.
sub message
{
	my ($self, $type, $body) = @_;

	$self->{output} .= $type . pack('N', 4 + length $body) . $body;
	return $self;
}

# Send what is queued, as much of it as the server takes now.
sub transmit
{
	my ($self) = @_;

	local $SIG{PIPE} = 'IGNORE';
	while (length $self->{output})
	{
		my $n = syswrite $self->{socket}, $self->{output};

		if (defined $n)
		{
			substr($self->{output}, 0, $n) = '';
		}
		elsif ($!{EAGAIN})
		{
			last;
		}
		elsif (!$!{EINTR})
		{
			$self->{output} = '';    # reading will tell
		}
	}
	return $self;
}

sub parse
{
	my ($self, $statement, $sql) = @_;
	return $self->message('P', "$statement\0$sql\0" . pack('n', 0));
}

# Parameters and results as text.
sub bind
{
	my ($self, $portal, $statement, @values) = @_;
	return $self->message('B',
		"$portal\0$statement\0" . pack('nn', 0, scalar @values)
		  . join('', map { pack('N/a', $_) } @values) . pack('n', 0));
}

# 'S', the name of a statement, or 'P', the name of a portal; close() likewise.
sub describe
{
	my ($self, $kind, $name) = @_;
	return $self->message('D', "$kind$name\0");
}

sub close
{
	my ($self, $kind, $name) = @_;
	return $self->message('C', "$kind$name\0");
}

sub execute
{
	my ($self, $portal, $rows) = @_;
	return $self->message('E', ($portal // '') . "\0" . pack('N', $rows // 0));
}

# Parse, Bind and Execute of the unnamed statement.
sub extended
{
	my ($self, $sql) = @_;
	return $self->parse('', $sql)->bind('', '')->execute;
}

sub flush
{
	my ($self) = @_;
	return $self->message('H', '')->transmit;
}

sub sync
{
	my ($self) = @_;
	return $self->message('S', '')->transmit;
}

# Arguments are binary, the result is text.
sub function_call
{
	my ($self, $oid, @arguments) = @_;
	return $self->message('F',
		pack('Nnnn', $oid, 1, 1, scalar @arguments)
		  . join('', map { pack('N/a', $_) } @arguments) . pack('n', 0));
}

sub copy_data
{
	my ($self, $data) = @_;
	return $self->message('d', $data);
}

sub copy_done
{
	my ($self) = @_;
	return $self->message('c', '');
}

sub copy_fail
{
	my ($self, $why) = @_;
	return $self->message('f', "$why\0");
}

# Query, as a message only
sub simple
{
	my ($self, $sql) = @_;
	return $self->message('Q', "$sql\0");
}

# --------------------------------------------------------------------- answers

# The next message, as type and body; an empty list after the timeout.  Dies
# when the server has closed the connection.
sub read
{
	my ($self, $timeout) = @_;
	my $end = time + ($timeout // $TIMEOUT);

	$self->transmit;
	while (1)
	{
		if (length $self->{input} >= 5)
		{
			my ($type, $length) = unpack 'aN', $self->{input};
			if (length $self->{input} > $length)
			{
				my $body = substr $self->{input}, 5, $length - 4;
				substr($self->{input}, 0, $length + 1) = '';
				return ($type, $body);
			}
		}
		my $left = $end - time;
		vec(my $readable = '', fileno $self->{socket}, 1) = 1;
		my $writable = length $self->{output} ? $readable : undef;
		return
		  if select($readable, $writable, undef, $left > 0 ? $left : 0) == 0;
		$self->transmit;
		my $n = sysread($self->{socket}, $self->{input}, 65536,
			length $self->{input});
		die "the server has closed the connection\n"
		  unless $n || !defined $n && ($!{EAGAIN} || $!{EINTR});
	}
}

# A result that has nothing yet.
sub new_result
{
	return {
		rows    => [],
		tags    => [],
		notices => [],
		errors  => [],
		types   => '',
		out     => '',
		err     => ''
	};
}

# Add a message to a result.
sub take
{
	my ($self, $r, $type, $body) = @_;

	$r->{types} .= $type;
	if ($type eq 'D')
	{
		_add_row($r, _row($body));
	}
	elsif ($type eq 'C')
	{
		push @{ $r->{tags} }, $body =~ s/\0$//r;
	}
	elsif ($type eq 'E' || $type eq 'N')
	{
		my %field = map { /^(.)(.*)/s } split /\0/, $body;

		push @{ $r->{ $type eq 'E' ? 'errors' : 'notices' } },
		  [ $field{C}, $field{M} ];
		$r->{sqlstate} //= $field{C} if $type eq 'E';
		$r->{err} .= "$field{S}:  $field{C}: $field{M}\n" . join '',
		  map { "$_->[1]:  $field{$_->[0]}\n" }
		  grep { defined $field{ $_->[0] } }
		  [ D => 'DETAIL' ], [ H => 'HINT' ], [ W => 'CONTEXT' ];
	}
	elsif ($type eq 'V')
	{
		my ($length, $value) = unpack 'l> a*', $body;
		_add_row($r, [ $length < 0 ? undef : $value ]);
	}
	elsif ($type eq 'd')
	{
		$r->{out} .= $body;
	}
	elsif ($type eq 'A')
	{
		my ($pid, $channel, $payload) = unpack 'NZ*Z*', $body;
		$r->{out} .= qq{Asynchronous notification "$channel" with payload}
		  . qq{ "$payload" received from server process with PID $pid.\n};
	}
	elsif ($type eq 'K')
	{
		($self->{pid}, $self->{key}) = unpack 'NN', $body;
	}
	elsif ($type eq 'R' && unpack('N', $body) != 0)
	{
		die "the server asks for authentication\n";
	}
	elsif ($type eq 'Z')
	{
		$self->{status} = $body;
	}
}

sub _add_row
{
	my ($r, $row) = @_;

	push @{ $r->{rows} }, $row;
	$r->{out} .= join('|', map { $_ // '' } @$row) . "\n";
}

# Read up to ReadyForQuery: a result.  Options:
#	until          or up to a message of this type, or an error
#	cancel_every   send a cancel request every so many seconds ...
#	cancel_at      ... or at these times from now, a list
#	cancel_when    ... or once, when this function returns true
#	timeout        for all of it
sub wait
{
	my ($self, %opt) = @_;
	my $start = time;
	my $until = $opt{until} // 'Z';
	my $timeout = $opt{timeout} // $TIMEOUT;
	my @cancel_at = @{ $opt{cancel_at} // [] };
	my $r = $self->new_result;

	@cancel_at = map { $_ * $opt{cancel_every} } 1 .. 1000
	  if $opt{cancel_every};
	my $when = $opt{cancel_when};

	while (1)
	{
		my $next = @cancel_at ? $cancel_at[0] : $timeout;
		my ($type, $body) =
		  $self->read($when ? 0.002 : $start + $next - time);

		if (!defined $type && $when && time < $start + $timeout)
		{
			next unless $when->();
			$self->cancel;
			undef $when;
			next;
		}
		if (!defined $type)
		{
			die "timed out waiting for a message '$until'\n" unless @cancel_at;
			$self->cancel;
			shift @cancel_at;
			next;
		}
		$self->take($r, $type, $body);
		last if $type eq $until || $type eq 'Z' || ($type eq 'E' && $opt{until});
	}
	chomp @$r{qw(out err)};
	$r->{ms} = (time - $start) * 1000;
	return $r;
}

sub _row
{
	my ($body) = @_;
	my $n = unpack 'n', $body;
	my $at = 2;
	my @values;

	while ($n-- > 0)
	{
		my $length = unpack 'l>', substr $body, $at;
		$at += 4;
		push @values, $length < 0 ? undef : substr $body, $at, $length;
		$at += $length if $length > 0;
	}
	return \@values;
}

# Of the last ReadyForQuery: I no transaction, T in one, E in a failed one.
sub status
{
	my ($self) = @_;
	return $self->{status};
}

# ------------------------------------------------------- messages with answers

sub query
{
	my ($self, $sql, %opt) = @_;
	return $self->simple($sql)->wait(%opt);
}

# The same, but returns the output only, and dies on an error.
sub value
{
	my ($self, $sql) = @_;
	my $r = $self->query($sql);

	die "$sql: $r->{errors}[0][1]\n" if $r->{sqlstate};
	return $r->{out};
}

sub call
{
	my ($self, $oid, @arguments) = @_;
	return $self->function_call($oid, @arguments)->wait;
}

# ------------------------------------------------------------ cancel and leave

# Has the server not closed the connection?
sub alive
{
	my ($self) = @_;
	my $n =
	  sysread $self->{socket}, $self->{input}, 65536, length $self->{input};

	return $n || !defined $n && ($!{EAGAIN} || $!{EINTR});
}

# Returns when the signal has been sent.
sub cancel
{
	my ($self) = @_;
	my $socket = $self->_connect;

	syswrite $socket, pack('NNNN', 16, CANCEL_REQUEST, $self->{pid},
		$self->{key});
	1 while sysread $socket, my $rest, 100;
	CORE::close $socket;
}

sub terminate
{
	my ($self) = @_;

	$self->message('X', '')->transmit;
	$self->hang_up;
}

# Go without a word, also where another process has inherited the socket.
sub hang_up
{
	my ($self) = @_;

	my $socket = delete $self->{socket} // return;

	shutdown $socket, SHUT_RDWR;
	CORE::close $socket;
}

1;
