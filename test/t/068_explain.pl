# EXPLAIN (ANALYZE, THROTTLE): how often and for how long the statement has
# paused, as the views count it, in each format; from release 18 on.  Before
# that the option does not exist, with the library or without.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use JSON::PP;
use Test::More;

my $dt = DirtyThrottle->new(
	'explain', conf => q{
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
my $limit = 1000;    # KB/s: 8 ms a block
my $columns = '(id int, filler text) WITH (fillfactor = 10)';
$dt->limit(grp_a => $limit);
$dt->sql("CREATE TABLE t $columns; CREATE TABLE twin $columns");
my $s = $dt->session(group => 'grp_a');

sub rows
{
	my ($n) = @_;
	return "SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

my $insert = 'INSERT INTO t ' . rows(60);

if ($dt->sql("SELECT current_setting('server_version_num')") < 180000)
{
	foreach my $options ('ANALYZE, THROTTLE', 'THROTTLE', 'THROTTLE off')
	{
		my $r = $s->run("EXPLAIN ($options) SELECT 1");
		is($r->{sqlstate}, '42601', "$options: the error");
		like($r->{err}, qr/unrecognized EXPLAIN option "throttle"/,
			"$options: what it says");
	}
	$s->quit;
	$dt->finish;
	exit;
}

# What is owed after a statement is not in the next one's way.
sub fresh
{
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $limit);
}

# Run this, in a group that owes nothing: what it prints, and the pauses and
# the time that the view has counted.
sub explained
{
	my ($options, $sql) = @_;

	fresh();
	my $before = $dt->session_row($s);
	my $r = $s->run("EXPLAIN ($options) $sql");
	my $after = $dt->session_row($s);

	die "$sql: $r->{err}" if defined $r->{sqlstate};
	return ($r->{out}, map { $after->{$_} - $before->{$_} } qw(pauses paused_time));
}

# ------------------------------------------------------------------- formats

# In a block: what follows the transaction is not counted.
$s->query('BEGIN');
my ($out, $pauses, $ms) = explained('ANALYZE, THROTTLE', $insert);
my ($shown_pauses, $shown_ms) =
  $out =~ /^Throttle: pauses=(\d+) time=(\d+\.\d{3}) ms$/m;
is($shown_pauses, $pauses, 'text: pauses, as in the view');
ok(abs(($shown_ms // 0) - $ms) < 0.002, "text: $ms ms, as in the view");
cmp_ok($shown_ms, '>', 0, 'text: ms');
my ($execution_ms) = $out =~ /^Execution Time: ([\d.]+) ms/m;
cmp_ok($execution_ms, '>', $shown_ms, 'it is a part of the execution time');
($out, $pauses, $ms) = explained('ANALYZE, THROTTLE, FORMAT json', $insert);
my $json = decode_json($out)->[0]{Throttle};
is_deeply(
	[ sort keys %$json ],
	[ 'Pause Time', 'Pauses', 'Transaction Pause Time', 'Transaction Time' ],
	'JSON: keys');
cmp_ok($json->{'Transaction Pause Time'}, '>=', $json->{'Pause Time'} + $shown_ms - 0.002,
	'JSON: the pauses of the transaction, also before this statement');
cmp_ok($json->{'Transaction Time'}, '>', $json->{'Transaction Pause Time'},
	'JSON: it was longer');
is($json->{Pauses}, $pauses, 'JSON: pauses');
ok(abs($json->{'Pause Time'} - $ms) < 0.002, 'JSON: time');
$s->query('ROLLBACK');

($out) = explained('ANALYZE, THROTTLE, FORMAT yaml', $insert);
like($out, qr/^  Throttle: *\n    Pauses: \d+ *\n    Pause Time: [\d.]+ *$/m, 'YAML');
($out) = explained('ANALYZE, THROTTLE, FORMAT xml', $insert);
like($out,
	qr!<Throttle>\s*<Pauses>\d+</Pauses>\s*<Pause-Time>[\d.]+</Pause-Time>\s*<Transaction-Time>[\d.]+</Transaction-Time>\s*<Transaction-Pause-Time>[\d.]+</Transaction-Pause-Time>\s*</Throttle>!,
	'XML');

# ------------------------------------------------------------------- options

foreach my $options ('ANALYZE', 'ANALYZE, THROTTLE off', 'THROTTLE off', '',
	'ANALYZE, THROTTLE, THROTTLE off')
{
	($out) = explained($options || 'COSTS', 'SELECT 1');
	unlike($out, qr/Throttle/, "($options): nothing of it");
}
my $r = $s->run('EXPLAIN (THROTTLE) SELECT 1');
is($r->{sqlstate}, '22023', 'without ANALYZE: the error');
like($r->{err}, qr/EXPLAIN option THROTTLE requires ANALYZE/, 'what it says');
is($s->run('EXPLAIN (ANALYZE, THROTTLE 7) SELECT 1')->{sqlstate},
	'42601', 'a value that is no boolean: the error');
like((explained('THROTTLE, ANALYZE', 'SELECT 1'))[0],
	qr/^Throttle: pauses=0 time=0\.000 ms$/m, 'who has not paused');

# ---------------------------------------------------------------- statements

# Only its own pauses, not those of earlier statements of the transaction.
fresh();
$s->query("BEGIN; $insert");
($out) = explained('ANALYZE, THROTTLE', 'SELECT 1');
like($out, qr/^Throttle: pauses=0 time=0\.000 ms$/m,
	'a statement after one that has paused');
$s->query('ROLLBACK');

# A rule makes two plans of it: each has its own.
$dt->sql('CREATE RULE doubles AS ON INSERT TO t DO ALSO
	INSERT INTO twin SELECT NEW.*');
($out, $pauses, $ms) = explained('ANALYZE, THROTTLE', $insert);
my @pauses = $out =~ /^Throttle: pauses=(\d+)/mg;
my @ms = $out =~ /^Throttle: .*time=([\d.]+)/mg;
is(scalar(@pauses), 2, 'a rule: two plans');
cmp_ok($_, '>', 0, 'a rule: each pauses') foreach @pauses;
cmp_ok($pauses[0] + $pauses[1], '<=', $pauses, 'a rule: pauses, as in the view');
cmp_ok($ms[0] + $ms[1], '<=', $ms + 0.002, 'a rule: time, as in the view');
$dt->sql('DROP RULE doubles ON t');

# Parallel workers
$dt->sql("CREATE TABLE fresh $columns; INSERT INTO fresh " . rows(100) . ';
	ALTER TABLE fresh SET (parallel_workers = 3); CHECKPOINT');
$s->query('SET max_parallel_workers_per_gather = 3;
	SET parallel_leader_participation = off; BEGIN');
($out, $pauses, $ms) =
  explained('ANALYZE, THROTTLE', 'SELECT count(*) FROM fresh');
like($out, qr/Workers Launched: [1-3]/, 'parallel: workers');
($shown_pauses, $shown_ms) =
  $out =~ /^Throttle: pauses=(\d+) time=([\d.]+) ms$/m;
is($shown_pauses, $pauses, 'parallel: pauses, as in the view');
ok(abs($shown_ms - $ms) < 0.002, "parallel: $ms ms, as in the view");
cmp_ok($shown_ms, '>', 0, 'parallel: ms');
$s->query('ROLLBACK');

# Other statements, in mode observe, and who is in no group.  Ten rows have a
# block here.
like((explained('ANALYZE, THROTTLE', 'CREATE TABLE made AS ' . rows(600)))[0],
	qr/^Throttle: pauses=[1-9]/m, 'CREATE TABLE AS');
$s->query("PREPARE p AS $insert");
like((explained('ANALYZE, THROTTLE', 'EXECUTE p'))[0],
	qr/^Throttle: pauses=[1-9]/m, 'EXECUTE');
$dt->sql(q{SELECT alter_resource_group('grp_a', mode => 'observe')});
like((explained('ANALYZE, THROTTLE', $insert))[0],
	qr/^Throttle: pauses=0 time=0\.000 ms$/m, 'mode observe');
$dt->sql(q{SELECT alter_resource_group('grp_a', mode => 'enforce')});
like($dt->sql("EXPLAIN (ANALYZE, THROTTLE) $insert"),
	qr/^Throttle: pauses=0 time=0\.000 ms$/m, 'in no group');

$s->quit;
$dt->finish;
