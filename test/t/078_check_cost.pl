# What a pause at a check for interrupts costs: next to nothing, whatever the
# length of the SQL text, the depth of calls and the number of memory contexts.
# The core collects all of these where it serves our request.
#
# The CPU time of a process is compared with the time that it has paused: that
# also bounds for how long it holds interrupts.
#
# takes-about: 50 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'needs /proc' unless -r '/proc/self/stat';

my $dt = DirtyThrottle::Life->new('check_cost', conf => q{
autovacuum = off
max_stack_depth = 2MB
});
my $outsider = $dt->session;

$dt->limit(cost => 0);
$dt->sql(
	q{CREATE TABLE t AS SELECT i AS id, repeat('x', 800) AS filler
		FROM generate_series(1, 20000) i;
	-- writes without a row, n calls deep
	CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			IF n > 1 THEN
				RETURN deep(n - 1);
			END IF;
			LOOP
				n := length(pg_logical_emit_message(false, '', repeat('x', 1000))::text);
			END LOOP;
		END $$});

# Run this, at a limit at which nearly all of its time is a pause.
sub check_cost
{
	my ($name, $sql, %opt) = @_;
	my $s = $dt->session(group => 'cost');
	my $pid = $s->pid;
	my ($row, $paused, $cpu, $r);

	# not for what others have left
	$dt->sql("SELECT set_group_dirty_limit('cost', $_), set_group_wal_limit('cost', $_)")
	  foreach 0, 200;
	$s->query($_) foreach @{ $opt{before} // [] };
	$s->send($sql);
	unless (ok($dt->wait_paused($s, 'in flight', 180), "$name: it pauses"))
	{
		diag $s->wait(1)->{err} if $s->finished;
		$s->quit;
		return;
	}
	$cpu = cpu_s($pid);
	$paused = $dt->session_row($s)->{paused_time};
	ok( poll_until(
			sub {
				$row = $dt->session_row($s);
				$row->{paused_time} >= $paused + 2000;
			}, 180),
		"$name: again and again");
	$cpu = 100 * 1000 * (cpu_s($pid) - $cpu) / ($row->{paused_time} - $paused);
	note sprintf '%s: %.1f %% of a processor', $name, $cpu;
	cmp_ok($cpu, '<', 10, "$name: CPU time, % of the pauses");

	$dt->sql("SELECT pg_cancel_backend($pid)");
	$r = $s->wait(180);
	is($r->{sqlstate}, '57014', "$name: it can be canceled");
	is($s->query('SELECT 1'), 1, "$name: and goes on");
	$s->quit;
}

check_cost('a command in the text', 'ALTER TABLE t ALTER id TYPE bigint');
check_cost("EXECUTE of 5 MB",
	"DO \$\$ BEGIN
		EXECUTE 'ALTER TABLE t ALTER id TYPE bigint --' || repeat('x', 5000000);
	END \$\$");
check_cost("a query in 5 MB",
	"DO \$do\$ BEGIN
		EXECUTE 'SELECT count(pg_logical_emit_message(false, \$\$\$\$, md5(i::text)))
			FROM generate_series(1, 10000000) i --' || repeat('x', 5000000);
	END \$do\$");
check_cost('500 calls deep', 'SELECT deep(500)');
check_cost('1000 calls deep', 'SELECT deep(1000)', before => [q{SET max_stack_depth = '6MB'}]);
my $plans = "SET dirty_throttle.\"group\" = ''; DO \$\$ BEGIN FOR i IN 1 .. 10000 LOOP
		EXECUTE format('PREPARE p%s AS SELECT 1', i);
	END LOOP; END \$\$; SET dirty_throttle.\"group\" = 'cost'";
check_cost('10000 cached plans', 'ALTER TABLE t ALTER id TYPE bigint', before => [$plans]);
# the core walks through all of them
check_cost('10000 cached plans, no messages', 'ALTER TABLE t ALTER id TYPE bigint',
	before => [ $plans, 'SET log_min_messages = fatal' ]);

$dt->finish;
