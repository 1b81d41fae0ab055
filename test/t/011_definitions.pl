# The definitions of groups are a row of a catalog, changed by transactions:
# what commits is in force at once, what does not leaves nothing.  Whatever is
# in the row, and whatever becomes of its role, the server works and says what
# is wrong.
#
# expect-in-log: WARNING:  the definitions of resource groups cannot be read
# expect-in-log: WARNING:  1 word in the definitions of resource groups is ignored
# expect-in-log: WARNING:  1 resource group or instance is not in force
# expect-in-log: WARNING:  resource group "old" does not exist

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;

my $dt = DirtyThrottle::Life->new('definitions', conf => 'dirty_throttle.max_groups = 8');
my $node = $dt->node;
my $ROW = q{SELECT unnest(setconfig) FROM pg_db_role_setting
	WHERE setrole = (SELECT oid FROM pg_roles WHERE rolname = 'dirty_throttle')};
my $GRANTS = q{SELECT sum(cardinality(granted_to)) FROM dirty_throttle_groups};

# The text of the row, without the numbers of the groups.
sub row
{
	my $row = $dt->sql($ROW);

	$row =~ s/^dirty_throttle\.groups=//;
	$row =~ s/ id=\d+//g;
	return $row;
}

# A test: the statement fails so.
sub fails
{
	my ($session, $sql, $sqlstate, $message, $name) = @_;
	my $result = $session->run($sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{sqlstate} // 'success', $sqlstate, "$name: SQLSTATE");
	like($result->{err}, $message, "$name: message");
	return;
}

sub reset_all
{
	$dt->sql(q{SELECT drop_resource_group(group_name, force => true)
		FROM dirty_throttle_groups WHERE instance IS NULL});
	return;
}

subtest 'transactions' => sub {
	my $s = $dt->session;

	is($dt->definitions, '', 'no groups');
	is($dt->sql($ROW), '', 'and no row');
	$s->query(q{BEGIN; SELECT set_group_dirty_limit('a', 100); SELECT alter_resource_group('a', burst => 7)});
	is($dt->definitions, '', 'before COMMIT');
	$s->query('COMMIT');
	is($dt->definitions, 'a=100', 'after COMMIT');
	is(row(), 'a dirty=100 burst=7', 'the row');

	$s->query(q{BEGIN; SELECT set_group_dirty_limit('a', 200); SELECT alter_resource_group('b')});
	like($s->query($ROW), qr/ dirty=200 .*\nb /, 'who changes it sees the row');
	$s->query('ROLLBACK');
	is($dt->definitions, 'a=100', 'after ROLLBACK');
	is($s->query('SELECT count(*) FROM dirty_throttle_groups'), 1, 'also here');

	$s->query(q{BEGIN; SELECT set_group_dirty_limit('a', 1);
		SAVEPOINT s; SELECT set_group_dirty_limit('a', 2); SELECT alter_resource_group('b');
		ROLLBACK TO s; SELECT set_group_wal_limit('a', 3); COMMIT});
	is(row(), 'a dirty=1 wal=3 burst=7', 'after ROLLBACK TO');
	is($dt->definitions, 'a=1', 'in force, too');
	$s->query(q{BEGIN; SAVEPOINT s; SELECT drop_resource_group('a'); ROLLBACK TO s; COMMIT});
	is($dt->definitions, 'a=1', 'nothing is left of a subtransaction');

	fails($s, q{BEGIN; SELECT set_group_dirty_limit('a', 1); PREPARE TRANSACTION 'p'},
		'0A000', qr/cannot PREPARE a transaction that has changed resource groups/, 'PREPARE');
	# it would keep the lock
	fails($s, q{BEGIN; SELECT drop_resource_group('none', true); PREPARE TRANSACTION 'p'},
		'0A000', qr/cannot PREPARE a transaction that has changed resource groups/,
		'PREPARE, with nothing to change');
	# nothing is changed, and the transaction is over
	$s->query(q{BEGIN; SAVEPOINT s; SELECT set_group_dirty_limit('a', 2); ROLLBACK TO s; PREPARE TRANSACTION 'p'});
	fails($s, q{SET dirty_throttle."group" = 'missing'}, '42704', qr/does not exist\n(?!.*this transaction)/s,
		'PREPARE, and nothing of it is left');
	$s->query(q{COMMIT PREPARED 'p'});
	fails($s, q{BEGIN READ ONLY; SELECT set_group_dirty_limit('a', 1)},
		'25006', qr/in a read-only transaction.*BEGIN READ WRITE/s, 'READ ONLY');
	$s->query('ROLLBACK');
	is($dt->definitions, 'a=1', 'nothing has changed');
	is($dt->sql('SELECT count(*) FROM pg_prepared_xacts'), 0, 'or is prepared');

	# one after the other
	my $t = $dt->session;
	$s->query(q{BEGIN; SELECT alter_resource_group('s')});
	$t->send(q{SELECT alter_resource_group('t')});
	ok( poll_until(sub {
			$dt->sql('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $t->pid) eq 'object' }, 180),
		'another change waits');
	is($dt->definitions, 'a=1', 'who reads does not wait');
	$s->query('COMMIT');
	is($t->wait->{sqlstate}, undef, 'then it is made');
	is($dt->definitions, 'a=1 s=0 t=0', 'both are in force');
	$s->query(q{BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM pg_class});
	$t->query(q{SELECT drop_resource_group('t')});
	$s->query(q{SELECT drop_resource_group('s'); COMMIT});
	is($dt->definitions, 'a=1', 'an old snapshot undoes nothing');

	# what has been replaced meanwhile is not removed
	$dt->sql(q{SELECT report_pressure('x', 0, '1 day'), report_pressure('y', 0, '1 day'),
		set_group_pressure('a', 'x', 'on')});
	$s->query(q{BEGIN; SELECT set_group_pressure('a', 'y', 'on')});
	$t->send(q{SELECT set_group_pressure('a', 'x', NULL)});
	ok( poll_until(sub {
			$dt->sql('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $t->pid) eq 'object' }, 180),
		'who unfollows a signal waits, too');
	$s->query('COMMIT');
	like($t->wait->{err}, qr/"a" does not follow signal "x"/, 'the group does not follow it any more');
	like(row(), qr/ reported=y/, 'and still follows the other one');
	$dt->sql(q{SELECT set_group_pressure('a', 'y', NULL)});

	# many at once
	my @many = map { $dt->session } 1 .. 6;
	$many[$_]->send("SELECT alter_resource_group('many $_')") foreach 0 .. 5;
	is($_->wait->{sqlstate}, undef, 'one of many') foreach @many;
	is($dt->definitions, join(' ', 'a=1', map { "many $_=0" } 0 .. 5), 'all are there');
	$_->quit foreach @many, $s, $t;
	reset_all();
	is($dt->sql($ROW), '', 'without groups there is no row');
};

subtest 'members' => sub {
	$dt->limit(grp_a => 0);
	$dt->table('t1');
	my $member = $dt->session(group => 'grp_a');
	my $admin = $dt->session;

	# a member that sleeps, and a limit that changes: at COMMIT, not before
	$dt->limit(grp_a => 1);
	$member->send(insert_sql('t1', 100));
	ok($dt->wait_paused($member, 'in flight', 180), 'a member sleeps');
	$admin->query(q{BEGIN; SELECT set_group_dirty_limit('grp_a', 0)});
	is($dt->group_row('grp_a')->{dirty_limit}, 1, 'before COMMIT');
	ok(!$member->finished, 'it sleeps on');
	$admin->query('COMMIT');
	is($member->wait->{sqlstate}, undef, 'after COMMIT it does not');

	# it stays in a renamed group
	$admin->query(q{BEGIN; SELECT rename_resource_group('grp_a', 'x'), alter_resource_group('grp_a');
		SELECT rename_resource_group('grp_a', 'y'), rename_resource_group('x', 'grp_a');
		SELECT rename_resource_group('grp_a', 'z'), rename_resource_group('y', 'grp_a'); COMMIT});
	is($member->query('SHOW dirty_throttle."group"'), 'z', 'renamed in many steps');
	is($dt->definitions, 'grp_a=0 z=0', 'all groups');
	fails($admin, q{SELECT drop_resource_group('z')}, '55006', qr/is in use/, 'DROP');
	$admin->query(q{BEGIN; SELECT drop_resource_group('z', force => true)});
	is($dt->session_row($member)->{group_name}, 'z', 'a member until COMMIT');
	$admin->query('COMMIT');
	is($dt->session_row($member), undef, 'and no longer');
	$_->quit foreach $member, $admin;
	reset_all();
};

subtest 'by hand' => sub {
	my $s = $dt->session;
	my $set = 'ALTER ROLE dirty_throttle SET dirty_throttle.groups =';

	$dt->limit(old => 5);
	my $member = $dt->session(group => 'old');
	$s->query(qq{$set 'old dirty=6 new_key=5 mode=observe
"two words" wal=0.001 io_pressure=12.5% replica_lag=90s replica_lag_ignore=1 checkpoint=on'});
	is($dt->definitions, 'old=6 two words=0', 'ALTER ROLE is as good as the functions');
	is($member->query('SHOW dirty_throttle."group"'), 'old', 'a group keeps its members');
	is($dt->sql('SELECT group_name, signal, threshold, ignored_standbys FROM dirty_throttle_pressure WHERE group_name IS NOT NULL ORDER BY 2'),
		"two words|checkpoint|on|\ntwo words|io_pressure|12.5%|\ntwo words|replica_lag|90s|1", 'thresholds');
	$s->query(q{SELECT alter_resource_group('old', floor => 1.5)});
	is(row(), qq{old dirty=6 mode=observe floor=1.5 new_key=5
"two words" wal=0.001 replica_lag_ignore=1 replica_lag=90s checkpoint=on io_pressure=12.5%},
		'what this release does not know is kept');

	# it keeps them as well when it is renamed next, before anything else is written
	$s->query("$set 'old dirty=7'");
	$s->query(q{SELECT rename_resource_group('old', 'renamed')});
	is($member->query('SHOW dirty_throttle."group"'), 'renamed', 'a group written by hand is renamed');
	$s->query(q{SELECT rename_resource_group('renamed', 'old')});
	$s->query("$set 'old dirty=6\n\"two words\"'");

	foreach (
		[ 'x dirty=-1', qr/In line 1, the value of "dirty" is malformed/ ],
		[ "x\n  y dirty=1 dirty=2", qr/In line 2, the value of "dirty" is malformed or out of range, or occurs twice/ ],
		[ 'Batch', qr/In line 1, a name is missing, or has to be quoted/ ],
		[ "x\nx", qr/Group "x" occurs twice/ ],
		[ "x id=5\ny id=5", qr/Groups "[xy]" and "[xy]" have the same id/ ],
		[ 'x wal', qr/In line 1, a word is not key=value/ ],
		[ 'x replica_lag=1ms', qr/In line 1, the value of "replica_lag" is malformed/ ],
		[ 'x grant="', qr/In line 1, a quoted name does not end/ ],
		[ 'x scope=everybody', qr/In line 1, the value of "scope" is malformed/ ],
		[ 'x instance=a', qr/In line 1, there is an instance of a group without instances/ ],
		[ "x\nx instance=a", qr/In line 2, there is an instance of a group without instances/ ],
		[ "x scope=role\nx instance=a\nx instance=a", qr/In line 3, an instance occurs twice/ ],
		(map { [ "x scope=role\nx instance=a $_", qr/In line 2, an instance has what only its group can have/ ] }
			  'scope=database', 'id=5', 'replica_lag=2s', 'grant=b'))
	{
		my ($value, $message) = @$_;
		fails($s, "$set '$value'", '22023', $message, $value =~ s/\n/ \/ /r);
	}
	fails($s, q{SET dirty_throttle.groups = 'x'}, '55P02', qr/cannot be set in a session/, 'SET');
	is($dt->definitions, 'old=6 two words=0', 'nothing has changed');

	# more than there is room for; then less
	$s->query("$set '" . join("\n", 'old', map { "g$_" } 1 .. 8) . "'");
	is($dt->sql('SELECT count(*) FROM dirty_throttle_groups'), 8, 'as many as fit');
	is($member->query('SHOW dirty_throttle."group"'), 'old', 'those with members stay');
	$s->query(q{SELECT drop_resource_group('g1')});
	is($dt->definitions, join(' ', (map { "g$_=0" } 2 .. 8), 'old=0'), 'then the last one is in force');
	fails($s, q{SELECT alter_resource_group('more')}, '53400', qr/more than 8/, 'one more');

	# the role
	fails($s, 'DROP ROLE dirty_throttle', '2BP01',
		qr/its settings define resource groups.*RESET "dirty_throttle.groups"/s, 'DROP ROLE');
	fails($s, 'ALTER ROLE dirty_throttle RENAME TO x', '2BP01', qr/cannot be renamed/, 'RENAME');
	$s->query('BEGIN; ALTER ROLE dirty_throttle RESET ALL');
	is($dt->sql('SELECT count(*) FROM dirty_throttle_groups'), 8, 'RESET ALL, before COMMIT');
	$s->query('COMMIT');
	is($dt->definitions, '', 'RESET ALL: no groups');
	is($member->query('SHOW dirty_throttle."group"'), '', 'and no members');
	$s->query('DROP ROLE dirty_throttle');
	$dt->limit(again => 1);
	is($dt->definitions, 'again=1', 'it is created again');
	is($dt->sql(q{SELECT rolcanlogin OR rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = 'dirty_throttle'}),
		'f', 'and may do nothing');
	$_->quit foreach $member, $s;
	reset_all();
};

# What a transaction has changed and undone: it waits for nobody at its COMMIT.
subtest 'undone' => sub {
	my ($s, $other) = ($dt->session, $dt->session);

	$dt->limit(a => 1);
	$dt->sql('CREATE TABLE kept (i int)');
	$other->query(q{BEGIN; SELECT set_group_dirty_limit('a', 2)});
	$s->query(q{SET lock_timeout = '100ms'; BEGIN; INSERT INTO kept VALUES (1); SAVEPOINT s});
	is($s->run(q{SELECT set_group_dirty_limit('a', 3)})->{sqlstate}, '55P03', 'somebody else changes groups');
	is($s->run('ROLLBACK TO s; COMMIT')->{sqlstate}, undef, 'without that, COMMIT succeeds');
	is($dt->sql('SELECT count(*) FROM kept'), 1, 'and keeps what was written');
	$other->query('COMMIT');
	$s->query(q{BEGIN; SELECT set_group_dirty_limit('a', 4); SAVEPOINT s; SELECT set_group_dirty_limit('a', 5);
		ROLLBACK TO s; COMMIT});
	is($dt->definitions, 'a=4', 'what was not undone is in force');
	$_->quit foreach $s, $other;
	reset_all();
};

# A group in use is not dropped, whatever its name is in this transaction.
subtest 'in use' => sub {
	my $s = $dt->session;

	$dt->limit(busy => 0);
	my $member = $dt->session(group => 'busy');
	$s->query(q{BEGIN; SELECT rename_resource_group('busy', 'other')});
	is($s->run(q{SELECT drop_resource_group('other')})->{sqlstate}, '55006', 'renamed: it is in use');
	$s->query(q{ROLLBACK; BEGIN; SELECT rename_resource_group('busy', 'other'), alter_resource_group('busy')});
	is($s->run(q{SELECT drop_resource_group('busy'); COMMIT})->{sqlstate}, undef, 'another one of its name is not');
	is($member->query('SHOW dirty_throttle."group"'), 'other', 'the member stays');
	$_->quit foreach $s, $member;
	reset_all();
};

# What the text may be, and how it is written again when a group is dropped.
subtest 'the text' => sub {
	my $s = $dt->session;
	my $set = 'ALTER ROLE dirty_throttle SET dirty_throttle.groups =';
	my $long = 'n' x 63;
	my $BAD = 'is malformed or out of range, or occurs twice';
	my $NO_NAME = qr/a name is missing, or has to be quoted/;
	my $NO_END = qr/a quoted name does not end/;

	# not that words are ignored
	$s->query('SET client_min_messages = error; SET log_min_messages = error');
	foreach (
		['batch id=814372415120000 dirty=12288 wal=8000.5 burst=60000 mode=observe floor=512'],
		[qq{a\nb\n_1\n"A"\n"1"}],
		[qq{"a b"\n"a""b"\n"\303\234"\n"="\n"a  b"\n"a=b c"}],
		[ "\n  a  dirty=1 \n\n b \n", "a dirty=1\nb" ],
		[ '"a"', 'a' ],
		[$long],
		[ 'a dirty=0 wal=0 burst=20 mode=enforce floor=64', 'a' ],
		[ 'a dirty=1.50 burst=020', 'a dirty=1.5' ],
		['a dirty=0.001 burst=0 floor=0.001'],
		['a dirty=16777216 wal=16777215.999 burst=3600000 floor=16777216'],
		['a id=4611686018427387903'],
		[ 'a replica_lag=2s replica_lag_ignore=3', 'a replica_lag_ignore=3 replica_lag=2s' ],
		['a replica_lag=1s slot_lag=1MB checkpoint=on kernel_dirty=500MB io_pressure=0.0001%'],
		['a io_pressure=99.9999%'],
		['a allowance=64000.5'],
		['a allowance=1000000000'],
		['a weight=2.5 reported=kafka_lag archive_lag=1GB wal_rate=50MB disk_free=20GB'],
		['a reported="Kafka lag" disk_free=12.5%'],
		[ 'a weight=1', 'a' ],
		[ 'a replica_lag=120s', 'a replica_lag=2min' ],
		[ 'a replica_lag=1000000us', 'a replica_lag=1s' ],
		['a replica_lag=1d slot_lag=1000TB io_pressure=100%'],
		['a slot_lag=1048577B'],
		[qq{a grant=etl grant="Two ""words"""\nb grant=etl}],
		[qq{a new=1\nb dirty=5 other="a b""c\nd"}],
		['a tomorrow_lag=5x%'])
	{
		my ($text, $written) = @$_;
		my $name = $text =~ s/\n/ \/ /gr;

		is($s->run("$set '$text\nlast_one'")->{err}, '', $name);
		$s->run(q{SELECT drop_resource_group('last_one')});
		is(row(), ($written // $text) =~ s/ id=\d+//r, "written: $name");
	}
	foreach (
		[ $NO_NAME, 'Batch', '1a', 'a-b', '=', "a\tdirty=1", '"a"b', '"a"b"c"', 'a"b"', 'a grant=B' ],
		[ qr/a name is empty/, '""', 'a grant=', 'a grant=""' ],
		[ qr/a name is too long/, "${long}n", "a grant=${long}n", qq{"$long "} ],
		[ $NO_END, '"', '"a', '"a""', 'a grant="', 'a new="b' ],
		[ qr/a word is not key=value/, 'a b', 'a b =1', 'a Dirty=1', 'a =1' ],
		[ qr/a value is missing/, 'a new=' ],
		[ qr/In line 7, the value of "dirty"/, qq{a\n\nb dirty=1\n"c d" new="\n\n"\n  e dirty=x} ],
		[ qr/there is replica_lag_ignore without replica_lag/, 'a replica_lag_ignore=1', 'a slot_lag=1MB replica_lag_ignore=1' ],
		(   map { [ qr/the value of "$_->[0]" $BAD/, map { "a $_" } @$_[ 1 .. $#$_ ] ] }
			  [ dirty => map { "dirty=$_" } '', -1, '1.2.3', '16777216.001', '1x', 'inf', 'nan',
				'9223372036854775807', '9' x 400, '1 dirty=1', '1MB' ],
			  [ id => map { "id=$_" } 0, '1.0', '4611686018427387904', '9223372036854775808', '' ],
			  [ burst => 'burst=3600001' ],
			  [ mode => map { "mode=$_" } 'off', 'observed', '' ],
			  [ floor => 'floor=0' ], [ weight => 'weight=0.5', 'weight=1001' ],
			  [ allowance => 'allowance=-1', 'allowance=1000000000.001' ],
			  [ disk_free => 'disk_free=0%', 'disk_free=10' ], [ wal_rate => 'wal_rate=5%' ],
			  [ replica_lag => map { "replica_lag=$_" } '2', '99ms', '2d', '2GB', '30%', 'on', '1e300d' ],
			  [ checkpoint => map { "checkpoint=$_" } '1s', '' ],
			  [ io_pressure => map { "io_pressure=$_" } '0%', '100.0001%', '30%%', '30MB' ],
			  [ replica_lag_ignore => 'replica_lag=2s replica_lag_ignore=2147483648' ]))
	{
		my ($problem, @texts) = @$_;

		fails($s, "$set '$_'", '22023', $problem, s/\n/ \/ /gr) foreach @texts;
	}

	# anything at all: it is refused, or written so that it is read as the same
	my $seed = $ENV{DT_SEED} // time ^ $$;
	my @words = (' id=', ' dirty=', ' wal=', ' mode=observe', ' grant=', ' replica_lag=',
		' checkpoint=on', ' io_pressure=', ' new_key=', qw(us s d B TB % . " "" = 0 1 12 - a A _),
		"\n", ' ', "\t", '9223372036854775808');
	my $odd = 0;
	srand $seed;
	foreach (1 .. 300)
	{
		my $text = join '', map {
			"g$_ dirty=" . int(rand 1000) . ".5 replica_lag=" . int(rand 99) . qq{s grant="R $_" new="x y"\n} } 1 .. 3;
		substr($text, rand length $text, rand 3) = $words[ rand @words ] foreach 1 .. 1 + rand 4;
		my $result = $s->run("$set '${text}\nlast_one'");
		if ($result->{err} eq '')
		{
			$s->run(q{SELECT drop_resource_group('last_one')});
			my $once = row();
			$result = $s->run("$set '$once\nlast_one'");
			$s->run(q{SELECT drop_resource_group('last_one')});
			next if $result->{err} eq '' && row() eq $once;
		}
		next if ($result->{sqlstate} // '') eq '22023';
		$odd++;
		diag "DT_SEED=$seed: $text: $result->{err}";
	}
	is($odd, 0, 'texts at random');
	$s->quit;
	reset_all();
};

# What no function and no ALTER ROLE would write.
subtest 'a damaged row' => sub {
	$dt->limit(good => 5);
	my $s = $dt->session;
	my $good = $dt->sql($ROW);
	my $damage = q{UPDATE pg_db_role_setting SET setconfig = ARRAY['dirty_throttle.groups=good dirty=x']
		WHERE setrole = 'dirty_throttle'::regrole};

	$s->query($damage);
	like($s->run('ALTER ROLE dirty_throttle SET work_mem = 1000')->{err},
		qr/WARNING:  XX001: the definitions of resource groups cannot be read, so those in force stay\nDETAIL:  In line 1/,
		'it is told');
	is($dt->session->run('SELECT 1')->{err}, '', 'once');
	is($dt->definitions, 'good=5', 'what is in force stays');
	fails($s, q{SELECT set_group_dirty_limit('good', 6)}, 'XX001',
		qr/cannot be read.*In line 1.*ALTER ROLE dirty_throttle SET/s, 'a change');
	$s->query('CREATE ROLE r; ALTER ROLE r RENAME TO r2; DROP ROLE r2');
	$dt->disconnect;
	$node->restart;
	like($dt->session->run('SELECT 1')->{err}, qr/WARNING:  XX001: the definitions/, 'after a restart, too');
	is($dt->definitions, '', 'then there are none');
	$dt->sql("ALTER ROLE dirty_throttle SET dirty_throttle.groups = '"
		  . $good =~ s/^dirty_throttle.groups=//r . "'");
	is($dt->definitions, 'good=5', 'corrected');
	$dt->sql('ALTER ROLE dirty_throttle RESET work_mem');
	reset_all();
};

subtest 'an operator' => sub {
	$dt->sql(q{CREATE ROLE operator LOGIN; CREATE ROLE etl;
		GRANT EXECUTE ON FUNCTION set_group_dirty_limit(text, float8), drop_resource_group, grant_group_use TO operator});
	my $s = $dt->session(user => 'operator');

	$s->query(q{SELECT set_group_dirty_limit('o', 1), grant_group_use('o', 'etl')});
	is($dt->definitions, 'o=1', 'an operator defines the first group');
	is($s->query('SELECT current_user'), 'operator', 'and is who it was');
	foreach (
		q{ALTER ROLE dirty_throttle SET dirty_throttle.groups = 'x'},
		'ALTER ROLE dirty_throttle RESET ALL',
		'ALTER ROLE dirty_throttle SET work_mem = 100', 'DROP ROLE dirty_throttle',
		q{SELECT alter_resource_group('o', burst => 1)}, 'CREATE ROLE x', 'SET ROLE dirty_throttle')
	{
		is($s->run($_)->{sqlstate}, '42501', "not allowed: $_");
	}
	is($s->run(q{SELECT set_group_dirty_limit('o', -1)})->{sqlstate}, '22023', 'an error');
	is($s->query('SELECT current_user'), 'operator', 'the same user after it');
	$dt->sql('ALTER ROLE dirty_throttle SET work_mem = 1000');
	$s->query(q{SELECT drop_resource_group('o')});
	is($dt->sql($ROW), 'work_mem=1000', 'other settings of the role stay');
	$dt->sql('ALTER ROLE dirty_throttle RESET ALL');
	$s->quit;
};

# The row is locked only by who changes it, and nobody but a superuser can touch its
# role; in 15 a role with CREATEROLE may alter any role, as far as the core knows.
subtest 'the lock' => sub {
	my $LOCKED = q{SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
		AND locktype = 'object' AND classid = 'pg_db_role_setting'::regclass};
	my $s = $dt->session;
	$dt->sql('DROP ROLE dirty_throttle; CREATE ROLE someone');
	my $owner = $dt->session;
	$owner->query('BEGIN; CREATE TEMP TABLE owned (); ALTER TABLE owned OWNER TO someone');
	is($s->run(q{SET lock_timeout = '20s'; BEGIN; ALTER ROLE someone RENAME TO somebody; ROLLBACK})->{sqlstate}, undef,
		'a rename does not wait for a transaction that has created what the role owns');
	$owner->quit;
	foreach (
		[ 'a setting of all roles', q{ALTER ROLE ALL SET work_mem = '1MB'}, 0 ],
		[ 'no setting of all roles', 'ALTER ROLE ALL RESET work_mem', 0 ],
		[ 'a setting of some role', q{ALTER ROLE someone SET work_mem = '1MB'}, 0 ],
		[ 'a role is renamed', 'ALTER ROLE someone RENAME TO somebody', 0 ],
		[ 'a group', q{SELECT alter_resource_group('g')}, 1 ])
	{
		my ($name, $sql, $locks) = @$_;

		is($s->query("BEGIN; $sql; $LOCKED") =~ s/^\n//r, $locks, "$name: locks");
		$s->query('ROLLBACK');
	}
	$dt->sql(q{CREATE ROLE creator LOGIN CREATEROLE; SELECT alter_resource_group('g')});
	my $creator = $dt->session(user => 'creator');
	foreach my $sql (
		q{ALTER ROLE dirty_throttle SET work_mem = '1MB'},
		'ALTER ROLE dirty_throttle RESET work_mem',
		'ALTER ROLE dirty_throttle RESET ALL',
		'DROP ROLE dirty_throttle')
	{
		is($creator->run("BEGIN; SAVEPOINT s; $sql")->{sqlstate}, '42501', "CREATEROLE: $sql");
		$creator->query('ROLLBACK TO s');
		is($s->run(q{SET lock_timeout = '100s'; SELECT alter_resource_group('g', burst => 7)})->{sqlstate},
			undef, '... and others change groups meanwhile');
		$creator->query('ROLLBACK');
	}
	reset_all();
	is($creator->run('DROP ROLE dirty_throttle')->{sqlstate}, '42501', 'CREATEROLE: DROP ROLE, without groups');
	$_->quit foreach $s, $creator;
	$dt->sql('DROP ROLE creator, someone');
};

# A grant follows its role.
subtest 'grants' => sub {
	$dt->limit($_ => 0) foreach 'g', 'h';
	$dt->sql(q{CREATE ROLE one; CREATE ROLE "Two" LOGIN IN ROLE one;
		SELECT grant_group_use('g', 'one'), grant_group_use('h', 'Two'), grant_group_use('h', 'one')});
	is(row(), qq{g grant=one\nh grant="Two" grant=one}, 'in the row');
	my $s = $dt->session(user => 'Two');
	is($s->run(q{SELECT join_group('g')})->{err}, '', 'granted by membership');
	$dt->sql('ALTER ROLE one RENAME TO "the first"');
	is(row(), qq{g grant="the first"\nh grant="Two" grant="the first"}, 'renamed');
	is($s->run(q{SELECT join_group(NULL), join_group('g')})->{err}, '', 'the same role');
	$dt->sql('BEGIN; DROP ROLE "the first"; ROLLBACK');
	is($dt->sql($GRANTS), 3, 'not dropped');
	$dt->sql('DROP ROLE "the first"; CREATE ROLE "the first"');
	is(row(), qq{g\nh grant="Two"}, 'dropped; a new role of that name has nothing');
	is($s->run(q{SELECT join_group('g')})->{sqlstate}, '42501', 'nor its members');

	# more roles than ever had room in shared memory
	$dt->sql(q{DO $$ BEGIN FOR i IN 1..200 LOOP EXECUTE 'CREATE ROLE r' || i;
			PERFORM grant_group_use('g', 'r' || i); END LOOP; END $$});
	is($dt->sql($GRANTS), 201, 'any number of grants');
	$dt->sql(q{DO $$ BEGIN FOR i IN 1..200 LOOP EXECUTE 'DROP ROLE r' || i; END LOOP; END $$});
	is($dt->sql($GRANTS), 1, 'gone with their roles');
	$s->quit;

	# one that was written twice, and one of a role that is not there
	$dt->sql(q{ALTER ROLE dirty_throttle SET dirty_throttle.groups = 'g grant="the first" grant="the first" grant=gone'});
	$dt->sql(q{SELECT revoke_group_use('g', 'the first'), revoke_group_use('g', 'gone')});
	is(row(), 'g', 'nothing is left of either');
	is($dt->session->run(q{SELECT revoke_group_use('g', 'gone')})->{sqlstate}, '42704', 'no role, and no grant');
	is($dt->session->run(q{SELECT grant_group_use('g', 'gone')})->{sqlstate}, '42704', 'nor a new one');
	reset_all();
};

# The parameters of the server that name a group keep its name, too.
subtest 'parameters' => sub {
	$dt->limit(g => 0);
	$dt->set_conf('dirty_throttle.autovacuum_group', 'g');
	like($dt->session->run(q{SELECT rename_resource_group('g', 'h')})->{err},
		qr/NOTICE: .*dirty_throttle\.autovacuum_group still refers to resource group "g"\n.*HINT: .*ALTER SYSTEM SET dirty_throttle\.autovacuum_group/s, 'a notice');
	unlike($dt->session->run(q{SELECT rename_resource_group('h', 'i')})->{err}, qr/still refers/, 'not of another name');
	$dt->sql('ALTER SYSTEM RESET dirty_throttle.autovacuum_group');
	reset_all();
};

is($dt->crashes, '', 'no crash');
$dt->finish;
