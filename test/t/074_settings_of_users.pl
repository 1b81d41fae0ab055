# What a user can set decides nothing: code of his own that runs within a VACUUM,
# to compute the expression of an index, sets parameters that the core's VACUUM
# obeys, and is held at its rate all the same.  A table that asks to be frozen
# early does not keep the worker of autovacuum that does so from pausing.  Code that
# sets our signal to its default, as trusted PL/Perl can, ends nobody.
#
# expect-in-log: WARNING:  (oldest xmin|cutoff for removing and freezing tuples) is far in the past
#
# takes-about: 45 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $library = compile_library('default_signals');
my $limit = 500;     # KB/s
my $seconds = 2;
my $unit = 10000;    # bytes of WAL between two checks
my $dt = DirtyThrottle->new('settings_of_users', conf => q{
autovacuum = off
autovacuum_naptime = 1s
log_min_messages = fatal
});

# On the last page that BRIN summarizes the function writes until it is canceled.
my $functions =
	q{CREATE FUNCTION writes(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
		DECLARE
			b bool;
		BEGIN
			IF i < 1000 OR current_setting('own.writes', true) IS DISTINCT FROM 'on' THEN
				RETURN i;
			END IF;
			PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), false)
				FROM regexp_split_to_table(current_setting('own.sets'), ' ') s WHERE s <> '';
			LOOP
				b := pg_logical_emit_message(false, '', repeat('x', 9900)) IS NULL;
			END LOOP;
		END $$;
	CREATE TABLE t (i int, pad text);
	CREATE INDEX ON t USING brin (writes(i)) WITH (pages_per_range = 1)};
my $burn = q{CREATE PROCEDURE burn(n int) LANGUAGE plpgsql AS $$ BEGIN
		FOR i IN 1 .. n LOOP
			PERFORM pg_current_xact_id();
			COMMIT;
		END LOOP; END $$};
$dt->sql($functions);
$dt->sql($burn);

