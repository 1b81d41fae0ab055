# Sessions do anything for some minutes, disturbed in all ways: called by
# test/soak with the minutes, a seed and the number of sessions.
#
# The books.  The groups keep1, keep2, keep3, par, par0 and parc exist all the
# time with the same name and limit, and nobody resets counters, while g1 .. g6
# are altered, renamed, dropped and created.  test/soak_ledger.c counts what
# sessions dirty between joining and leaving, by the core's counter.
# Exact, to the block:
#	keep1, keep2, keep3  what most sessions use, one after the other, by all
#	       ways to set the parameter; cancelled, terminated, failed and rolled
#	       back work, commits, aborts and exits included; without parallel
#	       workers
#	par, par0  parallel queries that nobody cancels, or that end well before
#	       their transaction fails
# Between bounds:
#	parc   parallel queries, builds of indexes and VACUUMs that are cancelled,
#	       fail or are terminated: a worker's blocks are charged by itself, but
#	       do not get into the leader's counter then.  The same goes for what
#	       a worker that builds or vacuums dirties while it starts; see
#	       test/soak_ledger.c.  So: the leaders' counters at least, that plus
#	       all that workers have dirtied at most
# Not covered: the groups g1 .. g6, which take their counters along when they
# are dropped, and that of autovacuum, which the ledger cannot see.
#
# The limits.  What a group has been charged with and does not owe any more
# is, in any length of time, at most its limit x time + 300 ms x limit.  This
# is looked at from each time that throttling was switched on (a second later,
# when what was dirtied meanwhile has been charged to nobody) to the next time
# that it is switched off.

use strict;
use warnings FATAL => 'all';

use Digest::MD5 qw(md5);
use FindBin;
use lib "$FindBin::RealBin/perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(sleep time);

my ($minutes, $seed, $count) = @ARGV;
my %limit = (keep1 => 3000, keep2 => 20000, keep3 => 0, par => 20000, par0 => 0, parc => 20000);
my @wild = map { "g$_" } 1 .. 6;
my $longest = 60;    # seconds that a session may take for anything

# What may happen: errors that the load asks for, by a cancel (also of the CLOSE
# or DEALLOCATE, so that the name is taken: 42P03, 42P05), two sessions that want
# the same, or the statements themselves.
my %expected = map { $_ => 1 } qw(
  0A000 21000 22012 23505 24000 25001 25P01 25P02 26000 2D000 34000 3B001
  3D000 40001 40P01 42704 42710 42P01 42P03 42P04 42P05 42P07 53400 55000 55006
  55P03 57014 57P01);
# What the core says as an internal error when a catalog row has gone meanwhile.
my $concurrently = qr/tuple concurrently (updated|deleted)|could not open relation with OID|cache lookup failed for/;
my $declared = qr/WARNING:[ ]+(resource\ group\ "(g[1-6]|h)"\ does\ not\ exist
	|there\ is\ (no|already\ a)\ transaction\ in\ progress
	|SET\ LOCAL\ can\ only\ be\ used\ in\ transaction\ blocks
	|PID\ \d+\ is\ not\ a\ PostgreSQL
	|skipping\ (vacuum|analyze|reindex)\ of|cannot\ reindex\ invalid\ index)/x;

sub pick { return $_[ rand @_ ] }

# ---------------------------------------------------------------- statements

sub any_group
{
	my $chance = rand;

	return $chance < 0.6 ? pick(qw(keep1 keep2 keep3)) : $chance < 0.9 ? pick(@wild) : '';
}

# The kinds of statements are at the end of this file: for which class of
# sessions, a weight, a name and the SQL, in which {a|b} is a choice.
my %kinds;
foreach (split /\n(?=\S)/, join '', <DATA>)
{
	my ($classes, $weight, $name, $sql) = /^(\S+) (\S+) (.+?): (.*)/s or die $_;
	push @{ $kinds{$_} }, [ $weight, $name, $sql ] foreach split /,/, $classes;
}

