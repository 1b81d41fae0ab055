# Standbys of every kind, backups and failovers have the definitions that the
# primary had, without any configuration: those that stream, from the primary
# or from a standby, and those that have the archive only; after a promotion
# with members logged in and a load running, pg_rewind, and a recovery to a
# moment.
#
# takes-about: 10 s
# expect-in-log: WARNING:  resource group "gone" does not exist

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $LIMIT = 2000;    # KB/s

my $one = DirtyThrottle::Standby->primary('one', conf => 'wal_keep_size = 256MB',
	init => [ has_archiving => 1 ]);
$one->table($_) foreach 't1', 't2';
$one->sql(q{CREATE ROLE etl LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO etl;
	ALTER ROLE etl SET dirty_throttle."group" = 'batch'});
$one->limit(batch => $LIMIT);
$one->limit(gone => 1);

my $two = $one->standby('two', conf => 'wal_receiver_status_interval = 1s');
my $three = $two->standby('three', backup => 'for_two', of => $one);
my $four = DirtyThrottle::Standby->over(PostgreSQL::Test::Cluster->new('four'));
$four->node->init_from_backup($one->node, 'for_two', has_restoring => 1);
$four->node->adjust_conf('postgresql.auto.conf', 'primary_conninfo', undef);
$four->node->start;
my @standbys = ($two, $three, $four);

# All standbys have replayed what there is.
sub replay
{
	my ($primary, @all) = @_;

	my $lsn = $primary->sql('SELECT pg_current_wal_insert_lsn()');

	$primary->sql('SELECT pg_switch_wal()');    # so that it is archived
	$_->replay($primary, $lsn) foreach @all;
	return;
}

