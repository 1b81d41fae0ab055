# The definitions of a standby, and of a standby of a standby, follow those of
# the primary.
#
# takes-about: 32 s
# not-timed
#
# expect-in-log: WARNING:  resource group "announced" does not exist

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $first = DirtyThrottle::Standby->primary('first');
$first->limit(before => 1000);
$first->table('t');
$first->sql(
	q{CREATE ROLE nobody LOGIN; CREATE ROLE repl LOGIN REPLICATION;
	  CREATE ROLE etl LOGIN; CREATE ROLE app LOGIN;
	  CREATE ROLE dba LOGIN IN ROLE pg_read_all_stats});
my $second = $first->standby('second');
my $third = $second->standby('third');
my @standbys = ($second, $third);

# The same again, where nothing changes for long.
my @quiet = (DirtyThrottle::Standby->primary('quiet'));
$quiet[0]->limit(before => 1000);
push @quiet, $quiet[0]->standby('quiet_second', backup => 'quiet');
push @quiet, $quiet[1]->standby('quiet_third', backup => 'quiet', of => $quiet[0]);

is($_->wait_status('following'), 'following', $_->node->name . ' follows')
  foreach @standbys;
is($_->stamp, $first->stamp, $_->node->name . ' has the same definitions')
  foreach @standbys;
is($first->following->{status}, 'not a standby', 'a primary does not follow');
is( $first->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'follower'"),
	0, 'and has no process for it');

# ------------------------------------------------------------- the parameter

my $line = $first->sql('SHOW dirty_throttle.definitions');
my $system = $first->sql('SELECT system_identifier FROM pg_control_system()');
like(
	$line,
	qr/^dirty_throttle 1\.\d+ system=$system timeline=1 change=\d+ complete=1 groups=1 grants=0 group=before id=\d+ dirty_rate=1000000 checksum=[0-9A-F]{8}$/,
	'SHOW dirty_throttle.definitions');
{
	my $nobody = $first->session(user => 'nobody');

	is($nobody->query('SHOW dirty_throttle.definitions'),
		$line, 'for everybody');
	is($nobody->run("SET dirty_throttle.definitions = ''")->{sqlstate},
		'55P02', 'it cannot be set');
	$nobody->query('BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY');
	is($nobody->query("SELECT current_setting('dirty_throttle.definitions')"),
		$line, 'in any transaction');
	$nobody->quit;
}
is($first->sql("SELECT count(*) FROM pg_settings WHERE name = 'dirty_throttle.definitions'"),
	0, 'it is not in pg_settings, which programs read all of');
foreach my $dt ($first, @standbys)
{
	my ($ret, $out, $err) = $dt->node->psql(
		'postgres', 'SHOW dirty_throttle.definitions',
		connstr => $dt->node->connstr . ' replication=true user=repl');
	is($out, $line,
		'over physical replication, with no right but REPLICATION: '
		  . $dt->node->name);
}

# ------------------------------------------------------- everything arrives

# Do this on the primary: seconds until both have it.
my @took;

sub arrives
{
	my ($sql, $what) = @_;
	my $start;

	$first->sql($sql);
	$start = time;
	foreach my $standby (@standbys)
	{
		my $took = $standby->arrival($first);

		ok(defined $took, "$what: arrives at " . $standby->node->name)
		  or diag $first->ddl . "\n" . $standby->ddl;
	}
	push @took, time - $start;
}

arrives(q{SELECT create_resource_group('batch', 12288.5)}, 'create');
arrives(q{SELECT set_group_dirty_limit('batch', 20000.125)}, 'alter');
arrives(q{SELECT set_group_dirty_limit('new', 0)}, 'create by setting a limit');
arrives(q{SELECT reset_group_dirty_limit('batch')}, 'no limit');
arrives(q{SELECT set_group_wal_limit('batch', 16777216)}, 'WAL limit');
arrives(q{SELECT reset_group_wal_limit('batch')}, 'no WAL limit');
arrives(q{SELECT set_group_burst('batch', 1500.5)}, 'burst');
arrives(q{SELECT set_group_mode('batch', 'observe')}, 'mode');
arrives(q{SELECT set_group_mode('batch', 'enforce')}, 'mode again');
arrives(q{SELECT grant_group_use('batch', 'etl'), grant_group_use('batch', 'app')},
	'grants');