sub expand
{
	my ($self, $sql) = @_;
	my %names = (
		t => sub { "t$self->{n}" },    # the session's own
		s => sub { pick(qw(s1 s2 s3)) },    # everybody's
		any => sub { pick("t$self->{n}", "t$self->{n}", pick(qw(s1 s2 s3))) },
		group => \&any_group,
		keep => sub { pick(qw(keep1 keep2 keep3)) },
		wild => sub { pick(@wild) },
		rows => sub {
			my $first = int rand 500;
			sprintf "SELECT i, i %% 10, repeat('x', %d) FROM generate_series(%d, %d) i",
			  rand 900, $first, $first + pick(0, 4, 50, 300, 900);
		},
		numbers => sub { join "\n", '', 1 .. pick(10, 400, 3000), '\.' },
		gid => sub { "$self->{n} $self->{statements}" });

	1 while $sql =~ s/\{([^{}]*)\}/pick(split m{\|}, $1, -1)/e;
	$sql =~ s/<(\w+)>/$names{$1}->()/ge;
	return $sql;
}

# Each session's statements depend on the seed and on its number only.
sub statement
{
	my ($self) = @_;
	my $weights = 0;

	srand unpack 'L', md5("$seed $self->{n} " . $self->{statements}++);
	$weights += $_->[0] foreach @{ $kinds{ $self->{class} } };
	my $chance = rand $weights;
	foreach (@{ $kinds{ $self->{class} } })
	{
		return ($_->[1], expand($self, $_->[2])) if ($chance -= $_->[0]) < 0;
	}
}

# ------------------------------------------------------------------- the server

