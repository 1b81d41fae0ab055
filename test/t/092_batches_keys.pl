# run_in_batches() along keys of every kind, compared with the single statement: of
# random values, with ties, sparse and dense, each row of the range is changed once
# and no other one; also when the statement fails in between, and sessions with
# other settings for dates and numbers go on.
#
# takes-about: 5 s
#

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Batches;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Batches->new('batches_keys');
my $seed = $ENV{DT_SEED} // time;
srand $seed;
note "DT_SEED=$seed";
$dt->sql(sprintf 'SELECT setseed(%f)', ($seed % 1000) / 1000);

my $ROWS = 250;

# Settings with which values are written and read in other ways.
my @SETTINGS = (
	q{SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Kathmandu'; SET extra_float_digits = -15; SET intervalstyle = 'sql_standard'},
	q{SET datestyle = 'German'; SET timezone = 'America/St_Johns'; SET extra_float_digits = 0; SET intervalstyle = 'iso_8601'; SET bytea_output = 'escape'},
	q{SET datestyle = 'Postgres, MDY'; SET timezone = 'UTC'; SET intervalstyle = 'postgres_verbose'; SET array_nulls = off; SET search_path = pg_catalog},
	q{SET datestyle = 'ISO, YMD'});
my @sessions = map { my $s = $dt->session; $s->query($_); $s } @SETTINGS;

my $icu = $dt->sql(q{SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'}) > 0;
$dt->sql(q{CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad', 'elated');
	CREATE TYPE pair AS (a int, b text)});
$dt->sql("CREATE TABLE named$_ ()") foreach 1 .. 9;    # a name needs its schema, or not
$dt->sql(q{CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)})
  if $icu;
# In these, collations differ wherever one looks.
my $word = q{CASE WHEN random() < 0.5 THEN chr(97 + (random() * 25)::int) || lower(md5(i::text))
	ELSE chr(65 + (random() * 25)::int) || upper(md5((i / 2)::text)) END};
my $few = q{(random() * 40)::int};

# Name, columns of the key, their values, and the index; the primary key otherwise.
# A later one that is "unique" has values that are.
my @kinds = (
	[ 'int, dense', 'a int', 'i' ],
	[ 'bigint, sparse then dense', 'a bigint', 'CASE WHEN i < 100 THEN -1e17 + i * 1e15 ELSE i END::bigint' ],
	[ 'smallint with ties', 'a smallint', $few, '(a)' ],
	[ 'uuid', 'a uuid', 'md5(i::text)::uuid' ],
	[ 'numeric', 'a numeric', q{CASE i WHEN 7 THEN 'NaN' WHEN 8 THEN 'Infinity' ELSE (random() - 0.5) * 10 ^ (i % 40) END::numeric}, '(a)' ],
	[ 'float8', 'a float8', q{CASE i WHEN 7 THEN 'NaN' WHEN 8 THEN '-Infinity' WHEN 9 THEN '-0' WHEN 10 THEN '0' ELSE (random() - 0.5) * 10.0 ^ (i % 20) END::float8}, '(a)' ],
	[ 'float4', 'a float4', '(random() / 3)::float4', '(a)' ],
	[ 'text, C', 'a text COLLATE "C"', $word, '(a)' ],
	[ 'text, the default', 'a text', $word, '(a)' ],
	[ 'text with quotes and blanks', 'a text', q{$$it's "a\\$$ || repeat(' ', i % 3) || chr(8364 + i)} ],
	[ 'varchar', 'a varchar(50)', $word, '(a)' ],
	[ 'char', 'a char(40)', $word, '(a)' ],
	[ 'name', 'a name', $word, '(a)' ],
	[ 'bytea', 'a bytea', q{decode(md5(i::text), 'hex')} ],
	[ 'timestamptz', 'a timestamptz', q{CASE i WHEN 5 THEN 'infinity' WHEN 6 THEN '-infinity' WHEN 7 THEN '4713-01-01 BC' ELSE timestamptz '2024-03-31' + random() * interval '3 days' END::timestamptz}, '(a)' ],
	[ 'timestamptz with ties', 'a timestamptz', qq{timestamptz '0099-03-31' + $few * interval '100 years'}, '(a)' ],
	[ 'timestamp', 'a timestamp', q{timestamp '1999-12-01' + i * interval '1.000001 days'} ],
	[ 'date', 'a date', qq{date '2024-01-09' + $few}, '(a)' ],
	[ 'time', 'a time', q{time '00:00' + i * interval '7.000003 s'} ],
	[ 'timetz', 'a timetz', q{(time '00:00' + i * interval '7 s') AT TIME ZONE (interval '1 hour' * (i % 5))}, '(a)' ],
	[ 'interval', 'a interval', q{make_interval(months => (i % 7) - 3, days => i, secs => random() * 100)}, '(a)' ],
	[ 'boolean', 'a boolean', 'i % 3 = 0', '(a)' ],
	[ 'inet', 'a inet', q{('10.0.' || (i % 20) || '.' || (i % 9) || '/' || (16 + i % 16))::inet}, '(a)' ],
	[ 'cidr', 'a cidr', q{set_masklen(('10.' || i || '.0.0')::cidr, 16 )} ],
	[ 'macaddr', 'a macaddr', q{('00:00:00:00:00:' || lpad(to_hex(i), 2, '0'))::macaddr} ],
	[ 'varbit', 'a varbit', 'substring(i::bit(9), 1 + i % 4)', '(a)' ],
	[ 'money', 'a money', '(i * 1000.01 - 20000)::numeric::money' ],
	[ 'an enum', 'a mood', q{(enum_range(NULL::mood))[1 + i % 4]}, '(a)' ],
	[ 'an array', 'a int[]', q{CASE WHEN i % 9 = 0 THEN ARRAY[i % 7, NULL] ELSE ARRAY[i % 7, i] END}, '(a)' ],
	[ 'an array of text', 'a text[]', qq{CASE WHEN i % 9 = 0 THEN ARRAY['NULL', NULL] ELSE ARRAY[$word, ',"{}'] END}, '(a)' ],
	[ 'a range', 'a tstzrange', q{tstzrange(timestamptz '2024-03-31' + i % 50 * interval '1 day', CASE WHEN i % 5 > 0 THEN timestamptz '2024-07-31' + random() * interval '1 day' END)}, '(a)' ],
	[ 'a composite type', 'a pair', qq{ROW(i % 9, $word)::pair}, '(a)' ],
	[ 'oid', 'a oid', 'i' ],
	[ 'regclass', 'a regclass', '(SELECT oid FROM pg_class ORDER BY oid OFFSET i LIMIT 1)', '(a)' ],
	[ 'an array of regclass', 'a regclass[]', q{ARRAY[('public.named' || 1 + i % 9)::regclass]}, '(a)' ],
	[ 'pg_lsn', 'a pg_lsn', q{('0/' || to_hex(i * 1000000))::pg_lsn} ],
	[ 'xid8', 'a xid8', 'i::text::xid8' ],
	[ '"char"', 'a "char"', q{chr(1 + i % 120)::"char"}, '(a)' ],
	[ 'jsonb', 'a jsonb', q{to_jsonb(random() * 10 ^ (i % 9))}, '(a)' ],
	[ 'tsvector', 'a tsvector', q{to_tsvector('simple', md5((i / 3)::text))}, '(a)' ],
	[ 'an index with DESC', 'a int', $few, '(a DESC)' ],
	[ 'an index with more columns', 'a int', $few, '(a, n) INCLUDE (bad)' ],
	[ 'a name to quote', '"a ""b"" Ü" int', 'i' ],
	[ 'two columns', 'a int, b text', qq{$few, $word}, '(a, b)' ],
	[ 'two columns, the first one dense', 'a int, b int', '1, i' ],
	[ 'three columns', 'a date, b uuid, c bigint', qq{date '2024-01-09' + i % 3, md5((i % 5)::text)::uuid, i} ],
	[ 'two columns with DESC', 'a int, b date', qq{$few, date '2024-01-09' + i}, '(a DESC, b DESC)' ]);
push @kinds,
  [ 'text, ICU', 'a text COLLATE "und-x-icu"', $word, '(a)' ],
  [ 'text, not deterministic', 'a text COLLATE any_case', $word, '(a)' ],
  [ 'two columns, not deterministic', 'a text COLLATE any_case, b text COLLATE any_case', qq{CASE WHEN i % 2 = 0 THEN 'a' ELSE 'A' END, $word}, '(a, b)' ]
  if $icu;

# Columns and values without their types, as a list of names.
sub names
{
	my ($columns) = @_;
	return map { /^("(?:[^"]|"")+"|\w+)/ } split /, /, $columns;
}

sub create
{
	my ($columns, $values, $index) = @_;
	my @names = names($columns);
	my $key = $index // '(' . join(', ', @names) . ')';

	# a role has at most 100 jobs
	$dt->sql('SELECT forget_batches(name::text) FROM dirty_throttle_batches');
	$dt->sql(qq{DROP TABLE IF EXISTS public.k;
		CREATE TABLE public.k ($columns, n int DEFAULT 0, bad boolean DEFAULT false);
		INSERT INTO public.k SELECT $values FROM generate_series(1, $ROWS) AS i ORDER BY random()});
	$dt->sql(join '', map { "ALTER TABLE public.k ALTER $_ SET NOT NULL;" } @names);
	$dt->sql($index ? "CREATE INDEX k_index ON public.k $index"
		: "ALTER TABLE public.k ADD PRIMARY KEY $key");
	return @names;
}

# The job, which fails at some row, again and again, each time in another session.
sub run_job
{
	my ($name, %opt) = @_;
	my $statement = 'UPDATE public.k SET n = n + 1 / CASE WHEN bad THEN 0 ELSE 1 END WHERE {batch}';
	my $failures = 0;
	my $r;

	for (my $i = 0; $i < 30; $i++)
	{
		my $call = $dt->call($name, 'public.k', statement => $statement,
			max_rows => 1 + int rand 40, %opt);

		$dt->sql('UPDATE public.k SET bad = true WHERE ctid = (SELECT ctid FROM public.k WHERE n = 0 ORDER BY random() LIMIT 1)')
		  if $i < 3;
		$r = $sessions[ $i % @sessions ]->run($call);
		last unless defined $r->{sqlstate};
		last if $r->{sqlstate} ne '22012';
		$failures++;
		$dt->sql('UPDATE public.k SET bad = false WHERE bad');
	}
	return ($r, $failures);
}

my $resumed = 0;

foreach my $kind (@kinds)
{
	my ($name, $columns, $values, $index) = @$kind;
	my @names = create($columns, $values, $index);
	my $key = join ', ', @names;
	my @key = $index ? (key => $key) : ();

	# all of it
	my ($all, $failures) = run_job($name, @key);

	is($all->{sqlstate}, undef, "$name: it ends") or diag $all->{err};
	is($dt->counts('public.k'), "1:$ROWS", "$name: each row once");
	$resumed += $failures;
	$dt->sql('UPDATE public.k SET n = 0');

	# from and to some value of the first column
	my $order = "FROM public.k ORDER BY $names[0]";
	my $low = $dt->sql("SELECT $names[0] $order OFFSET 60 LIMIT 1");
	my $high = $dt->sql("SELECT $names[0] $order OFFSET 170 LIMIT 1");
	my $r = $dt->batches($sessions[3], "$name, a part", 'public.k', @key, max_rows => 17,
		start => \"\$q\$$low\$q\$", finish => \"\$q\$$high\$q\$");
	is($r->{sqlstate}, undef, "$name, a part: it ends") or diag $r->{err};
	my $type = $dt->sql("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'public.k'::regclass AND attnum = 1");
	is($dt->sql(qq{SELECT count(*) FROM public.k WHERE n <> CASE WHEN $names[0] >= \$q\$$low\$q\$::$type
			AND $names[0] <= \$q\$$high\$q\$::$type THEN 1 ELSE 0 END}),
		0, "$name, a part: its rows and no others");
	cmp_ok($dt->sql('SELECT count(*) FROM public.k WHERE n = 1'), '>=', 1, "$name, a part: there are some");
}
cmp_ok($resumed, '>', @kinds, "$resumed times another session went on");

# The same CALL from a session that writes bytea in another way.
create('a bytea', q{decode(md5(i::text), 'hex')});
is($dt->batches($_, 'from bytes', 'public.k', start => \q{'\x01'::bytea}, run_time => '1 s')->{sqlstate}, undef,
	'bytea as "start": the same job in each session') foreach @sessions;

# or names with their schema or without it
create('a regclass[]', q{ARRAY[('public.named' || 1 + i % 9)::regclass]}, '(a)');
is($dt->batches($_, 'from a name', 'public.k', key => 'a', start => \q{ARRAY['public.named1'::regclass]})->{sqlstate}, undef,
	'regclass[] as "start": the same job in each session') foreach @sessions;

# The same "start" and "finish", as each session writes them
$dt->sql(q{CREATE TABLE public.moments (at timestamptz PRIMARY KEY, n int DEFAULT 0);
	INSERT INTO public.moments SELECT timestamptz '2024-03-31 UTC' + i * interval '1 hour' FROM generate_series(1, 10) i});
foreach my $session (@sessions)
{
	my $r = $session->run(q{CALL public.run_in_batches('moments', 'public.moments', 'UPDATE public.moments SET n = n + 1 WHERE {batch}',
		start => to_timestamp(1711850400), finish => to_timestamp(1711864800), unthrottled => true)});
	is($r->{sqlstate}, undef, 'the same start and finish in another session') or diag $r->{err};
}
is($dt->counts('public.moments'), '0:5, 1:5', 'each row once');

# A column that may be null is no key, whether it is in some row or not.
my $r;
$dt->sql('DROP TABLE public.k; CREATE TABLE public.k (a int NOT NULL, b int, n int DEFAULT 0); CREATE INDEX ON public.k (a, b)');
$r = $dt->batches($sessions[3], 'nulls', 'k', key => 'a, b');
is($r->{sqlstate}, '23502', 'a column that may be null: the error');
like($r->{err}, qr/column b of table "k" may be null.*HINT: .*ALTER TABLE k ALTER b SET NOT NULL/s, 'a column that may be null: what it says');
is($dt->batches($sessions[3], 'no nulls', 'k', key => 'a')->{sqlstate}, undef, 'another column may');

# nor one of a domain
$dt->sql('CREATE DOMAIN positive AS bigint; CREATE TABLE public.d (a positive PRIMARY KEY, n int)');
$r = $dt->batches($sessions[3], 'domain', 'public.d');
is($r->{sqlstate}, '0A000', 'a column of a domain: the error');
like($r->{err}, qr/column a of table "d" has a domain as its type.*HINT: .*another "key"/s, 'a column of a domain: what it says');

my $version = $dt->sql('SHOW server_version_num');

# a constraint that not all rows fulfill: of a parent, and one to be validated
$dt->sql(q{CREATE TABLE public.parent (k text PRIMARY KEY, n int DEFAULT 0); CREATE TABLE public.child () INHERITS (public.parent);
	ALTER TABLE public.child ALTER k DROP NOT NULL; INSERT INTO public.child VALUES (NULL)}) if $version < 180000;
$dt->sql(q{CREATE TABLE public.parent (k text, n int DEFAULT 0); CREATE INDEX ON public.parent (k);
	INSERT INTO public.parent VALUES (NULL); ALTER TABLE public.parent ADD CONSTRAINT nn NOT NULL k NOT VALID}) if $version >= 180000;
$r = $dt->batches($sessions[3], 'nulls inherited', 'public.parent', key => 'k', dry_run => 'true');
is($r->{sqlstate}, '23502', 'NULLs in spite of a constraint: the error') or diag $r->{err};

# what is stored does not depend on how names are quoted
$dt->sql(q{DROP TABLE public.k; CREATE TABLE public.k (a int NOT NULL, b int NOT NULL, n int DEFAULT 0); CREATE INDEX ON public.k (a, b);
	INSERT INTO public.k VALUES (1, 1), (1, 2), (2, 1)});
my @quoted = ('quoted', 'public.k', key => 'a, b', statement => 'UPDATE public.k SET n = n + 0 WHERE {batch}');
$dt->batches($sessions[3], @quoted);
$sessions[3]->query('SET quote_all_identifiers = on');
is($dt->batches($sessions[3], @quoted)->{sqlstate}, undef, 'with quote_all_identifiers it is the same job');
$sessions[3]->query('RESET quote_all_identifiers');

# a value that is none of the first column
foreach my $argument ('start', 'finish')
{
	$r = $dt->batches($sessions[3], 'no value', 'public.k', key => 'a, b', $argument => \q{'x'},
		statement => 'UPDATE public.k SET n = 2 WHERE {batch}');
	is($r->{sqlstate}, '22P02', "$argument => 'x': the error");
	like($r->{err}, qr/invalid input syntax for type integer: "x"\n.*HINT: .*values of column a\./s, "$argument => 'x': what it says");
}
$r = $dt->batches($sessions[3], 'a part', 'public.k', key => 'a, b', finish => 1, statement => 'UPDATE public.k SET n = n + 0 WHERE {batch}');
is($r->{out}, '2|t', 'the first of two columns: all rows with that value');

# An index in another order than the usual one.
$dt->sql(q{CREATE TABLE public.orders (a text NOT NULL, b int NOT NULL, n int); CREATE INDEX ON public.orders (a COLLATE "POSIX");
	CREATE INDEX ON public.orders (a text_pattern_ops); CREATE INDEX ON public.orders (b NULLS FIRST); CREATE INDEX ON public.orders (b NULLS FIRST, a DESC)});
foreach my $key ('a', 'b', 'b, a')
{
	$r = $dt->batches($sessions[3], 'other orders', 'public.orders', key => $key);
	is($r->{sqlstate}, '42704', "$key in another order: no key");
	like($r->{err}, qr/in their usual order.*HINT: .*CREATE INDEX CONCURRENTLY ON orders \($key\)/s, "$key in another order: what it says");
}
$dt->sql('DROP TABLE public.orders');

# A table is not read for NULLs where none of its partitions can have any.
$dt->sql(q{CREATE TABLE public.days (day date, id int, n int DEFAULT 0, PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
	CREATE TABLE public.days1 PARTITION OF public.days FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
	CREATE TABLE public.days2 PARTITION OF public.days FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
	INSERT INTO public.days SELECT date '2026-01-01' + i % 50, i FROM generate_series(1, 20000) i});
$dt->sql("VACUUM ANALYZE public.$_") foreach qw(days1 days2 days);
my $reader = $dt->session;
is($dt->batches($reader, 'days', 'public.days', max_rows => 100, run_time => '1 s')->{sqlstate}, undef, 'partitions: it begins');
$reader->quit;
is($dt->sql(q{SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'days_'}), 0, 'partitions: and does not read all');

# what cannot be a key
$dt->sql('CREATE INDEX partial ON public.k (n) WHERE n = 0; CREATE INDEX expression ON public.k ((b + 1)); CREATE INDEX hash ON public.k USING hash (b)');
foreach my $key ('n', 'b', 'b, a')
{
	$r = $dt->batches($sessions[3], 'no key', 'k', key => $key);
	is($r->{sqlstate}, '42704', "$key: no key");
	like($r->{err}, qr/HINT: .*CREATE INDEX CONCURRENTLY ON k \($key\)/, "$key: what to type");
}
like($dt->batches($sessions[3], 'no key', 'k')->{err}, qr/has no primary key.*HINT: .*key => 'created, id'/s, 'no primary key: what to type');

# the server has no CONCURRENTLY for partitioned tables
like($dt->batches($sessions[3], 'no key', 'public.days', key => 'id')->{err}, qr/HINT: .*Use CREATE INDEX ON days \(id\)/, 'a partitioned table: what to type');

# a primary key of another kind
SKIP: {
	skip 'primary keys are B-tree indexes before 18', 2 if $version < 180000;
	skip 'no btree_gist', 2 if $dt->sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'btree_gist'}) == 0;
	$dt->sql('CREATE EXTENSION btree_gist;
		CREATE TABLE public.stays (room int, during tstzrange, n int, PRIMARY KEY (room, during WITHOUT OVERLAPS))');
	$r = $dt->batches($sessions[3], 'no key', 'public.stays');
	is($r->{sqlstate}, '42704', 'a primary key WITHOUT OVERLAPS: the error');
	like($r->{err}, qr/the primary key of table "stays" is not a valid B-tree index\n.*HINT: /s, 'a primary key WITHOUT OVERLAPS: what it says');
}

# Looking ahead is not compiled, however expensive it seems.
SKIP: {
	my $s = $dt->session;

	skip 'no JIT', 2 if $s->query('SET jit = on; SELECT pg_jit_available()') ne 't';
	$dt->sql('CREATE TABLE public.heir () INHERITS (public.k); INSERT INTO public.heir SELECT i, i FROM generate_series(1, 100) i');
	# the worker loads what the session has loaded
	$dt->sql(q{ALTER DATABASE postgres SET session_preload_libraries = 'auto_explain'});
	$s->query(q{LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
		SET auto_explain.log_nested_statements = on; SET jit_above_cost = 0});
	my $log = -s $dt->node->logfile;
	is($dt->batches($s, 'not compiled', 'public.k', key => 'a, b', statement => 'UPDATE public.k SET n = 0 WHERE {batch}')->{sqlstate},
		undef, 'a child without an index: it runs');
	$dt->sql('ALTER DATABASE postgres RESET session_preload_libraries');
	$s->quit;
	my @plans = grep { /WITH TIES/ } split /LOG:  00000: duration|LOG:  duration/, slurp_file($dt->node->logfile, $log);
	is_deeply([ scalar(@plans) > 0, grep { /JIT:/ } @plans ], [ 1 ], 'a child without an index: looking ahead is not compiled');
}

$_->quit foreach @sessions;
$dt->finish;
