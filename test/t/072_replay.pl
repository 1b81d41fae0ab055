# Replay on a standby does not wait for a member that pauses there: for a lock
# that it holds, a page that it has pinned, or its snapshot.  The member owes
# hours, so what is replayed has been let through.
#
# takes-about: 3 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $timeout = $ENV{DT_WAITERS_TIMEOUT} // 180;

my $dt = DirtyThrottle::Life->new(
	'primary',
	init => [ allows_streaming => 1, no_data_checksums => 1 ],
	conf => "max_connections = 100\nwal_log_hints = off\n");
$dt->limit(grp => 0);
my $outsider = $dt->session;

# Who reads on the standby sets hint bits, which dirties the pages, and pauses for
# that beyond the first 64.
$dt->sql("CREATE TABLE seen$_ (id int, filler text) 
		WITH (fillfactor = 10, autovacuum_enabled = off);
	INSERT INTO seen$_ SELECT i, repeat('x', 300) FROM generate_series(1, 600) i;
	DELETE FROM seen$_ WHERE id % 2 = 0") foreach 0 .. 2;
# Hint bits of a transaction are not set on a standby as long as its neighbours,
# by their number, are not flushed there.
$dt->sql('DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM txid_current(); COMMIT;
	END LOOP; END $$');
$dt->node->backup('b');
my $standby_node = PostgreSQL::Test::Cluster->new('standby');
$standby_node->init_from_backup($dt->node, 'b', has_streaming => 1);
$standby_node->append_conf('postgresql.conf', q{
max_standby_streaming_delay = -1
hot_standby_feedback = off
});
$standby_node->start;
my $standby = DirtyThrottle::Life->over($standby_node);

sub replays
{
	my ($lsn, $seconds) = @_;
	return poll_until(
		sub { $standby->sql("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' },
		$seconds);
}

# The limit of the primary, in force on the standby.
sub limit
{
	my ($kb) = @_;

	$dt->limit(grp => $kb);
	replays($dt->sql('SELECT pg_current_wal_insert_lsn()'), $timeout);
	$standby->sql('SELECT 1');
	return;
}

SKIP:
{
	skip 'reading does not dirty here', 1
	  if $standby->sql('SHOW data_checksums') eq 'on';
	foreach my $case (
		# what was deleted before the member's snapshot, VACUUM removes
		[ 'a page', 0, 'VACUUM seen0' ],
		[ 'a lock', 1, 'ALTER TABLE seen1 ADD x int', 'relation|AccessExclusiveLock|seen1' ],
		[ 'a snapshot', 2, 'DELETE FROM seen2; VACUUM seen2' ])
	{
		my ($name, $n, $sql, $shown) = @$case;

		$name = "replay waits for $name";
		ok(replays($dt->sql('SELECT pg_current_wal_lsn()'), $timeout),
			"$name: all is replayed");
		foreach my $bound ($shown ? -1 : (), 100)
		{
			my $reader = $standby->session;

			limit(0);
			limit(1);
			$reader->query("SET dirty_throttle.max_blocking_time = $bound;
				SET dirty_throttle.\"group\" = 'grp'");
			$reader->send("SELECT id FROM seen$n");
			ok($standby->wait_paused($reader, 'in flight', $timeout),
				"$name: a reader pauses");
			$outsider->query($_) foreach $bound < 0 ? $sql : $shown ? () : split /; /, $sql;
			my $lsn = $outsider->query('SELECT pg_current_wal_insert_lsn()');
			if ($bound < 0)
			{
				ok( poll_until(
						sub {
							$standby->sql(
								"SELECT locktype, lockmode, relation
								FROM dirty_throttle_blocking, pg_stat_activity
								WHERE pid = waiting_pid
									AND backend_type = 'startup'") eq $shown;
						}, $timeout),
					"$name: the view shows it");
				$standby->cancel_ms($reader);
				ok(replays($lsn, $timeout), "$name: it is replayed then");
				$sql = 'ALTER TABLE seen1 ADD y int';
				$shown = undef;
			}
			else
			{
				ok(replays($lsn, $timeout), "$name: the reader goes on for it");
				limit(0);
				is($reader->wait->{sqlstate}, undef, "$name: the reader has no error");
				cmp_ok($standby->group_row('grp')->{releases}, '>', 0, "$name: it is counted");
			}
			$reader->quit;
		}
		$standby->sql('SELECT dirty_throttle_reset()');
	}
}
$standby->stop;
$dt->finish;
