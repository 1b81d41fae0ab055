# A session that pays after its transaction holds nobody up: the transaction
# is over for everybody else.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

# No pause in flight here.
my $dt = DirtyThrottle->new('after_commit',
	conf => "dirty_throttle.transaction_grace = 1h");
my $limit = 1;    # KB/s, a quarter of an hour for 100 blocks

$dt->limit(grp_a => 0);
$dt->sql('CREATE TABLE t (id int PRIMARY KEY, filler text)
	WITH (fillfactor = 10)');
$dt->sql('CREATE DATABASE other');
my $other = $dt->session;

my $insert = "INSERT INTO t
	SELECT i, repeat('x', 800) FROM generate_series(1, 100) i";

# A new member that does this, and then pays for longer than this test takes.
sub payer
{
	my ($sql) = @_;
	my $s = $dt->session(group => 'grp_a');

	$dt->sql('TRUNCATE t');
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $limit);
	$s->send($sql);
	ok($dt->wait_paused($s, 'after transaction'),
		'a session pays after its transaction');
	return $s;
}

# Does it pay still?
sub pays
{
	my ($s) = @_;
	my $row = $dt->session_row($s);

	return $row && defined $row->{paused_since};
}

# Let it go, without an error.
sub release
{
	my ($s, $name) = @_;

	$dt->limit(grp_a => 0);
	is($s->wait->{sqlstate}, undef, "$name: the payer has no error");
	$s->quit;
}

# What somebody else does while the session pays is done before it has paid.
sub check_undelayed
{
	my ($name, $s, $code) = @_;

	$code->();
	ok(pays($s), "$name: it is done, and the session pays still");
}

# A SET before it in the same query, which is one transaction, excuses nothing.
release(payer("SET work_mem = '4MB'\\; $insert"), 'after a SET');

# Nothing of the transaction is left.
my $s = payer($insert);
check_undelayed('UPDATE of the same rows',
	$s, sub { $other->query("UPDATE t SET filler = ''") });
is( $dt->sql('SELECT xact_start IS NULL, backend_xid IS NULL,
		backend_xmin IS NULL, state
		FROM pg_stat_activity WHERE pid = ' . $s->pid),
	't|t|t|active',
	'in pg_stat_activity: active, but without a transaction');
is($dt->sql('SELECT count(*) FROM pg_locks WHERE pid = ' . $s->pid),
	0, 'no lock is held');
# 17 is the first in which extensions name their wait events.  Now and then the
# session is awake, to look at its account.
my $wait_event =
  $dt->sql("SELECT current_setting('server_version_num')") >= 170000
  ? 'Extension|DirtyThrottle'
  : 'Extension|Extension';
ok( poll_until(
		sub {
			$dt->sql('SELECT wait_event_type, wait_event
				FROM pg_stat_activity WHERE pid = ' . $s->pid) eq $wait_event;
		}),
	"the wait event is $wait_event");
release($s, 'UPDATE');

$s = payer($insert);
check_undelayed('ALTER TABLE of what it wrote',
	$s, sub { $other->query('ALTER TABLE t ADD x int') });
check_undelayed('a rewrite of what it wrote',
	$s, sub { $other->query('ALTER TABLE t ALTER x TYPE text') });
check_undelayed('CREATE INDEX CONCURRENTLY on what it wrote',
	$s, sub { $other->query('CREATE INDEX CONCURRENTLY ON t (x)') });
check_undelayed('VACUUM FULL of what it wrote',
	$s, sub { $other->query('VACUUM FULL t') });
release($s, 'ALTER TABLE');

# After a ROLLBACK or an error the answer comes at once; the next statement pays.
foreach my $sql ("BEGIN; $insert; ROLLBACK", "$insert; SELECT 1 / 0")
{
	$s = $dt->session(group => 'grp_a');
	$dt->sql('TRUNCATE t');
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $limit);
	$s->run($sql =~ s/; (?=SELECT 1)/\\; /r);
	is($dt->session_row($s)->{pauses}, 0, "$sql: no pause");
	ok($dt->session_row($s)->{dirty_debt} > 500, "$sql: but a debt");
	$s->send($MAY_WRITE);
	ok($dt->wait_paused($s, 'in flight'), "$sql: the next statement pays first");
	release($s, $sql);
}

# NOTIFY
my $listener = $dt->session;
$listener->query('LISTEN news');
$s = payer("BEGIN; NOTIFY news, 'hello'; $insert; COMMIT");
check_undelayed(
	'NOTIFY',
	$s,
	sub {
		ok( poll_until(
				sub { $listener->query('SELECT 1') =~ /"news".*"hello"/s }),
			'a listener is told');
	});
release($s, 'NOTIFY');
$listener->quit;

# A procsignal barrier, which every process must answer
$s = payer($insert);
check_undelayed('DROP DATABASE', $s,
	sub { $other->query('DROP DATABASE other') });
release($s, 'DROP DATABASE');
$dt->sql('CREATE DATABASE other');

# Files that the transaction has dropped are gone.
$dt->sql('CREATE TABLE dropped (id int)');
my $path = $dt->node->data_dir . '/'
  . $dt->sql("SELECT pg_relation_filepath('dropped')");
$dt->sql('INSERT INTO dropped VALUES (1)');
ok(-s $path, 'a file');
$s = payer("BEGIN; $insert; DROP TABLE dropped; COMMIT");
ok(!-s $path, 'is gone while the session pays that has dropped the table');
release($s, 'DROP TABLE');

# Advisory locks of the transaction
$s = payer("BEGIN; SELECT pg_advisory_xact_lock(1); $insert; COMMIT");
check_undelayed('pg_advisory_xact_lock',
	$s, sub { $other->query('SELECT pg_advisory_xact_lock(1)') });
release($s, 'pg_advisory_xact_lock');

# max_commit_pause = 0: nobody waits after a transaction; what is owed is paid
# before the next, without a snapshot.  102 has other values.
$s = $dt->session(group => 'grp_a');
$dt->limit(grp_a => 0);
$dt->set_conf('dirty_throttle.max_commit_pause', '0', $s);
$dt->sql('TRUNCATE t');
$dt->limit(grp_a => 1);
my $pauses = $dt->session_row($s)->{pauses};
$s->query($insert);
is($dt->session_row($s)->{pauses}, $pauses, 'max_commit_pause = 0: no pause');
ok($dt->session_row($s)->{dirty_debt} > 500, 'but a debt');
$s->send("$MAY_WRITE; SELECT 1");
ok($dt->wait_paused($s, 'in flight'), 'which the next statement pays first');
is( $dt->sql('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = '
		  . $s->pid),
	't', 'without a snapshot');
$dt->limit(grp_a => 1_000_000);
is($s->wait->{out}, '1', 'and then it runs');

$dt->finish;
