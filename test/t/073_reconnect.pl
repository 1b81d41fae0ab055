# Whoever connects anew gains nothing by it: what a session leaves unpaid in a group
# when it ends, the next one of its role takes over, and pays before its first
# statement whose kind writes.  No other role does.
#
# takes-about: 5 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(time);

my $slow = 100;        # KB/s, at which nothing is paid while this file runs
my $dt = DirtyThrottle->new('reconnect');

$dt->sql("SELECT set_group_dirty_limit('grp', 0)");
$dt->sql(
	q{CREATE ROLE other LOGIN;
	CREATE ROLE batch LOGIN IN ROLE other;
	ALTER ROLE batch SET dirty_throttle."group" = 'grp';
	ALTER ROLE other SET dirty_throttle."group" = 'grp';
	CREATE ROLE chooser LOGIN;
	GRANT SET ON PARAMETER dirty_throttle."group" TO chooser;
	CREATE TABLE empty (id int);
	GRANT ALL ON empty TO PUBLIC});

sub wal_limit
{
	my ($kb) = @_;
	$dt->sql("SELECT set_group_wal_limit('grp', $kb)");
}

# Forgives all that is owed.
sub clear
{
	wal_limit(0);
	wal_limit($slow);
}

# A statement whose kind writes, which returns this number and writes nothing.
sub writes
{
	my ($n) = @_;
	return "WITH w AS (DELETE FROM empty) SELECT $n";
}

# Writes that much WAL in one call, and ends before it has paid.
sub emit
{
	my ($kb) = @_;
	return "pg_logical_emit_message(false, 'x', repeat('x', ${kb}000))";
}

sub use_and_die
{
	my ($kb, %opt) = @_;
	my $s = $dt->session(%opt);
	my $pid = $s->pid;

	$s->run('SELECT ' . emit($kb) . ', pg_terminate_backend(pg_backend_pid())');
	poll_until(
		sub { $dt->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 })
	  or die 'it has not ended';
}

# Does the statement, the first one of this session whose kind writes, wait for what it
# has taken over?  The session, which is asleep.
sub check_waits
{
	my ($name, $s, $sql) = @_;

	$s->send($sql // writes(1));
	ok($dt->wait_paused($s), "$name: it waits");
	my $row = $dt->session_row($s);
	is($row->{paused_by}, 'wal', "$name: for WAL");
	cmp_ok($row->{wal_debt}, '>', 10000, "$name: for so much, KB");
	is($row->{wal_bytes}, 0, "$name: which it has not written itself");
	return $s;
}

sub check_goes_on
{
	my ($name, $s) = @_;
	is($s->wait->{sqlstate}, undef, $name);
}

# A storm: in any time no more than the limit allows, what a group may save up
# and be ahead (rate.c), and one call.
{
	my $rate = 2000;
	my $call = 1000;
	my $n = 5;

	wal_limit($rate);
	my $start = time;
	use_and_die($call, user => 'batch') for 1 .. $n;
	my $row = $dt->group_row('grp');
	my $seconds = time - $start;
	my $used = $row->{wal_bytes} / 1000;
	cmp_ok($used, '>=', $n * $call, 'a storm: all calls were made');
	cmp_ok($used, '<=', $rate * ($seconds + 0.3) + 1.1 * $call,
		sprintf 'KB in %.1f s, one connection after the other', $seconds);
}

# How it is seen, and ended.
clear();
{
	my $s = $dt->session(user => 'batch');
	my $early = $dt->session(user => 'batch');
	is($early->query(writes(1)), 1, 'nothing is owed: no wait');

	use_and_die(20000, user => 'batch');
	is($_->query(writes(2)), 2, 'who is a member already does not wait')
	  foreach $early, $s;
	$_->quit foreach $early, $s;

	$s = $dt->session(user => 'batch');
	check_waits('the next one', $s);
	my $next = $dt->session(user => 'batch');
	is($next->query(writes(1)), 1, 'one after that does not wait, too');
	$next->quit;
	cmp_ok($dt->group_row('grp')->{wal_debt}, '>', 10000,
		'the group shows it, too');
	$dt->cancel_ms($s);
	check_waits('canceled: the next statement', $s, writes(2));
	$dt->terminate_ms($s);

	# it counts who has logged in
	check_waits('SET ROLE at login',
		my $with_role =
		  $dt->session(user => 'batch', options => '-c role=other'));

	# nobody else
	my $other = $dt->session(user => 'other');
	is($other->query(writes(1)), 1, 'another role does not wait');
	is($dt->session_row($with_role)->{paused_by}, 'wal', '... while this one does');

	wal_limit(10000000);
	check_goes_on('a raised limit ends that', $with_role);
	wal_limit($slow);
	is($with_role->query(writes(3)), 3, 'who has waited once is done');
	$_->quit foreach $other, $with_role;
}

# What else ends it; the waiting session is the only member.
foreach my $end (
	[ 'no limit', q{SELECT set_group_wal_limit('grp', 0)} ],
	[ 'mode observe', q{SELECT alter_resource_group('grp', mode => 'observe')} ],
	[ 'a move', q{SELECT set_session_group($PID, '')} ],
	[ 'the end of the group', q{SELECT drop_resource_group('grp', force => true)} ])
{
	my ($name, $sql) = @$end;

	$dt->sql("SELECT set_group_dirty_limit('grp', 0);
		SELECT alter_resource_group('grp', mode => 'enforce')");
	clear();
	use_and_die(20000, user => 'batch');
	my $s = check_waits($name, $dt->session(user => 'batch'));
	$sql =~ s/\$PID/$s->pid/e;
	$dt->sql($sql);
	check_goes_on("$name ends that", $s);
	$s->quit;
}

# A group that has the same name does not inherit it.
$dt->sql("SELECT set_group_dirty_limit('grp', 0)");
clear();
is($dt->session(user => 'batch')->query(writes(1)), 1, 'a new group: no wait');

# Ways into the group
use_and_die(20000, user => 'chooser', group => 'grp');
{
	my $s = $dt->session(user => 'chooser');
	is($s->query(writes(1)), 1, 'outside of the group: no wait');

	my $t = $dt->session(user => 'chooser', group => 'grp');
	$t->query($_) foreach 'BEGIN', q{SET dirty_throttle."group" = ''}, 'COMMIT';
	is($t->query(writes(1)), 1, 'who leaves in a transaction does so at once');
	$t->quit;

	$s->query('BEGIN');
	$s->query(q{SET LOCAL dirty_throttle."group" = 'grp'});
	check_waits('in a transaction', $s);
	$dt->terminate_ms($s);

	$s = $dt->session(user => 'chooser');
	$s->query(writes(1));
	$dt->sql("SELECT set_session_group(" . $s->pid . ", 'grp')");
	check_waits('moved into it', $s);
	$dt->terminate_ms($s);

	# who is taken out owes that when he comes back, and others of his role do
	clear();
	$s = $dt->session(user => 'chooser', group => 'grp');
	$s->query(writes(1));
	$s->send('SELECT ' . emit(20000) . '; SELECT 2');
	ok($dt->wait_paused($s), 'taken out while it owes');
	$dt->sql("SELECT set_session_group(" . $s->pid . ", '')");
	check_goes_on('it goes on', $s);
	check_waits('another one',
		$t = $dt->session(user => 'chooser', group => 'grp'));
	$dt->terminate_ms($t);
	$dt->sql("SELECT set_session_group(" . $s->pid . ", NULL)");
	check_waits('back again', $s);
	$dt->terminate_ms($s);
}

# Who leaves by himself, but not by a SET outside of a transaction, goes on; who joins
# then pays that.
{
	clear();
	my $s = $dt->session(user => 'chooser', group => 'grp');
	$s->query(writes(1));
	$s->send('SELECT ' . emit(20000));
	ok($dt->wait_paused($s), 'a session owes');
	$dt->cancel_ms($s);
	$s->query($_) foreach 'BEGIN', q{SET dirty_throttle."group" = ''}, 'COMMIT';
	is($dt->session_row($s), undef, '... and leaves');
	check_waits('... the next one',
		my $t = $dt->session(user => 'chooser', group => 'grp'));
	is($s->query(writes(1)), 1, '... it does not wait itself');
	$dt->terminate_ms($t);
	is($s->query(writes(2)), 2, '... nor when the other one has ended');
	is($dt->group_row('grp')->{paused}, 0, '... nobody does');
	$s->quit;
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*) FROM pg_stat_activity
					WHERE usename = 'chooser'") == 0;
			}),
		'when it has ended');
	$s = $dt->session(user => 'chooser', group => 'grp');
	check_waits('... the next one', $s);
	$dt->terminate_ms($s);
}

