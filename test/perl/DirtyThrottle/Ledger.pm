# A DirtyThrottle whose parallel queries write WAL, and nobody else does, so that what is
# charged can be compared with how far that has grown.

package DirtyThrottle::Ledger;

use strict;
use warnings;

use parent 'DirtyThrottle';

sub new
{
	my ($class, $name) = @_;

	return $class->SUPER::new($name, conf => q{
autovacuum = off
wal_level = minimal
max_wal_senders = 0
checkpoint_timeout = 1h
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
}

# How far the WAL has grown, in bytes.
sub wal
{
	my ($self) = @_;
	return $self->sql(q{SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')});
}

1;
