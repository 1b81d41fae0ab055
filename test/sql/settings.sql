--
-- dirty_throttle.group as a default of roles, databases, functions and the
-- server, where a missing group must not keep anybody from working; and the
-- other parameters.
--
-- A login with a missing group is warned:
-- expect-in-log: WARNING:  resource group ".*" does not exist
--
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION dirty_throttle;
SELECT current_user AS superuser, current_database() AS database \gset

CREATE VIEW me AS
SELECT coalesce(nullif(current_setting('dirty_throttle.group'), ''), 'no group')
           AS shown,
       coalesce((SELECT group_name::text FROM dirty_throttle_sessions
                 WHERE pid = pg_backend_pid()), 'no group') AS member_of;
GRANT SELECT ON me TO PUBLIC;

-- Run a command; SQLSTATE and message of its error, without what differs
-- between releases.
CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN concat_ws(' ', SQLSTATE, regexp_replace(SQLERRM, ' \(.*', ''));
END $$;

--
-- Every parameter: one more, or another range, is a change of the contract.
--
SELECT name, setting, unit, context, vartype, min_val, max_val, boot_val, source
FROM pg_settings WHERE name LIKE 'dirty\_throttle.%'
ORDER BY name COLLATE "C";
SELECT name FROM pg_settings
WHERE name LIKE 'dirty\_throttle.%' AND
      (length(short_desc) < 10 OR category <> 'Customized Options');

SET dirty_throttle.xyz = 1;
\echo :LAST_ERROR_SQLSTATE
SELECT set_config('dirty_throttle.groups', 'grp_a', false);

-- GROUP is a reserved word: every command says what to write, whatever comes before
-- it, and no other syntax error does.
SET LOCAL dirty_throttle.group = 'grp_a';
SHOW dirty_throttle.group;
RESET dirty_throttle.group;
ALTER ROLE CURRENT_USER SET dirty_throttle.group = 'grp_a';
ALTER DATABASE :"database" RESET Dirty_Throttle.Group;
ALTER SYSTEM SET dirty_throttle.group = 'grp_a';
SET /* é🐘 */ dirty_throttle.group TO DEFAULT;
CREATE FUNCTION f() RETURNS int LANGUAGE sql SET dirty_throttle.group = 'grp_a' AS 'SELECT 1';
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SHOW dirty_throttle.group; SELECT 1';
DO $$ BEGIN EXECUTE 'SET dirty_throttle.' || 'group = ''grp_a'''; END $$;
SELECT 'dirty_throttle.group' GROUP;
SET my.group = 'dirty_throttle.group';
-- as written without that, and not where a function catches the error
SET dirty_throttle."group" = '';
SELECT try('SET dirty_throttle.group = ''grp_a''');

-- Who may change them, and when
SELECT name, try(format('SET dirty_throttle.%I = %s', name, value)),
       try(format('ALTER ROLE CURRENT_USER SET dirty_throttle.%I = %s', name, value)),
       try(format('ALTER DATABASE %I SET dirty_throttle.%I = %s',
                  current_database(), name, value))
FROM (VALUES ('enabled', 'off'), ('max_groups', '1')) AS p(name, value);
-- The grace of a role is not its own choice, unless it is let.
CREATE ROLE regress_dt_node LOGIN;
ALTER ROLE regress_dt_node SET dirty_throttle.transaction_grace = '1h';
GRANT EXECUTE ON FUNCTION try TO regress_dt_node;
\c - regress_dt_node
SHOW dirty_throttle.transaction_grace;
SELECT try('SET dirty_throttle.transaction_grace = 0'),
       try('ALTER ROLE CURRENT_USER SET dirty_throttle.transaction_grace = 0');
\c - :superuser
GRANT SET ON PARAMETER dirty_throttle.transaction_grace TO regress_dt_node;
\c - regress_dt_node
SET dirty_throttle.transaction_grace = '1ms';
SHOW dirty_throttle.transaction_grace;
\c - :superuser
DROP OWNED BY regress_dt_node;
DROP ROLE regress_dt_node;

