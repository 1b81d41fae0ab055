# A DirtyThrottle that is a standby, or one of a primary and its standbys.
#
#	my $a = DirtyThrottle::Standby->primary('a');
#	my $b = $a->standby('b');                 # started
#	$a->limit(batch => 100);
#	$b->replay($a);

package DirtyThrottle::Standby;

use strict;
use warnings;

use parent -norequire, 'DirtyThrottle::Life';

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Cluster;

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

# Wait until this server has replayed all that another one has written, or what
# it had at that time.  The session that asks is closed again.
sub replay
{
	my ($self, $from, $lsn) = @_;
	$lsn //= $from->sql('SELECT pg_current_wal_insert_lsn()');
	my $session = $self->session;

	poll_until(
		sub {
			$session->query("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't';
		},
		180) or die $self->node->name . ' does not replay';
	$session->quit;
}

1;
