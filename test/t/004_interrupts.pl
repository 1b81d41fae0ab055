# Cancelling, terminating and timing out sessions that sleep, with everything in
# order afterwards, and nothing forgiven.  They sleep for minutes here, so what
# ends at all was woken.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(time);

my $dt = DirtyThrottle->new(
	'interrupts',
	# a sleeper's locks are to be waited for
	conf => 'dirty_throttle.max_blocking_time = -1');
$dt->limit(grp_a => 0);
$dt->create_sleep_tables;
$dt->sql('CREATE TABLE committed (i int, pad text) WITH (fillfactor = 10)');
my $version = $dt->sql("SELECT current_setting('server_version_num')");

# The books after a session was interrupted in its sleep.
sub check_books
{
	my ($name, $members) = @_;

	# the client may know before the backend has gone
	poll_until(
		sub { $dt->group_row('grp_a')->{members} == $members });
	my $row = $dt->group_row('grp_a');
	is($row->{members}, $members, "$name: members");
	is($row->{paused}, 0, "$name: nobody pauses");
	ok($row->{dirty_debt} > 0, "$name: the debt is still on the books");
}

# Cancel.  What is interrupted after its transaction has succeeded.
foreach my $kind (sort keys %DirtyThrottle::KINDS)
{
	my $s = $dt->session(group => 'grp_a');
	my $in_flight = $DirtyThrottle::KINDS{$kind}[0] eq 'in flight';
	my $result;

	# a message in the log after the pause, where a pending cancel would be an error
	$s->query('SET log_duration = on');
	$dt->put_to_sleep($s, 'grp_a', $kind);
	$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
	$result = $s->wait;
	if ($in_flight || $kind =~ /procedure/)
	{
		is($result->{sqlstate}, '57014', "cancelled $kind: the error");
	}
	else
	{
		is($result->{sqlstate}, undef,
			"cancelled $kind: the statement has succeeded");
	}
	check_books("cancelled $kind", 1);
	ok($dt->session_row($s)->{dirty_debt} > 0,
		"cancelled $kind: it is the session's debt");

	# which it pays before the next transaction: who cancels that, too, does
	# not get the statement
	foreach my $round (1, 2)
	{
		$s->send('INSERT INTO rewrite VALUES (-1)');
		ok($dt->wait_paused($s, 'in flight'),
			"cancelled $kind: pays before the next transaction");
		$dt->cancel_ms($s);
	}
	is($dt->sql('SELECT count(*) FROM rewrite WHERE id = -1'),
		0, "cancelled $kind: then the statement is not run");
	check_books("cancelled $kind, and again", 1);

	$s->send("$MAY_WRITE; SELECT 1");
	ok($dt->wait_paused($s), "cancelled $kind: pays in the end");
	$dt->limit(grp_a => 0);
	is($s->wait->{out}, '1', "cancelled $kind: the session is usable");
	is($s->query('SELECT count(*) FROM rewrite'),
		'50', "cancelled $kind: and works on");
	$s->quit;
}

# Terminate.
foreach my $kind (sort keys %DirtyThrottle::KINDS)
{
	my $s = $dt->session(group => 'grp_a');
	my $pid = $s->pid;

	$dt->put_to_sleep($s, 'grp_a', $kind);
	$dt->sql("SELECT pg_terminate_backend($pid)");
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*) = 0
					FROM pg_stat_activity WHERE pid = $pid") eq 't';
			}),
		"terminated $kind: the session has ended");
	$s->wait;
	check_books("terminated $kind", 0);
}

# What a session has left behind is paid by the next one of its role.
my $s = $dt->session(group => 'grp_a');
$dt->put_to_sleep($s, 'grp_a', 'after commit');
$dt->terminate_ms($s);
my $since = time;
my $before = $dt->group_row('grp_a')->{dirty_debt};
ok($before > 300, 'a debt of 50 blocks');
my $debt = $dt->group_row('grp_a')->{dirty_debt};
cmp_ok($debt, '<=', $before, 'the debt of a session that has gone, KB');
$s = $dt->session(group => 'grp_a');
my $own = $dt->session_row($s)->{dirty_debt};
cmp_ok($own, '<=', $debt, 'which the next one takes over, KB');
cmp_ok($own, '>=', $before - 1 * (time - $since) - 1, 'all that was not repaid at 1 KB/s');
cmp_ok($dt->group_row('grp_a')->{dirty_debt}, '<=', $own, 'it is owed once');

