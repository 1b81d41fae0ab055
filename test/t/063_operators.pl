# Who operates the server, superusers, roles with REPLICATION and members of
# pg_monitor, is in no group by a default of the database or of the server, however
# that is set; but by name, as everybody: by a setting of the role, a SET,
# PGOPTIONS, join_group() or a move.  Others are members in all cases.
#
# takes-about: 8 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

# expect-in-log: WARNING:  resource group "missing" does not exist

my $dt = DirtyThrottle::Life->new('operators', conf => q{
max_worker_processes = 16
max_connections = 60
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
my $node = $dt->node;

# d is that of the defaults, n that of a name.
$dt->sql(
	q{CREATE ROLE su SUPERUSER LOGIN;
	CREATE ROLE repl REPLICATION LOGIN;
	CREATE ROLE mon LOGIN IN ROLE pg_monitor;
	CREATE ROLE monitors IN ROLE pg_monitor;
	CREATE ROLE mon_of_mon LOGIN IN ROLE monitors;
	CREATE ROLE mon_noinherit NOINHERIT LOGIN IN ROLE pg_monitor;
	CREATE ROLE plain LOGIN;
	CREATE ROLE owner LOGIN CREATEDB CREATEROLE;
	CREATE ROLE stats LOGIN IN ROLE pg_read_all_stats;
	SELECT alter_resource_group('d'), alter_resource_group('n');
	CREATE TABLE t (id int, pad text) WITH (fillfactor = 10, parallel_workers = 2);
	GRANT ALL ON t TO PUBLIC});
my @operators = qw(su repl mon mon_of_mon mon_noinherit);
my @ordinary = qw(plain owner stats);
my %expected = ((map { $_ => 'none' } @operators), (map { $_ => 'd' } @ordinary));
foreach my $role (@operators, @ordinary)
{
	$dt->sql(qq{GRANT SET ON PARAMETER dirty_throttle."group" TO $role;
		SELECT grant_group_use('n', '$role')});
}

# The view is asked first, and both when a statement has begun.
sub check_group
{
	my ($name, $s, $expected) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query($MAY_WRITE);
	is(($dt->session_row($s) // { group_name => 'none' })->{group_name},
		$expected, "$name: the view");
	is($s->query('SHOW dirty_throttle."group"'),
		$expected eq 'none' ? '' : $expected, "$name: SHOW");
}

sub check_all
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $role (@operators, @ordinary)
	{
		my $s = $dt->session(user => $role);

		check_group("$name, $role", $s, $expected{$role});
		$s->quit;
	}
}

# ------------------------------------------------------------------- by default

foreach my $case (
	[ 'ALTER DATABASE', 'ALTER DATABASE postgres' ],
	[ 'ALTER ROLE ALL', 'ALTER ROLE ALL' ],
	[ 'ALTER ROLE ALL IN DATABASE', 'ALTER ROLE ALL IN DATABASE postgres' ])
{
	my ($name, $alter) = @$case;

	$dt->sql(qq{$alter SET dirty_throttle."group" = 'd'});
	check_all($name);
	$dt->sql(qq{$alter RESET dirty_throttle."group"});
}

# The configuration file, in new sessions and in those that are idle meanwhile.
my %idle = map { $_ => $dt->session(user => $_) } @operators, @ordinary;
my %in_block = map { $_ => $dt->session(user => $_) } @operators, @ordinary;
$_->query('BEGIN') foreach values %in_block;
$dt->sql(q{ALTER SYSTEM SET dirty_throttle."group" = 'd'});
$dt->sql('SELECT pg_reload_conf()');
foreach my $role (@operators, @ordinary)
{
	foreach ([ 'idle', $idle{$role} ], [ 'in a block', $in_block{$role} ])
	{
		my ($what, $s) = @$_;

		ok( poll_until(
				sub {
					$s->query(q{SELECT reset_val FROM pg_settings
						WHERE name = 'dirty_throttle.group'}) eq 'd';
				}),
			"a reload, $role, $what: it has read it");
		check_group("a reload, $role, $what", $s, $expected{$role});
		$s->query('COMMIT') if $what eq 'in a block';
		$s->quit;
	}
}
check_all('postgresql.conf');
$dt->disconnect;
$node->restart;
check_all('postgresql.conf, restarted');
$dt->sql(q{ALTER SYSTEM RESET dirty_throttle."group"});

# The server's command line.
$dt->disconnect;
$node->stop;
PostgreSQL::Test::Utils::system_log('pg_ctl', '-w', '-D', $node->data_dir, '-l',
	$node->logfile, '-o', '-c dirty_throttle.group=d', 'start') == 0
  or die 'the server does not start';
$node->_update_pid(1);
check_all('the command line');
$dt->disconnect;
$node->stop;
$node->start;    # a restart would keep it
is($dt->session(user => 'plain')->query('SHOW dirty_throttle."group"'), '', 'it is gone');

# --------------------------------------------------------------------- by name

# In a database with a default, to which everything that is undone leads back.
$dt->sql(q{ALTER DATABASE postgres SET dirty_throttle."group" = 'd'});
foreach my $role (@operators, @ordinary)
{
	my $default = $expected{$role};
	my $s;

	foreach my $where ($role, "$role IN DATABASE postgres")
	{
		$dt->sql(qq{ALTER ROLE $where SET dirty_throttle."group" = 'n'});
		$s = $dt->session(user => $role);
		check_group("ALTER ROLE $where", $s, 'n');
		$s->quit;
		$dt->sql(qq{ALTER ROLE $where RESET dirty_throttle."group"});
	}
	# which may be that of the default, too
	$dt->sql(qq{ALTER ROLE $role SET dirty_throttle."group" = 'd'});
	$s = $dt->session(user => $role);
	check_group("ALTER ROLE $role, to the default", $s, 'd');
	$s->quit;
	$dt->sql(qq{ALTER ROLE $role RESET dirty_throttle."group"});

	$s = $dt->session(user => $role, options => '-c dirty_throttle.group=n');
	check_group("PGOPTIONS, $role", $s, 'n');
	$s->quit;

	$s = $dt->session(user => $role);
	foreach my $case (
		[ 'SET', q{SET dirty_throttle."group" = 'n'}, 'RESET dirty_throttle."group"' ],
		[ 'set_config()', q{SELECT set_config('dirty_throttle.group', 'n', false)}, 'RESET ALL' ],
		[ 'SET LOCAL', q{BEGIN; SET LOCAL dirty_throttle."group" = 'n'}, 'COMMIT' ],
		[ 'SET, then DISCARD ALL', q{SET dirty_throttle."group" = 'n'}, 'DISCARD ALL' ],
		[ 'join_group()', q{SELECT join_group('n')}, 'SELECT join_group(NULL)' ])
	{
		my ($name, $in, $out) = @$case;

		$s->query($in);
		check_group("$name, $role", $s, 'n');
		$s->query($out);
		check_group("$name, $role, undone", $s, $default);
	}
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, 'n')});
	check_group("a move, $role", $s, 'n');
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, NULL)});
	check_group("a move, $role, undone", $s, $default);
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, 'd')});
	check_group("a move to the default, $role", $s, 'd');
	$s->quit;
}

