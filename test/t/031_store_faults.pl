# The definitions file cannot be written, for any reason, or whoever writes it
# is killed: the user is told, memory and file agree on the old definitions,
# or both on the new ones, and it works again when the reason has gone.
#
# Single system calls fail, or kill, by a library in LD_PRELOAD, one after the
# other; file size limits and a full disk are real.
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# expect-in-log: WARNING:  could not (open|fsync|close|rename) file "(dirty_throttle\.groups(\.tmp)?|\.)"
# takes-about: 16 s
# not-timed

use strict;
use warnings FATAL => 'all';

use Errno qw(EDQUOT EIO ENOSPC EROFS);
use File::Copy qw(copy);
use FindBin;
use IPC::Open2;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Faults;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

# without fsync there is none to fail
my $dt = DirtyThrottle::Faults->new('faults', conf => "fsync = on\nwal_sync_method = fsync");
my $node = $dt->node;
my $dir = $node->data_dir;
my $file = $dt->file;
my $expected = $DEFINED;

# Each kind of change: SQL, the groups after it, and its opposite.
my @changes = (
	[
		"set_group_dirty_limit('grp_a', 5)",
		'grp_a=5 grp_b=0 grp_c=3072',
		"set_group_dirty_limit('grp_a', 12288.5)"
	],
	[
		"create_resource_group('grp_d', 4)", "$expected grp_d=4",
		"drop_resource_group('grp_d')"
	],
	[
		"rename_resource_group('grp_b', 'renamed')",
		'grp_a=12288.5 grp_c=3072 renamed=0',
		"rename_resource_group('renamed', 'grp_b')"
	],
	[
		"drop_resource_group('grp_b', force => true)",
		'grp_a=12288.5 grp_c=3072',
		"create_resource_group('grp_b')"
	],
	[
		"reset_group_dirty_limit('grp_a')",
		'grp_a=0 grp_b=0 grp_c=3072',
		"set_group_dirty_limit('grp_a', 12288.5)"
	]);

# What differs from the definitions wanted, in memory and in the file, which
# is compared with a copy; empty when all is well.
sub differences
{
	my ($definitions, $image) = @_;
	my @bad;

	push @bad, 'memory: ' . $dt->definitions
	  if $dt->definitions ne $definitions;
	push @bad, 'file: ' . slurp_hex($file) if slurp_hex($file) ne $image;
	return join '; ', @bad;
}

