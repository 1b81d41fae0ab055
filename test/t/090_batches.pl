# run_in_batches(): each row is changed once, whatever happens in between, to the
# job, its table or its session; it gives way to others; and it can be watched.
#
# takes-about: 30 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Batches;
use PostgreSQL::Test::Utils;
use Test::More;

# Nobody else finds a deadlock but the batches.
my $dt = DirtyThrottle::Batches->new(
	'batches', conf => q{
wal_level = logical
deadlock_timeout = 100s
log_min_messages = log
});
my $s = $dt->session;
my $other = $dt->session;

# A test of a CALL that ends with this SQLSTATE, or with none, and messages.
sub check
{
	my ($name, $r, $sqlstate, @messages) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($r->{sqlstate}, $sqlstate, "$name: the SQLSTATE") or diag $r->{err};
	like($r->{err}, $_, "$name: what it says") foreach @messages;
}

# -------------------------------------------------------------------- once

$dt->counted(t => 5000);
my $mark = $dt->log_mark;
my $r = $dt->batches($s, 'once', 't', max_rows => 300);
check('the first CALL', $r, undef,
	
	qr/NOTICE: .*batch job "once" begins: table t in the order of id, about 5000 rows/,
	qr/NOTICE: .*batch job "once" has finished: 5000 of 5000 rows changed in 24 batches, in 0:/);
