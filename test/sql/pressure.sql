--
-- Pressure: which signals groups follow, with which thresholds, and every way
-- in which that can go wrong.  What comes of it is in test/t/08*.pl.
--
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION dirty_throttle;

-- Run a command; what comes of it, as one line.
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
	RETURN concat_ws(' | ', state, message, nullif(detail, ''),
					 nullif(hint, ''));
END $$;

-- but for what the sampler finds out
\set thresholds 'SELECT group_name, signal, threshold, CASE WHEN signal <> ''commit_latency'' THEN threshold_value END AS threshold_value, unit, ignored_standbys FROM dirty_throttle_pressure WHERE group_name IS NOT NULL'

-- Nothing is measured while there is no group.  The sampler comes to know soon.
DO $$
BEGIN
	FOR i IN 1 .. 1800 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM dirty_throttle_pressure
			WHERE state IS NOT NULL OR value IS NOT NULL OR measured_at IS NOT NULL);
		PERFORM pg_sleep(0.1);
	END LOOP;
END $$;
SELECT count(*), min(reason), max(reason) FROM dirty_throttle_pressure;
SELECT alter_resource_group('batch');
SELECT floor, effective_dirty_limit, effective_wal_limit, pressure_reason,
       debt_forgiven
FROM dirty_throttle_groups();
:thresholds;

-- The signals, when the sampler has looked at them.  What depends on the machine
-- is not shown here.
DO $$
BEGIN
	FOR i IN 1 .. 1800 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM dirty_throttle_pressure
			WHERE reason = 'Signals are measured while there is a resource group.');
		PERFORM pg_sleep(0.1);
	END LOOP;
END $$;
SELECT signal, group_name, unit, threshold_value, pressure, threshold,
       CASE WHEN signal !~ '^(kernel|io)_' THEN state END,
       CASE WHEN signal !~ '^(kernel|io)_' THEN reason END
FROM dirty_throttle_pressure;

--
-- What is right, and how it is shown.
--
CREATE TEMP TABLE good (signal text, threshold text);
INSERT INTO good VALUES
	('replica_lag', '1s'), ('replica_lag', '2s'), ('replica_lag', ' 2 s '),
	('replica_lag', '0.5 min'), ('replica_lag', '1d'),
	('replica_lag', '1234567us'), ('replica_lag', '0.25h'),
	('slot_lag', '1MB'), ('slot_lag', '1000TB'), ('slot_lag', '1536MB'), ('slot_lag', '5 gb'),
	('slot_lag', '2000000B'), ('slot_lag', '0.5GB'),
	('wal_rate', '50MB'), ('wal_rate', '50 MB/s'), ('disk_free', '20GB'),
	('disk_free', '30%'), ('disk_free', '30 % '), ('disk_free', '0.0001%'),
	('disk_free', '100%'), ('checkpoint', 'on'), ('checkpoint', 'ON'),
	('commit_latency', '5ms'), ('commit_latency', '0.1ms'),
	('commit_latency', '250us'), ('commit_latency', '10s'),
	('commit_latency', '12.5 %'), ('commit_latency', '1%'),
	('commit_latency', '1000%');
SET client_min_messages = warning;	-- no notices that there is no standby
DO $$
DECLARE
	g record;
	t record;
BEGIN
	FOR g IN TABLE good LOOP
		PERFORM set_group_pressure('batch', g.signal, g.threshold);
		COMMIT;
		SELECT * INTO t FROM dirty_throttle_pressure
		WHERE signal = g.signal;
		RAISE INFO '% "%": % (% %)', g.signal, g.threshold, t.threshold,
			CASE WHEN g.signal <> 'commit_latency' THEN t.threshold_value END, t.unit;
	END LOOP;
END $$;
RESET client_min_messages;
SELECT set_group_pressure('batch', 'replica_lag', '3s', 2);
SELECT set_group_pressure('batch', s, NULL) FROM unnest('{wal_rate,disk_free}'::text[]) s;
SELECT set_group_pressure('batch', 'replica_lag', '3s', ignore => 1);
:thresholds;
SELECT signal, group_name FROM dirty_throttle_pressure
WHERE signal !~ '^(kernel|io)_';
SELECT set_group_pressure('batch', 'replica_lag', NULL);
SELECT set_group_pressure('batch', 'replica_lag', NULL);
SELECT rename_resource_group('batch', 'renamed');
SELECT rename_resource_group('renamed', 'batch');
:thresholds;

