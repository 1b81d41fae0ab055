--
-- The mistakes that users make, and what they are told: docs/troubleshooting.md has
-- an example of each.
--
-- expect-in-log: WARNING:  resource group "Bacth" does not exist
--
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
\pset fieldsep '\n    '
CREATE EXTENSION dirty_throttle;

-- Run a command; what comes of it, on up to three lines.  For a function that is
-- not there the server's hint differs between its releases.
CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE command;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE,
		message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
		hint = PG_EXCEPTION_HINT;
	IF state = '42883' THEN
		RETURN state || ' ' || message;
	END IF;
	RETURN concat_ws(E'\n    ', state || ' ' || message, nullif(detail, ''),
					 nullif(hint, ''));
END $$;

SET client_min_messages = warning;	-- no notices of what is created here
SELECT set_group_dirty_limit('batch', '12 MB');
RESET client_min_messages;
CREATE ROLE regress_dt_user LOGIN;

-- What is an error
SELECT command, regexp_replace(try(command), 'process \d+', 'process ...')
FROM unnest(ARRAY[
	-- amounts
	$$SELECT set_group_dirty_limit('batch', '12 Mb/sec')$$,
	$$SELECT set_group_dirty_limit('batch', '12 MiB')$$,
	$$SELECT set_group_dirty_limit('batch', 'unlimited')$$,
	$$SELECT set_group_dirty_limit('batch', '')$$,
	$$SELECT set_group_dirty_limit('batch', '12,5 MB')$$,
	$$SELECT set_group_dirty_limit('batch', -1)$$,
	$$SELECT set_group_dirty_limit('batch', 1e12)$$,
	$$SELECT set_group_dirty_limit('batch', '20 TB')$$,
	$$SELECT set_group_dirty_limit('batch', 'NaN')$$,
	$$SELECT set_group_dirty_limit('batch', NULL)$$,
	$$SELECT set_group_dirty_limit('batch', true)$$,
	$$SELECT set_group_dirty_limit('batch')$$,
	$$SELECT set_group_wal_limit('batch', '8 m')$$,
	$$SELECT alter_resource_group('batch', burst => '1 minute')$$,
	$$SELECT alter_resource_group('batch', burst => '2 h')$$,
	$$SELECT alter_resource_group('batch', floor => 0)$$,
	$$SELECT alter_resource_group('nobody', wal_limit => '1 MB', instance => 'regress_dt_user')$$,
	-- names
	$$SELECT set_group_dirty_limit(NULL, 1)$$,
	$$SELECT set_group_dirty_limit('', 1)$$,
	$$SELECT set_group_dirty_limit('  ', 1)$$,
	$$SELECT set_group_dirty_limit(E'batch\n', 1)$$,
	$$SELECT set_group_dirty_limit(repeat('x', 64), 1)$$,
	$$SELECT set_group_dirty_limit('batch ', '5 MB')$$,
	$$SELECT suspend_group('Batch')$$,
	$$SELECT drop_resource_group('btach')$$,
	$$SELECT rename_resource_group('batches', 'jobs')$$,
	$$SELECT rename_resource_group('batch', 'batch')$$,
	$$SELECT grant_group_use('batch', 'regress_dt_usr')$$,
	-- the parameter
	$$SET dirty_throttle.dirty_limit = '5 MB'$$,
	$$SET dirty_throttle.enabled = off$$,
	$$SET dirty_throttle.max_groups = 100$$,
	$$SET dirty_throttle.groups = 'batch dirty=5'$$,
	$$ALTER ROLE dirty_throttle SET dirty_throttle.groups = 'batch dirty=fast'$$,
	$$ALTER ROLE dirty_throttle SET dirty_throttle.groups = 'My Group dirty=5'$$,
	$$ALTER ROLE dirty_throttle RENAME TO throttle$$,
	$$DROP ROLE dirty_throttle$$,
	-- modes and signals
	$$SELECT alter_resource_group('batch', mode => 'off')$$,
	$$SELECT set_group_pressure('batch', 'lag', '2s')$$,
	$$SELECT set_group_pressure('batch', 'replica-lag', '2s')$$,
	$$SELECT set_group_pressure('batch', 'replica_lag', 'on')$$,
	$$SELECT set_group_pressure('batch', 'replica_lag', '2 seconds')$$,
	$$SELECT set_group_pressure('batch', 'replica_lag', '50ms')$$,
	$$SELECT set_group_pressure('batch', 'slot_lag', '10G')$$,
	$$SELECT set_group_pressure('batch', 'slot_lag', '10')$$,
	$$SELECT set_group_pressure('batch', 'checkpoint', '5min')$$,
	$$SELECT set_group_pressure('batch', 'io_pressure', '130%')$$,
	$$SELECT set_group_pressure('batch', 'slot_lag', '10GB', 1)$$,
	-- sessions
	$$SELECT set_session_group(0, 'batch')$$,
	$$SELECT set_session_group(pid, 'batch') FROM pg_stat_activity WHERE backend_type = 'checkpointer'$$,
	$$SELECT set_session_group(pg_backend_pid(), 'bach')$$,
	$$SELECT join_group(NULL)$$,
	$$SELECT suspend_group('nobody')$$]) AS command;

