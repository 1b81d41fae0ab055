# The definitions file: whatever has happened to its content, the server starts,
# says exactly what is wrong, keeps the damaged file and goes on without groups.
# What it cannot read keeps it from starting.  What cannot be written is an ERROR
# that changes nothing.
#
# expect-in-log: WARNING:  file "dirty_throttle.groups" is damaged
# expect-in-log: WARNING:  could not open file "dirty_throttle.groups"
# takes-about: 15 s
# not-timed

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Life->new(
	'store',
	init => [ allows_streaming => 1 ],
	conf => 'shared_buffers = 16MB');
my $node = $dt->node;
my $dir = $node->data_dir;
my $file = "$dir/dirty_throttle.groups";

# Everything that the file holds, as SQL; dirty_throttle_ddl() is by name.
sub ddl
{
	return $dt->sql('SELECT dirty_throttle_ddl()');
}

my $expected = 'grp_a=12288.5 grp_b=0 grp_c=3072';
$dt->sql('CREATE ROLE app');
my $app = $dt->sql("SELECT 'app'::regrole::oid");
$dt->sql(
	q{SELECT set_group_dirty_limit('grp_a', 12288.5),
	         create_resource_group('grp_b'),
	         set_group_dirty_limit('grp_c', 3072),
	         set_group_wal_limit('grp_a', 2000.25),
	         set_group_burst('grp_b', 1500.5),
	         set_group_mode('grp_c', 'observe'),
	         set_group_floor('grp_b', 123.5),
	         set_group_pressure('grp_b', 'replica_lag', '1500ms', 2),
	         set_group_pressure('grp_b', 'checkpoint'),
	         set_group_pressure('grp_c', 'slot_lag', '3GB'),
	         set_group_pressure('grp_c', 'dirty_buffers', '12.5%'),
	         grant_group_use('grp_a', 'app')});
is($dt->definitions, $expected, 'groups as defined');
my $expected_ddl = ddl();
like($expected_ddl, $_, "$_")
  foreach qr/set_group_wal_limit\('grp_a', 2000.25\)/,
  qr/set_group_burst\('grp_b', 1500.5\)/,
  qr/set_group_mode\('grp_c', 'observe'\)/,
  qr/set_group_floor\('grp_b', 123.5\)/,
  qr/set_group_pressure\('grp_b', 'replica_lag', '1500ms', 2\)/,
  qr/set_group_pressure\('grp_b', 'checkpoint'\)/,
  qr/set_group_pressure\('grp_c', 'slot_lag', '3GB'\)/,
  qr/set_group_pressure\('grp_c', 'dirty_buffers', '12.5%'\)/,
  qr/grant_group_use\('grp_a', 'app'\)/;
ok(-f $file, 'the definitions file is there');
is((stat $file)[2] & 0777, (stat "$dir/PG_VERSION")[2] & 0777,
	'with the permissions of the other files there');
my $good = slurp_file($file);

# The format, see store.c: header, entries, grants, checksum.
my $header = 6 * 4 + 2 * 4 + 2 * 8;
my $entry = 8 + 64 + 5 * 8 + 6 * 16;
my $grant = 64 + 4;
is(length $good, $header + 3 * $entry + $grant + 4, 'its size');

