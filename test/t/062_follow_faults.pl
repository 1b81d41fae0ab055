# A standby that asks a broken or malicious server for its definitions: nothing
# of it crashes, blocks, or fills the memory; its definitions stay what they
# are; and what is wrong can be read, without any password.
#
# DT_ROUNDS in the environment is how many conversations are changed at random.
#
# takes-about: 68 s
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
use POSIX ();
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
my $line = $primary->sql('SHOW dirty_throttle.definitions');
my $expected = $primary->ddl;

# Several standbys, each with a server of its own that it asks: what takes long
# for one of them, the others do not wait for.
my @lanes = map {
	{
		standby => $primary->standby($_, backup => 'for_all'),
		fake => DirtyThrottle::FakeServer->new
	}
} qw(standby second third computes);
my $computes = pop @lanes;
my ($standby, $fake) = @{ $lanes[0] }{qw(standby fake)};

foreach my $lane (@lanes, $computes)
{
	is($lane->{standby}->wait_status('following'), 'following', 'it follows');
	$lane->{pid} = $lane->{standby}->following->{pid};
}

# Run these jobs, each on the next standby that is free, or in their order on
# the one lane that is given.  A job is
#	says       what the other server says, if that is to be asked
#	conninfo   for that
#	done       code with the lane: has it come to its end?
#	timeout    it should before that, seconds
#	end        code with the lane and whether it has
sub begin_jobs
{
	my ($lanes, @jobs) = @_;

	$_->{jobs} = \@jobs foreach @$lanes;
}

sub begin_job
{
	my ($lane, $job) = @_;

	$lane->{job} = $job;
	$lane->{started} = time;
	$lane->{served} = -1;
	return unless $job->{says};
	$lane->{served} = $lane->{fake}->served;
	$lane->{fake}->says(%{ $job->{says} });
	$lane->{standby}->follow($lane->{fake}->conninfo($job->{conninfo}));
}

sub wait_for_jobs
{
	poll_until(
		sub {
			my $busy = 0;

			foreach my $lane (@lanes, $computes)
			{
				if (my $job = $lane->{job})
				{
					my $done = $lane->{fake}->served > $lane->{served}
					  && $job->{done}->($lane);

					if ($done || time > $lane->{started} + $job->{timeout})
					{
						delete $lane->{job};
						$job->{end}->($lane, $done);
					}
				}
				begin_job($lane, shift @{ $lane->{jobs} })
				  if !$lane->{job} && @{ $lane->{jobs} // [] };
				$busy = 1 if $lane->{job};
			}
			return !$busy;
		},
		500);
}

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

# Each must be seen as what it is.
sub check_job
{
	my ($what, $problem, %script) = @_;

	return {
		says => \%script,
		timeout => 40,
		done => sub {
			my ($lane) = @_;

			$lane->{error} = $lane->{standby}->following->{last_error} // '';
			return $lane->{error} =~ $problem;
		},
		end => sub {
			my ($lane) = @_;

			like($lane->{error}, $problem, "the other server $what");
			is($lane->{standby}->following->{status}, 'failing', "it $what: the view says so");
			is($lane->{standby}->ddl, $expected, "it $what: nothing has changed");
		}
	};
}

my @case_jobs = map { check_job(@$_) } @cases;

# ------------------------------------------------------------- without an end

my @flood_jobs;

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
	my $job = check_job("sends $what without an end", $problem,
		greeting => greeting(), answer => $begin, then => $then);
	my $end = $job->{end};

	$job->{end} = sub {
		my ($lane) = @_;

		$end->($lane);
		cmp_ok(memory_mb($lane->{pid}), '<', 350, "it sends $what: MB of memory");
	};
	push @flood_jobs, $job;
}

# --------------------------------------------------------------- at random

my @good = (greeting(), answer($line));
my $alive = 1;
my $same = 1;
my @random_jobs;

