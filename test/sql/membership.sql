--
-- A session in a group: joining and leaving by every kind of SET, and what
-- renaming and dropping the group does to it.
--
-- Members that are forced out are warned:
-- expect-in-log: WARNING:  resource group ".*" does not exist
-- expect-in-log: WARNING:  SET LOCAL can only be used in transaction blocks
--
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION dirty_throttle;
SELECT set_group_dirty_limit('grp_a', 1000);
SELECT set_group_dirty_limit('grp_b', 2000);

-- What this session sees of itself, and what the server sees of it.
CREATE VIEW me AS
SELECT coalesce(nullif(current_setting('dirty_throttle.group'), ''), 'no group')
           AS shown,
       coalesce((SELECT group_name::text FROM dirty_throttle_sessions
                 WHERE pid = pg_backend_pid()), 'no group') AS member_of,
       coalesce((SELECT string_agg(format('%s of %s, %s each', members,
                                          group_name,
                                          dirty_limit / members), '; ')
                 FROM dirty_throttle_groups WHERE members > 0),
                'nobody') AS counted;

TABLE me;
SELECT group_name, members
FROM dirty_throttle_groups ORDER BY group_name COLLATE "C";

--
-- SET, RESET, '', DEFAULT, set_config(), DISCARD ALL
--
SET dirty_throttle."group" = 'grp_a';
TABLE me;
SELECT pid = pg_backend_pid(), usename = current_user,
       datname = current_database(),
       application_name = current_setting('application_name'), group_name,
       blocks_dirtied >= 0, pauses, paused_time, paused_since
FROM dirty_throttle_sessions;
SET dirty_throttle."group" = grp_a;		-- once more
TABLE me;
SET dirty_throttle."group" TO grp_b;
TABLE me;
SET dirty_throttle."group" = '';
TABLE me;
SELECT set_config('dirty_throttle.group', 'grp_b', false);
TABLE me;
SET dirty_throttle."group" TO DEFAULT;
TABLE me;
SELECT set_config('dirty_throttle.group', 'grp_a', true);	-- for this statement
TABLE me;
SET SESSION dirty_throttle."group" = 'grp_a';
RESET dirty_throttle."group";
TABLE me;
SET dirty_throttle."group" = 'grp_a';
DISCARD ALL;
TABLE me;
SET dirty_throttle."group" = 'grp_a';
RESET ALL;
TABLE me;

--
-- Unknown groups
--
SET dirty_throttle."group" = 'nobody';
\echo :LAST_ERROR_SQLSTATE
SET dirty_throttle."group" = 'GRP_A';
SET dirty_throttle."group" = 'grp_a ';
SET dirty_throttle."group" = grp_a, grp_b;
TABLE me;
SET dirty_throttle."group" = 'grp_a';
SET dirty_throttle."group" = 'nobody';
SET LOCAL dirty_throttle."group" = 'nobody';
SELECT set_config('dirty_throttle.group', 'nobody', false);
TABLE me;

--
-- Transactions
--
BEGIN;
SET LOCAL dirty_throttle."group" = 'grp_b';
TABLE me;
COMMIT;
TABLE me;
BEGIN;
SET LOCAL dirty_throttle."group" = 'grp_b';
ROLLBACK;
TABLE me;
BEGIN;
SET dirty_throttle."group" = 'grp_b';
TABLE me;
ROLLBACK;
TABLE me;
BEGIN;
RESET dirty_throttle."group";
TABLE me;
ROLLBACK;
TABLE me;
BEGIN;
SET LOCAL dirty_throttle."group" = '';
TABLE me;
COMMIT;
TABLE me;
-- a failed transaction
BEGIN;
SET dirty_throttle."group" = 'grp_b';
SELECT 1/0;
COMMIT;
TABLE me;
BEGIN;
SET dirty_throttle."group" = 'grp_b';
COMMIT;
TABLE me;

-- Savepoints
BEGIN;
SAVEPOINT s1;
SET dirty_throttle."group" = 'grp_a';
SAVEPOINT s2;
SET LOCAL dirty_throttle."group" = '';
TABLE me;
ROLLBACK TO s2;
TABLE me;
ROLLBACK TO s1;
TABLE me;
SET LOCAL dirty_throttle."group" = 'grp_a';
RELEASE s1;
TABLE me;
SAVEPOINT s3;
SET LOCAL dirty_throttle."group" = 'nobody';
ROLLBACK TO s3;
TABLE me;
COMMIT;
TABLE me;

