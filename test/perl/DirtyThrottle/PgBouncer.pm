# A session pool, PgBouncer, in front of a server.
#
#	my $pool = DirtyThrottle::PgBouncer->new($dt, roles => [ 'web' ],
#		settings => { pool_mode => 'session', default_pool_size => 1 });
#	my $s = $pool->client('web');          # a DirtyThrottle::Session
#	$pool->stop;

package DirtyThrottle::PgBouncer;

use strict;
use warnings;

use DirtyThrottle;
use DirtyThrottle::Programs;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use Test::More;

# Starts it.  Options:
#	roles     who may connect
#	name      of its log; default: pgbouncer
#	settings  of pgbouncer.ini
sub new
{
	my ($class, $dt, %opt) = @_;
	my $exe = need_programs(pgbouncer => 'pgbouncer');
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $self = bless {
		host => PostgreSQL::Test::Utils::tempdir_short(),
		port => PostgreSQL::Test::Cluster::get_free_port(),
		name => $opt{name} // 'pgbouncer'
	}, $class;
	my %settings = (
		pool_mode => 'transaction',
		listen_addr => '',
		listen_port => $self->{port},
		unix_socket_dir => $self->{host},
		auth_type => 'trust',
		auth_file => "$dir/users.txt",
		default_pool_size => 4,
		max_client_conn => 100,
		ignore_startup_parameters => 'extra_float_digits,options',
		%{ $opt{settings} // {} });

	append_to_file("$dir/users.txt", join('', map { qq{"$_" ""\n} } @{ $opt{roles} }));
	append_to_file(
		"$dir/pgbouncer.ini",
		'[databases]
postgres = host=' . $dt->node->host . ' port=' . $dt->node->port . " dbname=postgres
[pgbouncer]
" . join('', map { "$_ = $settings{$_}\n" } sort keys %settings));
	$self->{pid} =
	  start_program($self->{name}, $exe->{pgbouncer}, "$dir/pgbouncer.ini");
	poll_until(
		sub { IO::Socket::UNIX->new("$self->{host}/.s.PGSQL.$self->{port}") })
	  or die 'pgbouncer does not start: ' . slurp_file(program_log($self->{name}));
	return $self;
}

# A node to the eyes of DirtyThrottle::Session.
sub host { return $_[0]->{host} }
sub port { return $_[0]->{port} }

sub client
{
	my ($self, $user) = @_;
	return DirtyThrottle::Session->new($self, user => $user);
}

sub stop
{
	my ($self) = @_;
	stop_program($self->{pid});
}

1;
