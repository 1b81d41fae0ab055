-- What a DBA types to run a job in batches that protects others.

CREATE TABLE orders AS SELECT i AS id, 'NEW' AS state FROM generate_series(1, 500000) AS i;
ALTER TABLE orders ADD PRIMARY KEY (id);
\set ECHO queries
\o /dev/null
SELECT protect_from('protected');
SET dirty_throttle."group" = 'protected';
SELECT start_batches('lower states', 'orders',
    'UPDATE orders SET state = lower(state) WHERE {batch}');
