# A DirtyThrottle whose definitions file cannot be read or written: single
# system calls fail, or kill, by test/fault/fault.c in LD_PRELOAD.

package DirtyThrottle::Faults;

use strict;
use warnings;

use parent 'DirtyThrottle::Life';

use Config;
use DirtyThrottle;
use DirtyThrottle::Life;
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw($DEFINED clear_fault set_fault slurp_hex trace);

# The groups that define_groups() defines.
our $DEFINED = 'grp_a=12288.5 grp_b=0 grp_c=3072';

# The log has the SQLSTATE.
sub new
{
	my ($class, $name, %opt) = @_;
	my $conf = $opt{conf} // '';

	return $class->SUPER::new(
		$name, conf => qq{
shared_buffers = 16MB
restart_after_crash = on
log_line_prefix = '%m [%p] %e '
$conf});
}

# The definitions file.
sub file
{
	my ($self) = @_;
	return $self->node->data_dir . '/dirty_throttle.groups';
}

sub define_groups
{
	my ($self) = @_;

	$self->sql('SELECT drop_resource_group(group_name) FROM dirty_throttle_groups');
	$self->sql(
		q{SELECT set_group_dirty_limit('grp_a', 12288.5),
		         create_resource_group('grp_b'),
		         set_group_dirty_limit('grp_c', 3072)});
	is($self->definitions, $DEFINED, 'groups as defined');
}

sub restart
{
	my ($self) = @_;

	$self->stop('immediate');
	$self->node->start;
}

sub slurp_hex
{
	return -e $_[0] ? unpack 'H*', slurp_file($_[0]) : 'no file';
}

# Start the server again, with the library; it does nothing before set_fault().
# False where that is not possible.  The environment is for all later starts.
sub preload
{
	my ($self) = @_;

	my $fault = PostgreSQL::Test::Utils::tempdir_short() . '/fault';
	my $library = compile_library("$FindBin::RealBin/../fault/fault.c", "$fault.so");

	return 0 unless $library && $Config{osname} eq 'linux';
	$ENV{DT_FAULT} = $fault;
	$ENV{LD_PRELOAD} = $library;
	$self->restart;
	return 1;
}

# From now on calls number $first to $last meet this; see fault.c.  For servers
# that were started with the present value of DT_FAULT in the environment.
sub set_fault
{
	my ($first, $last, $action, $errno) = @_;
	my $fault = $ENV{DT_FAULT};

	unlink "$fault.trace";
	open my $f, '>', "$fault.new" or die "$fault.new: $!";
	print $f "$first $last $action " . ($errno // 0) . "\n";
	close $f or die "$fault.new: $!";
	rename "$fault.new", $fault or die "rename: $!";
}

sub clear_fault
{
	unlink $ENV{DT_FAULT};
}

# The calls since the last set_fault(): 'write tmp', ...
sub trace
{
	my $file = "$ENV{DT_FAULT}.trace";

	return () unless -e $file;
	return map { s/ +/ /r =~ s/ +$//r } split /\n/, slurp_file($file);
}

1;
