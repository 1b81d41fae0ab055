# A server that says whatever a test wants, to whoever connects: a broken or a
# malicious primary.
#
#	my $fake = DirtyThrottle::FakeServer->new;
#	$fake->says(greeting => greeting(), answer => answer('one value'));
#	$standby->follow($fake->conninfo);
#	...
#	$fake->stop;
#
# It reads the client's first message, writes the greeting, reads until there
# is a query, writes the answer, and then does what "then" says:
#	hold       nothing more, until the client has gone (the default)
#	close      close the connection
#	BYTES      write these again and again, for as long as the client reads
# With "drip" it writes all that byte by byte, that many seconds apart.  With
# "scram" it makes the client prove by so many iterations that it knows the
# password; the greeting then has to be scram_greeting().

package DirtyThrottle::FakeServer;

use strict;
use warnings;

use DirtyThrottle;
use Exporter 'import';
use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Utils;
use Socket qw(SOCK_STREAM);
use Storable qw(retrieve store);
use Time::HiRes qw(sleep);

our @EXPORT = qw(answer error_message greeting message ready row
  row_description scram_greeting);

# ------------------------------------------------------------------- messages

sub message
{
	my ($type, $body) = @_;
	return $type . pack('N', 4 + length $body) . $body;
}

sub ready { return message('Z', 'I') }

# All that comes before the first query.
sub greeting
{
	return message('R', pack 'N', 0)
	  . message('S', "server_version\x{0}15.0\0")
	  . message('S', "client_encoding\0SQL_ASCII\0")
	  . message('S', "in_hot_standby\0off\0")
	  . message('S', "default_transaction_read_only\0off\0")
	  . message('K', pack 'NN', 1, 2)
	  . ready();
}

sub scram_greeting { return message('R', pack('N', 10) . "SCRAM-SHA-256\0\0") }

# Of n columns of type text.
sub row_description
{
	my ($n) = @_;
	return message('T',
		pack('n', $n) . join '',
		map { "c$_\0" . pack('NnNnNn', 0, 0, 25, 0xffff, 0xffffffff, 0) } 1 .. $n);
}

# undef is NULL
sub row
{
	my @values = @_;
	return message('D',
		pack('n', scalar @values) . join '',
		map { defined $_ ? pack('N/a', $_) : pack('N', 0xffffffff) } @values);
}

sub error_message
{
	my ($severity, $sqlstate, $text) = @_;
	return message('E',
		"S$severity\0V$severity\0C$sqlstate\0M$text\0\0");
}

# The answer to SHOW.
sub answer
{
	my (@values) = @_;
	return row_description(scalar @values) . row(@values)
	  . message('C', "SHOW\0") . ready();
}

# ----------------------------------------------------------------- the server

sub new
{
	my ($class) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $self = bless { dir => $dir, port => 5432, n => 0 }, $class;

	$self->says(then => 'close');
	$self->{process} = fork // die "fork: $!";
	if ($self->{process} == 0)
	{
		# another program, which inherits no connections, and no pipes of prove
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', '/dev/null';
		open STDERR, '>', '/dev/null';
		{
			exec $^X, (map { "-I$_" } grep { !ref } @INC), "-M$class", '-e',
			  "$class\::serve('$dir')";
		}
		POSIX::_exit(1);
	}
	poll_until(sub { -S "$dir/.s.PGSQL.5432" }) or die 'no fake server';
	return $self;
}

sub serve
{
	my ($dir) = @_;
	my $listener = IO::Socket::UNIX->new(
		Type => SOCK_STREAM,
		Local => "$dir/.s.PGSQL.5432",
		Listen => 10) || die "$dir: $!";

	local $SIG{PIPE} = 'IGNORE';
	while (1)
	{
		my $client = $listener->accept or next;
		_count("$dir/accepted");
		eval { _serve($client, retrieve("$dir/script")) };
		$client->close;
		_count("$dir/served");
	}
}

sub says
{
	my ($self, %script) = @_;

	store(\%script, "$self->{dir}/script.new");
	rename "$self->{dir}/script.new", "$self->{dir}/script"
	  or die "rename: $!";
}

# Another one each time, so that a standby that is told it asks at once.
sub conninfo
{
	my ($self, $more) = @_;

	$self->{n}++;
	return "host=$self->{dir} port=$self->{port} user=u$self->{n} " . ($more // '');
}

# How many connections have ended, and how many there are.
sub served
{
	my ($self) = @_;
	return -s "$self->{dir}/served" // 0;
}

sub busy
{
	my ($self) = @_;
	return (-s "$self->{dir}/accepted" // 0) - $self->served;
}

sub _count
{
	my ($file) = @_;

	open my $count, '>>', $file or die "$file: $!";
	print $count '.';
	close $count;
}

sub stop
{
	my ($self) = @_;

	return unless $self->{process};
	kill 'KILL', $self->{process};
	waitpid delete $self->{process}, 0;
}

sub DESTROY
{
	my ($self) = @_;

	local ($?, $!, $@);
	$self->stop;
}

sub _write
{
	my ($client, $bytes, $drip) = @_;

	while (length $bytes)
	{
		my $n = syswrite $client, $bytes, $drip ? 1 : length $bytes;
		die 'gone' unless $n;
		substr($bytes, 0, $n) = '';
		sleep $drip if $drip;
	}
}

sub _serve
{
	my ($client, $script) = @_;
	my $input = '';

	sysread $client, $input, 100000 or return;
	_write($client, $script->{greeting} // '', $script->{drip});
	if ($script->{scram})
	{
		sysread $client, $input, 100000 or return;
		my ($nonce) = $input =~ /r=([^,]+)$/;
		_write($client,
			message('R', pack('N', 11) . "r=${nonce}x,s=c2FsdA==,i=$script->{scram}"));
	}
	if (defined $script->{answer})
	{
		$input = '';
		sysread $client, $input, 100000 or return while $input !~ /^[pQ]/;
		if ($input =~ /^p/ && $script->{after_password})
		{
			_write($client, $script->{after_password}, 0);
			$input = '';
			sysread $client, $input, 100000 or return
			  while $script->{answer} ne '' && $input !~ /^Q/;
		}
		_write($client, $script->{answer}, $script->{drip});
	}
	my $then = $script->{then} // 'hold';
	return if $then eq 'close';
	if ($then eq 'hold')
	{
		1 while sysread $client, $input, 100000;
		return;
	}
	$then x= 1 + 65536 / length $then;
	# as fast as a disk, so that the other tests have the processors, too
	while (1)
	{
		_write($client, $then);
		sleep 0.001;
	}
}

1;
