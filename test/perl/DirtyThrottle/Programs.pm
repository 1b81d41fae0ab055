# Programs and extensions of others that a machine may lack, for the tests in
# test/systems: whether they are there, and running them as long as a test runs.
#
#	my $exe = need_programs(patroni => 'patroni', etcd => 'etcd-server');
#	need_extensions(pglogical => 'pglogical');
#	my $pid = start_program('etcd', $exe->{etcd}, '--data-dir', $dir);
#
# What is missing skips the file, and the message names the Debian packages.  A
# directory in DT_PROGRAMS comes first: for another release of a program.

package DirtyThrottle::Programs;

use strict;
use warnings;

use DirtyThrottle;
use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT =
  qw(need_programs need_extensions allow_output_plugins program_log start_program stop_program);

my %running;    # process ID to name

# The paths of programs, given as NAME => PACKAGE.
sub need_programs
{
	my %packages = @_;
	my (%paths, %missing);

	foreach my $name (keys %packages)
	{
		($paths{$name}) = grep { -x && !-d } map { "$_/$name" }
		  $ENV{DT_PROGRAMS} // (), split(/:/, $ENV{PATH}), '/usr/local/sbin', '/usr/sbin';
		$missing{ $packages{$name} } = 1 unless $paths{$name};
	}
	_skip(sort keys %missing);
	return \%paths;
}

# Are these extensions there, given as NAME => PACKAGE without the beginning of
# its name, which depends on the release of PostgreSQL?
sub need_extensions
{
	my %packages = @_;
	my $dir = `pg_config --sharedir`;
	my ($major) = `pg_config --version` =~ /(\d+)/;

	chomp $dir;
	_skip(
		sort map { "postgresql-$major-$packages{$_}" }
		  grep { !-f "$dir/extension/$_.control" } keys %packages);
}

sub _skip
{
	plan skip_all => 'not installed: ' . join(', ', @_) if @_;
}

# Before a server is started: it may load these.  Minor releases that have the
# parameter want to know them.
sub allow_output_plugins
{
	my ($node, @plugins) = @_;
	my $dir = $node->data_dir;

	`postgres -C output_plugin_libraries -D '$dir' 2>&1`;
	$node->append_conf('postgresql.conf',
		'output_plugin_libraries = \'' . join(', ', 'pgoutput', @plugins) . '\'')
	  if $? == 0;
}

# What a program has said, and where test/run looks for it.
sub program_log
{
	my ($name) = @_;
	my ($test) = $0 =~ m!([^/]+)\.pl$!;

	return "$PostgreSQL::Test::Utils::log_path/${test}_$name.log";
}

# Start a program, which ends with this test if not before; its process ID.
sub start_program
{
	my ($name, @command) = @_;
	my $log = program_log($name);
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		# it is no client of the server that the test has started
		delete @ENV{ grep { /^PG/ } keys %ENV };
		open STDOUT, '>>', $log;
		open STDERR, '>&', \*STDOUT;
		{ exec @command }
		print STDERR "$command[0]: $!\n";
		POSIX::_exit(127);
	}
	$running{$pid} = $name;
	return $pid;
}

# End one, by SIGTERM as a rule, and wait for that.
sub stop_program
{
	my ($pid, $signal) = @_;

	delete $running{$pid} or return;
	kill $signal // 'TERM', $pid;
	poll_until(sub { waitpid($pid, POSIX::WNOHANG()) != 0 }) and return;
	kill 'KILL', $pid;
	waitpid $pid, 0;
}

END
{
	local $?;
	stop_program($_) foreach keys %running;
}

1;
