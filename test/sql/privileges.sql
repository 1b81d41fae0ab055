--
-- What an unprivileged user can and cannot do: read, not change, and not
-- leave the group that the DBA has put him into.
--
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION dirty_throttle;
SELECT current_user AS superuser, current_database() AS database \gset
CREATE ROLE regress_dt_user LOGIN;
CREATE ROLE regress_dt_other LOGIN;
SELECT create_resource_group('grp_a', 1000);
SELECT create_resource_group('grp_b');

CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN concat_ws(' ', SQLSTATE, SQLERRM);
END $$;

-- A session that has gone leaves its group a moment later.
CREATE FUNCTION wait_until_alone() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	me int := (SELECT count(*) FROM dirty_throttle_sessions
			   WHERE pid = pg_backend_pid());
BEGIN
	WHILE (SELECT sum(members) FROM dirty_throttle_groups) > me LOOP
		ASSERT clock_timestamp() < now() + interval '60 s';
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;

CREATE TABLE changes (command text);
INSERT INTO changes VALUES
	('SELECT set_group_dirty_limit(''grp_a'', 2000)'),
	('SELECT set_group_dirty_limit(''new'', 1)'),
	('SELECT create_resource_group(''new'')'),
	('SELECT create_resource_group(''new'', 5)'),
	('SELECT reset_group_dirty_limit(''grp_a'')'),
	('SELECT rename_resource_group(''grp_b'', ''grp_c'')'),
	('SELECT drop_resource_group(''grp_b'')'),
	('SELECT drop_resource_group(''nobody'', true)'),
	('SELECT drop_resource_group(''grp_b'', false, true)'),
	('SELECT dirty_throttle_reset()'),
	('SELECT dirty_throttle_reset(''grp_a'')'),
	('SELECT set_group_wal_limit(''grp_a'', 2000)'),
	('SELECT set_group_wal_limit(''new'', 1)'),
	('SELECT reset_group_wal_limit(''grp_a'')'),
	('SELECT set_group_burst(''grp_a'', 0)'),
	('SELECT set_group_mode(''grp_a'', ''observe'')'),
	('SELECT set_group_floor(''grp_a'', 1)'),
	('SELECT set_group_weight(''grp_a'', 1)'),
	('SELECT set_group_allowance(''grp_a'', 1)'),
	('SELECT report_pressure(''x'', 1)'),
	('SELECT set_group_pressure(''grp_a'', ''checkpoint'')'),
	('SELECT reset_group_pressure(''grp_a'', ''checkpoint'')'),
	('SELECT protect_from(''grp_a'')'),
	('SELECT suspend_group(''grp_a'')'),
	('SELECT resume_group(''grp_a'')'),
	('SELECT set_session_group(pg_backend_pid(), NULL)'),
	('SELECT set_session_group(pg_backend_pid(), ''grp_b'')'),
	('SELECT grant_group_use(''grp_a'', current_user)'),
	('SELECT revoke_group_use(''grp_a'', current_user)');