is($r->{out}, '5000|t', 'what it returns');
is($dt->counts('t'), '1:5000', 'each row was changed once');
my $job = $dt->job('once');
my $view = $dt->_row(q{SELECT * FROM dirty_throttle_batches WHERE name = 'once'});
is(join(' ', map { $view->{$_} // 'NULL' } qw(table_name owner state pid rows percent retries position error eta)),
	't ' . $dt->sql('SELECT current_user') . ' finished NULL 5000 100 0 ["5000"] NULL NULL', 'the view');
is(join(' ', map { $job->{$_} } qw(batches rows_seen rows_expected)), '24 5000 5000', 'its function');
my $log = $dt->log_since($mark);
like($log, qr/LOG: .*batch job "once" begins: table t in the order of id, about 5000 rows/, 'the log: it begins');
like($log, qr/LOG: .*batch job "once" has finished: 5000 of 5000 rows/, 'the log: it ends');

$r = $dt->batches($s, 'once', 't', max_rows => 300);
check('the same CALL again', $r, undef, qr/NOTICE: .*batch job "once" already finished at \d/,
	qr/HINT: .*restart => true/);
is($r->{out}, '0|t', 'it changes nothing');
is($dt->counts('t'), '1:5000', 'indeed');
is($dt->batches($s, 'once', 't', restart => 'true')->{out}, '5000|t', 'restart');
is($dt->counts('t'), '2:5000', 'each row was changed once more');

# an empty table, and keys from and to
$dt->sql('CREATE TABLE empty (id int PRIMARY KEY, n int)');
is($dt->batches($s, 'empty', 'empty')->{out}, '0|t', 'an empty table');
is($dt->batches($s, 'part', 't', start => 11, finish => 20)->{out}, '10|t', 'start and finish');
is($dt->sql('SELECT min(id), max(id), count(*) FROM t WHERE n = 3'), '11|20|10', 'inclusive');
is($dt->batches($s, 'part', 't', start => 11, finish => 21)->{sqlstate}, '42710', 'another finish');
$dt->sql('UPDATE t SET n = 0');

# other statements
$dt->sql('CREATE TABLE archive (id bigint, n int)');
is($dt->batches($s, 'copy', 't', statement => 'INSERT INTO archive SELECT * FROM t AS "a T" WHERE {batch "a T"} AND id % 2 = 0')->{out},
	'2500|t', 'INSERT');
is($dt->batches($s, 'move', 't', statement => 'WITH gone AS (DELETE FROM t WHERE {batch} AND id > 4990 RETURNING *) INSERT INTO archive SELECT * FROM gone')->{out},
	'10|t', 'DELETE and INSERT');
is($dt->sql('SELECT count(*), count(DISTINCT id) FROM archive'), '2510|2505', 'all of them, once');
is($dt->batches($s, 'look', 't', statement => 'SELECT n FROM t WHERE {batch}')->{out}, '4990|t', 'SELECT');
is($dt->batches($s, 'twice', 't', statement => 'UPDATE t SET n = 1 FROM (SELECT id FROM t WHERE {batch}) x WHERE {batch t} AND t.id = x.id')->{out},
	'4990|t', '{batch} twice');
is($dt->batches($s, 'merge', 't', statement => 'MERGE INTO t USING (SELECT 1) x(a) ON {batch} WHEN MATCHED THEN UPDATE SET n = 0')->{out},
	'4990|t', 'MERGE');
is($dt->counts('t'), '0:4990', 'all rows');

# it says what it would do, and does nothing
$r = $dt->batches($s, 'dry', 't', dry_run => 'true', max_rows => 1000);
check('dry_run', $r, undef, qr/batch job "dry" would begin: table t in the order of id, about \d+ rows/,
	qr/DETAIL:  At least \d+ batches of at most 1000 rows/);
is($r->{out}, '0|f', 'dry_run: what it returns');
is($dt->job('dry'), undef, 'dry_run: nothing is stored');
is($dt->counts('t'), '0:4990', 'dry_run: nothing is changed');

# a partitioned table, along a key of the parent
$dt->sql(q{CREATE TABLE parts (id int, day date, n int DEFAULT 0, PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
	CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
	CREATE TABLE p2 PARTITION OF parts DEFAULT;
	INSERT INTO parts SELECT i, '2024-01-01'::date + i % 60 FROM generate_series(1, 1000) i});
is($dt->batches($s, 'parts', 'parts', max_rows => 77)->{out}, '1000|t', 'partitions');
is($dt->counts('parts'), '1:1000', 'each row');
like($dt->batches($s, 'parts dry', 'parts', dry_run => 'true')->{err},
	qr/an unknown number of rows, as the table was not analyzed/, 'not analyzed: it says so');
is($dt->job('parts')->{rows_expected}, undef, 'not analyzed: NULL');

# A table that was loaded and never analyzed: each batch looks at its own rows only,
# and not at all that are left; and how many there are is known all the same.
$dt->sql(q{CREATE TABLE fresh (id bigint, n int DEFAULT 0, filler text);
	INSERT INTO fresh SELECT i, 0, repeat('x', 60) FROM generate_series(1, 50000) i;
	ALTER TABLE fresh ADD PRIMARY KEY (id);
	ALTER TABLE fresh SET (autovacuum_enabled = off)});
$dt->sql('VACUUM fresh');    # counts its rows, and no more
$r = $dt->batches($s, 'fresh', 'fresh', max_rows => 1000);
check('not analyzed', $r, undef, qr/begins: table fresh .* about 50000 rows/);
is($dt->counts('fresh'), '1:50000', 'not analyzed: each row once');
my $read = q{SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'fresh_pkey'};
$s->quit;    # so that its statistics are there
ok(poll_until(sub { $dt->sql($read) >= 50000 }), 'not analyzed: along the index');
cmp_ok($dt->sql($read), '<', 8 * 50000, 'not analyzed: each row is looked at a few times');
$s = $dt->session;
$r = $dt->batches($s, 'fresh part', 'fresh', start => 40001);
check('not analyzed, a part', $r, undef, qr/an unknown number of rows, as the table was not analyzed/);

# Rows that lie all over the table, and a device on which that is expensive: a look
# ahead does not read and sort the whole table for the sake of a few rows.  The
# statement itself looks at none.
$dt->sql(q{CREATE TABLE mixed (id bigint PRIMARY KEY, n int DEFAULT 0, filler text);
	INSERT INTO mixed SELECT i * 7919 % 20011, 0, repeat('x', 60) FROM generate_series(1, 20000) i});
$dt->sql('ANALYZE mixed');
$s->query('SET random_page_cost = 10000');
$r = $dt->batches($s, 'mixed', 'mixed', max_rows => 1000, statement => 'SELECT FROM mixed WHERE {batch} AND false');
check('rows in another order', $r, undef, qr/has finished: 0 of 20000 rows/);
$s->quit;
ok(poll_until(sub { $dt->sql(q{SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'mixed'}) }),
	'rows in another order: along the index');
is($dt->sql(q{SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'mixed'}), 0,
	'rows in another order: and no other way');
$s = $dt->session;

# ----------------------------------------------- what is refused, and said before

$dt->sql('UPDATE t SET n = 0');
$r = $dt->batches($s, 'none', 't', unthrottled => 'false');
check('in no group', $r, '55000', qr/batch job "none" would not be throttled, as this session is in no resource group/,
	qr/HINT: .*SET dirty_throttle\."group" = 'batch'.*unthrottled => true/);
is($dt->job('none'), undef, 'in no group: nothing is stored');
$r = $dt->batches($s, 'its key', 't', statement => 'UPDATE t SET id = id WHERE {batch}');
check('it changes its key', $r, '0A000', qr/the statement changes column id, which is part of the key/, qr/HINT: .*another index/);
my $n = 0;
# In whatever query of the statement, and by whatever name of the table.
$dt->sql(q{CREATE TABLE generated (id int PRIMARY KEY, v int, n int DEFAULT 0, k int GENERATED ALWAYS AS (v * 10) STORED NOT NULL); CREATE INDEX ON generated (k);
	INSERT INTO generated SELECT i, i FROM generate_series(1, 500) i});
foreach my $case (
	[ 't', 'id', 'WITH u AS (UPDATE t SET id = id WHERE {batch} RETURNING 1) SELECT 1 FROM u' ],
	[ 't', 'id', 'MERGE INTO t USING (SELECT 1) x(a) ON {batch} WHEN MATCHED THEN UPDATE SET id = t.id' ],
	[ 't', 'id', 'INSERT INTO t AS old SELECT * FROM t WHERE {batch} ON CONFLICT (id) DO UPDATE SET id = old.id' ],
	[ 'generated', 'k', 'UPDATE generated SET v = v + 5 WHERE {batch}', key => 'k' ],
	[ 'generated', 'k', 'MERGE INTO generated USING (SELECT 1) x(a) ON {batch} WHEN MATCHED THEN UPDATE SET v = v + 5', key => 'k' ],
	[ 'parts', 'id', 'UPDATE p1 SET id = p1.id FROM parts p WHERE {batch p} AND (p1.day, p1.id) = (p.day, p.id)' ],
	[ 'p1', 'id', 'UPDATE parts p SET id = p.id FROM p1 WHERE {batch p1} AND (p1.day, p1.id) = (p.day, p.id)' ])
{
	my ($table, $column, $statement, @key) = @$case;

	$r = $dt->batches($s, 'its key ' . ++$n, $table, statement => $statement, run_time => '20 s', @key);
	check($statement, $r, '0A000', qr/the statement changes column $column, which is part of the key/);
}
is($dt->batches($s, 'generated', 'generated', key => 'k')->{out}, '500|t', 'along a generated column: it changes another one');
is($dt->counts('generated'), '1:500', 'along a generated column: each row once');
is($dt->batches($s, 'purge', 'generated', key => 'k', statement => 'DELETE FROM generated WHERE {batch}')->{out}, '500|t', 'along a generated column: DELETE');
$dt->sql('CREATE TABLE lines (t bigint, n int DEFAULT 0); INSERT INTO lines SELECT id FROM t, generate_series(1, 3)');
$r = $dt->batches($s, 'another', 't', statement => 'UPDATE lines SET n = 1 WHERE {batch}');
check('another table', $r, '42703', qr/column "id" does not exist/);
$r = $dt->batches($s, 'another', 't', statement => 'UPDATE lines SET n = 1 FROM parts WHERE {batch parts}');
check('another table', $r, '22023', qr/the statement does not name table public\.t, whose key defines the batches/);
is($dt->sql('SELECT sum(n) FROM lines'), 0, 'another table: nothing is changed');
# of another table that is joined there may be more rows
foreach my $statement ('UPDATE lines l SET n = 1 FROM t WHERE {batch t} AND l.t = t.id', 'MERGE INTO lines l USING t ON {batch t} AND l.t = t.id WHEN MATCHED THEN UPDATE SET n = 2',
	'DELETE FROM lines l USING t WHERE {batch t} AND l.t = t.id')
{
	$r = $dt->batches($s, 'lines ' . substr($statement, 0, 5), 't', statement => $statement, max_rows => 1000);
	is($r->{out}, '14970|t', "$statement: more rows, of another table");
}
$r = $s->run('CREATE TEMP TABLE mine AS SELECT 1 AS a; ' . $dt->start_call('temporary', 't', statement => 'UPDATE t SET n = a FROM mine WHERE {batch}'));
check('a temporary table', $r, '0A000', qr/temporary table "mine" cannot be used in batches/, qr/DETAIL: .*background worker/, qr/HINT: .*UNLOGGED/);
$dt->sql(q{CREATE TABLE days (id bigint NOT NULL, day date NOT NULL, at int, n int DEFAULT 0); CREATE INDEX ON days (day); CREATE INDEX ON days (at); CREATE UNIQUE INDEX ON days (day, id);
	INSERT INTO days SELECT i, date '2025-01-01' + i / 3000, i FROM generate_series(0, 11999) i; ANALYZE days});
foreach my $dry_run ('true', 'false')
{
	$r = $dt->batches($s, 'days', 'days', key => 'day', dry_run => $dry_run);
	check("equal keys, dry_run $dry_run", $r, undef, qr/HINT: .*Several rows may have the same day, and all of these are in one batch.*key => 'day, id'/);
}
unlike($dt->batches($s, 'days id', 'days', key => 'day, id')->{err}, qr/HINT/, 'unique keys: nothing to say');
$r = $dt->batches($s, 'at', 'days', key => 'at');
check('a key that may be null', $r, '23502', qr/column at of table "days" may be null/, qr/HINT: .*ALTER TABLE days ALTER at SET NOT NULL/);
$dt->sql('DROP TABLE days');
$dt->limit(batch => 100000);
my $member = $dt->session(group => 'batch');
$r = $dt->batches($member, 'in a group', 't', unthrottled => 'false');
like($r->{err}, qr/DETAIL: .*It runs in resource group "batch"\./, 'in a group: it says so');
is($dt->group_row('batch')->{wal_bytes} > 0, 1, 'in a group: the worker is');
$member->quit;

# ------------------------------------------------------------------ errors

# The statement fails at some row: what was committed stays, and the same CALL
# goes on when that is mended.
$dt->sql('UPDATE t SET n = 0; CREATE TABLE bad (id bigint); INSERT INTO bad VALUES (1234)');
# It is so long that it is not stored in the row itself.
my @wrong = (statement => 'UPDATE t SET n = n + 1 / (1 - (SELECT count(*)::int FROM bad WHERE bad.id = t.id)) WHERE {batch} -- '
	  . $dt->sql('SELECT string_agg(md5(i::text), NULL) FROM generate_series(1, 1000) i'));
$mark = $dt->log_mark;
$r = $dt->batches($s, 'fails', 't', @wrong, max_rows => 100);
check('the statement fails', $r, '22012', qr/division by zero/, qr/HINT: .*SELECT start_batches\('fails', unthrottled => true\) continues after the last batch/);
$job = $dt->job('fails');
is("$job->{state} $job->{rows} $job->{position} $job->{error}", 'failed 1227 ["1227"] division by zero', 'the statement fails: the view');
is($dt->counts('t'), '0:3763, 1:1227', 'the statement fails: what is changed');
like($dt->log_since($mark), qr/LOG: .*batch job "fails" has failed: 1227 of 1227 rows changed in 18 batches, in 0:\d\d:\d\d, of which 0:00:00 paused\n.*DETAIL:  division by zero/,
	'the statement fails: the log');

# dry_run says what that CALL would do.
my $stored = $dt->sql(q{SELECT s::text FROM dirty_throttle_stored_progress() s WHERE error = 'division by zero'});
$r = $dt->batches($s, 'fails', 't', @wrong, max_rows => 100, dry_run => 'true');
check('dry_run of what has failed', $r, undef, qr/NOTICE: .*batch job "fails" would continue after key \{1227\}: table t in the order of id, about \d+ rows/,
	qr/DETAIL: .*It has passed 1227 rows\. At least \d\d batches of at most 100 rows are left\./);
is($r->{out}, '0|f', 'dry_run of what has failed: what it returns');
check('dry_run of what has failed, with another statement', $dt->batches($s, 'fails', 't', dry_run => 'true'), undef,
	qr/batch job "fails" continues with another statement/);
is($dt->batches($s, 'fails', 't', dry_run => 'true', start => 5)->{sqlstate}, '42710', 'dry_run of what has failed: not from another start');
is($dt->sql(q{SELECT s::text FROM dirty_throttle_stored_progress() s WHERE error = 'division by zero'}), $stored, 'dry_run of what has failed: nothing is stored');

$dt->sql('DELETE FROM bad');
$r = $dt->batches($s, 'fails', 't', @wrong);
check('it goes on', $r, undef, qr/NOTICE: .*batch job "fails" continues after key \{1227\}/);
is($r->{out}, '3763|t', 'it goes on: rows of this CALL');
is($dt->counts('t'), '1:4990', 'it goes on: each row once');
is($dt->job('fails')->{error}, undef, 'it goes on: no error any more');
$r = $dt->batches($s, 'fails', 't', @wrong, dry_run => 'true');
check('dry_run of what has finished', $r, undef, qr/NOTICE: .*batch job "fails" already finished at \d/);
unlike($r->{err}, qr/would/, 'dry_run of what has finished: nothing is left');
is($r->{out}, '0|t', 'dry_run of what has finished: what it returns');
$r = $dt->batches($s, 'fails', 't', @wrong, dry_run => 'true', restart => 'true');
check('dry_run of restart', $r, undef, qr/batch job "fails" would begin: table t .*about \d+ rows/);
is($r->{out}, '0|f', 'dry_run of restart: what it returns');

# Nothing was done yet: another statement need not have another name.
$r = $dt->batches($s, 'mended', 't', statement => 'UPDATE t SET n = n / 0 WHERE {batch}');
is($r->{sqlstate}, '22012', 'the first batch fails');
unlike($r->{err}, qr/What was committed/, 'the first batch fails: nothing was committed');
$r = $dt->batches($s, 'mended', 't', statement => 'UPDATE t SET n = n + 0 WHERE {batch}', start => 2000, max_rows => 100);
is($r->{out}, '2991|t', 'mended: it is run, from another start');
$job = $dt->job('mended');
is("$job->{statement} $job->{rows}", 'UPDATE t SET n = n + 0 WHERE {batch} 2991', 'mended: the view');
is($dt->batches($s, 'mended', 't', statement => 'UPDATE t SET n = n / 0 WHERE {batch}', start => 2000)->{sqlstate},
	'42710', 'mended: not any more');

# The COMMIT fails: a deferred constraint.
$dt->sql(q{UPDATE t SET n = 0; CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (0), (1);
	CREATE TABLE child (id int PRIMARY KEY, n int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO child SELECT i, 0 FROM generate_series(1, 500) i});
my @child = (statement => 'UPDATE child SET n = n + CASE WHEN id = 222 AND NOT EXISTS (SELECT FROM bad) THEN 5 ELSE 1 END WHERE {batch}');
$r = $dt->batches($s, 'commit', 'child', @child, max_rows => 50);
check('the COMMIT fails', $r, '23503', qr/violates foreign key constraint/, qr/HINT: .*SELECT start_batches\('commit', unthrottled => true\) continues/);
is($dt->counts('child'), '0:287, 1:213', 'the COMMIT fails: it is undone');
is($dt->job('commit')->{state}, 'failed', 'the COMMIT fails: the view');
$dt->sql('INSERT INTO bad VALUES (0)');
is($dt->batches($s, 'commit', 'child', @child)->{out}, '287|t', 'it goes on after that');
is($dt->counts('child'), '1:500', 'each row once');

# A statement that was wrong is mended in the middle, and goes on from there.
$dt->counted(middle => 500);
$r = $dt->batches($s, 'middle', 'middle', max_rows => 100, statement => 'UPDATE middle SET n = n + 1 / (id <> 250)::int WHERE {batch}');
is($r->{sqlstate}, '22012', 'a wrong statement');
$r = $dt->batches($s, 'middle', 'middle', max_rows => 100);
check('mended in the middle', $r, undef, qr/WARNING: .*batch job "middle" continues with another statement\n.*DETAIL: .*227 rows were changed by the previous one: UPDATE middle SET n = n \+ 1 \//);
is($dt->counts('middle'), '1:500', 'mended in the middle: each row once');

# Rows of one key are in one batch, however long it takes.
$dt->sql('CREATE TABLE ties (day int NOT NULL, n int DEFAULT 0); CREATE INDEX ON ties (day); INSERT INTO ties SELECT i / 30 FROM generate_series(0, 89) i');
is($dt->batches($s, 'ties', 'ties', key => 'day', batch_time => '20 ms', run_time => '60 s',
		statement => 'UPDATE ties SET n = n + 1 + length(pg_sleep(0.01)::text) WHERE {batch}')->{out}, '90|t', 'many rows of a key');

# A table that was never analyzed is not counted, again and again, for nothing.
$dt->sql('CREATE TABLE uncounted (id int PRIMARY KEY, n int DEFAULT 0) WITH (autovacuum_enabled = off); INSERT INTO uncounted SELECT i FROM generate_series(1, 30000) i');
is($dt->batches($s, 'uncounted', 'uncounted', max_rows => 5000)->{out}, '30000|t', 'never analyzed');
$s->quit;
$s = $dt->session;
is($dt->sql(q{SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'uncounted'}), 0, 'never analyzed: it is not read');

# What each batch takes, however small it is: batches grow, and the log says so.
$dt->counted(fixed => 2000);
$mark = $dt->log_mark;
is($dt->batches($s, 'fixed', 'fixed', batch_time => '40 ms',
		statement => 'UPDATE fixed SET n = n + 1 + (SELECT length(pg_sleep(0.03)::text)) WHERE {batch}')->{out}, '2000|t', 'a cost of each batch');
cmp_ok($dt->job('fixed')->{batches}, '<', 60, 'a cost of each batch: they grow all the same');
like($dt->log_since($mark), qr/batch job "fixed": each batch takes at least \d+ ms, however few rows it has\n.*HINT: .*lack an index/, 'a cost of each batch: the log');

# The row of a batch is found where it was, whatever old versions of it there are.
$dt->counted(versions => 300);
my $scans = q{SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelname = 'dirty_throttle_stored_progress_id'};
$s->quit;
my $before = $dt->sql($scans);
$s = $dt->session;
is($dt->batches($s, 'versions', 'versions', max_rows => 1)->{out}, '300|t', 'many batches');
cmp_ok($dt->sql($scans) - $before, '<', 150, 'many batches: not each looks for its row by the index');

# The planner's estimate grows with the table, its number of rows does not.
is($dt->batches($s, 'versions', 'versions', restart => 'true')->{out}, '300|t', 'restart of a table that has grown');
is($dt->job('versions')->{rows_expected}, 300, 'restart of a table that has grown: rows');

# A nightly job has another end each time.
$dt->counted(nights => 300);
is($dt->batches($s, 'nightly', 'nights', finish => 100)->{out}, '100|t', 'the first night');
is($dt->batches($s, 'nightly', 'nights', finish => 200)->{sqlstate}, '42710', 'the second night, without "restart"');
is($dt->batches($s, 'nightly', 'nights', finish => 200, restart => 'true')->{out}, '200|t', 'the second night');
$r = $dt->batches($s, 'nightly', 'nights', finish => 250, restart => 'true', statement => 'UPDATE nights SET n = n + 1 / (id <> 150)::int WHERE {batch}');
is($r->{sqlstate}, '22012', 'the third one ends early');
my $seen = $dt->job('nightly')->{rows};
is($dt->batches($s, 'nightly', 'nights', finish => 300, restart => 'true')->{out}, (300 - $seen) . '|t', 'the fourth one goes on');
is($dt->sql('SELECT min(n), max(n), sum(n) FROM nights'), '1|3|600', 'each row as often as it was due');

# ------------------------------------------------------------------- locks

# Somebody holds a row, longer than the batches wait: they try again.
$dt->counted(l => 1000);
$other->query('BEGIN; UPDATE l SET n = 100 WHERE id = 401');
$dt->send_batches($s, 'locked', 'l', max_rows => 100);
ok($dt->wait_job('locked', "position = '{327}'"), 'it comes to a row that is locked');
ok(poll_until(sub { $dt->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) }), 'it waits for it');
ok(poll_until(sub { !$dt->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) }), 'and does not');
is($dt->sql('SELECT n FROM l WHERE id = 402'), 0, 'what it has done with it is undone');
ok($dt->wait_job('locked', q{clock_timestamp() > updated_at + (rows_expected - rows_seen) / rate * interval '1 s' + interval '2 s'}),
	'when it should have finished is past');
is($dt->sql(q{SELECT eta >= date_trunc('second', now()) FROM dirty_throttle_batches WHERE name = 'locked'}), 't', 'what it says is not');
$other->query('COMMIT');
$r = $s->wait;
is($r->{out}, '1000|t', 'then it goes on');
is($dt->counts('l'), '1:999, 101:1', 'each row once');
$job = $dt->job('locked');
cmp_ok($job->{retries}, '>=', 1, 'retries');
like($job->{error}, qr/canceling statement due to lock timeout/, 'the last error');

# The row is named by its key, also in a partition.
$other->query('BEGIN; UPDATE parts SET n = n WHERE id = 500');
$dt->send_batches($s, 'locked part', 'parts', max_rows => 100);
ok($dt->wait_job('locked part', 'error IS NOT NULL'), 'a row of a partition is locked');
like($dt->job('locked part')->{error}, qr/ holds the row with key \{2024-01-21,500\}\.$/, 'a row of a partition is locked: which one');
$other->query('COMMIT');
is($s->wait->{out}, '1000|t', 'a row of a partition is locked: then it goes on');

# A statement that handles that it has not got a lock has an error of its own.
$dt->counted(handles => 5);
$dt->sql(q{CREATE FUNCTION lock_l() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	UPDATE l SET n = n WHERE id = 450;
	RETURN 1;
	EXCEPTION WHEN lock_not_available THEN
		RAISE EXCEPTION 'not now' USING DETAIL = 'That is its own detail.'; END $$});
$other->query('BEGIN; UPDATE l SET n = n WHERE id = 450');
is($dt->batches($s, 'handles', 'handles', statement => 'UPDATE handles SET n = n + lock_l() WHERE {batch}')->{sqlstate},
	'P0001', 'it handles that a row is locked: its own error');
like($dt->job('handles')->{error}, qr/^not now\. That is its own detail\./, 'it handles that a row is locked: the detail');
$other->query('COMMIT');

# It tries again with fewer rows, and so comes closer to that row.
$other->query('BEGIN; UPDATE l SET n = n WHERE id = 450');
$dt->send_batches($s, 'closer', 'l', max_rows => 100);
ok($dt->wait_job('closer', 'position[1]::int BETWEEN 439 AND 449'), 'all rows before it but a few are done meanwhile');
$other->query('COMMIT');
is($s->wait->{out}, '1000|t', 'and in the end all');

# The last batch is tried again, too, though no keys were left after it.
$dt->counted(last => 10);
$other->query('BEGIN; UPDATE last SET n = 100 WHERE id = 5');
$dt->send_batches($s, 'last', 'last');
ok(poll_until(sub { $dt->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) }), 'the only batch waits for a row');
ok(poll_until(sub { !$dt->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) }), 'it is undone');
$other->query('COMMIT');
is($s->wait->{out}, '10|t', 'it is not taken for the end');
is($dt->counts('last'), '1:9, 101:1', 'each row once');

# The caller's own lock_timeout, if that is shorter, and no other: it is not changed.
$s->query(q{SET lock_timeout = '7min'; SET deadlock_timeout = '3min'; SET log_lock_waits = on});
$dt->batches($s, 'settings', 'l', statement => q{UPDATE l SET n = CASE WHEN current_setting('lock_timeout') = '200ms'
	AND current_setting('deadlock_timeout') = '50ms' AND current_setting('log_lock_waits') = 'off' THEN 7 END WHERE {batch}});
is($dt->counts('l'), '7:1000', 'settings within a batch');
is($s->query(q{SELECT current_setting('lock_timeout'), current_setting('deadlock_timeout'), current_setting('log_lock_waits')}),
	'7min|3min|on', 'and after it');
$s->query(q{SET lock_timeout = '10ms'; SET deadlock_timeout = '30ms'});
$dt->batches($s, 'settings 2', 'l', statement => q{UPDATE l SET n = CASE WHEN current_setting('lock_timeout') = '10ms'
	AND current_setting('deadlock_timeout') = '30ms' THEN 8 END WHERE {batch}});
is($dt->counts('l'), '8:1000', 'shorter ones count');
$s->query('RESET lock_timeout');
$dt->batches($s, 'settings 3', 'l', statement => q{UPDATE l SET n = CASE WHEN current_setting('lock_timeout') = '15ms' THEN 9 END WHERE {batch}});
is($dt->counts('l'), '9:1000', 'at most half of deadlock_timeout');
$s->query('RESET ALL');

# A deadlock: the batch has row 8 and wants row 9, the other one has row 9 and wants
# row 8.  It is the batch that gives way, in whatever order they come to wait.
$dt->sql(q{CREATE TABLE d (id int PRIMARY KEY, n int); INSERT INTO d SELECT i, 0 FROM generate_series(1, 10) i;
	CREATE TABLE go (id int);
	CREATE FUNCTION wait_at_8() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE NEW.id = 8 AND EXISTS (SELECT FROM go) LOOP
			PERFORM set_config('application_name', 'at 8', false), pg_sleep(0.01);
		END LOOP;
		RETURN NEW; END $$;
	CREATE TRIGGER wait_at_8 BEFORE UPDATE ON d FOR EACH ROW EXECUTE FUNCTION wait_at_8()});
$other->query('BEGIN; UPDATE d SET n = n + 10 WHERE id = 9');
$dt->send_batches($s, 'deadlock', 'd');
my $pid = $dt->worker('deadlock');
ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") }), 'the batch waits first');
$other->send('UPDATE d SET n = n + 10 WHERE id = 8; COMMIT');
is($other->wait->{sqlstate}, undef, 'the other one goes on');
is($s->wait->{out}, '10|t', 'and so does the batch, later');
is($dt->counts('d'), '1:8, 11:2', 'each row once');
cmp_ok($dt->job('deadlock')->{retries}, '>=', 1, 'it was undone');

# The batch comes second: it stays at row 8 for a while.
$dt->sql('INSERT INTO go VALUES (1)');
$other->query('BEGIN; UPDATE d SET n = n + 10 WHERE id = 9');
$dt->send_batches($s, 'deadlock 2', 'd', start => 1);
$pid = $dt->worker('deadlock 2');
ok(poll_until(sub { $dt->sql("SELECT application_name FROM pg_stat_activity WHERE pid = $pid") eq 'at 8' }),
	'the batch is at row 8');
$other->send('UPDATE d SET n = n + 10 WHERE id = 8; COMMIT');
my $other_pid = $other->pid;
ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE pid = $other_pid AND NOT granted") }), 'the other one waits first');
$dt->sql('DELETE FROM go');
is($other->wait->{sqlstate}, undef, 'it goes on');
is($s->wait->{out}, '10|t', 'and so does the batch, later');
is($dt->counts('d'), '2:8, 22:2', 'each row once');
like($dt->job('deadlock 2')->{error}, qr/deadlock detected|lock timeout/, 'it was undone');

# A serialization failure at COMMIT: it is tried again. At the end of each statement
# the batch waits for a lock, without a look at any table, and counts.
my $third = $dt->session;
$dt->counted(z => 300);
$dt->sql(q{CREATE TABLE total (id int PRIMARY KEY, n int); INSERT INTO total SELECT i, 0 FROM generate_series(1, 1000) i; ANALYZE total;
	CREATE SEQUENCE ends;
	CREATE FUNCTION wait_at_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM set_config('application_name', 'at the end', false);
		WHILE NOT pg_try_advisory_xact_lock(77) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
		PERFORM nextval('ends');
		RETURN NULL; END $$;
	CREATE TRIGGER wait_at_end AFTER UPDATE ON z EXECUTE FUNCTION wait_at_end()});
$third->query('SELECT pg_advisory_lock(77)');
$s->query(q{SET default_transaction_isolation = 'serializable'});
$other->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM z; UPDATE total SET n = n + 1 WHERE id = 1');
$dt->send_batches($s, 'serializable', 'z', max_rows => 100,
	statement => 'UPDATE z SET n = n + 1 + 0 * (SELECT count(*) FROM total WHERE n < 0)::int WHERE {batch}');
$pid = $dt->worker('serializable');
ok(poll_until(sub { $dt->sql("SELECT application_name FROM pg_stat_activity WHERE pid = $pid") eq 'at the end' }),
	'serializable: the statement is at its end');
is($other->run('COMMIT')->{sqlstate}, undef, 'serializable: the other one commits');
$third->query('SELECT pg_advisory_unlock(77)');
is($s->wait->{out}, '300|t', 'serializable: to the end');
is($dt->counts('z'), '1:300', 'serializable: each row once');
$job = $dt->job('serializable');
is($job->{retries}, 1, 'serializable: it was undone');
like($job->{error}, qr/could not serialize access due to read\/write dependencies/, 'serializable: the error');
is($dt->sql('SELECT last_value FROM ends'), $job->{batches} + 1, 'serializable: after its statement, so at COMMIT');
$dt->sql('DROP TRIGGER wait_at_end ON z');
$third->quit;
$s->query(q{SET default_transaction_isolation = 'repeatable read'});
$other->query('BEGIN; UPDATE z SET n = n + 10 WHERE id = 50');
$dt->send_batches($s, 'repeatable', 'z');
$pid = $dt->worker('repeatable');
ok(poll_until(sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") }), 'repeatable read: it waits');
$other->query('COMMIT');
is($s->wait->{out}, '300|t', 'repeatable read: to the end');
is($dt->counts('z'), '2:299, 12:1', 'repeatable read: each row once');
cmp_ok($dt->job('repeatable')->{retries}, '>=', 1, 'repeatable read: it was undone');
$s->query('RESET ALL');

$dt->finish;