# Make this change.  It fails with the SQLSTATE and the message, which changes
# nothing, or, without these, it is made.  Memory and file are looked at, the
# members too.
sub check_change
{
	my ($what, $change, $sqlstate, $message, %opt) = @_;
	my ($sql, $after) = @$change;
	my $old_image = slurp_hex($file);
	my $session = $opt{session} // $dt->session;
	my $member = $opt{member} // $dt->session(group => 'grp_b');
	my $result = $session->run("SELECT $sql");

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$what = "$what: $sql";
	is($result->{sqlstate} // 'success',
		$sqlstate // 'success', "$what: SQLSTATE")
	  or diag $result->{err};
	like($result->{err}, $message, "$what: message") if $message;
	if ($sqlstate)
	{
		like(
			$result->{err},
			qr/DETAIL:  The resource groups are unchanged\./,
			"$what: says that nothing has changed");
		is(differences($expected, $old_image), '', "$what: nothing has changed");
		is(join(' ', map { $_ // 'none' } @{ $dt->group_row('grp_b') // {} }{
				qw(active_processes paused_processes) }),
			'1 0', "$what: a member is still one");
		is(($dt->session_row($member) // {})->{group_name},
			'grp_b', "$what: and seen as one");
	}
	else
	{
		is($dt->definitions, $after, "$what: is made");
		isnt(slurp_hex($file), $old_image, "$what: in the file as well");
	}
	$member->quit unless $opt{member};
	return $result;
}

# After a restart the groups are these.
sub check_restart
{
	my ($what, $definitions) = @_;
	my $mark = $dt->log_mark;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$dt->restart;
	is($dt->definitions, $definitions, "$what: the same after a restart");
	unlike($dt->log_since($mark), qr/is damaged|PANIC|FATAL/,
		"$what: which finds nothing wrong");
}

# Each kind of change can be made and undone.  A test that has failed before
# is not to make others fail.
sub check_works
{
	my ($what, @which) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$dt->define_groups if $dt->definitions ne $expected;
	my $session = $dt->session;
	foreach my $change (@which ? @which : @changes)
	{
		my ($sql, $after, $undo) = @$change;
		my $result = $session->run("SELECT $sql");
		is($result->{sqlstate} // $dt->definitions,
			$after, "$what, then: $sql works")
		  or diag $result->{err};
		$result = $session->run("SELECT $undo");
		is($result->{sqlstate} // $dt->definitions,
			$expected, "$what, then: $undo works")
		  or diag $result->{err};
	}
	ok(!-e "$file.tmp", "$what, then: no temporary file is left");
}

my $preloaded = $dt->preload;
$dt->define_groups;

#
# A limit for the size of files, of the session that makes the change.  The
# kernel sends SIGXFSZ, too.
#
SKIP:
{
	skip 'there is no program prlimit', 1
	  unless grep { -x "$_/prlimit" } split /:/, $ENV{PATH};

	# nothing can be written, and only the first part
	foreach my $case (
		[ 0, 'XX000', 'File too large' ],
		[ 100, '53100', 'No space left on device' ])
	{
		my ($size, $sqlstate, $reason) = @$case;
		my $session = $dt->session;
		my $what = "file size limit $size";

		foreach my $change (@changes)
		{
			system_or_bail('prlimit', '--pid', $session->pid,
				"--fsize=$size:");
			check_change(
				$what, $change, $sqlstate,
				qr/ERROR:  $sqlstate: could not write file "dirty_throttle\.groups\.tmp": $reason/,
				session => $session);
			ok(!-e "$file.tmp", "$what: no temporary file is left");
			system_or_bail('prlimit', '--pid', $session->pid,
				'--fsize=unlimited:');
			is($session->run("SELECT $change->[0]")->{sqlstate},
				undef, "$what, then none: works in the same session");
			is($dt->definitions, $change->[1], "$what, then none: it is made");
			$session->query("SELECT $change->[2]");
		}
		check_restart($what, $expected);
		check_works($what);
	}
}

#
# A directory that cannot be written to, but in which a crash has left the
# temporary file, so that the first that fails is the rename.
#
foreach my $change (@changes)
{
	my $what = 'directory not writable, a temporary file left';
	my $mode = (stat $dir)[2] & 07777;

	copy($file, "$file.tmp") or die "copy: $!";
	chmod 0500, $dir or die "chmod: $!";
	eval {
		check_change($what, $change, '58030',
			qr/ERROR:  58030: could not replace file "dirty_throttle\.groups"/);
	};
	my $error = $@;
	chmod $mode, $dir or die "chmod: $!";
	die $error if $error;
	check_restart($what, $expected);
	check_works($what, $change);
}

# What a crash has left can be longer than what is written next.
append_to_file("$file.tmp", 'x' x 10000);
$dt->sql("SELECT $changes[3][0]");
check_restart('a long temporary file left', $changes[3][1]);
$dt->sql("SELECT $changes[3][2]");

#
# A disk that is full: a small one, of a namespace of our own, and reached
# through the process that holds it.
#
my ($holder, $to_holder);

sub mount_disk
{
	my ($size) = @_;
	my $mountpoint = PostgreSQL::Test::Utils::tempdir_short();
	my $from_holder;

	# it ends when this test does
	eval {
		$holder = open2(
			$from_holder,
			$to_holder,
			qw(unshare --user --map-root-user --mount sh -c),
			'mount -t tmpfs -o size=$0,mode=0777 none "$1" && echo mounted &&'
			  . ' cat >/dev/null',
			$size, $mountpoint);
	} or return;

	my $disk = "/proc/$holder/root$mountpoint";
	return (<$from_holder> // '') eq "mounted\n" && -w $disk ? $disk : undef;
}

# Write to a file until nothing fits on its disk any more; then leave room
# for that many bytes.
sub fill
{
	my ($path, $room) = @_;

	open my $f, '>', $path or die "$path: $!";
	foreach my $size (1 << 20, 4096)
	{
		1 while syswrite $f, "\0" x $size;
		die "$path: $!" unless $!{ENOSPC};
	}
	truncate $f, (-s $f) - $room or die "$path: $!";
	close $f;
}

SKIP:
{
	my $disk = mount_disk('128m');
	skip 'this user cannot mount a file system in a user namespace here', 1
	  unless $disk;

	# all in it, at the same place
	$dt->stop;
	system_or_bail('cp', '-a', $dir, "$disk/data");
	rename $dir, "$dir.small" or die "rename: $!";
	symlink "$disk/data", $dir or die "symlink: $!";
	$node->start;
	$dt->session->quit;    # leaves files that new sessions would write

	# nothing can be written, and, of more groups than a block of the disk
	# holds, only the first part
	foreach my $room (0, 4096)
	{
		my $what = "full disk but for $room bytes";

		if ($room)
		{
			$dt->sql("SELECT create_resource_group('more_' || 100 + i)"
				  . ' FROM generate_series(1, 58) i');
			$expected = $dt->definitions;
		}
		my @which = $room ? $changes[0] : @changes;
		# a server built with EXEC_BACKEND starts sessions by way of a file
		my %there = (session => $dt->session, member => $dt->session(group => 'grp_b'));
		$dt->sql('SELECT 1');
		fill("$disk/filler", $room);
		foreach my $change (@which)
		{
			check_change($what, $change, '53100',
				qr/ERROR:  53100: could not write file "dirty_throttle\.groups\.tmp": No space left on device/,
				%there);
			ok(!-e "$file.tmp", "$what: no temporary file is left");
		}
		$dt->stop('immediate');    # while it is full; it starts when it is not
		unlink "$disk/filler" or die "unlink: $!";
		$node->start;
		is($dt->definitions, $expected, "$what: the same after a restart");
		if ($room)
		{
			$dt->sql('SELECT drop_resource_group(group_name)'
				  . q{ FROM dirty_throttle_groups WHERE group_name ~ '^more_'});
			$expected = $dt->definitions;
		}
		check_works($what, @which);
	}

	$dt->stop;
	unlink $dir or die "unlink: $!";
	rename "$dir.small", $dir or die "rename: $!";
	close $to_holder;
	waitpid $holder, 0;
	$node->start;
}

#
# System calls that fail, and kills: every one that a change makes.
#
# How PostgreSQL tells an errno.
my %SQLSTATE =
  (EIO, '58030', ENOSPC, '53100', EROFS, '42501', EDQUOT, 'XX000');

SKIP:
{
	my @calls;
	my $rename;

	skip 'no library can be preloaded here', 1 unless $preloaded;

	# What a change does when nothing fails, and in which order.
	set_fault(0, 0, 'fail');
	$dt->sql("SELECT $changes[0][0]");
	@calls = trace();
	clear_fault();
	$dt->sql("SELECT $changes[0][2]");
	note 'system calls: ', join ', ', @calls;
	is($calls[0], 'open tmp', 'a temporary file is opened first');
	($rename) = grep { $calls[ $_ - 1 ] eq 'rename tmp' } 1 .. @calls;
	ok($rename, 'it is renamed at last') or skip 'it is not', 1;
	my ($before, $after) =
	  map { join ', ', @$_ }[ @calls[ 0 .. $rename - 2 ] ],
	  [ @calls[ $rename .. $#calls ] ];
	like($before, qr/write tmp.*fsync tmp/, 'after it was flushed');
	unlike($before, qr/fsync tmp.*write tmp/, 'as a whole');
	like($after, qr/fsync dir/, 'then the directory is flushed');
	unlike("$before, $after", qr/write file|unlink/,
		'the file itself is neither written nor removed');

	# What the user is told when call number n fails like that.  Those of
	# durable_rename are WARNINGs; until the rename an ERROR follows.
	my $told = sub {
		my ($n, $errno) = @_;
		my $closed = grep { $_ eq 'close tmp' } @calls[ 0 .. $n - 2 ];
		my ($call, $what) = split / /, $calls[ $n - 1 ];
		my $name =
			$what eq 'tmp'  ? 'dirty_throttle.groups.tmp'
		  : $what eq 'file' ? 'dirty_throttle.groups'
		  :                   '.';
		local $! = $errno;
		my $reason = "$!";
		my $state = $SQLSTATE{$errno};

		return ($state,
			qr/ERROR:  $state: could not @{[$call eq 'open' ? 'create' : $call]} file "\Q$name\E": \Q$reason\E/
		) if !$closed;

		my $warning =
		  qr/WARNING:  $state: could not $call file "\Q$name\E"( to "dirty_throttle\.groups")?: \Q$reason\E/;
		return (undef, $warning) if $n > $rename;
		return ('58030',
			qr/$warning.*ERROR:  58030: could not replace file "dirty_throttle\.groups"/s
		);
	};

	# One call that fails; then that and all after it, even those that clean up.
	foreach my $n (1 .. @calls)
	{
		foreach my $last ($n, 1000)
		{
			my $change = $changes[ ($n + $last) % @changes ];
			my $errno = $last == $n ? EIO : EROFS;
			my $what = "$n, $calls[$n - 1], "
			  . ($last == $n ? 'fails' : 'and all after it fail');
			my ($sqlstate, $message) = $told->($n, $errno);

			set_fault($n, $last, 'fail', $errno);
			check_change($what, $change, $sqlstate, $message);
			clear_fault();
			if ($last == $n)
			{
				ok(!-e "$file.tmp", "$what: no temporary file is left");
			}
			else
			{
				$dt->restart;
				is($dt->definitions, $sqlstate ? $expected : $change->[1],
					"$what: the same after a restart");
			}
			$dt->sql("SELECT $change->[2]") if $dt->definitions ne $expected;
			check_works($what, $change);
		}
	}

	# other reasons, and a write that is only half done
	foreach my $case (
		[ 'open tmp',  'fail', EROFS ],
		[ 'open tmp',  'fail', ENOSPC ],
		[ 'write tmp', 'fail', ENOSPC ],
		[ 'write tmp', 'fail', EDQUOT ],
		[ 'write tmp', 'short', 0 ],
		[ 'fsync tmp', 'fail', ENOSPC ],
		[ 'close tmp', 'fail', EDQUOT ])
	{
		my ($call, $action, $errno) = @$case;
		my ($n) = grep { $calls[ $_ - 1 ] eq $call } 1 .. @calls;
		my $what = $action eq 'short' ? "$call, half" : "$call, errno $errno";
		my ($sqlstate, $message) = $told->($n, $errno || ENOSPC);

		my %there = (session => $dt->session, member => $dt->session(group => 'grp_b'));

		foreach my $change (@changes)
		{
			set_fault($n, $n, $action, $errno);
			check_change($what, $change, $sqlstate, $message, %there);
			clear_fault();
			ok(!-e "$file.tmp", "$what: no temporary file is left");
		}
		check_works($what);
	}

	# whoever makes the change is killed before each of the calls
	foreach my $n (1 .. @calls)
	{
		my $change = $changes[ $n % @changes ];
		my $what = "killed before $n, $calls[$n - 1]";
		my $mark = $dt->log_mark;
		my $session = $dt->session;

		$dt->disconnect;
		set_fault($n, $n, 'kill');
		$session->run("SELECT $change->[0]");
		ok( poll_until(sub {
					$dt->log_since($mark) =~ /ready to accept connections/ }),
			"$what: the server has recovered");
		clear_fault();
		is((trace())[ $n - 1 ], $calls[ $n - 1 ], "$what: it was");
		is($dt->definitions, $n <= $rename ? $expected : $change->[1],
			"$what: the groups are the "
			  . ($n <= $rename ? 'old' : 'new') . ' ones');
		unlike($dt->log_since($mark), qr/is damaged|PANIC/,
			"$what: nothing else has happened");
		$dt->sql("SELECT $change->[2]") if $n > $rename;
		check_works($what, $change);
	}

	# the whole server is, between write and rename, and right after that
	foreach my $n ($rename - 1, $rename, $rename + 1)
	{
		my $change = $changes[ $n % @changes ];
		my $what = "server killed before $n, $calls[$n - 1]";
		my $mark = $dt->log_mark;
		my $session = $dt->session;
		my @pids = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');
		my ($postmaster) = slurp_file("$dir/postmaster.pid") =~ /^(\d+)/;

		$dt->disconnect;
		set_fault($n, $n, 'killall');
		$session->run("SELECT $change->[0]");
		clear_fault();
		ok(poll_until(sub { !grep { !gone($_) } $postmaster, @pids }),
			"$what: all of it has gone");
		$node->kill9;    # so that it knows
		$dt->bury($postmaster);
		is(-e "$file.tmp" ? 1 : 0, $n <= $rename ? 1 : 0,
			"$what: it leaves the temporary file only before the rename");
		$node->start;
		is($dt->definitions, $n <= $rename ? $expected : $change->[1],
			"$what: the groups are the "
			  . ($n <= $rename ? 'old' : 'new') . ' ones');
		unlike($dt->log_since($mark), qr/is damaged|PANIC/,
			"$what: nothing else has happened");
		$dt->sql("SELECT $change->[2]") if $n > $rename;
		check_works($what, $change);
	}
}

$dt->stop;
done_testing();