GRANT SELECT ON changes TO PUBLIC;
CREATE TABLE joins (command text);
INSERT INTO joins VALUES
	('SET dirty_throttle."group" = ''grp_b'''),
	('SET dirty_throttle."group" = '''''),
	('SET dirty_throttle."group" = ''nobody'''),
	('SET LOCAL dirty_throttle."group" = ''grp_b'''),
	('SET SESSION dirty_throttle."group" TO DEFAULT'),
	('RESET dirty_throttle."group"'),
	('SELECT set_config(''dirty_throttle.group'', '''', false)'),
	('SELECT set_config(''dirty_throttle.group'', ''grp_b'', true)'),
	('UPDATE pg_settings SET setting = '''' WHERE name = ''dirty_throttle.group'''),
	('ALTER ROLE CURRENT_USER SET dirty_throttle."group" = ''grp_b'''),
	('ALTER ROLE CURRENT_USER SET dirty_throttle."group" = '''''),
	('ALTER ROLE CURRENT_USER RESET dirty_throttle."group"'),
	('CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql SET dirty_throttle."group" = '''' AS '''''),
	('SET dirty_throttle.enabled = off'),
	('SET dirty_throttle.max_blocking_time = 1'),
	('SELECT join_group(''grp_b'')'),
	('SELECT join_group(''grp_a'')'),
	('SELECT leave_joined_group()');
GRANT SELECT ON joins TO PUBLIC;

-- None of the functions that change anything is for everybody.
SET ROLE regress_dt_user;
SELECT command, try(command) FROM changes;
SELECT try('SELECT set_group_dirty_limit(NULL, NULL)');	-- not even asked
SELECT group_name, dirty_limit, wal_limit, burst, mode, suspended_since
FROM dirty_throttle_groups ORDER BY group_name COLLATE "C";

-- Reading is.
SELECT count(*) FROM dirty_throttle_sessions;
TABLE dirty_throttle_blocking;
SELECT signal, group_name FROM dirty_throttle_pressure WHERE signal <> 'kafka_lag';
SHOW dirty_throttle."group";

-- Joining is not, nor is leaving.  RESET where nothing is set does nothing; up
-- to 18 it may.
SELECT command, try(command) FROM joins WHERE command !~ 'ROLE.*RESET';
RESET ROLE;

-- Whom the DBA has put into a group stays there.
ALTER ROLE regress_dt_user SET dirty_throttle."group" = 'grp_a';
\c - regress_dt_user
SHOW dirty_throttle."group";
SELECT command, try(command) FROM joins WHERE try(command) NOT LIKE '42501%';
ALTER SYSTEM SET dirty_throttle."group" = '';
ALTER SYSTEM SET dirty_throttle.enabled = off;
ALTER ROLE CURRENT_USER RESET ALL;
RESET ALL;
DISCARD ALL;
RESET SESSION AUTHORIZATION;
SHOW dirty_throttle."group";
SELECT usename, group_name, pid = pg_backend_pid()
FROM dirty_throttle_sessions;
SELECT members FROM dirty_throttle_groups WHERE group_name = 'grp_a';
\c - regress_dt_user
SHOW dirty_throttle."group";
\c - :superuser
SELECT wait_until_alone();

-- With the privilege he chooses for himself, as in the README.
GRANT SET ON PARAMETER dirty_throttle."group" TO regress_dt_user;
\c - regress_dt_user
SHOW dirty_throttle."group";
SET dirty_throttle."group" = 'grp_b';
SHOW dirty_throttle."group";
SET dirty_throttle."group" = 'nobody';
SET dirty_throttle."group" = '';
SHOW dirty_throttle."group";
RESET dirty_throttle."group";
SHOW dirty_throttle."group";
ALTER ROLE CURRENT_USER SET dirty_throttle."group" = 'grp_b';
\c - regress_dt_user
SHOW dirty_throttle."group";
ALTER ROLE CURRENT_USER RESET dirty_throttle."group";
SET dirty_throttle.enabled = off;
ALTER SYSTEM SET dirty_throttle."group" = 'grp_b';
\c - :superuser
REVOKE SET ON PARAMETER dirty_throttle."group" FROM regress_dt_user;
SELECT wait_until_alone();

-- Groups can be opened to him, as in the README.
SELECT grant_group_use('grp_b', 'regress_dt_user');
SET ROLE regress_dt_user;
SELECT group_name, granted_to FROM dirty_throttle_groups
ORDER BY group_name COLLATE "C";
RESET ROLE;
\c - regress_dt_user
SHOW dirty_throttle."group";
SELECT join_group('grp_b');
SHOW dirty_throttle."group";
SELECT try('SELECT join_group(''grp_a'')');
SELECT command, try(command) FROM joins WHERE command !~ 'join|ROLE.*RESET' AND
	try(command) NOT LIKE '42501%';
SELECT leave_joined_group();
SHOW dirty_throttle."group";
SELECT try('SELECT leave_joined_group()');
\c - :superuser
SELECT revoke_group_use('grp_b', 'regress_dt_user');
SELECT wait_until_alone();

-- EXECUTE can be granted, function by function.
GRANT EXECUTE ON FUNCTION set_group_dirty_limit(text, float8),
	set_group_dirty_limit(text, text) TO regress_dt_user;
\c - regress_dt_user
SELECT set_group_dirty_limit('grp_b', '4 MB');
SELECT set_group_dirty_limit('grp_b', 4321);
SELECT command, left(try(command), 5) FROM changes
WHERE command !~ 'set_group_dirty';
SELECT group_name, dirty_limit FROM dirty_throttle_groups
ORDER BY group_name COLLATE "C";
\c - :superuser
REVOKE EXECUTE ON FUNCTION set_group_dirty_limit(text, float8),
	set_group_dirty_limit(text, text) FROM regress_dt_user;

-- Sessions of others are shown to members of pg_read_all_stats, and to those
-- who may act as the other.
SET dirty_throttle."group" = 'grp_a';
SELECT wait_until_alone();
SELECT usename = current_user, group_name, application_name IS NOT NULL
FROM dirty_throttle_sessions;
SET ROLE regress_dt_user;
SELECT * FROM dirty_throttle_sessions;
SELECT count(*) FROM dirty_throttle_sessions();
SELECT group_name, members FROM dirty_throttle_groups
WHERE members > 0;
RESET ROLE;
GRANT pg_read_all_stats TO regress_dt_user;
SET ROLE regress_dt_user;
SELECT usename = :'superuser', group_name, application_name IS NOT NULL
FROM dirty_throttle_sessions;
RESET ROLE;
REVOKE pg_read_all_stats FROM regress_dt_user;
GRANT pg_monitor TO regress_dt_user;
SET ROLE regress_dt_user;
SELECT count(*) FROM dirty_throttle_sessions;
RESET ROLE;
REVOKE pg_monitor FROM regress_dt_user;
-- the role that counts is the one who logged in, as in pg_stat_activity
SET SESSION AUTHORIZATION regress_dt_user;
SELECT count(*) FROM dirty_throttle_sessions;
SHOW dirty_throttle."group";
RESET SESSION AUTHORIZATION;
RESET dirty_throttle."group";

--
-- Objects of the same names in a schema that is searched first
--
CREATE SCHEMA regress_dt_evil AUTHORIZATION regress_dt_other;
GRANT USAGE ON SCHEMA regress_dt_evil TO PUBLIC;
SET ROLE regress_dt_other;
SET search_path = regress_dt_evil;
CREATE FUNCTION evil() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'evil is done as %', current_user;
END $$;
CREATE FUNCTION dirty_throttle_groups() RETURNS SETOF int LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT 1';
CREATE FUNCTION dirty_throttle_sessions() RETURNS SETOF int LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT 1';
CREATE FUNCTION pg_get_userbyid(oid) RETURNS name LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT ''evil''::name';
CREATE FUNCTION evil_eq(oid, oid) RETURNS boolean LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT true';
CREATE FUNCTION evil_eq(int, int) RETURNS boolean LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT true';
CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil_eq);
CREATE OPERATOR = (LEFTARG = int, RIGHTARG = int, FUNCTION = evil_eq);
CREATE TABLE pg_database (oid oid, datname name);
CREATE TABLE pg_stat_activity (pid int, application_name text);
CREATE FUNCTION set_group_dirty_limit(text, float8) RETURNS void LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil()';
CREATE FUNCTION dirty_throttle_pressure() RETURNS SETOF int LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT 1';
CREATE FUNCTION array_agg(name) RETURNS name[] LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT NULL::name[]';
CREATE FUNCTION pg_blocking_pids(int) RETURNS int[] LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT ARRAY[1]';
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT ''now''::timestamptz';
CREATE FUNCTION evil_eq(name, name) RETURNS boolean LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT true';
CREATE OPERATOR = (LEFTARG = name, RIGHTARG = name, FUNCTION = evil_eq);
CREATE FUNCTION evil_minus(timestamptz, timestamptz) RETURNS interval LANGUAGE sql
	AS 'SELECT regress_dt_evil.evil(); SELECT ''1 s''::interval';
CREATE OPERATOR - (LEFTARG = timestamptz, RIGHTARG = timestamptz,
	FUNCTION = evil_minus);
CREATE TABLE pg_locks (pid int);
CREATE TABLE pg_roles (oid oid, rolname name);
RESET ROLE;
SET search_path = regress_dt_evil, pg_catalog, public;
SELECT public.try('SELECT set_group_dirty_limit(''grp_a'', 1)');	-- it is found
SET dirty_throttle."group" = 'grp_a';
SELECT public.grant_group_use('grp_b', 'regress_dt_other');
SELECT group_name, members, granted_to FROM public.dirty_throttle_groups
ORDER BY group_name COLLATE "C";
SELECT usename OPERATOR(pg_catalog.=) current_user,
       datname OPERATOR(pg_catalog.=) current_database(), group_name
FROM public.dirty_throttle_sessions;
SELECT signal, group_name FROM public.dirty_throttle_pressure LIMIT 1;
TABLE public.dirty_throttle_blocking;
CREATE TABLE public.copied (a int);
COPY public.copied FROM stdin;
1
2
\.
SELECT count(*) FROM public.copied;
DROP TABLE public.copied;
-- Created with that search_path, the extension is the same.
DROP EXTENSION dirty_throttle;
CREATE EXTENSION dirty_throttle SCHEMA public;
SELECT group_name FROM public.dirty_throttle_groups
ORDER BY group_name COLLATE "C";
SELECT usename OPERATOR(pg_catalog.=) current_user, group_name
FROM public.dirty_throttle_sessions;
SELECT group_name, wal_limit, granted_to FROM public.dirty_throttle_groups
ORDER BY group_name COLLATE "C";
TABLE public.dirty_throttle_blocking;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA regress_dt_evil CASCADE;
RESET client_min_messages;
RESET dirty_throttle."group";

-- A member's COPY is what he has typed: it calls no function of whoever may
-- create some beside ours.
CREATE FUNCTION dirty_throttle_pace(a int DEFAULT 1) RETURNS boolean
LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil''; END';
CREATE FUNCTION dirty_throttle_pace() RETURNS boolean
LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil''; END';
ALTER ROLE regress_dt_user SET dirty_throttle."group" = 'grp_a';
\c - regress_dt_user
CREATE TEMP TABLE copied (a int);
COPY copied FROM stdin;
1
2
\.
SELECT count(*) FROM copied;
SHOW dirty_throttle."group";
\c - :superuser
DROP FUNCTION dirty_throttle_pace(int), dirty_throttle_pace();

-- Clean up
SELECT wait_until_alone();
DROP TABLE changes, joins;
DROP FUNCTION try, wait_until_alone;
DROP ROLE regress_dt_user, regress_dt_other;
SELECT drop_resource_group(group_name) FROM dirty_throttle_groups;
DROP EXTENSION dirty_throttle;
