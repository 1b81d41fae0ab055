/* dirty_throttle--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION dirty_throttle" to load this file. \quit

-- Definitions: for the DBA, who may GRANT EXECUTE.

CREATE FUNCTION set_group_dirty_limit(group_name text, kb_per_second float8)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_dirty_limit(text, float8) FROM PUBLIC;
COMMENT ON FUNCTION set_group_dirty_limit(text, float8) IS
'Set the dirty rate limit of a resource group, in KB/s (1 KB = 1000 bytes), 0 to 16777216, 0 = no limit; creates the group when it is new. Takes effect at once for all its sessions, is durable, and is not undone by ROLLBACK.';

CREATE FUNCTION create_resource_group(group_name text, dirty_rate_limit float8 DEFAULT 0)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION create_resource_group(text, float8) FROM PUBLIC;
COMMENT ON FUNCTION create_resource_group(text, float8) IS
'Create a resource group with a dirty rate limit in KB/s (1 KB = 1000 bytes), 0 = no limit. Names have 1 to 63 bytes. An error when the group exists.';

CREATE FUNCTION reset_group_dirty_limit(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION reset_group_dirty_limit(text) FROM PUBLIC;
COMMENT ON FUNCTION reset_group_dirty_limit(text) IS
'Remove the dirty rate limit of a resource group: the same as setting it to 0. An error when the group does not exist.';

CREATE FUNCTION rename_resource_group(old_name text, new_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION rename_resource_group(text, text) FROM PUBLIC;
COMMENT ON FUNCTION rename_resource_group(text, text) IS
'Rename a resource group. Its sessions stay members; settings of roles and databases that name it keep the old name and must be changed.';

CREATE FUNCTION drop_resource_group(group_name text, if_exists boolean DEFAULT false, force boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION drop_resource_group(text, boolean, boolean) FROM PUBLIC;
COMMENT ON FUNCTION drop_resource_group(text, boolean, boolean) IS
'Drop a resource group. if_exists: a notice instead of an error when it does not exist. force: release the sessions that are members of it, at once and wherever they sleep, instead of an error.';

CREATE FUNCTION dirty_throttle_reset(group_name text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION dirty_throttle_reset(text) FROM PUBLIC;
COMMENT ON FUNCTION dirty_throttle_reset(text) IS
'Set the counters blocks_dirtied, pauses and paused_time of a resource group, or of all groups, to 0.';

-- For everybody.

CREATE FUNCTION dirty_throttle_ddl()
RETURNS SETOF text
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION dirty_throttle_ddl() IS
'The SQL that recreates all resource groups, a statement a row: for pg_upgrade, other nodes and version control.';

CREATE FUNCTION dirty_throttle_groups(
    OUT group_name name,
    OUT dirty_rate_limit float8,
    OUT active_processes int4,
    OUT per_process_dirty_rate_limit float8,
    OUT paused_processes int4,
    OUT dirty_rate float8,
    OUT blocks_dirtied int8,
    OUT pauses int8,
    OUT paused_time float8,
    OUT debt_kb float8,
    OUT stats_reset timestamptz
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION dirty_throttle_groups() IS
'The rows of the view dirty_throttle_groups.';

CREATE VIEW dirty_throttle_groups AS
SELECT group_name, dirty_rate_limit, active_processes,
       per_process_dirty_rate_limit, paused_processes, dirty_rate,
       blocks_dirtied, pauses, paused_time, debt_kb, stats_reset
FROM dirty_throttle_groups();
GRANT SELECT ON dirty_throttle_groups TO PUBLIC;
COMMENT ON VIEW dirty_throttle_groups IS 'Resource groups: one row a group, its limit beside what it does.';
COMMENT ON COLUMN dirty_throttle_groups.group_name IS 'Name of the resource group';
COMMENT ON COLUMN dirty_throttle_groups.dirty_rate_limit IS 'Limit for all its sessions together, KB/s (1 KB = 1000 bytes); 0 = no limit';
COMMENT ON COLUMN dirty_throttle_groups.active_processes IS 'Sessions that are members now';
COMMENT ON COLUMN dirty_throttle_groups.per_process_dirty_rate_limit IS 'Limit divided by the number of members, KB/s; NULL when there is none. Each member''s share when all of them want more';
COMMENT ON COLUMN dirty_throttle_groups.paused_processes IS 'Members that are pausing now';
COMMENT ON COLUMN dirty_throttle_groups.dirty_rate IS 'Measured rate, averaged over the last 5 seconds, KB/s';
COMMENT ON COLUMN dirty_throttle_groups.blocks_dirtied IS 'Shared buffers dirtied by members since stats_reset, blocks';
COMMENT ON COLUMN dirty_throttle_groups.pauses IS 'Pauses of members since stats_reset';
COMMENT ON COLUMN dirty_throttle_groups.paused_time IS 'Time members have paused since stats_reset, all added up, ms; a pause counts when it ends';
COMMENT ON COLUMN dirty_throttle_groups.debt_kb IS 'Dirtied, but not paid for yet, KB';
COMMENT ON COLUMN dirty_throttle_groups.stats_reset IS 'When the counters were last set to 0';

CREATE FUNCTION dirty_throttle_sessions(
    OUT pid int4,
    OUT usesysid oid,
    OUT datid oid,
    OUT group_name name,
    OUT blocks_dirtied int8,
    OUT pauses int8,
    OUT paused_time float8,
    OUT debt_kb float8,
    OUT paused_since timestamptz
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION dirty_throttle_sessions() IS
'The rows of the view dirty_throttle_sessions.';

CREATE VIEW dirty_throttle_sessions AS
SELECT s.pid, r.rolname AS usename, d.datname,
       a.application_name, s.group_name, s.blocks_dirtied, s.pauses,
       s.paused_time, s.debt_kb, s.paused_since
FROM dirty_throttle_sessions() AS s
     LEFT JOIN pg_catalog.pg_roles AS r
          ON r.oid OPERATOR(pg_catalog.=) s.usesysid
     LEFT JOIN pg_catalog.pg_database AS d
          ON d.oid OPERATOR(pg_catalog.=) s.datid
     LEFT JOIN pg_catalog.pg_stat_activity AS a
          ON a.pid OPERATOR(pg_catalog.=) s.pid;
GRANT SELECT ON dirty_throttle_sessions TO PUBLIC;
COMMENT ON VIEW dirty_throttle_sessions IS 'Sessions that are members of a resource group: one row a session. Other users'' sessions are shown to members of pg_read_all_stats only.';
COMMENT ON COLUMN dirty_throttle_sessions.pid IS 'Process ID, as in pg_stat_activity';
COMMENT ON COLUMN dirty_throttle_sessions.usename IS 'Name of the user; NULL for a worker of the server';
COMMENT ON COLUMN dirty_throttle_sessions.datname IS 'Name of the database';
COMMENT ON COLUMN dirty_throttle_sessions.application_name IS 'Name of the application';
COMMENT ON COLUMN dirty_throttle_sessions.group_name IS 'Name of the resource group';
COMMENT ON COLUMN dirty_throttle_sessions.blocks_dirtied IS 'Shared buffers dirtied since the session joined the group, blocks';
COMMENT ON COLUMN dirty_throttle_sessions.pauses IS 'Pauses since the session joined the group';
COMMENT ON COLUMN dirty_throttle_sessions.paused_time IS 'Time paused since the session joined the group, the present pause included, ms';
COMMENT ON COLUMN dirty_throttle_sessions.debt_kb IS 'Dirtied, but not paid for yet, KB';
COMMENT ON COLUMN dirty_throttle_sessions.paused_since IS 'Since when it is pausing; NULL when it is running';