-- Values; ALTER SYSTEM checks them as the configuration file does.
ALTER SYSTEM SET dirty_throttle.enabled = 'perhaps';
ALTER SYSTEM SET dirty_throttle.transaction_grace = 'a while';
ALTER SYSTEM SET dirty_throttle.transaction_grace = '1 mile';
ALTER SYSTEM SET dirty_throttle.max_groups = 'many';
\set VERBOSITY sqlstate
ALTER SYSTEM SET dirty_throttle.transaction_grace = -1;
ALTER SYSTEM SET dirty_throttle.transaction_grace = '30d';
ALTER SYSTEM SET dirty_throttle.max_commit_pause = -1;
ALTER SYSTEM SET dirty_throttle.max_groups = 0;
ALTER SYSTEM SET dirty_throttle.max_groups = 10001;
\set VERBOSITY default
ALTER SYSTEM SET dirty_throttle.enabled = no;
ALTER SYSTEM SET dirty_throttle.transaction_grace = '2min';
ALTER SYSTEM SET dirty_throttle.max_commit_pause = '0.5 s';
SELECT pg_reload_conf();
\c -
SHOW dirty_throttle.enabled;
SHOW dirty_throttle.transaction_grace;
SHOW dirty_throttle.max_commit_pause;
ALTER SYSTEM RESET ALL;
SELECT pg_reload_conf();
\c -
SHOW dirty_throttle.enabled;
SHOW dirty_throttle.transaction_grace;
SHOW dirty_throttle.max_commit_pause;

--
-- A group that does not exist: a hint of it now, a warning at login.
--
CREATE ROLE regress_dt_batch LOGIN;
ALTER ROLE regress_dt_batch SET dirty_throttle."group" = 'grp_a';
ALTER ROLE regress_dt_batch IN DATABASE :"database" SET dirty_throttle."group" = 'grp_a';
ALTER DATABASE :"database" SET dirty_throttle."group" = 'grp_a';
CREATE FUNCTION inside() RETURNS text LANGUAGE sql
SET dirty_throttle."group" = 'grp_a' AS 'SELECT me::text FROM me';
SET check_function_bodies = off;	-- as pg_dump does
CREATE FUNCTION inside() RETURNS text LANGUAGE sql
SET dirty_throttle."group" = 'grp_a' AS 'SELECT me::text FROM me';
RESET check_function_bodies;
CREATE FUNCTION inside2() RETURNS text LANGUAGE sql AS 'SELECT me::text FROM me';
ALTER FUNCTION inside2() SET dirty_throttle."group" = 'grp_a';
ALTER DATABASE :"database" RESET dirty_throttle."group";
ALTER ROLE regress_dt_batch IN DATABASE :"database" RESET ALL;
SELECT inside();
SELECT inside2();
\c - regress_dt_batch
TABLE me;
CREATE TEMP TABLE t AS SELECT 1 AS a;	-- works, and does not warn again
SELECT a FROM t;
\c - :superuser

-- Created now, it is everybody's who names it.
SELECT set_group_dirty_limit('grp_a', 1000);
SELECT inside(), inside2();
\c - regress_dt_batch
TABLE me;
SELECT setting, reset_val, source FROM pg_settings
WHERE name = 'dirty_throttle.group';
\c - :superuser

