# dirty_throttle.log_min_pause: one message in the server log about each
# transaction that has paused so long, wherever it has, whatever for, and
# however it ends; and none about any other one.  Its times are those of the
# views, to the microsecond.
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $library = compile_library('log_hook');

my $dt = DirtyThrottle::Life->new(
	'log_min_pause',
	conf => q{
dirty_throttle.log_min_pause = 100ms
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
}
	  . ($library ? "shared_preload_libraries = 'dirty_throttle, $library'" : ''));
my $limit = 1000;    # KB/s: 8 ms a block
my $columns = '(id int, filler text) WITH (fillfactor = 10)';
$dt->limit(grp_a => $limit);
$dt->limit(grp_b => 0);
$dt->sql("CREATE TABLE t $columns; CREATE TABLE hot AS SELECT 1 AS id, 0 AS n");

# So many rows, each in a block.
sub rows
{
	my ($n) = @_;
	return "SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

my $big = 'INSERT INTO t ' . rows(60);    # pays in flight, half a second

# What small transactions owe is less than the grace, which is raised for them;
# this one's is four times the threshold and more.
my $grace = 'dirty_throttle.transaction_grace';
my $small = 'INSERT INTO t ' . rows(70);

# The messages about a process, or a list of them, from there on in the log.
sub messages
{
	my ($mark, @pids) = @_;
	my $log = $dt->log_since($mark);
	my @messages;
	my $known = 0;

	while ($log =~
		/LOG:  process (\d+) paused for ([\d.]+) ms in resource group "(\w+)"\n[^\n]*DETAIL:  Causes: ([^.]+(?:\.\d+[^.]*)+)\. Transaction: [\d.]+ ms, of which [\d.]+ ms paused\.(?: Releases: (\d+), for ([\d.]+) ms without pausing, the last one for process (\d+)\.)?\n/g)
	{
		$known++;
		my %message = (pid => $1, ms => $2, group => $3, causes => $4,
			releases => $5 // 0, released_ms => $6, released_for => $7);
		push @messages, \%message if grep { $_ == $message{pid} } @pids;
	}
	# none is of another form
	my $any = () = $log =~ /process \d+ paused for/g;
	$any -= () = $log =~ /STATEMENT: .*paused for/g;
	fail("a message of another form:\n$log") if $any != $known;
	return @messages;
}

# What a session owes after a statement is not in the next one's way.
sub fresh
{
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $limit);
}

my $s = $dt->session(group => 'grp_a');
my $pid = $s->pid;
my $outsider = $dt->session;

# Run SQL, or code, in the session that is a member: its messages.  The causes of
# each add up, and all of them together are the time that the view has.
sub logged
{
	my ($name, $sql) = @_;
	my $mark = $dt->log_mark;
	my $before = $dt->session_row($s)->{paused_time};

	ref $sql ? $sql->() : $s->query($sql);
	my $paused = $dt->session_row($s)->{paused_time} - $before;
	my @messages = messages($mark, $pid);
	my $sum = 0;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $message (@messages)
	{
		my $parts = 0;

		$sum += $message->{ms};
		$parts += $_ foreach $message->{causes} =~ /([\d.]+) ms/g;
		ok(abs($parts - $message->{ms}) < 0.003, "$name: the causes add up");
	}
	ok(abs($sum - $paused) < 0.01, "$name: $sum ms, as in the view")
	  if @messages;
	note "$name: paused $paused ms, " . scalar(@messages) . ' messages';
	return wantarray ? @messages : $messages[0];
}

# There is one, about the group, for the cause.
sub check_one
{
	my ($name, $cause, @messages) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar(@messages), 1, "$name: one message") or return;
	my $m = $messages[0];

	is($m->{group}, 'grp_a', "$name: the group");
	like($m->{causes}, qr/^$cause [\d.]+ ms$/, "$name: the cause");
	is($m->{releases}, 0, "$name: not released");
}

# ------------------------------------------------------- where, what for, how

check_one('in flight', 'dirty', logged('in flight', $big));
fresh();
check_one('a block', 'dirty',
	logged('a block', "BEGIN;\n$big;\nSELECT 1;\nCOMMIT"));
fresh();
check_one('ROLLBACK', 'dirty',
	logged('ROLLBACK', "BEGIN;\n$big;\nROLLBACK"));
