# However a session ends, it is not a member any more, and what it owes is
# repaid by its group; 103 tests how fast.
#
# A session may end by itself before it is terminated:
# expect-in-log: WARNING:  PID [0-9]+ is not a PostgreSQL backend process
# takes-about: 12 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 8000;      # KB/s
my $blocks = 800;      # of table t: 6.5 MB, that is 0.8 s
my $dt = DirtyThrottle::Life->new('exit',
	conf => 'dirty_throttle.max_commit_pause = 20s');
my $node = $dt->node;

$dt->limit(grp => $limit);
$dt->table('t');
$dt->table('fresh');
$dt->sql(insert_sql('t', $blocks));

my $owed_kb = $blocks * $dt->block_kb;
my $begun;             # when its last rewrite did

# Dirties the whole table under one command, which pays after its transaction.
my $type = 'int';
sub rewrite
{
	$begun = time;
	$type = $type eq 'int' ? 'bigint' : 'int';
	return DirtyThrottle::pays_after("ALTER TABLE t ALTER id TYPE $type");
}

# The session, whose process is gone or will be soon, leaves nothing behind
# but a debt, and that goes at the group's rate.
sub check_left
{
	my ($what, $pid, %expect) = @_;

	ok( poll_until(
			sub { $dt->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }),
		"$what: the backend is gone");
	my $row = $dt->group_row('grp');
	my $start = time;
	is("$row->{members} $row->{paused}",
		'0 0', "$what: no member is left, nor a pause");
	is($dt->sql('SELECT count(*) FROM dirty_throttle_sessions'),
		0, "$what: nor a session");
	# less what was repaid since its statement began, and the 120 ms that any
	# group may have saved up
	cmp_ok($row->{dirty_debt}, '>',
		0.95 * $owed_kb - $limit * ($start - $begun + 0.12),
		"$what: its debt is left")
	  unless $expect{no_debt};
	is($dt->left_over, '', "$what: which goes by itself");
}

sub member
{
	my (%opt) = @_;
	return $dt->session(group => 'grp', %opt);
}

# \q while the debt is carried
$dt->set_conf('dirty_throttle.max_commit_pause', '100ms');
{
	my $s = member();
	$s->run(rewrite());
	is($dt->group_row('grp')->{paused},
		0, 'quit: the session does not pause any more');
	$s->quit;
	check_left('quit', $s->pid);
}
$dt->set_conf('dirty_throttle.max_commit_pause', '20s');

# pg_terminate_backend, where it sleeps after its transaction or in flight
{
	my $s = member();
	$s->send(rewrite());
	ok($dt->wait_paused($s, 'after transaction'), 'terminate: it pauses');
	$dt->terminate_ms($s);
	check_left('terminate after transaction', $s->pid);

	$s = member();
	$s->send(insert_sql('fresh', 50000));
	ok($dt->wait_paused($s, 'in flight'), 'terminate: it pauses');
	$dt->terminate_ms($s);
	check_left('terminate in flight', $s->pid, no_debt => 1);
}

# the client is killed; that is noticed while the session sleeps only when
# the server is told to look
{
	my $check = "SET client_connection_check_interval = '100ms'";
	my $s = member();
	$s->query($check);
	$s->send(insert_sql('fresh', 50000));
	ok($dt->wait_paused($s, 'in flight'), 'client killed: it pauses');
	$s->hang_up;
	check_left('client killed, in flight', $s->pid, no_debt => 1);

	$s = member();
	$s->query($check);
	$s->query(rewrite());
	# what is not worth a pause may be left
	cmp_ok($dt->group_row('grp')->{dirty_debt}, '<', $limit * 0.01,
		'a command that pauses after its end while its client is watched pays all');
	$s->send(rewrite());
	ok($dt->wait_paused($s, 'after transaction'), 'client killed: it pauses');
	$s->hang_up;
	check_left('client killed, after transaction', $s->pid);

	$s = member();
	$s->send(rewrite());
	ok($dt->wait_paused($s, 'after transaction'), 'client killed: it pauses');
	$s->hang_up;
	check_left('client killed, not noticed', $s->pid, no_debt => 1);
}

# a timeout that ends the session while it owes
{
	my $s = member();
	$s->query('BEGIN');
	$s->query(rewrite());
	$type = $type eq 'int' ? 'bigint' : 'int';    # that is rolled back
	$s->query("SET idle_in_transaction_session_timeout = '200ms'");
	check_left('idle_in_transaction_session_timeout', $s->pid);
}

# a transaction that has failed and is still open
{
	my $s = member();
	$s->query('BEGIN');
	$s->query(rewrite());
	$type = $type eq 'int' ? 'bigint' : 'int';
	is($s->run('SELECT 1/0')->{sqlstate}, '22012', 'failed: as it should');
	is($s->run('SELECT 1')->{sqlstate}, '25P02', 'failed: still open');
	$s->quit;
	check_left('quit in a failed transaction', $s->pid, no_debt => 1);
}

# in the middle of a transaction, and with a temporary table to be removed
{
	my $s = member();
	$s->query('CREATE TEMP TABLE tmp AS SELECT generate_series(1, 1000) i');
	$s->query('BEGIN');
	$s->query(rewrite());
	$type = $type eq 'int' ? 'bigint' : 'int';
	$s->quit;
	check_left('quit in a transaction', $s->pid);
}

# the session ends itself
{
	my $s = member();
	$s->run('SELECT pg_terminate_backend(pg_backend_pid())');
	check_left('terminates itself', $s->pid, no_debt => 1);
}

# logins that fail, before and after the session has joined
$dt->sql(q{CREATE ROLE full LOGIN CONNECTION LIMIT 0;
	CREATE ROLE lib LOGIN;
	ALTER ROLE lib SET session_preload_libraries = 'no_such_library';
	ALTER ROLE ALL SET dirty_throttle."group" = 'grp'});
foreach my $case (
	[ 'full', qr/too many connections for role/ ],
	[ 'lib',  qr/could not access file "no_such_library"/ ],
	[ 'who',  qr/role "who" does not exist/ ])
{
	my ($user, $message) = @$case;
	# with no input: psql may be gone before that could be written
	my ($out, $err) = PostgreSQL::Test::Utils::run_command(
		[ 'psql', '-X', '-c', 'SELECT 1',
			$node->connstr('postgres') . " user=$user" ]);
	like($err, $message, "login of $user fails");
}
$dt->sql('ALTER ROLE ALL RESET dirty_throttle."group"');
is($dt->left_over, '', 'failed logins leave nothing behind');

# Many that come and go at once, most of them by force.
{
	my @s = map { member() } 1 .. 20;
	is($dt->group_row('grp')->{members}, 20, '20 members');
	$_->send('DO $$BEGIN PERFORM pg_sleep(600); END$$') foreach @s;
	$_->hang_up foreach @s[ 0 .. 9 ];
	$dt->sql('SELECT pg_terminate_backend(pid) FROM dirty_throttle_sessions');
	is($dt->left_over, '', '20 members have gone');
	$_->quit foreach @s;
}

# The next session finds the place as if it were new.
{
	my $s = member();
	my $row = $dt->session_row($s);
	is("$row->{blocks_dirtied} $row->{pauses} $row->{paused_time} $row->{dirty_debt}",
		'0 0 0 0', 'a new session starts with nothing');
	$s->quit;
}

is($dt->crashes, '', 'no crash');
$dt->stop;
done_testing();
