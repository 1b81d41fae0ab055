-- A session that uses all that one session can use of this library; run by
-- test/valgrind.  Errors are wanted; what they say is not looked at here.
\set ON_ERROR_STOP off
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION dirty_throttle;

-- definitions, and everything that is wrong with one
SELECT set_group_dirty_limit('grp_a', 2000);
SELECT set_group_dirty_limit('grp_a', 1500.5);
SELECT create_resource_group('grp_b', 4000);
SELECT create_resource_group('grp_b');
SELECT create_resource_group('Größe "x"', 1e-9);
SELECT create_resource_group(repeat('n', 63), 16777216);
SELECT create_resource_group(repeat('n', 64));
SELECT create_resource_group('');
SELECT create_resource_group(NULL);
SELECT create_resource_group('grp_c', NULL);
SELECT set_group_dirty_limit('grp_a', -1), set_group_dirty_limit('grp_a', 'NaN');
SELECT set_group_dirty_limit('grp_a', 'NaN');
SELECT set_group_dirty_limit('grp_a', 'Infinity');
SELECT set_group_dirty_limit('grp_a', 16777217);
SELECT set_group_dirty_limit(repeat('ü', 40), 1);
SELECT reset_group_dirty_limit('none');
SELECT reset_group_dirty_limit('grp_b');
SELECT rename_resource_group('none', 'more'), rename_resource_group('grp_a', 'grp_b');
SELECT rename_resource_group('grp_a', 'grp_b');
SELECT rename_resource_group('grp_b', 'grp_c');
SELECT rename_resource_group('grp_c', NULL);
SELECT drop_resource_group('none');
SELECT drop_resource_group('none', true);
SELECT drop_resource_group('grp_c', NULL, NULL);
SELECT drop_resource_group('grp_c');
SELECT create_resource_group('g' || i, i) FROM generate_series(1, 100) i;
SELECT count(create_resource_group('g' || i, i)) FROM generate_series(1, 20) i;
SELECT count(drop_resource_group('g' || i)) FROM generate_series(1, 20) i;
SELECT drop_resource_group(group_name) FROM dirty_throttle_groups WHERE group_name LIKE 'g%' AND group_name NOT LIKE 'grp%';
SELECT * FROM dirty_throttle_groups;
SELECT * FROM dirty_throttle_sessions;
SELECT dirty_throttle_reset('none');

-- pressure
SELECT create_resource_group('grp_p', 4000);
SELECT set_group_pressure('grp_p', 'replica_lag', '2s', 1);
SELECT set_group_pressure('grp_p', 'slot_lag', '2GB');
SELECT set_group_pressure('grp_p', 'checkpoint');
SELECT set_group_pressure('grp_p', 'dirty_buffers', '1.5 %');
SELECT set_group_pressure('grp_p', 'kernel_dirty', '10%');
SELECT set_group_pressure('grp_p', 'kernel_dirty', '100MB');
SELECT set_group_pressure('grp_p', 'io_pressure', '20');
SELECT set_group_pressure('grp_p', 'io_pressure', '20% '), set_group_pressure('grp_p', 'io_pressure', '%');
SELECT set_group_pressure('grp_p', 'slot_lag', 'GB');
SELECT set_group_pressure('grp_p', 'checkpoint', '');
SELECT set_group_pressure('grp_p', 'none', '2s');
SELECT set_group_floor('grp_p', 0), set_group_floor('none', 10);
SELECT set_group_floor('grp_p', 10.5);
SELECT pg_sleep(1);
SELECT * FROM dirty_throttle_pressure;
SELECT reset_group_pressure('grp_p', signal) FROM dirty_throttle_pressure WHERE group_name = 'grp_p';
SELECT reset_group_pressure('grp_p', 'checkpoint');
SELECT * FROM dirty_throttle_pressure;
SELECT drop_resource_group('grp_p');

