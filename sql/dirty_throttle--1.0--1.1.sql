/* dirty_throttle--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION dirty_throttle UPDATE TO '1.1'" to load this file. \quit

-- Definitions: for the DBA, who may GRANT EXECUTE.

CREATE FUNCTION set_group_wal_limit(group_name text, kb_per_second float8)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_wal_limit(text, float8) FROM PUBLIC;
COMMENT ON FUNCTION set_group_wal_limit(text, float8) IS
'Set the WAL rate limit of a resource group, in KB/s (1 KB = 1000 bytes), 0 to 16777216, 0 = no limit; creates the group when it is new. It stands beside the dirty rate limit: a session pauses until it has paid for both. Takes effect at once for all its sessions, is durable, and is not undone by ROLLBACK.';

CREATE FUNCTION reset_group_wal_limit(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION reset_group_wal_limit(text) FROM PUBLIC;
COMMENT ON FUNCTION reset_group_wal_limit(text) IS
'Remove the WAL rate limit of a resource group: the same as setting it to 0. An error when the group does not exist.';

CREATE FUNCTION set_group_burst(group_name text, ms float8)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_burst(text, float8) FROM PUBLIC;
COMMENT ON FUNCTION set_group_burst(text, float8) IS
'Set how much unused capacity a resource group may save up, in milliseconds of its rate, 0 to 3600000 (an hour); 20 is the default. What is saved is used at full speed, before anybody pauses. An error when the group does not exist. Durable, and not undone by ROLLBACK.';

CREATE FUNCTION set_group_mode(group_name text, mode text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_mode(text, text) FROM PUBLIC;
COMMENT ON FUNCTION set_group_mode(text, text) IS
'Set the mode of a resource group: ''enforce'' (the default), or ''observe'': its limits make nobody pause, but the views count how long its sessions would have paused. An error when the group does not exist. Durable, and not undone by ROLLBACK.';

CREATE FUNCTION pause_group(group_name text, hard boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION pause_group(text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION pause_group(text, boolean) IS
'Stop the sessions of a resource group until resume_group(): each after its transaction, when it holds no lock; hard: wherever it can pause, with the locks that it holds, whoever waits for these. They can be cancelled. Not durable: a server that starts has no paused group.';

CREATE FUNCTION resume_group(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION resume_group(text) FROM PUBLIC;
COMMENT ON FUNCTION resume_group(text) IS
'Let the sessions of a resource group that was stopped by pause_group() go on. A notice when it is not paused.';

CREATE FUNCTION set_session_group(pid int4, group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_session_group(int4, text) FROM PUBLIC;
COMMENT ON FUNCTION set_session_group(int4, text) IS
'Move the session with this process ID into a resource group, also in the middle of a query or a command, and when it pauses; NULL or '''' releases it from its group. What it owes stays with its old group. Holds until its dirty_throttle."group" is set or reset, or it is moved again.';

CREATE FUNCTION grant_group_use(group_name text, role_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION grant_group_use(text, text) FROM PUBLIC;
COMMENT ON FUNCTION grant_group_use(text, text) IS
'Allow a role, and the roles that have its privileges, to put their own sessions into a resource group by join_group(). Durable, and not undone by ROLLBACK.';

CREATE FUNCTION revoke_group_use(group_name text, role_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION revoke_group_use(text, text) FROM PUBLIC;
COMMENT ON FUNCTION revoke_group_use(text, text) IS
'Take back what grant_group_use() has allowed. Sessions that have joined stay until they leave. A notice when it was not allowed.';

COMMENT ON FUNCTION dirty_throttle_reset(text) IS
'Set the counters of a resource group, or of all groups, to 0, and forget the rates that suggest_group_limits() has seen.';

-- For everybody.

CREATE FUNCTION join_group(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION join_group(text) TO PUBLIC;
COMMENT ON FUNCTION join_group(text) IS
'Put this session into a resource group that grant_group_use() has opened to its role: like SET dirty_throttle."group", without the privilege to set it. An error for other groups, and in a session that set_session_group() has moved.';

CREATE FUNCTION leave_joined_group()
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION leave_joined_group() TO PUBLIC;
COMMENT ON FUNCTION leave_joined_group() IS
'Leave the group that join_group() has put this session into: like RESET dirty_throttle."group", back to what the settings of its role and database say. An error when it has not joined one.';

CREATE FUNCTION suggest_group_limits(
    OUT group_name name,
    OUT mode text,
    OUT observed_since timestamptz,
    OUT dirty_seconds int8,
    OUT dirty_rate_p50 float8,
    OUT dirty_rate_p95 float8,
    OUT dirty_rate_max float8,
    OUT suggested_dirty_limit float8,
    OUT wal_seconds int8,
    OUT wal_rate_p50 float8,
    OUT wal_rate_p95 float8,
    OUT wal_rate_max float8,
    OUT suggested_wal_limit float8
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION suggest_group_limits() IS
'One row a resource group: the rates that its sessions have had since observed_since, over the seconds in which they dirtied buffers or wrote WAL (how many these were; median, 95th percentile and maximum, KB/s, percentiles to 7 %), and as a suggestion the 95th percentile rounded up. NULL where there was none. Rates under a limit that is enforced say little: observe first, see set_group_mode().';

CREATE FUNCTION dirty_throttle_grants(
    OUT group_name name,
    OUT roleid oid
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION dirty_throttle_grants() IS
'The rows of the view dirty_throttle_grants.';

CREATE VIEW dirty_throttle_grants AS
SELECT g.group_name, r.rolname AS role_name
FROM dirty_throttle_grants() AS g
     JOIN pg_catalog.pg_roles AS r
          ON r.oid OPERATOR(pg_catalog.=) g.roleid;
GRANT SELECT ON dirty_throttle_grants TO PUBLIC;
COMMENT ON VIEW dirty_throttle_grants IS 'Which roles may join which resource groups: one row a grant_group_use().';
COMMENT ON COLUMN dirty_throttle_grants.group_name IS 'Name of the resource group';
COMMENT ON COLUMN dirty_throttle_grants.role_name IS 'Role whose sessions, and those of roles that have its privileges, may join it';

-- The views get more columns, at the end: what is built on them stays.

ALTER FUNCTION dirty_throttle_groups() RENAME TO dirty_throttle_groups_1_0;
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
    OUT stats_reset timestamptz,
    OUT wal_rate_limit float8,
    OUT wal_rate float8,
    OUT wal_bytes int8,
    OUT wal_debt_kb float8,
    OUT wal_pauses int8,
    OUT burst float8,
    OUT mode text,
    OUT would_pauses int8,
    OUT would_pause_time float8,
    OUT paused_since timestamptz,
    OUT paused_hard boolean,
    OUT releases int8
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION dirty_throttle_groups() IS
'The rows of the view dirty_throttle_groups.';

CREATE OR REPLACE VIEW dirty_throttle_groups AS
SELECT group_name, dirty_rate_limit, active_processes,
       per_process_dirty_rate_limit, paused_processes, dirty_rate,
       blocks_dirtied, pauses, paused_time, debt_kb, stats_reset,
       wal_rate_limit, wal_rate, wal_bytes, wal_debt_kb, wal_pauses,
       burst, mode, would_pauses, would_pause_time,
       paused_since, paused_hard, releases
FROM dirty_throttle_groups();
DROP FUNCTION dirty_throttle_groups_1_0();
COMMENT ON COLUMN dirty_throttle_groups.wal_rate_limit IS 'WAL limit for all its sessions together, KB/s (1 KB = 1000 bytes); 0 = no limit';
COMMENT ON COLUMN dirty_throttle_groups.wal_rate IS 'Measured WAL rate, averaged over the last 5 seconds, KB/s';
COMMENT ON COLUMN dirty_throttle_groups.wal_bytes IS 'WAL written by members since stats_reset, bytes';
COMMENT ON COLUMN dirty_throttle_groups.wal_debt_kb IS 'WAL written, but not paid for yet, KB';
COMMENT ON COLUMN dirty_throttle_groups.wal_pauses IS 'Those of the pauses that the WAL limit has caused';
COMMENT ON COLUMN dirty_throttle_groups.burst IS 'How much unused capacity it may save up, ms of its rate';
COMMENT ON COLUMN dirty_throttle_groups.mode IS 'enforce, or observe: the limits make nobody pause';
COMMENT ON COLUMN dirty_throttle_groups.would_pauses IS 'Pauses that members would have made since stats_reset, had the mode been enforce';
COMMENT ON COLUMN dirty_throttle_groups.would_pause_time IS 'Time members would have paused since stats_reset, all added up, ms';
COMMENT ON COLUMN dirty_throttle_groups.paused_since IS 'Since when the group is stopped by pause_group(); NULL when it is not';
COMMENT ON COLUMN dirty_throttle_groups.paused_hard IS 'Was it stopped with hard => true? NULL when it is not stopped';
COMMENT ON COLUMN dirty_throttle_groups.releases IS 'How often since stats_reset a member went on without pausing, since a session outside the group had waited for its locks for dirty_throttle.max_blocking_time';

ALTER FUNCTION dirty_throttle_sessions() RENAME TO dirty_throttle_sessions_1_0;
CREATE FUNCTION dirty_throttle_sessions(
    OUT pid int4,
    OUT usesysid oid,
    OUT datid oid,
    OUT group_name name,
    OUT blocks_dirtied int8,
    OUT pauses int8,
    OUT paused_time float8,
    OUT debt_kb float8,
    OUT paused_since timestamptz,
    OUT wal_bytes int8,
    OUT wal_debt_kb float8,
    OUT paused_by text,
    OUT would_pauses int8,
    OUT would_pause_time float8,
    OUT moved boolean,
    OUT has_left boolean,
    OUT pauses_in_commands boolean,
    OUT releases int8
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION dirty_throttle_sessions() IS
'The rows of the view dirty_throttle_sessions.';

CREATE OR REPLACE VIEW dirty_throttle_sessions AS
SELECT s.pid, r.rolname AS usename, d.datname,
       a.application_name, s.group_name, s.blocks_dirtied, s.pauses,
       s.paused_time, s.debt_kb, s.paused_since,
       s.wal_bytes, s.wal_debt_kb, s.paused_by,
       s.would_pauses, s.would_pause_time, s.moved, s.has_left,
       s.pauses_in_commands, s.releases
FROM dirty_throttle_sessions() AS s
     LEFT JOIN pg_catalog.pg_roles AS r
          ON r.oid OPERATOR(pg_catalog.=) s.usesysid
     LEFT JOIN pg_catalog.pg_database AS d
          ON d.oid OPERATOR(pg_catalog.=) s.datid
     LEFT JOIN pg_catalog.pg_stat_activity AS a
          ON a.pid OPERATOR(pg_catalog.=) s.pid;
DROP FUNCTION dirty_throttle_sessions_1_0();
COMMENT ON COLUMN dirty_throttle_sessions.wal_bytes IS 'WAL written since the session joined the group, bytes';
COMMENT ON COLUMN dirty_throttle_sessions.wal_debt_kb IS 'WAL written, but not paid for yet, KB';
COMMENT ON COLUMN dirty_throttle_sessions.paused_by IS 'What makes it pause: dirty or wal, the limit for which it owes for longer, or pause_group; NULL when it is running';
COMMENT ON COLUMN dirty_throttle_sessions.would_pauses IS 'Pauses it would have made since it joined the group, had the mode been enforce';
COMMENT ON COLUMN dirty_throttle_sessions.would_pause_time IS 'Time it would have paused since it joined the group, ms';
COMMENT ON COLUMN dirty_throttle_sessions.moved IS 'Was it put into the group by set_session_group()?';
COMMENT ON COLUMN dirty_throttle_sessions.has_left IS 'Has it left the group, and owes there what it has dirtied as a member? Then there is another row for the group that it is in now, if any';
COMMENT ON COLUMN dirty_throttle_sessions.pauses_in_commands IS 'Can it pause in the middle of commands, where they check for interrupts? Otherwise they pay after their transactions: dirty_throttle.interrupt_pauses is off, log_min_messages is fatal or panic, or another library keeps the server''s messages from dirty_throttle';
COMMENT ON COLUMN dirty_throttle_sessions.releases IS 'How often since it joined the group it went on without pausing, since a session outside the group had waited for its locks for dirty_throttle.max_blocking_time';

CREATE VIEW dirty_throttle_blocking AS
SELECT l.pid AS waiting_pid, w.usename AS waiting_usename,
       w.datname AS waiting_datname,
       w.application_name AS waiting_application_name,
       l.waitstart AS waiting_since,
       extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) l.waitstart)::float8
           OPERATOR(pg_catalog.*) 1000 AS waiting_time,
       l.locktype, l.mode AS lockmode,
       CASE WHEN l.relation IS NULL THEN NULL
            WHEN l.database OPERATOR(pg_catalog.=) d.oid
            THEN l.relation::pg_catalog.regclass::pg_catalog.text
            ELSE l.relation::pg_catalog.text
       END AS relation,
       s.pid AS holder_pid, s.group_name,
       s.paused_since AS holder_paused_since,
       s.releases AS holder_releases
FROM pg_catalog.pg_locks AS l
     JOIN pg_catalog.pg_database AS d
          ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
     CROSS JOIN LATERAL
          (SELECT pg_catalog.pg_blocking_pids(l.pid) AS pids OFFSET 0) AS b
     JOIN dirty_throttle_sessions() AS s
          ON s.pid OPERATOR(pg_catalog.=) ANY (b.pids)
     LEFT JOIN pg_catalog.pg_stat_activity AS w
          ON w.pid OPERATOR(pg_catalog.=) l.pid
WHERE NOT l.granted AND s.paused_since IS NOT NULL;
GRANT SELECT ON dirty_throttle_blocking TO PUBLIC;
COMMENT ON VIEW dirty_throttle_blocking IS 'Who waits for a sleeper: one row for each session that waits for a heavyweight lock and each pausing member that it waits for. Other users'' members are shown to members of pg_read_all_stats only.';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_pid IS 'Process ID of the session that waits';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_usename IS 'Its user';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_datname IS 'Its database';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_application_name IS 'Its application';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_since IS 'Since when it waits; NULL in its first moment';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_time IS 'For how long it has waited, ms';
COMMENT ON COLUMN dirty_throttle_blocking.locktype IS 'What it waits for, as in pg_locks; a row that was changed shows as the transaction that has changed it';
COMMENT ON COLUMN dirty_throttle_blocking.lockmode IS 'Lock mode that it wants';
COMMENT ON COLUMN dirty_throttle_blocking.relation IS 'Table or index, when the lock is on one: its name, or its OID when it is in another database';
COMMENT ON COLUMN dirty_throttle_blocking.holder_pid IS 'Process ID of the pausing member that holds it up';
COMMENT ON COLUMN dirty_throttle_blocking.group_name IS 'The member''s group';
COMMENT ON COLUMN dirty_throttle_blocking.holder_paused_since IS 'Since when the member is pausing';
COMMENT ON COLUMN dirty_throttle_blocking.holder_releases IS 'How often since it joined the group the member went on without pausing, for others who had waited too long';