fresh();
my @messages = logged('COPY', "COPY t (id) FROM PROGRAM 'seq 1 3000'");
is(scalar(@messages), 1, 'COPY: one message');
fresh();

$dt->set_conf($grace, '1d', $s);
check_one('after a transaction', 'dirty',
	logged('after a transaction', $small));
check_one('after a block', 'dirty',
	logged('after a block', "BEGIN;\n$small;\nCOMMIT"));

# What is left for the next statement would take minutes to pay: it does not get
# less while nothing runs.
sub pays_first
{
	my ($name) = @_;
	my $before = $dt->session_row($s)->{paused_time};

	check_one($name, 'dirty',
		logged($name,
			sub {
				$s->send($MAY_WRITE);
				ok(poll_until(
						sub { $dt->session_row($s)->{paused_time} > $before + 200 }),
					"$name: it pauses");
				$dt->limit(grp_a => 0);
				$s->wait;
			}));
	fresh();
}

$dt->limit(grp_a => 1);
is(scalar(my @rolled_back = logged('rolled back', "BEGIN;\n$small;\nROLLBACK")),
	0, 'not after a rollback: no message');
pays_first('after a rollback');
$s->query('SET dirty_throttle.max_commit_pause = 0');
$dt->limit(grp_a => 1);
is(scalar(my @none = logged('not after it', $small)),
	0, 'max_commit_pause = 0: no message');
pays_first('before the next one');

# 130 ms may be spent after it, the rest before the next one
$s->query("SET dirty_throttle.max_commit_pause = '130ms'");
$dt->limit(grp_a => 1);
check_one('the first part', 'dirty',
	logged('the first part', $small));
pays_first('the rest');
$s->query($small);
check_one('before it and after it', 'dirty',
	logged('before and after', $small));
$s->query("$MAY_WRITE; RESET dirty_throttle.max_commit_pause");
$dt->set_conf($grace, '50ms', $s);

# for the WAL
$dt->limit(grp_a => 0);
$dt->sql(q{SELECT set_group_wal_limit('grp_a', 200)});
check_one('for the WAL', 'wal', logged('for the WAL', $big));
$dt->sql(q{SELECT set_group_wal_limit('grp_a', 0)});
fresh();

