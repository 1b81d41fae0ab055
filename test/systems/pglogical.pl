# pglogical's apply worker as a member.  It writes by functions of the server,
# without an executor and without checks for interrupts: it pays after each of its
# transactions, so it stays at the limit, and owes no more than what one of them
# has used.
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Programs;
use Test::More;

need_extensions(pglogical => 'pglogical');

my $limit = 2000;    # KB/s

my $dt = DirtyThrottle->new(
	'pglogical',
	init => [ allows_streaming => 'logical' ],
	conf => q{
shared_preload_libraries = 'pglogical, dirty_throttle'
max_worker_processes = 20
full_page_writes = off
}, no_start => 1);

allow_output_plugins($dt->node, 'pglogical_output');
$dt->node->start;
$dt->sql(q{CREATE EXTENSION dirty_throttle;
	CREATE ROLE applier LOGIN SUPERUSER;
	CREATE DATABASE provider});
$dt->limit(batch => 0);

my $dsn = $dt->node->connstr;
my $provider = $dt->session(dbname => 'provider');
$provider->query("CREATE EXTENSION pglogical;
	CREATE TABLE p (id int PRIMARY KEY, filler text);
	SELECT pglogical.create_node('provider', '$dsn dbname=provider');
	SELECT pglogical.replication_set_add_all_tables('default', '{public}')");
$dt->sql("CREATE EXTENSION pglogical;
	CREATE TABLE p (id int PRIMARY KEY, filler text);
	SELECT pglogical.create_node('subscriber', '$dsn dbname=postgres');
	SELECT pglogical.create_subscription('sub', '$dsn dbname=provider')");
ok( poll_until(
		sub {
			$dt->sql('SELECT status FROM pglogical.show_subscription_status()') eq
			  'replicating';
		}),
	'the subscription replicates');

# The worker connects as the superuser, who is a member by his own setting.
my $apply = q{FROM pg_stat_activity WHERE application_name LIKE 'pglogical apply%'
	AND datname = 'postgres'};
$dt->sql(q{ALTER ROLE CURRENT_USER SET dirty_throttle."group" = 'batch'});
my $old = $dt->sql("SELECT pid $apply");
$dt->sql("SELECT pg_terminate_backend(pid) $apply");
ok(poll_until(sub { my $pid = $dt->sql("SELECT pid $apply"); $pid && $pid ne $old }),
	'there is a new worker');
$dt->sql(q{ALTER ROLE CURRENT_USER RESET dirty_throttle."group"});
ok( poll_until(
		sub {
			$dt->sql(q{SELECT count(*) FROM dirty_throttle_sessions
				WHERE group_name = 'batch' AND application_name LIKE 'pglogical apply%'});
		}),
	'which is a member');

my $rows = 0;

# Transactions of so many rows arrive, at the limit; and what is owed on the way
# is at most so much of it.
sub replicate
{
	my ($name, $transactions, $n, $part) = @_;
	my $owed = 0;

	my $r = $dt->check_limit(
		$name, 'batch',
		sub {
			foreach (1 .. $transactions)
			{
				$provider->query("INSERT INTO p SELECT i, repeat('x', 400)
					FROM generate_series($rows + 1, $rows + $n) i");
				$rows += $n;
			}
			ok( poll_until(
					sub {
						my $debt = $dt->group_row('batch')->{wal_debt};
						$owed = $debt if $debt > $owed;
						$dt->sql('SELECT count(*) FROM p') == $rows;
					}),
				"$name: all rows arrive");
		},
		limit => $limit,
		# it notices a new limit at the end of a transaction
		unnoticed => 16,
		wal => 1);
	cmp_ok($r->{kb}, '>', 0.4 * $transactions * $n, "$name: what they write is charged");
	cmp_ok($owed, '<=', $r->{kb} * $part, "$name: KB that are owed at most");
	ok(poll_until(sub { $dt->group_row('batch')->{wal_debt} == 0 }), "$name: all is paid");
}

replicate('100 transactions', 100, 200, 0.1);
replicate('one transaction', 1, 20000, 1);

# It stops after a transaction, and goes on from there.
$dt->limit(batch => 0);
$dt->sql(q{SELECT suspend_group('batch')});
foreach (1 .. 10)
{
	$provider->query("INSERT INTO p SELECT i, repeat('x', 400)
		FROM generate_series($rows + 1, $rows + 2000) i");
	$rows += 2000;
}
ok( poll_until(
		sub {
			$dt->sql(q{SELECT count(*) FROM dirty_throttle_sessions
				WHERE application_name LIKE 'pglogical apply%' AND paused_since IS NOT NULL});
		}),
	"suspended: the worker pauses");
my $used = $dt->group_row('batch')->{wal_bytes};
cmp_ok($dt->sql('SELECT count(*) FROM p'),
	'<=', $rows - 18000, "suspended: one transaction arrives at most");
is($dt->group_row('batch')->{wal_bytes}, $used, "suspended: no more is written");
$dt->sql(q{SELECT resume_group('batch')});
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM p') == $rows }), "suspended: resumed, all rows arrive");

# A pause after a transaction does not keep it from ending.
$dt->sql(q{SELECT suspend_group('batch')});
$provider->query("INSERT INTO p SELECT i, repeat('x', 400)
	FROM generate_series($rows + 1, $rows + 2000) i");
my $pid = poll_until(
	sub {
		$dt->sql(q{SELECT pid FROM dirty_throttle_sessions
			WHERE application_name LIKE 'pglogical apply%' AND paused_since IS NOT NULL});
	});
ok($pid, 'it pauses after its transaction');
$dt->sql("SELECT pg_terminate_backend($pid)");
ok(poll_until(sub { gone($pid) }), 'and ends when it is terminated');
$dt->sql(q{SELECT resume_group('batch')});

$dt->sql(q{SELECT pglogical.drop_subscription('sub')});
$provider->quit;
$dt->finish;
