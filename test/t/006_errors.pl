# Errors, savepoints, procedures: what a transaction pays, when, and to whom.
#
# expect-in-log: WARNING:  there is no transaction in progress
# expect-in-log: WARNING:  AbortTransaction while in COMMIT state
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 30000;    # KB/s

my $dt = DirtyThrottle->new('errors');
$dt->limit(grp_a => $limit);
$dt->limit(grp_b => 0);
$dt->create_sleep_tables;
$dt->sql('CREATE TABLE t (id int, filler text) WITH (fillfactor = 10)');
my $s = $dt->session(group => 'grp_a');

sub rows
{
	my ($n) = @_;
	return "SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

# Forget what was owed and credited so far.
sub fresh_limit
{
	my ($group, $kb) = @_;

	$dt->limit($group => 0);
	$dt->limit($group => $kb);
}

# The statements end with this SQLSTATE (undef: none), and pay for what they
# dirty, at least so many blocks, at the limit, or at another one.
sub check_pays
{
	my ($name, $sql, $sqlstate, $min_blocks, $kb) = @_;
	$kb //= $limit;

	my $r = $dt->check_limit($name, 'grp_a', sub { $s->run($sql) },
		limit => $kb);
	is($r->{result}{sqlstate}, $sqlstate, "$name: the error");
	ok($r->{blocks} >= $min_blocks, "$name: $r->{blocks} blocks");
	is($dt->group_row('grp_a')->{paused},
		0, "$name: nobody pauses");
}

# An abort by an error pays.
check_pays('an error in flight',
	'INSERT INTO t SELECT 1 / (1001 - i), repeat(\'x\', 800)
		FROM generate_series(1, 2000) i', '22012', 1000);

check_pays('an error in COPY',
	"COPY t FROM STDIN (DELIMITER ',');\n"
	  . join('', map { "$_," . 'x' x 800 . "\n" } 1 .. 1000)
	  . "oops,x\n\\.\n",
	'22P02', 900);

check_pays(
	'an error after all was dirtied at once',
	'DO $$ BEGIN
		FOR i IN 1..10 LOOP
			ALTER TABLE rewrite ALTER id TYPE int USING id + 1;
		END LOOP;
		RAISE EXCEPTION USING ERRCODE = \'P0001\';
	 END $$', 'P0001', 500, $limit / 4);

# A transaction block that has failed pays, and does not hang.
check_pays('a failed transaction block',
	'BEGIN; INSERT INTO t ' . rows(500) . ';'
	  . ' ALTER TABLE rewrite ALTER id TYPE int USING id + 1;'
	  . ' SELECT 1 / 0; SELECT 1; SELECT 2; ROLLBACK', '22012', 500);

check_pays('COMMIT of a failed transaction block',
	'BEGIN; INSERT INTO t ' . rows(500) . '; SELECT 1 / 0; COMMIT',
	'22012', 500);

# What has been rolled back to a savepoint was dirtied all the same.
check_pays(
	'savepoints',
	'BEGIN; SAVEPOINT a; INSERT INTO t ' . rows(300) . ';
		ROLLBACK TO a; INSERT INTO t ' . rows(300) . ';
		RELEASE a; SAVEPOINT b; INSERT INTO t ' . rows(300) . '; COMMIT',
	undef, 900);

check_pays(
	'an error, ROLLBACK TO SAVEPOINT',
	'BEGIN; INSERT INTO t ' . rows(300) . '; SAVEPOINT a;
		INSERT INTO t ' . rows(300) . '; SELECT 1 / 0;
		ROLLBACK TO a; INSERT INTO t ' . rows(300) . '; COMMIT',
	'22012', 900);

# Caught exceptions
check_pays(
	'exceptions caught in plpgsql',
	q{DO $$ BEGIN
		FOR i IN 1..30 LOOP
			BEGIN
				INSERT INTO t
					SELECT 1 / (31 - j), repeat('x', 800)
					FROM generate_series(1, 40) j;
			EXCEPTION WHEN division_by_zero THEN
				NULL;
			END;
		END LOOP;
	 END $$}, undef, 900);

# Procedures with COMMIT and ROLLBACK
$dt->sql(
	q{CREATE PROCEDURE load(n int, rows int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..n LOOP
			INSERT INTO t
				SELECT j, repeat('x', 800) FROM generate_series(1, rows) j;
			IF i % 2 = 0 THEN COMMIT; ELSE ROLLBACK; END IF;
		END LOOP;
	END $$});
check_pays('a procedure of small transactions',
	'CALL load(50, 20)', undef, 1000);
check_pays('a procedure of large transactions',
	'CALL load(4, 250)', undef, 1000);
check_pays('a DO block of transactions',
	'DO $$ BEGIN CALL load(10, 50); COMMIT; CALL load(10, 50); END $$',
	undef, 1000);

# Each of its transactions pays, not the last one for all: it does not begin the
# second one before, for half a minute.
{
	my $used = $dt->session_row($s)->{blocks_dirtied};

	$dt->limit(grp_a => 0);
	$dt->set_conf('dirty_throttle.transaction_grace', '100s', $s);
	$dt->limit(grp_a => 1);
	$s->send('CALL load(10, 5)');
	ok($dt->wait_paused($s, 'after transaction'), 'a transaction of a procedure pays');
	cmp_ok($dt->session_row($s)->{blocks_dirtied} - $used, '<', 25,
		'before the next one begins');
	$dt->limit(grp_a => 0);
	is($s->wait->{sqlstate}, undef, 'then it goes on');
}

# A transaction below the grace does not pause in flight, one above does.
my $before;
foreach my $grace ('10s', '0')
{
	$dt->limit(grp_a => 0);
	$dt->set_conf('dirty_throttle.transaction_grace', $grace, $s);
	$dt->limit(grp_a => 100);
	$s->query('BEGIN');
	$before = $dt->session_row($s)->{pauses};
	$s->query('INSERT INTO t ' . rows($grace eq '0' ? 5 : 50));
	my $in_flight = $dt->session_row($s)->{pauses} - $before;
	my $debt = $dt->session_row($s)->{dirty_debt};
	$dt->limit(grp_a => 1000);
	$s->query('COMMIT');
	my $all = $dt->session_row($s)->{pauses} - $before;

	if ($grace eq '0')
	{
		ok($in_flight > 0, 'above the grace: pauses in flight');
		next;
	}
	is($in_flight, 0, 'below the grace: no pause in flight');
	ok($debt > 200, "but a debt of $debt KB");
	ok($all > 0, 'which is paid after the commit');
}
$dt->limit(grp_a => 0);
$dt->set_conf('dirty_throttle.transaction_grace', '50ms', $s);

# What earlier transactions have left is paid before the first statement of the
# next one that writes, and not in flight.
$dt->set_conf('dirty_throttle.max_commit_pause', '0', $s);
$dt->limit(grp_a => 1);
$s->query(DirtyThrottle::pays_after(
		'ALTER TABLE rewrite ALTER id TYPE int USING id + 1'));
my $debt = $dt->session_row($s)->{dirty_debt};
ok($debt > 300, 'a debt from an earlier transaction');
$dt->limit(grp_a => 1000);
$before = $dt->session_row($s)->{pauses};
$s->query("BEGIN; $MAY_WRITE");
cmp_ok($dt->session_row($s)->{dirty_debt}, '<', 20, 'it waits until that is paid');
is($dt->session_row($s)->{pauses}, $before + 1, 'in one pause');
$s->query('SELECT count(*) FROM t');
$s->query('LOCK t');
is($dt->session_row($s)->{pauses},
	$before + 1, 'the transaction does not pay for it in flight');
$s->query('COMMIT');
$dt->limit(grp_a => 0);
$dt->set_conf('dirty_throttle.max_commit_pause', '20s', $s);

# An abort by a cancel does not pay (that it is quick is in another test):
# the session can do the next thing.
$dt->put_to_sleep($s, 'grp_a', 'in flight');
$dt->cancel_ms($s);
ok($dt->session_row($s)->{dirty_debt} > 5, 'a cancel leaves a debt');
$dt->limit(grp_a => 0);

# In a transaction block: the cancel, or the timeout, aborts it, ROLLBACK does
# not pay: it must not fail, for there is nothing else that the client can do.
foreach my $timeout (0, 1)
{
	fresh_limit(grp_a => 1);
	$s->query('SET statement_timeout = 300') if $timeout;
	$s->query('BEGIN');
	$s->send('INSERT INTO sleep ' . rows(100));
	ok($timeout || $dt->wait_paused($s, 'in flight'), 'a transaction block pauses');
	$dt->cancel_ms($s) unless $timeout;
	is($s->wait->{sqlstate}, '57014', 'it is cancelled') if $timeout;
	$before = $dt->session_row($s)->{pauses};
	is($s->run('ROLLBACK')->{sqlstate}, undef, 'ROLLBACK has no error');
	is($dt->session_row($s)->{pauses},
		$before, 'ROLLBACK after a cancel does not pay');
	$dt->limit(grp_a => 0);
	is($s->run('SELECT 1')->{sqlstate}, undef, 'and ends the transaction');
	$s->run('ROLLBACK; RESET statement_timeout');
}

# SET LOCAL: the transaction pays to that group, and then leaves it.
$s->quit;
$dt->sql("SELECT dirty_throttle_reset()");
$s = $dt->session(group => 'grp_a');
fresh_limit(grp_b => 10);
fresh_limit(grp_a => $limit);
$s->send(DirtyThrottle::pays_after(
		'BEGIN; SET LOCAL dirty_throttle."group" = \'grp_b\';'
		  . ' ALTER TABLE rewrite ALTER id TYPE int USING id + 1; COMMIT'));
ok($dt->wait_paused($s, 'after transaction'), 'SET LOCAL: pays');
is($dt->session_row($s)->{group_name},
	'grp_b', 'to the group that was set for the transaction');
ok($dt->group_row('grp_b')->{blocks_dirtied} >= 50, 'which has counted it');
is($dt->group_row('grp_a')->{blocks_dirtied},
	0, 'the other one has not');
$dt->limit(grp_b => 0);
$s->wait;
is($s->query('SHOW dirty_throttle."group"'), 'grp_a', 'then it is back');
is($dt->group_row('grp_b')->{members}, 0, 'and has left it');
is($dt->group_row('grp_a')->{members}, 1, 'a member of one group');

# The same when a failed block has paid, and for a session without a group.
$s->quit;
$s = $dt->session;
my $result = $dt->check_limit('SET LOCAL in a block that fails', 'grp_b',
	sub {
		$s->run('BEGIN; SET LOCAL dirty_throttle."group" = \'grp_b\';'
			  . ' INSERT INTO t ' . rows(400) . '; SELECT 1 / 0; SELECT 1; ROLLBACK');
	},
	limit => $limit);
is($result->{result}{sqlstate}, '22012', 'SET LOCAL in a block that fails');
cmp_ok($result->{blocks}, '>=', 400, 'it pays: blocks');
is($s->query('SHOW dirty_throttle."group"'), '', 'then there is no group');
is($dt->session_row($s), undef, 'it is no member');
is($dt->group_row('grp_b')->{members}, 0, 'of any group');

# A function's SET clause: a member while it runs.
$dt->sql(
	q{CREATE FUNCTION load_b(n int) RETURNS void LANGUAGE plpgsql
		SET dirty_throttle."group" = 'grp_b' AS $$
	BEGIN
		INSERT INTO t
			SELECT i, repeat('x', 800) FROM generate_series(1, n) i;
	END $$});
my $r = $dt->check_limit('a function with a SET clause', 'grp_b',
	sub { $s->run('SELECT load_b(800)') }, limit => $limit);
is($r->{result}{sqlstate}, undef, 'a function with a SET clause');
cmp_ok($r->{blocks}, '>=', 800, 'is throttled: blocks');
is($dt->group_row('grp_b')->{members}, 0, 'and leaves the group');
$s->quit;

# Commands that commit while they hold locks for the session pay when they
# are done: then nobody waits for those locks, and the work is complete.
$dt->sql('CREATE TABLE locked (id int, filler text) WITH (fillfactor = 10);
	INSERT INTO locked ' . rows(200) . ';
	CREATE INDEX locked_id ON locked (id);
	CREATE TABLE locked2 (LIKE locked INCLUDING ALL);
	INSERT INTO locked2 SELECT * FROM locked;
	CREATE TABLE parted (id int) PARTITION BY LIST (id);
	CREATE TABLE part1 PARTITION OF parted FOR VALUES IN (1)');

# VACUUM pauses while it works, too; here it finds no work to do.
$dt->sql('VACUUM locked, locked2');
my @commands = (
	[ 'CREATE INDEX CONCURRENTLY locked_cic ON locked (filler)',
		"SELECT indisvalid FROM pg_index
		 WHERE indexrelid = 'locked_cic'::regclass" ],
	[ 'REINDEX INDEX CONCURRENTLY locked_id',
		"SELECT indisvalid FROM pg_index
		 WHERE indexrelid = 'locked_id'::regclass" ],
	[ 'REINDEX TABLE CONCURRENTLY locked',
		"SELECT count(*) = 0 FROM pg_class WHERE relname ~ '_ccnew|_ccold'" ],
	[ 'DROP INDEX CONCURRENTLY locked_cic',
		"SELECT to_regclass('locked_cic') IS NULL" ],
	[ 'ALTER TABLE parted DETACH PARTITION part1 CONCURRENTLY',
		"SELECT count(*) = 0 FROM pg_inherits
		 WHERE inhparent = 'parted'::regclass" ],
	[ 'VACUUM locked, locked2', 'SELECT true' ],
	[ 'ANALYZE locked, locked2',
		"SELECT count(*) = 2 FROM pg_class
		 WHERE relname IN ('locked', 'locked2') AND reltuples >= 200" ],
	[ 'VACUUM FULL locked, locked2', 'SELECT true' ],
	[ 'CLUSTER locked USING locked_id', 'SELECT true' ],
	[ 'REINDEX SCHEMA public', 'SELECT true' ]);
my $other = $dt->session(options => '-c lock_timeout=1s');
foreach (@commands)
{
	my ($command, $done) = @$_;

	$s = $dt->session(group => 'grp_a');
	$dt->sql('CHECKPOINT');
	fresh_limit(grp_a => 1);
	$s->send(DirtyThrottle::pays_after($command));
	ok($dt->wait_paused($s, 'after transaction'), "$command: pays");
	is($dt->sql($done), 't', 'when it is done');
	is( $dt->sql('SELECT count(*) FROM pg_locks
			WHERE pid = ' . $s->pid),
		0, 'and holds no lock any more');
	is($other->run('BEGIN; LOCK locked, locked2; COMMIT')->{sqlstate},
		undef, 'which others wait for');
	is($dt->session_row($s)->{pauses}, 1, 'it is its only pause');
	$dt->limit(grp_a => 0);
	is($s->wait->{sqlstate}, undef, 'it succeeds');
	$s->quit;
}

# SET LOCAL of max_commit_pause is for the pause after that transaction.
$s = $dt->session;
$s->query(q{SET dirty_throttle.max_commit_pause = '20s';
	SET dirty_throttle."group" = 'grp_a'});
fresh_limit(grp_a => 1);
cmp_ok(
	elapsed_ms(
		sub {
			$s->query(DirtyThrottle::pays_after(
				q{BEGIN; SET LOCAL dirty_throttle.max_commit_pause = '300ms';
				ALTER TABLE rewrite ALTER id TYPE int USING id + 1; COMMIT}));
		}),
	'>=', 300, 'SET LOCAL of max_commit_pause: ms');
cmp_ok($dt->session_row($s)->{dirty_debt},
	'>', 200, 'SET LOCAL of max_commit_pause: the rest is owed');
$dt->limit(grp_a => 0);

# A ROLLBACK in a procedure frees the plan of the CALL, if that has parameters; and
# what comes next gets its memory.
my $statements = join '', map { "PERFORM count(*) FROM t WHERE id > n + $_ AND filler LIKE '%$_%' ORDER BY 1; " } 1 .. 20;
$dt->sql(qq{CREATE PROCEDURE rolls_back(n int) LANGUAGE plpgsql AS \$\$
	BEGIN INSERT INTO t VALUES (n, 'x'); ROLLBACK; $statements END \$\$});
my $calls = PostgreSQL::Test::Utils::tempdir() . '/calls.sql';
append_to_file($calls, "\\set n random(1, 9)\nCALL rolls_back(:n);\n");
{
	local $ENV{PGOPTIONS} = '-c dirty_throttle.group=grp_a';
	command_ok([ 'pgbench', '-n', '-t', 20, '-M', 'extended', '-f', $calls, '-d', $dt->node->connstr('postgres') ],
		'CALLs with a parameter of what rolls back');
}

# After its commit a transaction fails, and so ends once more: it is charged
# once, and the session goes on.
my $library = compile_library('fail_at_end');
SKIP:
{
	skip 'no library can be compiled here', 3 unless $library;
	$dt->sql("CREATE FUNCTION fail_at_end() RETURNS void LANGUAGE c AS '$library';
		CREATE TABLE unseen (filler text) WITH (fillfactor = 10, autovacuum_enabled = off);
		VACUUM pg_class, pg_attribute, pg_type;
		INSERT INTO unseen SELECT repeat('x', 800) FROM generate_series(1, 100);
		CHECKPOINT");
	# with no limit, it is charged at its end
	$dt->limit(grp_c => 0);
	my $failing = $dt->session(group => 'grp_c');
	$failing->query('BEGIN; SELECT fail_at_end(); SELECT count(*) FROM unseen');
	is($failing->run('COMMIT')->{sqlstate}, 'XX000', 'a commit that fails');
	is($failing->query('SELECT 1'), 1, 'then the session goes on');
	between($dt->session_row($failing)->{blocks_dirtied}, 100, 110,
		'and was charged for it: blocks');
	$failing->quit;
}

$dt->finish;