-- What leaves nothing to a signal, and what is so already
SELECT set_group_wal_limit('batch', '500 kB');
SELECT alter_resource_group('batch', floor => 499);
SELECT alter_resource_group('batch', floor => 500);
SELECT set_group_wal_limit('batch', '1 MB');
SELECT set_group_wal_limit('batch', '100 kB');
SELECT set_group_wal_limit('batch', 0);
SELECT set_group_dirty_limit('batch', '500 kB');
SELECT set_group_dirty_limit('batch', 0);
SELECT alter_resource_group('batch', floor => 1000);
SELECT set_group_pressure('batch', 'wal_rate', '1 MB');
SELECT set_group_pressure('batch', 'wal_rate', '1001 kB');
SELECT set_group_pressure('batch', 'wal_rate', NULL);
\set VERBOSITY terse
SELECT set_group_pressure('batch', 'disk_free', '100%');
SELECT set_group_pressure('batch', 'disk_free', '1MB');
SELECT set_group_pressure('batch', 'disk_free', NULL);
\set VERBOSITY default

-- Other groups at another threshold, and at the same one
SELECT alter_resource_group('strict');
SELECT set_group_pressure('strict', 'wal_rate', '50MB');
SELECT set_group_pressure('batch', 'wal_rate', '60MB');
SELECT set_group_pressure('batch', 'wal_rate', '50MB');
SELECT set_group_pressure('batch', 'wal_rate', NULL);
-- also if it ignores others
\set VERBOSITY terse
SELECT set_group_pressure('strict', 'replica_lag', '2s');
SELECT set_group_pressure('batch', 'replica_lag', '2s', ignore => 1);
\set VERBOSITY default
SELECT set_group_pressure('batch', 'replica_lag', NULL);
SELECT drop_resource_group('strict');

-- The floor
\set show 'SELECT floor FROM dirty_throttle_groups;'
SELECT alter_resource_group('batch', floor => 512); :show
SELECT alter_resource_group('batch', floor => 1); :show
SELECT alter_resource_group('batch', floor => 1.0005); :show
SELECT alter_resource_group('batch', floor => 16777216); :show

-- The weight
SELECT alter_resource_group('batch', weight => 3);
SELECT alter_resource_group('batch', weight => 2.5);
SELECT weight FROM dirty_throttle_groups;
SELECT alter_resource_group('batch', weight => 1);

-- The allowance
SELECT alter_resource_group('batch', allowance => 64000);
SELECT allowance FROM dirty_throttle_groups;
SELECT alter_resource_group('batch', allowance => '64 MB');
SELECT alter_resource_group('batch', allowance => 0.0004);
SELECT alter_resource_group('batch', allowance => '1 TB');
SELECT allowance FROM dirty_throttle_groups;

-- What others report, and a group that is new
SELECT report_pressure('kafka_lag', 0.5, '1 day');
SELECT set_group_pressure('batch', 'kafka_lag', 'on');
SELECT set_group_pressure('new', 'checkpoint', 'on');
SELECT alter_resource_group('newer', weight => 2);
SELECT alter_resource_group('newer', allowance => '5MB');
SELECT alter_resource_group('newest', mode => 'observe');
:thresholds;
SELECT signal, group_name, state, value, threshold_value, unit, base, pressure,
       threshold, ignored_standbys, reason
FROM dirty_throttle_pressure WHERE signal ~ '^kafka';
SELECT regexp_replace(line, ' id=\d+', '')
FROM pg_db_role_setting, unnest(setconfig) AS s,
     string_to_table(s, E'\n') AS line
WHERE setrole = 'dirty_throttle'::regrole;
SELECT set_group_pressure('batch', 'kafka_lag', NULL);
SELECT set_group_pressure('batch', 'kafka_lag', NULL);
SELECT drop_resource_group(g) FROM unnest('{new,newer,newest}'::text[]) g;

-- Rolled back, like all definitions
BEGIN;
SELECT alter_resource_group('batch', floor => 100);
SELECT set_group_pressure('batch', 'slot_lag', '7GB');
SELECT set_group_pressure('batch', 'checkpoint', NULL);
ROLLBACK;
:thresholds;
:show