# A member without debt does not wait for others' debts, nor does anybody
# else; a sleeper's locks are another matter.
my $idle = $dt->session(group => 'grp_a');
is($dt->session_row($idle)->{dirty_debt}, 0, 'one after that owes nothing');
my $outsider = $dt->session;
$dt->put_to_sleep($s, 'grp_a', 'in flight');
$idle->query($MAY_WRITE);
$outsider->query('CREATE TEMP TABLE x (); DROP TABLE x');
is($dt->session_row($idle)->{pauses}, 0, 'idle members do not pause');

# lock_timeout of an outsider that waits for the sleeper's lock
$outsider->query('SET lock_timeout = 200');
is($outsider->run('TRUNCATE sleep')->{sqlstate},
	'55P03', 'lock_timeout of an outsider');
$outsider->quit;
ok($dt->wait_paused($s, 'in flight'), 'the sleeper sleeps on');
is($dt->group_row('grp_a')->{paused}, 1, 'it alone');
$dt->cancel_ms($s);
$dt->limit(grp_a => 0);
$idle->quit;

# Timeouts of the sleeper itself.
$s->query('SET statement_timeout = 300');
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 1);
my $result = $s->run($DirtyThrottle::KINDS{'in flight'}[1]);
is($result->{sqlstate}, '57014', 'statement_timeout in flight: the error');
cmp_ok($result->{ms}, '>=', 300, 'statement_timeout in flight: ms');
check_books('statement_timeout in flight', 1);

# It bounds a statement, not the pause after its transaction.
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 150);
$s->query('SET statement_timeout = 2000');
$result = $s->run($DirtyThrottle::KINDS{'after commit'}[1]);
is($result->{sqlstate}, undef, 'statement_timeout does not end the pause'
	  . ' after a transaction with an error');
ok($result->{ms} > 2000, 'nor without one');
$dt->limit(grp_a => 0);
$s->query('RESET statement_timeout');

# transaction_timeout is new in 17.
SKIP:
{
	skip 'no transaction_timeout', 4 if $version < 170000;

	$dt->limit(grp_a => 1);
	$s->query('SET transaction_timeout = 300');
	$result = $s->run($DirtyThrottle::KINDS{'in flight'}[1]);
	is($result->{sqlstate}, '25P04', 'transaction_timeout in flight');
	check_books('transaction_timeout', 0);
	$s = $dt->session(group => 'grp_a');
	$dt->limit(grp_a => 0);
}

# A cancel in the pause after a COMMIT is one of what follows in the same message.
foreach my $case ([ '\; SELECT 5', '57014' ], [ '\; ', undef ], [ '', undef ])
{
	my ($rest, $sqlstate) = @$case;
	my $s = $dt->session(group => 'grp_a');

	$s->query(q{SET log_duration = on; SET dirty_throttle.transaction_grace = '1d'});
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => 1);
	$s->send("BEGIN\\; INSERT INTO committed SELECT i, repeat('x', 800) FROM generate_series(1, 20) i\\; COMMIT$rest");
	ok($dt->wait_paused($s, 'after transaction'), "COMMIT$rest: it pauses");
	$dt->cancel_ms($s);
	is($s->wait->{sqlstate}, $sqlstate, "COMMIT$rest: its end");
	$s->quit;
}
is($dt->sql('SELECT count(*) FROM committed'), 60, 'what was committed stays');
$dt->limit(grp_a => 0);

# A cancel that a function catches: it goes on, and so does the throttling.
$dt->sql(
	q{CREATE TABLE caught (id int, filler text) WITH (fillfactor = 10);
	CREATE FUNCTION catch_cancel(n int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			INSERT INTO caught
				SELECT i, repeat('x', 800) FROM generate_series(1, 100) i;
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
		INSERT INTO caught
			SELECT -i, repeat('x', 800) FROM generate_series(1, n) i;
	END $$});
$dt->limit(grp_a => 1);
$s->send('SELECT catch_cancel(100)');
ok($dt->wait_paused($s, 'in flight'), 'a function pauses');
$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
ok( poll_until(
		sub {
			my $row = $dt->session_row($s);
			$row->{pauses} >= 2 && defined $row->{paused_since};
		}),
	'it catches the cancel, goes on, and pauses again');
is($dt->group_row('grp_a')->{paused}, 1, 'counted once');
$dt->limit(grp_a => 0);
is($s->wait->{sqlstate}, undef, 'it commits');
is($dt->sql('SELECT count(*), max(id) FROM caught'),
	'100|-1', 'what it has done after the cancel');

$dt->finish;
