--
-- Groups and their limits: create, alter, reset, rename, drop, and every way
-- in which that can go wrong.
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

CREATE VIEW definitions AS
SELECT group_name, dirty_limit, members, wal_limit, burst, mode
FROM dirty_throttle_groups ORDER BY group_name COLLATE "C";

--
-- What is right.
--
SELECT set_group_dirty_limit('grp_a', 12288);
SELECT set_group_dirty_limit('grp_a', 6144);	-- no notice any more
SELECT alter_resource_group('grp_b');
SELECT set_group_dirty_limit('grp_c', 3072.5);
SELECT set_group_dirty_limit(kb_per_second => 16777216, group_name => 'GRP_A');
TABLE definitions;
SELECT paused, dirty_rate, blocks_dirtied, pauses, paused_time,
       dirty_debt, stats_reset BETWEEN now() - interval '1 hour' AND clock_timestamp()
FROM dirty_throttle_groups();
SELECT wal_rate, wal_bytes, wal_debt, observed_pauses,
       observed_pause_time, suspended_since
FROM dirty_throttle_groups();
SELECT set_group_dirty_limit('grp_c', 0);
SELECT rename_resource_group('grp_b', 'grp_d');
SELECT drop_resource_group('GRP_A');
SELECT drop_resource_group('nobody', true);
SELECT drop_resource_group('nobody', if_exists => true, force => true);
TABLE definitions;

-- Every value that can be stored is shown as it was given, to the byte per
-- second, and what is not zero does not become "no limit".
\set show 'SELECT dirty_limit FROM dirty_throttle_groups WHERE group_name = ''grp_c'';'
SELECT set_group_dirty_limit('grp_c', 0); :show
SELECT set_group_dirty_limit('grp_c', -0.0); :show
SELECT set_group_dirty_limit('grp_c', 0.0001); :show
SELECT set_group_dirty_limit('grp_c', 1e-300); :show
SELECT set_group_dirty_limit('grp_c', 0.001); :show
SELECT set_group_dirty_limit('grp_c', 0.0014); :show
SELECT set_group_dirty_limit('grp_c', 0.0016); :show
SELECT set_group_dirty_limit('grp_c', 1); :show
SELECT set_group_dirty_limit('grp_c', 8.192); :show
SELECT set_group_dirty_limit('grp_c', 16777215.999); :show
SELECT set_group_dirty_limit('grp_c', 16777216); :show

-- The WAL limit, which also creates a group.
\set show 'SELECT wal_limit, dirty_limit FROM dirty_throttle_groups WHERE group_name = ''grp_w'';'
SELECT set_group_wal_limit('grp_w', 12288); :show
SELECT set_group_wal_limit('grp_w', 6144.5); :show
SELECT set_group_wal_limit('grp_w', 1e-300); :show
SELECT set_group_wal_limit('grp_w', 16777216); :show
SELECT set_group_dirty_limit('grp_w', 5); :show
SELECT set_group_dirty_limit('grp_w', 0); :show
SELECT set_group_wal_limit('grp_w', 0); :show
SELECT set_group_wal_limit('grp_w', -0.0); :show

-- With a unit, per second or for a time; 1 kB is 1000 bytes.
\set show 'SELECT dirty_limit, wal_limit, burst, floor FROM dirty_throttle_groups WHERE group_name = ''grp_w'';'
SELECT set_group_dirty_limit('grp_w', '5 MB'), set_group_wal_limit('grp_w', '1GB'),
       alter_resource_group('grp_w', burst => '1 min', floor => '64 kB'); :show
SELECT set_group_dirty_limit('grp_w', ' 0.5 gb/s '), set_group_wal_limit('grp_w', '12288'),
       alter_resource_group('grp_w', burst => '60000', floor => '1000'); :show
SELECT set_group_dirty_limit('grp_w', '1 B'), set_group_wal_limit('grp_w', '0'),
       alter_resource_group('grp_w', burst => '0', floor => '1500000B'); :show
SELECT set_group_dirty_limit('grp_w', v::text) FROM (VALUES (7000)) AS v(v); :show
PREPARE by_name(text, text) AS SELECT set_group_dirty_limit($1, $2);
EXECUTE by_name('grp_w', '2 mb'); :show
DEALLOCATE by_name;
SELECT set_group_dirty_limit('grp_x', '3 MB'); SELECT drop_resource_group('grp_x');
SELECT alter_resource_group('grp_w', dirty_limit => 0, burst => 20, floor => 64);

-- A number that may have been taken for MB/s, and 0, which may be meant to stop
-- the group: notices.
SELECT set_group_dirty_limit('grp_w', 12);
SELECT set_group_wal_limit('grp_w', ' 99.999 ');
SELECT alter_resource_group('grp_w', dirty_limit => 5, wal_limit => '0 B');
SELECT set_group_dirty_limit('grp_w', 100), set_group_wal_limit('grp_w', '12 kB');
SELECT alter_resource_group('grp_w', wal_limit => 0, floor => 12);
CREATE ROLE regress_dt_gold;
SELECT alter_resource_group('grp_w', scope => 'role', floor => 64);
SELECT alter_resource_group('grp_w', dirty_limit => 7, wal_limit => 0, instance => 'regress_dt_gold');
SELECT alter_resource_group('grp_w', dirty_limit => 0, scope => 'group');
DROP ROLE regress_dt_gold;