--
-- What is wrong.  Nothing has changed after all of this.
--
CREATE TABLE before AS :thresholds;
CREATE TEMP TABLE bad (signal text, threshold text);
INSERT INTO bad VALUES
	('replica_lag', 'on'), ('replica_lag', ''), ('replica_lag', 'slow'),
	('replica_lag', '2 seconds'), ('replica_lag', '999ms'),
	('replica_lag', '2MB'), ('replica_lag', '-2s'), ('replica_lag', 'NaN'),
	('replica_lag', '1500'), ('slot_lag', '10485760'), ('wal_rate', '50000000'),
	('commit_latency', '20'), ('commit_latency', '0.2'),
	('replica_lag', '86401s'), ('replica_lag', '1e400s'), ('replica_lag', '2%'),
	('slot_lag', '1'), ('slot_lag', '999kB'), ('slot_lag', '2MB/s'), ('slot_lag', '2MiB'),
	('slot_lag', '1001TB'), ('slot_lag', '10%'),
	('wal_rate', '10%'), ('disk_free', '0%'), ('disk_free', '10'),
	('archive_lag', '1GB'),
	('checkpoint', '10%'), ('checkpoint', ''), ('checkpoint', 'off'),
	('kernel_dirty', '500'), ('kernel_dirty', '10%'),
	('kernel_dirty', '500M'),
	('io_pressure', '1s'), ('io_pressure', '0%'),
	('io_pressure', '0'), ('io_pressure', '101%'), ('io_pressure', '1GB'),
	('io_pressure', '10%%'), ('io_pressure', '10% x'), ('io_pressure', '%'),
	('io_pressure', '0.00001%'),
	('commit_latency', '99us'),
	('commit_latency', '11s'), ('commit_latency', '0.9%'),
	('commit_latency', '1001%'), ('commit_latency', '1MB'),
	('', '2s'), ('lag', '2s'), ('REPLICA_LAG', '2s'), ('replica-lag', '2s'),
	('walrate', '2MB'), ('kafka_leg', 'on');
SELECT signal, threshold,
       try(format('SELECT set_group_pressure(''batch'', %L, %L)', signal,
                  threshold))
FROM bad;
SELECT call, try('SELECT ' || call)
FROM unnest(ARRAY[
	$$set_group_pressure('', 'checkpoint', 'on')$$,
	$$set_group_pressure(NULL, 'checkpoint', 'on')$$,
	$$set_group_pressure('batch', NULL, 'on')$$,
	$$set_group_pressure('batch', 'checkpoint', 'on', NULL)$$,
	$$set_group_pressure('batch', 'replica_lag', '2s', -1)$$,
	$$set_group_pressure('batch', 'slot_lag', '2GB', 1)$$,
	$$set_group_pressure('nobody', 'checkpoint', NULL)$$,
	$$set_group_pressure('nobody', 'kafka_lag', NULL)$$,
	$$set_group_pressure(NULL, 'checkpoint', NULL)$$,
	$$set_group_pressure('batch', 'lag', NULL)$$,
	$$set_group_pressure('batch', NULL, NULL)$$,
	$$alter_resource_group('batch', floor => 0)$$,
	$$alter_resource_group('batch', floor => 0.999)$$,
	$$alter_resource_group('batch', floor => -1)$$,
	$$alter_resource_group('batch', floor => 16777217)$$,
	$$alter_resource_group('batch', floor => 'NaN')$$,
	$$alter_resource_group('batch', weight => 0)$$,
	$$alter_resource_group('batch', weight => 1001)$$,
	$$alter_resource_group('batch', allowance => -1)$$,
	$$alter_resource_group('batch', allowance => 'NaN'::float8)$$,
	$$alter_resource_group('batch', allowance => '2 TB')$$,
	$$alter_resource_group('batch', allowance => '5 MB/s')$$,
	$$alter_resource_group('batch', allowance => 'much')$$,
	$$set_group_pressure('batch', 'kafka_lag', '2s')$$,
	$$set_group_pressure('batch', 'reported', 'on')$$,
	$$report_pressure('wal_rate', 1)$$,
	$$report_pressure('kafka_lag', -1)$$,
	$$report_pressure('kafka_lag', 'NaN')$$,
	$$report_pressure('kafka_lag', NULL)$$,
	$$report_pressure('kafka_lag', 1, '0')$$,
	$$report_pressure('kafka_lag', 1, '1 month')$$,
	-- beyond 2^64 us
	$$report_pressure('kafka_lag', 1, '213503983 days')$$,
	$$report_pressure('kafka_lag', 1, NULL)$$,
	$$report_pressure('', 1)$$,
	$$report_pressure(NULL, 1)$$]) AS call;
SELECT count(*) FROM (TABLE before EXCEPT :thresholds) AS changed;

SELECT drop_resource_group('batch');
:thresholds;
DROP TABLE before;
DROP FUNCTION try;
DROP EXTENSION dirty_throttle;
