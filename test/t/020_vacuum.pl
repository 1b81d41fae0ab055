# VACUUM and ANALYZE of a member: paced while they run, at the group's rate or
# slower when the user's own settings say so; everything else about them is as
# without a group.
#
# expect-in-log: WARNING:  resource group "grp_a" does not exist
# takes-about: 26 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 20000;    # KB/s
my $blocks = 2500;    # about a second's worth

my $dt = DirtyThrottle->new('vacuum', conf => 'max_worker_processes = 16
max_parallel_maintenance_workers = 4
min_parallel_index_scan_size = 0');
$dt->limit(grp_a => $limit);
my $s = $dt->session(group => 'grp_a');
my $outsider = $dt->session;

# A table with a row a page, of which every other is dead; no page is dirty.
sub create_dead_rows
{
	my ($name, $n, @index_columns) = @_;

	$dt->sql("DROP TABLE IF EXISTS $name;
		CREATE TABLE $name (id int, filler text) WITH (fillfactor = 10);
		INSERT INTO $name
			SELECT i, repeat('x', 800) FROM generate_series(1, $n) i");
	$dt->sql("CREATE INDEX ON $name ($_)") foreach @index_columns;
	$dt->sql("DELETE FROM $name WHERE id % 2 = 0");
	$dt->sql('CHECKPOINT');
}

sub create_fresh_rows
{
	my ($name, $n) = @_;

	$dt->sql("DROP TABLE IF EXISTS $name;
		CREATE TABLE $name (id int, filler text) WITH (fillfactor = 10);
		INSERT INTO $name
			SELECT i, repeat('x', 800) FROM generate_series(1, $n) i;
		CHECKPOINT");
}

# A new limit starts without the credit that an idle group has.
sub set_limit
{
	my ($kb) = @_;

	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $kb);
}

my $show_settings = q{SELECT string_agg(name || '=' || setting || ' ' || source,
		', ' ORDER BY name)
	FROM pg_settings WHERE name LIKE 'vacuum_cost%'};
my $settings = $s->query($show_settings);

# Prepare, and measure the command: it has dirtied so many blocks, and took the
# time that they must take; in one of three times, for the machine may be busy.
sub check_rate
{
	my ($name, $prepare, $sql, $expected, $most) = @_;
	$expected //= $blocks;
	my ($r, $percent);

	foreach (1 .. 3)
	{
		$prepare->();
		set_limit($limit);
		$r = $dt->measure($s, $sql);
		$percent = 100 * $r->{kb_per_s} / $limit;
		last if $percent >= 85 && $percent <= 105 || $percent > 115;
		note "$name: $percent % of the limit";
	}
	between($r->{blocks}, $expected, $most // 1.3 * $expected,
		"$name: blocks");
	between($percent, 85, 105, "$name: % of the limit");
	is($s->query($show_settings), $settings, "$name: settings as before");
}

# ------------------------------------------------------------------ the rate

check_rate('VACUUM',
	sub { create_dead_rows('t', $blocks) },
	'VACUUM t');

check_rate('VACUUM, three indexes',
	sub { create_dead_rows('t', $blocks, 'id', '(id + 1)', '(id % 7)') },
	'VACUUM t');

check_rate('VACUUM (PARALLEL 4)',
	sub { create_dead_rows('t', $blocks, 'id', '(id + 1)', '(id % 7)') },
	'VACUUM (PARALLEL 4) t');

check_rate('VACUUM (FREEZE, ANALYZE)',
	sub { create_dead_rows('t', $blocks, 'id') },
	'VACUUM (FREEZE, ANALYZE) t');

check_rate('ANALYZE',
	sub { create_fresh_rows('t', $blocks) },
	'ANALYZE t');

check_rate('ANALYZE in a DO block',
	sub { create_fresh_rows('t', $blocks) },
	'DO $$ BEGIN ANALYZE t; EXCEPTION WHEN OTHERS THEN END $$');

check_rate('VACUUM of four tables',
	sub { create_dead_rows("t$_", $blocks / 4, 'id') foreach 1 .. 4 },
	'VACUUM t1, t2, t3, t4');

# The catalogs of a new database have something to clean as well.  A VACUUM of
# it looks at many tables in which there is nothing to do, which takes its time,
# too: as long as a second one, without a limit.
$dt->sql('CREATE DATABASE whole');
{
	my $kb_per_s = $limit / 2;
	my $owner = $dt->session(dbname => 'whole');
	my $member = $dt->session(dbname => 'whole', group => 'grp_a');
	my ($r, $percent, $most);

	foreach (1 .. 3)
	{
		$owner->query("DROP TABLE IF EXISTS w$_;
			CREATE TABLE w$_ (id int, filler text) WITH (fillfactor = 10);
			INSERT INTO w$_
				SELECT i, repeat('x', 800) FROM generate_series(1, 300) i;
			DELETE FROM w$_ WHERE id % 2 = 0") foreach 1 .. 4;
		$dt->sql('CHECKPOINT');
		set_limit($kb_per_s);
		$r = $dt->measure($member, 'VACUUM');

		my $looks_ms = elapsed_ms(sub { $owner->query('VACUUM') });
		my $ideal_ms = $r->{blocks} * $dt->block_kb / $kb_per_s * 1000;
		$percent = 100 * $kb_per_s / $r->{kb_per_s};
		$most = 125 + 100 * $looks_ms / $ideal_ms;
		last if $percent <= $most;
		note "VACUUM of a database: $percent % of the time at the limit";
	}
	between($r->{blocks}, $blocks * 0.475, $blocks * 1.1,
		'VACUUM of a database: blocks');
	between($percent, 95, $most,
		'VACUUM of a database: % of the time at the limit');
	$_->quit foreach $owner, $member;
}

# A table that is vacuumed for the second time: nothing to do, no time.
set_limit($limit);
$s->query('VACUUM t1');
between(elapsed_ms(sub { $s->query('VACUUM t1') }),
	0, 300, 'a VACUUM with nothing to do: ms');

# What it does is what it does without a group.
is($dt->sql('SELECT count(*) FROM t1'), 313, 'rows left');
is( $dt->sql(
		"SELECT relallvisible FROM pg_class WHERE relname = 't1'"),
	$dt->sql("SELECT pg_relation_size('t1') / current_setting('block_size')::int"),
	'all pages are all-visible');

# VACUUM FULL is paced while it runs, too, unless somebody waits for it.
create_dead_rows('t', 2 * $blocks);
set_limit($limit);
my $before = $dt->session_row($s)->{blocks_dirtied};
my $start = time;
$s->send('VACUUM FULL t');
ok($dt->wait_paused($s, 'in flight'), 'VACUUM FULL pauses while it runs');
between(elapsed_ms(sub { $outsider->query('BEGIN; LOCK t; COMMIT') }),
	50, 600, 'and not while somebody waits for it: ms');
ok($dt->wait_paused($s), 'then it pays');
$s->wait;
my $full_blocks = $dt->session_row($s)->{blocks_dirtied} - $before;
between($full_blocks, $blocks, 2 * $blocks, 'VACUUM FULL: blocks');
between(100 * $full_blocks * $dt->block_kb / (time - $start) / $limit,
	85, 105, 'VACUUM FULL: % of the limit');

# ------------------------------------------------------ the user's own delay

# Milliseconds of a VACUUM by each session with this delay, at the same time.
sub vacuum_ms
{
	my ($delay, $cost_limit, @sessions) = @_;
	my @ms;

	create_dead_rows("own$_", $blocks) foreach 0 .. $#sessions;
	set_limit($limit);
	$_->query("SET vacuum_cost_delay = '$delay';
		SET vacuum_cost_limit = $cost_limit") foreach @sessions;
	$sessions[$_]->send("VACUUM own$_") foreach 0 .. $#sessions;
	foreach my $session (@sessions)
	{
		my $r = $session->wait;

		is($r->{sqlstate}, undef, 'a VACUUM with a delay: no error');
		push @ms, $r->{ms};
		is($session->query('SHOW vacuum_cost_delay'),
			$delay, 'vacuum_cost_delay as before');
		is($session->query('SHOW vacuum_cost_limit'),
			$cost_limit, 'vacuum_cost_limit as before');
		$session->query('RESET vacuum_cost_delay; RESET vacuum_cost_limit');
	}
	return @ms;
}

my $group_ms = $blocks * $dt->block_kb / $limit * 1000;
foreach my $case ([ 'slower', '10ms', 250 ], [ 'faster', '2ms', 1000 ])
{
	my ($name, @delay) = @$case;
	my ($own_ms, $both_ms, $slower_ms);

	# one may find the machine busier than the other
	foreach (1 .. 3)
	{
		($own_ms, $both_ms) = vacuum_ms(@delay, $outsider, $s);
		$slower_ms = $own_ms > $group_ms ? $own_ms : $group_ms;
		diag(sprintf 'own %.0f ms, group %.0f ms, both %.0f ms',
			$own_ms, $group_ms, $both_ms);
		last
		  if $both_ms >= 0.92 * $slower_ms && $both_ms <= 1.25 * $slower_ms;
	}
	is($own_ms > $group_ms, $name eq 'slower',
		"a vacuum_cost_delay that is $name than the group's rate");
	between(100 * $both_ms / $slower_ms, 92, 125,
		"it and the group's rate: % of the slower one's time");
}

# ------------------------------------------------- limits that change, leaving

# A VACUUM that would take so many seconds is under way.
sub start_vacuum
{
	my ($seconds) = @_;

	create_dead_rows('t', 2 * $blocks);
	set_limit(2 * $blocks * $dt->block_kb / $seconds);
	$s->send('VACUUM t');
	sleep 0.3;
	ok(!$s->finished, "a VACUUM of $seconds s is under way");
}

# It ends within a second, in the way given.
sub check_end
{
	my ($name, $sqlstate) = @_;
	my $result;
	my $ms = elapsed_ms(sub { $result = $s->wait });

	between($ms, 0, 1000, "$name: ms until VACUUM ends");
	is($result->{sqlstate}, $sqlstate, "$name: how it ends");
	$dt->limit(grp_a => 0);
	is($s->query($show_settings), $settings, "$name: settings as before");
}

start_vacuum(30);
$dt->limit(grp_a => 200000);
check_end('the limit is raised', undef);

start_vacuum(30);
$dt->limit(grp_a => 0);
check_end('the limit is removed', undef);

start_vacuum(30);
$dt->set_conf('dirty_throttle.enabled', 'off');
check_end('throttling is switched off', undef);
$dt->sql('ALTER SYSTEM RESET dirty_throttle.enabled');
$dt->sql('SELECT pg_reload_conf()');
my $enabled = $ENV{DT_TEST_DISABLED} ? 'off' : 'on';
poll_until(sub { $s->query('SHOW dirty_throttle.enabled') eq $enabled });

start_vacuum(3);
sleep 0.5;    # what it has begun with is paid
my $lowered_at = time;
$dt->limit(grp_a => 4000);
$before = $dt->session_row($s)->{blocks_dirtied};
sleep 1;
my $after = $dt->session_row($s)->{blocks_dirtied};
between(
	100 * ($after - $before) * $dt->block_kb / (time - $lowered_at) / 4000,
	50, 130,
	'the limit is lowered: % of the new one');
$dt->limit(grp_a => 200000);
check_end('and raised again', undef);

start_vacuum(30);
between($dt->cancel_ms($s), 0, 150, 'a cancelled VACUUM: ms');
$dt->limit(grp_a => 0);
is($s->query($show_settings), $settings, 'cancelled: settings as before');

$s->query('SET statement_timeout = 300');
create_dead_rows('t', $blocks);
set_limit(500);
my $result = $s->run('VACUUM t');
is($result->{sqlstate}, '57014', 'statement_timeout of a VACUUM');
between($result->{ms}, 250, 500, 'statement_timeout of a VACUUM: ms');
$dt->limit(grp_a => 0);
$s->query('RESET statement_timeout');
is($s->query($show_settings), $settings, 'statement_timeout: settings as before');

# settings of the user's own that are not the defaults come back, too
$s->query("SET vacuum_cost_$_") foreach 'delay = 0.5', 'limit = 5000',
  'page_hit = 3', 'page_miss = 4', 'page_dirty = 5';
my $default_settings = $settings;
$settings = $s->query($show_settings);
isnt($settings, $default_settings, 'other settings');

start_vacuum(30);
$dt->sql("SELECT drop_resource_group('grp_a', force => true)");
$result = undef;
between(elapsed_ms(sub { $result = $s->wait }),
	0, 1000, 'its group is dropped: ms until VACUUM ends');
is($result->{sqlstate}, undef, 'its group is dropped: how it ends');
is($s->query($show_settings), $settings,
	'its group is dropped: settings as before');
$dt->limit(grp_a => 0);
$s->query(q{SET dirty_throttle."group" = 'grp_a'});

# ------------------------------------------------------------------- errors

# An ANALYZE that fails half way, in a subtransaction and alone; one that
# another one calls, which is an error, too, in itself and when it is caught.
$dt->sql(
	q{CREATE TABLE bad (id int);
	CREATE FUNCTION fails_at_50(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql
		AS $$ BEGIN
			IF id = 50 AND current_setting('application_name') = 'fail' THEN
				RAISE EXCEPTION 'fifty';
			END IF;
			RETURN id;
		END $$;
	CREATE INDEX ON bad (fails_at_50(id));
	INSERT INTO bad SELECT generate_series(1, 100);
	CREATE FUNCTION analyze_t1() RETURNS void VOLATILE LANGUAGE plpgsql
		AS $$ BEGIN ANALYZE public.t1; END $$;
	CREATE FUNCTION analyzes(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql
		AS $$ BEGIN
			IF id = 50 AND current_setting('application_name') = 'nested' THEN
				PERFORM public.analyze_t1();
			ELSIF id = 50 AND current_setting('application_name') = 'caught' THEN
				BEGIN
					PERFORM public.analyze_t1();
				EXCEPTION WHEN OTHERS THEN
				END;
			END IF;
			RETURN id;
		END $$;
	CREATE TABLE nested (id int);
	CREATE INDEX ON nested (analyzes(id));
	INSERT INTO nested SELECT generate_series(1, 100)});

set_limit($limit);
$s->query("SET application_name = 'fail'");
is($s->run('ANALYZE bad')->{sqlstate}, 'P0001', 'an ANALYZE that fails');
is($s->query($show_settings), $settings, 'settings as before');
$s->query('DO $$ BEGIN
	BEGIN ANALYZE bad; EXCEPTION WHEN raise_exception THEN END;
	ANALYZE t1; END $$');
is($s->query($show_settings), $settings,
	'an ANALYZE that fails in a subtransaction: settings as before');
$s->run("BEGIN;\nSAVEPOINT a;\nANALYZE bad;\nROLLBACK TO a;\nANALYZE t1;\nCOMMIT");
is($s->query($show_settings), $settings,
	'and one behind a savepoint: settings as before');
$s->run("BEGIN;\nSET LOCAL vacuum_cost_delay = 1;\nANALYZE bad;\nROLLBACK");
is($s->query($show_settings), $settings,
	'and one after SET LOCAL: settings as before');
foreach my $how ('nested', 'caught')
{
	$s->query("SET application_name = '$how'");
	is($s->run('ANALYZE nested')->{sqlstate},
		$how eq 'nested' ? '0A000' : undef,
		"an ANALYZE in an ANALYZE ($how)");
	is($s->query($show_settings), $settings, "$how: settings as before");
}
$s->query('RESET application_name');
is($s->run('VACUUM nosuchtable')->{sqlstate}, '42P01', 'no such table');
is($s->run("BEGIN;\nVACUUM t1;\nROLLBACK")->{sqlstate},
	'25001', 'VACUUM in a transaction block');
is($s->query($show_settings), $settings, 'settings as before');
$s->query('RESET ALL');
$s->query(q{SET dirty_throttle."group" = 'grp_a'});
$settings = $default_settings;

# after all that it is paced still
check_rate('VACUUM after all that',
	sub { create_dead_rows('t', $blocks) },
	'VACUUM t');

# -------------------------------------------------------------------- locks

# An ALTER TABLE waits for a VACUUM for max_blocking_time, and then for as long
# as that takes without pauses.
create_dead_rows('t', $blocks);
set_limit($limit);
$s->send('VACUUM t');
sleep 0.1;
ok(!$s->finished, 'a VACUUM runs');
my $alter_ms = elapsed_ms(sub { $outsider->query('ALTER TABLE t ADD x int') });
my $rest_ms = elapsed_ms(sub { $s->wait });
between($alter_ms, 50, $group_ms * 0.5,
	'an ALTER TABLE that waits for it: ms');
diag(sprintf 'ALTER TABLE %.0f ms, VACUUM %.0f ms longer', $alter_ms, $rest_ms);

# VACUUM of two tables: the first one's lock does not last longer than it.
create_dead_rows("t$_", $blocks / 2) foreach 1, 2;
set_limit($limit);
$s->send('VACUUM t1, t2');
sleep 0.1;
$alter_ms = elapsed_ms(sub { $outsider->query('ALTER TABLE t1 ADD x int') });
ok(!$s->finished, 'an ALTER TABLE of its first table does not wait for all');
between($alter_ms, 50, $group_ms * 0.4, 'it waits: ms');
$s->wait;

# Two members' VACUUMs share the rate.
create_dead_rows("t$_", $blocks / 2) foreach 1, 2;
my $s2 = $dt->session(group => 'grp_a');
set_limit($limit);
$before = $dt->group_row('grp_a')->{blocks_dirtied};
my $both_ms = elapsed_ms(
	sub {
		$s->send('VACUUM t1');
		$s2->send('VACUUM t2');
		$_->wait foreach $s, $s2;
	});
my $both_blocks = $dt->group_row('grp_a')->{blocks_dirtied} - $before;
between(100 * $both_blocks * $dt->block_kb / $limit * 1000 / $both_ms,
	85, 105, 'VACUUMs of two members: % of the limit');

$dt->finish;
