# A standby and a backup start with the groups of the moment the backup was
# taken.  When a standby does not follow its primary, each then has its own.
#
# not-timed

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

# A standby can dirty buffers only by hint bits, and not even so when they go
# to the WAL, as checksums, the default from PostgreSQL 18, need it.
my @init = `initdb --help` =~ /--no-data-checksums/ ? '--no-data-checksums' : ();
my $primary = DirtyThrottle::Life->new(
	'primary',
	init => [ allows_streaming => 1, extra => \@init ],
	conf => 'wal_log_hints = off');

$primary->sql(
	q{SELECT set_group_dirty_limit('grp_a', 12288.5),
	         create_resource_group('o''Brien'),
	         set_group_dirty_limit('Grüße', 16777216)});
my $expected = $primary->definitions;
$primary->table('hints');
$primary->table('later');
$primary->sql(q{CREATE ROLE etl LOGIN;
	GRANT ALL ON ALL TABLES IN SCHEMA public TO etl;
	ALTER ROLE etl SET dirty_throttle."group" = 'grp_a';
	CREATE ROLE leaver; CREATE ROLE stayer;
	SELECT grant_group_use('grp_a', 'leaver'), grant_group_use('grp_a', 'stayer')});

#
# The backup carries them
#
my $member = $primary->session(group => 'grp_a');
$primary->node->backup('with_groups');
$member->quit;
$primary->sql(
	q{SELECT set_group_dirty_limit('grp_a', 1),
	         drop_resource_group('o''Brien'),
	         set_group_dirty_limit('primary only', 2)});
my $primary_groups = $primary->definitions;

my $standby_node = PostgreSQL::Test::Cluster->new('standby');
$standby_node->init_from_backup($primary->node, 'with_groups',
	has_streaming => 1);
$standby_node->append_conf('postgresql.conf',
	'dirty_throttle.follow_primary = off');
$standby_node->start;
my $standby = DirtyThrottle::Life->over($standby_node);
is($standby->definitions, $expected, 'a standby has the groups of the backup');
is($standby->group_row('grp_a')->{active_processes},
	0, 'but not the members of the primary');

my $copy_node = PostgreSQL::Test::Cluster->new('copy');
$copy_node->init_from_backup($primary->node, 'with_groups');
$copy_node->start;
my $copy = DirtyThrottle::Life->over($copy_node);
is($copy->definitions, $expected, 'a server from the backup has them');
$copy->limit('grp_a', 3);
like($copy->definitions, qr/\bgrp_a=3\b/, 'and can change them');
$copy->stop;

#
# Local to each
#
$primary->limit('grp_a', 5);
$primary->sql("SELECT create_resource_group('another')");
$primary_groups = $primary->definitions;
$primary->sql(insert_sql('hints', 2000));
$primary->node->wait_for_catchup('standby');
is($standby->definitions, $expected,
	'changes on the primary do not come to the standby');

# every function that changes something, on a read-only server
is($standby->sql('SELECT pg_is_in_recovery()'), 't', 'in recovery');
$standby->sql($_) foreach (
	q{SELECT set_group_dirty_limit('grp_a', 8192)},
	q{SELECT set_group_dirty_limit('standby only', 4)},
	q{SELECT create_resource_group('tmp', 9)},
	q{SELECT reset_group_dirty_limit('Grüße')},
	q{SELECT rename_resource_group('tmp', 'temp')},
	q{SELECT drop_resource_group('o''Brien')},
	q{SELECT drop_resource_group('temp', force => true)},
	q{SELECT dirty_throttle_reset()},
	q{BEGIN READ ONLY; SELECT set_group_dirty_limit('standby only', 5); COMMIT});
my $standby_groups = "Gr\x{c3}\x{bc}\x{c3}\x{9f}e=0 grp_a=8192 standby only=5";
is($standby->definitions, $standby_groups,
	'groups can be set on a hot standby');
is($standby->sql('SELECT count(*) FROM dirty_throttle_ddl()'),
	5, 'and written as SQL, with the grants of the backup');
is($primary->definitions, $primary_groups,
	'changes on the standby do not come to the primary');
$standby_node->restart;
$standby->disconnect;
is($standby->definitions, $standby_groups,
	'groups of a standby last over its restart');

#
# A role that is dropped on the primary
#
# How many grants the definitions file has; see store.c.
sub grants_in_file
{
	my ($dt) = @_;
	return (unpack 'L6',
		slurp_file($dt->node->data_dir . '/dirty_throttle.groups'))[4];
}

$primary->sql('DROP ROLE leaver');
is(grants_in_file($primary), 1, 'a role is dropped: its grant is gone');
$primary->node->wait_for_catchup('standby');
is(grants_in_file($standby), 2, 'a standby does not see it go');
is($standby->sql('SELECT role_name FROM dirty_throttle_grants'),
	'stayer', 'but does not show it any more');
$standby->sql(q{SELECT set_group_dirty_limit('grp_a', 8192)});
is(grants_in_file($standby), 1, 'and has removed it with the next change');
is($standby->sql('SELECT role_name FROM dirty_throttle_grants'),
	'stayer', 'and no other');

#
# A member on the standby
#
# Hint bits wait until the commit is known to be on disk there.
$primary->sql('CHECKPOINT');
$primary->node->wait_for_catchup('standby');
$standby->sql('CHECKPOINT');
$member = $standby->session(user => 'etl');
is($member->query('SHOW dirty_throttle."group"'),
	'grp_a', 'a role is a member on the standby');
my $r = $standby->measure($member, 'SELECT count(*) FROM hints');
is($r->{out}, 2000, 'it reads all rows');
between($r->{blocks}, 1900, 2200, 'blocks dirtied by hint bits on the standby');
between($r->{kb_per_s}, 0.85 * 8192, 1.15 * 8192, 'KB/s on the standby');

#
# Promotion
#
$standby_node->promote;
is($standby->definitions, $standby_groups, 'promotion keeps the groups');
is($standby->group_row('grp_a')->{active_processes}, 1, 'and their members');
is($member->query('SHOW dirty_throttle."group"'), 'grp_a', 'who know it');
$standby->limit('grp_a', 1000);
$member->send(insert_sql('later', 1000));
ok($standby->wait_paused($member, 'in flight'), 'and are throttled');
$standby->cancel_ms($member);
$member->quit;
is($primary->definitions, $primary_groups, 'the primary has its own still');

is($_->crashes, '', 'no crash') foreach $primary, $standby;
$standby->stop;
$primary->stop;
done_testing();
