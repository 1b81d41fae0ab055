# A DirtyThrottle that is a standby, or one of a primary and its standbys.
#
#	my $a = DirtyThrottle::Standby->primary('a');
#	my $b = $a->standby('b');                 # started
#	$a->limit(batch => 100);
#	cmp_ok($b->arrival($a), '<', 2, '...');   # seconds, undef: never

package DirtyThrottle::Standby;

use strict;
use warnings;

use parent -norequire, 'DirtyThrottle::Life';

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Cluster;
use Test::More;
use Time::HiRes qw(time);

# A server that can have standbys; options as for DirtyThrottle::new.
sub primary
{
	my ($class, $name, %opt) = @_;
	my $conf = $opt{conf} // '';

	return $class->new(
		$name, %opt,
		init => [ allows_streaming => 1, @{ $opt{init} // [] } ],
		conf => "wal_log_hints = on\nmax_wal_senders = 10\n$conf");
}

# A new standby of this server, from a backup.  Options:
#	conf       lines for postgresql.conf
#	backup     the name of a backup, which is made when there is none,
#	of         and of which server, if it is not of this one
#	no_start   only configure it
sub standby
{
	my ($self, $name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $backup = $opt{backup} // "for_$name";
	my $source = ($opt{of} // $self)->node;

	$source->backup($backup) unless -d $source->backup_dir . "/$backup";
	$node->init_from_backup($source, $backup);
	$node->enable_streaming($self->node);
	# of a server that was a standby itself
	$node->adjust_conf('postgresql.auto.conf', 'primary_conninfo', undef);
	# when the other server has been away
	$node->append_conf('postgresql.conf', 'wal_retrieve_retry_interval = 200ms');
	$node->append_conf('postgresql.conf', $opt{conf}) if $opt{conf};
	$node->start unless $opt{no_start};
	return (ref $self)->over($node);
}

# All definitions, as SQL.
sub ddl
{
	my ($self) = @_;
	return $self->sql('SELECT dirty_throttle_ddl()');
}

# The view dirty_throttle_following, as a hash.
sub following
{
	my ($self) = @_;
	return $self->_row('SELECT * FROM dirty_throttle_following');
}

# Which definitions a server has.
sub stamp
{
	my ($self) = @_;
	return $self->sql(
		"SELECT timeline || '.' || change FROM dirty_throttle_following");
}

# Wait until this server has the definitions of another one, up to some
# seconds.  Returns how long that took, undef when they never came.
sub arrival
{
	my ($self, $from, $timeout) = @_;
	my $start = time;
	my $expected = $from->stamp;

	poll_until(sub { $self->stamp eq $expected }, $timeout)
	  or return undef;
	return undef if $self->ddl ne $from->ddl;
	return time - $start;
}

# Wait for a status in the view; returns the last one seen.
sub wait_status
{
	my ($self, $status, $timeout) = @_;

	poll_until(sub { $self->following->{status} eq $status }, $timeout);
	return $self->following->{status};
}

# The standby asks somebody else, or again, at once: as a reload of
# dirty_throttle.primary_conninfo does.
sub follow
{
	my ($self, $conninfo) = @_;

	$self->sql("ALTER SYSTEM SET dirty_throttle.primary_conninfo = '$conninfo'");
	$self->sql('SELECT pg_reload_conf()');
}

1;
