# A cluster of servers that Patroni keeps, with etcd: who is the primary, and
# what Patroni does about it.
#
#	my $cluster = DirtyThrottle::Patroni->new(user => 'patroni');
#	my ($a, $b) = $cluster->nodes;          # both have a host and a port
#	$a->sql('SELECT ...');                  # as superuser, in no group
#	$cluster->wait_rounds($a, 5);           # Patroni on a has looked 5 times
#	is($cluster->primaries, 1);
#
# A node is what DirtyThrottle::Session needs of one.

package DirtyThrottle::Patroni;

use strict;
use warnings;

use DirtyThrottle;
use DirtyThrottle::Programs;
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Patroni's smallest.  A leader that has not been heard of for the ttl is
# replaced.
my %DCS = (ttl => 20, loop_wait => 1, retry_timeout => 3);

# Starts it, and waits until the second server follows the first.  Options:
#	name     of the logs
#	user     the superuser that Patroni connects as
#	conf     further parameters of the servers, NAME => VALUE
sub new
{
	my ($class, %opt) = @_;
	my $exe = need_programs(patroni => 'patroni', etcd => 'etcd-server');
	my $self = bless {
		exe => $exe,
		name => $opt{name} // 'patroni',
		user => $opt{user} // 'postgres',
		conf => $opt{conf} // {},
		dir => PostgreSQL::Test::Utils::tempdir(),
		host => PostgreSQL::Test::Utils::tempdir_short(),
		client => PostgreSQL::Test::Cluster::get_free_port()
	}, $class;

	$self->_start_etcd;
	$self->{nodes} = [ map { $self->_node($_) } 1, 2 ];
	foreach my $node ($self->nodes)
	{
		$node->start_patroni;
		poll_until(sub { $node->is_up }) or die "$node->{name} does not start";
	}
	poll_until(sub { ($self->standby // return 0)->state eq 'streaming' || ($self->standby)->state eq 'running' })
	  or die 'there is no standby';
	return $self;
}

sub _start_etcd
{
	my ($self) = @_;
	my $client = "http://127.0.0.1:$self->{client}";
	my $peer = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();

	$self->{etcd} = start_program("$self->{name}_etcd", $self->{exe}{etcd},
		'--data-dir', "$self->{dir}/etcd",
		'--listen-client-urls', $client, '--advertise-client-urls', $client,
		'--listen-peer-urls', $peer, '--initial-advertise-peer-urls', $peer,
		'--initial-cluster', "default=$peer");
	poll_until(sub { HTTP::Tiny->new->get("$client/health")->{success} })
	  or die 'etcd does not start';
}

sub _node
{
	my ($self, $number) = @_;
	my $node = bless {
		cluster => $self,
		name => "n$number",
		dir => "$self->{dir}/n$number",
		port => PostgreSQL::Test::Cluster::get_free_port(),
		rest => PostgreSQL::Test::Cluster::get_free_port()
	}, 'DirtyThrottle::Patroni::Node';
	my $bindir = `pg_config --bindir`;
	my %conf = (
		shared_preload_libraries => 'dirty_throttle',
		wal_log_hints => 'on',
		log_min_messages => 'warning',
		%{ $self->{conf} });

	chomp $bindir;
	# JSON is YAML
	append_to_file("$self->{dir}/$node->{name}.yml", encode_json({
		scope => 'dt',
		name => $node->{name},
		restapi => {
			listen => "127.0.0.1:$node->{rest}",
			connect_address => "127.0.0.1:$node->{rest}"
		},
		etcd3 => { host => "127.0.0.1:$self->{client}" },
		bootstrap => {
			dcs => {
				%DCS,
				postgresql => { use_pg_rewind => JSON::PP::true, parameters => \%conf }
			},
			initdb => [ { encoding => 'UTF8' }, { auth => 'trust' } ],
			pg_hba => [
				'local all all trust',
				'host all all 127.0.0.1/32 trust',
				'host replication all 127.0.0.1/32 trust'
			]
		},
		postgresql => {
			listen => "127.0.0.1:$node->{port}",
			connect_address => "127.0.0.1:$node->{port}",
			data_dir => "$node->{dir}",
			bin_dir => $bindir,
			pgpass => "$self->{dir}/pgpass_$node->{name}",
			authentication => {
				superuser => { username => $self->{user} },
				replication => { username => 'replicator' },
				rewind => { username => $self->{user} }
			},
			parameters => { unix_socket_directories => $self->{host} }
		}
	}));
	return $node;
}

sub nodes
{
	my ($self) = @_;
	return @{ $self->{nodes} };
}

# Those who accept writes, by what they themselves say.
sub primaries
{
	my ($self) = @_;
	return grep { $_->is_primary } $self->nodes;
}

sub primary
{
	my ($self) = @_;
	return ($self->primaries)[0];
}

sub standby
{
	my ($self) = @_;
	my @standbys = grep { $_->is_up && !$_->is_primary } $self->nodes;
	return $standbys[0];
}

# Wait until Patroni has looked after this primary so many times more, and look
# ourselves meanwhile: false if there were two at any time.
sub wait_rounds
{
	my ($self, $node, $n) = @_;
	my $until = $node->rounds + $n;
	my $most = 0;
	my $done = poll_until(
		sub {
			my $primaries = $self->primaries;
			$most = $primaries if $primaries > $most;
			return $most > 1 || $node->rounds >= $until;
		});

	note "$most primaries; $node->{name} has looked ", $node->rounds - $until + $n, ' times';
	return $done && $most == 1 && $node->is_primary;
}

# It may say that it has failed when it has not, and the other way round.
sub patronictl
{
	my ($self, @arguments) = @_;
	my ($out, $err);
	my $ctl = $self->{exe}{patroni} =~ s/patroni$/patronictl/r;

	IPC::Run::run([ $ctl, '-c', "$self->{dir}/n1.yml", @arguments ], '<', \'', '>', \$out, '2>', \$err);
	note "patronictl @arguments: $out$err";
}

# End all of it, the servers too.
sub stop
{
	my ($self) = @_;

	foreach my $node ($self->nodes)
	{
		stop_program($node->{patroni}, 'KILL') if $node->{patroni};
		system_log('pg_ctl', '-D', $node->{dir}, '-m', 'immediate', 'stop');
	}
	stop_program($self->{etcd});
}

package DirtyThrottle::Patroni::Node;

use DirtyThrottle;
use DirtyThrottle::Programs;
use PostgreSQL::Test::Utils;

sub host { return $_[0]{cluster}{host} }
sub port { return $_[0]{port} }

sub log_name
{
	my ($self) = @_;
	return "$self->{cluster}{name}_$self->{name}";
}

sub start_patroni
{
	my ($self) = @_;
	my $cluster = $self->{cluster};

	$self->{patroni} = start_program($self->log_name, $cluster->{exe}{patroni},
		"$cluster->{dir}/$self->{name}.yml");
}

# A new session; options as of DirtyThrottle::Session.
sub session
{
	my ($self, %opt) = @_;
	return DirtyThrottle::Session->new($self, user => $self->{cluster}{user}, %opt);
}

# SQL as the superuser, in no group, whatever his settings say; undef if there is
# nobody to ask.
sub sql
{
	my ($self, $sql) = @_;
	my $session =
	  eval { $self->session(options => '-c dirty_throttle.group=') } // return undef;
	my $out = $session->query($sql);

	$session->quit;
	return $out;
}

sub is_up
{
	my ($self) = @_;
	return defined eval { $self->sql('SELECT 1') };
}

sub is_primary
{
	my ($self) = @_;
	return (eval { $self->sql('SELECT pg_is_in_recovery()') } // '') eq 'f';
}

# What Patroni says of it.
sub state
{
	my ($self) = @_;
	my $r = HTTP::Tiny->new(timeout => 10)->get("http://127.0.0.1:$self->{rest}/patroni");
	return (eval { JSON::PP::decode_json($r->{content}) } // {})->{state} // '';
}

# How often has Patroni looked after it, as the primary?
sub rounds
{
	my ($self) = @_;
	my $n = () = slurp_file(program_log($self->log_name)) =~
	  /I am \($self->{name}\),? the leader with the lock/g;
	return $n;
}

sub postmaster
{
	my ($self) = @_;
	my ($pid) = slurp_file("$self->{dir}/postmaster.pid") =~ /^(\d+)/;
	return $pid;
}

1;