sub crc32c
{
	my $crc = 0xffffffff;

	foreach my $byte (unpack 'C*', shift)
	{
		$crc ^= $byte;
		$crc = ($crc >> 1) ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

# The header: magic, version, number and size of the entries, the same of the
# grants; timeline, complete, change; system identifier.
my @good_header = unpack 'L8qQ', $good;

# The IDs of groups.
my %id = map {
	my ($id, $name) = unpack 'QZ64', substr $good, $header + $_ * $entry, $entry;
	$name => $id
} 0 .. 2;

# A file with a checksum that fits: of entries (name, limits, burst, mode,
# floor, value and unit and "ignore" of each threshold; the last ones may be left
# out) and grants (name, role).  The end of the header may be left out.
sub image
{
	my ($header, @records) = @_;
	my @default = (64000, (0) x 18);
	my @header = @$header;
	my $n = 0;

	push @header, @good_header[ @header .. $#good_header ] if @header >= 6;
	my $body = pack(@header >= 6 ? 'L8qQ' : 'L*', @header) . join '', map {
		$n++;
		@$_ == 2
		  ? pack('a64L', @$_)
		  : pack('Qa64q5(ql2)6', $id{ $_->[0] } // $n,
			@$_, @default[ @$_ - 5 .. $#default ])
	} @records;

	return $body . pack 'L', crc32c($body);
}

my @abc = (
	[ 'grp_a', 12288500, 2000250, 20000, 0 ],
	[ 'grp_b', 0, 0, 1500500, 0, 123500, 1500000, 2, 2, (0) x 3, 0, 1 ],
	[
		'grp_c', 3072000, 0, 20000, 1, 64000, (0) x 3, 3 << 30, 3, 0, (0) x 3,
		125000, 4
	]);
my $grant_a = [ 'grp_a', $app ];
is(unpack('H*', image(\@good_header, @abc, $grant_a)),
	unpack('H*', $good), 'the format is known to this test');

sub write_file
{
	my ($path, $content) = @_;
	open my $f, '>', $path or die "$path: $!";
	binmode $f;
	print $f $content;
	close $f or die "$path: $!";
}

# Start with this in the place of the file; the message must have the detail.
sub check_damage
{
	my ($what, $content, $detail) = @_;
	my $mark;

	write_file($file, $content);
	unlink "$file.damaged";
	$mark = $dt->log_mark;
	ok($node->start(fail_ok => 1), "$what: the server starts") or return;
	my $log = $dt->log_since($mark);
	like(
		$log,
		qr/WARNING:  file "dirty_throttle.groups" is damaged\n.*DETAIL:  The file is not usable: $detail\. No resource groups are defined\.\n.*HINT:  The damaged file is kept as "dirty_throttle.groups.damaged"/,
		"$what: the log says what is wrong");
	unlike($log, qr/PANIC|TRAP|FATAL|ERROR/, "$what: and no more than that");
	is($dt->definitions, '', "$what: no group");
	ok(!-e $file, "$what: the damaged file is out of the way");
	is(unpack('H*', slurp_file("$file.damaged")),
		unpack('H*', $content), "$what: and kept as it was");
	$dt->sql("SELECT set_group_dirty_limit('again', 1)");
	is($dt->definitions, 'again=1', "$what: groups can be defined again");
	$dt->stop('immediate');
}

$dt->stop;

# truncated: nothing, within and after the header, within and after an entry,
# after the entries, without its checksum, a byte short
check_damage("truncated to $_ bytes",
	substr($good, 0, $_),
	qr/it has $_ bytes, less than the smallest possible file/)
  foreach 0, 1, 4, 16, 20, $header, $header + 3;
check_damage("truncated to $_ bytes",
	substr($good, 0, $_),
	qr/it has $_ bytes, which does not fit its 3 entries and 1 grants/)
  foreach $header + 4, $header + $entry, $header + $entry + 4,
  $header + 3 * $entry, $header + 3 * $entry + 4,
  length($good) - 4, length($good) - 1;
check_damage('a byte more', "$good\0",
	qr/it has \d+ bytes, which does not fit its 3 entries and 1 grants/);

# one bit flipped: magic, version, number and size of the entries, the same of
# the grants, the first name, its padding, the last mode, the name and the role
# of the grant, the checksum
foreach my $flip (
	[ 0,                 qr/it begins with [0-9A-F]{8} instead of [0-9A-F]{8}/ ],
	[ 3,                 qr/it begins with [0-9A-F]{8} instead of [0-9A-F]{8}/ ],
	[ 4,                 qr/its format version is \d+ instead of 1/ ],
	[ 8,                 qr/it has \d+ bytes, which does not fit its \d+ entries and 1 grants/ ],
	[ 11,                qr/it has \d+ bytes, which does not fit its \d+ entries and 1 grants/ ],
	[ 12,                qr/its groups have \d+ bytes instead of $entry/ ],
	[ 16,                qr/it has \d+ bytes, which does not fit its 3 entries and 3 grants/ ],
	[ 19,                qr/it has \d+ bytes, which does not fit its 3 entries and \d+ grants/ ],
	[ 20,                qr/its grants have \d+ bytes instead of $grant/ ],
	[ $header,           qr/its stored checksum is [0-9A-F]{8}, but the computed one is [0-9A-F]{8}/ ],
	[ $header + 60,      qr/its stored checksum is [0-9A-F]{8}, but the computed one is [0-9A-F]{8}/ ],
	[ $header + 3 * $entry - 1, qr/its stored checksum is [0-9A-F]{8}, but the computed one is [0-9A-F]{8}/ ],
	[ $header + 3 * $entry, qr/its stored checksum is [0-9A-F]{8}, but the computed one is [0-9A-F]{8}/ ],
	[ length($good) - 5, qr/its stored checksum is [0-9A-F]{8}, but the computed one is [0-9A-F]{8}/ ],
	[ length($good) - 1, qr/its stored checksum is [0-9A-F]{8}, but the computed one is [0-9A-F]{8}/ ])
{
	my ($offset, $detail) = @$flip;
	my $bad = $good;

	substr($bad, $offset, 1) ^= "\x02";
	check_damage("bit flipped at $offset", $bad, $detail);
}

# sound to the checksum, but not written by this library
{
	my ($magic, $version, $n, $size, $n_grants, $grant_size) = @good_header;

	# with so many entries and grants
	my $nonsense = sub {
		my ($what, $detail, @records) = @_;
		my $grants = grep { @$_ == 2 } @records;

		check_damage(
			$what,
			image(
				[ $magic, $version, @records - $grants, $size, $grants,
					$grant_size ],
				@records),
			$detail);
	};

	check_damage(
		'format version 0',
		image([ $magic, 0, $n, $size, $n_grants, $grant_size ],
			@abc, $grant_a),
		qr/its format version is 0 instead of 1/);
	check_damage(
		'a later format version, not sound',
		image([ $magic, 2, $n, $size, $n_grants, $grant_size ], @abc)
		  ^ "\0" x 8 . "\1",
		qr/its format version is 2 instead of 1/);
	check_damage(
		'longer entries',
		image([ $magic, $version, $n, $size + 8, $n_grants, $grant_size ],
			@abc, $grant_a),
		qr/its groups have @{[$size + 8]} bytes instead of $size/);
	check_damage(
		'longer grants',
		image([ $magic, $version, $n, $size, $n_grants, $grant_size + 4 ],
			@abc, $grant_a),
		qr/its grants have @{[$grant_size + 4]} bytes instead of $grant_size/);
	check_damage(
		'more entries than there could be',
		image([ $magic, $version, 0xffffffff, $size, 0, $grant_size ], @abc),
		qr/it has \d+ bytes, which does not fit its 4294967295 entries and 0 grants/);
	check_damage(
		'more grants than there could be',
		image([ $magic, $version, 0, $size, 0xffffffff, $grant_size ],
			$grant_a),
		qr/it has \d+ bytes, which does not fit its 0 entries and 4294967295 grants/);

	$nonsense->('an empty name', qr/group 1 has no valid name/,
		[ '', 1, 0, 0, 0 ]);
	$nonsense->('a name without end', qr/group 2 has no valid name/,
		$abc[0], [ 'x' x 64, 1, 0, 0, 0 ]);
	$nonsense->('a negative rate',
		qr/group 1 has a rate of -1 bytes\/s/, [ 'a', -1, 0, 0, 0 ]);
	$nonsense->('a negative WAL rate',
		qr/group 1 has a rate of -1 bytes\/s/, [ 'a', 0, -1, 0, 0 ]);
	$nonsense->('too high a rate',
		qr/group 1 has a rate of 16777216001 bytes\/s/,
		[ 'a', 16777216001, 0, 0, 0 ]);
	$nonsense->('too high a WAL rate',
		qr/group 1 has a rate of 16777216001 bytes\/s/,
		[ 'a', 0, 16777216001, 0, 0 ]);
	$nonsense->('a negative burst',
		qr/group 1 has a burst of -1 us/, [ 'a', 0, 0, -1, 0 ]);
	$nonsense->('too long a burst',
		qr/group 1 has a burst of 3600000001 us/,
		[ 'a', 0, 0, 3600000001, 0 ]);
	$nonsense->('no mode that there is',
		qr/group 3 has mode 2/, @abc[ 0, 1 ], [ 'a', 0, 0, 0, 2 ]);
	$nonsense->('no floor',
		qr/group 1 has a floor of 0 bytes\/s/, [ 'a', (0) x 5 ]);
	$nonsense->('too high a floor',
		qr/group 1 has a floor of 16777216001 bytes\/s/,
		[ 'a', (0) x 4, 16777216001 ]);
	foreach my $t (
		[ 'replica_lag', 0, 1, 2, 0 ],
		[ 'replica_lag', 0, 2000000, 5, 0 ],
		[ 'replica_lag', 0, 2000000, -1, 0 ],
		[ 'replica_lag', 0, 2000000, 3, 0 ],
		[ 'replica_lag', 0, 2000000, 2, -1 ],
		[ 'replica_lag', 0, 2000000, 0, 0 ],
		[ 'slot_lag', 1, 1 << 30, 3, 1 ],
		[ 'checkpoint', 2, 1, 1, 0 ],
		[ 'io_pressure', 5, 1000001, 4, 0 ])
	{
		my ($signal, $number, $value, $unit, $ignore) = @$t;

		$nonsense->("$signal: $value, unit $unit, ignore $ignore",
			qr/group 1 has a threshold of $value for signal "$signal"/,
			[ 'a', (0) x 4, 64000, (0) x (3 * $number), $value, $unit, $ignore ]);
	}
	$nonsense->('a name twice',
		qr/groups 1 and 3 have the same name/,
		@abc[ 0, 1 ], [ 'grp_a', 7, 0, 0, 0 ]);
	{
		local $id{grp_b} = $id{grp_a};
		$nonsense->('an ID twice', qr/groups 1 and 2 have the same ID/, @abc);
		local $id{grp_c} = 0;
		$nonsense->('no ID', qr/group 3 has no ID/, @abc);
		local $id{grp_b} = $good_header[8] + 1;
		$nonsense->('an ID that the next change may give',
			qr/group 2 has the ID of a later change/, @abc);
	}
	check_damage(
		'a change that cannot be',
		image([ @good_header[ 0 .. 7 ], -1 ], @abc, $grant_a),
		qr/its change has the number -1/);
	$nonsense->('a grant for no group',
		qr/grant 2 has no valid group or role/,
		@abc, $grant_a, [ 'nobody', $app ]);
	$nonsense->('a grant without a name',
		qr/grant 1 has no valid group or role/, @abc, [ '', $app ]);
	$nonsense->('a grant whose name has no end',
		qr/grant 1 has no valid group or role/, @abc, [ 'x' x 64, $app ]);
	$nonsense->('a grant twice', qr/there is a grant twice/,
		@abc, $grant_a, $grant_a);
	$nonsense->('a grant to nobody',
		qr/grant 1 has no valid group or role/, @abc, [ 'grp_a', 0 ]);
}
check_damage('text', "group_name,limit\ngrp_a,12288\n" x 20,
	qr/it begins with [0-9A-F]{8} instead of [0-9A-F]{8}/);
{
	my $random = join '', map { chr int rand 256 } 1 .. 5000;
	substr($random, 0, 4) = "\0\0\0\0";
	check_damage('random bytes', $random,
		qr/it begins with 00000000 instead of [0-9A-F]{8}/);
}

# A good copy in its place brings the groups back.
write_file($file, $good);
$node->start;
is($dt->definitions, $expected, 'a good copy brings the groups back');
is(ddl(), $expected_ddl, 'and all the rest');
$dt->stop;

# The server does not start with what is there, and says why; it does when
# that is away, or good again.  $undo makes it the good file.
sub check_refused
{
	my ($what, $message, $hint, $undo) = @_;
	my $mark = $dt->log_mark;
	my @place = lstat $file;

	ok(!$node->start(fail_ok => 1), "$what: the server does not start");
	like(
		$dt->log_since($mark),
		qr/FATAL:  $message\n(.*\n)?.*HINT:  $hint To start without resource groups, move the file away: mv "\Q$file\E" "\Q$file\E\.away"/,
		"$what: it says why, and what to do");
	is(join(' ', (lstat $file)[ 0 .. 5 ]),
		join(' ', @place[ 0 .. 5 ]), "$what: the same file is there");
	ok(!-e "$file.damaged", "$what: and no other");

	rename $file, "$file.away" or die "rename: $!";
	ok($node->start(fail_ok => 1), "$what: it starts without groups");
	is($dt->definitions, '', "$what: there are none");
	$dt->stop;
	rename "$file.away", $file or die "rename: $!";
	$undo->();
	is(slurp_file($file), $good, "$what: nothing is lost");
	ok($node->start(fail_ok => 1), "$what, then not: it starts");
	is($dt->definitions, $expected, "$what, then not: all groups");
	$dt->stop;
}

my $chmod = qr/Fix the cause, for example missing permissions with chmod u\+rw "\Q$file\E", and start the server again\./;
unlink "$file.damaged";
chmod 0, $file or die "chmod: $!";
check_refused(
	'not readable',
	qr/could not read file "dirty_throttle.groups": Permission denied/,
	$chmod,
	sub { system_or_bail('chmod', 'u+rw', $file) });

# say to a disk that is not mounted
rename $file, "$file.elsewhere" or die "rename: $!";
symlink "$file.nowhere", $file or die "symlink: $!";
check_refused(
	'a link to nowhere',
	qr/could not read file "dirty_throttle.groups": No such file or directory/,
	$chmod,
	sub { rename "$file.elsewhere", "$file.nowhere" or die "rename: $!" });
rename "$file.nowhere", $file or die "rename: $!";

# sound, but of the next release
write_file($file, image([ $good_header[0], 2, 1, 100, 7, 7 ], $abc[0]));
check_refused(
	'a later format version',
	qr/file "dirty_throttle.groups" was written by a newer release of dirty_throttle\n.*DETAIL:  Its format version is 2, and the newest that this library reads is 1\./,
	qr/Install that release again\./,
	sub { write_file($file, $good) });

# the same, where its header is shorter than this release's
write_file($file, image([ $good_header[0], 2 ]));
check_refused(
	'a later format version, a short file',
	qr/file "dirty_throttle.groups" was written by a newer release of dirty_throttle/,
	qr/Install that release again\./,
	sub { write_file($file, $good) });

# One damaged file after the other: all are kept.
foreach my $i (0 .. 2)
{
	my $name = 'dirty_throttle.groups.damaged' . ($i ? ".$i" : '');
	my $mark = $dt->log_mark;

	write_file($file, "damaged, $i");
	$node->start;
	like($dt->log_since($mark), qr/The damaged file is kept as "\Q$name\E"\./,
		"damaged file $i: the log says where it is");
	is(slurp_file("$dir/" . 'dirty_throttle.groups.damaged' . ($_ ? ".$_" : '')),
		"damaged, $_", "damaged file $i: $_ is kept")
	  foreach 0 .. $i;
	$dt->sql("SELECT set_group_dirty_limit('again', 1)");
	$dt->stop;
}
# up to a hundred; then the last one is replaced
write_file("$file.damaged.$_", "damaged, $_") foreach 3 .. 99;
write_file($file, 'damaged, new');
$node->start;
is(join(',', map { slurp_file("$file.damaged.$_") } 1 .. 98),
	join(',', map { "damaged, $_" } 1 .. 98), 'damaged file 101: others are kept');
is(slurp_file("$file.damaged.99"), 'damaged, new', 'damaged file 101: it is the last');
$dt->stop;
unlink glob "$file.damaged*";

# Something that is no file: it is kept, and it is not waited for.
sub check_unusable
{
	my ($what, $detail) = @_;
	my $mark = $dt->log_mark;

	ok($node->start(fail_ok => 1), "$what: the server starts") or return;
	my $log = $dt->log_since($mark);
	like(
		$log,
		qr/WARNING:  file "dirty_throttle.groups" is damaged\n.*DETAIL:  The file is not usable: $detail/,
		"$what: the log says what is wrong");
	unlike($log, qr/PANIC|TRAP|FATAL|ERROR/, "$what: and no more than that");
	is($dt->definitions, '', "$what: no group");
	ok(!-e $file && -e "$file.damaged", "$what: it is kept as .damaged");
	my $result = $dt->session->run("SELECT set_group_dirty_limit('again', 1)");
	is($result->{sqlstate}, undef, "$what: groups can be defined again")
	  or diag $result->{err};
	$dt->stop('immediate');
	$node->start;
	is($dt->definitions, 'again=1', "$what: and last");
	$dt->stop;
}

unlink $file;
mkdir $file or die "mkdir: $!";
write_file("$file/content", 'x');
check_unusable('a directory', qr/it is not a regular file/);
ok(-f "$file.damaged/content" || -f "$file/content",
	'a directory: nothing lost');
foreach my $place ($file, "$file.damaged")
{
	unlink "$place/content", $place;
	rmdir $place;
}

mkfifo($file, 0600) or die "mkfifo: $!";
check_unusable('a pipe', qr/it is not a regular file/);
ok(-p "$file.damaged", 'a pipe: kept');
unlink $file, "$file.damaged";

{
	open my $f, '>', $file or die "$file: $!";
	truncate $f, 100 * 1024 * 1024 or die "truncate: $!";
	close $f;
}
check_unusable('100 MB', qr/it is too large/);
is(-s "$file.damaged", 100 * 1024 * 1024, '100 MB: kept');
unlink $file, "$file.damaged";

# A temporary file that a crash has left.
write_file($file, $good);
write_file("$file.tmp", substr($good, 0, 100));
$node->start;
is($dt->definitions, $expected, 'a temporary file left behind: groups as they were');
$dt->sql("SELECT set_group_dirty_limit('grp_d', 4)");
$dt->stop('immediate');
ok(!-e "$file.tmp", 'a temporary file left behind: replaced by the next change');
$node->start;
is($dt->definitions, "$expected grp_d=4",
	'a temporary file left behind: the change has lasted');
$dt->sql("SELECT drop_resource_group('grp_d')");

# What cannot be written changes nothing, neither in memory nor on disk.
sub check_unchanged
{
	my ($what, $message) = @_;
	my $before = slurp_file($file);
	my $member = $dt->session(group => 'grp_b');
	my $s = $dt->session;

	foreach my $call (
		"set_group_dirty_limit('new', 1)",
		"set_group_dirty_limit('grp_a', 1)",
		"create_resource_group('new', 1)",
		"reset_group_dirty_limit('grp_a')",
		"rename_resource_group('grp_a', 'renamed')",
		"drop_resource_group('grp_a')",
		"drop_resource_group('grp_b', force => true)",
		"set_group_wal_limit('new', 1)",
		"set_group_wal_limit('grp_a', 1)",
		"reset_group_wal_limit('grp_a')",
		"set_group_burst('grp_a', 1)",
		"set_group_mode('grp_a', 'observe')",
		"set_group_floor('grp_a', 1)",
		"set_group_pressure('grp_a', 'checkpoint')",
		"reset_group_pressure('grp_b', 'checkpoint')",
		"grant_group_use('grp_b', 'app')",
		"revoke_group_use('grp_a', 'app')")
	{
		my $result = $s->run("SELECT $call");
		like($result->{err}, $message, "$what: $call is an error");
		like(
			$result->{err},
			qr/DETAIL:  The resource groups are unchanged\./,
			"$what: and says that nothing has changed");
		is($dt->definitions, $expected, "$what: $call has changed nothing");
		is(ddl(), $expected_ddl, "$what: nor anything else");
	}
	is($member->query('SHOW dirty_throttle."group"'),
		'grp_b', "$what: a member is still one");
	is($dt->group_row('grp_b')->{active_processes}, 1, "$what: and counted");
	is($dt->session(group => 'grp_a')->query('SHOW dirty_throttle."group"'),
		'grp_a', "$what: sessions can still join");
	is(unpack('H*', slurp_file($file)),
		unpack('H*', $before), "$what: the file is as it was");
	ok(!-e "$file.tmp", "$what: no temporary file is left");
}

# ... and when it can be written again, it works again.
sub check_works_again
{
	my ($what) = @_;

	$dt->sql(
		q{SELECT set_group_dirty_limit('new', 1),
		         drop_resource_group('grp_b', force => true)});
	is($dt->definitions, 'grp_a=12288.5 grp_c=3072 new=1', "$what: works again");
	$dt->stop('immediate');
	$node->start;
	is($dt->definitions, 'grp_a=12288.5 grp_c=3072 new=1',
		"$what: and it lasts");
	$dt->sql(
		q{SELECT drop_resource_group('new'), create_resource_group('grp_b'),
		         set_group_floor('grp_b', 123.5),
		         set_group_pressure('grp_b', 'replica_lag', '1500ms', 2),
		         set_group_pressure('grp_b', 'checkpoint'),
		         set_group_burst('grp_b', 1500.5)});
	is($dt->definitions, $expected, "$what: as before");
}

my $mode = (stat $file)[2] & 07777;
chmod 0400, $file or die "chmod: $!";
check_unchanged('file not writable',
	qr/ERROR:  58\w{3}: could not replace file "dirty_throttle.groups"/);
chmod $mode, $file or die "chmod: $!";
check_works_again('file not writable');

# The server must write nothing else there while this lasts.
$mode = (stat $dir)[2] & 07777;
chmod 0500, $dir or die "chmod: $!";
eval {
	check_unchanged('directory not writable',
		qr/ERROR:  42501: could not create file "dirty_throttle.groups.tmp": Permission denied/);
};
my $error = $@;
chmod $mode, $dir or die "chmod: $!";
die $error if $error;
check_works_again('directory not writable');

$dt->stop;
done_testing();
