--
-- run_in_batches(): what it takes for {batch}, and what it refuses.  The tests
-- test/t/09?_batches*.pl run such jobs; docs/troubleshooting.md has other refusals.
--
\set SHOW_CONTEXT never
\pset format unaligned
CREATE EXTENSION dirty_throttle;
SET client_min_messages = error;	-- no notices with times

CREATE TABLE orders (id int PRIMARY KEY, state text, n int DEFAULT 0);
INSERT INTO orders SELECT i, 'New' FROM generate_series(1, 1000) AS i;
CREATE PROCEDURE again(statement text, INOUT rows bigint DEFAULT NULL, INOUT finished boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
	CALL run_in_batches('again', 'orders', statement, max_rows => 300, unthrottled => true, rows => rows, finished => finished);
	PERFORM forget_batches('again');
END $$;

-- What stands for the condition
CALL again('UPDATE orders SET n = n + 1 WHERE {batch}');
CALL again('UPDATE orders SET n = n + 1 WHERE { Batch }');
CALL again('UPDATE orders AS o SET n = n + 1 WHERE {batch o}');
CALL again('UPDATE orders AS "my ""O""" SET n = n + 1 WHERE {batch "my ""O"""}');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch orders} AND id % 2 = 0');
CALL again('UPDATE orders o SET n = o.n + 1 FROM orders p WHERE {batch o} AND {batch p} AND o.id = p.id');
CALL again('UPDATE orders SET n = n + 1, state = ''{batch}'' WHERE NOT {batch} IS NOT TRUE -- {batch}
	/* {batch x */ ;');
CALL again($$UPDATE orders SET n = n + 1, state = $x${batch}$x$ || E'\'{batch' || U&'{batch}' WHERE {batch}$$);
CALL again('WITH x AS (SELECT id FROM orders WHERE {batch}) UPDATE orders SET n = n + 1 WHERE id IN (TABLE x)');
CALL again('SELECT FROM orders WHERE {batch}');
CALL again('MERGE INTO orders o USING (VALUES (1)) AS x ON {batch o} WHEN MATCHED THEN UPDATE SET n = n + 1');
SELECT n, state, count(*) FROM orders GROUP BY n, state ORDER BY n;

-- What does not
CALL again('UPDATE orders SET n = n + 1 WHERE ''{batch}'' IS NOT NULL');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch.id}');
CALL again('UPDATE orders SET n = n + 1 WHERE {batches}');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch U&"\0061"}');
CALL again('UPDATE orders SET n = n + $1 WHERE {batch}');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch} AND state = ''open');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch} ORDER BY id');
CALL again('UPDATE orders SET n = n + 1 FROM orders AS o WHERE {batch}');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch o}');
CALL again('UPDATE orders SET n = n + 1 WHERE {batch}; SELECT 1');
CALL again('');
CALL again('CREATE TABLE x AS SELECT * FROM orders WHERE {batch}');
CALL again('EXPLAIN UPDATE orders SET n = n + 1 WHERE {batch}');
CALL again('CALL again(''{batch}'') /* */ {batch}');
CALL run_in_batches('again', 'orders', 'UPDATE orders SET n = 0 WHERE {batch}', start => 'one');
CALL run_in_batches('again', 'orders', 'UPDATE orders SET n = 0 WHERE {batch}', run_time => '1 ms');
CALL run_in_batches('again', 'orders', 'UPDATE orders SET n = 0 WHERE {batch}', batch_time => '2 years');
CALL run_in_batches('again', 'orders', 'UPDATE orders SET n = 0 WHERE {batch}', key => 'id,');
CALL run_in_batches(repeat('x', 64), 'orders', 'UPDATE orders SET n = 0 WHERE {batch}');
CALL run_in_batches('again', 'orders');
SELECT start_batches('again');
CALL run_in_batches('again', 'no_orders', 'UPDATE orders SET n = 0 WHERE {batch}');

-- Where it cannot commit
CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS $$
DECLARE r bigint; f boolean; BEGIN CALL again('UPDATE orders SET n = 0 WHERE {batch}', r, f); END $$;
SELECT in_function();
DO $$ DECLARE r bigint; f boolean; BEGIN
	CALL again('UPDATE orders SET n = 0 WHERE {batch}', r, f);
EXCEPTION WHEN division_by_zero THEN NULL;
END $$;
CREATE PROCEDURE definer() LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE r bigint; f boolean; BEGIN CALL again('UPDATE orders SET n = 0 WHERE {batch}', r, f); END $$;
CALL definer();
BEGIN;
SAVEPOINT s;
CALL again('UPDATE orders SET n = 0 WHERE {batch}');
ROLLBACK;
SELECT 1 \; CALL again('UPDATE orders SET n = 0 WHERE {batch}');
SET default_transaction_read_only = on;
CALL again('UPDATE orders SET n = 0 WHERE {batch}');
RESET default_transaction_read_only;
SELECT n, count(*) FROM orders GROUP BY n ORDER BY n;

DROP PROCEDURE definer, again;
DROP FUNCTION in_function;
DROP TABLE orders;
DROP EXTENSION dirty_throttle;
