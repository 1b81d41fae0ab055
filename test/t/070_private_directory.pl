# The extension in a directory of its own, as in an image that holds nothing
# else: from 18 on, extension_control_path and dynamic_library_path lead there.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle->new('private', no_start => 1);
my $node = $dt->node;

plan skip_all => 'extension_control_path is new in 18'
  if $node->pg_version->major < 18;

my $top = "$FindBin::RealBin/../..";
my $dir = PostgreSQL::Test::Utils::tempdir;
my $comment = 'in a directory of its own';

command_ok(
	[ 'make', '-s', '-C', $top, 'PG_CONFIG=pg_config', "DESTDIR=$dir", 'install' ],
	'make install DESTDIR=DIRECTORY');

chomp(my $sharedir = `pg_config --sharedir`);
chomp(my $pkglibdir = `pg_config --pkglibdir`);
my ($share, $lib) = ("$dir$sharedir", "$dir$pkglibdir");
my $control = "$share/extension/dirty_throttle.control";
my ($library) = grep { -f } glob "$lib/dirty_throttle.*";
my ($version) = slurp_file($control) =~ /^default_version = '(.+)'$/m;

# Another one may be installed in the server's own directories.
my $text = slurp_file($control);
$text =~ s/^comment = .*$/comment = '$comment'/m;
unlink $control;
append_to_file($control, $text);

$node->append_conf('postgresql.conf', qq{
extension_control_path = '$share'
dynamic_library_path = '$lib'
});
$node->start;
is( $dt->sql("SELECT default_version, comment FROM pg_available_extensions
		WHERE name = 'dirty_throttle'"),
	"$version|$comment",
	'it is found there');
$dt->sql('CREATE EXTENSION dirty_throttle');
is( $dt->sql("SELECT version FROM pg_get_loaded_modules()
		WHERE module_name = 'dirty_throttle'"),
	$version,
	'the server knows which version of the library it has loaded');

# The functions are those of the library that was preloaded.
$dt->limit(grp_a => 1000);
$dt->sql('CREATE TABLE t (id int, pad text) WITH (fillfactor = 10)');
my $s = $dt->session(group => 'grp_a');
$s->send("INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(1, 5000) i");
ok($dt->wait_paused($s, 'in flight'), 'a member pauses');
SKIP:
{
	skip 'no /proc', 1 unless -r '/proc/self/maps';

	my %mapped = map { $_ => 1 }
	  slurp_file('/proc/' . $s->pid . '/maps') =~ m!(/\S*/dirty_throttle\.\w+)$!mg;
	is_deeply([ keys %mapped ], [$library], 'no other library is loaded');
}
$dt->limit(grp_a => 0);
is($s->wait->{sqlstate}, undef, 'and goes on without a limit');

$s->quit;
$dt->finish;
