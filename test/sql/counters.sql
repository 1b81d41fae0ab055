--
-- What the views count: blocks to the block, pauses, time and debt.
--
-- Members dirty t, where every row fills a page.
--
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION dirty_throttle;
CREATE TABLE t (a int, filler text) WITH (fillfactor = 10);
CREATE INDEX ON t (a);
SELECT create_resource_group('grp_a');
SELECT create_resource_group('grp_b');

CREATE VIEW g AS SELECT * FROM dirty_throttle_groups() WHERE group_name = 'grp_a';
CREATE VIEW s AS SELECT * FROM dirty_throttle_sessions() WHERE pid = pg_backend_pid();

-- Blocks that a command dirties, as EXPLAIN counts them.
CREATE FUNCTION dirtied(command text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) ' || command
	INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Dirtied Blocks')::int +
		   coalesce((plan->0->'Planning'->>'Shared Dirtied Blocks')::int, 0);
END $$;
CREATE FUNCTION fill(n int) RETURNS int LANGUAGE sql AS $$
SELECT dirtied(format('INSERT INTO t SELECT i, repeat(''x'', 700) FROM generate_series(1, %s) AS i', n))
$$;

-- Hint bits of the catalogs are set now, not while we count.
VACUUM;
-- EXPLAIN counts what parallel workers do in another way.
SET max_parallel_workers_per_gather = 0;

--
-- Without a limit: everything is counted, nobody pauses.
--
SET dirty_throttle."group" = 'grp_a';
SELECT fill(10) > 0;
SELECT dirty_throttle_reset('grp_a');
SELECT blocks_dirtied, pauses, paused_time, stats_reset > now() - interval '1 min'
FROM g;
-- members' counters are since they joined
RESET dirty_throttle."group";
SET dirty_throttle."group" = 'grp_a';
SELECT blocks_dirtied FROM s;

SELECT fill(500) AS dirtied \gset
SELECT :dirtied > 500;
SELECT g.blocks_dirtied - :dirtied, s.blocks_dirtied - :dirtied FROM g, s;
SELECT fill(1) AS more \gset
SELECT g.blocks_dirtied - (:dirtied + :more), s.blocks_dirtied - g.blocks_dirtied
FROM g, s;
-- rolled back, it was dirtied all the same
BEGIN;
SELECT fill(100) AS rolled_back \gset
ROLLBACK;
SELECT g.blocks_dirtied - (:dirtied + :more + :rolled_back) FROM g;
-- in a subtransaction that failed, too
BEGIN;
SAVEPOINT a;
SELECT fill(50) AS sub \gset
SELECT 1/0;
ROLLBACK TO a;
SELECT g.blocks_dirtied <= :dirtied + :more + :rolled_back + :sub FROM g;
COMMIT;
SELECT g.blocks_dirtied - (:dirtied + :more + :rolled_back + :sub) FROM g;
-- an UPDATE, and the hint bits that a SELECT sets
CHECKPOINT;
SELECT blocks_dirtied AS before FROM g \gset
SELECT dirtied('SELECT count(*) FROM t') AS hints \gset
SELECT :hints > 100, blocks_dirtied - :before - :hints FROM g;
CHECKPOINT;
SELECT blocks_dirtied AS before FROM g \gset
SELECT dirtied('UPDATE t SET filler = ''y'' WHERE a <= 100') AS updated \gset
SELECT :updated > 100, blocks_dirtied - :before - :updated FROM g;
-- in the middle of a statement, too
SELECT blocks_dirtied AS before FROM g \gset
WITH i AS (INSERT INTO t SELECT i, repeat('x', 700)
           FROM generate_series(1, 3000) AS i RETURNING a),
     c AS (SELECT count(*) AS n FROM i)
SELECT n, (SELECT blocks_dirtied - :before > 1000 FROM g
           WHERE n IS NOT NULL) AS live
FROM c;
SELECT pauses, paused_time, paused, dirty_debt FROM g;
SELECT pauses, paused_time, paused_since IS NULL, dirty_debt FROM s;
SELECT dirty_rate > 0 FROM g;

-- Nothing is counted for a session that has left, nor for another group.
RESET dirty_throttle."group";
SELECT blocks_dirtied AS before FROM g \gset
SELECT fill(100) >= 100;
SELECT blocks_dirtied - :before FROM g;
SELECT blocks_dirtied FROM dirty_throttle_groups WHERE group_name = 'grp_b';

-- What was dirtied before leaving is the old group's, what comes then the
-- new one's, in one transaction as well.
SET dirty_throttle."group" = 'grp_a';
BEGIN;
SELECT fill(100) AS in_a \gset
SET LOCAL dirty_throttle."group" = 'grp_b';
SELECT fill(200) AS in_b \gset
COMMIT;
SELECT (SELECT blocks_dirtied FROM g) - (:before + :in_a), blocks_dirtied - :in_b
FROM dirty_throttle_groups WHERE group_name = 'grp_b';