arrives(q{SELECT revoke_group_use('batch', 'etl')}, 'revoke');
arrives(q{SELECT rename_resource_group('new', 'newer')}, 'rename');
arrives(q{SELECT rename_resource_group('batch', 'tmp'),
		rename_resource_group('newer', 'batch'),
		rename_resource_group('tmp', 'newer')}, 'names swapped');
arrives(q{SELECT create_resource_group('Grüße "%=' || chr(10) || '''', 3),
		create_resource_group(repeat('ä', 31), 4)}, 'names of any bytes');
arrives(q{SELECT set_group_pressure('newer', 'replica_lag', '2s', 1),
		set_group_pressure('newer', 'dirty_buffers', '30%'),
		set_group_floor('newer', 500)}, 'pressure');
arrives(q{SELECT drop_resource_group('batch')}, 'drop');
arrives('DROP ROLE app', 'a role is dropped, and its grant');
is($second->sql('SELECT count(*) FROM dirty_throttle_grants()'),
	0, 'no grant is left');

# A machine that is busy with other tests may need longer for some.
@took = sort { $a <=> $b } @took;
note sprintf('seconds until both standbys had it: median %.2f, worst %.2f',
	median(@took), $took[-1]);
cmp_ok(median(@took), '<', 2, 'within two seconds');

# One that members use below.
arrives(q{SELECT set_group_dirty_limit('announced', 5)}, 'one more');

# ---------------------------------------------- members, on a hot standby

my $member = $second->session(group => 'newer');
my $other = $second->session(group => 'announced');
is($member->query('SHOW dirty_throttle."group"'), 'newer', 'a member of a standby');
my $reset = $second->group_row('newer')->{stats_reset};
arrives(q{SELECT rename_resource_group('newer', 'newest')}, 'rename with a member');
is($second->group_row('newest')->{stats_reset}, $reset,
	'it is the same group, with its counters');
is($member->query('SHOW dirty_throttle."group"'),
	'newest', 'the member stays in the group that was renamed');
is($second->group_row('newest')->{active_processes}, 1, 'the view agrees');
arrives(q{SELECT drop_resource_group('announced', force => true)},
	'drop by force, with a member');
is($other->query('SHOW dirty_throttle."group"'),
	'', 'its member goes on, in no group');
$_->quit foreach $member, $other;

# ------------------------------------------------------------- no own changes

my $port = $first->node->port;
my $s = $second->session;
my $before = $second->ddl;
foreach my $sql (
	q{SELECT set_group_dirty_limit('before', 8192)},
	q{SELECT set_group_dirty_limit('own', 4)},
	q{SELECT create_resource_group('own', 9)},
	q{SELECT reset_group_dirty_limit('before')},
	q{SELECT set_group_wal_limit('before', 5)},
	q{SELECT reset_group_wal_limit('before')},
	q{SELECT set_group_burst('before', 5)},
	q{SELECT set_group_mode('before', 'observe')},
	q{SELECT set_group_pressure('before', 'replica_lag', '1s')},
	q{SELECT set_group_floor('before', 1)},
	q{SELECT grant_group_use('before', 'nobody')},
	q{SELECT revoke_group_use('before', 'nobody')},
	q{SELECT rename_resource_group('before', 'own')},
	q{SELECT drop_resource_group('before')},
	q{SELECT drop_resource_group('before', force => true)})
{
	my $r = $s->run($sql);

	is($r->{sqlstate}, '25006', "on a standby: $sql");
	like($r->{err}, qr/HINT:  .*host ".+", port $port\. .*follow_primary = off/,
		'the hint says where to change it, and how to do so here');
}
is($second->ddl, $before, 'nothing has changed');
foreach my $sql (
	q{SELECT suspend_group('before')},
	q{SELECT resume_group('before')},
	q{SELECT set_session_group(pg_backend_pid(), 'before')},
	q{SELECT set_session_group(pg_backend_pid(), '')},
	q{SELECT dirty_throttle_reset()})
{
	is($s->run($sql)->{sqlstate}, undef, "not a definition: $sql");
}

# A standby that differs on purpose
$second->sql('ALTER SYSTEM SET dirty_throttle.follow_primary = off');
$second->sql('SELECT pg_reload_conf()');
is($second->wait_status('off'), 'off', 'an island');
$second->sql(q{SELECT set_group_dirty_limit('before', 7), create_resource_group('own')});
my $own = $second->ddl;
$first->limit(before => 8);
my $changed = time;
is($third->wait_status('failing'), 'failing', 'its standby is told so');
ok( poll_until(sub { $third->following->{last_error} =~
			/a standby that has definitions of its own/ }),
	'in words');
poll_until(sub { time > $changed + 2 });
is($second->ddl, $own, 'an island has definitions of its own');
$second->node->restart;
$second->disconnect;
is($second->ddl, $own, 'also after a restart');
$second->sql('ALTER SYSTEM RESET dirty_throttle.follow_primary');
$second->sql('SELECT pg_reload_conf()');
ok(defined $second->arrival($first), 'it follows again, although it was changed later');
ok(defined $third->arrival($first, 60), 'and so does its standby');

# -------------------------------------- a role that comes after its grant

# It has asked a moment ago, and so it does not take long to ask again.
$first->limit(before => 9);
$second->arrival($first);
$second->sql('SELECT pg_wal_replay_pause()');
poll_until(sub { $second->sql('SELECT pg_get_wal_replay_pause_state()') eq 'paused' });
$first->sql(q{CREATE ROLE late LOGIN; SELECT grant_group_use('before', 'late')});
my $expected = $first->stamp;
ok(poll_until(sub { $second->stamp eq $expected }, 40),
	'a grant arrives before its role, while replay is paused');
is($second->sql('SELECT count(*) FROM dirty_throttle_grants'),
	0, 'the view does not show it');
$first->sql('ALTER ROLE late RENAME TO later');
is($second->session->run("SELECT create_resource_group('own')")->{sqlstate},
	'25006', 'a change that fails does not remove it');
$second->sql('SELECT pg_wal_replay_resume()');
ok( poll_until(sub { $second->sql('SELECT role_name FROM dirty_throttle_grants') eq 'later' }),
	'it does when the role is there, also if that was renamed');
$s = $second->session(user => 'later');
is($s->run("SELECT join_group('before')")->{sqlstate}, undef, 'and it counts');
$s->quit;

# ------------------------------------------------------------------ the view

{
	my $row = $second->following;

	is($row->{status}, 'following', 'status');
	is($row->{source_port}, $port, 'port');
	is($row->{source_host}, $first->node->host, 'host');
	is($row->{failing_since}, undef, 'not failing');
	isnt($row->{last_success}, undef, 'last success');
	cmp_ok($row->{questions}, '>', 0, 'questions');
	is( $second->sql("SELECT backend_type FROM pg_stat_activity WHERE pid = $row->{pid}"),
		'dirty_throttle follower', 'its process');
	foreach my $of ([ nobody => '||' ], [ dba => $first->node->host . "|$port|" ])
	{
		my ($user, $sees) = @$of;
		my $session = $second->session(user => $user);

		is( $session->query('SELECT source_host, source_port, last_error FROM dirty_throttle_following'),
			$sees, "what $user sees");
		$session->quit;
	}
}

# Of several hosts, the one that has answered.
my $questions = $second->following->{questions};
$second->follow('host=' . $third->node->host . ',' . $first->node->host
	  . ' port=' . $third->node->port . ",$port target_session_attrs=read-write");
ok( poll_until(
		sub {
			my $row = $second->following;
			return $row->{questions} > $questions
			  && $row->{status} eq 'following'
			  && $row->{source_host} eq $first->node->host
			  && $row->{source_port} eq $port;
		},
		15),
	'a connection string with two hosts: the view has the one that has answered');
$second->sql('ALTER SYSTEM RESET dirty_throttle.primary_conninfo');
$second->sql('SELECT pg_reload_conf()');

# ----------------------------------------------- where nothing has changed

# It has not asked for five seconds: the times between its questions have
# doubled.  After 8, 16 or 30 s it asks again, but not in the next two seconds.
sub is_quiet
{
	my ($standby) = @_;
	my $age = $standby->sql(
		'SELECT extract(epoch FROM clock_timestamp() - last_success) FROM dirty_throttle_following');

	return $age >= 5 && !grep { $age > $_ - 2 && $age < $_ + 0.5 } 8, 16, 30;
}

# So a change has to be announced.
sub check_announced
{
	my ($primary, @followers) = @quiet;

	poll_until(sub { !grep { !is_quiet($_) } @followers }, 60);
	ok(is_quiet($_), $_->node->name . ' asks less and less often')
	  foreach @followers;
	$primary->limit(announced => 5);
	my $took = $followers[0]->arrival($primary);
	cmp_ok($took // 99, '<', 2, 'a change arrives all the same');
	cmp_ok($followers[1]->arrival($primary) // 99, '<', 2, 'at the other one, too');

	foreach my $server (reverse @quiet)
	{
		is($server->crashes, '', 'no crash');
		$server->stop('immediate');
	}
}

# -------------------------------------------- who restarts, and who is gone

{
	my $pid = $second->following->{pid};

	$second->sql("SELECT pg_cancel_backend($pid), pg_terminate_backend($pid)");
	is($second->wait_status('no process'), 'no process', 'the process is terminated');

	# that takes some seconds
	check_announced();

	is($second->wait_status('following'), 'following', 'and is started again');
	isnt($second->following->{pid}, $pid, 'as another one');
}

$third->node->restart;
$third->disconnect;
is($third->ddl, $first->ddl, 'a standby that was restarted has them at once');
$second->node->stop;
is($third->wait_status('failing'), 'failing', 'the server that was asked is gone');
my $since = $third->following->{failing_since};
my $mark = $third->log_mark;
my $asked = $third->following->{questions};
ok(poll_until(sub { $third->following->{questions} >= $asked + 2 }), 'it asks again and again');
is($third->following->{failing_since}, $since, 'failing since');
is(() = $third->log_since($mark) =~ /resource groups do not follow/g,
	0, 'that was logged once, and not again');
is($third->ddl, $first->ddl, 'nothing is lost');
$first->limit(meanwhile => 9);
$second->node->start;
$second->disconnect;
ok(defined $second->arrival($first), 'it is back, and has what has changed meanwhile');
ok(defined $third->arrival($first, 60), 'and so has its standby');
like($third->log_since($mark), qr/resource groups follow the primary again/, 'the log says so');

# ------------------------------------------------- it never holds up anything

is(() = $second->log_since(0) =~ /ERROR:.*background worker/g, 0, 'no error of the worker');
foreach my $standby (reverse @standbys)
{
	my $ms;

	# 15 with assertions does not like a walsender that is a moment old
	poll_until(sub { $standby->sql('SELECT count(*) FROM pg_stat_replication') == 0 });
	$standby->disconnect;
	$ms = elapsed_ms(sub { $standby->node->stop('fast') });
	cmp_ok($ms, '<', 5000, $standby->node->name . ' stops');
	is($standby->crashes, '', 'no crash');
}
$first->finish;
