# A failover keeps the limits, in whatever way it is done: promotion, a new
# primary for the other standbys by a reload, the old primary back as a standby
# with and without pg_rewind, changes on both sides of a split.  And standbys
# that cannot take all, or are of another release.
#
# takes-about: 35 s
# not-timed
# expect-in-log: WARNING:  resource group "batch" does not exist

use strict;
use warnings FATAL => 'all';

use Cwd qw(realpath);
use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $LIMIT = 2000;    # KB/s
my $one = DirtyThrottle::Standby->primary('one', conf => 'wal_keep_size = 256MB');
$one->table($_) foreach 't1', 't2';
$one->sql(q{CREATE ROLE etl LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO etl});
$one->limit(batch => $LIMIT);
$one->sql(q{ALTER ROLE etl SET dirty_throttle."group" = 'batch'});
my $two = $one->standby('two');
my $three = $one->standby('three');
is($_->wait_status('following'), 'following', $_->node->name . ' follows')
  foreach $two, $three;

# The directory of a server's definitions file.
sub store { return $_[0]->node->data_dir . '/dirty_throttle.groups' }

# A standby has another primary from now on: by a reload, as Patroni does it.
sub repoint
{
	my ($standby, $primary) = @_;

	$standby->sql("ALTER SYSTEM SET primary_conninfo = '"
		  . $primary->node->connstr . "'");
	$standby->sql('SELECT pg_reload_conf()');
}

# A server that is down becomes a standby of another one, without a reload.
sub make_standby
{
	my ($dt, $primary) = @_;

	$dt->node->append_conf('postgresql.auto.conf',
		"primary_conninfo = '" . $primary->node->connstr . "'");
	append_to_file($dt->node->data_dir . '/standby.signal', '');
}

sub everywhere
{
	my ($what, $primary, @standbys) = @_;

	foreach my $standby (@standbys)
	{
		ok(defined $standby->arrival($primary, 60),
			"$what: " . $standby->node->name . ' has the definitions of '
			  . $primary->node->name)
		  or diag $primary->stamp, "\n", $primary->ddl, "\n", $standby->stamp, "\n", $standby->ddl;
	}
}

# -------------------------------------------------- a promotion, under load

my $etl = $one->session(user => 'etl');
$etl->send(insert_sql('t1', 100000));
ok($one->wait_paused($etl, 'in flight'), 'the batch works, and pauses');
my $on_standby = $two->session(user => 'etl');
is($on_standby->query('SHOW dirty_throttle."group"'), 'batch', 'a session on the standby');

# the old primary is fenced: nothing is written there any more
$one->cancel_ms($etl);
$etl->quit;
$one->node->wait_for_catchup($_->node->name) foreach $two, $three;
$two->sql('SELECT pg_promote()');
my $reconnected = $two->session(user => 'etl');
my $r = $two->measure($reconnected, insert_sql('t2', 500));
between($r->{kb_per_s}, 0.5 * $LIMIT, 1.2 * $LIMIT,
	'KB/s of the first statement after the failover');
$r = $two->measure($on_standby, insert_sql('t2', 500));
between($r->{kb_per_s}, 0.5 * $LIMIT, 1.2 * $LIMIT,
	'KB/s of a session that was there before');
$_->quit foreach $reconnected, $on_standby;
is($two->following->{status}, 'not a standby', 'it does not follow any more');
my ($timeline) = split /\./, $two->stamp;
is($timeline, 2, 'its definitions are those of its timeline');

repoint($three, $two);
everywhere('a new primary, by a reload', $two, $three);
is($three->wait_status('following'), 'following', 'it follows');
is($three->following->{source_port}, $two->node->port, 'the new one');

# ------------------------------------- changes on both sides of the split

# The old primary was never told.  Its change is the last one by the clock.
$one->limit(batch => 111);
$one->limit(of_old => 5);
is($three->following->{status}, 'following', 'nobody hears of that');
$one->disconnect;
$one->node->stop('fast');
my $own = slurp_file(store($one));
$two->sql('CHECKPOINT');    # or pg_rewind takes it to be on the old timeline
command_ok(
	[ 'pg_rewind', '--source-server', $two->node->connstr('postgres'),
		'--target-pgdata', $one->node->data_dir, '--no-sync',
		'--config-file', $one->node->data_dir . '/postgresql.conf' ],
	'pg_rewind of the old primary');
is(unpack('H*', slurp_file(store($one))), unpack('H*', slurp_file(store($two))),
	'it takes the file of definitions along');

# as if it had not
{
	open my $file, '>:raw', store($one) or die;
	print $file $own;
	close $file;
}
$one->node->append_conf('postgresql.conf', 'port = ' . $one->node->port);
make_standby($one, $two);
$one->node->start;
everywhere('the higher timeline, with the earlier change', $two, $one);
is($two->group_row('of_old'), undef, 'not the other way round');
$two->limit(batch => 222);
$two->limit(of_new => 6);
everywhere('changes of the new primary', $two, $one, $three);

# ------------------------------------------------ back again: a switchover

$_->disconnect foreach $one, $two, $three;
$two->node->stop('fast');
$one->sql('SELECT pg_promote()');
is((split /\./, $one->stamp)[0], 3, 'promoted');
$one->limit(batch => 333);
make_standby($two, $one);
$two->node->start;
repoint($three, $one);
everywhere('switched over', $one, $two, $three);
$two->disconnect;
$two->node->restart;
everywhere('restarted', $one, $two);