# That a session has begun as what it is counts; SET ROLE changes nothing.
{
	my $s = $dt->session(user => 'plain');

	check_group('before a grant', $s, 'd');
	$dt->sql('GRANT pg_monitor TO plain');
	check_group('after it', $s, 'd');
	my $new = $dt->session(user => 'plain');
	check_group('a session after it', $new, 'none');
	$dt->sql('REVOKE pg_monitor FROM plain');
	check_group('and after the end of that', $new, 'none');
	$_->quit foreach $s, $new;

	$s = $dt->session(user => 'su');
	$s->query('SET ROLE plain');
	check_group('a superuser who is somebody else', $s, 'none');
	$s->query('SET SESSION AUTHORIZATION plain');
	check_group('also for the session', $s, 'none');
	$s->quit;
}

# ------------------------------------------------------------ what follows from it

# Who is in none pauses for nothing, nor is he charged, with his parallel workers.
$dt->sql(q{INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 2000) i; CHECKPOINT});
$dt->sql(q{SELECT set_group_dirty_limit('d', 1)});
foreach my $role ('su', 'plain')
{
	my $s = $dt->session(user => $role);
	my $before = $dt->group_row('d')->{blocks_dirtied};

	$s->query('SET max_parallel_workers_per_gather = 2');
	$s->send('SELECT count(*) FROM t');
	if ($role eq 'plain')
	{
		ok($dt->wait_paused($s, 'in flight'), "$role, a parallel query: it pauses");
		$dt->cancel_ms($s);
		next;
	}
	is($s->wait->{out}, 2000, "$role, a parallel query: it does not pause");
	is($dt->group_row('d')->{blocks_dirtied}, $before, "$role, a parallel query: is not charged");
	$s->quit;
	$dt->sql(q{UPDATE t SET id = id + 1; CHECKPOINT});
}
$dt->sql(q{SELECT suspend_group('d')});
foreach my $role (@operators)
{
	my $s = $dt->session(user => $role);

	is($s->run(q{INSERT INTO t VALUES (0)})->{sqlstate}, undef, "$role works on while that group is suspended");
	$s->quit;
}
$dt->sql(q{SELECT resume_group('d'), set_group_dirty_limit('d', 0)});

