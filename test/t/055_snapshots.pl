# A session that pays before a transaction gives its snapshot back only where
# nothing depends on it: not when the code of some function is what runs then,
# nor when a plan has begun to use it.  And the commands of one transaction
# pause between each other, and a procedure after each of its transactions,
# also after one that has run no statement.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use Test::More;
use Time::HiRes qw(time);

my $rate = 1000;    # KB/s
my $owed = 50;      # blocks that a rewrite owes, 0.4 s

my $dt = DirtyThrottle::Life->new('snapshots', conf => 'wal_level = replica');
$dt->limit(a => $rate);
$dt->sql(
	qq{CREATE ROLE app LOGIN;
	ALTER ROLE app SET dirty_throttle."group" = 'a';
	ALTER ROLE app SET dirty_throttle.max_commit_pause = 0;
	GRANT SET ON PARAMETER dirty_throttle.transaction_grace TO app;
	GRANT CREATE ON SCHEMA public TO app;
	CREATE TABLE rewritten (id int, pad text) WITH (fillfactor = 10);
	INSERT INTO rewritten
		SELECT i, repeat('x', 900) FROM generate_series(1, $owed) i;
	ALTER TABLE rewritten OWNER TO app;
	CREATE TABLE k AS SELECT 1 AS i;
	CREATE TABLE res (here int, there int);
	GRANT ALL ON k, res TO app;
	CREATE FUNCTION counted() RETURNS int STABLE LANGUAGE plpgsql
		AS 'BEGIN RETURN (SELECT count(*) FROM k); END';
	CREATE FUNCTION diff(float8, float8) RETURNS float8
		LANGUAGE plpgsql IMMUTABLE AS \$\$
		BEGIN
			BEGIN
				EXECUTE 'SELECT 1';
				RAISE EXCEPTION 'x';
			EXCEPTION WHEN query_canceled OR others THEN NULL;
			END;
			RETURN \$1;
		END \$\$;
	CREATE TYPE span AS RANGE (subtype = float8, subtype_diff = diff);
	CREATE TABLE spans AS
		SELECT span(i, i + 10) AS s FROM generate_series(1, 300) i;
	ANALYZE spans;
	GRANT ALL ON spans TO app;
	CREATE PROCEDURE store(n int) LANGUAGE plpgsql AS \$\$
		DECLARE
			contents bytea := (SELECT convert_to(string_agg(md5(i::text), ''), 'UTF8')
				FROM generate_series(1, 7000) i);
			large_object oid;
		BEGIN
			WHILE n > 0 LOOP
				large_object := lo_from_bytea(0, contents);
				n := n - 1;
				COMMIT;
			END LOOP;
		END \$\$});

my $rewrite = 'ALTER TABLE rewritten ALTER id TYPE int USING id + 1';
my $ms = $owed * $dt->block_kb / $rate * 1000;
my $w = DirtyThrottle::Wire->new($dt->node, user => 'app');
my $app_row =
  "FROM dirty_throttle_sessions WHERE usename = 'app' AND paused_since IS NOT NULL";

sub owe
{
	is($w->query("SET LOCAL dirty_throttle.transaction_grace = '20d'; $rewrite")->{sqlstate},
		undef, 'a command that is paid later');
}

# The same, for as long as the test wants; it sets the limit to $rate again.
sub owe_for_long
{
	$dt->limit(a => 0);
	$dt->limit(a => 1);
	owe();
}

sub wait_until_paused
{
	ok( poll_until(sub { $dt->sql("SELECT count(*) $app_row") == 1 }),
		"$_[0]: it pauses");
}

# Functions that planning calls, in a subtransaction that fails: as it comes,
# and when the pause ends by an error that they catch.
$w->parse('spans', "SELECT count(*) FROM spans WHERE s && '[5.5,17.3]'::span")
  ->sync;