srand($ENV{DT_SEED} // time);
note "seed " . srand;
foreach my $round (1 .. $rounds)
{
	my @said = @good;

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
	push @random_jobs, {
		says => { greeting => $said[0], answer => $said[1], then => 'close' },
		timeout => 30,
		done => sub { 1 },
		end => sub {
			my ($lane, $done) = @_;

			$alive = 0 unless $done;
			$same = 0 unless $lane->{standby}->ddl eq $expected;
		}
	};
}

# ------------------------------------------- a call of libpq without an end

# A restart in the background: the file will have its exit status and how many
# milliseconds it has taken.
sub begin_restart
{
	my ($dt) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/restart';

	$dt->disconnect;
	if (!(fork // die "fork: $!"))
	{
		# another program, which inherits no connections
		{
			exec $^X, '-MTime::HiRes=time', '-e', q{
				my $file = shift;
				my $start = time;

				system @ARGV;
				open my $result, '>', "$file.new" or die;
				print $result "$? ", 1000 * (time - $start), "\n";
				close $result;
				rename "$file.new", $file;
			}, $file, 'pg_ctl', '-s', '-w', '-D', $dt->node->data_dir, '-l',
			  $dt->node->logfile, 'restart';
		}
		POSIX::_exit(127);
	}
	return $file;
}

# A proof of the password by so many iterations takes half an hour, however fast
# it goes: let that not keep the processor from others.
my $restart;
my $problem = qr/libpq did not return within 15 s/;
my @compute_jobs = (
	{
		says => { greeting => scram_greeting(), scram => 2147483647 },
		conninfo => 'password=x',
		timeout => 80,
		done => sub {
			my ($lane) = @_;
			my $row = $lane->{standby}->following;

			return $lane->{standby}->log_since(0) =~ $problem
			  && $row->{status} eq 'failing' && ($row->{pid} // 0) != $lane->{pid};
		},
		end => sub {
			my ($lane) = @_;

			setpriority 0, $lane->{standby}->following->{pid}, 19;
			like($lane->{standby}->log_since(0), $problem,
				'a server that makes libpq compute: the process gives up');
			is($lane->{standby}->following->{status}, 'failing', 'and is started again');
			is($lane->{standby}->following->{last_error},
				'libpq did not return', 'the view tells');
		}
	},
	{
		timeout => 20,
		done => sub { $_[0]{fake}->busy },
		end => sub { $restart = begin_restart($_[0]{standby}) }
	});

# What takes longest begins first.
setpriority 0, $computes->{pid}, 19;
begin_jobs([$computes], @compute_jobs);
begin_jobs(
	\@lanes,
	check_job('says a byte now and then', qr/no answer within 15 s/,
		greeting => greeting(), answer => answer($line), drip => 0.2),
	reverse(@flood_jobs), @random_jobs, @case_jobs);
wait_for_jobs();
ok($alive, "$rounds conversations that were changed at random: it asks on");
ok($same, 'and nothing has changed');

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

# What libpq takes for something else, and would show: one for each standby.
my @malformed = (
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
	"postgresql://u:my\@localhost,$password/x\@localhost:1/");
while (my @now = splice @malformed, 0, scalar @lanes)
{
	my @asked = @lanes[ 0 .. $#now ];

	foreach my $i (0 .. $#now)
	{
		my $dt = $asked[$i]{standby};

		$dt->sql("ALTER SYSTEM SET dirty_throttle.primary_conninfo = "
			  . $dt->sql("SELECT quote_literal(\$\$$now[$i]\$\$)"));
		$asked[$i]{questions} = $dt->following->{questions};
		$dt->sql('SELECT pg_reload_conf()');
	}
	poll_until(
		sub {
			!grep { $_->{standby}->following->{questions} <= $_->{questions} } @asked;
		},
		20);
	sleep 0.2;
	foreach my $i (0 .. $#now)
	{
		my $dt = $asked[$i]{standby};
		my $row = $dt->following;

		is($row->{status}, 'failing', "malformed: $now[$i]");
		unlike(join(' ', map { $_ // '' } %$row), qr/\Q$password/, 'nothing of it is shown');
		my $r = $dt->session->run("SELECT create_resource_group('x')");
		unlike($r->{err}, qr/\Q$password/, 'nor in an error');
	}
}

# The server itself logs statements, and parameters that a reload has changed.
is( join("\n",
		grep { /\Q$password/ && !/ statement: |parameter "\S+" changed to/ }
		  split /\n/, join '', map { $_->{standby}->log_since(0) } @lanes),
	'', 'nor in the log');

foreach my $lane (@lanes)
{
	is($lane->{standby}->following->{pid}, $lane->{pid}, 'all that was one process');
	cmp_ok(memory_mb($lane->{pid}), '<', 350, 'MB of memory');
}

begin_jobs(
	[ $lanes[0] ],
	check_job('could not take all itself',
		qr/a standby for which dirty_throttle.max_groups is too small/,
		greeting => greeting(),
		answer => answer(line($line =~ s/change=\K(\d+)/$1 + 1/er =~ s/complete=1/complete=0/r))));
wait_for_jobs();

# --------------------------- slow: a server that says a byte now and then

# Nothing waits for that.
sub slow
{
	$fake->says(greeting => greeting(), answer => answer($line), drip => 0.2);
	$standby->follow($fake->conninfo);
	ok( poll_until(
			sub {
				return 0 unless $fake->busy;
				sleep 0.3;
				return $fake->busy;
			},
			10),
		'a question is under way');
}
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

# The other one has been restarted by now.
my $patience = 60;
ok(poll_until(sub { -e $restart }, $patience), 'a restart of one that computes');
my ($status, $ms) = split ' ', slurp_file($restart);
is($status, 0, 'it succeeds');
cmp_ok($ms, '<', 30000, 'a restart does not wait for that');
$computes->{standby}->node->_update_pid(1);

is($_->crashes, '', 'no crash') foreach $primary, map { $_->{standby} } @lanes, $computes;
foreach my $lane (@lanes, $computes)
{
	unlike($lane->{standby}->log_since(0),
		qr/background worker "dirty_throttle follower".*(signal|exit code (?!1\b))/,
		'the process has never crashed');
	$lane->{fake}->stop;
	$lane->{standby}->stop($lane == $lanes[0] ? 'fast' : 'immediate');
}
$primary->finish;
