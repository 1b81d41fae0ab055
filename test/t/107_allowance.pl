# The allowance of a group: the first bytes of each transaction are counted and
# not owed, to the byte, on a clock that stands still while statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use Test::More;

my $kb = 1000;         # KB/s, so a byte is a microsecond
my $credit = new_credit($kb);
my $allowance = 400_000;
my $dt = DirtyThrottle::Clock->new('allowance', conf => q{
max_worker_processes = 16
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});

$dt->limit($_ => 0) foreach 'g', 'h';
$dt->sql('CREATE TABLE t (id int, filler text) WITH (fillfactor = 10, parallel_workers = 2)');
my $s = $dt->session(group => 'g');

sub rows
{
	my ($n) = @_;
	return "INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

sub allow
{
	my ($amount, $group) = @_;
	$dt->sql("SELECT alter_resource_group('" . ($group // 'g') . "', allowance => '$amount')");
}

# A statement of the member, with a fresh limit: for how long it pauses, in us,
# and what was used.
sub paused
{
	my ($sql, %limit) = @_;

	%limit = (dirty => $kb) unless %limit;
	$dt->fresh(g => %limit);
	$s->send($sql);
	my $us = $dt->run;
	is($s->wait->{sqlstate}, undef, 'without an error');
	my ($used) = $dt->used('g', (sort keys %limit)[0]);
	return ($us, $used);
}

my ($us, $used) = paused(rows(30));
is($us, lone_pause_us($used - $credit, $kb), 'no allowance: all is owed');

allow('400 kB');
is($dt->group_row('g')->{allowance}, 400, 'the view has it in KB');
($us, $used) = paused(rows(30));
cmp_ok($used, '>', 200_000, 'a small transaction: it has used something');
is($us, 0, 'and does not pause');
is($dt->group_row('g')->{dirty_debt}, 0, 'nor owe anything');

($us, $used) = paused(rows(100));
cmp_ok($used, '>', $allowance + 300_000, 'a larger one uses more');
is($us, lone_pause_us($used - $allowance - $credit, $kb), 'and pays for that');

foreach my $case (
	[ 'a block', 'BEGIN; %s; %s; COMMIT' ],
	[ 'a subtransaction', 'BEGIN; %s; SAVEPOINT a; %s; ROLLBACK TO a; COMMIT' ],
	[ 'a function', q{DO $$ BEGIN %s; BEGIN %s; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; END $$} ])
{
	my ($name, $form) = @$case;

	($us, $used) = paused(sprintf $form, rows(40), rows(40));
	cmp_ok($used, '>', $allowance, "$name: more than the allowance");
	is($us, lone_pause_us($used - $allowance - $credit, $kb), "$name: has one allowance");
}

($us, $used) = paused('DO $$ BEGIN FOR k IN 1 .. 5 LOOP ' . rows(30) . '; COMMIT; END LOOP; END $$');
cmp_ok($used, '>', 1_000_000, 'five transactions use more than the allowance together');
is($us, 0, 'and each of them has its own');

# also if the end of a transaction has nothing to charge, not even a commit record
$dt->sql("CREATE TABLE hints AS SELECT * FROM t LIMIT 0; ALTER TABLE hints SET (fillfactor = 10)");
$dt->sql("INSERT INTO hints SELECT i, repeat('x', 800) FROM generate_series(1, 40) i");
$dt->sql('CHECKPOINT');
$dt->fresh(g => dirty => $kb);
$s->query('BEGIN');
$s->query('SELECT count(*) FROM hints');
$dt->limit(g => $kb + 1);
$s->query('SELECT 1');
$s->query('COMMIT');
# (and, from 19 on, the pages of the visibility map)
cmp_ok($dt->group_row('g')->{blocks_dirtied}, '>=', 40, 'hint bits were set, and charged');
$s->send(rows(30));
is($dt->run, 0, 'a transaction that was charged before its end leaves nothing to the next one');
$s->wait;

# the debt of a transaction that was rolled back is paid before the next one,
# whose allowance does not help
($us, $used) = paused('BEGIN; ' . rows(100) . '; ROLLBACK');
is($us, 0, 'a rollback is not delayed');
$s->send($MAY_WRITE);
is($dt->run, lone_pause_us($used - $allowance - $credit, $kb), 'but owes as much');
$s->wait;

subtest 'of each resource' => sub {
	$dt->sql(q{SELECT alter_resource_group('g', allowance => 100)});
	my ($us, $used) = paused(rows(300), wal => 100);
	cmp_ok($used, '>', 200_000, 'WAL: more than the allowance');
	is($us, lone_pause_us($used - 100_000 - new_credit(100), 100), 'WAL: the rest is owed');

	($us, $used) = paused(rows(300), dirty => 1000, wal => 16_777_216);
	is($us, lone_pause_us($used - 100_000 - $credit, $kb), 'with both limits, dirtying has its own');
	allow('400 kB');
};

subtest 'parallel workers share it with their leader' => sub {
	$dt->sql('TRUNCATE t; ' . rows(300) . '; CHECKPOINT');
	my ($us, $used) = paused("BEGIN; $MAY_WRITE; SELECT sum(length(filler)) FROM t; COMMIT");
	cmp_ok($used, '>', $allowance + 1_000_000, 'hint bits dirty the table');
	ok(abs($us - ($used - $allowance - $credit)) <= 10, "one allowance: $us us for $used bytes");
	$dt->sql('TRUNCATE t');
};

subtest 'in mode observe' => sub {
	$dt->sql(q{SELECT alter_resource_group('g', mode => 'observe')});
	my ($us, $used) = paused(rows(30));
	is($us, 0, 'nobody pauses');
	is($dt->group_row('g')->{observed_pauses}, 0, 'nor would have, within the allowance');
	($us, $used) = paused(rows(100));
	is(sprintf('%.0f', 1000 * $dt->group_row('g')->{observed_pause_time}),
		int($used - $allowance - $credit) + 1, 'and beyond it for the rest');
	$dt->sql(q{SELECT alter_resource_group('g', mode => 'enforce')});
};

subtest 'a transaction that changes its group has one allowance' => sub {
	allow('400 kB', 'h');
	$dt->fresh(g => dirty => $kb);
	$dt->fresh(h => dirty => $kb);
	$s->query('BEGIN');
	$s->query(rows(40));
	$s->query(q{SET dirty_throttle."group" = 'h'});
	$s->query(rows(40));
	my ($g) = $dt->used('g', 'dirty');
	$s->send('COMMIT');
	my $us = $dt->run;
	my ($h) = $dt->used('h', 'dirty');
	cmp_ok($g, '<', $allowance, 'the first group was not owed anything');
	is($us, lone_pause_us($g + $h - $allowance - $credit, $kb), 'the second all beyond it');
	$s->wait;
	$s->query(q{SET dirty_throttle."group" = 'g'});
};

subtest 'it changes while a transaction runs' => sub {
	allow(0);
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN');
	$s->query(rows(100));
	allow('10 MB');
	$s->query(rows(100));
	$s->send('COMMIT');
	my $us = $dt->run;
	my ($used) = $dt->used('g', 'dirty');
	$s->wait;
	cmp_ok($us, '>=', $used / 3, 'raised: what was owed is paid');
	cmp_ok($us, '<=', 2 * $used / 3, 'raised: what comes after it is allowed');
	($us, $used) = paused(rows(100));
	is($us, 0, 'and so is the next transaction');
};

done_testing();