-- Burst and mode
\set show 'SELECT burst, mode FROM dirty_throttle_groups WHERE group_name = ''grp_w'';'
:show
SELECT alter_resource_group('grp_w', burst => 0); :show
SELECT alter_resource_group('grp_w', burst => 0.001); :show
SELECT alter_resource_group('grp_w', burst => 1234.5); :show
SELECT alter_resource_group('grp_w', burst => 3600000); :show
SELECT alter_resource_group('grp_w', mode => 'observe'); :show
SELECT alter_resource_group('grp_w', mode => 'observe'); :show
SELECT alter_resource_group('grp_w', mode => 'enforce'); :show

-- Suspending
\set show 'SELECT suspended_since IS NOT NULL AS suspended FROM dirty_throttle_groups WHERE group_name = ''grp_w'';'
SELECT suspend_group('grp_w'); :show
SELECT suspend_group(group_name => 'grp_w'); :show
SELECT resume_group('grp_w'); :show
SELECT resume_group('grp_w'); :show
-- a notice for a member, which goes on
SET dirty_throttle."group" = 'grp_w';
BEGIN;
SELECT suspend_group('grp_a');
SELECT suspend_group('grp_w');
SELECT resume_group('grp_a');
SELECT resume_group('grp_w');
COMMIT;
RESET dirty_throttle."group";
SELECT drop_resource_group('grp_w');

-- What is rolled back has changed nothing.
BEGIN;
SELECT set_group_dirty_limit('grp_a', 1000);
SELECT set_group_dirty_limit('grp_e', 1000);
SELECT drop_resource_group('grp_c');
SELECT set_group_wal_limit('grp_a', 500);
SELECT alter_resource_group('grp_a', burst => 30);
SELECT alter_resource_group('grp_a', mode => 'observe');
ROLLBACK;
TABLE definitions;

--
-- What is wrong.  Nothing has changed after all of this.
--
SELECT set_group_dirty_limit('grp_c', 777);
CREATE TABLE before AS TABLE definitions;

SELECT value, f, try(format(f, value))
FROM (VALUES ('SELECT set_group_dirty_limit(''grp_a'', %s::float8)'),
             ('SELECT set_group_dirty_limit(''new'', %s::float8)'),
             ('SELECT set_group_wal_limit(''new'', %s::float8)')) AS c(f),
     unnest(ARRAY['''NaN''', '''Infinity''', '''-Infinity''', '-1', '-0.0001',
                  '-1e-300', '16777216.001', '16777217', '1e300',
                  'NULL']) WITH ORDINALITY AS v(value, n)
ORDER BY f COLLATE "C", n;

SELECT value, try(format('SELECT alter_resource_group(''grp_a'', burst => %s::float8)', value))
FROM unnest(ARRAY['''NaN''', '''Infinity''', '''-Infinity''', '-1', '-1e-300',
                  '3600000.001', '1e300', 'NULL']) WITH ORDINALITY AS v(value, n)
ORDER BY n;
SELECT value, try(format('SELECT set_group_dirty_limit(''grp_a'', %L)', value)),
       try(format('SELECT alter_resource_group(''grp_a'', burst => %L)', value))
FROM unnest(ARRAY['', ' ', 'fast', '5 M', '5 MiB', '5 MBit', '5 MB/min', '5 MB 3', '5,5 MB',
                  '-5 MB', 'NaN', '1e400 MB', '17 TB', '2 h', '-1 s', NULL])
     WITH ORDINALITY AS v(value, n)
ORDER BY n;
SELECT mode, try(format('SELECT alter_resource_group(''grp_a'', mode => %L)', mode))
FROM unnest(ARRAY['', 'off', 'Observe', ' enforce', 'observed', NULL])
     WITH ORDINALITY AS v(mode, n)
ORDER BY n;

-- Every function and every argument: NULL, empty, too long.
SELECT try($$SELECT set_group_dirty_limit(NULL, 1)$$);
SELECT try($$SELECT alter_resource_group(NULL)$$);
SELECT try($$SELECT rename_resource_group(NULL, 'new')$$);
SELECT try($$SELECT rename_resource_group('grp_a', NULL)$$);
SELECT try($$SELECT drop_resource_group(NULL)$$);
SELECT try($$SELECT drop_resource_group('grp_a', NULL)$$);
SELECT try($$SELECT drop_resource_group('grp_a', false, NULL)$$);
SELECT try($$SELECT set_group_dirty_limit('', 1)$$);
SELECT try($$SELECT alter_resource_group('')$$);
SELECT try($$SELECT alter_resource_group('grp_a ')$$);
SELECT try($$SELECT set_group_dirty_limit(' grp_a', 1)$$);
SELECT try($$SELECT rename_resource_group('grp_a', 'new ')$$);
SELECT try($$SELECT drop_resource_group(' grp_a', true)$$);
SELECT try($$SELECT rename_resource_group('', 'new')$$);
SELECT try($$SELECT rename_resource_group('grp_a', '')$$);
SELECT try($$SELECT drop_resource_group('')$$);
SELECT try($$SELECT drop_resource_group('', true, true)$$);
SELECT try($$SELECT dirty_throttle_reset('')$$);
SELECT try($$SELECT alter_resource_group(repeat('x', 64))$$);
SELECT try($$SELECT rename_resource_group('grp_a', repeat('x', 64))$$);
SELECT try($$SELECT drop_resource_group(repeat('x', 64), true)$$);
SELECT call, try('SELECT ' || replace(call, '$1', 'NULL')),
       try('SELECT ' || replace(call, '$1', '''''')),
       try('SELECT ' || replace(call, '$1', 'repeat(''x'', 64)')),
       try('SELECT ' || replace(call, '$1', '''nobody'''))
