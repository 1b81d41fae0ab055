# start_batches(): the server runs the job, whatever becomes of the session that has
# started it, as the role that it was, with its settings, in its group, and with no more
# rights; it waits for a free worker, and ends when it must.
#
# takes-about: 30 s
#
# expect-in-log: WARNING: .*canceling wait for synchronous replication
# expect-in-log: WARNING: .*PID [0-9]+ is not a PostgreSQL (server|backend) process

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Batches;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $no_fork = PostgreSQL::Test::Utils::tempdir_short() . '/no_fork';
my $library = compile_library('no_fork');
$ENV{DT_NO_FORK} = $no_fork;
my $dt;
{
	local $ENV{LD_PRELOAD} = $library if $library;
	$dt = DirtyThrottle::Batches->new(
		'batches_worker', conf => q{
max_worker_processes = 8
max_prepared_transactions = 2
log_min_messages = log
});
}
my $node = $dt->node;
my $s = $dt->session;
my $other = $dt->session;

sub finished
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($dt->wait_job($name, q{state = 'finished'}), "$name: it finishes")
	  or diag explain $dt->job($name);
}

# ------------------------------------------------------------- where it is started

my @psql = ('psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'));

# What a migration tool sends: one transaction that makes the column and fills it.
$dt->counted(t => 1000);
$node->command_ok([ @psql, '-1', '-c', 'ALTER TABLE t ADD COLUMN lower text',
		'-c', $dt->start_call('psql -1', 't', statement => q{UPDATE t SET lower = 'x', n = n + 1 WHERE {batch}}) ], 'psql -1');
