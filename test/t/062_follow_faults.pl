# A standby that asks a broken or malicious server for its definitions: nothing
# of it crashes, blocks, or fills the memory; its definitions stay what they
# are; and what is wrong can be read, without any password.
#
# DT_ROUNDS in the environment is how many conversations are changed at random.
#
# takes-about: 120 s
# not-timed
#
# A standby that is restarted replays once more that a database is dropped:
# expect-in-log: WARNING:  (could not open directory "base/|some useless files may be left behind in old database directory "base/)

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::FakeServer;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $rounds = $ENV{DT_ROUNDS} // 30;
my $password = 'v3ry-s3cret';

my $primary = DirtyThrottle::Standby->primary('primary');
$primary->sql(
	q{SELECT set_group_dirty_limit('batch', 1000), set_group_wal_limit('batch', 7),
		create_resource_group('other'), set_group_mode('other', 'observe');
	  CREATE ROLE etl; SELECT grant_group_use('batch', 'etl')});
my $standby = $primary->standby('standby');
is($standby->wait_status('following'), 'following', 'it follows');
my $line = $primary->sql('SHOW dirty_throttle.definitions');
my $expected = $primary->ddl;
my $pid = $standby->following->{pid};
my $fake = DirtyThrottle::FakeServer->new;

# A line with another checksum, as that of the library: CRC-32C.
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

sub line
{
	my ($text) = @_;

	$text =~ s/ checksum=.*//;
	return $text . sprintf ' checksum=%08X', crc32c($text);
}

# The line, with something in it replaced.
sub edited
{
	my ($from, $to) = @_;
	my $text = $line;

	$text =~ s/$from/$to/ or die "nothing like $from in $line";
	return line($text);
}

# The memory of its own that a process has had at most, MB.
sub memory_mb
{
	my ($process) = @_;
	my ($kb) = slurp_file("/proc/$process/status") =~ /^VmHWM:\s*(\d+)/m;
	return $kb / 1024;
}

# ------------------------------------------------------------- what is said

is(line($line), $line, 'the checksum is known to this test');