# A default that names no group is nothing to tell them.
$dt->sql(q{SET client_min_messages = error; ALTER DATABASE postgres SET dirty_throttle."group" = 'missing'});
foreach my $role (@operators, @ordinary)
{
	my $s = $dt->session(user => $role);
	my $mark = $dt->log_mark;

	unlike($s->run("SELECT 1; $MAY_WRITE")->{err}, qr/missing/, "$role: no warning") if $expected{$role} eq 'none';
	$s->quit;
}
my $mark = $dt->log_mark;
$dt->session(user => 'su')->quit;
unlike($dt->log_since($mark), qr/missing/, 'a login of theirs is no warning either');
$dt->session(user => 'plain')->quit;
like($dt->log_since($mark), qr/WARNING:  resource group "missing" does not exist/, 'one of others is');
$dt->sql(q{ALTER DATABASE postgres SET dirty_throttle."group" = 'd'});

# ---------------------------------------------------------------- background workers

SKIP:
{
	my $library = compile_library('api_worker');
	skip 'no library can be compiled here', 4 unless $library;

	$dt->sql("CREATE FUNCTION launch_api(text, text, text, int, int) RETURNS int
		LANGUAGE c AS '$library'");
	# who has named nobody is a member by the default, and by name what the bootstrap
	# superuser is
	foreach my $case ([ '', 'd' ], [ 'plain', 'd' ], [ 'su', 'none' ], [ 'mon', 'none' ],
		[ '', 'none', q{SET dirty_throttle."group" = ''} ],
		[ '', 'n', q{SET dirty_throttle."group" = 'n'} ])
	{
		my ($role, $expected, $by_name) = @$case;
		$dt->sql("ALTER ROLE CURRENT_USER IN DATABASE postgres $by_name") if $by_name;
		my $pid = $dt->sql("SELECT launch_api('postgres', '$role', 'wait', 0, 0)");

		ok( poll_until(
				sub {
					$dt->sql("SELECT count(*) FROM pg_stat_activity
						WHERE pid = $pid AND wait_event_type = 'Extension'") == 1;
				}),
			"a background worker of '$role' waits");
		is( $dt->sql("SELECT coalesce((SELECT group_name::text FROM dirty_throttle_sessions()
				WHERE pid = $pid), 'none')"),
			$expected, 'and is in its group');
		$dt->sql("SELECT pg_terminate_backend($pid, 180000)");
	}
}

$dt->finish;