# The same of the first one, without a session there.
sub replay_unseen
{
	my $lsn = $one->sql('SELECT pg_current_wal_insert_lsn()');

	poll_until(
		sub {
			$one->sql("SELECT count(*) FROM pg_stat_replication
				WHERE application_name = 'two' AND replay_lsn >= '$lsn'");
		},
		180) or die;
	return;
}

# How long a statement takes that dirties 500 blocks in a member: at the limit,
# two seconds less what a member need not pay for at once.
sub is_throttled
{
	my ($session, $name) = @_;
	my $ms = elapsed_ms(sub { $session->query(insert_sql('t2', 500)) });

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($ms, '>=', 1500, "$name: milliseconds");
	return;
}

# ------------------------------------------------------------------- standbys

my @idle = map { $_->session } @standbys;
foreach my $standby (@standbys)
{
	my $name = $standby->node->name;
	my $s = $standby->session(user => 'etl');

	is($s->query('SHOW dirty_throttle."group"'), 'batch', "$name: a login into a group");
	is($standby->definitions, "batch=$LIMIT gone=1", "$name: as in the backup");
	$s->quit;
	foreach (
		q{set_group_dirty_limit('batch', 1)}, q{alter_resource_group('new')},
		q{set_group_pressure('batch', 'checkpoint', 'on')}, q{rename_resource_group('batch', 'new')},
		q{drop_resource_group('batch')}, q{grant_group_use('batch', 'etl')})
	{
		my $r = $idle[0]->run("SELECT $_");
		is($r->{sqlstate}, '25006', "$name: $_");
		like($r->{err}, qr/during recovery\nHINT:  Change them on the primary\./, 'why');
	}
}
$one->sql(q{BEGIN; SELECT set_group_dirty_limit('batch', 1), alter_resource_group('not'); ROLLBACK;
	BEGIN; SELECT rename_resource_group('batch', 'b'), alter_resource_group('new'), grant_group_use('new', 'etl');
	SELECT set_group_dirty_limit('b', 7), rename_resource_group('b', 'batch'); COMMIT});
my @members = map { $_->session(user => 'etl') } @standbys;
replay($one, @standbys);
foreach my $i (0 .. $#standbys)
{
	my $name = $standbys[$i]->node->name;

	is($idle[$i]->query('SELECT group_name, dirty_limit FROM dirty_throttle_groups ORDER BY 1'),
		"batch|7\ngone|1\nnew|", "$name: the next statement of a session knows");
	is($members[$i]->query('SHOW dirty_throttle."group"'), 'batch', "$name: a member is one still");
	is($members[$i]->run(q{SELECT join_group('new')})->{err}, '', "$name: a grant");
}
$_->quit foreach @members;
$two->disconnect;
$one->limit(batch => 8);
replay_unseen();
is($idle[0]->query(q{SELECT dirty_limit FROM dirty_throttle_groups WHERE group_name = 'batch'}),
	8, 'also when no other session has come');
$one->limit(batch => 7);

# A member that sleeps there, until any session begins a statement.
my $asleep = $two->session(options => '-c dirty_throttle.group=gone');
$two->sql(q{SELECT suspend_group('gone')});
$asleep->send($MAY_WRITE);
ok($two->wait_paused($asleep, undef, 180), 'a member sleeps on a standby');
$two->disconnect;
$one->sql(q{SELECT drop_resource_group('gone')});
replay_unseen();
$idle[0]->query('SELECT 1');
is($asleep->wait->{sqlstate}, undef, 'its group has gone, so it wakes up');
$_->quit foreach $asleep, @idle;

# after restarts, from the WAL and from nothing else
$_->disconnect, $_->node->stop('immediate'), $_->node->start foreach $two, $three;
foreach my $standby ($two, $three)
{
	ok(poll_until(sub { $standby->definitions eq 'batch=7 new=0' }), $standby->node->name . ': restarted')
	  or diag $standby->definitions;
}

# ------------------------------------------------- a failover, under load

$one->limit(batch => $LIMIT);
my $before = $one->sql(q{SELECT pg_create_restore_point('before')});
$one->limit(later => 1);
replay($one, @standbys);
my $etl = $one->session(user => 'etl');
$etl->send(insert_sql('t1', 100000));
ok($one->wait_paused($etl, 'in flight', 180), 'the batch works, and pauses');
my $there = $two->session(user => 'etl');
is($there->query('SELECT count(*) FROM t2'), 0, 'a session on the standby');
$one->disconnect;
$one->node->stop('immediate');
$etl->wait;
$two->sql('SELECT pg_promote()');
my $back = $two->session(user => 'etl');
is_throttled($back, 'the first statement after the failover');
is_throttled($there, 'the first of a session that was there before');
$_->quit foreach $back, $there;
$two->disconnect;

# a cascaded standby goes on
$two->limit(later => 2);
$three->replay($two);
is($three->definitions, "batch=$LIMIT later=2 new=0", 'a standby of the new primary');

# the old primary does not know, and is changed once more
$one->node->start;
$one->limit(split => 3);
$one->disconnect;
$one->node->stop('fast');
$two->sql('CHECKPOINT');
command_ok(
	[ 'pg_rewind', '--source-server', $two->node->connstr('postgres'),
		'--target-pgdata', $one->node->data_dir, '--no-sync',
		'--config-file', $one->node->data_dir . '/postgresql.conf' ],
	'pg_rewind of the old primary');
$one->node->append_conf('postgresql.conf', 'port = ' . $one->node->port . "\narchive_mode = off");
$one->node->append_conf('postgresql.auto.conf', "primary_conninfo = '" . $two->node->connstr . "'");
append_to_file($one->node->data_dir . '/standby.signal', '');
$one->node->start;
$one->replay($two);
is($one->definitions, "batch=$LIMIT later=2 new=0", 'it has those of the new one');

# --------------------------------------------------- a recovery to a moment

my $moment = PostgreSQL::Test::Cluster->new('moment');
$moment->init_from_backup($one->node, 'for_two', has_restoring => 1, standby => 0);
$moment->adjust_conf('postgresql.auto.conf', 'primary_conninfo', undef);
$moment->append_conf('postgresql.conf',
	"recovery_target_name = 'before'\nrecovery_target_action = 'promote'\narchive_mode = off");
$moment->start;
my $restored = DirtyThrottle::Standby->over($moment);
$moment->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
is($restored->definitions, "batch=$LIMIT new=0", 'recovered to before a change');
$restored->limit(batch => 9);
is($restored->definitions, 'batch=9 new=0', 'which can be changed');

is($_->crashes, '', $_->node->name . ': no crash') foreach $one, @standbys, $restored;
$_->disconnect foreach $one, $three, $four, $restored;
$_->node->stop('fast') foreach $one, $three, $four, $restored;
$two->finish;