-- One group's counters, then everybody's
SELECT dirty_throttle_reset('grp_a');
SELECT group_name, blocks_dirtied = 0 FROM dirty_throttle_groups
ORDER BY group_name COLLATE "C";
SELECT fill(1) > 0;
SELECT min(stats_reset) AS reset_a FROM g \gset
SELECT dirty_throttle_reset();
SELECT group_name, blocks_dirtied, stats_reset > :'reset_a'
FROM dirty_throttle_groups ORDER BY group_name COLLATE "C";
-- a rename keeps them, and is work of this session, too
SELECT fill(30) AS dirtied \gset
SELECT rename_resource_group('grp_a', 'renamed');
SELECT rename_resource_group('renamed', 'grp_a');
SELECT blocks_dirtied >= :dirtied FROM g;

--
-- With a limit
--
-- At 8192 KB/s a block takes a millisecond, but a short idle time may have left a
-- credit of 0.1 s; pauses count when they end, and nothing is owed after the
-- transaction.  In flight:
ALTER SYSTEM SET dirty_throttle.transaction_grace = '50ms';
SELECT pg_reload_conf();
\c -
SELECT set_group_dirty_limit('grp_a', 8192);
RESET dirty_throttle."group";
SET dirty_throttle."group" = 'grp_a';
SELECT dirty_throttle_reset('grp_a');
SELECT clock_timestamp() AS began, fill(1000) AS dirtied \gset
SELECT extract(epoch FROM clock_timestamp() - :'began') * 1000 AS took \gset
SELECT :dirtied > 900, blocks_dirtied - :dirtied, pauses > 0, pauses <= :dirtied,
       paused_time > 0.5 * :dirtied, paused_time < :took, paused,
       dirty_debt < 100
FROM g;
SELECT g.pauses - s.pauses, abs(g.paused_time - s.paused_time) < 0.01,
       s.paused_since
FROM g, s;
SELECT :took > 0.85 * :dirtied;
SELECT dirty_throttle_reset('grp_a');
SELECT blocks_dirtied, pauses, paused_time FROM g;

-- The same after the transaction
ALTER SYSTEM SET dirty_throttle.transaction_grace = '1 d';
SELECT pg_reload_conf();
\c -
SET dirty_throttle."group" = 'grp_a';
SELECT dirty_throttle_reset('grp_a');
SELECT clock_timestamp() AS began, fill(1000) AS dirtied \gset
SELECT extract(epoch FROM clock_timestamp() - :'began') * 1000 AS took \gset
SELECT :dirtied > 900, blocks_dirtied - :dirtied, pauses > 0, pauses <= :dirtied,
       paused_time > 0.5 * :dirtied, paused_time < :took, paused,
       dirty_debt < 100
FROM g;
SELECT g.pauses - s.pauses, abs(g.paused_time - s.paused_time) < 0.01,
       s.paused_since
FROM g, s;
SELECT :took > 0.85 * :dirtied;
SELECT dirty_throttle_reset('grp_a');
SELECT blocks_dirtied, pauses, paused_time FROM g;

-- A transaction that stays below the grace has a debt while it runs.  It is the
-- member's and the group's, and it shrinks.
ALTER SYSTEM SET dirty_throttle.transaction_grace = '1h';
SELECT pg_reload_conf();
\c -
SHOW dirty_throttle.transaction_grace;
SET dirty_throttle."group" = 'grp_a';
SELECT set_group_dirty_limit('grp_a', 1000);
BEGIN;
SELECT dirty_throttle_reset('grp_a');
SELECT fill(3000) AS dirtied \gset
SELECT blocks_dirtied - :dirtied, pauses, dirty_debt > 0.5 * :dirtied * 8.192,
       dirty_debt <= :dirtied * 8.192
FROM g;
SELECT dirty_debt AS debt FROM s \gset
SELECT pg_sleep(0.2);
SELECT dirty_debt > 1, dirty_debt < :debt - 0.85 * 0.2 * 1000 FROM s;
-- it stays in the group when the session leaves that, and who comes back owes it
RESET dirty_throttle."group";
SELECT dirty_debt > 0.5 * :dirtied * 8.192, members FROM g;
SELECT count(*) FROM s;
SET dirty_throttle."group" = 'grp_b';
SELECT group_name, dirty_debt, paused_by FROM s;
SET dirty_throttle."group" = 'grp_a';
SELECT group_name, dirty_debt > 0.5 * :dirtied * 8.192, blocks_dirtied FROM s;
-- and is forgiven when there is no limit any more
SELECT reset_group_dirty_limit('grp_a');
COMMIT;
SELECT dirty_debt FROM g;
SELECT set_group_dirty_limit('grp_a', 1000);
SELECT dirty_debt FROM g;

-- Switched off: counted, but nobody pauses or owes.
ALTER SYSTEM RESET ALL;
ALTER SYSTEM SET dirty_throttle.enabled = off;
SELECT pg_reload_conf();
\c -
SHOW dirty_throttle.enabled;
SELECT set_group_dirty_limit('grp_a', 1);
SET dirty_throttle."group" = 'grp_a';
SELECT dirty_throttle_reset('grp_a');
SELECT fill(1000) AS dirtied \gset
SELECT blocks_dirtied - :dirtied, pauses, paused_time, dirty_debt FROM g;
RESET dirty_throttle."group";
ALTER SYSTEM RESET ALL;
SELECT pg_reload_conf();
\c -
SHOW dirty_throttle.enabled;

DROP VIEW g, s;
DROP FUNCTION fill, dirtied;
DROP TABLE t;
SELECT drop_resource_group(group_name, false, true) FROM dirty_throttle_groups;
DROP EXTENSION dirty_throttle;
