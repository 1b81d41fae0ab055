# The definitions are taken along to a new server: by pg_upgrade and a copy of
# their file, and by pg_dumpall and dirty_throttle_ddl().
#
# With DT_OLD_INSTALL in the environment, an installation (the directory above
# bin) of an earlier major release that has the extension, this is a real
# upgrade; else pg_upgrade comes from the release that it goes to.
#
# takes-about: 39 s
# not-timed
# expect-in-log: WARNING:  resource group "batch" does not exist
#
# expect-in-log: WARNING:  specified neither "?primary_conninfo"? nor "?restore_command"?

use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $install = $ENV{DT_OLD_INSTALL};
my $conf = q{
shared_preload_libraries = 'dirty_throttle'
fsync = off
max_wal_senders = 5
};

# A server of one of the two installations, not started.
sub server
{
	my ($name, @opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, @opt);

	# with options, so that each is a system of its own, no copy; the default of
	# checksums differs between releases
	my $initdb = @opt ? "$install/bin/initdb" : 'initdb';
	my @extra = '--no-sync';
	push @extra, '--no-data-checksums' if `$initdb --help` =~ /--no-data-checksums/;
	$node->init(allows_streaming => 1, extra => \@extra);
	# the modules write it for every release
	$node->adjust_conf('postgresql.conf', 'autovacuum_worker_slots', undef) if @opt;
	$node->append_conf('postgresql.conf', $conf);
	return DirtyThrottle::Standby->over($node);
}

my $old = server('old', $install ? (install_path => $install) : ());
$old->node->start;
$old->node->stop;

# on a timeline that a new server does not have
append_to_file($old->node->data_dir . '/standby.signal', '');
$old->node->start;
$old->node->promote;
$old->sql(
	q{CREATE EXTENSION dirty_throttle;
	CREATE ROLE gone; CREATE ROLE etl LOGIN; CREATE ROLE "o'Brien"; DROP ROLE gone;
	SELECT set_group_dirty_limit('batch', 1000.5), set_group_wal_limit('batch', 2000),
		set_group_burst('batch', 100), create_resource_group('Grüße ''%'),
		set_group_mode('Grüße ''%', 'observe'),
		set_group_pressure('batch', 'slot_lag', '3GB'), set_group_floor('batch', 77),
		grant_group_use('batch', 'etl'), grant_group_use('Grüße ''%', 'o''Brien');
	ALTER ROLE etl SET dirty_throttle."group" = 'batch'});
my $ddl = $old->ddl;
is((split /\./, $old->stamp)[0], 2, 'definitions of timeline 2');

# Has a server all that the old one had?
sub check
{
	my ($new, $how) = @_;

	is($new->ddl, $ddl, "$how: all definitions");
	is( $new->sql('SELECT group_name, role_name FROM dirty_throttle_grants ORDER BY role_name'),
		"batch|etl\nGrüße '%|o'Brien" =~ s/Grüße/Gr\xc3\xbc\xc3\x9fe/r,
		"$how: the grants are to the same roles");
	my $etl = $new->session(user => 'etl');
	is($etl->query('SHOW dirty_throttle."group"'), 'batch', "$how: the role is in its group");
	$etl->quit;
}

# ----------------------------------------------------------------- pg_dumpall

my $dumped = server('dumped');
$dumped->node->start;
# other OIDs of roles
$dumped->sql('CREATE ROLE first; CREATE ROLE second; DROP ROLE first, second');
$old->disconnect;
my $tmp = PostgreSQL::Test::Utils::tempdir();
my ($from, $to) = map { $_->node->connstr('postgres') } $old, $dumped;
command_ok([ 'sh', '-c', qq{pg_dumpall -d "$from" -f "$tmp/all.sql"} ], 'pg_dumpall');
system_log('psql', '-Xq', '-d', $to, '-f', "$tmp/all.sql");
is($dumped->definitions, '', 'pg_dumpall does not take definitions along');
command_ok(
	[ 'sh', '-c',
		qq{psql -d "$from" -AtXc 'SELECT dirty_throttle_ddl()' | psql -X -v ON_ERROR_STOP=1 -d "$to"} ],
	'dirty_throttle_ddl() does');
check($dumped, 'pg_dumpall');
$dumped->stop;

# ----------------------------------------------------------------- pg_upgrade

my $new = server('new');
my $file = 'dirty_throttle.groups';
$old->disconnect;
$old->node->stop;
chdir $tmp or die "chdir: $!";
command_ok(
	[
		'pg_upgrade', '--no-sync',
		'--old-datadir', $old->node->data_dir,
		'--new-datadir', $new->node->data_dir,
		'--old-bindir', $old->node->config_data('--bindir'),
		'--new-bindir', $new->node->config_data('--bindir'),
		'--socketdir', $new->node->host,
		'--old-port', $old->node->port,
		'--new-port', $new->node->port
	],
	'pg_upgrade from ' . ($install // 'the same release'));
chdir $FindBin::RealBin;
ok(!-e $new->node->data_dir . "/$file", 'it does not take the file along');
copy($old->node->data_dir . "/$file", $new->node->data_dir . "/$file") or die "copy: $!";
chmod 0600, $new->node->data_dir . "/$file";
$new->node->start;
check($new, 'pg_upgrade');
is((split /\./, $new->stamp)[0], 1, 'definitions of timeline 1');

# The file says timeline 2, of another system: no standby may take that to be
# newer than what its primary has.
my $standby = $new->standby('standby');
is($standby->wait_status('following'), 'following', 'a standby of the new server follows');
$new->limit(batch => 5);
ok(defined $standby->arrival($new), 'its definitions arrive');
$standby->disconnect;
$standby->node->restart;
is($standby->wait_status('following'), 'following', 'also after a restart');
$standby->stop;
$new->finish;
