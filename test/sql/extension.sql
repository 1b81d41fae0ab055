--
-- The extension as an object: what it creates, how it is documented, in
-- which schemas it works, what it leaves behind.
--
-- expect-in-log: WARNING:  [0-9]+ resource groups? stays? in force without the extension
--
\pset format unaligned

-- Nothing is there before CREATE EXTENSION but the parameters.
SELECT comment FROM pg_available_extensions WHERE name = 'dirty_throttle';
\set VERBOSITY terse
SELECT dirty_throttle_groups();
\set VERBOSITY default

CREATE EXTENSION dirty_throttle;

-- Its objects.  Types are left out: which of them are listed as members of an
-- extension differs between releases.
CREATE VIEW members AS
SELECT d.classid, d.objid,
       pg_catalog.pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_depend d
     JOIN pg_extension e ON d.refobjid = e.oid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND
      e.extname = 'dirty_throttle' AND d.classid <> 'pg_type'::regclass;
SELECT object FROM members ORDER BY object COLLATE "C";

-- Every one of them has a comment, and so has every column that users see: no
-- rows.
SELECT object FROM members
WHERE coalesce(obj_description(objid, classid::regclass::name), '') = '';
SELECT object, attname
FROM members JOIN pg_attribute ON attrelid = objid
     JOIN pg_class c ON c.oid = objid
WHERE classid = 'pg_class'::regclass AND relkind = 'v' AND attnum > 0 AND
      coalesce(col_description(objid, attnum), '') = '';

-- None may be inlined, cached or run in a parallel worker by mistake, and
-- none has more rights than its caller.  None is strict: NULL is an error.
SELECT proname, provolatile, proparallel, proisstrict, prosecdef,
       has_function_privilege('pg_monitor', oid, 'EXECUTE') AS for_everybody
FROM members JOIN pg_proc ON oid = objid
WHERE classid = 'pg_proc'::regclass
ORDER BY proname COLLATE "C";

-- The columns of the views are a contract.
SELECT attrelid::regclass AS view, attname, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid IN (SELECT objid FROM members
                   WHERE classid = 'pg_class'::regclass) AND attnum > 0
ORDER BY attrelid::regclass::text COLLATE "C", attnum;

--
-- The setting that defines all groups: it recreates what there is.
--
SET client_min_messages = warning;	-- no notices of set_group_dirty_limit()
SELECT set_group_dirty_limit('grp_a', 12288);
SELECT set_group_dirty_limit('it''s "quoted" \ and %s', 0.001);
SELECT set_group_dirty_limit('Größe 🐘', 16777216);
SELECT set_group_dirty_limit('select', 1234.567);
SELECT set_group_dirty_limit('two words', 0);
SELECT set_group_wal_limit('grp_a', 1000.5);
SELECT set_group_wal_limit('it''s "quoted" \ and %s', 16777216);
SELECT set_group_burst('it''s "quoted" \ and %s', 3600000);
SELECT set_group_mode('it''s "quoted" \ and %s', 'observe');
SELECT set_group_burst('select', 0.001);
SELECT set_group_burst('grp_a', 5);
SELECT set_group_burst('grp_a', 20);	-- the default again
SELECT set_group_mode('grp_a', 'observe');
SELECT set_group_mode('grp_a', 'enforce');
SELECT set_group_floor('select', 12.5);
SELECT set_group_floor('grp_a', 1);
SELECT set_group_floor('grp_a', 64);	-- the default again
SELECT set_group_pressure('select', 'dirty_buffers', '12.5%');
SELECT set_group_pressure('it''s "quoted" \ and %s', 'replica_lag', '2s', 1);
SELECT set_group_pressure('it''s "quoted" \ and %s', 'checkpoint');
SELECT set_group_pressure('grp_a', 'slot_lag', '5GB');
SELECT set_group_pressure('grp_a', 'checkpoint');
SELECT reset_group_pressure('grp_a', 'checkpoint');
CREATE ROLE "regress_dt ""it's"" \ one";
SELECT grant_group_use('it''s "quoted" \ and %s', 'regress_dt "it''s" \ one');
SELECT grant_group_use('grp_a', 'regress_dt "it''s" \ one');
CREATE VIEW all_groups AS
SELECT group_name, dirty_limit, wal_limit, burst, mode, floor,
       signal, threshold, ignored_standbys, granted_to