# Background workers of extensions never pay after a transaction.
SKIP:
{
	my $library = compile_library('worker');
	skip 'test/fault/worker.c cannot be compiled here', 2 unless $library;

	clear();
	$dt->sql('CREATE DATABASE work');
	$dt->sql(q{ALTER DATABASE work SET dirty_throttle."group" = 'grp'});
	my $launcher = $dt->session(dbname => 'work');
	$launcher->query(
		"CREATE FUNCTION launch(text) RETURNS int AS '$library' LANGUAGE c");
	my $pid = $launcher->query(
		"SELECT launch('SELECT " . emit(20000) =~ s/'/''/gr . "')");
	ok(poll_until(sub { ($dt->group_row('grp')->{wal_debt}) > 10000 }),
		'a background worker owes');
	$dt->sql("SELECT pg_terminate_backend($pid, 180000)");
	$pid = $launcher->query("SELECT launch(\$x\$$MAY_WRITE\$x\$)");
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*) FROM dirty_throttle_sessions
					WHERE pid = $pid AND paused_by = 'wal' AND wal_debt > 10000");
			}),
		'... and when it has ended, the next one waits');
	$dt->sql("SELECT pg_terminate_backend($pid, 180000)");
	$launcher->quit;
}

# Many roles: each pays its own.
clear();
use_and_die(20000, user => 'batch');
$dt->sql(join ';',
	map { qq{CREATE ROLE r$_ LOGIN; ALTER ROLE r$_ SET dirty_throttle."group" = 'grp'} }
	  1 .. 70);
use_and_die(500, user => "r$_") for 1 .. 70;
check_waits('beside 70 other roles', my $s = $dt->session(user => 'batch'));
use_and_die(20000, user => 'chooser', group => 'grp');
check_waits('one more with a large debt',
	my $late = $dt->session(user => 'chooser', group => 'grp'));
my $nearly_new = $dt->session(group => 'grp');
is($nearly_new->query(writes(1)), 1, '... which nobody else waits for');
$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off; SELECT pg_reload_conf()');
check_goes_on('no throttling ends that', $_) foreach $s, $late;

$dt->finish;
