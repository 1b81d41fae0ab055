--
-- Any name of 1 to 63 bytes that is not blank and has no control characters
-- works everywhere.  One that is too long is refused everywhere, and never
-- truncated; a blank one and control characters, where a group is named.
--
-- The names are random but the same in every run.  The first one that fails
-- ends it with what went wrong, so the only good output is none.
--
CREATE EXTENSION dirty_throttle;
SET client_min_messages = warning;	-- no notices of set_group_dirty_limit()

CREATE FUNCTION random_number(seed int, what text, below int) RETURNS int
LANGUAGE sql IMMUTABLE AS
$$SELECT ('x' || substr(md5(seed || what), 1, 7))::bit(28)::int % below$$;

-- A name of exactly so many bytes, if the characters allow it.
CREATE FUNCTION random_name(seed int, bytes int) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	alphabets text[] := ARRAY[
		'abcdefghijklmnopqrstuvwxyz0123456789_',
		'abcDEF''"\`;,.:$%&()[]{}<>=+-*/|!?^~@# ',
		'''"\ ',
		'aé ß Ж ñ"''',
		'x中€ไ' || U&'\200B\FEFF\0301',
		'🐘𝔘aé中''\'];
	alphabet text := alphabets[1 + random_number(seed, 'alphabet', 6)];
	name text := '';
	next text;
	i int := 0;
BEGIN
	WHILE octet_length(name) < bytes LOOP
		i := i + 1;
		next := substr(alphabet,
					   1 + random_number(seed, 'c' || i, length(alphabet)), 1);
		IF octet_length(name) + octet_length(next) > bytes THEN
			next := 'z';
		END IF;
		name := name || next;
	END LOOP;
	RETURN CASE WHEN name ~ '^ +$' THEN repeat('z', bytes) ELSE name END;
END $$;

-- As random as that, of every length, and some that mean something elsewhere.
CREATE TABLE good_names AS
SELECT i, random_name(i, 1 + i % 63) AS name FROM generate_series(1, 126) AS i
UNION ALL
SELECT 1000 + n::int, name
FROM unnest(ARRAY['select', 'group', 'default', 'DEFAULT', 'null', 'NULL',
                  'none', 'on', 'off', 'true', 'all', 'current', 'reset', '0',
                  '-1', '1e10', ' .', '''', '''''', '"', '""', '\', '\\',
                  '$user', '$1', '%', '%s', '%n', 'a b', 'a,b', 'a.b',
                  'dirty_throttle.group', 'grp', 'Grp', 'GRP', ' grp', 'grp ',
                  '--', '/*', ';', '{', '}', '()', '$$',
                  'x''); SELECT drop_resource_group(''x', repeat('''', 63),
                  repeat('\', 63), repeat('"', 63), repeat('é', 31) || 'z',
                  repeat('中', 21), repeat('🐘', 15) || '中'])
     WITH ORDINALITY AS n(name, n);
SELECT count(*), min(octet_length(name)), max(octet_length(name)),
       count(DISTINCT octet_length(name)) AS lengths,
       count(DISTINCT name) > 150 AS enough
FROM good_names;

-- What the server knows of the groups and this session, as one value.
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ',
       (SELECT jsonb_agg(jsonb_build_array(group_name,
                                           coalesce(dirty_limit, 0), members)
                         ORDER BY group_name COLLATE "C")
        FROM dirty_throttle_groups),
       (SELECT jsonb_agg(group_name) FROM dirty_throttle_sessions),
       to_jsonb(current_setting('dirty_throttle.group')))
$$;
CREATE FUNCTION expected_state(name text, rate float8, member boolean)
RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', jsonb_build_array(jsonb_build_array(name, rate, member::int)),
                 CASE WHEN member THEN jsonb_build_array(name) END,
                 to_jsonb(CASE WHEN member THEN name ELSE '' END))
$$;

-- The whole life of a group of that name, renamed to another halfway.  Each
-- change is in force when it has committed.
CREATE PROCEDURE live(name text, other text, rate float8) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM create_resource_group(name);
	COMMIT;
	ASSERT state() = expected_state(name, 0, false), 'create: ' || state();
	PERFORM set_group_dirty_limit(name, rate);
	COMMIT;
	ASSERT state() = expected_state(name, rate, false), 'limit: ' || state();

	PERFORM set_config('dirty_throttle.group', name, false);
	ASSERT state() = expected_state(name, rate, true), 'set_config: ' || state();
	RESET dirty_throttle."group";
	ASSERT state() = expected_state(name, rate, false), 'RESET: ' || state();
	EXECUTE format('SET dirty_throttle."group" = %L', name);
	ASSERT state() = expected_state(name, rate, true), 'SET: ' || state();

	IF name <> other THEN
		PERFORM rename_resource_group(name, other);
		COMMIT;
		ASSERT state() = expected_state(other, rate, true), 'rename: ' || state();
		BEGIN
			EXECUTE format('SET dirty_throttle."group" = %L', name);
			ASSERT false, 'the old name is still good';
		EXCEPTION WHEN undefined_object THEN
			ASSERT state() = expected_state(other, rate, true),
				'SET to the old name: ' || state();
		END;
		EXECUTE format('SET dirty_throttle."group" = %L', other);
		ASSERT state() = expected_state(other, rate, true), 'SET: ' || state();
	END IF;

	PERFORM dirty_throttle_reset(other);
	PERFORM reset_group_dirty_limit(other);
	COMMIT;
	ASSERT state() = expected_state(other, 0, true), 'reset: ' || state();
	SET dirty_throttle."group" = '';
	PERFORM drop_resource_group(other);
	COMMIT;
	ASSERT state() = '""', 'drop: ' || state();
	EXECUTE (SELECT format('SELECT public.set_group_dirty_limit(%L, %s)', name, rate));
	PERFORM drop_resource_group(name, force => true);
	COMMIT;
	ASSERT state() = '""', 'force: ' || state();