-- The same in transactions that have changed no groups
SELECT command, try(command)
FROM unnest(ARRAY[
	$$SET dirty_throttle."group" = batch2$$,
	$$SET dirty_throttle."group" = 'batsch'$$]) AS command;

-- Without privileges
SET ROLE regress_dt_user;
SELECT command, try(command)
FROM unnest(ARRAY[
	$$SELECT set_group_dirty_limit('batch', '5 MB')$$,
	$$SET dirty_throttle."group" = 'batch'$$,
	$$ALTER ROLE regress_dt_user SET dirty_throttle."group" = ''$$,
	$$SELECT join_group('batch')$$]) AS command;
RESET ROLE;

-- What the server's parser rejects: the hint comes when the error is reported
SET dirty_throttle.group = 'batch';
\echo :LAST_ERROR_SQLSTATE

-- In transactions
BEGIN READ ONLY;
SELECT set_group_dirty_limit('batch', '5 MB');
\echo :LAST_ERROR_SQLSTATE
SELECT set_group_dirty_limit('batch', '5 MB');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
SELECT set_group_dirty_limit('batch', '5 MB');
PREPARE TRANSACTION 'regress_dt';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SET LOCAL client_min_messages = warning;
SELECT alter_resource_group('new');
SET dirty_throttle."group" = 'new';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SET dirty_throttle."group" = 'batch';
SELECT drop_resource_group('batch');
\echo :LAST_ERROR_SQLSTATE
SET client_min_messages = warning;
SELECT alter_resource_group('group ' || i) FROM generate_series(1, 8) AS i;	-- of 8, with batch
\echo :LAST_ERROR_SQLSTATE

RESET client_min_messages;

-- What succeeds, with a notice
SELECT resume_group('batch');
RESET dirty_throttle."group";
SELECT alter_resource_group('nightly', floor => '1 MB');
SELECT set_group_dirty_limit('Batch', '5 MB');
SELECT set_group_dirty_limit('batch', 1000.0 / 3);
SELECT set_group_dirty_limit('batch', 12);
SELECT set_group_dirty_limit('batch', 0);
SELECT set_group_pressure('batch', 'replica_lag', '2s');
SELECT set_group_pressure('batch', 'slot_lag', NULL);
SELECT revoke_group_use('batch', 'regress_dt_user');
SELECT drop_resource_group('nobody', if_exists => true);
ALTER ROLE regress_dt_user SET dirty_throttle."group" = 'Bacth';
SELECT current_user AS superuser \gset
\c - regress_dt_user
\c - :superuser
ALTER ROLE regress_dt_user SET dirty_throttle."group" = 'Batch';
CREATE PROCEDURE regress_dt_purge() LANGUAGE sql SET dirty_throttle."group" = 'Batch' AS 'SELECT 1';
SELECT drop_resource_group('Batch');
CALL regress_dt_purge();
\echo :LAST_ERROR_SQLSTATE
DROP PROCEDURE regress_dt_purge;
DROP EXTENSION dirty_throttle;
CREATE EXTENSION dirty_throttle;

