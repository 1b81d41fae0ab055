# Who only reads is not stopped before or after it, but gets no more than the limit
# in the long run: hint bits are owed as everything, and a reader that owes pauses in
# flight beyond 64 blocks and the grace; and whatever writes is no reader.  On a clock
# that stands still while statements run, to the byte and the microsecond.
#
# takes-about: 17 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use IPC::Run;
use Test::More;

my $block = 8192;
my $second = 1_000_000;
my $kb = 1000;    # KB/s, so a byte is a microsecond
my $free = 64;    # blocks

# What a new limit comes with, and what is not worth a pause, in blocks: until then
# nothing is owed, and nothing that was read counts.
my $unowed = int((new_credit($kb) + $kb * min_pause_us(1) / 1000) / $block);

# No visibility map of 19 is to be dirtied, nor the hint bits logged.
my $dt = DirtyThrottle::Clock->new('readers',
	init => [ no_data_checksums => 1 ], conf => 'dirty_throttle.transaction_grace = 0');

$dt->sql(
	q{CREATE ROLE app LOGIN;
	ALTER ROLE app SET dirty_throttle."group" = 'g';
	SELECT alter_resource_group('g')});
my $s = $dt->session(user => 'app');

# A table with so many blocks, all of them clean, of a row each that nobody has
# looked at; a minute later, so that nothing that was read before counts.
sub fresh_table
{
	my ($blocks) = @_;

	$dt->advance(61 * $second);
	$dt->sql("DROP TABLE IF EXISTS hints;
		CREATE TABLE hints (id int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off);
		GRANT ALL ON hints TO app");
	$s->query('SELECT * FROM hints');    # what the catalogs need
	$dt->sql("INSERT INTO hints SELECT i, repeat('x', 800) FROM generate_series(0, $blocks - 1) i");
	$dt->sql('CHECKPOINT');
	$dt->fresh(g => dirty => $kb);
	return;
}

# Rows or none, of so many blocks from this one on.
sub rows_of
{
	my ($from, $n) = @_;
	return sprintf q{SELECT id FROM hints WHERE ctid >= '(%d,0)' AND ctid < '(%d,0)'}, $from, $from + $n;
}

sub count_of { return rows_of(@_) =~ s/SELECT id/SELECT count(*)/r }

sub no_rows_of { return rows_of(@_) . ' AND id < 0' }

sub blocks { return ($dt->used('g', 'dirty'))[0] / $block }

sub set_grace
{
	$dt->set_conf('dirty_throttle.transaction_grace', $_[0], $s);
}

# It runs to its end in no time.
sub does_not_pause
{
	my ($sql, $name) = @_;
	my $then = $dt->now;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->send($sql);
	$dt->settle;
	ok($s->finished, "$name: it does not pause") or $dt->run;
	$s->wait;
	is($dt->now, $then, "$name: it takes no time");
}

# It pauses while it reads 12 000 blocks.
sub pauses_before_the_end
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->send('SELECT count(*) FROM hints');
	# the leader of a parallel query may only wait for its workers
	ok( poll_until(
			sub {
				$dt->sql('SELECT count(*) FROM pg_stat_activity
					WHERE ' . $s->pid . q{ IN (pid, leader_pid) AND dt_test_state(pid) = 'sleeps'})
				  || $s->finished;
			}, 180)
		  && !$s->finished,
		'it pauses');
	cmp_ok(blocks(), '<', 12_000, 'before it has read all');
	$dt->cancel_ms($s);
	$s->wait;
}

subtest 'a reader of less than 64 blocks' => sub {
	fresh_table($free - 1);
	does_not_pause('SELECT id FROM hints', 'less than 64 blocks');
	my ($used, $owed) = $dt->used('g', 'dirty');
	cmp_ok($used, '>=', ($free - 1) * $block, 'it has dirtied them');
	is($owed, $used - new_credit($kb), 'and owes them');
	does_not_pause('SELECT id FROM hints', 'then it reads on');
	does_not_pause('BEGIN; SELECT id FROM hints; COMMIT', 'also in a block');
	$s->send($MAY_WRITE);
	is($dt->run, $owed, 'what writes pays all of it');
	$dt->check_books('g', 'dirty', 'less than 64 blocks');
};

subtest 'a reader of more' => sub {
	fresh_table(300);
	$s->send('SELECT id FROM hints');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pauses');
	between(blocks(), $free, $free + $unowed, 'after 64 blocks that it owes');
	is($dt->session_row($s)->{paused_by}, 'dirty', 'for what it has dirtied');
	my $us = $dt->run;
	$s->send($MAY_WRITE);
	$us += $dt->run;
	my $all = lone_pause_us(blocks() * $block - new_credit($kb), $kb);
	between($us, $all - min_pause_us(1), $all, 'and pays for all of them that are worth a pause');
	$dt->check_books('g', 'dirty', 'more than 64 blocks');
};

subtest 'a reader below the grace' => sub {
	set_grace('1s');
	fresh_table(300);
	$s->send('SELECT id FROM hints');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pauses');
	my ($used, $owed) = $dt->used('g', 'dirty');
	between($owed, $second, $second + 2 * $block, 'when it owes as much as the grace');
	$dt->run;
	$s->wait;
	set_grace('0');
};

subtest 'a reader that comes to no row' => sub {
	fresh_table(12_000);
	pauses_before_the_end();
};

# Small ones count together, within a minute, also if none of them comes to a place
# where it could pause.
subtest 'readers in a loop' => sub {
	fresh_table(1000);
	set_grace('20d');
	does_not_pause(no_rows_of(20 * $_, 20), "the reader $_") foreach 0 .. 2;
	$s->send(no_rows_of(60, 20));
	$dt->settle;
	is($dt->state($s), 'sleeps', 'the next one pauses');
	cmp_ok(blocks(), '>=', 80, 'after it, when they have dirtied more than 64 blocks');
	$dt->run;
	$s->wait;
	set_grace('0');

	# never do they owe more
	my $most = 0;
	$dt->running(
		sub {
			foreach my $n (10 .. 99)
			{
				$s->query($n % 2 ? rows_of(10 * $n, 10) : count_of(10 * $n, 10));
				my ($used, $owed) = $dt->used('g', 'dirty');
				$most = $owed if $owed > $most;
			}
		});
	cmp_ok(blocks(), '>', 900, 'they dirty a lot');
	cmp_ok($most, '<=', ($free + 20) * $block, 'but never owe much more than 64 blocks');
	$dt->check_books('g', 'dirty', 'readers in a loop');

	# a minute later it is not the same reader
	$s->query($MAY_WRITE) while $dt->run;
	fresh_table(200);
	does_not_pause(count_of(0, 40), '40 blocks');
	$dt->advance(61 * $second);
	does_not_pause(rows_of(40, 40), '40 blocks more, a minute later');
};

# Nor if each of them uses less than what is charged in flight.
subtest 'readers of few blocks each' => sub {
	my $most = 0;

	fresh_table(1200);
	$dt->fresh(g => dirty => 12_000);
	$dt->running(
		sub {
			foreach my $n (0 .. 199)
			{
				$s->query(count_of(5 * $n, 5));
				my ($used, $owed) = $dt->used('g', 'dirty');
				$most = $owed if $owed > $most;
			}
		});
	cmp_ok(blocks(), '>', 900, 'they dirty a lot');
	cmp_ok($most, '<=', ($free + 20) * $block, 'but never owe much more than 64 blocks');
	$dt->check_books('g', 'dirty', 'readers of few blocks each');
	$s->query($MAY_WRITE) while $dt->run;
};

# The leader pauses when it has read so much, and so does each worker.
subtest 'a parallel reader' => sub {
	fresh_table(12_000);
	$dt->sql('ALTER TABLE hints SET (parallel_workers = 2)');
	$s->query('SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0;
		SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
	pauses_before_the_end();
	$s->query('RESET max_parallel_workers_per_gather');
};

# ------------------------------------------------------------------- what writes

$dt->sql(
	q{CREATE FUNCTION emit(bytes int) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE x pg_lsn;
		BEGIN
			x := pg_logical_emit_message(false, '', repeat('x', bytes));
			RETURN 1;
		END $$;
	CREATE FUNCTION emit_stable(bytes int) RETURNS int LANGUAGE plpgsql STABLE AS
		'BEGIN RETURN emit(bytes); END';
	CREATE FUNCTION emit_immutable(bytes int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN RETURN emit(bytes); END';
	CREATE VIEW emits AS SELECT emit_immutable(1000 * i) FROM generate_series(20, 20) i;
	GRANT ALL ON emits TO app});

foreach my $case (
	[ 'VOLATILE', 'SELECT emit(20000)' ],
	[ 'STABLE', 'SELECT emit_stable(20000)' ],
	[ 'IMMUTABLE, executed by the planner', 'SELECT emit_immutable(20000)' ],
	[ 'IMMUTABLE, in a view', 'SELECT * FROM emits' ],
	[ 'prepared, with custom plans and then others', 'EXECUTE p(20000)' ],
	[ 'built in', q{SELECT pg_logical_emit_message(false, '', repeat('x', 20000))} ])
{
	my ($name, $sql) = @$case;

	subtest "a function that writes, $name" => sub {
		my $s = $dt->session(user => 'app');

		$dt->fresh('g');
		$s->query('PREPARE p(int) AS SELECT emit_immutable($1)');
		$s->query($sql);
		$dt->fresh(g => wal => 100);
		foreach my $n (1 .. 10)
		{
			$s->send($n % 2 ? $sql : "BEGIN; $sql; COMMIT");
			$dt->run;
			$s->wait;
			my ($used, $owed) = $dt->used('g', 'wal');
			cmp_ok($used, '>=', 20_000 * $n, "$n: it has written");
			cmp_ok($owed, '<', 100 * 10, "$n: and has paid");
		}
		$dt->check_books('g', 'wal', $name);
		$s->quit;
	};
}

# Who connects anew for each message gets no more than the limit and one message.
subtest 'a storm of connections' => sub {
	my $message = 50_000;
	my $sql = "SELECT pg_logical_emit_message(false, '', repeat('x', $message))";
	my $connect = sub {
		my $s = $dt->session(user => 'app');

		$s->send($sql);
		$dt->settle;
		$dt->terminate_ms($s);
		poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
		return;
	};

	$s->quit;
	poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
	$dt->fresh(g => wal => 100);
	$connect->() foreach 1 .. 5;
	my ($used, $owed) = $dt->used('g', 'wal');
	between($used, $message, 1.2 * $message, 'of five at the same time one writes: bytes');
	my $then = $dt->now;
	foreach (1 .. 50)
	{
		$dt->advance(100_000);
		$connect->();
	}
	my ($now) = $dt->used('g', 'wal');
	my $seconds = ($dt->now - $then) / $second;
	cmp_ok($now - $used, '<=', 100_000 * $seconds + 1.2 * $message, 'then they get the limit, and one message');
	cmp_ok($now - $used, '>=', 100_000 * $seconds - 2 * $message, 'but that they do get');
	$dt->check_books('g', 'wal', 'a storm of connections');
};

# A dump of all kinds of objects only reads, while it has locked all tables.
subtest 'pg_dump in a suspended group' => sub {
	$dt->sql(q{CREATE ROLE dumper LOGIN SUPERUSER;
		ALTER ROLE dumper SET dirty_throttle."group" = 'g';
		CREATE TABLE dumped (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n serial, t text UNIQUE);
		INSERT INTO dumped (t) VALUES ('a');
		CREATE VIEW shown AS SELECT n FROM dumped;
		CREATE MATERIALIZED VIEW stored AS SELECT n FROM dumped;
		CREATE TABLE parts (id int) PARTITION BY RANGE (id);
		CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (9);
		CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER nothing AFTER INSERT ON dumped FOR EACH STATEMENT EXECUTE FUNCTION nothing();
		CREATE STATISTICS correlated ON id, n FROM dumped;
		CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN small AS int CHECK (VALUE < 9);
		ANALYZE dumped;
		SELECT lo_from_bytea(0, 'abc');
		DROP TABLE hints});
	$dt->sql('VACUUM');    # so that it need not set many hint bits
	$dt->fresh(g => dirty => $kb);
	$dt->sql(q{SELECT suspend_group('g')});
	foreach my $command ([ 'pg_dump', '-d', 'postgres' ], [ 'pg_dumpall' ],
		$dt->sql('SHOW server_version_num') < 180000 ? () : [ 'pg_dump', '--statistics', '-d', 'postgres' ])
	{
		my ($out, $err) = ('', '');
		my $done = eval {
			IPC::Run::run([ @$command, '-h', $dt->node->host, '-p', $dt->node->port, '-U', 'dumper' ],
				'<', \'', '>', \$out, '2>', \$err, IPC::Run::timeout($DirtyThrottle::Clock::LIMIT));
		};

		ok($done, "@$command comes to its end") or diag $@, $err;
		like($out, qr/dump complete/, "@$command: with all of it");
	}
	$dt->sql(q{SELECT resume_group('g')});
};

$dt->finish;
