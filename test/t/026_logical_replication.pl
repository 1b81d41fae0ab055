# Logical replication: its workers are in the group of
# dirty_throttle.apply_group and in no other, whatever settings reach them;
# they pause after transactions, and send word of themselves to the publisher
# while they do.
#
# takes-about: 23 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 4000;    # KB/s

my $publisher = DirtyThrottle->new(
	'publisher',
	init => [ allows_streaming => 'logical' ],
	conf => 'wal_sender_timeout = 60s');
my $dt = DirtyThrottle->new(
	'subscriber',
	init => [ allows_streaming => 'logical' ],
	conf => q{
wal_receiver_status_interval = 1s
wal_receiver_timeout = 60s
wal_retrieve_retry_interval = 100ms
max_logical_replication_workers = 8
dirty_throttle.log_min_pause = 100ms
});
my $connection = $publisher->node->connstr . ' dbname=postgres';
my $s;

$dt->limit(grp_a => $limit);
$dt->limit(other => 100);
$_->sql(
	'CREATE TABLE t (id int PRIMARY KEY, filler text) WITH (fillfactor = 10);
	CREATE TABLE small (id int PRIMARY KEY, filler text)
		WITH (fillfactor = 10)') foreach $publisher, $dt;
$dt->sql('CREATE TABLE others (id int, filler text) WITH (fillfactor = 10)');

sub subscribe
{
	my ($options) = @_;
	$dt->sql("CREATE SUBSCRIPTION sub CONNECTION '$connection'
		PUBLICATION pub WITH (disable_on_error = false$options)");
}

sub insert
{
	my ($table, $from, $n) = @_;
	$publisher->sql("INSERT INTO $table SELECT i, repeat('x', 800)
		FROM generate_series($from, $from + $n - 1) i");
}

# Wait until so many rows are there.
sub arrive
{
	my ($table, $rows) = @_;

	# a look at a row would dirty its page: nothing here counts for the group
	ok( poll_until(
			sub { $dt->sql("SELECT count(*) FROM $table") == $rows }),
		"$rows rows of $table arrive");
}

sub all_is_paid
{
	ok(poll_until(sub { $dt->group_row('grp_a')->{dirty_debt} == 0 }), 'all is paid');
}

# ------------------------------------------------- nobody has asked for it

$publisher->sql('CREATE PUBLICATION pub FOR TABLE t, small');
$dt->sql(
	q{ALTER ROLE CURRENT_USER SET dirty_throttle."group" = 'other';
	ALTER DATABASE postgres SET dirty_throttle."group" = 'other'});
insert('t', 1, 1000);
subscribe('');
arrive('t', 1000);
insert('t', 1001, 1000);
arrive('t', 2000);
is($dt->group_row('other')->{blocks_dirtied},
	0, 'settings of role and database do not reach them');
is($dt->group_row('other')->{members}, 0, 'they are no members');

# ------------------------------------------------------------- apply_group

# An apply worker that runs joins at the end of a transaction.
$dt->set_conf('dirty_throttle.apply_group', 'grp_a');
insert('small', 0, 1);
arrive('small', 1);
insert('small', -1, 1);
arrive('small', 2);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{members} == 1 }),
	'the apply worker is a member');
is( $dt->sql(
		q{SELECT backend_type FROM pg_stat_activity
		  JOIN dirty_throttle_sessions USING (pid)}) =~
	  s/logical replication (apply )?worker/apply/r,
	'apply',
	'which the view shows');

# A big transaction: charged to the block or nearly, paid after it.
my $row = $dt->group_row('grp_a');
insert('t', 2001, 1000);
arrive('t', 3000);
ok( poll_until(
		sub {
			$dt->group_row('grp_a')->{blocks_dirtied} >=
			  $row->{blocks_dirtied} + 1000;
		}),
	'what it applies is charged');
between($dt->group_row('grp_a')->{blocks_dirtied} - $row->{blocks_dirtied},
	1000, 1060, 'blocks');
all_is_paid();
my $worker =
  $dt->sql('SELECT pid FROM pg_stat_subscription WHERE relid IS NULL');
ok(poll_until(sub { slurp_file($dt->node->logfile) =~
		qr/LOG:  process $worker paused for [\d.]+ ms in resource group "grp_a"\n[^\n]*Causes: dirty [1-9]/ }),
	'the server log has its pause');