-- Batches
CREATE TABLE regress_orders (id int PRIMARY KEY, state text, day date);
CREATE TABLE regress_log (line text);
CREATE VIEW regress_view AS TABLE regress_orders;
CREATE FOREIGN DATA WRAPPER regress_wrapper;
CREATE SERVER regress_server FOREIGN DATA WRAPPER regress_wrapper;
CREATE FOREIGN TABLE regress_foreign (id int) SERVER regress_server;
\set update '\'UPDATE regress_orders SET state = \'\'x\'\' WHERE {batch}\''
CALL run_in_batches('states', 'regress_orders', 'UPDATE regress_orders SET state = ''x''');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', 'DELETE FROM regress_orders WHERE {batch}; ANALYZE');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', 'SELECT * INTO copy FROM regress_orders WHERE {batch}');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_log', 'DELETE FROM regress_log WHERE {batch}');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', :update, key => 'day');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', :update, key => 'dey');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_view', :update);
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders_pkey', :update);
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_foreign', :update);
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', :update, start => 9, finish => 1);
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', :update, max_rows => 0);
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', :update, batch_time => '0');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('', 'regress_orders', :update);
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', NULL);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CALL run_in_batches('states', 'regress_orders', :update);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
DO $$ BEGIN
	CALL run_in_batches('states', 'regress_orders', 'UPDATE regress_orders SET state = ''x'' WHERE {batch}');
END $$;
\echo :LAST_ERROR_SQLSTATE
CREATE PROCEDURE regress_dt_states() LANGUAGE plpgsql SET dirty_throttle."group" = 'batch' AS $$
DECLARE changed bigint; done boolean; BEGIN
	CALL run_in_batches('states', 'regress_orders', 'UPDATE regress_orders SET state = ''x'' WHERE {batch}',
						rows => changed, finished => done);
END $$;
CALL regress_dt_states();
\echo :LAST_ERROR_SQLSTATE
DROP PROCEDURE regress_dt_states;
CREATE PROCEDURE regress_dt_states() LANGUAGE plpgsql SET dirty_throttle."group" = 'batch' AS $$ BEGIN
	COMMIT;
END $$;
CALL regress_dt_states();
\echo :LAST_ERROR_SQLSTATE
DROP PROCEDURE regress_dt_states;
CALL run_in_batches('states', 'regress_orders', :update);
\echo :LAST_ERROR_SQLSTATE
SET client_min_messages = warning;
CALL run_in_batches('states', 'regress_orders', :update, unthrottled => true) \gset
RESET client_min_messages;
CALL run_in_batches('states', 'regress_log', 'DELETE FROM regress_log WHERE {batch}', key => 'line');
\echo :LAST_ERROR_SQLSTATE
CALL run_in_batches('states', 'regress_orders', 'DELETE FROM regress_orders WHERE {batch}');
\echo :LAST_ERROR_SQLSTATE
SELECT stop_batches('states');
SELECT stop_batches('state');
\echo :LAST_ERROR_SQLSTATE
SELECT forget_batches('states');
INSERT INTO regress_orders VALUES (1, 'new', NULL);
CREATE INDEX ON regress_orders (day);
CALL run_in_batches('days', 'regress_orders', :update, key => 'day');
\echo :LAST_ERROR_SQLSTATE
DROP VIEW regress_view;
DROP FOREIGN TABLE regress_foreign;
DROP SERVER regress_server;
DROP FOREIGN DATA WRAPPER regress_wrapper;
DROP TABLE regress_orders, regress_log;

SELECT drop_resource_group(group_name) FROM dirty_throttle_groups;
DROP ROLE regress_dt_user;
DROP FUNCTION try;
DROP EXTENSION dirty_throttle;
