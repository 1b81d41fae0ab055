# The definitions file cannot be read: it is tried again, or the server does not
# start; nothing happens to the file.  Single system calls fail, by a library in
# LD_PRELOAD, one after the other.
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# expect-in-log: WARNING:  file "dirty_throttle.groups" is damaged
# takes-about: 29 s
# not-timed

use strict;
use warnings FATAL => 'all';

use Errno qw(EACCES EAGAIN EINTR EIO ELOOP EMFILE ENFILE ENOENT ENOMEM EPERM ESTALE);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Faults;
use DirtyThrottle::Life;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Faults->new('faults');
my $node = $dt->node;
my $dir = $node->data_dir;
my $file = $dt->file;
my $expected = $DEFINED;

plan skip_all => 'no library can be preloaded here' unless $dt->preload;
$dt->define_groups;

# The calls of a start.
my $image = slurp_hex($file);
$dt->stop;
set_fault(0, 0, 'fail');
$node->start;
my @reads = trace();
clear_fault();
note 'system calls of a start: ', join ', ', @reads;
like("@reads", qr/open file.*read file.*close file/, 'it opens, reads, closes');

# What the log says; not every errno has a SQLSTATE on every release.
my %state = (
	EACCES, 42501, EPERM, 42501, EMFILE, 53000, ENFILE, 53000, EIO, 58030);
my $reason = sub { local $! = shift; return "$!" };
my $refusal = sub {
	my ($errno, $data_dir) = (@_, $dir);
	my $reason = $reason->($errno);
	my $state = $state{$errno} // '\w{5}';
	my $path = qr/"\Q$data_dir\E\/dirty_throttle\.groups/;
	return
	  qr/$state FATAL:  could not read file "dirty_throttle\.groups": \Q$reason\E\n.*DETAIL:  The file defines the resource groups\..*\n.*HINT:  .*chmod u\+rw $path".* mv $path" $path\.away"/;
};

# A start meets this: it is refused.
my $check_refused = sub {
	my ($what, $errno) = @_;
	my $mark = $dt->log_mark;

	$dt->stop;
	set_fault(@_[ 2, 3 ], 'fail', $errno);
	ok(!$node->start(fail_ok => 1), "$what: the server does not start");
	clear_fault();
	like($dt->log_since($mark), $refusal->($errno),
		"$what: it says why, and what to do");
	is(slurp_hex($file), $image, "$what: the file is as it was");
	ok(!-e "$file.damaged", "$what: it counts not as damaged");
	ok($node->start(fail_ok => 1), "$what, then not: it starts");
	is($dt->definitions, $expected, "$what, then not: all groups");
};

# Those that look for the file, open it and read it.
my @numbers = grep { $reads[ $_ - 1 ] =~ /^(stat|open|read)/ } 1 .. @reads;

# What could pass, but does not after all: a start gives up after seconds, each on
# a server of its own, in the background.
my @patient;

$dt->stop;
$node->backup_fs_cold('good');
foreach my $n (@numbers)
{
	my $errno = (EMFILE, EIO, ENFILE)[ $n % 3 ];
	my $other = DirtyThrottle::Faults->over(PostgreSQL::Test::Cluster->new("patient_$n"));

	$other->node->init_from_backup($node, 'good');
	local $ENV{DT_FAULT} = PostgreSQL::Test::Utils::tempdir_short() . '/fault';
	set_fault($n, 1000, 'fail', $errno);
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		{
			exec 'pg_ctl', '-s', '-w', '-D', $other->node->data_dir, '-l',
			  $other->node->logfile, 'start';
		}
		POSIX::_exit(0);
	}
	push @patient, {
		dt => $other, what => "$reads[$n - 1], always " . $reason->($errno),
		errno => $errno, pid => $pid, fault => $ENV{DT_FAULT}
	};
}
$node->start;