# Many transactions: at the limit.
my $r = $dt->check_limit(
	'many transactions',
	'grp_a',
	sub {
		$publisher->sql("DO \$\$ BEGIN FOR i IN 1..200 LOOP
			INSERT INTO t SELECT 10000 + i * 10 + j, repeat('x', 800)
				FROM generate_series(1, 9) j;
			COMMIT; END LOOP; END \$\$");
		arrive('t', 3000 + 1800);
		all_is_paid();
	});
cmp_ok($r->{blocks}, '>=', 1800, 'many transactions: blocks');

# It pauses for half a minute, and the publisher hears from it meanwhile.  Others
# that begin and end their pauses all the time do not end this one.
$dt->limit(others => 100);
my @others = map { $dt->session(group => 'others') } 1 .. 4;
$_->send(
	"DO \$\$ BEGIN FOR i IN 1..100000 LOOP
		INSERT INTO others SELECT 1, repeat('x', 800); COMMIT; END LOOP; END \$\$")
  foreach @others;
ok(poll_until(sub { $dt->group_row('others')->{paused} == 4 }), 'others pause');
$dt->limit(grp_a => 1);
$publisher->sql("INSERT INTO t SELECT 20000 + j, repeat('x', 800)
	FROM generate_series(1, 50) j");
ok(poll_until(sub { $dt->group_row('grp_a')->{paused} == 1 }),
	'a very low limit: it pauses');
my $since = "SELECT paused_since FROM dirty_throttle_sessions WHERE pid = $worker";
my $paused_since = $dt->sql($since);
my $pauses;
foreach my $nth ('first', 'second')
{
	my $reply_time = "SELECT reply_time FROM pg_stat_replication
		WHERE application_name = 'sub'";
	my $reply = $publisher->sql($reply_time);
	ok(poll_until(sub { $publisher->sql($reply_time) ne $reply }),
		"... the publisher hears from it for the $nth time");
	# which was counted when its first slice was over
	$pauses //= $dt->group_row('grp_a')->{pauses};
}
is($dt->group_row('grp_a')->{pauses}, $pauses, '... in one pause');
my $pauses_of_others = $dt->group_row('others')->{pauses};
ok(poll_until(sub { $dt->group_row('others')->{pauses} > $pauses_of_others + 50 }),
	'... beside others');
is($dt->sql($since), $paused_since, '... which do not end it');
$dt->cancel_ms($_) foreach @others;
$_->quit foreach @others;
is($dt->sql('SELECT pid FROM pg_stat_subscription WHERE relid IS NULL'),
	$dt->sql(q{SELECT pid FROM dirty_throttle_sessions WHERE group_name = 'grp_a'}),
	'... by the same worker');
is($worker, $dt->sql('SELECT pid FROM pg_stat_subscription WHERE relid IS NULL'),
	'... as from the beginning');
ok( poll_until(
		sub {
			$publisher->sql(
				q{SELECT count(*) FROM pg_stat_replication
				  WHERE application_name = 'sub' AND flush_lsn IS NOT NULL
				    AND flush_lsn = replay_lsn AND flush_lsn <= sent_lsn}) == 1;
		}),
	'... which tells the publisher what it has applied');
$dt->limit(grp_a => 0);
arrive('t', 3000 + 1800 + 50);

# --------------------------------------------------------------- tablesync

$_->sql('CREATE TABLE more (id int PRIMARY KEY, filler text)
	WITH (fillfactor = 10)') foreach $publisher, $dt;
insert('more', 1, 1000);
$publisher->sql('ALTER PUBLICATION pub ADD TABLE more');
$dt->limit(grp_a => 0);
$dt->set_conf('wal_receiver_timeout', '5s');
$dt->limit(grp_a => 1500);
$row = $dt->group_row('grp_a');
$dt->sql('ALTER SUBSCRIPTION sub REFRESH PUBLICATION');
arrive('more', 1000);
# It has to pay for more than 5 s, which is longer than wal_receiver_timeout, and
# has to apply these, while the apply worker waits for it.
insert('more', 1000 + 10 * $_, 5) foreach 1 .. 8;
ok( poll_until(
		sub {
			$dt->group_row('grp_a')->{blocks_dirtied} >=
			  $row->{blocks_dirtied} + 1000;
		}),
	'what a tablesync copies is charged');
ok( poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM pg_subscription_rel
				WHERE srsubstate <> 'r'") == 0;
		}),
	'and it becomes ready');
ok( poll_until(
		sub { $dt->group_row('grp_a')->{members} == 1 }),
	'the tablesync worker has left the group');
$dt->limit(grp_a => 0);
arrive('more', 1040);
$dt->limit(grp_a => $limit);

# Leaving, and a group that goes away or does not exist.
$dt->set_conf('dirty_throttle.apply_group', '');
insert('small', 100, 1);
arrive('small', 3);
insert('small', 101, 1);
arrive('small', 4);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{members} == 0 }),
	'it leaves when apply_group is empty');
$dt->set_conf('dirty_throttle.apply_group', 'nosuchgroup');
insert('small', 102, 1);
arrive('small', 5);
insert('small', 103, 1);
arrive('small', 6);
is($dt->group_row('other')->{blocks_dirtied} // 0,
	0, 'it never was in another group');

is( () = slurp_file($publisher->node->logfile) =~ /due to replication timeout/g,
	0,
	'timeouts on the publisher');
is( () = slurp_file($dt->node->logfile) =~ /worker due to timeout/g,
	0, 'timeouts on the subscriber');

# What arrives is what was sent.
foreach my $table ('t', 'small', 'more')
{
	my $digest = "SELECT count(*), md5(string_agg(id || filler, ',' ORDER BY id))
		FROM $table";
	is($dt->sql($digest), $publisher->sql($digest), "the data of $table");
}

# The pause of an apply worker ends with the worker.
$dt->set_conf('dirty_throttle.apply_group', 'grp_a');
insert('small', 200, 1);
arrive('small', 7);
insert('small', 201, 1);
arrive('small', 8);
$dt->limit(grp_a => 1);
insert('t', 30000, 20);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{paused} == 1 }),
	'the apply worker pauses');
$dt->sql('ALTER SUBSCRIPTION sub DISABLE');
# before 16 nobody tells the worker, and a pause lasts for half of
# wal_receiver_timeout at most
ok(poll_until(sub { $dt->group_row('grp_a')->{members} == 0 }),
	'its worker goes');
$dt->sql('DROP SUBSCRIPTION sub');

$publisher->stop;
$dt->finish;