--
-- Which default counts: server, database, role, role in database, session.  Who
-- operates the server is in no group by the first two.
--
CREATE ROLE regress_dt_plain LOGIN;
GRANT SET ON PARAMETER dirty_throttle."group" TO regress_dt_plain;
SELECT alter_resource_group(g) FROM unnest('{grp_b,grp_c,grp_d}'::text[]) AS g;
ALTER SYSTEM SET dirty_throttle."group" = 'grp_b';
SELECT pg_reload_conf();
\c - regress_dt_plain
TABLE me;
\c - :superuser
TABLE me;
-- it is for sessions, not for the server's own workers, which have read it by now
SELECT pg_sleep(0.2);
SELECT backend_type FROM dirty_throttle_sessions JOIN pg_stat_activity USING (pid)
WHERE backend_type <> 'client backend';
ALTER DATABASE :"database" SET dirty_throttle."group" = 'grp_c';
\c - regress_dt_plain
TABLE me;
\c - :superuser
TABLE me;
\c - regress_dt_batch
TABLE me;
\c - :superuser
ALTER ROLE regress_dt_batch IN DATABASE :"database" SET dirty_throttle."group" = 'grp_d';
\c - regress_dt_batch
TABLE me;
\c - regress_dt_plain
-- RESET goes back to the default, '' to no group
SET dirty_throttle."group" = '';
TABLE me;
RESET dirty_throttle."group";
TABLE me;
SET dirty_throttle."group" = 'grp_d';
TABLE me;
DISCARD ALL;
TABLE me;
\c - :superuser
-- '' is a default as well
ALTER ROLE regress_dt_batch IN DATABASE :"database" SET dirty_throttle."group" = '';
\c - regress_dt_batch
TABLE me;
\c - :superuser
-- from the command line of the client
\c -reuse-previous=on "options='-c dirty_throttle.group=grp_a'"
TABLE me;
\c -reuse-previous=on "options='-c dirty_throttle.group=nobody'"
TABLE me;
-- a name that cannot be a group's
\c -reuse-previous=on "options='-c dirty_throttle.group=a234567890123456789012345678901234567890123456789012345678901234'"
TABLE me;
\c -reuse-previous=on "options=''"
ALTER SYSTEM SET dirty_throttle."group" = 'a234567890123456789012345678901234567890123456789012345678901234';

-- A default that was renamed: the old name is in the catalog, and missing.
ALTER ROLE regress_dt_batch IN DATABASE :"database" RESET ALL;
\c - regress_dt_batch
TABLE me;
\c - :superuser
SELECT rename_resource_group('grp_a', 'grp_renamed');
\c - regress_dt_batch
TABLE me;
\c - :superuser
-- In a session that had joined before, RESET finds the group again.
ALTER DATABASE :"database" SET dirty_throttle."group" = 'grp_renamed';
GRANT EXECUTE ON FUNCTION rename_resource_group TO regress_dt_plain;
\c - regress_dt_plain
TABLE me;
SELECT rename_resource_group('grp_renamed', 'grp_a');
SET dirty_throttle."group" = 'grp_d';
TABLE me;
RESET dirty_throttle."group";
TABLE me;
\c - :superuser

-- The server's default is missing: no login fails.
ALTER DATABASE :"database" RESET dirty_throttle."group";
SELECT drop_resource_group('grp_b', force => true);
GRANT EXECUTE ON FUNCTION alter_resource_group TO regress_dt_plain;
TABLE me;
\c - regress_dt_plain
TABLE me;
SELECT alter_resource_group('grp_b');
TABLE me;
\c - :superuser
ALTER SYSTEM RESET ALL;
SELECT pg_reload_conf();
\c -
TABLE me;

-- A name that needs quotes, all the way through the catalog
SELECT alter_resource_group('it''s "the" \ group = é, 🐘');
ALTER ROLE regress_dt_batch SET dirty_throttle."group" = 'it''s "the" \ group = é, 🐘';
\c - regress_dt_batch
TABLE me;
\c - :superuser
CREATE OR REPLACE FUNCTION inside() RETURNS text LANGUAGE sql
SET dirty_throttle."group" = 'it''s "the" \ group = é, 🐘'
AS 'SELECT me::text FROM me';
SELECT inside();
-- as pg_dump prints it
SELECT pg_get_functiondef('inside()'::regprocedure) \gexec
SELECT inside();
-- from the session's own group, under its present name
SET dirty_throttle."group" = 'grp_c';
SELECT rename_resource_group('grp_c', 'grp_e');
ALTER FUNCTION inside() SET dirty_throttle."group" FROM CURRENT;
RESET dirty_throttle."group";
SELECT inside();

-- Clean up
DROP OWNED BY regress_dt_plain;
DROP ROLE regress_dt_batch, regress_dt_plain;
DROP FUNCTION inside, inside2, try;
DROP VIEW me;
SELECT drop_resource_group(group_name, false, true) FROM dirty_throttle_groups;
DROP EXTENSION dirty_throttle;