foreach my $n (@numbers)
{
	# what does not pass
	foreach my $errno (EACCES, EPERM, ELOOP, ESTALE,
		$reads[ $n - 1 ] eq 'stat file' ? () : ENOENT)
	{
		$check_refused->("$reads[$n - 1], always " . $reason->($errno),
			$errno, $n, 1000);
	}
	# what does: for about a second, or less
	foreach my $errno (EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, EIO)
	{
		my $reason = $reason->($errno);
		my $what = "$reads[$n - 1], for a while $reason";
		my $mark;

		$dt->stop;
		$mark = $dt->log_mark;
		set_fault($n, $n + ($errno == EMFILE ? 9 : 1), 'fail', $errno);
		ok($node->start(fail_ok => 1), "$what: the server starts");
		clear_fault();
		is($dt->definitions, $expected, "$what: all groups");
		like($dt->log_since($mark),
			qr/LOG:  could not read file "dirty_throttle.groups", trying again for 5 seconds: \Q$reason\E/,
			"$what: the log has it");
		unlike($dt->log_since($mark), qr/is damaged|FATAL/,
			"$what: and nothing else");
	}
}

foreach my $patient (@patient)
{
	my ($other, $what) = @$patient{qw(dt what)};
	my $file = $other->file;

	waitpid $patient->{pid}, 0;
	isnt($?, 0, "$what: the server does not start");
	unlink $patient->{fault};
	my $log = $other->log_since(0);
	like($log, $refusal->($patient->{errno}, $other->node->data_dir),
		"$what: it says why, and what to do");
	my ($begin, $end) = map {
		$log =~ /^\S+ (\d+):(\d+):([\d.]+) .*$_/m ? 3600 * $1 + 60 * $2 + $3 : undef
	} 'LOG:  could not read file .*, trying again', 'FATAL:  could not read file';
	between(($end - $begin) % 86400, 4, 30, "$what: seconds until it gives up");
	is(slurp_hex($file), $image, "$what: the file is as it was");
	ok(!-e "$file.damaged", "$what: it counts not as damaged");
	ok($other->node->start(fail_ok => 1), "$what, then not: it starts");
	is($other->definitions, $expected, "$what, then not: all groups");
	$other->stop('immediate');
}

# A crash restart loads the file again, by the same rule.
my $crash = sub {
	my $session = $dt->session;

	$dt->disconnect;
	kill 'KILL', $session->pid;
	$session->quit;
};
{
	my $mark = $dt->log_mark;

	set_fault(1, 10, 'fail', EMFILE);
	$crash->();
	ok( poll_until(sub {
				$dt->log_since($mark) =~ /ready to accept connections/ }),
		'crash restart, for a while EMFILE: it has recovered');
	clear_fault();
	is($dt->definitions, $expected,
		'crash restart, for a while EMFILE: all groups');

	my ($postmaster) = slurp_file("$dir/postmaster.pid") =~ /^(\d+)/;
	set_fault(1, 1000, 'fail', EACCES);
	$crash->();
	ok(poll_until(sub { gone($postmaster) }),
		'crash restart, always EACCES: the server ends');
	clear_fault();
	like($dt->log_since($mark), $refusal->(EACCES),
		'crash restart, always EACCES: it says why, and what to do');
	is(slurp_hex($file), $image,
		'crash restart, always EACCES: the file is as it was');
	$node->kill9;    # so that it knows
	$dt->bury($postmaster);
	$node->start;
	is($dt->definitions, $expected,
		'crash restart, always EACCES, then not: all groups');
}

# A file that ends too early is damaged; here it cannot be put aside, either.
{
	my ($read) = grep { $reads[ $_ - 1 ] eq 'read file' } 1 .. @reads;
	my $mark = $dt->log_mark;

	$dt->stop;
	set_fault($read, 1000, 'short', EPERM);
	ok($node->start(fail_ok => 1), 'cut short: the server starts');
	clear_fault();
	like(
		$dt->log_since($mark),
		qr/WARNING:  file "dirty_throttle.groups" is damaged.*\n.*DETAIL:  .* it has 0 bytes, .*\n.*HINT:  The file could not be renamed to "dirty_throttle.groups.damaged": Operation not permitted\. Copy it now/,
		'cut short, and not renamed: the log says both');
	is($dt->definitions, '', 'cut short: no group');
	is(slurp_hex($file), $image, 'cut short, and not renamed: it is there');
	ok(!-e "$file.damaged", 'cut short, and not renamed: only there');
	$dt->stop;
	$node->start;
	is($dt->definitions, $expected, 'cut short, then not: all groups');
}

$dt->stop;
done_testing();
