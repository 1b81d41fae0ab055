# Logical replication: its workers are in the group of
# dirty_throttle.apply_group and in no other, whatever settings reach them;
# they pause after transactions, and send word of themselves to the publisher
# while they do.
#
# takes-about: 27 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 4000;    # KB/s

my $publisher = DirtyThrottle->new(
	'publisher',
	init => [ allows_streaming => 'logical' ],
	conf => 'wal_sender_timeout = 3s');
my $dt = DirtyThrottle->new(
	'subscriber',
	init => [ allows_streaming => 'logical' ],
	conf => q{
wal_receiver_status_interval = 1s
wal_receiver_timeout = 8s
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

# Wait until so many rows are there: seconds.
sub arrival_s
{
	my ($table, $rows, $timeout) = @_;
	my $start = time;

	# a look at a row would dirty its page: nothing here counts for the group
	ok( poll_until(
			sub { $dt->sql("SELECT count(*) FROM $table") == $rows },
			$timeout // 60),
		"$rows rows of $table arrive");
	return time - $start;
}

# Wait until so many blocks are charged, and the group owes nothing: seconds.
sub paid_s
{
	my ($from) = @_;

	ok( poll_until(
			sub { $dt->group_row('grp_a')->{debt_kb} == 0 }),
		'all is paid');
	return time - $from;
}

# How long the publisher has heard nothing, at most, in ms, until the code
# returns true.
sub longest_silence_ms
{
	my ($code, $timeout) = @_;
	my $longest = 0;

	my $done = poll_until(
		sub {
			my $ms = $publisher->sql(
				"SELECT coalesce(max(1000 * extract(epoch FROM
					clock_timestamp() - coalesce(reply_time, backend_start))), 0)
				 FROM pg_stat_replication WHERE application_name = 'sub'");
			$longest = $ms if $ms > $longest;
			return $code->();
		},
		$timeout);
	return wantarray ? ($longest, $done) : $longest;
}

# ------------------------------------------------- nobody has asked for it

$publisher->sql('CREATE PUBLICATION pub FOR TABLE t, small');
$dt->sql(
	q{ALTER ROLE CURRENT_USER SET dirty_throttle."group" = 'other';
	ALTER DATABASE postgres SET dirty_throttle."group" = 'other'});
insert('t', 1, 1000);
subscribe('');
between(arrival_s('t', 1000), 0, 10, 'a tablesync in no group: s');
insert('t', 1001, 1000);
between(arrival_s('t', 2000), 0, 10, 'apply in no group: s');
is($dt->group_row('other')->{blocks_dirtied},
	0, 'settings of role and database do not reach them');
is($dt->group_row('other')->{active_processes}, 0, 'they are no members');

# ------------------------------------------------------------- apply_group

# An apply worker that runs joins at the end of a transaction.
$dt->set_conf('dirty_throttle.apply_group', 'grp_a');
insert('small', 0, 1);
arrival_s('small', 1);
insert('small', -1, 1);
arrival_s('small', 2);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{active_processes} == 1 }),
	'the apply worker is a member');
is( $dt->sql(
		q{SELECT backend_type FROM pg_stat_activity
		  JOIN dirty_throttle_sessions USING (pid)}) =~
	  s/logical replication (apply )?worker/apply/r,
	'apply',
	'which the view shows');

# A big transaction: charged to the block or nearly, paid after it.
my $row = $dt->group_row('grp_a');
my $start = time;
insert('t', 2001, 1000);
arrival_s('t', 3000);
ok( poll_until(
		sub {
			$dt->group_row('grp_a')->{blocks_dirtied} >=
			  $row->{blocks_dirtied} + 1000;
		}),
	'what it applies is charged');
ok($dt->group_row('grp_a')->{debt_kb} > 0, 'and owed');
between($dt->group_row('grp_a')->{blocks_dirtied} - $row->{blocks_dirtied},
	1000, 1060, 'blocks');

paid_s(time);
my $worker =
  $dt->sql('SELECT pid FROM pg_stat_subscription WHERE relid IS NULL');
like(slurp_file($dt->node->logfile),
	qr/LOG:  process $worker paused for [\d.]+ ms in resource group "grp_a"\n[^\n]*Causes: dirty .*in flight: 0\.000 ms, after it: [1-9]/,
	'the server log has its pause');