finished('psql -1');
is($dt->counts('t'), '1:1000', 'psql -1: each row once');
$node->command_ok([ @psql, '-c', 'BEGIN; ' . $dt->start_call('psql -c', 't') . '; COMMIT' ], 'psql -c with a block');
finished('psql -c');
$dt->sql('CREATE FUNCTION begins(name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	PERFORM start_batches(name, \'t\', \'UPDATE t SET n = n + 1 WHERE {batch}\', unthrottled => true); END $$');
$s->query(q{SELECT begins('function')});
finished('function');
$s->query(q{DO $$ BEGIN PERFORM begins('block');
	BEGIN PERFORM begins('undone'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$});
finished('block');
is($dt->job('undone'), undef, 'what a subtransaction has started is undone with it');
$s->query(q{BEGIN; SAVEPOINT a; SELECT begins('kept'); RELEASE a; SAVEPOINT b; SELECT begins('not kept'); ROLLBACK TO b; COMMIT});
finished('kept');
is($dt->job('not kept'), undef, 'ROLLBACK TO');
$s->run(q{BEGIN; SELECT begins('rolled back'); ROLLBACK});
is($dt->job('rolled back'), undef, 'ROLLBACK');
my $r = $s->run(q{BEGIN; SELECT begins('prepared'); PREPARE TRANSACTION 'p'});
is($r->{sqlstate}, '0A000', 'PREPARE TRANSACTION is refused');
$s->run('ROLLBACK');
$r = $s->run(q{BEGIN; SAVEPOINT a; SELECT begins('undone'); ROLLBACK TO a; PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'});
is($r->{sqlstate}, undef, 'PREPARE TRANSACTION, when nothing is to be started any more');
is($dt->counts('t'), '5:1000', 'each row once by each job');
$r = $s->run(q{SELECT start_batches('nothing')});
is($r->{sqlstate}, '42704', 'a name only, of no job');

# Its session ends, or its statement is over, and it goes on.
$dt->counted(slow => 300);
$s->query(q{BEGIN; SELECT start_batches('twice', 'slow', 'UPDATE slow SET n = 1 + length(pg_sleep(0.005)::text) WHERE {batch}', unthrottled => true, max_rows => 10);
	SELECT start_batches('twice', unthrottled => true); COMMIT});
ok($dt->wait_job('twice', 'rows > 20'), 'started twice in a transaction: it runs');
is($dt->sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'twice'}), 1, 'started twice in a transaction: in one worker');
finished('twice');
$dt->sql('UPDATE slow SET n = 0');
my @slow = (statement => 'UPDATE slow SET n = n + 1 + length(pg_sleep(0.005)::text) WHERE {batch}', max_rows => 10);
my $client = $dt->session;
$dt->start($client, 'gone', 'slow', @slow);
$client->quit;
finished('gone');
is($dt->counts('slow'), '1:300', 'its session ends: each row once');
$s->query(q{SET statement_timeout = '1s'});
$r = $dt->batches($s, 'timeout', 'slow', @slow, start => 1);
is($r->{sqlstate}, '57014', 'statement_timeout of 1 s ends the wait');
like($r->{err}, qr/HINT: .*The job continues\. To end it, use SELECT stop_batches\('timeout'\)/, 'statement_timeout: what it says');
finished('timeout');
is($dt->counts('slow'), '2:300', 'statement_timeout: each row once');
$r = $dt->batches($s, 'one row', 'slow', statement => 'UPDATE slow SET n = n + 1 + length(pg_sleep(2)::text) WHERE {batch}', finish => 1);
ok($dt->wait_job('one row', q{state = 'failed'}), 'statement_timeout is for each batch, too');
like($dt->job('one row')->{error}, qr/statement timeout/, 'the error');
# Nor is it a cancel of the job when the statement has no check for interrupts after it.
$dt->counted(late => 1);
$dt->sql('CREATE FUNCTION no_check() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE x numeric := repeat(\'9\', 65000); BEGIN
	RETURN CASE WHEN ' . join(' + ', ('x * x') x 40) . ' = 0 THEN NEW END; END $$;
	CREATE TRIGGER no_check AFTER UPDATE ON late FOR EACH ROW EXECUTE FUNCTION no_check()');
$s->query(q{SET statement_timeout = '300ms'});
$dt->start($s, 'late', 'late');
ok($dt->wait_job('late', q{state IN ('failed', 'stopped')}), 'statement_timeout after the last check: the job ends');
is(join(' ', map { $_ // '' } @{ $dt->job('late') }{qw(state error)}), 'failed canceling statement due to statement timeout', 'statement_timeout after the last check: by that');
is($dt->counts('late'), '0:1', 'statement_timeout after the last check: the batch was undone');
$s->query('RESET statement_timeout');

# A batch that is too long for it is tried with fewer rows.
$s->query(q{SET statement_timeout = '300ms'});
$dt->start($s, 'fewer', 'slow', statement => 'UPDATE slow SET n = n + 1 + length(pg_sleep(0.02)::text) WHERE {batch}', finish => 60);
$s->query('RESET statement_timeout');
finished('fewer');
cmp_ok($dt->job('fewer')->{retries}, '>', 0, 'fewer: it was undone');
is($dt->sql('SELECT min(n), max(n) FROM slow WHERE id <= 60'), '3|3', 'fewer: each row once');

# ------------------------------------------------------------------------ who it is

# A role without rights: its job can do what its session can.
$dt->sql(q{CREATE ROLE weak LOGIN; CREATE ROLE silent; GRANT silent TO weak; CREATE TABLE seen (what text);
	GRANT ALL ON seen, slow TO PUBLIC; CREATE TABLE secret (id int PRIMARY KEY); INSERT INTO secret VALUES (1);
	CREATE TABLE w (id int PRIMARY KEY, n int DEFAULT 0); INSERT INTO w VALUES (1); GRANT ALL ON w TO PUBLIC});
$dt->sql(q{CREATE FUNCTION look(what text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	BEGIN EXECUTE what; EXCEPTION WHEN OTHERS THEN INSERT INTO seen VALUES (SQLSTATE); END;
	INSERT INTO seen VALUES (current_user || ' ' || session_user || ' ' || current_setting('is_superuser'));
	RETURN 1; END $$});
my $weak = $dt->session(user => 'weak');

my $n = 0;
my $mark;

sub seen
{
	my ($session, $what, $before) = @_;
	my $name = 'who ' . ++$n;

	$dt->sql('TRUNCATE seen');
	$session->query($before) if $before;
	$r = $session->run(qq{SELECT start_batches('$name', 'w', \$u\$UPDATE w SET n = look(\$w\$$what\$w\$) WHERE {batch}\$u\$, unthrottled => true)});
	is($r->{sqlstate}, undef, "$what $before: it begins") or diag $r->{err};
	$session->query('RESET ROLE') if $before =~ /ROLE/;
	$dt->wait_job($name, q{state IN ('finished', 'failed')});
	return $dt->sql(q{SELECT string_agg(what, ', ') FROM seen});
}
is(seen($weak, 'RESET ROLE', ''), 'weak weak off', 'RESET ROLE');
is(seen($weak, 'SET SESSION AUTHORIZATION DEFAULT', ''), 'weak weak off', 'SET SESSION AUTHORIZATION');
is(seen($weak, 'RESET ROLE', 'SET ROLE silent'), 'weak weak off', 'a role without LOGIN, and RESET ROLE: back to what the session is');
is(seen($weak, 'SELECT', 'SET ROLE silent'), 'silent weak off', 'a role without LOGIN');
is(seen($weak, 'DELETE FROM secret', ''), '42501, weak weak off', 'a table of somebody else');
my $super = $dt->session;
is(seen($super, 'RESET ROLE; DELETE FROM secret WHERE false', 'SET SESSION AUTHORIZATION weak'), '42501, weak weak off', 'SET SESSION AUTHORIZATION by a superuser: he is no way back to');
$super->query('RESET SESSION AUTHORIZATION');
is(seen($super, 'SELECT', 'SET ROLE weak'), 'weak ' . $dt->sql('SELECT current_user') . ' off', 'SET ROLE by a superuser');
# The role that its user has by ALTER ROLE is not that of the session, which has left it.
$dt->sql('ALTER ROLE weak SET role = silent');
my $weaker = $dt->session(user => 'weak');
is(seen($weaker, 'SELECT', 'SET ROLE none'), 'weak weak off', 'ALTER ROLE ... SET role, and SET ROLE none');
$weaker->quit;
$dt->sql('ALTER ROLE weak RESET role');
# In a SECURITY DEFINER function the session could not RESET ROLE, but the worker could.
$dt->sql(q{CREATE FUNCTION definer() RETURNS void LANGUAGE sql SECURITY DEFINER AS
	$$ SELECT start_batches('definer', 'w', 'UPDATE w SET n = look(''RESET ROLE'') WHERE {batch}', unthrottled => true) $$;
	ALTER FUNCTION definer() OWNER TO weak});
$r = $super->run('SELECT definer()');
is($r->{sqlstate}, '42501', 'SECURITY DEFINER: refused');
like($r->{err}, qr/within a SECURITY DEFINER function.*HINT: .*outside of that/s, 'SECURITY DEFINER: what it says');

# What a batch does with its role is over with it.
$dt->sql('TRUNCATE seen; CREATE TABLE roles (id int PRIMARY KEY, n int); INSERT INTO roles SELECT i FROM generate_series(1, 4) i; GRANT ALL ON roles TO PUBLIC');
$super->query('SET ROLE weak');
$dt->start($super, 'roles', 'roles', max_rows => 1, statement => q{UPDATE roles SET n = look(CASE WHEN id = 2 THEN 'SET LOCAL ROLE silent' ELSE 'INSERT INTO seen VALUES (current_setting(''role''))' END) WHERE {batch}});
$super->query('RESET ROLE');
finished('roles');
my $me = $dt->sql('SELECT current_user');
is($dt->sql(q{SELECT string_agg(what, ', ') FROM seen}), "weak, weak $me off, silent $me off, weak, weak $me off, weak, weak $me off",
	'SET LOCAL ROLE in a batch: the next ones are as before');
SKIP: {
	skip 'background workers may connect as any role from 17 on', 1 if $node->pg_version->major >= 17;
	$super->query('SET SESSION AUTHORIZATION silent');
	is($dt->start($super, 'silent', 'w')->{sqlstate}, '28000', 'the user of the session has no LOGIN: refused');
	$super->query('RESET SESSION AUTHORIZATION');
}

# It may write where its transaction could.
$super->query(q{SET default_transaction_read_only = on; BEGIN READ WRITE; } . $dt->start_call('writes', 't') . '; COMMIT; RESET default_transaction_read_only');
finished('writes');

# Its settings: those of the session, also SET LOCAL and its own parameters.
$dt->sql('CREATE SCHEMA app; CREATE TABLE app.mine (id int PRIMARY KEY, n text); INSERT INTO app.mine VALUES (1); GRANT USAGE ON SCHEMA app TO weak; GRANT ALL ON app.mine TO weak');
$weak->query(q{BEGIN; SET LOCAL search_path = app, public; SET LOCAL timezone = 'Asia/Kathmandu'; SET LOCAL app.secret = 'it''s = x'; SET work_mem = '5MB';
	SELECT start_batches('settings', 'mine', $$UPDATE mine SET n = concat_ws(' ', current_setting('timezone'), current_setting('app.secret'), current_setting('work_mem'),
		current_setting('application_name'), current_setting('statement_timeout')) WHERE {batch}$$, unthrottled => true); COMMIT});
finished('settings');
is($dt->sql('SELECT n FROM app.mine'), q{Asia/Kathmandu it's = x 5MB settings 0}, 'settings: they are those of the session');
is($dt->sql(q{SELECT count(*) FROM dirty_throttle_batches b WHERE b::text LIKE '%it''s%=%x%' AND b.statement NOT LIKE '%secret%'}), 0, 'settings: nothing shows them');
is($weak->run(q{SELECT set_config('app.long', repeat('x', 9000), false); SELECT start_batches('long', 'app.mine', 'UPDATE app.mine SET n = 1 WHERE {batch}', unthrottled => true)})->{sqlstate},
	'54000', 'settings that are too long');
# They are set as the role, so what it may not set, though the user has, is left out.
foreach my $set ('origin', 'replica')
{
	$super->query('SET session_replication_role = replica; SET ROLE weak');
	is($dt->batches($super, "may set $set", 'app.mine', statement => q{UPDATE app.mine SET n = current_setting('session_replication_role') WHERE {batch}})->{sqlstate},
		undef, "settings of a user with more rights: it runs, $set");
	is($super->query('RESET ROLE; RESET session_replication_role; SELECT n FROM app.mine'), $set, "settings of a user with more rights: $set");
	$dt->sql('GRANT SET ON PARAMETER session_replication_role TO weak');
}

# Its group: the one in which the session is, moved or not.
$dt->limit($_ => 100000) foreach 'g', 'h';
$dt->sql(q{SELECT grant_group_use('g', 'weak')});
$weak->query(q{RESET ALL; SELECT join_group('g')});
is($dt->start($weak, 'joined', 'slow', unthrottled => 'false')->{sqlstate}, undef, 'in a group');
finished('joined');
cmp_ok($dt->group_row('g')->{wal_bytes} // 0, '>', 0, 'in a group: so is the worker');
$dt->sql('SELECT set_session_group(' . $weak->pid . q{, 'h')});
$dt->sql(q{SELECT dirty_throttle_reset('g')});
$dt->start($weak, 'moved', 'slow', unthrottled => 'false');
finished('moved');
cmp_ok($dt->group_row('h')->{wal_bytes} // 0, '>', 0, 'moved into another one: so is the worker');
is($dt->group_row('g')->{wal_bytes}, 0, 'and not in the first one');
like(seen($weak, q{RESET ALL; INSERT INTO seen VALUES (current_setting('dirty_throttle.group'))}, ''),
	qr/^h, /, 'RESET ALL in the statement does not lead out of it');

# A start that goes on is in that of the first one, for who may set it, and for others in
# their own.
my @half = (unthrottled => 'false', statement => 'UPDATE slow SET n = n / 0 WHERE {batch}');
my $grouped = $dt->session(group => 'h');
$dt->batches($grouped, 'goes on', 'slow', @half);
$grouped->quit;
is($super->run(q{CALL run_in_batches('goes on')})->{sqlstate}, '22012', 'a superuser goes on in the group of the first start');
$dt->sql('SELECT set_session_group(' . $weak->pid . ', NULL)');
is($dt->batches($weak, 'weak goes on', 'slow', @half)->{sqlstate}, '22012', 'a group that was joined');
$weak->query('SELECT join_group(NULL)');
$dt->sql(q{SELECT revoke_group_use('g', 'weak')});
is($weak->run(q{SELECT start_batches('weak goes on')})->{sqlstate}, '55000', 'who may not use it any more does not go on in it');

# It was dropped meanwhile, and the session is in none: that is found at the start.
$dt->sql(q{SELECT drop_resource_group('h', force => true)});
$r = $super->run(q{SELECT start_batches('goes on')});
is($r->{sqlstate}, '55000', 'the group of the first start was dropped: refused');
like($r->{err}, qr/batch job "goes on" would not be throttled/, 'the group of the first start was dropped: what it says');

# Another scope ends the instance in which the session is, and not the group.
$dt->sql(q{SELECT set_group_dirty_limit('scoped', 100000), alter_resource_group('scoped', scope => 'role')});
$grouped = $dt->session(group => 'scoped');
$grouped->query('BEGIN; ' . $dt->start_call('scoped', 't', unthrottled => 'false'));
$dt->sql(q{SELECT alter_resource_group('scoped', scope => 'database')});
$grouped->query('COMMIT');
finished('scoped');
$grouped->quit;

# ---------------------------------------------------------------- row security

$dt->sql(q{CREATE TABLE rls (id bigint PRIMARY KEY, tenant int, n int DEFAULT 0); INSERT INTO rls SELECT i, i % 5 FROM generate_series(1, 500) i;
	ALTER TABLE rls OWNER TO weak; ALTER TABLE rls ENABLE ROW LEVEL SECURITY; ALTER TABLE rls FORCE ROW LEVEL SECURITY;
	CREATE POLICY p ON rls USING (tenant::text = current_setting('app.tenant', true) OR current_setting('app.scope', true) = 'system')});
$weak->quit;
$weak = $dt->session(user => 'weak');
$r = $dt->start($weak, 'unset', 'rls');
is($r->{sqlstate}, '42501', 'row security: the error');
like($r->{err}, qr/row security may hide rows from batch job "unset".*HINT: .*row_security => true/s, 'row security: what to type');
$weak->query('SET row_security = off');
$r = $dt->start($weak, 'off', 'rls');
like($r->{err}, qr/query would be affected by row-level security policy for table "rls"/, 'row_security = off: the error is that of the server');
unlike($r->{err}, qr/CONTEXT: .*SELECT batch/, 'row_security = off: not of a query of the library');
$weak->query('RESET row_security');
$weak->query(q{SET app.scope = 'system'});
$r = $dt->batches($weak, 'system', 'rls', row_security => 'true', max_rows => 50,
	statement => 'UPDATE rls SET n = n + 1 / (id <> 300)::int WHERE {batch}');
is($r->{sqlstate}, '22012', 'row security: half done');
$weak->query('RESET app.scope');
is($dt->batches($weak, 'system', 'rls', row_security => 'true', max_rows => 50)->{sqlstate}, undef, 'row security: a session without that parameter goes on');
is($dt->counts('rls'), '1:500', 'row security: with that of the first one, so each row once');

# It begins to apply, between two starts and between two batches.
$dt->sql('CREATE TABLE later (id bigint PRIMARY KEY, n int DEFAULT 0); INSERT INTO later SELECT i FROM generate_series(1, 100) i; ALTER TABLE later OWNER TO weak');
$r = $dt->batches($weak, 'later', 'later', statement => 'UPDATE later SET n = n + 1 / (id <> 50)::int WHERE {batch}');
is($r->{sqlstate}, '22012', 'row security: half done without it');
$dt->sql('ALTER TABLE later ENABLE ROW LEVEL SECURITY; ALTER TABLE later FORCE ROW LEVEL SECURITY; CREATE POLICY p ON later USING (id <> 70)');
$r = $dt->batches($weak, 'later', 'later', row_security => 'true');
is($r->{sqlstate}, '55000', 'row security applies at a later start: the error');
like($r->{err}, qr/would now see other rows, because row security applies.*HINT: .*forget_batches/s, 'row security applies at a later start: what it says');
$dt->sql('ALTER TABLE later DISABLE ROW LEVEL SECURITY');
$dt->start($weak, 'later', 'later', max_rows => 1, statement => 'UPDATE later SET n = n + 1 + length(pg_sleep(0.05)::text) WHERE {batch}');
ok($dt->wait_job('later', 'pid IS NOT NULL AND rows > 32'), 'row security: it goes on without it');
$dt->sql('ALTER TABLE later ENABLE ROW LEVEL SECURITY');
ok($dt->wait_job('later', q{state = 'failed'}), 'row security applies between two batches: it fails');
is($dt->job('later')->{error} =~ s/\. .*//r, 'batch job "later" would now see other rows, because row security applies', 'row security applies between two batches: the reason');

# Where it is only enabled, it applies to none of these, until something else is altered.
$dt->sql(q{CREATE ROLE bypass LOGIN BYPASSRLS; CREATE TABLE enabled (id bigint PRIMARY KEY, n int DEFAULT 0); INSERT INTO enabled SELECT i FROM generate_series(1, 100) i;
	ALTER TABLE enabled OWNER TO weak; GRANT ALL ON enabled TO bypass; ALTER TABLE enabled ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON enabled USING (id <> 70)});
my $bypass = $dt->session(user => 'bypass');
my %who = (superuser => $super, owner => $weak, BYPASSRLS => $bypass);
my $done = 0;
foreach my $who (sort keys %who)
{
	$r = $dt->batches($who{$who}, "enabled $who", 'enabled');
	is($r->{sqlstate}, undef, "row security that does not apply to the $who: it runs") or diag $r->{err};
	is($dt->counts('enabled'), ++$done . ':100', "row security that does not apply to the $who: each row once");
}
is($dt->batches($super, 'joined', 't', statement => 'UPDATE t SET n = t.n FROM enabled e WHERE {batch t} AND e.id = t.id')->{out},
	'100|t', 'row security of a table that is only joined, and does not apply');
foreach my $case ([ 'owner', 'ALTER TABLE enabled FORCE ROW LEVEL SECURITY' ], [ 'BYPASSRLS', 'ALTER ROLE bypass NOBYPASSRLS' ])
{
	my ($who, $alter) = @$case;

	$r = $dt->batches($who{$who}, $alter, 'enabled', row_security => 'true', statement => 'UPDATE enabled SET n = n + 1 / (id <> 50)::int WHERE {batch}');
	is($r->{sqlstate}, '22012', "$alter: half done before");
	$dt->sql($alter);
	is($dt->batches($who{$who}, $alter, 'enabled', row_security => 'true')->{sqlstate}, '55000', "$alter: the job does not go on without the rows that are hidden now");
}
$bypass->quit;

# As whom a view reads its table, and as whom the job looks for the ends of its batches.
$dt->sql(q{CREATE VIEW by_super AS SELECT * FROM enabled; GRANT ALL ON by_super TO weak; CREATE VIEW by_weak AS SELECT * FROM enabled; ALTER VIEW by_weak OWNER TO weak});
foreach my $case ([ $weak, 'by_super' ], [ $super, 'by_weak' ])
{
	my ($session, $view) = @$case;

	like($dt->start($session, $view, 'enabled', statement => "UPDATE $view SET n = n + 1 WHERE {batch}")->{err}, qr/row security may hide rows/, "row security, and view $view");
}
$weak->quit;

# -------------------------------------------------------- more jobs than workers

my $jobs = 20;
$dt->counted("many$_" => 40) foreach 1 .. $jobs;
$dt->sql('BEGIN; ' . join(' ', map { 'SELECT ' . $dt->start_call("many$_", "many$_", max_rows => 5,
		statement => "UPDATE many$_ SET n = n + 1 + length(pg_sleep(0.01)::text) WHERE {batch}") =~ s/^SELECT //r . ';' } 1 .. $jobs) . ' COMMIT');
my $waiting = $dt->sql(q{SELECT count(*), min(error) FROM dirty_throttle_batches WHERE state = 'waiting' AND error IS NOT NULL});
like($waiting, qr/^\d+\|no free background worker: batches use at most 4 of the 8 that max_worker_processes allows$/, "$jobs jobs: some wait, and the view says for what");
cmp_ok($dt->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'dirty_throttle batches'}), '<=', 4, "$jobs jobs: half of the workers");
$r = $dt->start($s, 'one more', 'many1');
like($r->{err}, qr/NOTICE: .*batch job "one more" waits for a free background worker/, "$jobs jobs: the next one is told");
is($s->run(q{SELECT stop_batches('one more')})->{err}, '', 'what waits is stopped') if $dt->job('one more')->{state} eq 'waiting';
ok(poll_until(sub { $dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE name LIKE 'many%' AND state = 'finished'}) == $jobs }), "$jobs jobs: all end");
is($dt->counts("many$_"), '1:40', "job $_: each row once") foreach 1, $jobs;

# The postmaster forgets a worker that it could not fork; it is started again.
SKIP: {
	skip 'no LD_PRELOAD', 2 unless $library;
	$mark = $dt->log_mark;
	append_to_file($no_fork, '');
	$dt->start($s, 'not forked', 'many1');
	ok(poll_until(sub { $dt->log_since($mark) =~ /could not fork/ }), 'a worker cannot be forked');
	unlink $no_fork;
	ok(poll_until(sub { $dt->job('not forked')->{state} eq 'finished' }, 30), 'it is started again')
	  or diag explain $dt->job('not forked');
	$dt->sql(q{SELECT stop_batches('not forked')});
}

# At most 100 jobs of a role, and 100 kB of a statement.
$dt->sql('CREATE ROLE hoarder LOGIN; CREATE TABLE hoard (id int PRIMARY KEY, n int); GRANT ALL ON hoard TO hoarder');
my $hoarder = $dt->session(user => 'hoarder');
$hoarder->query(q{DO $$ BEGIN FOR i IN 1 .. 100 LOOP PERFORM start_batches('h' || i, 'hoard', 'UPDATE hoard SET n = 1 WHERE {batch}', unthrottled => true); END LOOP; END $$});
$r = $dt->start($hoarder, 'h101', 'hoard');
is($r->{sqlstate}, '54000', 'the 101st job of a role');
like($r->{err}, qr/role "hoarder" already has 100 batch jobs.*HINT: .*forget_batches/s, 'what it says');
ok(poll_until(sub { !$dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE owner = 'hoarder' AND state <> 'finished'}) }), 'the 100 end');

# Who has many that last leaves a worker to others, and there is an end to what waits.
$dt->sql('CREATE ROLE hoarder2 LOGIN; GRANT ALL ON hoard TO hoarder2; INSERT INTO hoard VALUES (1)');
my $hoarder2 = $dt->session(user => 'hoarder2');
my $hoard = q{DO $$ BEGIN FOR i IN 1 .. 99 LOOP PERFORM start_batches('h' || i, 'hoard',
	'SELECT pg_sleep(300) FROM hoard WHERE {batch}', unthrottled => true); END LOOP; END $$};
$dt->sql(q{SELECT forget_batches(name::text) FROM dirty_throttle_batches WHERE owner = 'hoarder'});
$hoarder->query($hoard);
ok(poll_until(sub { $dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE owner = 'hoarder' AND state = 'running'}) == 3 }), 'many that last: all workers but one');
$r = $dt->start($hoarder, 'h100', 'hoard');
like($r->{err}, qr/waits for a free background worker\n.*leave one of these to other roles/s, 'many that last: what waits');
# Who cancels a CALL that waits for a worker has stopped the job.
$hoarder->send(q{CALL run_in_batches('h100', unthrottled => true)});
ok(poll_until(sub { ($dt->sql('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $hoarder->pid) // '') eq 'Extension' }), 'a CALL of what waits');
$dt->sql('SELECT pg_cancel_backend(' . $hoarder->pid . ')');
$r = $hoarder->wait;
is($r->{sqlstate}, '57014', 'a CALL of what waits is canceled');
is($dt->job('h100')->{state}, 'stopped', 'so the job is stopped');
is($dt->batches($s, 'beside them', 't', run_time => '60 s')->{sqlstate}, undef, 'many that last: another role has one');
$r = $hoarder2->run($hoard);
is($r->{sqlstate}, '53400', 'more than can wait: the error');
like($r->{err}, qr/too many batches run or wait\n.*HINT: .*dirty_throttle_batches/s, 'more than can wait: what it says');
is($dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE owner = 'hoarder2'}), 0, 'more than can wait: nothing is stored');

# A role that may not connect any more when its turn comes.
$dt->sql('CREATE ROLE late LOGIN IN ROLE silent; GRANT ALL ON t TO late, silent');
my $late = $dt->session(user => 'late');
foreach my $case (
	[ 'REVOKE silent FROM late', 'GRANT silent TO late', qr/permission denied to set role "silent"/, 'SET ROLE silent' ],
	[ 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC', 'GRANT CONNECT ON DATABASE postgres TO PUBLIC', qr/permission denied for database "postgres"/ ],
	[ 'ALTER ROLE late NOLOGIN', 'ALTER ROLE late LOGIN', qr/role "late" is not permitted to log in/ ])
{
	my ($sql, $undo, $message, $before) = @$case;

	$late->query($before // 'RESET ROLE');
	$dt->start($hoarder2, 'one', 'hoard', statement => 'SELECT pg_sleep(300) FROM hoard WHERE {batch}');
	$dt->wait_job('one', q{state = 'running'});
	$mark = $dt->log_mark;
	$dt->start($late, $sql, 't');
	is($dt->job($sql)->{state}, 'waiting', "$sql: its job waits");
	$dt->sql($sql);
	$dt->sql(q{SELECT stop_batches('one'), stop_batches('one')});
	$dt->wait_job($sql, q{state NOT IN ('waiting', 'running')});
	like($dt->job($sql)->{state}, qr/^(?:failed|interrupted)$/, "$sql: it does not run");
	like($dt->log_since($mark), $message, "$sql: the log");
	$dt->sql($undo);
	$dt->start($late, $sql, 't');
	finished($sql);
}
$late->quit;

# Of those that wait, one of who runs fewest is the next, though others wait for longer.
my $running = q{SELECT count(*) FROM dirty_throttle_batches WHERE owner = 'hoarder' AND (state = 'running' OR state = 'waiting' AND error IS NULL)};
$dt->start($hoarder2, $_, 'hoard', statement => 'SELECT pg_sleep(300) FROM hoard WHERE {batch}') foreach qw(one two);
$dt->wait_job('one', q{state = 'running'});
is($dt->job('two')->{state}, 'waiting', 'who runs fewest: another one waits');
$hoarder->query(q{SELECT stop_batches(name::text), stop_batches(name::text) FROM (SELECT name FROM dirty_throttle_batches WHERE state = 'running' LIMIT 1) r});
ok(poll_until(sub { $dt->sql($running) == 2 }), 'who runs fewest: a job ends');
$dt->sql(q{SELECT stop_batches('one'), stop_batches('one')});
ok($dt->wait_job('two', q{state = 'running'}), 'who runs fewest: is the next');
is($dt->sql($running), 2, 'who runs fewest: and not who has waited for longer');
$hoarder->query(q{SELECT stop_batches(name::text) FROM dirty_throttle_batches WHERE state = 'waiting'});
is($dt->sql(q{SELECT state, count(*) FROM dirty_throttle_batches WHERE owner = 'hoarder' GROUP BY state ORDER BY state}), "running|2\nstopped|98", 'what waits is stopped');
$dt->sql(q{SELECT stop_batches('two'), stop_batches('two')});
$hoarder->query(q{SELECT stop_batches(name::text), stop_batches(name::text) FROM dirty_throttle_batches WHERE state = 'running'});
ok(poll_until(sub { !$dt->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE owner = 'hoarder' AND state = 'running'}) }), 'stopped twice at once: their batches are canceled');
$hoarder2->quit;
$hoarder->quit;

# ---------------------------------------------------------------- what ends a job

# A job that stays at its first row until this is over.
sub stays
{
	my ($name, $database, $user) = @_;
	my $session = $dt->session(dbname => $database, user => $user);

	$session->query('CREATE TABLE IF NOT EXISTS stays (id int PRIMARY KEY, n int DEFAULT 0); INSERT INTO stays SELECT i FROM generate_series(1, 5) i ON CONFLICT DO NOTHING');
	$session->query($dt->start_call($name, 'stays', max_rows => 1, statement => q{UPDATE stays SET n = n + 1 + length(pg_sleep(CASE WHEN id = 3 THEN 300 ELSE 0 END)::text) WHERE {batch}}));
	poll_until(sub { $session->query("SELECT count(*) FROM dirty_throttle_batches WHERE name = '$name' AND pid IS NOT NULL AND rows = 2") })
	  or die "$name does not stay";
	return $session;
}
$dt->sql('CREATE DATABASE dropped');
$dt->session(dbname => 'dropped')->query('CREATE EXTENSION dirty_throttle');
stays('force', 'dropped', undef)->quit;
$dt->sql('DROP DATABASE dropped WITH (FORCE)');
is($dt->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'dirty_throttle batches'}), 0, 'DROP DATABASE WITH (FORCE) ends it');

# The role is dropped, or loses its rights, while its job runs.
$dt->sql('CREATE TABLE p (id int PRIMARY KEY, n int DEFAULT 0); INSERT INTO p SELECT i FROM generate_series(1, 10000) i');
foreach my $how ('dropped', 'revoked', 'a role that is dropped')
{
	my $role = $how =~ /dropped$/ ? 'dropped' : 'revoked';
	my $by_login = $how eq 'dropped';

	$dt->sql("CREATE ROLE $role " . ($role eq 'revoked' || $by_login ? 'LOGIN; ' : 'NOLOGIN; ')
		  . ($role eq 'revoked' ? 'REVOKE ALL ON p FROM PUBLIC; GRANT ALL ON p TO revoked' : 'GRANT ALL ON p TO PUBLIC'));
	my $passing = $dt->session(user => $by_login || $role eq 'revoked' ? $role : undef);
	$passing->query("SET ROLE $role") if !$by_login;
	$passing->query($dt->start_call($how, 'p', max_rows => 1, statement => 'UPDATE p SET n = n + 1 + length(pg_sleep(0.03)::text) WHERE {batch}'));
	$passing->quit;
	ok($dt->wait_job($how, 'rows > 1'), "$how: it runs");
	$dt->sql($role eq 'revoked' ? 'REVOKE ALL ON p FROM revoked' : "DROP ROLE $role");
	ok($dt->wait_job($how, q{state = 'failed'}), "$how: it fails");
	my $job = $dt->job($how);
	like($job->{error}, $role eq 'revoked' ? qr/^permission denied for table p$/ : qr/^the role that started batch job "$how" no longer exists$/, "$how: the reason");
	cmp_ok($job->{rows}, '<', 10000, "$how: it has not gone on");
	$dt->sql("SELECT forget_batches('$how')");
	is($dt->job($how), undef, "$how: a superuser can forget it");
}

# The database allows no connections, when it is started, and when it is to begin.
$dt->sql('CREATE DATABASE closed');
my $closed = $dt->session(dbname => 'closed');
$closed->query('CREATE EXTENSION dirty_throttle; CREATE TABLE t (id int PRIMARY KEY, n int)');
$closed->query('BEGIN');
$closed->query($dt->start_call('begun', 't'));
$dt->sql('ALTER DATABASE closed ALLOW_CONNECTIONS false');
$r = $other->run($dt->start_call('elsewhere', 'slow', dry_run => 'true'));
is($r->{sqlstate}, undef, 'a database without connections: others do not mind');
$closed->query('COMMIT');
ok(poll_until(sub { $closed->query(q{SELECT state FROM dirty_throttle_batches}) eq 'interrupted' }), 'a database without connections, after the start: the view');
foreach my $call ($dt->call('closed', 't'), $dt->start_call('closed', 't'))
{
	$r = $closed->run($call);
	is($r->{sqlstate}, '55000', 'a database without connections: the error');
	like($r->{err}, qr/database "closed" does not allow connections, so no background worker can run batches.*HINT: .*ALTER DATABASE closed ALLOW_CONNECTIONS true/s,
		'a database without connections: what it says');
}
is($closed->query(q{SELECT string_agg(name, ' ') FROM dirty_throttle_batches}), 'begun', 'a database without connections: nothing is stored');
$dt->sql('ALTER DATABASE closed ALLOW_CONNECTIONS true');
is($closed->run(q{CALL run_in_batches('begun')})->{sqlstate}, '55000', 'its name only, in no group');
is($closed->run(q{CALL run_in_batches('begun', unthrottled => true)})->{out}, '0|t', 'later it goes on');
$closed->quit;

# In which group it was is known after a restart, when memory has them in another order.
$dt->limit($_ => 100000) foreach qw(z_first a_second b_third);
$grouped = $dt->session(group => 'z_first');
$dt->batches($grouped, 'grouped', 'slow', @half);
$grouped->quit;

# A fast shutdown, also while its group is suspended; and it goes on after a restart.
my $stays = stays('shutdown', 'postgres', undef);
$stays->quit;
$dt->disconnect;
$_->quit foreach $s, $other, $super;
$node->stop('fast');
$node->start;
is($dt->job('shutdown')->{state}, 'interrupted', 'after a fast shutdown it was interrupted');
like($dt->session->run(q{CALL run_in_batches('grouped')})->{err}, qr/DETAIL: .*It runs in resource group "z_first"\..*division by zero/s, 'after a restart a superuser goes on in the group of the first start');

# In single-user mode there are no background workers.
$dt->disconnect;
$node->stop('fast');
my $sql = "SELECT start_batches('shutdown', unthrottled => true)\nSELECT stop_batches('shutdown')\n";
my ($out, $err);
IPC::Run::run([ 'postgres', '--single', '-c', 'log_min_messages=notice', '-D', $node->data_dir, 'postgres' ], '<', \$sql, '>', \$out, '2>', \$err);
like($err, qr/ERROR:  batches cannot be run in single-user mode\n.*HINT:  Start the server/s, 'single-user mode');
like($err, qr/NOTICE:  batch job "shutdown" is not running/, 'single-user mode: stop_batches()');
$node->start;
is($dt->job('shutdown')->{state}, 'interrupted', 'single-user mode: nothing has changed');
$dt->sql('CREATE OR REPLACE FUNCTION pg_temp.none() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$');
$s = $dt->session;
$s->query(q{SELECT start_batches('shutdown', unthrottled => true)});
ok($dt->wait_job('shutdown', 'pid IS NOT NULL'), 'its name is enough to go on');
is($dt->sql('SELECT n FROM stays ORDER BY id LIMIT 2'), "1\n1", 'rows that were done are not done again');
my $worker = $dt->worker('shutdown');
ok(poll_until(sub { ($dt->sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $worker") // '') eq 'PgSleep' }), 'it is in its batch');
$dt->sql(q{SELECT stop_batches('shutdown')});
is($dt->job('shutdown')->{pid}, $worker, 'stop_batches() lets the batch end');
# if both signals come at once, they are one
ok(poll_until(sub { $dt->sql(q{SELECT pg_cancel_backend(pid) FROM dirty_throttle_batches WHERE name = 'shutdown' AND pid IS NOT NULL}); !defined $dt->job('shutdown')->{pid} }),
	'a cancel ends its batch');
is($dt->job('shutdown')->{state}, 'stopped', 'a cancel ends its batch: the view');

# An unlogged table is empty after a crash, and its job begins anew.
$dt->sql('CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, n int DEFAULT 0); INSERT INTO unlogged SELECT i FROM generate_series(1, 100) i');
$r = $dt->batches($s, 'unlogged', 'unlogged', max_rows => 10, statement => 'UPDATE unlogged SET n = n + 1 / (id <> 50)::int WHERE {batch}');
is($r->{sqlstate}, '22012', 'an unlogged table: half done');
$s->quit;
$dt->disconnect;
$node->stop('immediate');
$node->start;
$s = $dt->session;
$r = $s->run(q{CALL run_in_batches('unlogged', unthrottled => true)});
is($r->{sqlstate}, undef, 'an unlogged table after a crash');
like($r->{err}, qr/NOTICE: .*batch job "unlogged" starts from the beginning, as unlogged table "unlogged" is empty/, 'an unlogged table after a crash: what it says');

# --------------------------------------------------------------- keys that move

$dt->sql(q{CREATE TABLE moves (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL, n int DEFAULT 0);
	INSERT INTO moves SELECT i, now() - interval '1 day' + i * interval '1 s' FROM generate_series(1, 8000) i; CREATE INDEX ON moves (updated_at);
	CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.updated_at := clock_timestamp(); RETURN NEW; END';
	CREATE TRIGGER t BEFORE UPDATE ON moves FOR EACH ROW EXECUTE FUNCTION touch(); ANALYZE moves});
is($dt->batches($s, 'moves', 'moves', key => 'updated_at')->{out}, '8000|t', 'a trigger moves the key beyond the end: once each');
$r = $dt->batches($s, 'moves on', 'moves', key => 'updated_at', finish => \q{now() + interval '1 hour'}, max_rows => 5000);
is($r->{sqlstate}, '55000', 'a trigger moves the key ahead for ever: the error');
like($r->{err}, qr/has passed \d+ rows, but table public\.moves has only 8000.*HINT: .*"key"/s, 'what it says');
$n = 0;
foreach my $statement ('MERGE INTO moves USING (SELECT 1) x(a) ON {batch} WHEN MATCHED THEN UPDATE SET n = n + 1',
	'WITH u AS (UPDATE moves SET n = n + 1 WHERE {batch} RETURNING 1) SELECT 1 FROM u',
	'INSERT INTO moves AS old SELECT * FROM moves WHERE {batch} ON CONFLICT (id) DO UPDATE SET n = old.n + 1')
{
	$r = $dt->batches($s, 'ahead ' . ++$n, 'moves', key => 'updated_at', finish => \q{now() + interval '1 hour'}, max_rows => 5000,
		run_time => '30 s', statement => $statement);
	is($r->{sqlstate}, '55000', "a trigger moves the key ahead for ever: $statement");
}
# What is deleted is not there any more, and that is no sign of it.
$n = 0;
foreach my $statement ('DELETE FROM gone WHERE {batch}', 'MERGE INTO gone USING (SELECT 1) x(a) ON {batch} WHEN MATCHED THEN DELETE',
	'WITH g AS (DELETE FROM gone WHERE {batch} RETURNING *) INSERT INTO archive SELECT * FROM g',
	'WITH g AS (DELETE FROM gone WHERE {batch} RETURNING *) UPDATE archive a SET n = 1 FROM g WHERE a.id = g.id')
{
	$dt->sql('DROP TABLE IF EXISTS gone, archive; CREATE TABLE gone (id int PRIMARY KEY, n int DEFAULT 0); CREATE TABLE archive (LIKE gone INCLUDING ALL); INSERT INTO gone SELECT i FROM generate_series(1, 13000) i');
	$dt->sql('INSERT INTO archive SELECT * FROM gone') if $statement =~ /UPDATE/;
	$r = $dt->batches($s, 'gone ' . ++$n, 'gone', finish => 12500, statement => $statement);
	is($r->{out}, '12500|t', "not for ever: $statement") or diag $r->{err};
}

# ------------------------------------------------------------- heavy rows

# Batches are as large as light rows allow, and then come to heavy ones.
$dt->sql(q{CREATE TABLE heavy AS SELECT i AS id, 0 AS n FROM generate_series(1, 3000) i; ALTER TABLE heavy ADD PRIMARY KEY (id); ANALYZE heavy});
$r = $dt->batches($s, 'heavy', 'heavy', batch_time => '50 ms',
	statement => 'UPDATE heavy SET n = n + 1 + length(pg_sleep(CASE WHEN id > 2900 THEN 0.02 ELSE 0 END)::text) WHERE {batch}');
is($r->{out}, '3000|t', 'heavy rows behind light ones: to the end');
is($dt->counts('heavy'), '1:3000', 'heavy rows: each once');
cmp_ok($dt->job('heavy')->{retries}, '>', 0, 'heavy rows: a batch that took many times as long as it may was undone');

$s->quit;
$dt->finish;