-- Procedures that commit, blocks that catch errors
DO $$
BEGIN
	SET LOCAL dirty_throttle."group" = 'grp_a';
	RAISE NOTICE '%', (SELECT me FROM me);
	COMMIT;
	RAISE NOTICE '%', (SELECT me FROM me);
	BEGIN
		SET LOCAL dirty_throttle."group" = 'grp_a';
		PERFORM 1/0;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE '%', (SELECT me FROM me);
	END;
END $$;
TABLE me;

--
-- Functions with a SET clause
--
CREATE FUNCTION inside() RETURNS text LANGUAGE sql
SET dirty_throttle."group" = 'grp_a' AS 'SELECT me::text FROM me';
CREATE FUNCTION inside_and_back() RETURNS text LANGUAGE plpgsql
SET dirty_throttle."group" = 'grp_b' AS $$
BEGIN
	RETURN concat_ws(' > ', (SELECT me FROM me), inside(), (SELECT me FROM me));
END $$;
CREATE FUNCTION fails() RETURNS text LANGUAGE plpgsql
SET dirty_throttle."group" = 'grp_a' AS $$
BEGIN
	RAISE EXCEPTION 'in %', (SELECT me FROM me);
END $$;
CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN fails();
EXCEPTION WHEN raise_exception THEN
	RETURN concat_ws(' > ', SQLERRM, (SELECT me FROM me));
END $$;
SELECT inside();
TABLE me;
SELECT inside_and_back();
TABLE me;
SELECT fails();
TABLE me;
SELECT catches();
TABLE me;
RESET dirty_throttle."group";
SELECT inside();
SELECT fails();
SELECT catches();
TABLE me;

--
-- Renamed while in use
--
SET dirty_throttle."group" = 'grp_a';
SELECT rename_resource_group('grp_a', 'grp_new');
TABLE me;
SHOW dirty_throttle."group";
SELECT setting FROM pg_settings WHERE name = 'dirty_throttle.group';
SET dirty_throttle."group" = 'grp_a';
TABLE me;
-- going back to the old name by a rollback is going back to the group
BEGIN;
SET LOCAL dirty_throttle."group" = 'grp_b';
TABLE me;
ROLLBACK;
TABLE me;
BEGIN;
SET LOCAL dirty_throttle."group" = 'grp_b';
SELECT rename_resource_group('grp_new', 'grp_newer');
COMMIT;
TABLE me;
SELECT rename_resource_group('grp_newer', 'grp_new');
-- even when another group has taken the old name
SELECT set_group_dirty_limit('grp_a', '5 kB');
BEGIN;
SET LOCAL dirty_throttle."group" = 'grp_a';
TABLE me;
COMMIT;
TABLE me;
SELECT inside();
TABLE me;
SELECT drop_resource_group('grp_a');
-- the function names a group that is no more
SELECT inside();
\echo :LAST_ERROR_SQLSTATE
TABLE me;

--
-- Dropped while in use
--
SELECT drop_resource_group('grp_new');
\echo :LAST_ERROR_SQLSTATE
SELECT drop_resource_group('grp_new', if_exists => true);
TABLE me;
SELECT drop_resource_group('grp_new', force => true);
SHOW dirty_throttle."group";
TABLE me;
SELECT * FROM dirty_throttle_sessions;
-- a statement that dirties works, and is told no more than once
CREATE TABLE t (a int);
INSERT INTO t SELECT generate_series(1, 1000);
-- recreated under the name that was last set: a member again
SELECT set_group_dirty_limit('grp_a', 3000);
TABLE me;
-- and dropped again: told again
SELECT drop_resource_group('grp_a', force => true);
TABLE me;
-- a rename brings it back as well
SELECT rename_resource_group('grp_b', 'grp_a');
TABLE me;
-- and a rollback finds a group that was renamed since the session joined it
SELECT rename_resource_group('grp_a', 'grp_b');
TABLE me;
BEGIN;
SET LOCAL dirty_throttle."group" = '';
TABLE me;
ROLLBACK;
TABLE me;

-- Dropped and created again in one transaction: the members stay
RESET dirty_throttle."group";
SELECT alter_resource_group('grp_a');
SET dirty_throttle."group" = 'grp_b';
BEGIN;
SELECT drop_resource_group('grp_b', force => true);
INSERT INTO t SELECT generate_series(1, 1000);
SELECT set_group_dirty_limit('grp_b', 1e6);
TABLE me;
COMMIT;
TABLE me;

RESET dirty_throttle."group";
TABLE me;
SELECT drop_resource_group(group_name) FROM dirty_throttle_groups;
DROP TABLE t;
DROP FUNCTION inside, inside_and_back, fails, catches;
DROP VIEW me;
DROP EXTENSION dirty_throttle;
