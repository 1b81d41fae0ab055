# Autovacuum: in the group of dirty_throttle.autovacuum_group, and in no
# other, whatever settings reach its workers.  What prevents a wraparound is
# never slowed: not autovacuum, nor the failsafe of a member's own VACUUM; nor does
# a suspended group keep others from it.
#
# expect-in-log: WARNING:  resource group "everybody" does not exist
# expect-in-log: bypassing nonessential maintenance of table
# takes-about: 30 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 8000;     # KB/s
my $blocks = 1000;

my $dt = DirtyThrottle->new(
	'autovacuum', conf => q{
autovacuum = on
autovacuum_naptime = 1s
autovacuum_max_workers = 2
autovacuum_vacuum_cost_delay = 2ms
autovacuum_vacuum_cost_limit = 10000
autovacuum_freeze_max_age = 100000
log_autovacuum_min_duration = 0
dirty_throttle.log_min_pause = 0
synchronous_commit = off
dirty_throttle.group = 'everybody'
});

# Nothing of this is to reach an autovacuum worker.
$dt->sql(q{SELECT set_group_dirty_limit('everybody', 0);
	SELECT set_group_dirty_limit('other', 10);
	ALTER DATABASE postgres SET dirty_throttle."group" = 'other';
	ALTER ROLE ALL SET dirty_throttle."group" = 'other'});
$dt->limit(grp_a => $limit);
$dt->disconnect;
my $admin_options = '-c dirty_throttle.group=everybody';
$dt->{admin} = $dt->session(options => $admin_options);

# How often autovacuum has logged so far that it was at a table.
sub runs
{
	my ($table) = @_;
	my $log = slurp_file($dt->node->logfile);
	my @runs = $log =~
	  /automatic (?:aggressive )?vacuum[^\n]* of table "postgres\.public\.$table"/g;

	return scalar @runs;
}