FROM dirty_throttle_groups
     LEFT JOIN dirty_throttle_pressure USING (group_name);
CREATE VIEW definitions AS
SELECT setting FROM pg_db_role_setting, unnest(setconfig) AS setting
WHERE setrole = (SELECT oid FROM pg_roles WHERE rolname = 'dirty_throttle');
CREATE TABLE saved_definitions AS TABLE definitions;
CREATE TABLE saved_groups AS TABLE all_groups;
SELECT regexp_replace(setting, ' id=\d+', '', 'g') FROM saved_definitions;

SELECT count(drop_resource_group(group_name)) FROM dirty_throttle_groups;
SELECT (SELECT count(*) FROM dirty_throttle_groups) AS groups,
       (SELECT count(*) FROM definitions) AS definitions;
DO $$ BEGIN
	EXECUTE format('ALTER ROLE dirty_throttle SET dirty_throttle.groups = %L',
				   (SELECT substr(setting, 23) FROM saved_definitions));
END $$;
RESET client_min_messages;

-- The same as before: no rows.
(TABLE saved_definitions EXCEPT ALL TABLE definitions)
UNION ALL
(TABLE definitions EXCEPT ALL TABLE saved_definitions);
(TABLE saved_groups EXCEPT ALL TABLE all_groups)
UNION ALL
(TABLE all_groups EXCEPT ALL TABLE saved_groups);
DROP VIEW all_groups, definitions;

--
-- Groups belong to the server, not to the extension: they outlive it, and so
-- does a session's membership.
--
SET dirty_throttle."group" = 'grp_a';
DROP EXTENSION dirty_throttle;
SELECT proname FROM pg_proc
WHERE proname ~ 'dirty_throttle|resource_group|dirty_limit|wal_limit|group_(burst|mode|use|limits|floor|weight|allowance|pressure)|(suspend|resume|session|join)_group|joined_group';
SELECT relname FROM pg_class WHERE relname ~ '^dirty_throttle';
SHOW dirty_throttle."group";
CREATE TABLE copied (line text);
COPY copied FROM stdin;
one
two
\.

-- In another schema, which is not in the search_path.
CREATE SCHEMA "Throttle it";
CREATE EXTENSION dirty_throttle SCHEMA "Throttle it";
SELECT "Throttle it".create_resource_group('grp_b', 10);
SELECT group_name, dirty_limit, members
FROM "Throttle it".dirty_throttle_groups
ORDER BY group_name COLLATE "C";
SELECT group_name, pid = pg_backend_pid() AS me
FROM "Throttle it".dirty_throttle_sessions;
-- All of it works there without a search_path, and no view refers to public.
SET search_path = '';
SELECT "Throttle it".create_resource_group('grp_c');
SELECT "Throttle it".drop_resource_group('grp_c');
DO $$
DECLARE
	view regclass;
BEGIN
	FOR view IN SELECT oid FROM pg_class
				WHERE relnamespace = '"Throttle it"'::regnamespace AND relkind = 'v'
	LOOP
		EXECUTE format('SELECT count(*) FROM %s', view);
		ASSERT pg_get_viewdef(view) ~ '"Throttle it"';
		ASSERT pg_get_viewdef(view) !~ 'public';
	END LOOP;
	ASSERT FOUND;
END $$;
RESET search_path;
COPY copied FROM stdin;
three
four
\.
COPY copied FROM stdin WHERE line <> 'six' OR line IS NULL;
five
six
\N
\.

-- It can be moved.
CREATE SCHEMA moved;
ALTER EXTENSION dirty_throttle SET SCHEMA moved;
SELECT count(*) FROM moved.dirty_throttle_groups;
COPY copied FROM stdin WHERE length(line) < 6;
seven
eighty
\.
SELECT line FROM copied ORDER BY line COLLATE "C";
RESET dirty_throttle."group";

-- Clean up.  The groups are there for every database and every extension.
SET search_path = moved;
SELECT drop_resource_group(group_name) FROM dirty_throttle_groups;
SELECT * FROM dirty_throttle_groups;
RESET search_path;
DROP EXTENSION dirty_throttle;
DROP SCHEMA moved;
DROP SCHEMA "Throttle it";
DROP TABLE saved_definitions, saved_groups, copied;
DROP ROLE "regress_dt ""it's"" \ one";
DROP VIEW members;
