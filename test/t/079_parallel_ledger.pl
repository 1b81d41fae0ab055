# The ledger of parallel queries: what the leader and its workers have written is
# charged once, also when the query fails before the core has added up: before the
# workers have ended, or when they have.  If it fails after that, what the workers have
# used is charged a second time, and never left out.
#
# What is charged is compared with how far the WAL has grown, of which the headers
# of pages are a small part; nobody else writes.
#
# takes-about: 10 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Ledger;
use Test::More;

my $dt = DirtyThrottle::Ledger->new('ledger');

# Everybody writes 20 kB for a row.
$dt->sql(q{CREATE TABLE t (id int, filler text) WITH (fillfactor = 10, parallel_workers = 4);
	INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 300) i;
	VACUUM (FREEZE, ANALYZE) t;
	CREATE FUNCTION write_kb(kb int) RETURNS void PARALLEL SAFE LANGUAGE plpgsql AS $$
		DECLARE
			b bool;
		BEGIN
			FOR i IN 1 .. kb / 20 LOOP
				b := pg_logical_emit_message(false, '', repeat('x', 20000)) IS NULL;
			END LOOP;
		END $$;
	CREATE FUNCTION fail_after(kb int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM write_kb(kb);
			RAISE 'failed';
		END $$;
	-- Who fails: the leader at once, or when its workers have ended, or in the end when it
	-- has been charged after that; or one of these, for which the leader waits.
	CREATE FUNCTION work(leader int, id int, who text) RETURNS int PARALLEL SAFE
		LANGUAGE plpgsql AS $$
		DECLARE
			work_now bool;
			worked bool := false;
			until timestamptz := clock_timestamp() + interval '20 s';
		BEGIN
			PERFORM write_kb(20);
			IF pg_backend_pid() = leader THEN
				IF who = 'leader' THEN
					RETURN fail_after(1000);
				ELSIF who <> '' THEN
					LOOP
						PERFORM pg_stat_clear_snapshot();
						work_now := EXISTS (SELECT FROM pg_stat_activity WHERE leader_pid = leader);
						EXIT WHEN (worked AND NOT work_now) OR clock_timestamp() > until;
						worked := worked OR work_now;
						PERFORM pg_sleep(0.001);
					END LOOP;
					IF who = 'leader, then' THEN
						RETURN fail_after(4000);
					ELSIF who = 'leader, in the end' THEN
						FOR i IN 1 .. 600 LOOP
							PERFORM write_kb(20);
						END LOOP;
						RETURN fail_after(20);
					END IF;
				END IF;
			ELSIF who = 'worker' OR (who = 'worker, late' AND id > 250) THEN
				RETURN fail_after(100);
			END IF;
			RETURN 1;
		END $$});

$dt->limit(grp => 0);
$dt->sql("SELECT set_group_wal_limit('grp', 1000000)");
my $s = $dt->session(group => 'grp');
my $pid = $s->pid;

sub charged
{
	return $dt->session_row($s)->{wal_bytes};
}

sub check_ledger
{
	my ($name, $sql, $fails, $most) = @_;
	my ($wal, $charged) = ($dt->wal, charged());
	my $r = $s->run($sql);

	is($r->{sqlstate}, $fails ? 'P0001' : undef, "$name: how it ends") || diag $r->{err};
	ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_stat_activity
		WHERE leader_pid = $pid") == 0 }), "$name: its workers have ended");
	$s->query('SELECT 1');
	$wal = $dt->wal - $wal;
	$charged = charged() - $charged;
	cmp_ok($charged, '<=', $wal + ($most // 0), "$name: nothing is charged twice");
	cmp_ok($charged, '>=', 0.98 * $wal - 20_000, "$name: and all of it once");
	note "$name: $wal written, $charged charged";
	return;
}

foreach my $workers (1 .. 4)
{
	my $query = sub { "SELECT count(work($pid, id, '$_[0]')) FROM t" };
	my $name = "$workers workers";

	$s->query("SET max_parallel_workers_per_gather = $workers");
	like($s->query('EXPLAIN ' . $query->('')), qr/Workers Planned: $workers/, "$name: a plan");
	check_ledger("$name, no failure", $query->(''));
	foreach my $who ('leader', 'leader, then', 'leader, in the end', 'worker', 'worker, late')
	{
		check_ledger("$name, failure of $who", $query->($who), 1);
		check_ledger("$name, failure of $who, caught", "DO \$\$ BEGIN
			BEGIN
				PERFORM count(work($pid, id, '$who')) FROM t;
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
			PERFORM write_kb(2000);
			PERFORM count(work($pid, id, '')) FROM t;
			END \$\$");
	}
	check_ledger("$name, failure after all", "SELECT fail_after(4000 * (n > 0)::int)
		FROM (SELECT count(work($pid, id, '')) AS n FROM t) q", 1, 300 * 21_000);
	check_ledger("$name, several times in a plan",
		"SELECT (SELECT count(work($pid, id, '')) FROM t), (SELECT sum(work($pid, id, '')) FROM t)
			FROM (SELECT write_kb(3000) OFFSET 0) q");
	check_ledger("$name, a LIMIT above it", "SELECT write_kb(3000) FROM
		(SELECT work($pid, id, '') FROM t LIMIT 50) q LIMIT 1");
}
$s->quit;
$dt->finish;