srand $seed;
my $dt = DirtyThrottle::Life->new(
	'soak',
	init => [ allows_streaming => 1 ],
	conf => qq{
shared_preload_libraries = 'dirty_throttle, soak_ledger'
dirty_throttle.max_groups = 13
dirty_throttle.max_commit_pause = 1s
dirty_throttle.transaction_grace = 20ms
max_connections = @{[ $count + 40 ]}
max_prepared_transactions = @{[ $count + 40 ]}
max_worker_processes = 16
max_parallel_workers = 8
# pages are written and dirtied again
shared_buffers = 32MB
bgwriter_lru_maxpages = 100
max_wal_size = 512MB
min_wal_size = 64MB
deadlock_timeout = 20ms
autovacuum = on
autovacuum_naptime = 5s
log_statement = none
log_min_error_statement = panic
log_line_prefix = '%m [%p] %e '
});
my $node = $dt->node;
$dt->sql("CREATE FUNCTION soak_ledger(text, bool) RETURNS bigint LANGUAGE C STRICT AS 'soak_ledger'");
$dt->limit($_, $limit{$_} // 5000) foreach keys %limit, @wild, 'auto';
$dt->set_conf('dirty_throttle.autovacuum_group', 'auto');

# Impossible rows of the groups' view.
$dt->sql(
	q{CREATE FUNCTION nonsense() RETURNS SETOF dirty_throttle_groups LANGUAGE sql AS
	'SELECT * FROM dirty_throttle_groups
		WHERE members < 0 OR paused < 0 OR dirty_debt < 0 OR dirty_rate < 0'});
$dt->sql("CREATE TABLE $_ (id int PRIMARY KEY, k int, v text) WITH (fillfactor = 20)") foreach qw(s1 s2 s3);
$dt->sql(
	'CREATE TABLE parts (id int, k int, v text) PARTITION BY RANGE (id);
	CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (500) WITH (fillfactor = 20);
	CREATE TABLE parts2 PARTITION OF parts DEFAULT WITH (fillfactor = 20);
	CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO s3 VALUES (NEW.id, 0, TG_OP) ON CONFLICT DO NOTHING; RETURN NULL; END$$;
	CREATE TRIGGER log_it AFTER INSERT OR UPDATE ON parts FOR EACH ROW
		WHEN (NEW.id % 10 = 0) EXECUTE FUNCTION log_it()');

# The users' timeouts end what would sleep for long at the lowest limits; but
# nothing disturbs "par".  Even TRUNCATE would build the index of a TOAST table
# with a parallel worker.
my @timeouts = (q{statement_timeout = '8s'}, q{lock_timeout = '1s'});
my $build_alone = 'max_parallel_maintenance_workers = 0';
my @serial = ('max_parallel_workers_per_gather = 0', $build_alone);
my @parallel = ('max_parallel_workers_per_gather = 2', 'parallel_setup_cost = 0',
	'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0', 'min_parallel_index_scan_size = 0');
foreach my $role ([ none => '', @timeouts, @serial ],
	(map { [ $_ => $_, @timeouts, @serial ] } qw(keep1 keep2 keep3)),
	[ par => 'par', @parallel, $build_alone ], [ parc => 'parc', @timeouts, @parallel ])
{
	my ($name, $group, @settings) = @$role;

	$dt->sql("CREATE ROLE user_$name SUPERUSER LOGIN");
	$dt->sql("ALTER ROLE user_$name SET $_") foreach qq{dirty_throttle."group" = '$group'}, @settings;
	$dt->sql(
		qq{CREATE PROCEDURE in_$name(t text) LANGUAGE plpgsql SET dirty_throttle."group" = '$group'
		AS \$\$ BEGIN
			EXECUTE format('INSERT INTO %I SELECT i, 1, repeat(''p'', 400) FROM generate_series(1, 100) i', t);
		END \$\$});
}

# A tenth of the sessions are in "par", a seventh in "parc".
my @sessions = map {
	my $class = $_ % 10 == 0 ? 'par' : $_ % 7 == 0 ? 'parc' : 'user';
	my $role = $class eq 'user' ? (qw(keep1 keep2 keep3 none))[ $_ % 4 ] : $class;
	$dt->sql("CREATE TABLE t$_ (id int, k int, v text) WITH (fillfactor = 20)");
	{ n => $_, class => $class, user => "user_$role", statements => 0, busy => 0 }
} 1 .. $count;
my $admin = { n => 0, class => 'admin', user => 'postgres', statements => 0, busy => 0 };

# ------------------------------------------------------------------ the load

my (%ok, %errors, %window, %paid, %time);
my %n = map { $_ => 0 } qw(statements lost hung unexpected nonsense switched);
my %excess = map { $_ => 0 } grep { $limit{$_} > 0 } keys %limit;

sub complain
{
	my ($what, @more) = @_;

	$n{$what}++;
	diag join ' ', "$what:", @more if $n{$what} <= 20;
}

sub connect_session
{
	my ($self) = @_;

	$self->{session}->quit if $self->{session};
	$self->{terminated} = 0;
	$self->{session} = $dt->session(user => $self->{user});
}

# Take the result of a session that has ended what it did.
sub take_result
{
	my ($self) = @_;
	my $result = $self->{session}->wait;
	my $failed = 0;

	$self->{busy} = 0;
	$n{statements} += $result->{types} =~ tr/Z//;
	while ($result->{err} =~ /(?:ERROR|FATAL|PANIC):  (\w{5}): (.*)/g)
	{
		$failed = 1;
		$errors{$1}++;
		complain('unexpected', $self->{sql}, $result->{err})
		  unless $expected{$1} && $self->{class} ne 'par' || $2 =~ $concurrently;
	}
	$ok{ $self->{kind} } += !$failed;
	$self->{failed} = $failed;
	return if $self->{session}->alive;
	$n{lost}++;
	complain('unexpected', 'lost:', $self->{sql}, $result->{err})
	  unless $self->{terminated};
	connect_session($self);
}

# Start a session's next statement.
sub next_statement
{
	my ($self) = @_;

	($self->{kind}, $self->{sql}) = statement($self);
	$ok{ $self->{kind} } //= 0;
	if ($self->{sql} eq 'reconnect')
	{
		connect_session($self);
		$ok{ $self->{kind} }++;
		return;
	}
	# an error may have left a transaction open
	$self->{sql} = "ROLLBACK;\n$self->{sql}" if $self->{failed};
	$self->{session}->send($self->{sql});
	$self->{busy} = time;
}

# One that has no end is ended, and complained about.
sub check_hung
{
	my ($self) = @_;
	return if time - $self->{busy} < $longest;
	my $pid = $self->{session}->pid;
	complain('hung', $self->{sql}, $dt->sql(
			"SELECT a, s FROM pg_stat_activity a LEFT JOIN dirty_throttle_sessions s USING (pid) WHERE pid = $pid"));
	$dt->sql("SELECT pg_terminate_backend($pid)");
	$self->{terminated} = 1;
	$self->{busy} = time;
}

# Somebody else's cancel or termination, at any moment.
sub disturb
{
	my $s = pick(grep { $_->{class} ne 'par' && $_->{busy} } @sessions) // return;

	$s->{terminated} = 1 if rand() < 0.15;
	$dt->sql(sprintf 'SELECT pg_%s_backend(%d)',
		$s->{terminated} ? 'terminate' : 'cancel', $s->{session}->pid);
}

# What the view says of the groups with constant limits: blocks and debt are
# read together.
sub constant_groups
{
	my ($columns) = @_;
	return map { [ split /\|/ ] } split /\n/, $dt->sql(
		"SELECT group_name, $columns FROM dirty_throttle_groups() WHERE group_name ~ '^(keep|par)'");
}

# What was paid while throttling was on: from here ...
sub open_window
{
	%window = ();
	foreach my $g (constant_groups('blocks_dirtied, dirty_debt'))
	{
		$window{ $g->[0] } = [ time, @$g[ 1, 2 ] ];
	}
}

# ... to here.  (Time of the query included.)
sub close_window
{
	foreach my $g (constant_groups('blocks_dirtied, dirty_debt'))
	{
		my ($name, $blocks, $debt) = @$g;
		my $paid = ($blocks - $window{$name}[1]) * $dt->block_kb - ($debt - $window{$name}[2]);
		my $time = time - $window{$name}[0];

		$paid{$name} += $paid;
		$time{$name} += $time;
		next unless $limit{$name};
		my $excess = ($paid - $limit{$name} * $time) / $limit{$name} * 1000;
		$excess{$name} = $excess if $excess > $excess{$name};
	}
}

# Throttling is switched off for a moment; and the grace is changed.
sub switch
{
	close_window();
	$dt->set_conf('dirty_throttle.enabled', 'off');
	$dt->set_conf('dirty_throttle.transaction_grace', pick(qw(0 20ms 50ms 300ms)));
	$n{switched}++;
}

# Nothing impossible is shown, no table grows for ever, and no prepared
# transaction is left behind.
sub look_after
{
	my $nonsense = $dt->sql('SELECT nonsense()')
	  . $dt->sql(
		'SELECT s FROM dirty_throttle_sessions s
		 WHERE blocks_dirtied < 0 OR pauses < 0 OR paused_time < 0 OR dirty_debt < 0')
	  . $dt->sql(
		'SELECT g FROM dirty_throttle_groups g
		 WHERE blocks_dirtied < 0 OR pauses < 0 OR paused_time < 0');
	complain('nonsense', $nonsense) if $nonsense ne '';

	foreach my $sql (split /\n/, $dt->sql(
			q{SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts
			  WHERE prepared < now() - interval '2 s'
			  UNION ALL
			  SELECT format('TRUNCATE %I', relname) FROM pg_class
			  WHERE relkind = 'r' AND relname ~ '^(t\d|s\d|parts\d)' AND relpages > 2000}))
	{
		# whoever uses it may be the first
		eval { $dt->sql($sql) };
		warn $@ if $@ && $@ !~ /42704|42P01|55000|55P03|40P01/;
	}
}

my $start = time;
my $end = $start + $minutes * 60;

sub progress
{
	my ($blocks, $pauses, $paused) = split /\|/, $dt->sql(
		'SELECT sum(blocks_dirtied), sum(pauses), sum(paused) FROM dirty_throttle_groups() WHERE instance IS NULL');
	note sprintf('%d s: %d statements, %d sessions lost, %d blocks charged, %d pauses, %d pausing; errors: %s',
		time - $start, @n{qw(statements lost)}, $blocks, $pauses, $paused,
		join ' ', map { "$_=$errors{$_}" } sort keys %errors);
}

$dt->sql(q{SET lock_timeout = '200ms'});
connect_session($_) foreach @sessions, $admin;
open_window();
my %due = (look => $start + 1, progress => $start + 10, disturb => $start,
	switch => $start + 10, back => 0, window => 0);
while (time < $end)
{
	my $now = time;

	foreach my $s (@sessions, $admin)
	{
		if ($s->{busy})
		{
			check_hung($s), next unless $s->{session}->finished;
			take_result($s);
		}
		# the administrator takes his time
		next_statement($s) unless $s == $admin && rand > 0.2;
	}
	if ($now > $due{disturb})
	{
		disturb();
		$due{disturb} = $now + rand 0.3;
	}
	if ($now > $due{look})
	{
		look_after();
		$due{look} = $now + 1;
	}
	if ($now > $due{progress})
	{
		progress();
		$due{progress} += 10;
	}

	# off; on again; and a second later everybody has been charged for what
	# was dirtied while it was off
	if ($due{switch} && $now > $due{switch})
	{
		switch();
		@due{qw(switch back)} = (0, $now + rand 1.5);
	}
	elsif ($due{back} && $now > $due{back})
	{
		$dt->set_conf('dirty_throttle.enabled', 'on');
		@due{qw(back window)} = (0, time + 1);
	}
	elsif ($due{window} && $now > $due{window})
	{
		open_window();
		@due{qw(window switch)} = (0, $now + 15 + rand 15);
	}
	sleep 0.005;
}
close_window() if %window && $due{switch};
progress();

# ---------------------------------------------------------------- the results

# Let everybody go, and what is owed be paid soon: at limits that the
# administrator does not change any more.
take_result($admin) if $admin->{busy} && $admin->{session}->finished($longest);
$dt->set_conf('dirty_throttle.enabled', 'on');
$dt->sql('SELECT set_group_dirty_limit(group_name, 1000000) FROM dirty_throttle_groups');
my $patience = time + $longest;
foreach my $s (grep { $_->{busy} } @sessions, $admin)
{
	next if $s->{session}->finished($patience > time ? $patience - time : 0) && (take_result($s), 1);
	$s->{busy} = 0;
	check_hung($s);
}
is($n{hung}, 0, 'every session comes to its end');
is($n{unexpected}, 0, 'no unexpected error');
is($n{nonsense}, 0, 'the views have shown nothing impossible');
is( $dt->sql(
		'SELECT count(*) FROM (SELECT group_name, count(*) AS members, sum(blocks_dirtied) AS blocks,
			sum(s.pauses) AS pauses, sum(s.paused_time) AS time
			FROM dirty_throttle_sessions s GROUP BY 1) s
		 RIGHT JOIN dirty_throttle_groups() g USING (group_name)
		 WHERE coalesce(s.members, 0) <> g.members OR paused <> 0 OR blocks > blocks_dirtied
		    OR s.pauses > g.pauses OR time > paused_time + 0.001'),
	0, 'no sum over sessions exceeds that of their group');

$_->{session}->quit foreach @sessions, $admin;
$dt->set_conf('autovacuum', 'off');
is($dt->left_over($longest), '', 'no member, pause or debt is left');
is($dt->sql('SELECT count(*) FROM dirty_throttle_sessions'), 0, 'nor any row of a session');

foreach my $g (sort { $a->[0] cmp $b->[0] } constant_groups('blocks_dirtied, pauses, paused_time'))
{
	my ($name, $charged) = @$g;
	my ($ledger, $workers) = split /\|/, $dt->sql("SELECT soak_ledger('$name', false), soak_ledger('$name', true)");

	note sprintf('%s: %d blocks charged, %d dirtied by the core\'s counters (%d by parallel workers), %d pauses, %d s',
		$name, $charged, $ledger, $workers, $g->[2], $g->[3] / 1000);
	if ($name eq 'parc')
	{
		between($charged, $ledger, $ledger + $workers, "$name: blocks charged");
	}
	else
	{
		is($charged, $ledger, "$name: blocks charged");
	}
	cmp_ok($charged, '>', 100 * $minutes, "$name: and these are many");
	cmp_ok($workers, '>', 0, "$name: parallel workers have dirtied some") if $name =~ /par/;
	next unless $limit{$name};
	cmp_ok($g->[2], '>', 0, "$name: somebody has paused");
	note sprintf('%s: %.0f KB paid in %.0f s, %.1f %% of the limit', $name, $paid{$name}, $time{$name},
		100 * $paid{$name} / ($limit{$name} * $time{$name}));
	cmp_ok($excess{$name}, '<', 300, sprintf('%s: at most %.0f ms beyond the limit', $name, $excess{$name}));
}

note join ', ', map { "$_ $ok{$_}" } sort keys %ok;
is(join(', ', grep { !$ok{$_} && !/fails|in time/ } sort keys %ok), '', 'each kind of statement has succeeded')
  if $n{statements} >= 20000;
note "throttling was switched off $n{switched} times";

# The log of a server that has not crashed, nor warned of what we do not know.
$dt->stop;
my ($unexpected, @unexpected) = 0;
open my $log, '<', $node->logfile or die "server log: $!";
while (<$log>)
{
	next unless /(PANIC:|TRAP:|was terminated by signal|leak|not closed)|\] (\w{5}) (ERROR|FATAL|WARNING): /;
	next if !$1 && ($3 eq 'WARNING' ? /$declared/ : $expected{$2} || /$concurrently/);
	push @unexpected, $_ if $unexpected++ < 20;
}
is("@unexpected", '', 'nothing unexpected in the server log');
done_testing();

__DATA__
user 12 SET: SET dirty_throttle."group" = '<group>'
user 2 RESET: {RESET dirty_throttle."group"|RESET ALL|DISCARD ALL}
user 2 set_config: BEGIN; SELECT set_config('dirty_throttle.group', '<group>', {true|false});
	INSERT INTO <t> <rows>; {COMMIT|ROLLBACK}
user 4 SET LOCAL: BEGIN; INSERT INTO <t> <rows>; SET LOCAL dirty_throttle."group" = '<group>';
	UPDATE <t> SET k = k + 1 WHERE id % 9 = 3; INSERT INTO <t> <rows>; {COMMIT|ROLLBACK}
user 3 SAVEPOINT and SET: BEGIN; INSERT INTO <t> <rows>; SAVEPOINT a;
	SET dirty_throttle."group" = '<group>'; INSERT INTO <t> <rows>;
	{ROLLBACK TO a|RELEASE a|SELECT 1/0}; INSERT INTO <t> <rows>; {COMMIT|ROLLBACK}
user 2 a procedure SET: CALL in_<keep>('<t>')
user 2 set_config between commits: DO $$ BEGIN FOR n IN 1 .. 8 LOOP
	PERFORM set_config('dirty_throttle.group', '<keep>', n % 2 = 0);
	INSERT INTO <t> <rows>; COMMIT; END LOOP; END $$
user 14 INSERT: INSERT INTO <t> <rows>
user 6 UPDATE: UPDATE <any> SET k = k + 1 WHERE id % 7 = {0|2|4|6}
user 4 DELETE: DELETE FROM <any> WHERE id % 5 = {0|1|3}
user 4 ON CONFLICT: INSERT INTO <s> AS s <rows> ON CONFLICT (id) DO {NOTHING|UPDATE SET k = s.k + 1, v = excluded.v}
user 3 MERGE: MERGE INTO <s> t USING (SELECT id, max(k) AS k FROM <t> GROUP BY id) f ON t.id = f.id
	WHEN MATCHED AND f.k > 5 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm'
	WHEN NOT MATCHED THEN INSERT VALUES (f.id, f.k, 'm')
user 2 WITH: WITH d AS (DELETE FROM <s> WHERE id % 3 = 0 RETURNING *) INSERT INTO <t> SELECT * FROM d
user 3 deadlocks: BEGIN; UPDATE <s> SET k = 0 WHERE id % 4 = 1; UPDATE <s> SET k = 1 WHERE id % 4 = 1; COMMIT
user 4 COPY FROM: COPY <t> (id) FROM STDIN;<numbers>
user 2 COPY TO: COPY (SELECT * FROM <any>) TO STDOUT
user 3 cursors: BEGIN; DECLARE c CURSOR FOR SELECT id FROM <t> FOR UPDATE; MOVE 30 FROM c;
	UPDATE <t> SET k = 0 WHERE CURRENT OF c; SET dirty_throttle."group" = '<group>';
	MOVE 30 FROM c; DELETE FROM <t> WHERE CURRENT OF c; {COMMIT|ROLLBACK}
user 2 WITH HOLD: BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT id, k FROM <any>; COMMIT; FETCH 5 FROM h; CLOSE h
user 4 DO with COMMIT: DO $$ BEGIN FOR n IN 1 .. 20 LOOP INSERT INTO <t> <rows>;
	IF n % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF; END LOOP; END $$
user 3 DO with errors: DO $$ BEGIN FOR n IN 1 .. 9 LOOP BEGIN INSERT INTO <t> <rows>; PERFORM 1 / (n % 2);
	EXCEPTION WHEN division_by_zero THEN END; END LOOP; END $$
user 3 ROLLBACK TO: BEGIN; SAVEPOINT a; INSERT INTO <t> <rows>; {SELECT 1/0;|}
	ROLLBACK TO a; INSERT INTO <t> <rows>; {COMMIT|ROLLBACK}
user 2 an error: INSERT INTO <t> <rows>; UPDATE <t> SET k = 1 / (id - 505)
user 3 EXECUTE: PREPARE p AS INSERT INTO <t> <rows>; EXECUTE p; EXECUTE p; EXECUTE p;
	EXECUTE p; EXECUTE p; EXECUTE p; DEALLOCATE p
user 2 PREPARE TRANSACTION: BEGIN; INSERT INTO <t> <rows>; PREPARE TRANSACTION '<gid>';
	{COMMIT|ROLLBACK} PREPARED '<gid>'
user 5 scans: {SELECT count(*) FROM <any>|SELECT id FROM <any> WHERE v = 'no'|SELECT count(*) FROM
	(SELECT 1 FROM <any> FOR SHARE) l|EXPLAIN (ANALYZE, BUFFERS) SELECT count(*) FROM <any> WHERE k > 3}
user 2 temporary tables: CREATE TEMP TABLE IF NOT EXISTS x (LIKE <t>); INSERT INTO x <rows>;
	{DROP TABLE x|TRUNCATE x|DISCARD TEMP}
user 2 partitions, triggers: INSERT INTO parts <rows>; {DELETE FROM parts|TRUNCATE parts|UPDATE parts
	SET id = (id + 500) % 1000}
user 1 large objects: SELECT lo_unlink(lo_from_bytea(0, decode(repeat('ab', 60000), 'hex')))
user 2 DROP and CREATE: BEGIN; DROP TABLE IF EXISTS <t> CASCADE;
	CREATE TABLE <t> (id int, k int, v text) WITH (fillfactor = 20); INSERT INTO <t> <rows>; {COMMIT|ROLLBACK}
user 2 CREATE TABLE AS: BEGIN; DROP TABLE IF EXISTS <t>_as; CREATE TABLE <t>_as AS SELECT * FROM <any>; {COMMIT|ROLLBACK}
user 3 rewrites: ALTER TABLE {<any> ALTER k TYPE int USING k + 1|<t> SET LOGGED|<t> SET UNLOGGED}
user 5 CREATE INDEX: CREATE INDEX IF NOT EXISTS <t>_{btree ON <t> USING btree (k)|hash ON <t> USING hash (k)|brin ON
	<t> USING brin (id)|gin ON <t> USING gin (string_to_array(v, 'x'))|gist ON <t> USING gist (box(point(id,
	k), point(k, id)))|spgist ON <t> USING spgist (point(id, k))}
user 1 CREATE INDEX, shared: CREATE INDEX IF NOT EXISTS s1_hash ON s1 USING hash (k); DROP INDEX s1_hash
user 4 DROP INDEX: DROP INDEX IF EXISTS <t>_btree, <t>_hash, <t>_brin, <t>_gin, <t>_gist, <t>_spgist, <t>_cic
user 2 CONCURRENTLY: {CREATE INDEX CONCURRENTLY IF NOT EXISTS <t>_cic ON <t> (v)|REINDEX TABLE CONCURRENTLY
	<t>|DROP INDEX CONCURRENTLY IF EXISTS <t>_cic}
user 2 REINDEX: REINDEX TABLE <any>
user 3 TRUNCATE: TRUNCATE <any>
user 4 VACUUM: VACUUM {|ANALYZE|(FREEZE)|(SKIP_LOCKED)} <any>
user 1 VACUUM FULL: VACUUM FULL <any>
user 2 ANALYZE: ANALYZE <any>
user 2 CLUSTER: {CLUSTER s2 USING s2_pkey|CREATE INDEX IF NOT EXISTS <t>_btree ON <t> (k); CLUSTER <t> USING <t>_btree}
user 2 REFRESH: CREATE MATERIALIZED VIEW IF NOT EXISTS <t>_m AS SELECT id % 99 AS id, count(*) FROM <t> GROUP BY 1;
	CREATE UNIQUE INDEX IF NOT EXISTS <t>_mi ON <t>_m (id); REFRESH MATERIALIZED VIEW {|CONCURRENTLY} <t>_m
user 0.5 CREATE DATABASE: DROP DATABASE IF EXISTS d<t>; CREATE DATABASE d<t>; DROP DATABASE d<t>
user 2 statement_timeout: BEGIN; INSERT INTO <t> <rows>; SET LOCAL statement_timeout = {5|20|100};
	UPDATE <t> SET k = 2; COMMIT
user 1 lock_timeout: BEGIN; SET LOCAL lock_timeout = 5; TRUNCATE <s>; COMMIT
user 2 cancel: SELECT pg_cancel_backend(pid) FROM pg_stat_activity
	WHERE usename ~ 'keep|none|parc' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1
user 2 views: {SELECT sum(dirty_debt) FROM dirty_throttle_sessions|SELECT sum(dirty_rate) FROM
	dirty_throttle_groups|SHOW dirty_throttle."group"}
user 1 reconnect: reconnect
par,parc 3 parallel query: TRUNCATE <t>; INSERT INTO <t> SELECT i, i % 10, repeat('x', 500) FROM generate_series(1, 1000) i;
	CHECKPOINT; SELECT count(*) FROM <t> WHERE v <> 'y'
par,parc 2 parallel query, LIMIT: DELETE FROM <t> WHERE id % 3 = 0; CHECKPOINT;
	SELECT id FROM <t> WHERE k = 5 LIMIT 3; SELECT count(*) FROM <t>
par,parc 2 parallel CREATE TABLE AS: UPDATE <t> SET k = k + 1 WHERE id % 2 = 0; CHECKPOINT;
	CREATE TABLE <t>_as AS SELECT * FROM <t>; DROP TABLE <t>_as
parc 2 parallel CREATE INDEX: INSERT INTO <t> SELECT generate_series(1, 5000); CHECKPOINT;
	CREATE INDEX i_<t> ON <t> (v); DROP INDEX i_<t>
parc 1 parallel VACUUM: CREATE INDEX i_<t> ON <t> (id); CREATE INDEX k_<t> ON <t> (k); DELETE FROM <t> WHERE id % 3 = 1;
	CHECKPOINT; VACUUM (PARALLEL 2) <t>; DROP INDEX i_<t>, k_<t>
par,parc 1 parallel, a subtransaction: UPDATE <t> SET k = 0; CHECKPOINT; DO $$ BEGIN
	PERFORM count(*) FROM <t> WHERE v <> 'y'; PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN END $$
par 2 SET, parallel: SET dirty_throttle."group" = '{par|par0|par0}'
parc 2 parallel query fails: UPDATE <t> SET k = 0; CHECKPOINT; SELECT count(*) FROM <t> WHERE 1 / (id - 700) > 1
parc 2 parallel query in time: UPDATE <t> SET k = 0; CHECKPOINT; BEGIN; SET LOCAL statement_timeout = {5|10|20};
	SELECT count(*) FROM <t> WHERE v ~ 'x*y'; COMMIT
parc 1 SET, parallel: {SET dirty_throttle."group" = '<wild>'|RESET dirty_throttle."group"}
admin 4 a limit: SELECT set_group_dirty_limit('<wild>', {0|0.5|1|1000|5000|50000|16777216})
admin 1 no limit: SELECT reset_group_dirty_limit('<wild>')
admin 1 a new group: SELECT create_resource_group('<wild>', {0|1|5000})
admin 2 a rename: SELECT rename_resource_group({'<wild>', '<wild>'|'<wild>', 'h'|'h', '<wild>'})
admin 1 a drop: SELECT drop_resource_group('<wild>')
admin 2 a drop by force: SELECT drop_resource_group('<wild>', true, force => true);
	{|SELECT set_group_dirty_limit('<wild>', 5000)}
admin 1 reload: SELECT pg_reload_conf()
admin 1 checkpoint: CHECKPOINT