# Several transactions: a command that commits in between is one of them, a
# procedure that does so is not.
$dt->sql("TRUNCATE t; INSERT INTO t " . rows(150) . ';
	DELETE FROM t WHERE id % 2 = 0; CHECKPOINT');
check_one('VACUUM', 'dirty', logged('VACUUM', 'VACUUM t'));
$dt->sql('TRUNCATE t');
fresh();
$dt->sql("CREATE PROCEDURE twice() LANGUAGE plpgsql AS \$\$ BEGIN
	$big; COMMIT; PERFORM 1; COMMIT; $big; END \$\$");
@messages = logged('a procedure', 'CALL twice()');
is(scalar(@messages), 2, 'a procedure: a message for each transaction');

# Parallel workers: their pauses are the session's.
$dt->sql("CREATE TABLE fresh $columns; INSERT INTO fresh " . rows(200) . ';
	ALTER TABLE fresh SET (parallel_workers = 3); CHECKPOINT;
	CREATE FUNCTION may_write(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS
		$$BEGIN RETURN $1; END$$');
$s->query('SET max_parallel_workers_per_gather = 3;
	SET parallel_leader_participation = off');
fresh();
check_one('parallel workers', 'dirty',
	logged('parallel workers', 'SELECT count(may_write(id)) FROM fresh'));
$s->query('RESET max_parallel_workers_per_gather;
	RESET parallel_leader_participation');

# ----------------------------------------------------------------- suspended

# Suspended for a time, by another session; with a limit in force or not.
sub suspended
{
	my ($sql, $where) = @_;
	return sub {
		$dt->sql(q{SELECT suspend_group('grp_a')});
		$s->send($sql);
		ok($dt->wait_paused($s, $where), "$sql: it is suspended");
		sleep 0.3;
		$dt->sql("SELECT resume_group('grp_a')");
		is($s->wait->{sqlstate}, undef, "$sql: it goes on");
	};
}

check_one('suspended', 'suspend_group',
	logged('suspended', suspended($MAY_WRITE, 'in flight')));
# ------------------------------------------------------------------- released

fresh();
@messages = logged('released', sub {
	$s->send("BEGIN;\nUPDATE hot SET n = n + 1;\n$big;\nCOMMIT");
	ok($dt->wait_paused($s, 'in flight'), 'it pauses with a lock');
	$outsider->query('UPDATE hot SET n = n + 1');
	is($s->wait->{sqlstate}, undef, 'somebody waits, it goes on');
});
is(scalar(@messages), 1, 'released: one message');
is($messages[0]{releases}, 1, 'released: once');
is($messages[0]{released_for}, $outsider->pid, 'released: for whom');
cmp_ok($messages[0]{released_ms}, '>', 0, 'released: it has run without pausing');
fresh();
check_one('the next one', 'dirty', logged('the next one', $big));

# ---------------------------------------------------- cancelled, terminated ...

# Cancelled after a while: the pause up to then counts.
sub cancelled
{
	my ($sql, $where) = @_;
	return sub {
		$s->send($sql);
		ok($dt->wait_paused($s, $where), "$sql: it pauses");
		sleep 0.2;
		$dt->sql("SELECT pg_cancel_backend($pid)");
		$s->wait;
	};
}

$dt->limit(grp_a => 0);
$dt->limit(grp_a => 20);
check_one('cancelled in flight', 'dirty',
	logged('cancelled in flight', cancelled($big, 'in flight')));
fresh();
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 20);
@messages = logged('cancelled in a block', cancelled("BEGIN;\n$big", 'in flight'));
is(scalar(@messages), 0, 'cancelled in a block: not before it ends');
check_one('cancelled in a block', 'dirty', do {
	my $mark = $dt->log_mark;
	$s->query('ROLLBACK');
	messages($mark, $pid);
});
$dt->set_conf($grace, '100s', $outsider);
poll_until(sub { $s->query("SHOW $grace") eq '100s' });
fresh();
$dt->limit(grp_a => 20);
check_one('cancelled after it', 'dirty',
	logged('cancelled after it', cancelled($small, 'after transaction')));
check_one('cancelled before it', 'dirty',
	logged('cancelled before it', cancelled($MAY_WRITE, 'in flight')));
fresh();
$dt->set_conf($grace, '50ms', $outsider, $s);

# The error is caught, and the transaction goes on and pauses more.
$dt->sql("CREATE FUNCTION catches() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN
	BEGIN $big; EXCEPTION WHEN query_canceled THEN END; $big; END \$\$");
fresh();
check_one('a cancel that is caught', 'dirty',
	logged('caught', cancelled('SELECT catches()', 'in flight')));

# The session is terminated, taken out of the group, or the group is dropped.
fresh();
my $victim = $dt->session(group => 'grp_a');
my $mark = $dt->log_mark;
$victim->send($big);
ok($dt->wait_paused($victim, 'in flight'), 'another one pauses');
sleep 0.2;
$dt->terminate_ms($victim);
ok(poll_until(sub { gone($victim->pid) }), 'it has ended');
check_one('terminated', 'dirty', messages($mark, $victim->pid));

foreach my $end ('moved', 'dropped')
{
	$dt->limit(grp_c => 20);
	$victim = $dt->session(group => 'grp_c');
	$mark = $dt->log_mark;
	$victim->send($big);
	ok($dt->wait_paused($victim, 'in flight'), "$end: it pauses");
	sleep 0.2;
	$dt->sql($end eq 'moved'
		? 'SELECT set_session_group(' . $victim->pid . ", '')"
		: q{SELECT drop_resource_group('grp_c', force => true)});
	is($victim->wait->{sqlstate}, undef, "$end: it goes on");
	@messages = messages($mark, $victim->pid);
	is(scalar(@messages), 1, "$end: one message");
	is($messages[0]{group}, 'grp_c', "$end: the group");
	cmp_ok($messages[0]{ms}, '>=', 200, "$end: ms");
	$victim->quit;
}

# Whoever comes next in its place has not paused.
$victim = $dt->session;
$victim->query('SET dirty_throttle.log_min_pause = 0');
$mark = $dt->log_mark;
$victim->query($big);
is(scalar(my @of_nobody = messages($mark, $victim->pid)),
	0, 'no member, no message');
$victim->quit;

# ------------------------------------------------------------ the threshold

fresh();
my $paused = (logged('all', $big))[0]{ms};
foreach my $case ([ '0', 1 ], [ '20s', 0 ], [ '-1', 0 ], [ '1ms', 1 ])
{
	my ($value, $expected) = @$case;

	fresh();
	$s->query("SET dirty_throttle.log_min_pause = '$value'");
	is(scalar(my @m = logged($value, $big)), $expected,
		"log_min_pause = $value: messages");
}
$s->query('SET dirty_throttle.log_min_pause = 0');
is(scalar(my @m = logged('nothing', 'SELECT 1')),
	0, 'log_min_pause = 0: nothing about who has not paused');
$s->query('SET dirty_throttle.log_min_pause = -1');
fresh();
check_one('SET LOCAL', 'dirty',
	logged('SET LOCAL',
		"BEGIN;\nSET LOCAL dirty_throttle.log_min_pause = 0;\n$big;\nCOMMIT"));
$s->query('RESET dirty_throttle.log_min_pause');

# per role; who is no superuser cannot set it
$dt->sql(q{CREATE ROLE batch LOGIN; GRANT ALL ON t TO batch;
	ALTER ROLE batch SET dirty_throttle."group" = 'grp_a';
	ALTER ROLE batch SET dirty_throttle.log_min_pause = -1});
my $batch = $dt->session(user => 'batch');
is($batch->run('SET dirty_throttle.log_min_pause = 0')->{sqlstate},
	'42501', 'SET by anybody: the error');
$mark = $dt->log_mark;
fresh();
$batch->query($big);
is(scalar(@m = messages($mark, $batch->pid)), 0, 'switched off for a role');
$batch->quit;

# in mode observe
$dt->sql(q{SELECT alter_resource_group('grp_a', mode => 'observe')});
my $observed = $dt->group_row('grp_a')->{observed_pauses};
$s->query('SET dirty_throttle.log_min_pause = 0');
my $observed_ms = $dt->group_row('grp_a')->{observed_pause_time};
$mark = $dt->log_mark;
is(scalar(@m = logged('observe', "/* so long */ $big")), 0, 'mode observe: no message about pauses');
cmp_ok($dt->group_row('grp_a')->{observed_pauses}, '>', $observed,
	'mode observe: but they are counted');
my $would = qr/LOG:  process $pid would have paused for ([\d.]+) ms in resource group "grp_a"\n/;
@m = $dt->log_since($mark) =~ /$would.*DETAIL:  The mode is observe\.\n.*STATEMENT:  .*so long/g;
is(scalar(@m), 1, 'mode observe: and there is one message that says for how long');
ok(abs($m[0] - $dt->group_row('grp_a')->{observed_pause_time} + $observed_ms) < 0.01,
	'mode observe: as the view does');
$s->query('SET dirty_throttle.log_min_pause = 60000');
$mark = $dt->log_mark;
$s->query($big);
$s->query('SELECT 1');
unlike($dt->log_since($mark), $would, 'mode observe: none about less than that');
$s->query('RESET dirty_throttle.log_min_pause');
$dt->sql(q{SELECT alter_resource_group('grp_a', mode => 'enforce')});

# ---------------------------------------------- it is for the server log only

fresh();
$s->query('SET client_min_messages = debug5');
my $r = $s->run($big);
unlike($r->{err}, qr/paused for/, 'the client does not see it');
$s->query('RESET client_min_messages');
fresh();
$mark = $dt->log_mark;
$s->query("/* which one */ $big");
like($dt->log_since($mark), qr/STATEMENT:  .*which one/, 'which statement it was');

# An error there is not the session's, and does no harm after a commit.
SKIP:
{
	skip 'no library that fails', 6 unless $library;

	foreach my $case ([ 'a commit', $big ], [ 'a rollback', "BEGIN; $big; ROLLBACK" ])
	{
		my ($name, $sql) = @$case;

		fresh();
		$s->query('SET log_hook.fails = on');
		$mark = $dt->log_mark;
		$r = $s->run($sql);
		is($r->{sqlstate}, undef, "the log fails after $name: no error");
		$s->query('SET log_hook.fails = off');
		is(scalar(@m = messages($mark, $pid)), 0, "the log fails after $name: no message");
	}
	fresh();
	is(scalar(@m = logged('after that', $big)), 1, 'after that: a message');
	is($s->pid, $s->query('SELECT pg_backend_pid()'), 'by the same session');
}

$_->quit foreach $s, $outsider;
$dt->finish;