# Many transactions: at the limit, and the publisher hears of it all the time.
$row = $dt->group_row('grp_a');
$start = time;
$publisher->sql("DO \$\$ BEGIN FOR i IN 1..200 LOOP
	INSERT INTO t SELECT 10000 + i * 10 + j, repeat('x', 800)
		FROM generate_series(1, 9) j;
	COMMIT; END LOOP; END \$\$");
my $ms;
my ($silence, $done) = longest_silence_ms(
	sub {
		my $now = $dt->group_row('grp_a');
		return $now->{blocks_dirtied} >= $row->{blocks_dirtied} + 1800
		  && $now->{debt_kb} == 0;
	},
	60);
my $s_taken = time - $start;
ok($done, '200 transactions arrive');
my $kb = ($dt->group_row('grp_a')->{blocks_dirtied} - $row->{blocks_dirtied}) *
  $dt->block_kb;
between(100 * $kb / $s_taken / $limit, 85, 115,
	'many transactions: % of the limit');
between($silence, 0, 2500, 'the longest silence: ms');

# The limit is so low that each transaction takes longer than the publisher
# waits (3 s), and all of that is paid: 20 blocks and some at 48 KB/s are 3.4 s
# and more, half of wal_receiver_timeout is 4 s.
$dt->limit(grp_a => 0);
arrival_s('t', 3000 + 1800);
$dt->limit(grp_a => 48);
$row = $dt->group_row('grp_a');
$publisher->sql("DO \$\$ BEGIN FOR i IN 1..6 LOOP
	INSERT INTO t SELECT 20000 + i * 20 + j, repeat('x', 800)
		FROM generate_series(1, 20) j;
	COMMIT; END LOOP; END \$\$");
$start = time;
$silence = longest_silence_ms(sub { time > $start + 7.5 }, 60);
between($silence, 0, 2500, 'a very low limit: the longest silence: ms');
my $now = $dt->group_row('grp_a');
my $paid = ($now->{blocks_dirtied} - $row->{blocks_dirtied}) * $dt->block_kb -
  $now->{debt_kb};
between(100 * $paid / (time - $start) / 48, 85, 115, '... % of the limit');
is($dt->sql('SELECT pid FROM pg_stat_subscription WHERE relid IS NULL'),
	$dt->sql('SELECT pid FROM dirty_throttle_sessions'),
	'... by the same worker');
is( $publisher->sql(
		q{SELECT count(*) FROM pg_stat_replication
		  WHERE application_name = 'sub' AND flush_lsn IS NOT NULL
		    AND flush_lsn = replay_lsn AND flush_lsn <= sent_lsn}),
	1,
	'... which tells the publisher what it has applied');
$dt->limit(grp_a => 0);
arrival_s('t', 3000 + 1800 + 120);

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
arrival_s('more', 1000);
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
		sub { $dt->group_row('grp_a')->{active_processes} == 1 }),
	'the tablesync worker has left the group');
$dt->limit(grp_a => 0);
arrival_s('more', 1040);
$dt->limit(grp_a => $limit);

# Leaving, and a group that goes away or does not exist.
$dt->set_conf('dirty_throttle.apply_group', '');
insert('small', 100, 1);
arrival_s('small', 3);
insert('small', 101, 1);
arrival_s('small', 4);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{active_processes} == 0 }),
	'it leaves when apply_group is empty');
$dt->set_conf('dirty_throttle.apply_group', 'nosuchgroup');
insert('small', 102, 1);
arrival_s('small', 5);
insert('small', 103, 1);
arrival_s('small', 6);
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
arrival_s('small', 7);
insert('small', 201, 1);
arrival_s('small', 8);
$dt->limit(grp_a => 1);
insert('t', 30000, 20);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{paused_processes} == 1 }),
	'the apply worker pauses');
between(elapsed_ms(sub { $dt->sql('ALTER SUBSCRIPTION sub DISABLE') }),
	0, 5000, 'a subscription is disabled: ms');
# before 16 nobody tells the worker, and a pause lasts for half of
# wal_receiver_timeout at most
$ms = elapsed_ms(
	sub {
		poll_until(
			sub { $dt->group_row('grp_a')->{active_processes} == 0 });
	});
between($ms, 0, $dt->node->pg_version >= 16 ? 4000 : 5500,
	'its worker goes: ms');
between(elapsed_ms(sub { $dt->sql('DROP SUBSCRIPTION sub') }),
	0, 5000, 'and is dropped: ms');

$publisher->stop;
$dt->finish;
