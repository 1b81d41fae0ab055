# VACUUM and ANALYZE of a member: paced while they run, at the group's rate and
# not faster than the user's own settings say; everything else about them is as
# without a group.
#
# expect-in-log: WARNING:  resource group "grp_a" does not exist
#
# takes-about: 15 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 20000;    # KB/s
my $blocks = 800;     # a third of a second's worth

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

# Prepare, and run the command: it dirties so many blocks, and pays for them.
sub check_rate
{
	my ($name, $prepare, $sql) = @_;

	$prepare->();
	my $r = $dt->check_limit($name, 'grp_a', sub { $s->query($sql) },
		limit => $limit);
	between($r->{blocks}, $blocks, 1.5 * $blocks, "$name: blocks");
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

# The catalogs of a new database have something to clean as well.
$dt->sql('CREATE DATABASE whole');
{
	my $owner = $dt->session(dbname => 'whole');
	my $member = $dt->session(dbname => 'whole', group => 'grp_a');

	$owner->query("CREATE TABLE w$_ (id int, filler text) WITH (fillfactor = 10);
		INSERT INTO w$_
			SELECT i, repeat('x', 800) FROM generate_series(1, $blocks / 4) i;
		DELETE FROM w$_ WHERE id % 2 = 0") foreach 1 .. 4;
	$dt->sql('CHECKPOINT');
	my $r = $dt->check_limit('VACUUM of a database', 'grp_a',
		sub { $member->query('VACUUM') }, limit => $limit);
	cmp_ok($r->{blocks}, '>=', $blocks, 'VACUUM of a database: blocks');
	$_->quit foreach $owner, $member;
}

# A table that is vacuumed for the second time: nothing to do.
set_limit($limit);
$s->query('VACUUM t1');
my $r = $dt->check_limit('a second VACUUM', 'grp_a', sub { $s->query('VACUUM t1') });
cmp_ok($r->{blocks}, '<', 20, 'a VACUUM with nothing to do: blocks');

# What it does is what it does without a group.
is($dt->sql('SELECT count(*) FROM t1'), $blocks / 8, 'rows left');
is( $dt->sql(
		"SELECT relallvisible FROM pg_class WHERE relname = 't1'"),
	$dt->sql("SELECT pg_relation_size('t1') / current_setting('block_size')::int"),
	'all pages are all-visible');

# VACUUM FULL is paced while it runs, too, unless somebody waits for it.
# It would be minutes.
create_dead_rows('t', 2 * $blocks);
set_limit(20);
my $before = $dt->session_row($s)->{blocks_dirtied};
$s->send('VACUUM FULL t');
ok($dt->wait_paused($s, 'in flight'), 'VACUUM FULL pauses while it runs');
$outsider->query('BEGIN; LOCK t; COMMIT');
pass('and not while somebody waits for it');
ok($dt->wait_paused($s, 'after transaction'), 'then it pays');
$dt->limit(grp_a => 0);
$s->wait;
between($dt->session_row($s)->{blocks_dirtied} - $before,
	$blocks, 2 * $blocks, 'VACUUM FULL: blocks');

# ------------------------------------------------------ the user's own delay

# Neither it nor the limit is exceeded, whichever allows less.
foreach my $case ([ 'slower', 10, 250 ], [ 'faster', 2, 1000 ])
{
	my ($name, $delay, $cost_limit) = @$case;
	my $ms;

	create_dead_rows('own', $blocks);
	$s->query("SET vacuum_cost_delay = $delay; SET vacuum_cost_limit = $cost_limit");
	my $r = $dt->check_limit(
		"a vacuum_cost_delay that is $name than the group's rate",
		'grp_a',
		sub {
			$ms = elapsed_ms(sub { $s->query('VACUUM own') });
		},
		limit => $limit);
	# a block costs 20 at least, and the last part is not slept for
	cmp_ok($ms, '>=', $delay * (20 * $blocks / $cost_limit - 1),
		"$name: the user's own delay: ms");
	is($s->query('SHOW vacuum_cost_delay; SHOW vacuum_cost_limit'),
		"${delay}ms\n$cost_limit", "$name: settings as before");
	$s->query('RESET vacuum_cost_delay; RESET vacuum_cost_limit');
}

# ------------------------------------------------- limits that change, leaving

# A VACUUM that would take a quarter of an hour is under way.
sub start_vacuum
{
	create_dead_rows('t', 4 * $blocks);    # it takes more than a few ms of CPU
	set_limit($blocks * $dt->block_kb / 900);
	$s->send('VACUUM t');
	ok($dt->wait_paused($s, 'in flight'), 'a VACUUM of 900 s is under way');
}

# It ends in the way given.
sub check_end
{
	my ($name, $sqlstate) = @_;

	is($s->wait->{sqlstate}, $sqlstate, "$name: how it ends");
	$dt->limit(grp_a => 0);
	is($s->query($show_settings), $settings, "$name: settings as before");
}

start_vacuum();
$dt->limit(grp_a => 200000);
check_end('the limit is raised', undef);

start_vacuum();
$dt->limit(grp_a => 0);
check_end('the limit is removed', undef);

start_vacuum();
$dt->set_conf('dirty_throttle.enabled', 'off');
check_end('throttling is switched off', undef);
$dt->sql('ALTER SYSTEM RESET dirty_throttle.enabled');
$dt->sql('SELECT pg_reload_conf()');
my $enabled = $ENV{DT_TEST_DISABLED} ? 'off' : 'on';
poll_until(sub { $s->query('SHOW dirty_throttle.enabled') eq $enabled });

create_dead_rows('t', 2 * $blocks);
set_limit($limit / 4);
$s->send('VACUUM t');
$dt->wait_paused($s, 'in flight');
$dt->limit(grp_a => 500);
$dt->check_limit('the limit is lowered', 'grp_a', sub { sleep 0.5 });
$dt->limit(grp_a => 200000);
check_end('and raised again', undef);

start_vacuum();
$dt->cancel_ms($s);
$dt->limit(grp_a => 0);
is($s->query($show_settings), $settings, 'cancelled: settings as before');

$s->query('SET statement_timeout = 300');
create_dead_rows('t', 4 * $blocks);
set_limit(20);
my $result = $s->run('VACUUM t');
is($result->{sqlstate}, '57014', 'statement_timeout of a VACUUM');
cmp_ok($result->{ms}, '>=', 300, 'statement_timeout of a VACUUM: ms');
$dt->limit(grp_a => 0);
$s->query('RESET statement_timeout');
is($s->query($show_settings), $settings, 'statement_timeout: settings as before');

# settings of the user's own that are not the defaults come back, too
$s->query("SET vacuum_cost_$_") foreach 'delay = 0.5', 'limit = 5000',
  'page_hit = 3', 'page_miss = 4', 'page_dirty = 5';
my $default_settings = $settings;
$settings = $s->query($show_settings);
isnt($settings, $default_settings, 'other settings');

start_vacuum();
$dt->sql("SELECT drop_resource_group('grp_a', force => true)");
is($s->wait->{sqlstate}, undef, 'its group is dropped: how it ends');
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

# An ALTER TABLE does not wait for a VACUUM to pay, which would be minutes.
start_vacuum();
$outsider->query('ALTER TABLE t ADD x int');
pass('an ALTER TABLE that waits for it');
$dt->limit(grp_a => 0);
$s->wait;

# VACUUM of two tables: the first one's lock does not last longer than it.
create_dead_rows("t$_", $blocks / 2) foreach 1, 2;
set_limit(10);
$s->send('VACUUM t1, t2');
ok($dt->wait_paused($s, 'in flight', 180), 'a VACUUM of two tables');
$outsider->query('ALTER TABLE t1 ADD x int');
ok(!$s->finished, 'an ALTER TABLE of its first table does not wait for all');
$dt->limit(grp_a => 0);
$s->wait;

# Two members' VACUUMs share the rate.
create_dead_rows("t$_", $blocks / 2) foreach 1, 2;
my $s2 = $dt->session(group => 'grp_a');
$dt->check_limit(
	'VACUUMs of two members',
	'grp_a',
	sub {
		$s->send('VACUUM t1');
		$s2->send('VACUUM t2');
		is($_->wait->{sqlstate}, undef, 'VACUUMs of two members') foreach $s, $s2;
	},
	limit => $limit / 4,
	members => 2);

$dt->finish;
