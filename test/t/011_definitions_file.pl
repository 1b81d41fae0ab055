# The definitions file: whatever has happened to it, the server starts, says
# exactly what is wrong, keeps the damaged file and goes on without groups.
# What cannot be written is an ERROR that changes nothing.
#
# expect-in-log: WARNING:  file "dirty_throttle.groups" is damaged
# expect-in-log: WARNING:  could not open file "dirty_throttle.groups"

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Life->new('store');
my $node = $dt->node;
my $dir = $node->data_dir;
my $file = "$dir/dirty_throttle.groups";

my $expected = 'grp_a=12288.5 grp_b=0 grp_c=3072';
$dt->sql(
	q{SELECT set_group_dirty_limit('grp_a', 12288.5),
	         create_resource_group('grp_b'),
	         set_group_dirty_limit('grp_c', 3072)});
is($dt->definitions, $expected, 'groups as defined');
ok(-f $file, 'the definitions file is there');
is((stat $file)[2] & 0777, (stat "$dir/PG_VERSION")[2] & 0777,
	'with the permissions of the other files there');
my $good = slurp_file($file);

# The format, see store.c: header, entries, checksum.
my $header = 16;
my $entry = 64 + 8;
is(length $good, $header + 3 * $entry + 4, 'its size');

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

# A file with a checksum that fits.
sub image
{
	my ($header, @entries) = @_;
	my $body = pack('L4', @$header) . join '', map { pack 'a64q', @$_ } @entries;
	return $body . pack 'L', crc32c($body);
}

my @good_header = unpack 'L4', $good;
my @abc = ([ 'grp_a', 12288500 ], [ 'grp_b', 0 ], [ 'grp_c', 3072000 ]);
is(unpack('H*', image(\@good_header, @abc)),
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
		qr/WARNING:  file "dirty_throttle.groups" is damaged, no resource group is defined\n.*DETAIL:  The file is not usable: $detail\.\n.*HINT:  It is kept as "dirty_throttle.groups.damaged"/,
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
# without its checksum, a byte short
check_damage("truncated to $_ bytes",
	substr($good, 0, $_),
	qr/it has $_ bytes, less than the smallest possible file/)
  foreach 0, 1, 4, $header, $header + 3;
check_damage("truncated to $_ bytes",
	substr($good, 0, $_),
	qr/it has $_ bytes, which does not fit its 3 entries/)
  foreach $header + 4, $header + $entry, $header + $entry + 4,
  length($good) - 4, length($good) - 1;
check_damage('a byte more', "$good\0",
	qr/it has \d+ bytes, which does not fit its 3 entries/);

# one bit flipped: magic, version, number and size of the entries, the first
# name, its padding, the last rate, the checksum
foreach my $flip (
	[ 0,                 qr/it begins with [0-9A-F]{8} instead of [0-9A-F]{8}/ ],
	[ 3,                 qr/it begins with [0-9A-F]{8} instead of [0-9A-F]{8}/ ],
	[ 4,                 qr/its format version is \d+, this library reads version 1/ ],
	[ 8,                 qr/it has \d+ bytes, which does not fit its \d+ entries/ ],
	[ 11,                qr/it has \d+ bytes, which does not fit its \d+ entries/ ],
	[ 12,                qr/its entries have \d+ bytes instead of $entry/ ],
	[ $header,           qr/its checksum is [0-9A-F]{8}, its content has [0-9A-F]{8}/ ],
	[ $header + 60,      qr/its checksum is [0-9A-F]{8}, its content has [0-9A-F]{8}/ ],
	[ length($good) - 9, qr/its checksum is [0-9A-F]{8}, its content has [0-9A-F]{8}/ ],
	[ length($good) - 1, qr/its checksum is [0-9A-F]{8}, its content has [0-9A-F]{8}/ ])
{
	my ($offset, $detail) = @$flip;
	my $bad = $good;

	substr($bad, $offset, 1) ^= "\x02";
	check_damage("bit flipped at $offset", $bad, $detail);
}

# sound to the checksum, but not written by this library
{
	my ($magic, $version, $n, $size) = @good_header;

	check_damage(
		'a newer version',
		image([ $magic, 2, $n, $size ], @abc),
		qr/its format version is 2, this library reads version 1/);
	check_damage(
		'longer entries',
		image([ $magic, $version, $n, $size + 8 ], @abc),
		qr/its entries have @{[$size + 8]} bytes instead of $size/);
	check_damage(
		'an empty name',
		image([ $magic, $version, 1, $size ], [ '', 1 ]),
		qr/entry 1 has no valid name/);
	check_damage(
		'a name without end',
		image([ $magic, $version, 2, $size ], $abc[0], [ 'x' x 64, 1 ]),
		qr/entry 2 has no valid name/);
	check_damage(
		'a negative rate',
		image([ $magic, $version, 1, $size ], [ 'a', -1 ]),
		qr/entry 1 has a rate of -1 bytes\/s/);
	check_damage(
		'too high a rate',
		image([ $magic, $version, 1, $size ], [ 'a', 16777216001 ]),
		qr/entry 1 has a rate of 16777216001 bytes\/s/);
	check_damage(
		'a name twice',
		image([ $magic, $version, 3, $size ], @abc[ 0, 1 ], [ 'grp_a', 7 ]),
		qr/entries 1 and 3 have the same name/);
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
$dt->stop;

# Something that is not readable: the same, and what was in its place is kept.
sub check_unusable
{
	my ($what, $detail) = @_;
	my $mark = $dt->log_mark;

	ok($node->start(fail_ok => 1), "$what: the server starts") or return;
	my $log = $dt->log_since($mark);
	like(
		$log,
		qr/WARNING:  file "dirty_throttle.groups" is damaged, .*\n.*DETAIL:  The file is not usable: $detail/,
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

unlink $file, "$file.damaged";
write_file($file, $good);
chmod 0, $file or die "chmod: $!";
check_unusable('not readable', qr/it cannot be opened: Permission denied\./);
chmod 0600, grep { -e $_ } $file, "$file.damaged";
is(slurp_file(-e "$file.damaged" ? "$file.damaged" : $file),
	$good, 'not readable: nothing lost');

unlink $file, "$file.damaged";
mkdir $file or die "mkdir: $!";
write_file("$file/content", 'x');
check_unusable('a directory', qr/it is not a file/);
ok(-f "$file.damaged/content" || -f "$file/content",
	'a directory: nothing lost');
foreach my $place ($file, "$file.damaged")
{
	unlink "$place/content", $place;
	rmdir $place;
}

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
		"drop_resource_group('grp_b', force => true)")
	{
		my $result = $s->run("SELECT $call");
		like($result->{err}, $message, "$what: $call is an error");
		like(
			$result->{err},
			qr/DETAIL:  The resource groups are unchanged\./,
			"$what: and says that nothing has changed");
		is($dt->definitions, $expected, "$what: $call has changed nothing");
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
		q{SELECT drop_resource_group('new'), create_resource_group('grp_b')});
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
