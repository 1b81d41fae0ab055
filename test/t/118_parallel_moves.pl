# What parallel workers use is charged once, also when their leader comes into a group,
# leaves it or is moved while they work, and when a function within a parallel query
# runs another one: queries, and builds of an index.
#
# What is charged is compared with how far the WAL has grown, of which the headers
# of pages are a small part; nobody else writes.  The session is moved when everybody
# waits halfway, or when the leader waits and its workers have ended, which the core has
# not added up.
#
# takes-about: 35 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Ledger;
use Test::More;

my $dt = DirtyThrottle::Ledger->new('parallel_moves');
my $go = $dt->node->data_dir . '/go_on';

# Everybody writes 20 kB for a row.  "all" wait before the second half of all rows, or the
# "leader" in its first one.
$dt->sql(qq{CREATE TABLE t (id int, filler text) WITH (fillfactor = 10, parallel_workers = 2);
	INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 300) i;
	VACUUM (FREEZE, ANALYZE) t;
	CREATE FUNCTION work(id int, who text) RETURNS int PARALLEL SAFE IMMUTABLE LANGUAGE plpgsql AS \$\$
		DECLARE
			waits bool := who = 'all' AND id > 150;
		BEGIN
			IF who = 'leader' THEN
				SELECT leader_pid IS NULL INTO waits FROM pg_stat_get_activity(pg_backend_pid());
			END IF;
			WHILE waits AND pg_stat_file('go_on', true) IS NULL LOOP
				PERFORM pg_sleep(0.01);
			END LOOP;
			IF pg_logical_emit_message(false, '', repeat('x', 20000)) IS NULL THEN
				RETURN 0;
			END IF;
			RETURN id;
		END \$\$;
	CREATE FUNCTION inner_query() RETURNS bigint PARALLEL RESTRICTED LANGUAGE plpgsql AS \$\$
		BEGIN
			RETURN (SELECT count(work(id, '')) FROM t);
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

# Wait until nobody writes any more.
sub wait_halfway
{
	my ($begin, $who, $pid) = @_;
	my $before = -1;

	return poll_until(
		sub {
			my $now = $dt->wal;
			my $still = $now == $before && $now > $begin + 2_500_000
			  && ($who eq 'all') == ($dt->sql("SELECT count(*) FROM pg_stat_activity
				WHERE leader_pid = $pid AND pid <> $pid") > 0);

			$before = $now;
			select(undef, undef, undef, 0.3);
			return $still;
		});
}

# Each move is made while all wait; "" is no group.
foreach my $case (
	[ 'stays', 'grp' ],
	[ 'moved to another group', 'grp', 'other' ],
	[ 'moved to another group and back', 'grp', 'other', 'grp' ],
	[ 'comes into the group', '', 'grp' ],
	[ 'leaves it', 'grp', '' ],
	[ 'out and back twice', 'grp', '', 'grp', '', 'grp' ])
{
	foreach my $how (map { my $who = $_; map { [ $_, $who ] } 'build', 'query' } 'all', 'leader')
	{
		my ($what, $first, @moves) = @$case;
		my ($kind, $who) = @$how;
		my $name = "a $kind, $who waits, $what";
		my $sql = $kind eq 'build' ? "CREATE INDEX i ON t (work(id, '$who'))" :
		  "SELECT count(work(id, '$who')) FROM t";
		my $s = $dt->session($first ? (group => $first) : ());
		my $pid = $s->pid;

		unlink $go;
		$s->query("SET maintenance_work_mem = '64MB'; SET max_parallel_maintenance_workers = 2;
			SET max_parallel_workers_per_gather = 2");
		my ($begin, $grp, $other) = ($dt->wal, charged('grp'), charged('other'));
		$s->send($sql);
		ok(wait_halfway($begin, $who, $pid), "$name: it waits");
		my $half = $dt->wal;
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
		my $end = $dt->wal;
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
		'SELECT count(inner_query()) FROM t WHERE work(id, $$$$) % 100 = 0' ],
	[ 'several Gather nodes',
		'SELECT count(*) FROM (SELECT work(id, $$$$) FROM t) a
			FULL JOIN (SELECT work(id, $$$$) FROM t OFFSET 0) b ON true' ])
{
	my ($name, $sql) = @$case;
	my ($begin, $grp) = ($dt->wal, charged('grp'));

	is($s->run($sql)->{sqlstate}, undef, "$name: it ends well");
	$s->query('SELECT write_mb(10)');
	check_charge($name, charged('grp') - $grp, $dt->wal - $begin);
}
$s->quit;
$dt->finish;