# Let autovacuum clean a table of so many pages.
sub autovacuum
{
	my ($table) = @_;
	my $runs = runs($table);

	$dt->sql("DROP TABLE IF EXISTS $table;
		CREATE TABLE $table (id int, filler text)
			WITH (fillfactor = 10, autovacuum_enabled = off);
		INSERT INTO $table
			SELECT i, repeat('x', 800) FROM generate_series(1, $blocks) i;
		DELETE FROM $table WHERE id % 2 = 0; CHECKPOINT");
	# which autovacuum would hear of after ten seconds
	$dt->sql('SELECT pg_stat_force_next_flush()');
	$dt->sql("ALTER TABLE $table SET (autovacuum_enabled = on,
		autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,
		autovacuum_analyze_threshold = 2000000)");
	ok(poll_until(sub { runs($table) > $runs }),
		"$table: autovacuum comes, and ends");
	$dt->sql("ALTER TABLE $table SET (autovacuum_enabled = off)");
}

# ---------------------------------------------------------- nobody has asked

autovacuum('a');
foreach my $group ('everybody', 'other')
{
	is( $dt->sql("SELECT count(*) FROM dirty_throttle_sessions s
			JOIN pg_stat_activity a USING (pid)
			WHERE backend_type LIKE 'autovacuum%'"),
		0, 'no autovacuum worker is a member');
}
is($dt->group_row('other')->{blocks_dirtied},
	0, 'settings of roles and databases do not reach it');
my $everybody = $dt->group_row('everybody')->{members};
is($everybody, 1, 'nor do those of the server');

# --------------------------------------------------------- autovacuum_group

sub set_autovacuum_group
{
	my ($group) = @_;
	$dt->set_conf('dirty_throttle.autovacuum_group', $group);
}

set_autovacuum_group('grp_a');
my $before;
my $r = $dt->check_limit(
	'autovacuum in a group',
	'grp_a',
	sub {
		autovacuum('b');
		ok(poll_until(sub { $dt->group_row('grp_a')->{members} == 0 }),
			'it has paid');
	},
	limit => $limit,
	members => 3);
# and it has used what the server says that autovacuum has
my ($dirtied) = slurp_file($dt->node->logfile) =~
  /automatic vacuum of table "postgres\.public\.b".*?(\d+) dirtied/s;
cmp_ok($dirtied, '>', $blocks / 2, "autovacuum has dirtied $dirtied blocks");
cmp_ok($r->{blocks}, '>=', $dirtied, '... and its group has used them');

# the server log has its pauses
my $log = slurp_file($dt->node->logfile);
my ($worker) = $log =~ /\[(\d+)\][^\n]*automatic vacuum of table "postgres\.public\.b"/;
my ($paused_ms) = $log =~ /LOG:  process $worker paused for ([\d.]+) ms in resource group "grp_a"\n[^\n]*Causes: dirty/;
cmp_ok($paused_ms, '>', 0, 'the server log: paused for, ms');
# Its parallel workers pay with it.
SKIP:
{
	skip 'no parallel autovacuum before 19', 5
	  if $dt->node->pg_version->major < 19;

	my $workers = q{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'parallel worker' AND wait_event = 'DirtyThrottle'};
	my $mark = -s $dt->node->logfile;
	my ($log, $dirtied);

	$dt->set_conf('autovacuum_max_parallel_workers', '2');
	$dt->sql("CREATE TABLE p (id int, a int) WITH (autovacuum_enabled = off,
			autovacuum_parallel_workers = 2, autovacuum_vacuum_threshold = 1,
			autovacuum_vacuum_scale_factor = 0,
			autovacuum_analyze_threshold = 2000000);
		INSERT INTO p SELECT i, i * 7 % 1000003 FROM generate_series(1, 300000) i");
	$dt->sql("CREATE INDEX ON p ($_)") foreach qw(id a id,a a,id);
	$dt->sql('DELETE FROM p WHERE id % 3 = 0; CHECKPOINT');
	$before = $dt->group_row('grp_a')->{blocks_dirtied};
	$dt->sql('ALTER TABLE p SET (autovacuum_enabled = on)');
	ok(poll_until(sub { $dt->sql($workers) > 0 }), 'parallel workers pause');
	ok( poll_until(
			sub {
				$log = slurp_file($dt->node->logfile, $mark);
				return $log =~ /vacuum of table "postgres\.public\.p"(.*?elapsed: )/s
				  && $dt->group_row('grp_a')->{members} == 0;
			}),
		'the autovacuum ends, and has paid');
	like($log, qr/parallel workers: index vacuum: 2 planned, 2 launched/,
		'it had parallel workers');
	($dirtied) = $log =~ /table "postgres\.public\.p".*?, (\d+) dirtied/s;
	between($dirtied, 2000, 20000, 'what it says that it has dirtied');
	# and a few of the catalogs
	between($dt->group_row('grp_a')->{blocks_dirtied} - $before,
		$dirtied, $dirtied + 200, 'it is charged, with the workers');
	$dt->sql('DROP TABLE p');
}

# What autovacuum does.
sub workers
{
	return $dt->sql(q{SELECT string_agg(format('%s %s', a, s), E'\n')
		FROM pg_stat_activity a LEFT JOIN dirty_throttle_sessions s USING (pid)
		WHERE backend_type = 'autovacuum worker'}) . "\n"
	  . $dt->sql(q{SELECT t::text FROM pg_stat_user_tables t WHERE relname = 'c'});
}

# While it runs, the view shows it.  It works for long enough to be noticed, and
# then pauses for minutes.  The catalogs are clean, and need none of these; nor is
# the table analyzed, which would take as long when only the INSERT is known.
$dt->sql('VACUUM');
ok(poll_until(sub { $dt->group_row('grp_a')->{members} == 0 }), 'nothing is left to do');
$dt->limit(grp_a => 20);
$dt->sql("CREATE TABLE c (id int, filler text)
		WITH (fillfactor = 10, autovacuum_enabled = off, autovacuum_vacuum_threshold = 1,
			autovacuum_vacuum_scale_factor = 0, autovacuum_analyze_threshold = 2000000);
	INSERT INTO c SELECT i, repeat('x', 800) FROM generate_series(1, 10 * $blocks) i;
	DELETE FROM c WHERE id % 2 = 0; CHECKPOINT;
	SELECT pg_stat_force_next_flush()");
$dt->sql('ALTER TABLE c SET (autovacuum_enabled = on)');
ok( poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM dirty_throttle_sessions s
				JOIN pg_stat_activity a USING (pid)
				WHERE backend_type = 'autovacuum worker' AND group_name = 'grp_a'
				  AND blocks_dirtied > 0") > 0;
		}),
	'the view shows it');

# Whoever needs the table gets it: autovacuum is cancelled as ever.
ok( poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM pg_stat_progress_vacuum
				WHERE relid = 'c'::regclass") > 0;
		}),
	'it vacuums a table') or diag(workers());
$dt->sql('BEGIN; LOCK TABLE c IN ACCESS EXCLUSIVE MODE; COMMIT');
pass('somebody else locks it');

