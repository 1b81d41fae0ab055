# Instances of groups in the life of a server: a thousand roles of which most are
# idle, a crash, a standby that is promoted.
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# takes-about: 13 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $ROLES = 1000;
my $one = DirtyThrottle::Standby->primary('one', conf => q{
restart_after_crash = on
max_connections = 40
dirty_throttle.max_commit_pause = 1h
});
my $SLOW = q{DO $$ BEGIN PERFORM pg_logical_emit_message(true, 'x', repeat('x', 10000000)); END $$};

$one->sql(qq{DO \$\$ BEGIN FOR i IN 1..$ROLES LOOP EXECUTE format('CREATE ROLE r%s LOGIN', i); END LOOP; END \$\$;
	SELECT alter_resource_group('tenants', wal_limit => 10, scope => 'role');
	SELECT alter_resource_group('tenants', wal_limit => 20, instance => 'r2');
	ALTER DATABASE postgres SET dirty_throttle."group" = 'tenants'});

sub row
{
	my ($dt) = @_;
	my $row = $dt->group_row('tenants');
	return "$row->{instances} $row->{members} $row->{paused}";
}

# A session of a role that pauses for a quarter of an hour; others do not.
sub check_limited
{
	my ($dt, $name) = @_;
	my ($slow, $other) = map { $dt->session(user => $_) } qw(r1 r2);

	$slow->send($SLOW);
	ok($dt->wait_paused($slow), "$name: a role pauses");
	is($dt->sql(q{SELECT string_agg(concat_ws(' ', instance, wal_limit, members, paused), ', ' ORDER BY instance)
			FROM dirty_throttle_groups WHERE instance IS NOT NULL AND members > 0}), 'r1 10 1 1, r2 20 1 0', "$name: and the other one does not");
	return ($slow, $other);
}

# By default there is room for them.
{
	my $psql = $one->node->basedir . '/logins.sql';
	my $host = $one->node->host;
	my $port = $one->node->port;

	append_to_file($psql, join '', map { "\\c \"host=$host port=$port dbname=postgres user=r$_\"\nSELECT 1;\n" } 1 .. $ROLES);
	my ($out, $err) = ('', '');
	is($one->node->psql('postgres', undef, stdout => \$out, stderr => \$err,
			extra_params => [ '-f', $psql ], timeout => 180), 0, "$ROLES roles log in");
	unlike($err, qr/WARNING/, 'with an instance each');
	ok(poll_until(sub { row($one) eq "$ROLES 0 0" }), 'and are idle then');
	my @busy = map { $one->session(user => "r$_") } 901 .. 910;
	$_->send($SLOW) foreach @busy;
	ok($one->wait_paused($_), 'one that works pauses') foreach @busy;
	is(row($one), "$ROLES 10 10", 'ten of them work');
	is($one->sql('SELECT count(*) FROM dirty_throttle_groups WHERE instance IS NOT NULL AND members > 0'), 10, 'as the view shows');
	is($one->sql(q{SELECT count(*) FROM dirty_throttle_writers WHERE group_name = 'tenants' AND wal_bytes > 1000000}),
		10, 'and that of who writes');
	# from 18 on that has who is in no group, too: the one that has made the roles
	is($one->sql(q{SELECT count(*) > 0 FROM dirty_throttle_writers WHERE usename = 'postgres' AND group_name IS NULL}),
		$one->sql(q{SELECT current_setting('server_version_num')::int >= 180000}), 'also in no group, where the core counts that');
	$one->cancel_ms($_), $_->quit foreach @busy;

	# Whoever reads the views all the time keeps nobody from beginning or changing one.
	my @readers = map { $one->session(user => "r$_") } 1 .. 20;
	$_->send(q{DO $$ BEGIN LOOP PERFORM count(*) FROM dirty_throttle_groups(); END LOOP; END $$}) foreach @readers;
	$one->sql('CREATE ROLE newcomer LOGIN');
	my $new = $one->session(user => 'newcomer');
	is($new->query('SHOW dirty_throttle."group"'), 'tenants', 'a new role logs in while others read the views all the time');
	$one->sql(q{SELECT alter_resource_group('tenants', wal_limit => 11)});
	$one->sql(q{SELECT alter_resource_group('tenants', wal_limit => 10)});
	is($one->sql(q{SELECT count(*) FROM dirty_throttle_groups WHERE instance = 'newcomer' AND wal_limit = 10 AND members = 1}),
		1, 'and limits change');
	$one->cancel_ms($_), $_->quit foreach @readers;
	$new->quit;
}

# kill -9 of a member
my @s = check_limited($one, 'before the crash');
$one->disconnect;
kill 'KILL', $s[0]->pid or die "kill: $!";
$_->wait foreach @s[ 0 .. 0 ];
ok(poll_until(sub { my $r = eval { row($one) } // ''; $r eq '1 0 0' }), 'a crash: what differs is there, and nobody is a member');
@s = check_limited($one, 'after the crash');
$one->cancel_ms($s[0]);
$_->quit foreach @s;

# a standby
my $two = $one->standby('two');
$one->sql(q{SELECT alter_resource_group('tenants', wal_limit => 30, instance => 'r3'),
	alter_resource_group('tenants', instance => 'r3')});
$two->replay($one);
is($two->sql(q{SELECT string_agg(concat_ws(' ', instance, wal_limit), ',') FROM dirty_throttle_groups WHERE instance IS NOT NULL}),
	'r2 20', 'a standby has what differs');
my $reader = $two->session(user => 'r4');
is($reader->query('SELECT 1'), 1, 'and instances of its own');
$one->disconnect;
$one->node->stop('fast');
$two->node->promote;
ok(poll_until(sub { $two->sql('SELECT pg_is_in_recovery()') eq 'f' }), 'promoted');
@s = check_limited_after($two);

sub check_limited_after
{
	my ($dt) = @_;
	$reader->quit;
	return check_limited($dt, 'after a failover');
}
$two->cancel_ms($s[0]);
$_->quit foreach @s;
$two->finish;
