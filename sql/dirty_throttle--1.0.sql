/* dirty_throttle--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION dirty_throttle" to load this file. \quit

-- Resource groups: for the DBA, who may GRANT EXECUTE.

CREATE FUNCTION alter_resource_group(group_name text, dirty_limit "any" DEFAULT NULL, wal_limit "any" DEFAULT NULL, burst "any" DEFAULT NULL, allowance "any" DEFAULT NULL, floor "any" DEFAULT NULL, weight "any" DEFAULT NULL, mode text DEFAULT NULL, scope text DEFAULT NULL, instance text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION alter_resource_group(text, "any", "any", "any", "any", "any", "any", text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION alter_resource_group(text, "any", "any", "any", "any", "any", "any", text, text, text) IS
'Sets properties of a resource group, and leaves those that are NULL as they are. Creates the group if it does not exist; its name has 1 to 63 bytes, no blank around it and no control characters. Amounts and times are numbers or texts with a unit. dirty_limit and wal_limit: as set_group_dirty_limit() and set_group_wal_limit(). burst: how much unused capacity it can save up, as much as its limits allow in this time, in milliseconds or for example 1 min, up to one hour; the default is 20. allowance: how much each transaction may dirty, and how much WAL it may write, before it owes anything, in KB or for example 64 MB; the default is 0. floor: the rate below which no signal slows it down, in KB/s or for example 1 MB; the default is 64. weight, from 1 to 1000: its share of what a signal allows, which groups that follow the same one share; the default is 1. mode: ''enforce'' (the default) or ''observe'', in which no session pauses, but the views count how often and for how long sessions would have paused. With scope ''role'' or ''database'' the limits, burst and floor hold for each role or database that is in the group, instead of for all members together (''group'', the default); what is owed then is forgiven. With instance, the name of a role or database, it sets what differs for that one; if all else is NULL, nothing differs any more. At COMMIT the change takes effect at once for all sessions of the group.';

CREATE FUNCTION set_group_dirty_limit(group_name text, kb_per_second float8)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_dirty_limit(text, float8) FROM PUBLIC;
COMMENT ON FUNCTION set_group_dirty_limit(text, float8) IS
'Sets the dirty rate limit of a resource group, in KB/s (1 KB = 1000 bytes), up to 16777216; 0 removes it. Creates the group if it does not exist. At COMMIT the limit takes effect at once for all sessions of the group.';

CREATE FUNCTION set_group_dirty_limit(group_name text, amount_per_second text)
RETURNS void
AS 'MODULE_PATHNAME', 'set_group_dirty_limit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_dirty_limit(text, text) FROM PUBLIC;
COMMENT ON FUNCTION set_group_dirty_limit(text, text) IS
'The same with an amount per second and its unit, for example 5 MB; 1 MB = 1000 kB = 1000000 bytes. A number without a unit is in KB/s.';

CREATE FUNCTION set_group_wal_limit(group_name text, kb_per_second float8)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_wal_limit(text, float8) FROM PUBLIC;
COMMENT ON FUNCTION set_group_wal_limit(text, float8) IS
'Sets the WAL rate limit of a resource group, in KB/s (1 KB = 1000 bytes), up to 16777216; 0 removes it. Creates the group if it does not exist. The limit applies in addition to the dirty rate limit: a session pauses until it has paid for both. At COMMIT it takes effect at once for all sessions of the group.';

CREATE FUNCTION set_group_wal_limit(group_name text, amount_per_second text)
RETURNS void
AS 'MODULE_PATHNAME', 'set_group_wal_limit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_wal_limit(text, text) FROM PUBLIC;
COMMENT ON FUNCTION set_group_wal_limit(text, text) IS
'The same with an amount per second and its unit, for example 5 MB; 1 MB = 1000 kB = 1000000 bytes. A number without a unit is in KB/s.';

CREATE FUNCTION set_group_pressure(group_name text, signal text, threshold text, ignore int4 DEFAULT 0)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_group_pressure(text, text, text, int4) FROM PUBLIC;
COMMENT ON FUNCTION set_group_pressure(text, text, text, int4) IS
'Makes the limits of a resource group follow a signal: replica_lag (a time), slot_lag or archive_lag (bytes), checkpoint (''on'', as it has no threshold), wal_rate (bytes a second), disk_free (bytes or percent), kernel_dirty (bytes), io_pressure (percent), commit_latency (a time, or percent), or one that report_pressure() has reported (''on''). A threshold of NULL ends that, with a notice if the group did not follow the signal. The group is slowed down so far that the signal stays near its threshold; its limits stay in force. With several signals the worst one decides. For replica_lag, ignore is how many of the slowest standbys do not count. Creates the group if it does not exist. It is an error if the signal is not available on this server. The change takes effect at COMMIT.';

CREATE FUNCTION protect_from(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION protect_from(text) FROM PUBLIC;
COMMENT ON FUNCTION protect_from(text) IS
'Protects others from a resource group: makes it follow those of the signals commit_latency, replica_lag, checkpoint and disk_free that this server has, with thresholds that suit the server, and raises its floor from the default to 512 KB/s, or to half of its own limit if that is less. Notices report what was chosen, what was left out, and why. What the group follows already stays as it is. Creates the group if it does not exist. The change takes effect at COMMIT.';

CREATE FUNCTION report_pressure(signal text, value float8, ttl interval DEFAULT '10 s')
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION report_pressure(text, float8, interval) FROM PUBLIC;
COMMENT ON FUNCTION report_pressure(text, float8, interval) IS
'Reports the value of a signal that is measured elsewhere, from 0 to 1000000; 1 is the threshold. Groups that follow this name with set_group_pressure() are slowed down while it is above 1. A report is stale when it is older than ttl, and counts for another 30 s. It takes effect at once and is not durable. EXECUTE on the function allows reporting under any name.';

CREATE FUNCTION rename_resource_group(old_name text, new_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION rename_resource_group(text, text) FROM PUBLIC;
COMMENT ON FUNCTION rename_resource_group(text, text) IS
'Renames a resource group. Its sessions stay members. Settings of roles and databases keep the old name and must be changed.';

CREATE FUNCTION drop_resource_group(group_name text, if_exists boolean DEFAULT false, force boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION drop_resource_group(text, boolean, boolean) FROM PUBLIC;
COMMENT ON FUNCTION drop_resource_group(text, boolean, boolean) IS
'Drops a resource group. With if_exists, a group that does not exist causes a notice instead of an error. With force, sessions that are members of the group leave it at COMMIT, also while they pause, instead of causing an error.';

CREATE FUNCTION grant_group_use(group_name text, role_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION grant_group_use(text, text) FROM PUBLIC;
COMMENT ON FUNCTION grant_group_use(text, text) IS
'Allows a role, and roles that have its privileges, to put their own sessions into a resource group with join_group(). The grant takes effect at COMMIT.';

CREATE FUNCTION revoke_group_use(group_name text, role_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION revoke_group_use(text, text) FROM PUBLIC;
COMMENT ON FUNCTION revoke_group_use(text, text) IS
'Revokes what grant_group_use() has granted. Sessions that have joined the group stay until they leave it. A grant that does not exist causes a notice.';

-- What runs: for the DBA, who may GRANT EXECUTE.

CREATE FUNCTION set_session_group(pid int4, group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION set_session_group(int4, text) FROM PUBLIC;
COMMENT ON FUNCTION set_session_group(int4, text) IS
'Moves the session with this process ID into a resource group, also while it runs a query or command and while it pauses. An empty name takes it out of its group. What the session owes stays with its old group. Until the session ends or the group is dropped, dirty_throttle."group" has no effect in the session; NULL instead of a name ends that.';

CREATE FUNCTION suspend_group(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION suspend_group(text) FROM PUBLIC;
COMMENT ON FUNCTION suspend_group(text) IS
'Suspends a resource group until resume_group(): each session stops after its transaction, when it holds no lock, and before its next statement that writes. A cancel works as usual. The suspension is not durable: no group is suspended after a server start.';

CREATE FUNCTION resume_group(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION resume_group(text) FROM PUBLIC;
COMMENT ON FUNCTION resume_group(text) IS
'Resumes a resource group that suspend_group() has suspended. A group that is not suspended causes a notice. It takes effect at once, also on a standby.';

CREATE FUNCTION dirty_throttle_reset(group_name text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION dirty_throttle_reset(text) FROM PUBLIC;
COMMENT ON FUNCTION dirty_throttle_reset(text) IS
'Resets the counters of a resource group, or of all groups, to 0. It takes effect at once, also on a standby.';

-- For everybody.

CREATE FUNCTION join_group(group_name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION join_group(text) TO PUBLIC;
COMMENT ON FUNCTION join_group(text) IS
'Puts the current session into a resource group that was granted to its role with grant_group_use(). Works like SET dirty_throttle."group", without the privilege to set it. It is an error if the group was not granted, or if set_session_group() has moved the session. NULL leaves the group again, like RESET dirty_throttle."group": the settings of role and database apply; it is an error if the session has not joined a group.';

-- Jobs in batches, for everybody: a statement runs as its caller.

CREATE FUNCTION start_batches(name text, table_name regclass DEFAULT NULL, statement text DEFAULT NULL, key text DEFAULT NULL, start "any" DEFAULT NULL, finish "any" DEFAULT NULL, restart boolean DEFAULT false, batch_time interval DEFAULT '100 ms', max_rows int4 DEFAULT 20000, run_time interval DEFAULT NULL, row_security boolean DEFAULT false, unthrottled boolean DEFAULT false, dry_run boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION start_batches(text, regclass, text, text, "any", "any", boolean, interval, int4, interval, boolean, boolean, boolean) TO PUBLIC;
COMMENT ON FUNCTION start_batches(text, regclass, text, text, "any", "any", boolean, interval, int4, interval, boolean, boolean, boolean) IS
'Runs a statement over a table in small transactions, in a background worker that begins when the transaction commits. Each batch is a range of the primary key, or of the columns of another B-tree index (key); {batch} in the statement stands for the condition on this range. The progress is stored with each batch: after an error, stop_batches() or a crash, the same call, or one with the name only, continues from there.';

CREATE PROCEDURE run_in_batches(name text, table_name regclass DEFAULT NULL, statement text DEFAULT NULL, key text DEFAULT NULL, start "any" DEFAULT NULL, finish "any" DEFAULT NULL, restart boolean DEFAULT false, batch_time interval DEFAULT '100 ms', max_rows int4 DEFAULT 20000, run_time interval DEFAULT NULL, row_security boolean DEFAULT false, unthrottled boolean DEFAULT false, dry_run boolean DEFAULT false, INOUT rows int8 DEFAULT NULL, INOUT finished boolean DEFAULT NULL)
AS 'MODULE_PATHNAME'
LANGUAGE C;
GRANT EXECUTE ON PROCEDURE run_in_batches(text, regclass, text, text, "any", "any", boolean, interval, int4, interval, boolean, boolean, boolean, int8, boolean) TO PUBLIC;
COMMENT ON PROCEDURE run_in_batches(text, regclass, text, text, "any", "any", boolean, interval, int4, interval, boolean, boolean, boolean, int8, boolean) IS
'Does the same as start_batches(), and waits for the end. If the CALL is canceled, the batches end after the current one; if anything else ends it, they continue. Must not be called in a transaction block.';

CREATE FUNCTION stop_batches(name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION stop_batches(text) TO PUBLIC;
COMMENT ON FUNCTION stop_batches(text) IS
'Ends the batches with that name, of the caller or of a role whose privileges the caller has, after the current one; also while their group is suspended. start_batches() continues them. Batches that are not running cause a notice. It is an error during recovery.';

CREATE FUNCTION forget_batches(name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION forget_batches(text) TO PUBLIC;
COMMENT ON FUNCTION forget_batches(text) IS
'Removes what is stored of the batches with that name, of the caller or of a role whose privileges the caller has: how far they have come, and that they have finished. It is an error if they are running.';

-- What is stored of them.  It is written by the library only, and contains what
-- it contains: its query returns that.  See src/batch/store.c.

CREATE FUNCTION dirty_throttle_stored_batches(
    OUT id oid,
    OUT owner oid,
    OUT name name,
    OUT table_id oid,
    OUT statement text,
    OUT key text,
    OUT ordering text,
    OUT start text[],
    OUT finish text[],
    OUT settings text[],
    OUT group_id int8,
    OUT row_security boolean,
    OUT batch_time int8,
    OUT max_rows int8,
    OUT run_time int8
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dirty_throttle_stored'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION dirty_throttle_stored_batches() FROM PUBLIC;
COMMENT ON FUNCTION dirty_throttle_stored_batches() IS
'Returns what the materialized view dirty_throttle_stored_batches contains, so that REFRESH MATERIALIZED VIEW does not change it.';

CREATE MATERIALIZED VIEW dirty_throttle_stored_batches USING heap AS
SELECT id, owner, name, table_id, statement, key, ordering, start,
       finish, settings, group_id, row_security, batch_time, max_rows,
       run_time
FROM dirty_throttle_stored_batches()
WITH NO DATA;
CREATE UNIQUE INDEX dirty_throttle_stored_batches_id ON dirty_throttle_stored_batches (id);
CREATE UNIQUE INDEX dirty_throttle_stored_batches_key
    ON dirty_throttle_stored_batches (owner, name);
REVOKE ALL ON dirty_throttle_stored_batches FROM PUBLIC;
COMMENT ON MATERIALIZED VIEW dirty_throttle_stored_batches IS 'What is stored of batch jobs when they are started; the view dirty_throttle_batches shows it. The library writes it; REFRESH MATERIALIZED VIEW does not change it';

CREATE FUNCTION dirty_throttle_stored_progress(
    OUT id oid,
    OUT "position" text[],
    OUT until text[],
    OUT keys int8,
    OUT expected int8,
    OUT rows int8,
    OUT batches int8,
    OUT retries int8,
    OUT elapsed int8,
    OUT paused int8,
    OUT rate float8,
    OUT updated timestamptz,
    OUT finished timestamptz,
    OUT outcome text,
    OUT error text,
    OUT sqlstate text,
    OUT detail text,
    OUT hint text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dirty_throttle_stored'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION dirty_throttle_stored_progress() FROM PUBLIC;
COMMENT ON FUNCTION dirty_throttle_stored_progress() IS
'Returns what the materialized view dirty_throttle_stored_progress contains, so that REFRESH MATERIALIZED VIEW does not change it.';

CREATE MATERIALIZED VIEW dirty_throttle_stored_progress USING heap WITH (fillfactor = 50) AS
SELECT id, "position", until, keys, expected, rows, batches, retries,
       elapsed, paused, rate, updated, finished, outcome, error,
       sqlstate, detail, hint
FROM dirty_throttle_stored_progress()
WITH NO DATA;
CREATE UNIQUE INDEX dirty_throttle_stored_progress_id ON dirty_throttle_stored_progress (id);
REVOKE ALL ON dirty_throttle_stored_progress FROM PUBLIC;
COMMENT ON MATERIALIZED VIEW dirty_throttle_stored_progress IS 'How far batch jobs have come, written with each batch; like dirty_throttle_stored_batches';

-- Views, for everybody.

CREATE FUNCTION dirty_throttle_groups(
    OUT group_name name,
    OUT instance oid,
    OUT dirty_rate float8,
    OUT dirty_limit float8,
    OUT effective_dirty_limit float8,
    OUT wal_rate float8,
    OUT wal_limit float8,
    OUT effective_wal_limit float8,
    OUT pressure_reason text,
    OUT members int4,
    OUT paused int4,
    OUT dirty_debt float8,
    OUT wal_debt float8,
    OUT suspended_since timestamptz,
    OUT mode text,
    OUT scope text,
    OUT instances int4,
    OUT burst float8,
    OUT allowance float8,
    OUT floor float8,
    OUT weight float8,
    OUT granted_to name[],
    OUT blocks_dirtied int8,
    OUT wal_bytes int8,
    OUT pauses int8,
    OUT paused_time float8,
    OUT observed_pauses int8,
    OUT observed_pause_time float8,
    OUT releases int8,
    OUT debt_forgiven float8,
    OUT stats_reset timestamptz
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION dirty_throttle_groups() TO PUBLIC;
COMMENT ON FUNCTION dirty_throttle_groups() IS
'Returns what the view dirty_throttle_groups shows, of one moment and not rounded; granted_to also has roles that no longer exist.';

CREATE VIEW dirty_throttle_groups AS
SELECT g.group_name,
       coalesce(r.rolname, d.datname, g.instance::text::name) AS instance,
       pg_catalog.round(g.dirty_rate)::int8 AS dirty_rate,
       g.dirty_limit,
       CASE WHEN g.effective_dirty_limit OPERATOR(pg_catalog.=) g.dirty_limit THEN g.dirty_limit
            ELSE pg_catalog.round(g.effective_dirty_limit)
       END AS effective_dirty_limit,
       pg_catalog.round(g.wal_rate)::int8 AS wal_rate,
       g.wal_limit,
       CASE WHEN g.effective_wal_limit OPERATOR(pg_catalog.=) g.wal_limit THEN g.wal_limit
            ELSE pg_catalog.round(g.effective_wal_limit)
       END AS effective_wal_limit,
       g.pressure_reason, g.members, g.paused,
       pg_catalog.ceil(g.dirty_debt)::int8 AS dirty_debt,
       pg_catalog.ceil(g.wal_debt)::int8 AS wal_debt,
       g.suspended_since, g.mode, g.scope, g.instances, g.burst, g.allowance,
       g.floor, g.weight,
       (SELECT pg_catalog.array_agg(a.rolname ORDER BY a.rolname)
        FROM pg_catalog.pg_roles AS a
        WHERE a.rolname OPERATOR(pg_catalog.=) ANY (g.granted_to)) AS granted_to,
       g.blocks_dirtied, g.wal_bytes, g.pauses, g.paused_time,
       g.observed_pauses, g.observed_pause_time, g.releases,
       pg_catalog.ceil(g.debt_forgiven)::int8 AS debt_forgiven, g.stats_reset
FROM dirty_throttle_groups() AS g
     LEFT JOIN pg_catalog.pg_roles AS r
          ON g.scope OPERATOR(pg_catalog.=) 'role'
             AND r.oid OPERATOR(pg_catalog.=) g.instance
     LEFT JOIN pg_catalog.pg_database AS d
          ON g.scope OPERATOR(pg_catalog.=) 'database'
             AND d.oid OPERATOR(pg_catalog.=) g.instance;
GRANT SELECT ON dirty_throttle_groups TO PUBLIC;
COMMENT ON VIEW dirty_throttle_groups IS 'Resource groups: what they do now, what they are, and their counters. One row per group, where instance is NULL: its rates, debts, members and counters are sums over all instances. And one row per instance: a role or database, depending on the scope, that has limits of its own in the group, and that has had a session there lately, owes something, or has other properties than the group. All roles see the rows of groups. A role sees the instances of roles whose privileges it has, and of its own database, and members of pg_read_all_stats see all';
COMMENT ON COLUMN dirty_throttle_groups.group_name IS 'Name of the resource group';
COMMENT ON COLUMN dirty_throttle_groups.instance IS 'Name of the role or database whose limits these are, its OID if it was dropped; NULL for the group itself';
COMMENT ON COLUMN dirty_throttle_groups.dirty_rate IS 'Measured rate of dirtying shared buffers, averaged over the last 5 seconds, in KB/s';
COMMENT ON COLUMN dirty_throttle_groups.dirty_limit IS 'Limit on dirtying shared buffers for all members together, or in the row of an instance for its members, in KB/s (1 KB = 1000 bytes); NULL if there is none';
COMMENT ON COLUMN dirty_throttle_groups.effective_dirty_limit IS 'Limit on dirtying shared buffers that is in force, in KB/s: dirty_limit, or what pressure leaves of it; NULL if there is no limit';
COMMENT ON COLUMN dirty_throttle_groups.wal_rate IS 'Measured rate of writing WAL, averaged over the last 5 seconds, in KB/s';
COMMENT ON COLUMN dirty_throttle_groups.wal_limit IS 'Limit on writing WAL for all members together, or in the row of an instance for its members, in KB/s (1 KB = 1000 bytes); NULL if there is none';
COMMENT ON COLUMN dirty_throttle_groups.effective_wal_limit IS 'Limit on writing WAL that is in force, in KB/s: wal_limit, or what pressure leaves of it, or more while a burst is spent within a budget (signal wal_rate); NULL if there is no limit';
COMMENT ON COLUMN dirty_throttle_groups.pressure_reason IS 'Why pressure makes the group as slow as it is: a sentence with the value of the signal that decides, and what this value may be. NULL if pressure leaves the limits as they are, and for roles that may not see the value';
COMMENT ON COLUMN dirty_throttle_groups.members IS 'Number of sessions that are members';
COMMENT ON COLUMN dirty_throttle_groups.paused IS 'Number of members that are pausing';
COMMENT ON COLUMN dirty_throttle_groups.dirty_debt IS 'Dirtied but not paid for yet, in KB, rounded up';
COMMENT ON COLUMN dirty_throttle_groups.wal_debt IS 'WAL written but not paid for yet, in KB, rounded up';
COMMENT ON COLUMN dirty_throttle_groups.suspended_since IS 'Time at which suspend_group() has suspended the group; NULL if it is not suspended';
COMMENT ON COLUMN dirty_throttle_groups.mode IS 'enforce, or observe: the limits make no session pause';
COMMENT ON COLUMN dirty_throttle_groups.scope IS 'What has limits of its own: group (all members together), each role, or each database';
COMMENT ON COLUMN dirty_throttle_groups.instances IS 'Number of roles or databases that have limits of their own in the group at present; NULL if scope is group, and in rows of instances';
COMMENT ON COLUMN dirty_throttle_groups.burst IS 'How much unused capacity the group can save up: as much as its limits allow in this time, in milliseconds';
COMMENT ON COLUMN dirty_throttle_groups.allowance IS 'How much each transaction may dirty, and how much WAL it may write, before it owes anything, in KB (1 KB = 1000 bytes)';
COMMENT ON COLUMN dirty_throttle_groups.floor IS 'Rate below which no signal slows the group down, in KB/s';
COMMENT ON COLUMN dirty_throttle_groups.weight IS 'Weight of the group''s share of what the signals allow';
COMMENT ON COLUMN dirty_throttle_groups.granted_to IS 'Roles that may join the group, as granted with grant_group_use(); sessions of roles that have their privileges may join it, too. NULL if it is granted to no role';
COMMENT ON COLUMN dirty_throttle_groups.blocks_dirtied IS 'Number of shared buffers dirtied by members since stats_reset or, in the row of an instance, since it began';
COMMENT ON COLUMN dirty_throttle_groups.wal_bytes IS 'WAL written by members since then, in bytes';
COMMENT ON COLUMN dirty_throttle_groups.pauses IS 'Number of pauses of members since then';
COMMENT ON COLUMN dirty_throttle_groups.paused_time IS 'Total time that members have paused since then, in milliseconds; a pause is added when it ends';
COMMENT ON COLUMN dirty_throttle_groups.observed_pauses IS 'Number of pauses that members would have made in mode enforce while the mode was observe, since then';
COMMENT ON COLUMN dirty_throttle_groups.observed_pause_time IS 'Total time that members would have paused in mode enforce while the mode was observe, since then, in milliseconds';
COMMENT ON COLUMN dirty_throttle_groups.releases IS 'Number of times since then that a member went on without pausing because another process had waited for it for dirty_throttle.max_blocking_time';
COMMENT ON COLUMN dirty_throttle_groups.debt_forgiven IS 'Debts that were forgiven since then because of pressure, in KB: what it would take more than 30 s to pay at a limit that has been lower for 5 s, except what the fixed limit demands, and, where there is no fixed limit, what is owed when a limit by pressure ends';
COMMENT ON COLUMN dirty_throttle_groups.stats_reset IS 'Time at which the counters were last reset; of an instance that is younger, the time at which it began';

CREATE FUNCTION dirty_throttle_pressure(
    OUT signal text,
    OUT group_name name,
    OUT state text,
    OUT value float8,
    OUT threshold_value float8,
    OUT unit text,
    OUT base float8,
    OUT pressure float8,
    OUT threshold text,
    OUT ignored_standbys int4,
    OUT measured_at timestamptz,
    OUT reason text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION dirty_throttle_pressure() TO PUBLIC;
COMMENT ON FUNCTION dirty_throttle_pressure() IS
'Returns the rows of the view dirty_throttle_pressure.';

CREATE VIEW dirty_throttle_pressure AS
SELECT signal, group_name, state, value, threshold_value, unit, base, pressure,
       threshold, ignored_standbys, measured_at, reason
FROM dirty_throttle_pressure();
GRANT SELECT ON dirty_throttle_pressure TO PUBLIC;
COMMENT ON VIEW dirty_throttle_pressure IS 'Signals of pressure: one row per resource group and signal that it follows, as set with set_group_pressure(), and one row per signal that no group follows, also of those that report_pressure() has reported';
COMMENT ON COLUMN dirty_throttle_pressure.signal IS 'Name of the signal';
COMMENT ON COLUMN dirty_throttle_pressure.group_name IS 'Name of the resource group that follows the signal; NULL if none does';
COMMENT ON COLUMN dirty_throttle_pressure.state IS 'fresh; stale if there has been no new value for 10 s, or of a reported signal for its ttl, which counts for another 30 s; out of reach if others alone write so much WAL that checkpoints are forced, so that the signal checkpoint does not slow the group down; unavailable if the signal cannot be measured on this server, for which see column reason; or absent if it does not slow the group down for another reason. NULL if no group follows the signal, unless it is unavailable';
COMMENT ON COLUMN dirty_throttle_pressure.value IS 'Value of the signal: of replica_lag, how far the slowest standby that counts is behind; of slot_lag, the WAL that the slowest consumer of a replication slot has not received; of archive_lag, the WAL that waits to be archived; of checkpoint, the WAL that can still be written until a checkpoint is forced; of wal_rate, the WAL that the server writes; of disk_free, what is free of the file system of pg_wal; of kernel_dirty, what the kernel has to write; of io_pressure, the part of the time for which some process waits for I/O; of commit_latency, how long nine of ten commits of others take at most. NULL if it is not known: of commit_latency while no group follows it, and of replica_lag, disk_free, kernel_dirty and io_pressure for roles that are not members of pg_read_all_stats. What no group follows is measured every 10 s';
COMMENT ON COLUMN dirty_throttle_pressure.threshold_value IS 'What the value may be for this group, in the same unit, also where the threshold was set as a percentage; 1 for reported signals; NULL for signal checkpoint, which has no threshold, while it is not known, and if no group follows the signal';
COMMENT ON COLUMN dirty_throttle_pressure.unit IS 'Unit of value, threshold_value and base: ms, bytes, bytes/s, percent or, of reported signals, thresholds';
COMMENT ON COLUMN dirty_throttle_pressure.base IS 'What the value is without the groups that follow the signal: of commit_latency, if it is known';
COMMENT ON COLUMN dirty_throttle_pressure.pressure IS 'Pressure on this group: the value in relation to the threshold, 1 when it is at the threshold; of disk_free the reverse, and of checkpoint the WAL that the server writes in relation to the rate at which no checkpoint is forced. NULL if the value is NULL, and if no group follows the signal';
COMMENT ON COLUMN dirty_throttle_pressure.threshold IS 'Threshold of this group, as an argument of set_group_pressure(); on for signal checkpoint and reported ones, which have none; NULL if no group follows the signal';
COMMENT ON COLUMN dirty_throttle_pressure.ignored_standbys IS 'Number of the slowest standbys that do not count for this group; NULL for signals other than replica_lag, and if no group follows the signal';
COMMENT ON COLUMN dirty_throttle_pressure.measured_at IS 'Time of the last new value; NULL if there is none';
COMMENT ON COLUMN dirty_throttle_pressure.reason IS 'Why the signal is not available, why it has no new value, or why it is out of reach';

CREATE FUNCTION dirty_throttle_sessions(
    OUT pid int4,
    OUT usesysid oid,
    OUT datid oid,
    OUT group_name name,
    OUT moved boolean,
    OUT paused_since timestamptz,
    OUT paused_by text,
    OUT xact_paused_time float8,
    OUT released_since timestamptz,
    OUT dirty_debt float8,
    OUT wal_debt float8,
    OUT blocks_dirtied int8,
    OUT wal_bytes int8,
    OUT pauses int8,
    OUT paused_time float8,
    OUT releases int8
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION dirty_throttle_sessions() TO PUBLIC;
COMMENT ON FUNCTION dirty_throttle_sessions() IS
'Returns what the view dirty_throttle_sessions shows, not rounded.';

CREATE VIEW dirty_throttle_sessions AS
SELECT s.pid, r.rolname AS usename, d.datname, a.application_name,
       s.group_name, s.moved, s.paused_since, s.paused_by,
       s.xact_paused_time, s.released_since,
       pg_catalog.ceil(s.dirty_debt)::int8 AS dirty_debt,
       pg_catalog.ceil(s.wal_debt)::int8 AS wal_debt,
       s.blocks_dirtied, s.wal_bytes, s.pauses, s.paused_time, s.releases
FROM dirty_throttle_sessions() AS s
     LEFT JOIN pg_catalog.pg_roles AS r
          ON r.oid OPERATOR(pg_catalog.=) s.usesysid
     LEFT JOIN pg_catalog.pg_database AS d
          ON d.oid OPERATOR(pg_catalog.=) s.datid
     LEFT JOIN pg_catalog.pg_stat_activity AS a
          ON a.pid OPERATOR(pg_catalog.=) s.pid;
GRANT SELECT ON dirty_throttle_sessions TO PUBLIC;
COMMENT ON VIEW dirty_throttle_sessions IS 'Sessions that are members of a resource group; superusers, roles with REPLICATION and members of pg_monitor are members by name only, not by a default of the database or of the server; a role sees the sessions of roles whose privileges it has, and members of pg_read_all_stats see all';
COMMENT ON COLUMN dirty_throttle_sessions.pid IS 'Process ID, as in pg_stat_activity';
COMMENT ON COLUMN dirty_throttle_sessions.usename IS 'Name of the user; NULL for an autovacuum worker, and for a background worker that runs as no particular user';
COMMENT ON COLUMN dirty_throttle_sessions.datname IS 'Name of the database';
COMMENT ON COLUMN dirty_throttle_sessions.application_name IS 'Name of the application';
COMMENT ON COLUMN dirty_throttle_sessions.group_name IS 'Name of the resource group';
COMMENT ON COLUMN dirty_throttle_sessions.moved IS 'True if set_session_group() has moved the session into the group';
COMMENT ON COLUMN dirty_throttle_sessions.paused_since IS 'Time at which the current pause began; NULL if the session is not pausing';
COMMENT ON COLUMN dirty_throttle_sessions.paused_by IS 'Cause of the current pause: dirty or wal, whichever debt takes longer to pay, or the signal that has lowered this limit, or suspend_group; NULL if the session is not pausing';
COMMENT ON COLUMN dirty_throttle_sessions.xact_paused_time IS 'How long the current transaction, or the last one with the pause after it, has paused, including the current pause, in milliseconds';
COMMENT ON COLUMN dirty_throttle_sessions.released_since IS 'Time since which the session goes on without pausing because others wait for it; NULL if it does not';
COMMENT ON COLUMN dirty_throttle_sessions.dirty_debt IS 'Dirtied but not paid for yet, in KB, rounded up, with what the session has taken over from its role when it joined';
COMMENT ON COLUMN dirty_throttle_sessions.wal_debt IS 'WAL written but not paid for yet, in KB, rounded up, with what the session has taken over from its role when it joined';
COMMENT ON COLUMN dirty_throttle_sessions.blocks_dirtied IS 'Number of shared buffers dirtied since the session joined the group';
COMMENT ON COLUMN dirty_throttle_sessions.wal_bytes IS 'WAL written since the session joined the group, in bytes';
COMMENT ON COLUMN dirty_throttle_sessions.pauses IS 'Number of pauses since the session joined the group';
COMMENT ON COLUMN dirty_throttle_sessions.paused_time IS 'Total time paused since the session joined the group, including the current pause, in milliseconds';
COMMENT ON COLUMN dirty_throttle_sessions.releases IS 'Number of times since the session joined the group that it went on without pausing because another process had waited for it for dirty_throttle.max_blocking_time';

CREATE FUNCTION dirty_throttle_writers(
    OUT pid int4,
    OUT usesysid oid,
    OUT datid oid,
    OUT group_name name,
    OUT wal_rate float8,
    OUT dirty_rate float8,
    OUT wal_bytes int8,
    OUT blocks_dirtied int8,
    OUT since timestamptz
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION dirty_throttle_writers() TO PUBLIC;
COMMENT ON FUNCTION dirty_throttle_writers() IS
'Returns for each session what the view dirty_throttle_writers sums up.';

CREATE VIEW dirty_throttle_writers AS
SELECT r.rolname AS usename, d.datname, a.application_name, w.group_name,
       pg_catalog.count(*) AS sessions,
       pg_catalog.round(pg_catalog.sum(w.wal_rate))::int8 AS wal_rate,
       pg_catalog.round(pg_catalog.sum(w.dirty_rate))::int8 AS dirty_rate,
       pg_catalog.sum(w.wal_bytes)::int8 AS wal_bytes,
       pg_catalog.sum(w.blocks_dirtied)::int8 AS blocks_dirtied,
       pg_catalog.min(w.since) AS since
FROM dirty_throttle_writers() AS w
     LEFT JOIN pg_catalog.pg_roles AS r
          ON r.oid OPERATOR(pg_catalog.=) w.usesysid
     LEFT JOIN pg_catalog.pg_database AS d
          ON d.oid OPERATOR(pg_catalog.=) w.datid
     LEFT JOIN pg_catalog.pg_stat_activity AS a
          ON a.pid OPERATOR(pg_catalog.=) w.pid
GROUP BY 1, 2, 3, 4
ORDER BY wal_rate DESC, wal_bytes DESC;
GRANT SELECT ON dirty_throttle_writers TO PUBLIC;
COMMENT ON VIEW dirty_throttle_writers IS 'Sessions that write, summed up: one row per role, database, application and group, largest first, of members of groups and, from PostgreSQL 18 on, of all sessions; before that put a database into a group in mode observe to see them. A role sees the sessions of roles whose privileges it has, and members of pg_read_all_stats see all';
COMMENT ON COLUMN dirty_throttle_writers.usename IS 'Name of the user; NULL for a process of the server';
COMMENT ON COLUMN dirty_throttle_writers.datname IS 'Name of the database';
COMMENT ON COLUMN dirty_throttle_writers.application_name IS 'Name of the application';
COMMENT ON COLUMN dirty_throttle_writers.group_name IS 'Name of the resource group; NULL if they are in none';
COMMENT ON COLUMN dirty_throttle_writers.sessions IS 'Number of sessions';
COMMENT ON COLUMN dirty_throttle_writers.wal_rate IS 'WAL that they write, in KB/s: over the last 5 seconds; in no group, since the view was queried last in this session or, the first time, since they began';
COMMENT ON COLUMN dirty_throttle_writers.dirty_rate IS 'Rate of dirtying shared buffers over the last 5 seconds, in KB/s; NULL in no group, where it is not known';
COMMENT ON COLUMN dirty_throttle_writers.wal_bytes IS 'WAL that they have written since they joined the group or, in no group, began, in bytes';
COMMENT ON COLUMN dirty_throttle_writers.blocks_dirtied IS 'Number of shared buffers that they have dirtied since they joined the group; NULL in no group';
COMMENT ON COLUMN dirty_throttle_writers.since IS 'Time since which the first of them is counted';

CREATE FUNCTION dirty_throttle_blocking(
    OUT waiting_pid int4,
    OUT waiting_since timestamptz,
    OUT waits_for text,
    OUT holder_pid int4,
    OUT holder_xid xid,
    OUT group_name name
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION dirty_throttle_blocking() TO PUBLIC;
COMMENT ON FUNCTION dirty_throttle_blocking() IS
'Returns pairs for the view dirty_throttle_blocking: of a process that waits, and a session or prepared transaction in its way; group_name is that of a prepared transaction.';

CREATE VIEW dirty_throttle_blocking AS
SELECT b.waiting_pid,
       coalesce(l.waitstart, b.waiting_since) AS waiting_since,
       b.waits_for, l.locktype, l.mode AS lockmode,
       CASE WHEN l.relation IS NULL THEN NULL
            WHEN l.database OPERATOR(pg_catalog.=) d.oid
                 OR l.database OPERATOR(pg_catalog.=) 0
            THEN l.relation::pg_catalog.regclass::pg_catalog.text
            ELSE l.relation::pg_catalog.text
       END AS relation,
       b.holder_pid, p.gid AS holder_gid,
       coalesce(s.group_name, b.group_name) AS group_name,
       s.paused_since AS holder_paused_since,
       s.released_since AS holder_released_since
FROM dirty_throttle_blocking() AS b
     JOIN pg_catalog.pg_database AS d
          ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
     LEFT JOIN dirty_throttle_sessions() AS s
          ON s.pid OPERATOR(pg_catalog.=) b.holder_pid
     LEFT JOIN pg_catalog.pg_prepared_xacts AS p
          ON p.transaction OPERATOR(pg_catalog.=) b.holder_xid
     LEFT JOIN pg_catalog.pg_locks AS l
          ON l.pid OPERATOR(pg_catalog.=) b.waiting_pid AND NOT l.granted
WHERE (s.paused_since IS NOT NULL OR s.released_since IS NOT NULL OR p.gid IS NOT NULL)
  AND (b.waits_for OPERATOR(pg_catalog.<>) 'lock' OR l.pid IS NOT NULL);
GRANT SELECT ON dirty_throttle_blocking TO PUBLIC;
COMMENT ON VIEW dirty_throttle_blocking IS 'Processes that wait for a member that pauses, or that goes on without pausing because of that, or for what a member has prepared: one row per pair of a process that waits, directly or behind others, and such a member or prepared transaction; shows those of the sessions that dirty_throttle_sessions shows to the same role';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_pid IS 'Process ID of the waiting process';
COMMENT ON COLUMN dirty_throttle_blocking.waiting_since IS 'Time at which the wait began or, if it is not for a lock, was first seen';
COMMENT ON COLUMN dirty_throttle_blocking.waits_for IS 'What it waits for: a lock, a buffer pin (a VACUUM that needs a page for itself), a safe snapshot (a READ ONLY DEFERRABLE transaction), or replay (the startup process of a standby, for a page or a snapshot)';
COMMENT ON COLUMN dirty_throttle_blocking.locktype IS 'Type of the lock, as in pg_locks; a changed row appears as the transaction that has changed it. NULL if it does not wait for a lock';
COMMENT ON COLUMN dirty_throttle_blocking.lockmode IS 'Lock mode that the waiting process wants';
COMMENT ON COLUMN dirty_throttle_blocking.relation IS 'Table or index that the lock is on: its name, or its OID if it is in another database; NULL if the lock is on something else';
COMMENT ON COLUMN dirty_throttle_blocking.holder_pid IS 'Process ID of the member; NULL for a prepared transaction';
COMMENT ON COLUMN dirty_throttle_blocking.holder_gid IS 'Identifier of the prepared transaction; NULL for a member';
COMMENT ON COLUMN dirty_throttle_blocking.group_name IS 'Name of the resource group of the member, or of the session that has prepared the transaction';
COMMENT ON COLUMN dirty_throttle_blocking.holder_paused_since IS 'Time at which the member''s current pause began; NULL if it is not pausing';
COMMENT ON COLUMN dirty_throttle_blocking.holder_released_since IS 'Time since which the member goes on without pausing because others wait for it; NULL if it does not';

CREATE FUNCTION dirty_throttle_batches(
    OUT name name,
    OUT table_id oid,
    OUT statement text,
    OUT owner oid,
    OUT state text,
    OUT pid int4,
    OUT rows int8,
    OUT batches int8,
    OUT rows_seen int8,
    OUT rows_expected int8,
    OUT percent float8,
    OUT rate float8,
    OUT retries int8,
    OUT paused_time float8,
    OUT elapsed_time float8,
    OUT eta timestamptz,
    OUT updated_at timestamptz,
    OUT "position" text[],
    OUT error text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION dirty_throttle_batches() TO PUBLIC;
COMMENT ON FUNCTION dirty_throttle_batches() IS
'Returns what the view dirty_throttle_batches shows, not rounded, and the number of batches that were committed, of rows that the job has passed, of those that are expected, and the time for which it has run, in milliseconds.';

CREATE VIEW dirty_throttle_batches AS
SELECT b.name, b.table_id::pg_catalog.regclass AS table_name, b.statement,
       r.rolname AS owner, b.state, b.pid, b.rows,
       pg_catalog.floor(b.percent) AS percent,
       pg_catalog.round(b.rate)::int8 AS rate, b.retries,
       pg_catalog.round(b.paused_time) AS paused_time,
       pg_catalog.date_trunc('second', b.eta) AS eta, b.updated_at,
       b."position", b.error
FROM dirty_throttle_batches() AS b
     LEFT JOIN pg_catalog.pg_roles AS r
          ON r.oid OPERATOR(pg_catalog.=) b.owner;
GRANT SELECT ON dirty_throttle_batches TO PUBLIC;
COMMENT ON VIEW dirty_throttle_batches IS 'Jobs that start_batches() or run_in_batches() have started in this database: one row per job; a role sees those of roles whose privileges it has, and members of pg_read_all_stats see all';
COMMENT ON COLUMN dirty_throttle_batches.name IS 'Name of the batches';
COMMENT ON COLUMN dirty_throttle_batches.table_name IS 'Table whose key defines them; its OID if it no longer exists';
COMMENT ON COLUMN dirty_throttle_batches.statement IS 'Statement that they run';
COMMENT ON COLUMN dirty_throttle_batches.owner IS 'Role that first started them; they run as this role';
COMMENT ON COLUMN dirty_throttle_batches.state IS 'waiting for a free background worker, as column error says then, or for its own to begin; running; suspended, with its resource group; finished; stopped, by stop_batches(), a cancel or at the end of run_time; failed, by the error in column error; or interrupted, as its background worker has ended, for which see the server log. NULL on a standby, which does not know what runs. start_batches() continues a job that is stopped, interrupted or failed';
COMMENT ON COLUMN dirty_throttle_batches.pid IS 'Process ID of the background worker that runs them; NULL if none does';
COMMENT ON COLUMN dirty_throttle_batches.rows IS 'Number of rows that the statement has changed or returned';
COMMENT ON COLUMN dirty_throttle_batches.percent IS 'How much is done, in percent of the estimated number of rows; NULL if that is not known';
COMMENT ON COLUMN dirty_throttle_batches.rate IS 'Rows seen per second, pauses included, mainly in its last seconds';
COMMENT ON COLUMN dirty_throttle_batches.retries IS 'How often a batch was undone and tried again: others held locks, there was a serialization failure, or it took many times as long as it may';
COMMENT ON COLUMN dirty_throttle_batches.paused_time IS 'Total time that the job has paused for the limits of its group, in milliseconds';
COMMENT ON COLUMN dirty_throttle_batches.eta IS 'When it will have finished at the present rate, and not before now; later if the rate falls. NULL if it does not run, or that is not known';
COMMENT ON COLUMN dirty_throttle_batches.updated_at IS 'Time of its last batch; when it has finished, of its end';
COMMENT ON COLUMN dirty_throttle_batches."position" IS 'Key of the last row that it has passed; NULL for roles that do not have the privileges of the owner';
COMMENT ON COLUMN dirty_throttle_batches.error IS 'Last error of a batch: the one that made the job fail, or one after which it is tried again, at most 4096 bytes, with the process that holds the lock it has waited for; or what it waits for; NULL if there is none since the last start, and for roles that do not have the privileges of the owner';