# ------------------------------------- a crash of all, and a promotion at once

# What has arrived is durable on each.
$one->sql(q{SELECT create_resource_group('durable', 77)});
everywhere('before the crash', $one, $two, $three);
my $expected = $one->ddl;
$_->disconnect, $_->node->stop('immediate') foreach $one, $two, $three;
$two->node->start;
$two->sql('SELECT pg_promote()');
is($two->ddl, $expected, 'after a crash of all, what has arrived is there');
is((split /\./, $two->stamp)[0], 4, 'on a timeline of its own');

# ----------------------------------------------- a standby with less room

$two->sql(q{SELECT drop_resource_group(group_name) FROM dirty_throttle_groups
	WHERE group_name NOT IN ('batch', 'durable')});
my $small = $two->standby('small', conf => 'dirty_throttle.max_groups = 3');
everywhere('it fits', $two, $small);
$two->sql(q{SELECT create_resource_group('extra ' || i) FROM generate_series(1, 4) i;
	SELECT grant_group_use('extra 4', 'etl'), grant_group_use('batch', 'etl')});
ok( poll_until(sub { ($small->following->{last_error} // '') =~ /^4 groups or grants do not fit/ }),
	'too many groups: the view says so');
is($small->following->{status}, 'failing', 'and that it fails');
is($small->definitions, 'batch=333 durable=77 extra 1=0', 'those that fit are there');
$two->limit(batch => 444);
ok(poll_until(sub { $small->definitions eq 'batch=444 durable=77 extra 1=0' }, 10),
	'and follow');
is($small->sql('SELECT role_name FROM dirty_throttle_grants'), 'etl', 'with their grants');
like(
	$small->log_since(0),
	qr/LOG:  resource groups do not follow the primary: 4 groups or grants do not fit\n.*\n.*HINT:  Set dirty_throttle.max_groups to that of the primary, and restart this server/,
	'the log says what to do');
$small->disconnect;
$small->node->restart;
is($small->definitions, 'batch=444 durable=77 extra 1=0', 'also after a restart');
$small->disconnect;
$small->node->append_conf('postgresql.conf', 'dirty_throttle.max_groups = 10');
$small->node->restart;
everywhere('more room', $two, $small);
is($small->wait_status('following'), 'following', 'all is well then');
$small->stop;

# ---------------------------------------- a server that recovers to a moment

my $moment = PostgreSQL::Test::Cluster->new('moment');
$moment->init_from_backup($two->node, 'for_small');
$moment->adjust_conf('postgresql.auto.conf', 'primary_conninfo', undef);
$moment->append_conf('postgresql.conf', "restore_command = 'cp \"" .
	  $two->node->data_dir . "/pg_wal/%f\" \"%p\"'
recovery_target = 'immediate'
recovery_target_action = 'pause'
primary_conninfo = '" . $two->node->connstr . "'");
append_to_file($moment->data_dir . '/recovery.signal', '');
$moment->start;
my $restored = DirtyThrottle::Standby->over($moment);
sleep 1.5;
is($restored->following->{status}, 'not a standby', 'recovery to a moment: it does not follow');
is($restored->definitions, 'batch=333 durable=77', 'it has what it was restored with');
$restored->limit(batch => 9);
like($restored->definitions, qr/batch=9 /, 'which can be changed');
$restored->stop('immediate');

# ------------------------------------------------------------ another release

# The library of this one writes another version of the format.
my $top = realpath("$FindBin::RealBin/../..");
my $copy = PostgreSQL::Test::Utils::tempdir() . '/source';
my $build = "cp -a '$top/src' '$top/sql' '$top/Makefile' '$top/dirty_throttle.control' '$copy'"
  . " && cd '$copy' && rm -f src/follow/line.o"
  . " && make -s PG_CONFIG=pg_config with_llvm=no PG_CPPFLAGS=-DDT_LINE_MAJOR=7 all";
mkdir $copy;
my $messages = `($build) 2>&1`;

SKIP:
{
	ok(-f "$copy/dirty_throttle.so", 'another release is built') or diag $messages;
	skip 'there is no other release', 4 unless -f "$copy/dirty_throttle.so";

	$three->node->append_conf('postgresql.auto.conf',
		"primary_conninfo = '" . $two->node->connstr . "'");
	$two->disconnect;
	$two->node->append_conf('postgresql.conf',
		"shared_preload_libraries = '$copy/dirty_throttle'");
	$two->node->restart;
	like($two->sql('SHOW dirty_throttle.definitions'), qr/^dirty_throttle 7\.0 /,
		'it writes another format');
	$two->sql(
		qq{CREATE FUNCTION other_limit(text, float8) RETURNS void
			AS '$copy/dirty_throttle', 'set_group_dirty_limit' LANGUAGE C;
		   SELECT other_limit('batch', 555)});
	$three->node->start;
	ok( poll_until(sub { ($three->following->{last_error} // '') =~
			/its format version is 7\.0, and this release of dirty_throttle reads 1\.x/ }),
		'its standby cannot read that, and says so');
	is($three->ddl, $expected, 'and keeps what it had');
	$two->disconnect;
	$two->node->append_conf('postgresql.conf', "shared_preload_libraries = 'dirty_throttle'");
	$two->node->restart;
	everywhere('the same release again', $two, $three);
	like($three->definitions, qr/batch=555 /, 'with what was changed meanwhile');
	$three->stop;
}

is($_->crashes, '', $_->node->name . ': no crash') foreach $one, $two, $three;
$two->finish;