-- joining and leaving
SET dirty_throttle."group" = 'none';
SET dirty_throttle."group" = 'grp_a';
SHOW dirty_throttle."group";
SELECT create_resource_group('grp_b', 4000);
BEGIN;
SET LOCAL dirty_throttle."group" = 'grp_b';
SAVEPOINT s;
SET LOCAL dirty_throttle."group" = 'none';
ROLLBACK TO s;
SHOW dirty_throttle."group";
COMMIT;
SELECT rename_resource_group('grp_a', 'grp_r');
SHOW dirty_throttle."group";
SELECT rename_resource_group('grp_r', 'grp_a');
SELECT drop_resource_group('grp_a');
RESET dirty_throttle."group";
CREATE ROLE member LOGIN;
GRANT ALL ON SCHEMA public TO member;
ALTER ROLE member SET dirty_throttle."group" = 'none';
\c - member
SET dirty_throttle."group" = 'grp_a';
SELECT set_group_dirty_limit('grp_a', 0);
SELECT * FROM dirty_throttle_sessions;
\c - postgres
ALTER ROLE member SET dirty_throttle."group" = 'grp_a';
\c - member
SELECT group_name FROM dirty_throttle_sessions;
CREATE TABLE mine (t text);
INSERT INTO mine SELECT repeat('x', 4000) FROM generate_series(1, 100);
\c - postgres

-- work of a member
SET dirty_throttle."group" = 'grp_a';
CREATE TABLE t (i int, t text);
INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i;
COPY (SELECT * FROM t LIMIT 1000) TO PROGRAM 'cat >copied';
COPY t FROM 'copied';
COPY t FROM 'copied' WHERE i % 2 = 0;
COPY t FROM PROGRAM 'head -n 10 copied; echo nonsense';
COPY t (t) FROM STDIN;
a
b
\.
CREATE TABLE copied AS SELECT * FROM t LIMIT 1000;
SELECT count(*) FROM t;
EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) SELECT count(*) FROM t WHERE i < 10;
EXPLAIN (ANALYZE, THROTTLE, COSTS off, TIMING off, SUMMARY off) UPDATE t SET i = i + 1 WHERE i % 3 = 0;
UPDATE t SET i = i + 1 WHERE i % 3 = 0;
WITH d AS (DELETE FROM t WHERE i % 5 = 0 RETURNING *) INSERT INTO copied SELECT * FROM d;
INSERT INTO t SELECT * FROM copied LIMIT 10 RETURNING i;
CREATE INDEX ON t (i);
CREATE INDEX ON t USING hash (i);
CREATE INDEX CONCURRENTLY ON t USING brin (i);
CREATE INDEX ON t USING gin (to_tsvector('simple', t));
ANALYZE t;
VACUUM t;
SET vacuum_cost_delay = 1;
DELETE FROM t WHERE i % 7 = 0;
VACUUM (ANALYZE) t;
RESET vacuum_cost_delay;
VACUUM (FULL) t;
VACUUM (PARALLEL 2) t;
VACUUM (PARALLEL -1) t;
SET log_min_messages = fatal;
CREATE INDEX fatal ON t (t);
ALTER TABLE t ALTER i TYPE bigint;
ALTER TABLE t ALTER i TYPE int;
DROP INDEX fatal;
RESET log_min_messages;
CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
REFRESH MATERIALIZED VIEW m;
DROP MATERIALIZED VIEW m;
ALTER TABLE t ALTER i TYPE bigint;
SELECT lo_from_bytea(0, repeat('x', 100000)::bytea) AS lo \gset
SELECT lo_unlink(:lo);
CREATE TABLE part (i int, t text) PARTITION BY RANGE (i);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (1000);
CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (1000) TO (10000);
INSERT INTO part SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;
CREATE TABLE once (i int PRIMARY KEY, t text);
INSERT INTO once SELECT i, 'x' FROM generate_series(1, 500) i;
INSERT INTO once SELECT i, repeat('y', 500) FROM generate_series(400, 800) i ON CONFLICT (i) DO UPDATE SET t = excluded.t;
MERGE INTO copied c USING (SELECT i FROM generate_series(1, 50) i) s ON c.i = s.i
WHEN MATCHED THEN UPDATE SET i = -s.i WHEN NOT MATCHED THEN INSERT VALUES (s.i, 'm');

-- functions, procedures, cursors, subtransactions, prepared transactions
DO $$
BEGIN
	FOR i IN 1..20 LOOP
		BEGIN
			INSERT INTO part SELECT i, repeat('y', 500) FROM generate_series(1, 50);
			IF i % 3 = 0 THEN RAISE 'back'; END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
		IF i % 5 = 0 THEN COMMIT; END IF;
	END LOOP;