# The WAL of the server, which is that of one session, in KB.
sub wal_kb
{
	return $dt->sql(q{SELECT round(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') / 1000)});
}

my @settings = (
	'', 'vacuum_cost_delay=1', 'vacuum_cost_delay=0', 'vacuum_failsafe_age=0',
	'vacuum_failsafe_age=0 vacuum_multixact_failsafe_age=0 vacuum_cost_delay=1',
	'vacuum_cost_delay=1 vacuum_cost_limit=1 vacuum_cost_page_hit=0',
	'client_connection_check_interval=1',
	'idle_in_transaction_session_timeout=1 lock_timeout=1',
	'application_name=x default_transaction_read_only=on');
foreach my $n (0 .. $#settings)
{
	my ($sets, $group) = ($settings[$n], "grp$n");
	my $name = $sets eq '' ? 'nothing' : $sets;

	$dt->limit($group => 0);
	my $s = $dt->session(group => $group);

	$dt->sql(q{TRUNCATE t; INSERT INTO t SELECT g, repeat('x', 1500) FROM generate_series(1, 1000) g});
	$s->query("SET vacuum_cost_delay = 0; SET own.writes = on; SET own.sets = '$sets'");
	$dt->sql(qq{SELECT set_group_wal_limit('$group', $limit)});
	$s->send('VACUUM t');
	# in the function, and noticed: what it writes before that is as much as the
	# kernel lets it until it looks at the timers of CPU time
	ok( poll_until(
			sub {
				my $row = $dt->session_row($s);
				return $s->finished || ($row->{wal_bytes} > 100_000 && defined $row->{paused_since});
			}),
		"within VACUUM it sets $name: it pauses, and is charged");
	diag $s->wait(1)->{err} if $s->finished;
	my $start = time;
	my $before = wal_kb();
	sleep $seconds;
	my $kb = wal_kb() - $before;
	my $ms = 1000 * (time - $start);
	my $granted = granted(kb => $limit, charge => $unit) / 1000;

	cmp_ok($kb, '<=', $limit * $ms / 1000 + $granted, sprintf '%s: KB of WAL in %.0f ms', $name, $ms);
	$dt->cancel_ms($s);
	$s->quit;
}

# ---------------------------------------------------------------- signals

SKIP:
{
	skip 'no library can be compiled here', 3 unless $library;
	$dt->sql("CREATE FUNCTION default_signals() RETURNS int LANGUAGE c AS '$library'");
	$dt->sql(qq{SELECT set_group_wal_limit('signals', $limit)});
	my $s = $dt->session(group => 'signals');

	$s->query('SET dirty_throttle.max_commit_pause = 0');
	$s->query(q{DO $$
		DECLARE
			b bool;
			n text := set_config('own.signals', default_signals()::text, false);
			t timestamptz := clock_timestamp() + interval '1 s';
		BEGIN
			WHILE clock_timestamp() < t LOOP
				b := pg_logical_emit_message(false, '', repeat('x', 9900)) IS NULL;
			END LOOP;
		END $$});
	cmp_ok($s->query('SHOW own.signals'), '>', 0,
		'it sets the signals of the timers to their defaults, and nobody is ended by that');
	cmp_ok($dt->session_row($s)->{wal_debt}, '>', 0, 'what it has written meanwhile is owed');
	$s->send('CREATE TABLE not_for_free (i int)');
	ok($dt->wait_paused($s, undef, 180), 'and paid');
	$dt->sql(q{SELECT set_group_wal_limit('signals', 0)});
	$s->wait;
	$s->quit;
}

# ------------------------------------------------------------- autovacuum

# The table wants to be frozen after 100000 transactions, the server after 200
# million.
$dt->sql(q{DROP TABLE t;
	CREATE TABLE early (id int, filler text) WITH (fillfactor = 10, autovacuum_enabled = off);
	INSERT INTO early SELECT i, repeat('x', 800) FROM generate_series(1, 4000) i;
	DELETE FROM early WHERE id % 2 = 0;
	ALTER TABLE early SET (autovacuum_freeze_max_age = 100000);
	CALL burn(101000);
	SELECT set_group_dirty_limit('grp', 20);
	CHECKPOINT});
$dt->set_conf('dirty_throttle.autovacuum_group', 'grp');
$dt->set_conf('autovacuum', 'on');
ok( poll_until(
		sub {
			$dt->sql(q{SELECT count(*) FROM dirty_throttle_sessions() s JOIN pg_stat_activity a USING (pid)
				WHERE query LIKE '%early (to prevent wraparound)' AND paused_since IS NOT NULL
					AND xact_start IS NOT NULL}) > 0;
		}),
	'autovacuum pauses, although the table wants to be frozen');
$dt->limit(grp => 0);
$dt->stop;

# --------------------------------------------------- close to a wraparound

# There is a transaction that nothing can be frozen beyond.  A VACUUM of a member
# does not pause, but it is charged while it runs, and pays afterwards.  The server
# vacuums the table as well, again and again, and summarizes its last page before
# the member does, or not.
$dt = DirtyThrottle->new('old', conf => q{
autovacuum = off
autovacuum_freeze_max_age = 100000
});
$dt->sql($functions);
my $holder = $dt->session;
$holder->query('BEGIN; SELECT pg_current_xact_id()');
$dt->sql($burn);
$dt->sql('CALL burn(105500)');
$dt->sql(q{INSERT INTO t SELECT g, repeat('x', 1500) FROM generate_series(1, 1000) g;
	CREATE TABLE empty()});
$dt->limit(grp => 0);
my $s = $dt->session(group => 'grp');
# with checksums, the first to read a catalog writes the hints that it sets
$s->query('VACUUM empty');
$s->query(q{SET own.writes = on; SET own.sets = ''});

my ($paused, $row);

sub vacuum
{
	# it owes nothing for the one before
	$dt->sql("SELECT set_group_wal_limit('grp', $_)") foreach 0, 500;
	$dt->sql(q{SELECT brin_desummarize_range('t_writes_idx', 199)});
	$paused = $dt->session_row($s)->{paused_time};
	$s->send('VACUUM t');
	return;
}

vacuum();
ok( poll_until(
		sub {
			if ($s->finished)
			{
				$s->wait;
				vacuum();
			}
			$row = $dt->session_row($s);
			return $row->{wal_bytes} > 20_000_000;
		}),
	'close to a wraparound a VACUUM is charged while it runs');
cmp_ok($row->{paused_time}, '==', $paused, 'and does not pause');
cmp_ok($dt->group_row('grp')->{wal_debt}, '>', 10_000, 'it owes that');
$dt->cancel_ms($s);
$s->send('CREATE TABLE after_that (i int)');
ok($dt->wait_paused($s, undef, 180), 'and pays before its next transaction');
$dt->sql(q{SELECT set_group_wal_limit('grp', 0)});
$s->wait;
$holder->quit;
$dt->finish;