FROM (VALUES (4, 'suspend_group($1)'),
             (6, 'resume_group($1)'),
             (7, 'grant_group_use($1, current_user)'),
             (8, 'revoke_group_use($1, current_user)'),
             (9, 'join_group($1)')) AS v(n, call)
ORDER BY n;
SELECT try($$SELECT set_group_wal_limit(NULL, 0)$$);
SELECT try($$SELECT set_group_wal_limit('', 0)$$);
SELECT try($$SELECT set_group_wal_limit(repeat('x', 64), 0)$$);
SELECT try($$SELECT set_session_group(NULL, 'grp_a')$$);
SELECT try($$SELECT set_session_group(0, 'grp_a')$$);
SELECT try($$SELECT set_session_group(pg_backend_pid(), 'nobody')$$);
SELECT try($$SELECT set_session_group(pg_backend_pid(), repeat('x', 64))$$);
SELECT try($$SELECT grant_group_use('grp_a', NULL)$$);
SELECT try($$SELECT grant_group_use('grp_a', '')$$);
SELECT try($$SELECT grant_group_use('grp_a', 'regress_dt_nobody')$$);
SELECT try($$SELECT revoke_group_use('grp_a', NULL)$$);
SELECT try($$SELECT revoke_group_use('grp_a', 'regress_dt_nobody')$$);
SELECT try($$SELECT join_group(NULL)$$);

-- There already, or not there.
SELECT try($$SELECT rename_resource_group('grp_a', 'grp_c')$$);
SELECT try($$SELECT rename_resource_group('grp_a', 'grp_a')$$);
SELECT try($$SELECT rename_resource_group('nobody', 'new')$$);
SELECT try($$SELECT rename_resource_group('nobody', 'grp_a')$$);
SELECT try($$SELECT drop_resource_group('nobody')$$);
SELECT try($$SELECT drop_resource_group('nobody', force => true)$$);
SELECT try($$SELECT dirty_throttle_reset('nobody')$$);

-- As a user meets them.
SELECT set_group_dirty_limit('grp_a', -5);
\echo :LAST_ERROR_SQLSTATE
SELECT rename_resource_group('grp_a', 'grp_c');
\echo :LAST_ERROR_SQLSTATE

-- Nothing has changed: no rows.
(TABLE before EXCEPT ALL TABLE definitions)
UNION ALL
(TABLE definitions EXCEPT ALL TABLE before);

--
-- All slots taken (dirty_throttle.max_groups is 8 here).
--
SHOW dirty_throttle.max_groups;
SELECT count(*) FROM dirty_throttle_groups;
SELECT i, try(format('SELECT set_group_dirty_limit(%L, %s)', 'more_' || i, i * 1000))
FROM generate_series(1, 6) AS i;
SELECT try($$SELECT set_group_dirty_limit('one_too_many', 1)$$);
SELECT try($$SELECT set_group_wal_limit('one_too_many', 1)$$);
SELECT count(*) FROM dirty_throttle_groups;
-- what exists can still be altered and renamed
SELECT try($$SELECT set_group_dirty_limit('more_1', 111)$$);
SELECT try($$SELECT rename_resource_group('more_1', 'more_one')$$);
SELECT try($$SELECT set_group_wal_limit('more_one', 222)$$);
-- and a slot that is freed is free
SELECT try($$SELECT drop_resource_group('more_2')$$);
SELECT try($$SELECT set_group_dirty_limit('just_right', 1000)$$);
SELECT try($$SELECT alter_resource_group('one_too_many')$$);
TABLE definitions;

SELECT drop_resource_group(group_name) FROM dirty_throttle_groups;
SELECT count(*) FROM dirty_throttle_groups;
-- a number is what it is, however it would be printed
SET extra_float_digits = -14;
SELECT set_group_dirty_limit('digits', 12345.5), set_group_wal_limit('digits', 67891::float4);
RESET extra_float_digits;
SELECT dirty_limit, wal_limit FROM dirty_throttle_groups WHERE group_name = 'digits';
SELECT drop_resource_group('digits');

DROP VIEW definitions;
DROP TABLE before;
DROP FUNCTION try;
DROP EXTENSION dirty_throttle;