END $$;

DO $$
DECLARE
	n good_names;
	lived int := 0;
BEGIN
	FOR n IN SELECT * FROM good_names ORDER BY i LOOP
		RAISE DEBUG 'name % of % bytes', to_jsonb(n.name), octet_length(n.name);
		CALL live(n.name, random_name(n.i + 5000, 1 + n.i * 7 % 63), n.i);
		lived := lived + 1;
	END LOOP;
	ASSERT lived = (SELECT count(*) FROM good_names), lived;
END $$;
SELECT * FROM dirty_throttle_groups;

--
-- Too long, by a byte or by much, and where a character crosses the limit.
-- Truncated, they would all be the name of a group that exists.
--
CREATE TABLE bad_names AS
SELECT i, CASE WHEN i % 2 = 0 THEN random_name(i, 64 + i / 20)
               ELSE random_name(i, 64 - i % 3 - 1) ||
                    CASE i % 3 WHEN 0 THEN 'x' WHEN 1 THEN 'é' ELSE '中' END
          END AS name
FROM generate_series(1, 100) AS i
UNION ALL
SELECT 1001, repeat('x', 64)
UNION ALL
SELECT 1002, repeat('x', 62) || 'é'
UNION ALL
SELECT 1003, repeat('x', 60) || '🐘'
UNION ALL
SELECT 1004, repeat('x', 100000);
SELECT count(*), min(octet_length(name)) FROM bad_names;

-- What the name would be, cut at byte 63, whole characters or not.
CREATE FUNCTION truncated(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN convert_from(substr(convert_to(name, 'UTF8'), 1, 63), 'UTF8');
EXCEPTION WHEN character_not_in_repertoire THEN
	WHILE octet_length(name) > 63 LOOP
		name := left(name, -1);
	END LOOP;
	RETURN name;
END $$;

CREATE ROLE regress_dirty_throttle;
CREATE FUNCTION refused(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
DO $$
DECLARE
	n bad_names;
	twin text;
	before text;
	command text;
	result text;
	tried int := 0;
BEGIN
	PERFORM create_resource_group('other', 5);
	COMMIT;
	FOR n IN SELECT * FROM bad_names ORDER BY i LOOP
		twin := truncated(n.name);
		PERFORM create_resource_group(twin, 7);
		PERFORM set_config('dirty_throttle.group', 'other', false);
		before := state();
		FOREACH command IN ARRAY ARRAY[
			'SELECT create_resource_group(%L)',
			'SELECT set_group_dirty_limit(%L, 1)',
			'SELECT reset_group_dirty_limit(%L)',
			'SELECT rename_resource_group(%L, ''new'')',
			'SELECT rename_resource_group(''other'', %L)',
			'SELECT drop_resource_group(%L)',
			'SELECT drop_resource_group(%L, true, true)',
			'SELECT dirty_throttle_reset(%L)',
			'SELECT set_config(''dirty_throttle.group'', %L, false)',
			'SET dirty_throttle."group" = %L',
			'SET LOCAL dirty_throttle."group" = %L',
			'ALTER ROLE regress_dirty_throttle SET dirty_throttle."group" = %L']
		LOOP
			result := refused(format(command, n.name));
			IF result <> '22023' OR state() <> before THEN
				RAISE WARNING 'name % of % bytes: %: % %', to_jsonb(left(n.name, 100)),
					octet_length(n.name), format(command, '...'), result, state();
			END IF;
			tried := tried + 1;
		END LOOP;
		RESET dirty_throttle."group";
		PERFORM drop_resource_group(twin);
		COMMIT;
	END LOOP;
	PERFORM drop_resource_group('other');
	ASSERT tried = 12 * (SELECT count(*) FROM bad_names), tried;
END $$;
SELECT * FROM dirty_throttle_groups;
SELECT rolname, setconfig
FROM pg_db_role_setting JOIN pg_roles ON pg_roles.oid = setrole;

-- Blank, and with control characters: also in the text of all definitions.
SELECT name, refused(format('SELECT create_resource_group(%L)', name)) AS create,
       refused(format('SELECT drop_resource_group(%L)', name)) AS drop,
       refused(format('SET dirty_throttle."group" = %L', name)) AS set,
       refused(format('ALTER ROLE regress_dirty_throttle SET dirty_throttle.groups = %L',
                      quote_ident(name) || ' id=1')) AS text
FROM unnest(ARRAY[' ', '   ', E'\t', E'a\nb', E'a\x01', E'\x7f']) AS name;

-- The message has the name and its length.
SET dirty_throttle."group" = 'a234567890123456789012345678901234567890123456789012345678901234';
\echo :LAST_ERROR_SQLSTATE

RESET client_min_messages;
DROP ROLE regress_dirty_throttle;
DROP FUNCTION refused, truncated, state, expected_state, random_name, random_number;
DROP PROCEDURE live;
DROP TABLE good_names, bad_names;
DROP EXTENSION dirty_throttle;
