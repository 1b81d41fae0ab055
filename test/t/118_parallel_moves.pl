# What parallel workers use is charged once, also when their leader comes into a group,
# leaves it or is moved while they work, and when a function within a parallel query
# runs another one: queries, and builds of an index.
#
# What is charged is compared with how far the WAL has grown, of which the headers
# of pages are a small part; nobody else writes.  Everybody stops halfway, when the
# session is moved.
#
# takes-about: 20 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $dt = DirtyThrottle->new('parallel_moves', conf => q{
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
my $go = $dt->node->data_dir . '/go_on';

# Everybody writes 20 kB for a row, and waits before the second half of all rows.
$dt->sql(qq{CREATE TABLE t (id int, filler text) WITH (fillfactor = 10, parallel_workers = 2);
	INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 300) i;
	VACUUM (FREEZE, ANALYZE) t;
	CREATE FUNCTION work(id int, waits bool) RETURNS int PARALLEL SAFE IMMUTABLE LANGUAGE plpgsql AS \$\$
		BEGIN
			WHILE waits AND id > 150 AND pg_stat_file('go_on', true) IS NULL LOOP
				PERFORM pg_sleep(0.01);
			END LOOP;
			IF pg_logical_emit_message(false, '', repeat('x', 20000)) IS NULL THEN
				RETURN 0;
			END IF;
			RETURN id;
		END \$\$;
	CREATE FUNCTION inner_query() RETURNS bigint PARALLEL RESTRICTED LANGUAGE plpgsql AS \$\$
		BEGIN
			RETURN (SELECT count(work(id, false)) FROM t);
		END \$\$;
	CREATE FUNCTION write_mb(mb int) RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			b bool;
		BEGIN
			FOR i IN 1 .. mb * 50 LOOP
				b := pg_logical_emit_message(false, '', repeat('x', 20000)) IS NULL;
			END LOOP;
		END \$\$});

foreach my $group ('grp', 'other')
{
	$dt->limit($group => 0);
	$dt->sql("SELECT set_group_wal_limit('$group', 1000000)");
}

sub wal
{
	return $dt->sql(q{SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')});
}

sub charged
{
	return $dt->group_row($_[0])->{wal_bytes};
}

# Charged at most what was written, and nearly all of it.
sub check_charge
{
	my ($name, $charged, $written, $least) = @_;

	cmp_ok($charged, '<=', 1.01 * $written + 20_000, "$name: nothing is charged twice");
	cmp_ok($charged, '>=', 0.97 * ($least // $written) - 40_000, "$name: and all of it once");
	note "$name: $written written, $charged charged";
	return;
}

# Wait until nobody writes any more, as all wait.
sub wait_halfway
{
	my ($begin) = @_;
	my $before = -1;

	return poll_until(
		sub {
			my $now = wal();
			my $still = $now == $before && $now > $begin + 2_900_000;

			$before = $now;
			select(undef, undef, undef, 0.3);
			return $still;
		});
}

my $build = "SET maintenance_work_mem = '64MB'; SET max_parallel_maintenance_workers = 2;
	CREATE INDEX i ON t (work(id, true))";
my $query = 'SET max_parallel_workers_per_gather = 2; SELECT count(work(id, true)) FROM t';

# Each move is made while all wait; "" is no group.
foreach my $case (
	[ 'stays', 'grp' ],
	[ 'moved to another group', 'grp', 'other' ],
	[ 'moved to another group and back', 'grp', 'other', 'grp' ],
	[ 'comes into the group', '', 'grp' ],
	[ 'leaves it', 'grp', '' ],
	[ 'out and back twice', 'grp', '', 'grp', '', 'grp' ])
{
	foreach my $sql ($build, $query)
	{
		my ($what, $first, @moves) = @$case;
		my $name = ($sql eq $build ? 'a build' : 'a query') . ", $what";
		my $s = $dt->session($first ? (group => $first) : ());
		my $pid = $s->pid;

		unlink $go;
		$s->query('SELECT 1');
		my ($begin, $grp, $other) = (wal(), charged('grp'), charged('other'));
		$s->send($sql);
		ok(wait_halfway($begin), "$name: it waits halfway");
		my $workers = $dt->sql("SELECT count(*) FROM pg_stat_activity
			WHERE leader_pid = $pid AND pid <> $pid");
		cmp_ok($workers, '>', 0, "$name: it has workers");
		my $half = wal();
		foreach my $group (@moves)
		{
			$dt->sql("SELECT set_session_group($pid, '$group')");
			select(undef, undef, undef, 0.3);    # all look
		}
		open(my $file, '>', $go) or die;
		close $file;
		is($s->wait->{sqlstate}, undef, "$name: it ends well");
		# what is left over would show now
		$s->query('SELECT write_mb(10)');
		my $end = wal();
		$grp = charged('grp') - $grp;
		$other = charged('other') - $other;
		my $last = @moves ? $moves[-1] : $first;
		if ($last eq '')
		{
			check_charge($name, $grp, $half - $begin, 0);
		}
		elsif (grep { $_ eq '' } $first, @moves)
		{
			# what was not charged when it left is not charged when it is back
			check_charge($name, $grp,
				$end - ($first eq '' ? $half : $begin), $end - $half);
		}
		else
		{
			check_charge($name, $grp + $other, $end - $begin);
		}
		$s->quit;
		$dt->sql('DROP INDEX IF EXISTS i');
	}
}

# A function that the leader evaluates within a parallel query has one of its own.
my $s = $dt->session(group => 'grp');
$s->query('SET max_parallel_workers_per_gather = 2');
foreach my $case (
	[ 'a parallel query within another one',
		'SELECT count(inner_query()) FROM t WHERE work(id, false) % 100 = 0' ],
	[ 'several Gather nodes',
		'SELECT count(*) FROM (SELECT work(id, false) FROM t) a
			FULL JOIN (SELECT work(id, false) FROM t OFFSET 0) b ON true' ])
{
	my ($name, $sql) = @$case;
	my ($begin, $grp) = (wal(), charged('grp'));

	is($s->run($sql)->{sqlstate}, undef, "$name: it ends well");
	$s->query('SELECT write_mb(10)');
	check_charge($name, charged('grp') - $grp, wal() - $begin);
}
$s->quit;
$dt->finish;
