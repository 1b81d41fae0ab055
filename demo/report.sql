-- The table at the end: sessions, and the total of each group of several.

\pset footer off
\pset null ''
\pset border 1

SELECT example, session, group_name AS "group", kb_limit AS "limit",
       blocks AS "blocks dirtied", round(ms::numeric, 1) AS "ms",
       round(kb_per_s) AS "KB/s measured",
       round((100 * kb_per_s / kb_limit)::numeric, 1) AS "% of limit",
       round(reference) AS "reference KB/s",
       round((100 * reference / kb_limit)::numeric, 1) AS "reference %"
FROM (SELECT example, session::text, group_name, kb_limit, blocks, ms,
             kb_per_s, reference, group_name AS sort_group, 0 AS sort_total
      FROM demo.measured
      UNION ALL
      SELECT example, 'total', group_name, kb_limit, blocks, ms,
             kb_per_s, reference, group_name, 1
      FROM demo.measured_groups
      WHERE sessions > 1) AS rows
ORDER BY example, sort_group, sort_total, session;

\pset tuples_only on
\pset format unaligned
SELECT 'KB/s = blocks dirtied x ' || trim_scale(current_setting('block_size')::numeric / 1000)
       || ' / seconds (pg_stat_statements); a total''s ms is the longest of its sessions.'
UNION ALL
SELECT 'Reference: the figures in the commercial Resource Manager''s manual, on its machine.'
UNION ALL
SELECT 'Each group within 98 % to 101 % of its limit, its members within 3 % of each other: '
       || CASE WHEN ok THEN 'yes' ELSE 'NO' END
FROM demo.verdict;