# A changed limit and a dropped group reach it.
$dt->limit(grp_a => 0);
ok( poll_until(
		sub {
			$dt->sql("SELECT n_dead_tup FROM pg_stat_user_tables
				WHERE relname = 'c'") == 0;
		}),
	'without a limit it ends') or diag(workers());
$dt->sql(q{SELECT drop_resource_group('grp_a', force => true)});
autovacuum('d');
$dt->limit(grp_a => $limit);

# ---------------------------------------------------------------- wraparound

# The long pauses of these processes that the log has from there on, in ms: the
# table would take half a minute, what they dirty of the catalogs less than this.
sub long_pauses
{
	my ($mark, @pids) = @_;
	my $log = slurp_file($dt->node->logfile, $mark);

	return map {
		grep { $_ > 10000 } $log =~ /LOG:  process $_ paused for ([\d.]+) ms/g
	} @pids;
}

# Old rows in a table, then more than 105000 transactions.
sub grow_old
{
	$dt->sql(
		q{CREATE OR REPLACE PROCEDURE burn(n int) LANGUAGE plpgsql AS $$ BEGIN
			FOR i IN 1 .. n LOOP
				PERFORM pg_current_xact_id();
				COMMIT;
			END LOOP; END $$;
		CALL burn(110000)});
}

# What comes by itself from here on is in a group, at the limit set below.
$dt->sql('ALTER SYSTEM SET autovacuum = off');
$dt->sql('SELECT pg_reload_conf()');
foreach my $table ('old', 'older')
{
	$dt->sql("CREATE TABLE $table (id int, filler text)
			WITH (fillfactor = 10, autovacuum_enabled = off);
		INSERT INTO $table
			SELECT i, repeat('x', 800) FROM generate_series(1, $blocks) i;
		DELETE FROM $table WHERE id % 2 = 0");
}

# The failsafe of a member's own VACUUM.
$dt->limit(grp_a => 500);
my $s = $dt->session(group => 'grp_a', options => $admin_options);
$s->query('SET vacuum_failsafe_age = 0');
# "older" is for autovacuum, which may come now that there is a reason to.
my $grown = -s $dt->node->logfile;
grow_old();
$dt->sql('CHECKPOINT');
my $relfrozenxid_age = "SELECT age(relfrozenxid) FROM pg_class WHERE relname = ";
SKIP:
{
	skip 'autovacuum was first', 3
	  if $dt->sql("$relfrozenxid_age 'old'") < 105000;

	my $mark = -s $dt->node->logfile;

	$s->send('VACUUM old');
	poll_until(sub { $dt->wait_paused($s, 'after transaction') || $s->finished });
	# it is paid for now; which is not waited for
	$dt->limit(grp_a => 0);
	like($s->wait->{err}, qr/failsafe/, 'it was in failsafe mode');
	ok($dt->sql("$relfrozenxid_age 'old'") < 105000, 'it froze the table');
	is_deeply([ long_pauses($mark, $s->pid) ], [], 'and did not pause in flight');
}

# The same table's sister, by autovacuum.
$dt->limit(grp_a => 500);
ok(poll_until(sub { runs('older') }),
	'autovacuum to prevent wraparound');
my @urgent = slurp_file($dt->node->logfile, $grown) =~
  /\[(\d+)\][^\n]*vacuum to prevent wraparound of table/g;
ok(@urgent > 0, 'it is urgent');
is_deeply([ long_pauses($grown, @urgent) ], [], 'it does not pause in flight');

# Workers that are suspended hold the places of those that would prevent a wraparound.
# They go on when one is near, wherever they pause, and so does a VACUUM.
my $oldest = q{SELECT max(age(datfrozenxid)) FROM pg_database};
my $paused = q{SELECT count(*) FROM dirty_throttle_sessions() s JOIN pg_stat_activity a USING (pid)
	WHERE backend_type = 'autovacuum worker' AND paused_by = 'suspend_group'};

$dt->limit(grp_a => 0);
ok(poll_until(sub { $dt->sql($oldest) < 90000 }), 'nothing is old any more');
$dt->sql("CREATE TABLE g (id int, filler text) WITH (fillfactor = 10, autovacuum_enabled = off);
	INSERT INTO g SELECT i, repeat('x', 800) FROM generate_series(1, 10 * $blocks) i;
	DELETE FROM g WHERE id % 2 = 0");
$dt->sql('CHECKPOINT');
$dt->limit(grp_a => 20);
$s->send('VACUUM g');
ok($dt->wait_paused($s, 'in flight'), 'a VACUUM pauses');
$dt->sql(q{SELECT suspend_group('grp_a')});
$dt->limit(grp_a => 0);
$dt->sql("CREATE TABLE $_ AS SELECT i FROM generate_series(1, 1000) i") foreach 'e', 'f';
$dt->set_conf('autovacuum', 'on');
ok(poll_until(sub { $dt->sql($paused) == 2 }), 'suspended: all workers that there may be pause');
grow_old();
ok(poll_until(sub { $dt->sql($oldest) < 90000 }), 'suspended: the server is kept from a wraparound');
ok($s->finished($DirtyThrottle::TIMEOUT), 'suspended: the VACUUM has gone on');
$dt->sql(q{SELECT resume_group('grp_a')});
$s->wait;

set_autovacuum_group('');
$dt->finish;