END $$;
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql SET dirty_throttle."group" = 'grp_b'
AS 'UPDATE part SET i = i WHERE i < 500; SELECT count(*) FROM part';
SELECT f();
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT * FROM part ORDER BY t;
FETCH 3 FROM c;
COMMIT;
CLOSE c;
BEGIN;
INSERT INTO t SELECT i, repeat('p', 1000) FROM generate_series(1, 500) i;
PREPARE TRANSACTION 'p';
COMMIT PREPARED 'p';
LISTEN c;
NOTIFY c;
PREPARE p(int) AS INSERT INTO t SELECT i, repeat('p', 1000) FROM generate_series(1, $1) i;
EXECUTE p(100);
EXECUTE p(200);
BEGIN;
INSERT INTO t SELECT i, repeat('b', 1000) FROM generate_series(1, 500) i;
ROLLBACK;

-- an error, and a time limit, in a pause
INSERT INTO t SELECT 1000 / (1000 - i), repeat('e', 1000) FROM generate_series(1, 1000) i;
SELECT set_group_dirty_limit('grp_a', 10);
SET statement_timeout = '500ms';
INSERT INTO t SELECT i, repeat('e', 1000) FROM generate_series(1, 1000) i;
VACUUM t;
SELECT count(*) FROM t;
RESET statement_timeout;
SELECT set_group_dirty_limit('grp_a', 4000);

-- parallel workers
RESET dirty_throttle."group";
CREATE TABLE par AS SELECT i, repeat('x', 1000) AS t FROM generate_series(1, 2000) i;
CHECKPOINT;
SET dirty_throttle."group" = 'grp_a';
SET max_parallel_workers_per_gather = 2;
SET parallel_leader_participation = off;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT count(*) FROM par;
SELECT sum(1 / (i - 1500)) FROM par;
SELECT group_name, blocks_dirtied > 0 FROM dirty_throttle_sessions;
ALTER TABLE par SET (parallel_workers = 2);
CREATE INDEX ON par (i);

-- WAL limits, bursts, modes
SELECT set_group_wal_limit('grp_a', 2000), set_group_burst('grp_a', 100);
UPDATE t SET i = i + 1;
VACUUM t;
SELECT set_group_mode('grp_a', 'observe');
INSERT INTO t SELECT i, repeat('o', 1000) FROM generate_series(1, 1000) i;
SELECT observed_pauses > 0 FROM dirty_throttle_groups WHERE group_name = 'grp_a';
SELECT set_group_mode('grp_a', 'enforce'), reset_group_wal_limit('grp_a');
CREATE ROLE joiner;
SELECT grant_group_use('grp_a', 'joiner');
SET ROLE joiner;
SELECT join_group('grp_a'), leave_joined_group();
RESET ROLE;
BEGIN; DROP ROLE joiner; ROLLBACK;
DROP ROLE joiner;
SELECT count(granted_to) FROM dirty_throttle_groups();
SELECT set_session_group(pg_backend_pid(), NULL), set_session_group(1, 'grp_a');
SELECT count(*) FROM t;
SELECT set_session_group(pg_backend_pid(), 'grp_a');
SELECT * FROM dirty_throttle_blocking;
SET dirty_throttle."group" = 'grp_a';
SELECT set_group_burst('grp_a', 0), set_group_dirty_limit('grp_a', 1000);

-- dropped under its member
SELECT drop_resource_group('grp_b', force => true);
CREATE TABLE done AS SELECT i, repeat('e', 1000) AS t FROM generate_series(1, 2000) i;
SELECT blocks_dirtied, pauses FROM dirty_throttle_groups WHERE group_name = 'grp_a';
SELECT 'VALGRIND.SQL DONE: ' || bool_and(blocks_dirtied > 20 AND pauses > 0)::text::char(1)
FROM dirty_throttle_groups WHERE group_name = 'grp_a';
SELECT dirty_throttle_reset();
SELECT drop_resource_group('grp_a', force => true);
INSERT INTO t SELECT i, repeat('e', 1000) FROM generate_series(1, 200) i;
SHOW dirty_throttle."group";
