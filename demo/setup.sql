-- The groups of the reference manual, its figures, and room for ours.

SET client_min_messages = warning;
\set ECHO queries
\o /dev/null
CREATE EXTENSION pg_stat_statements;
CREATE EXTENSION dirty_throttle;
SELECT set_group_dirty_limit('resgrp_a', 12288);
SELECT set_group_dirty_limit('resgrp_b', 6144);
SELECT set_group_dirty_limit('resgrp_c', 3072);
\o
\set ECHO none

CREATE SCHEMA demo;

CREATE TABLE demo.results (
	example int,
	session int,
	group_name name,
	blocks bigint,
	ms float8
);

-- KB/s that the manual reports for each session.
CREATE TABLE demo.reference (example int, session int, kb_per_s float8);
INSERT INTO demo.reference VALUES
	(1, 1, 33692),
	(2, 1, 6072),
	(3, 1, 2467), (3, 2, 2679),
	(4, 1, 2885), (4, 2, 2614), (4, 3, 1554), (4, 4, 1462);

CREATE VIEW demo.measured AS
SELECT r.*, l.dirty_limit AS kb_limit,
       r.blocks * (current_setting('block_size')::float8 / 1000)
       / (r.ms / 1000) AS kb_per_s,
       f.kb_per_s AS reference
FROM demo.results AS r
     JOIN demo.reference AS f USING (example, session)
     LEFT JOIN dirty_throttle_groups AS l
          ON l.group_name = r.group_name AND l.instance IS NULL;

-- A group's rate is the sum of its sessions', as in the manual.
CREATE VIEW demo.measured_groups AS
SELECT example, group_name, kb_limit, count(*) AS sessions,
       sum(blocks) AS blocks, max(ms) AS ms, sum(kb_per_s) AS kb_per_s,
       max(kb_per_s) / min(kb_per_s) - 1 AS spread,
       sum(reference) AS reference
FROM demo.measured
GROUP BY example, group_name, kb_limit;

CREATE VIEW demo.verdict AS
SELECT coalesce(bool_and(kb_per_s / kb_limit BETWEEN 0.98 AND 1.01 AND
                         spread <= 0.03), false)
       AND (SELECT count(*) FROM demo.results) =
           (SELECT count(*) FROM demo.reference) AS ok
FROM demo.measured_groups
WHERE group_name IS NOT NULL;