my ($batch) = $line =~ /group=batch id=(\d+)/;
my @cases = (
	[ 'closes at once', qr/server closed the connection unexpectedly/,
		then => 'close' ],
	[ 'closes after the greeting', qr/server closed the connection unexpectedly/,
		greeting => greeting(), then => 'close' ],
	[ 'closes after the query', qr/server closed the connection unexpectedly/,
		greeting => greeting(), answer => '', then => 'close' ],
	[ 'closes in the answer', qr/server closed the connection unexpectedly/,
		greeting => greeting(), answer => substr(answer($line), 0, 200), then => 'close' ],
	[ 'speaks another protocol', qr/expected authentication request|received invalid/,
		greeting => "HTTP/1.1 400 Bad Request\r\n\r\n", then => 'close' ],
	[ 'is full', qr/number of requested standby connections exceeds max_wal_senders/,
		greeting => error_message('FATAL', '53300',
			'number of requested standby connections exceeds max_wal_senders (currently 10)'),
		then => 'close' ],
	[ 'does not have the library',
		qr/the server does not have dirty_throttle in its shared_preload_libraries/,
		greeting => greeting(),
		answer => error_message('ERROR', '42704', 'unrecognized configuration parameter') . ready() ],
	[ 'has another error, in two lines and with any bytes',
		qr/^the server answers: first second \?\?\?\[31m\?%s%n$/,
		greeting => greeting(),
		answer => error_message('ERROR', 'XX000', "first\nsecond \x{c3}\x{a4}\e[31m\x{7f}%s%n") . ready() ],
	[ 'has a message that is too long', qr/^the server answers: x{491}$/,
		greeting => greeting(),
		answer => error_message('ERROR', 'XX000', 'x' x 25000) . ready() ],
	[ 'has no row', qr/there is no answer/,
		greeting => greeting(),
		answer => row_description(1) . message('C', "SHOW\0") . ready() ],
	[ 'does nothing', qr/there is no answer|not one value/,
		greeting => greeting(), answer => message('I', '') . ready() ],
	[ 'has a NULL', qr/the answer is not one value/,
		greeting => greeting(), answer => answer(undef) ],
	[ 'has two columns', qr/the answer is not one value/,
		greeting => greeting(), answer => answer($line, $line) ],
	[ 'has two rows', qr/the answer has more than one row/,
		greeting => greeting(),
		answer => row_description(1) . row($line) . row($line) . message('C', "SHOW\0") . ready() ],
	[ 'starts a COPY', qr/the answer is not one value/,
		greeting => greeting(), answer => message('H', pack 'Cn', 0, 0) ],
	[ 'starts replication', qr/the answer is not one value/,
		greeting => greeting(), answer => message('W', pack 'Cn', 0, 0) ],
	[ 'has an empty value', qr/the answer cannot be used: it is not a line of definitions/,
		greeting => greeting(), answer => answer('') ],
	[ 'has something else', qr/the answer cannot be used: it is not a line of definitions/,
		greeting => greeting(), answer => answer('on') ],
	[ 'has a zero in it', qr/the answer cannot be used: /,
		greeting => greeting(), answer => answer("$line\0") ],
	[ 'has a value of 17 MB', qr/the answer has 17000000 bytes/,
		greeting => greeting(), answer => answer('x' x 17_000_000) ],
	[ 'has a value of 16 MB', qr/it is not a line of definitions/,
		greeting => greeting(), answer => answer('x' x 16_000_000) ],
	[ 'has a wrong checksum', qr/its checksum does not fit its content/,
		greeting => greeting(), answer => answer($line =~ s/=1000000/=1000001/r) ],
	[ 'has another format', qr/its format version is 2\.0, and this release of dirty_throttle reads 1\.x/,
		greeting => greeting(), answer => answer(edited(qr/ 1\.0 /, ' 2.0 ')) ],
	[ 'is of a newer release', qr/2 properties of groups are not known to this release/,
		greeting => greeting(),
		answer => answer(line($line =~ s/ 1\.0 / 1.9 /r =~ s/( id=\d+)/$1 ceiling=5/gr)) ],
	[ 'is another system', qr/it is that of the system with identifier 5, not of \d+/,
		greeting => greeting(), answer => answer(edited(qr/system=\d+/, 'system=5')) ],
	[ 'has older definitions', qr/its definitions are older than those of this server/,
		greeting => greeting(),
		answer => answer(line($line =~ s/change=\K(\d+)/$1 - 1/er)) ],
	[ 'is an island', qr/a standby that has definitions of its own/,
		greeting => greeting(), answer => answer(edited(qr/timeline=\d+/, 'timeline=0')) ],
	[ 'has a limit out of range', qr/group 1 has a rate of 16777216001 bytes/,
		greeting => greeting(), answer => answer(edited(qr/dirty_rate=\d+/, 'dirty_rate=16777216001')) ],
	[ 'has a negative limit', qr/group 1 has a rate of -1 bytes/,
		greeting => greeting(), answer => answer(edited(qr/wal_rate=\d+/, 'wal_rate=-1')) ],
	[ 'has no mode that there is', qr/group 2 has mode 2/,
		greeting => greeting(), answer => answer(edited(qr/observe=1/, 'observe=2')) ],
	[ 'has no ID', qr/group 1 has no ID/,
		greeting => greeting(), answer => answer(edited(qr/group=batch id=\d+/, 'group=batch')) ],
	[ 'has an ID that a later change would give', qr/group 2 has the ID of a later change/,
		greeting => greeting(),
		answer => answer(edited(qr/group=other id=\d+/, 'group=other id=4611686018427387903')) ],
	[ 'has a name twice', qr/groups 1 and 2 have the same name/,
		greeting => greeting(), answer => answer(edited(qr/group=other/, 'group=batch')) ],
	[ 'has an ID twice', qr/groups 1 and 2 have the same ID/,
		greeting => greeting(),
		answer => answer(edited(qr/group=other id=\d+/, "group=other id=$batch")) ],
	[ 'grants to nobody', qr/grant 1 has no valid group or role/,
		greeting => greeting(), answer => answer(edited(qr/grant=\d+/, 'grant=0')) ],
	[ 'grants twice', qr/there is a grant twice/,
		greeting => greeting(),
		answer => answer(line($line =~ s/grants=1/grants=2/r =~ s/( grant=\d+)/$1$1/r)) ],
	[ 'says that it has more groups', qr/fewer groups or grants than it says/,
		greeting => greeting(), answer => answer(edited(qr/groups=2/, 'groups=10000')) ],
	[ 'says that it has even more', qr/out of range/,
		greeting => greeting(), answer => answer(edited(qr/groups=2/, 'groups=2000000000')) ]);

# Each must be seen as what it is.  A good answer comes in between, so that no
# problem is taken for the next one.
sub check
{
	my ($what, $problem, %script) = @_;
	my $error;

	$fake->says(%script);
	$standby->follow($fake->conninfo);
	poll_until(
		sub {
			$error = $standby->following->{last_error} // '';
			return $error =~ $problem;
		},
		40);
	like($error, $problem, "the other server $what");
	is($standby->following->{status}, 'failing', "it $what: the view says so");
	is($standby->ddl, $expected, "it $what: nothing has changed");
}

foreach my $case (@cases)
{
	my ($what, $problem, %script) = @$case;

	check($what, $problem, %script);
}

# ------------------------------------------------------------- without an end

foreach my $flood (
	[ 'rows', row_description(1), row('x' x 1000), qr/more than one row/ ],
	[ 'parts of one value of 1.9 GB',
		row_description(1) . 'D' . pack('Nnx0N', 1_900_000_000, 1, 1_899_999_000),
		'x' x 1000, qr/memory/ ],
	[ 'notices', '', message('N', "SNOTICE\0C00000\0M" . 'x' x 1000 . "\0\0"), qr/no answer within/ ],
	[ 'notifications', '', message('A', pack('N', 1) . "channel\0" . 'x' x 1000 . "\0"), qr/memory|no answer within/ ],
	[ 'errors', '', error_message('ERROR', 'XX000', 'again'), qr/^the server answers: again$/ ])
{
	my ($what, $begin, $then, $problem) = @$flood;

	check("sends $what without an end", $problem,
		greeting => greeting(), answer => $begin, then => $then);
	cmp_ok(memory_mb($pid), '<', 350, "it sends $what: MB of memory");
}

# ------------------------------------------------------------------ passwords

$fake->says(
	greeting => message('R', pack 'N', 3),
	after_password => error_message('FATAL', '28P01', qq{"$password" is wrong for "u", not $password}),
	answer => '', then => 'close');
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/pass';
	append_to_file($file, "*:*:*:*:$password\n");
	chmod 0600, $file;
	$standby->follow($fake->conninfo("passfile=$file"));
	ok( poll_until(sub { ($standby->following->{last_error} // '') =~ /is wrong for "u"/ }),
		'a server that repeats the password');
	unlike($standby->following->{last_error}, qr/\Q$password/, 'it is not shown');

	# as long as a token of a cloud: what is cut off must not leave a part of it
	my $token = $password x 150;
	append_to_file("$file.long", "*:*:*:*:$token\n");
	chmod 0600, "$file.long";
	foreach my $what ('FATAL', 'ERROR')
	{
		my $error = error_message($what, '28P01', "a token is wrong: $token");

		$fake->says(
			greeting => message('R', pack 'N', 3),
			after_password => $what eq 'FATAL' ? $error : greeting(),
			answer => $what eq 'FATAL' ? '' : $error . ready(), then => 'close');
		$standby->follow($fake->conninfo("passfile=$file.long"));
		ok( poll_until(sub { ($standby->following->{last_error} // '') =~
				($what eq 'FATAL' ? qr/a token is wrong/ : qr/answers: a token is wrong/) }),
			"a server that repeats a long password, $what");
		unlike($standby->following->{last_error}, qr/\Q$password/, 'no part of it is shown');
	}
}

# What libpq takes for something else, and would show.
foreach my $conninfo (
	"host=localhost password=my $password",
	"postgresql://u:my\@$password\@localhost/",
	"postgresql://u:my\@$password\@localhost:1/",
	"postgresql://u\@my:$password/",
	"postgresql://u/$password\@localhost:5432",
	"postgresql://u:$password/x\@localhost",
	"host=localhost password=''$password",
	"postgresql://u:1\@localhost?pass=$password",
	"postgresql://u:my\@$password/x\@localhost",
	"postgresql://u:my\@localhost,$password\@localhost/",
	"postgresql://u:my\@localhost,$password/x\@localhost:1/")
{
	$standby->sql("ALTER SYSTEM SET dirty_throttle.primary_conninfo = "
		  . $standby->sql("SELECT quote_literal(\$\$$conninfo\$\$)"));
	my $questions = $standby->following->{questions};
	$standby->sql('SELECT pg_reload_conf()');
	poll_until(sub { $standby->following->{questions} > $questions }, 20);
	sleep 0.2;
	my $row = $standby->following;
	is($row->{status}, 'failing', "malformed: $conninfo");
	unlike(join(' ', map { $_ // '' } %$row), qr/\Q$password/, 'nothing of it is shown');
	my $r = $standby->session->run("SELECT create_resource_group('x')");
	unlike($r->{err}, qr/\Q$password/, 'nor in an error');
}

# The server itself logs statements, and parameters that a reload has changed.
is( join("\n",
		grep { /\Q$password/ && !/ statement: |parameter "\S+" changed to/ }
		  split /\n/, $standby->log_since(0)),
	'', 'nor in the log');

# --------------------------------------------------------------- at random

my @good = (greeting(), answer($line));
my $alive = 1;
my $same = 1;

srand($ENV{DT_SEED} // time);
note "seed " . srand;
foreach my $round (1 .. $rounds)
{
	my @said = @good;
	my $served = $fake->served;

	foreach (1 .. 1 + int rand 4)
	{
		my $which = rand(4) < 1 ? 0 : 1;
		my $at = int rand length $said[$which];
		my $kind = int rand 4;

		if ($kind == 0) { substr($said[$which], $at, 1) = chr int rand 256 }
		elsif ($kind == 1) { substr($said[$which], $at, int rand 8) = '' }
		elsif ($kind == 2)
		{
			substr($said[$which], $at, 0) = join '',
			  map { chr int rand 256 } 1 .. 1 + int rand 8;
		}
		else { substr($said[$which], $at, 4) = pack 'N', int rand 2**32 }
	}
	$fake->says(greeting => $said[0], answer => $said[1], then => 'close');
	$standby->follow($fake->conninfo);
	$alive = 0 unless poll_until(sub { $fake->served > $served }, 30);
	$same = 0 unless $standby->ddl eq $expected;
	last unless $alive && $same;
}
ok($alive, "$rounds conversations that were changed at random: it asks on");
ok($same, 'and nothing has changed');
is($standby->following->{pid}, $pid, 'all that was one process');
cmp_ok(memory_mb($pid), '<', 350, 'MB of memory');

check('could not take all itself', qr/a standby for which dirty_throttle.max_groups is too small/,
	greeting => greeting(),
	answer => answer(line($line =~ s/change=\K(\d+)/$1 + 1/er =~ s/complete=1/complete=0/r)));

# ------------------------------------------- a call of libpq without an end

# A proof of the password by so many iterations takes half an hour.
$fake->says(greeting => scram_greeting(), scram => 2147483647);
$standby->follow($fake->conninfo('password=x'));
ok( poll_until(sub { $standby->log_since(0) =~ /libpq did not return within 15 s/ }, 40),
	'a server that makes libpq compute: the process gives up');
is($standby->wait_status('failing'), 'failing', 'and is started again');
is($standby->following->{last_error}, 'libpq did not return', 'the view tells');
poll_until(sub { $fake->busy }, 20);
$standby->disconnect;
cmp_ok(elapsed_ms(sub { $standby->node->restart }), '<', 30000,
	'a restart does not wait for that');
$standby->disconnect;

# --------------------------- slow: a server that says a byte now and then

# Nothing waits for that.
sub slow
{
	$fake->says(greeting => greeting(), answer => answer($line), drip => 0.2);
	$standby->follow($fake->conninfo);
	ok( poll_until(
			sub {
				return 0 unless $fake->busy;
				sleep 0.5;
				return $fake->busy;
			},
			10),
		'a question is under way');
}
check('says a byte now and then', qr/no answer within 15 s/,
	greeting => greeting(), answer => answer($line), drip => 0.2);
{
	my $ms;

	# a busy disk can make it slow
	foreach my $try (1 .. 3)
	{
		slow();
		$ms = elapsed_ms(sub { $standby->node->backup("while_it_asks$try") });
		last if $ms < 15000;
	}
	cmp_ok($ms, '<', 15000, 'a base backup does not wait');
}
slow();
$primary->table('t');
$primary->sql(insert_sql('t', 10));
$primary->sql('CREATE DATABASE d; DROP DATABASE d');
ok( poll_until(
		sub { $standby->sql("SELECT pg_last_wal_replay_lsn() >= '"
			  . $primary->sql('SELECT pg_current_wal_lsn()') . "'::pg_lsn") eq 't' }, 5),
	'replay does not wait');
slow();
$standby->disconnect;
cmp_ok(elapsed_ms(sub { $standby->node->restart }), '<', 10000,
	'nor does a restart');
$standby->disconnect;

# The highest number that is accepted leaves room for changes after it.
$fake->says(greeting => greeting(),
	answer => answer(edited(qr/change=\d+/, 'change=4611686018427387903')));
$standby->follow($fake->conninfo);
ok(poll_until(sub { $standby->stamp =~ /\.4611686018427387903$/ }, 40), 'the highest number');
slow();
cmp_ok(elapsed_ms(sub { $standby->node->promote }), '<', 10000,
	'nor a promotion');
is($standby->following->{status}, 'not a standby', 'it does not follow any more');
ok( poll_until(sub { !defined $standby->following->{pid} }, 5),
	'and the process has gone');
is($standby->ddl, $expected, 'its definitions are what they were');
$standby->limit(batch => 2000);
like($standby->ddl, qr/'batch', 2000/, 'and can be changed');
$standby->disconnect;
$standby->node->restart;
like($standby->ddl, qr/'batch', 2000/, 'they are there after a restart');

is($_->crashes, '', 'no crash') foreach $primary, $standby;
unlike($standby->log_since(0), qr/background worker "dirty_throttle follower".*(signal|exit code (?!1\b))/,
	'the process has never crashed');
$fake->stop;
$standby->stop;
$primary->finish;
