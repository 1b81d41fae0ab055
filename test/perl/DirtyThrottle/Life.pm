# A DirtyThrottle whose server restarts, crashes, or is one of several: what
# the tests of a server's life share.

package DirtyThrottle::Life;

use strict;
use warnings;

use parent 'DirtyThrottle';

use DirtyThrottle;
use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(compile_library cpu_s gone insert_sql);

# One of these for a server that exists already, say a standby.
sub over
{
	my ($class, $node) = @_;
	return bless { node => $node }, $class;
}

# All groups and their limits: 'a=100 b=0'.
sub definitions
{
	my ($self) = @_;
	return $self->sql(
		q{SELECT coalesce(string_agg(group_name || '=' || coalesce(dirty_limit, 0), ' '
		         ORDER BY group_name COLLATE "C"), '')
		  FROM dirty_throttle_groups WHERE instance IS NULL});
}

# Append to postgresql.conf, and tell the server.
sub reload
{
	my ($self, $conf) = @_;

	$self->node->append_conf('postgresql.conf', $conf);
	$self->node->reload;
}

# A table with room for one row a block, and the INSERT that dirties n blocks.
sub table
{
	my ($self, $table) = @_;
	$self->sql("CREATE TABLE $table (id int, pad text) WITH (fillfactor = 10)");
}

sub insert_sql
{
	my ($table, $n) = @_;
	return "INSERT INTO $table SELECT i, repeat('x', 900)"
	  . " FROM generate_series(1, $n) i";
}

# The process ID of a process of the server by a part of its title, or undef.
sub process
{
	my ($self, $title) = @_;
	my ($postmaster) = slurp_file($self->node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

	# not by ps, which is on no bare machine
	foreach my $pid (map { m!(\d+)! } glob '/proc/[0-9]*')
	{
		# one that has ended meanwhile has neither
		my ($stat, $command) = map { eval { slurp_file("/proc/$pid/$_") } // '' } qw(stat cmdline);

		return $pid
		  if $stat =~ /.*\) . (\d+) / && $1 == $postmaster && $command =~ $title;
	}
	return undef;
}

sub sampler
{
	my ($self) = @_;
	return $self->process('dirty_throttle pressure');
}

# Where the server log ends now, and what it says from there on.
sub log_mark
{
	my ($self) = @_;
	return -s $self->node->logfile // 0;
}

sub log_since
{
	my ($self, $mark) = @_;
	open my $file, '<', $self->node->logfile or die "server log: $!";
	seek $file, $mark // 0, 0;
	local $/;
	return <$file> // '';
}

# What in the log, from there on, must never be in one: lines.
sub crashes
{
	my ($self, $mark) = @_;
	return join "\n",
	  grep {
		/PANIC:|TRAP:|leak:|not closed|\(PID \d+\) was terminated/
	} split /\n/,
	  $self->log_since($mark);
}

# A shared library from test/fault, for the server or LD_PRELOAD, or undef where that
# is not to be had.  Options: flags of the compiler; as => another name.
sub compile_library
{
	my ($name, %opt) = @_;
	my $top = "$FindBin::RealBin/../..";
	my $so = PostgreSQL::Test::Utils::tempdir_short() . '/' . ($opt{as} // $name) . '.so';
	my $flags = $opt{flags} // '';
	my $messages = '';

	return undef unless $^O eq 'linux';
	chomp(my $cc = `pg_config --cc`);
	chomp(my $include = `pg_config --includedir-server`);
	foreach my $compiler ($cc, 'cc')
	{
		$messages .=
		  `$compiler -shared -fPIC -O1 -D_GNU_SOURCE $flags -I'$top/src' -I'$include' -o '$so' '$top/test/fault/$name.c' -ldl 2>&1`;
		return $so if $? == 0;
	}
	note $messages;
	return undef;
}

# CPU time of a process in seconds.
sub cpu_s
{
	my ($pid) = @_;

	open my $file, '<', "/proc/$pid/stat" or die "/proc/$pid/stat: $!";
	my @fields = split ' ', <$file> =~ s/.*\) //r;
	return ($fields[11] + $fields[12]) / `getconf CLK_TCK`;
}

# Is that process gone?  Nobody may have waited for it yet.
sub gone
{
	my ($pid) = @_;

	return 1 unless kill 0, $pid;
	return `ps -o stat= -p $pid` =~ /^\s*(Z|$)/ unless -d '/proc/self';
	open my $file, '<', "/proc/$pid/stat" or return 1;
	return (<$file> // '') =~ /^(.*\) Z |$)/;
}

# After a kill of the postmaster, when all its processes have gone: there may be
# nobody who buries it soon; then its lock files would be taken for a living
# one's.
sub bury
{
	my ($self, $pid) = @_;
	my $node = $self->node;

	poll_until(sub { !kill 0, $pid }, 0.5)
	  or unlink $node->data_dir . '/postmaster.pid',
	  $node->host . '/.s.PGSQL.' . $node->port . '.lock';
}

# Wait until nobody is a member and nothing is owed; the groups that are
# still in use, as text, which is empty when all is well.
sub left_over
{
	my ($self) = @_;
	my $query =
		q{SELECT coalesce(string_agg(g::text, ' '), '')
		  FROM dirty_throttle_groups g
		  WHERE members <> 0 OR paused <> 0 OR dirty_debt <> 0};

	poll_until(sub { $self->sql($query) eq '' });
	return $self->sql($query);
}

1;