is($w->wait->{sqlstate}, undef, 'a query that calls a function to be planned');
foreach my $timeout (0, 100)
{
	owe();
	$w->query("SET statement_timeout = $timeout");
	my $r = $w->bind('', 'spans')->execute->sync->wait;
	ok(!defined $r->{sqlstate} || $r->{sqlstate} eq '57014',
		"statement_timeout $timeout: no error but that one")
	  or diag explain $r->{errors};
	is($r->{out}, '17', "statement_timeout $timeout: the result") unless $timeout;
	# on a slow machine it may come to that, too
	poll_until(sub { !defined $w->query('SET statement_timeout = 0')->{sqlstate} });
}
$w->query('RESET statement_timeout');
is($w->value('SELECT 1'), 1, 'the session goes on');

# One statement sees one state of the data.
$w->parse('ins', 'INSERT INTO res SELECT (SELECT count(*) FROM k), counted()')
  ->sync;
$w->wait;
owe_for_long();
$w->bind('', 'ins')->execute->sync;
$w->transmit;
wait_until_paused('INSERT');
$dt->sql('INSERT INTO k SELECT generate_series(2, 11)');
$dt->limit(a => $rate);
is($w->wait->{sqlstate}, undef, 'INSERT: no error');
is($dt->sql('SELECT here = there FROM res'),
	't', 'both parts of a statement see the same');

# A query of the client's whose kind writes gives it back: it sees what was committed
# meanwhile.
my $writes = 'WITH w AS (DELETE FROM res WHERE here < 0) SELECT count(*) FROM k WHERE counted() > 0';
owe_for_long();
$w->simple($writes);
$w->transmit;
wait_until_paused('SELECT');
is( $dt->sql("SELECT backend_xmin IS NULL FROM pg_stat_activity
		WHERE pid = (SELECT pid $app_row)"),
	't', 'SELECT: it has no snapshot meanwhile');
$dt->sql('DELETE FROM k WHERE i > 5');
$dt->limit(a => $rate);
is($w->wait->{out}, '5', 'SELECT: it sees what has come meanwhile');

# In a transaction of a higher isolation level it keeps it.
$w->query(q{SET default_transaction_isolation = 'repeatable read'});
owe_for_long();
$w->simple($writes);
$w->transmit;
wait_until_paused('REPEATABLE READ');
$dt->limit(a => $rate);
is($w->wait->{out}, '5', 'REPEATABLE READ: the result');
$w->query('RESET default_transaction_isolation');

# Commands in one transaction: none begins while more than one of them is owed.
my $result;
my $took = elapsed_ms(
	sub {
		$result = $w->query("BEGIN; $rewrite; $rewrite; $rewrite; $rewrite");
	});
is($result->{sqlstate}, undef, 'commands in one transaction: no error');
cmp_ok($took, '>=', 2.5 * $ms,
	'commands in one transaction pay between each other: ms');
my $pauses = "SELECT sum(pauses) FROM dirty_throttle_sessions WHERE usename = 'app'";
my $before = $dt->sql($pauses);
$w->query('COMMIT');
is($dt->sql($pauses), $before, 'but not before the COMMIT');
owe();
$w->query($MAY_WRITE);
$w->query("BEGIN; DECLARE c CURSOR FOR SELECT * FROM k; FETCH 1 FROM c; $rewrite");
$before = $dt->sql($pauses);
$result = $w->query('COMMIT');
is($result->{sqlstate}, undef, 'COMMIT with an open cursor: no error');
is($dt->sql($pauses), $before, 'COMMIT does not pause to close a cursor');
$w->query($MAY_WRITE);
$took = elapsed_ms(
	sub {
		owe();
		$w->query(
			"DO 'BEGIN FOR i IN 1..4 LOOP $rewrite; END LOOP; END'");
	});
cmp_ok($took, '>=', 3.5 * $ms,
	'commands in one DO, after what was owed before: ms');
$w->query($MAY_WRITE);

# Expressions only, in all transactions of a procedure but the first one.  In the end
# it owes for one of them: the last one is paid before the next command.
$w->query($MAY_WRITE);
my $r = $dt->check_limit('a procedure of expressions', 'a',
	sub { $w->query('CALL store(5)') });
is($r->{result}{sqlstate}, undef, 'expressions in a procedure: no error');
cmp_ok($dt->group_row('a')->{dirty_debt}, '<=', 1.5 * $r->{kb} / 5,
	'a procedure pays for transactions that only evaluate expressions: KB owed');

is($dt->crashes, '', 'no crash');
$dt->stop;
done_testing();
