# Every message of the frontend/backend protocol as a place where somebody may
# try to go on without paying, by a statement whose kind writes, which pays before
# it begins, and by one that reads, and calls a function that writes: it begins at
# once, and the next statement pays before it begins.  The function-call protocol,
# which no statement hook sees; and commands that each owe more than
# max_commit_pause.
#
# expect-in-log: WARNING:  there is no transaction in progress
# takes-about: 22 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use Test::More;
use Time::HiRes qw(time);

my $rate = 4000;     # KB/s, 2 ms a block
my $owed = 40;       # blocks that a rewrite owes, 82 ms
my $low = $rate / 50; # KB/s, at which what is owed lasts for long
my $n = 5;           # blocks that other things dirty

# With wal_level minimal a rewrite writes its pages when it commits, and the
# next one dirties them again, for hint bits.
my $dt = DirtyThrottle::Life->new('protocol', conf => 'wal_level = replica');
my $block_kb = $dt->block_kb;

# What may be owed where work begins: less than the shortest pause, and what
# was dirtied while it was found out what to do.
my $small_kb = 0.010 * $rate + 1.2 * $block_kb;

$dt->limit(a => 0);
$dt->sql(
	qq{SELECT alter_resource_group('a', burst => 0);
	CREATE ROLE app LOGIN;
	ALTER ROLE app SET dirty_throttle."group" = 'a';
	GRANT SET ON PARAMETER dirty_throttle.transaction_grace TO app;
	GRANT CREATE ON SCHEMA public TO app;
	CREATE TABLE t (id int, pad text) WITH (fillfactor = 10);
	CREATE TABLE copied (id int, pad text) WITH (fillfactor = 10);
	CREATE TABLE noted (id int, pad text) WITH (fillfactor = 10);
	CREATE TABLE rewritten (id int, pad text) WITH (fillfactor = 10);
	INSERT INTO rewritten
		SELECT i, repeat('x', 900) FROM generate_series(1, $owed) i;
	INSERT INTO noted VALUES (1, 'x');
	ALTER TABLE noted OWNER TO app;
	ALTER TABLE rewritten OWNER TO app;
	CREATE TABLE one AS SELECT 1 AS id;
	GRANT ALL ON t, copied, one TO app;
	CREATE FUNCTION note() RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			RAISE NOTICE 'owed %', (SELECT dirty_debt
				FROM dirty_throttle_groups() WHERE group_name = 'a');
			RETURN 1;
		END \$\$;
	CREATE FUNCTION work(n int) RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			PERFORM note();
			INSERT INTO t
				SELECT i, repeat('x', 900) FROM generate_series(1, n) i;
			RETURN n;
		END \$\$;
	CREATE PROCEDURE work_proc(n int) LANGUAGE plpgsql
		AS 'BEGIN PERFORM work(n); COMMIT; PERFORM work(n); END';
	CREATE FUNCTION note_copy() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN PERFORM note(); RETURN NULL; END';
	CREATE TRIGGER before BEFORE INSERT ON copied
		EXECUTE FUNCTION note_copy()});

my $work_oid = $dt->sql("SELECT 'work(int)'::regprocedure::oid");
my $rewrite = 'ALTER TABLE rewritten ALTER id TYPE int USING id + 1';
my $rows = join '', map { "$_\t" . 'x' x 900 . "\n" } 1 .. $n;

sub fresh_limit
{
	my ($kb) = @_;

	$dt->sql('TRUNCATE t, copied');
	$dt->limit(a => 0);
	$dt->limit(a => $kb);
	$dt->sql('SELECT dirty_throttle_reset()');
}

# The code, and another transaction, pay for what they are charged for.
sub at_rate
{
	my ($kb, $w, $code, $name) = @_;

	$dt->sql('TRUNCATE t, copied');
	$dt->check_limit(
		$name, 'a',
		sub {
			$code->();
			$w->value($MAY_WRITE);
		},
		limit => $kb);
}

my $w = DirtyThrottle::Wire->new($dt->node, user => 'app');
# The first reads, as far as its kind says, and the second writes.
my $slips = "SELECT work($n)";
my $work = "$slips FROM one FOR UPDATE";
my %prepared = ($slips => 'slips', $work => 'earlier');
foreach my $sql (sort keys %prepared)
{
	$w->parse($prepared{$sql}, $sql)->sync;
	is($w->wait->{sqlstate}, undef, "$sql is prepared");
}

# --------------------------------------------------------------- every message

# What somebody may do to get something done: messages, and "wait" for the
# answer, whose options (a cancel) are the argument of the function.  These have
# the kind of the query in them.
sub messages_of
{
	my ($work) = @_;
	my $some_rows = $work =~ /FOR UPDATE/ ?
	  "SELECT work(1) FROM one, generate_series(1, $n) FOR UPDATE OF one" :
	  "SELECT work(1) FROM generate_series(1, $n)";

	return (
		'Query' => sub { $w->query($work, @_) },
		'Query of several statements' =>
		  sub { $w->query("SET work_mem = 5000; SELECT 1; $work", @_) },
		'Query with transactions' =>
		  sub { $w->query("BEGIN; $work; COMMIT; $work", @_) },
		'Parse, Bind, Execute, Sync' =>
		  sub { $w->extended($work)->sync->wait(@_) },
		'Bind, Execute, Sync' =>
		  sub { $w->bind('', $prepared{$work})->execute->sync->wait(@_) },
		'Parse, Describe, Bind, Describe, Execute, Close, Sync' => sub {
			$w->parse('s', $work)->describe('S', 's')->bind('p', 's')
			  ->describe('P', 'p')->execute('p')->close('P', 'p')
			  ->close('S', 's')->sync->wait(@_);
		},
		'Execute of some rows, and of more' => sub {
			$w->parse('', $some_rows)->bind('', '')->execute('', 1)
			  ->execute('', 1)->execute('', 0)->sync->wait(@_);
		},
		'Execute, Flush, Sync' => sub {
			$w->extended($work)->flush;
			my $r = $w->wait(until => 'C', @_);
			$w->sync->wait;
			return $r;
		},
		'several Executes, Sync' => sub {
			$w->extended($work)->extended($work)->extended($work)
			  ->sync->wait(@_);
		},
		'Execute of SET, Execute, Sync' => sub {
			$w->extended('SET work_mem = 5000')->extended($work)
			  ->sync->wait(@_);
		},
		'Execute of BEGIN, Execute, Execute of COMMIT, Sync' => sub {
			$w->extended('BEGIN')->extended($work)->extended('COMMIT')
			  ->sync->wait(@_);
		},
		'Execute of BEGIN and COMMIT, Execute, Sync' => sub {
			$w->extended('BEGIN')->extended('COMMIT')->extended($work)
			  ->sync->wait(@_);
		},
		'Execute of ROLLBACK, Execute, Sync' =>
		  sub { $w->extended('ROLLBACK')->extended($work)->sync->wait(@_) },
		'COPY TO' => sub { $w->query("COPY ($work) TO STDOUT", @_) },
		'EXECUTE' => sub { $w->query("EXECUTE $prepared{$work}", @_) },
		'DECLARE, FETCH' => sub {
			$w->query("BEGIN; DECLARE c CURSOR FOR $work; FETCH c; COMMIT", @_);
		},
		'EXPLAIN ANALYZE' => sub { $w->query("EXPLAIN ANALYZE $work", @_) });
}

# These write, whatever is in them.
my @writing = (
	messages_of($work),
	'COPY FROM, CopyData, CopyDone' => sub { copy_in('simple', 1, @_) },
	'Execute of COPY FROM, CopyData, CopyDone, Sync' =>
	  sub { copy_in('extended', 1, @_) },
	'COPY FROM, CopyData, CopyFail' => sub { copy_in('simple', 0, @_) },
	'DO' => sub { $w->query("DO 'BEGIN PERFORM work($n); END'", @_) },
	'CALL' => sub { $w->query("CALL work_proc($n)", @_) },
	'CREATE TABLE AS' => sub {
		$w->query("CREATE TEMP TABLE x ON COMMIT DROP AS $slips", @_);
	},
	'ALTER TABLE' => sub {
		$w->query('ALTER TABLE noted ALTER id TYPE int USING note()', @_);
	});

# A function call has no kind of its own.
my @slipping = (
	messages_of($slips),
	'FunctionCall' =>
	  sub { $w->function_call($work_oid, pack 'N', $n)->wait(@_) },
	'Execute of SET, FunctionCall' => sub {
		my $r = $w->extended('SET work_mem = 5000')
		  ->function_call($work_oid, pack 'N', $n)->wait(@_);
		# from 18 on the call leaves the transaction open, also after a Sync
		$w->query('COMMIT') if $w->status eq 'T';
		return $r;
	});

# The extended protocol needs a Sync after an error, which the server has
# skipped everything up to; CopyData that is no longer wanted is ignored.
sub copy_in
{
	my ($how, $succeed, @options) = @_;
	my $copy = 'COPY copied FROM STDIN';
	my $simple = $how eq 'simple';

	$simple ? $w->simple($copy) : $w->extended($copy)->flush;
	my $r = $w->wait(until => 'G', @options);
	if (!$r->{sqlstate})
	{
		$w->copy_data($rows);
		$succeed ? $w->copy_done : $w->copy_fail('no');
		$w->sync unless $simple;
		my $more = $w->wait;
		is($more->{sqlstate}, $succeed ? undef : '57014', "$copy: the end");
		unshift @{ $more->{notices} }, @{ $r->{notices} };
		return { %$more, sqlstate => undef };
	}
	$w->sync unless $simple;
	$w->wait;
	return $r;
}

sub pauses
{
	return $dt->group_row('a')->{paused};
}

# Evade a pause after a transaction: now nearly all of the rewrite is owed.
sub evade
{
	my ($name) = @_;
	my $r = $w->query("SET LOCAL dirty_throttle.transaction_grace = '20d'; $rewrite",
		cancel_when => \&pauses);

	is($r->{sqlstate}, undef, "$name: a rewrite whose pause was cancelled")
	  or diag $r->{errors}[0][1];
}

# What was owed where work began; the first figure.
sub owed_at_work
{
	my ($r) = @_;
	my ($kb) = map { $_->[1] =~ /^owed (.*)/ } @{ $r->{notices} };

	return $kb;
}

# A cancel before that has ended, and nothing is done; it is owed still.
sub check_gate
{
	my ($name, $begun, $low, $r) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($r->{sqlstate}, '57014', "$name: cancelled");
	is(owed_at_work($r), undef, "$name: before any work was done");
	cmp_ok($dt->group_row('a')->{dirty_debt}, '>', still_owed($begun, $low),
		"$name: cancelled: still owed, KB");
	$w->value('ROLLBACK') if $w->status ne 'I';
}

# The least that is owed of a rewrite that was evaded after this time.
sub still_owed
{
	my ($begun, $low) = @_;
	return 0.95 * $owed * $block_kb - $low * (time - $begun + 0.12);
}

# Three times, at the limit: what is owed where work, or something else, begins.
sub check_rounds
{
	my ($name, $send, $owed_by, $where) = @_;

	at_rate($rate, $w,
		sub {
			foreach my $round (1 .. 3)
			{
				evade($name);
				my $r = $send->();

				is($r->{sqlstate}, undef, "$name: no error")
				  or diag $r->{errors}[0][1];
				between($owed_by->($r), 0, $small_kb, "$name: owed where $where begins, KB");
			}
		},
		$name);
}

while (my ($name, $send) = splice @writing, 0, 2)
{
	check_rounds($name, $send, \&owed_at_work, 'work');

	# The debt lasts for long here.
	fresh_limit($low);
	my $begun = time;
	evade($name);
	check_gate($name, $begun, $low, $send->(cancel_when => \&pauses));
}

# It does not wait, and owes more than it may where it has written something.  What
# comes next waits, also SELECT.
while (my ($name, $send) = splice @slipping, 0, 2)
{
	$name .= ', slips';
	check_rounds($name, $send, sub { owed_at_work($w->query('SELECT note()')) }, 'the next statement');

	fresh_limit($low);
	my $begun = time;
	evade($name);
	my $r = $send->(cancel_when => \&pauses);
	cmp_ok(owed_at_work($r) // -1, '>', still_owed($begun, $low),
		"$name: owed where work begins, at once, KB");
	is($r->{sqlstate}, '57014', "$name: it pauses in flight, and is cancelled there");
	$w->value('ROLLBACK') if $w->status ne 'I';
	check_gate("$name: the next statement", $begun, $low,
		$w->query('SELECT note()', cancel_when => \&pauses));
}

# These dirty nothing: it does not matter whether they are paid for.  But what
# they do not pay is still owed, and the first of them do not pay, so that who
# is stopped can leave.
fresh_limit($rate);
my @harmless = (
	'Sync' => sub { $w->sync },
	'Flush, Sync' => sub { $w->flush->sync },
	'Execute of SET, Sync' => sub { $w->extended('SET work_mem = 5000')->sync },
	'SET' => sub { $w->simple('SET work_mem = 5000') },
	'RESET ALL' => sub { $w->simple('RESET ALL') },
	'an empty Query' => sub { $w->simple('') },
	'Parse, Sync' => sub { $w->parse('', $work)->sync },
	'Describe, Sync' => sub { $w->describe('S', 'earlier')->sync },
	'Bind, Close, Sync' =>
	  sub { $w->bind('p', 'earlier')->close('P', 'p')->sync },
	'Close, Sync' => sub { $w->close('S', 'none')->sync });
my $free = 5;
while (my ($name, $send) = splice @harmless, 0, 2)
{
	my $is_free = $free-- > 0;

	# here to pay would take minutes, also what is left from the last round
	fresh_limit(1) if $is_free;
	evade($name);
	$send->();
	my $r = $w->wait;
	is($r->{sqlstate}, undef, "$name: no error");
	if ($is_free)
	{
		between($dt->group_row('a')->{dirty_debt}, 1.2 * $small_kb,
			$owed * $block_kb + $small_kb, "$name: still owed, KB");
		$dt->limit(a => $rate);
	}
	$r = $w->query($work);
	between(owed_at_work($r), 0, $small_kb,
		"$name: owed where work begins after it, KB");
}

# ----------------------------------------------------------- the function call

# Large objects, 0.5 MB at a time.  The data must not be compressible.
my $lo_put = $dt->sql("SELECT 'lo_put(oid, bigint, bytea)'::regprocedure::oid");
my $lo = $w->value('SELECT lo_create(0)');
srand 1;
my $data = pack 'N*', map { int rand 2**32 } 1 .. 125000;
my $at = 0;
my $put_rate = 4000;    # KB/s

# With options, which cancel calls, go on until one was.
sub put_calls
{
	my ($calls, $before, @options) = @_;
	my ($failed, $most) = (0, 0);
	my $until = time + 180;

	while ($calls > 0 || (@options && !$failed && time < $until))
	{
		$before->();
		$w->function_call($lo_put, pack('N', $lo), pack('q>', $at), $data);
		my $r = $w->wait(@options);
		if (!$r->{sqlstate})
		{
			my $kb = $dt->group_row('a')->{dirty_debt};

			$most = $kb if $kb > $most;
			$calls--;
			$at += length $data;
			next;
		}
		$failed++;
		die $r->{errors}[0][1] if $r->{sqlstate} ne '57014' || $failed > 1000;
	}
	return ($failed, $most / (1.6 * length($data) / 1000));
}

at_rate($put_rate, $w, sub { put_calls(4, sub { }) }, 'lo_put()');

my %before = (
	'lo_put()' => sub { },
	'lo_put() after a SET that was not synced' =>
	  sub { $w->extended('SET work_mem = 5000') });
foreach my $name (sort keys %before)
{
	at_rate(
		$put_rate, $w,
		sub {
			my ($failed, $most) =
			  put_calls(4, $before{$name}, cancel_every => 0.03);
			cmp_ok($failed, '>=', 1,
				"$name, cancelled again and again: calls that were not made");
			cmp_ok($most, '<=', 1, "$name: the most that was owed, calls");
		},
		"$name, cancelled again and again");
}
is($w->value("SELECT length(lo_get($lo))"), $at, 'all of it is there');
$w->value("SELECT lo_unlink($lo)");

# ---------------------------------------------- work before there is a statement

# Bind checks the values of parameters, and plans: both may call functions, and
# those need not run any statement.  They do not wait; what comes next does.
$dt->sql(
	q{CREATE DOMAIN checked AS bytea CHECK (lo_from_bytea(0, VALUE) > 0);
	CREATE FUNCTION planned(bytea) RETURNS oid IMMUTABLE LANGUAGE plpgsql
		AS 'BEGIN RETURN lo_from_bytea(0, $1); END'});
my %parameters = (
	'a domain that is checked' => [ 'checked', 'SELECT $1 IS NULL' ],
	'a function that is planned' =>
	  [ 'bytea', 'SELECT 1 FROM pg_class WHERE planned($1) = 0' ]);
my $value = '\x' . unpack 'H*', substr $data, 0, 200000;
foreach my $name (sort keys %parameters)
{
	my ($parameter, $sql) = @{ $parameters{$name} };
	my $oid = $dt->sql("SELECT '$parameter'::regtype::oid");

	$w->message('P', "bound\0$sql\0" . pack 'nN', 1, $oid)->sync->wait;
	fresh_limit($low);
	my $begun = time;
	evade($name);
	my $before = $dt->group_row('a')->{blocks_dirtied};
	$w->bind('', 'bound', $value)->sync->wait(cancel_when => \&pauses);
	cmp_ok($dt->group_row('a')->{blocks_dirtied} - $before,
		'>', 5, "Bind, $name: blocks that it dirties at once");
	check_gate("Bind, $name: the next statement", $begun, $low,
		$w->query('SELECT note()', cancel_when => \&pauses));
	at_rate(
		$rate, $w,
		sub {
			foreach my $round (1 .. 3)
			{
				evade($name);
				my $r = $w->bind('', 'bound', $value)->sync->wait;

				is($r->{sqlstate}, undef, "Bind, $name: no error");
				between(owed_at_work($w->query('SELECT note()')), 0, $small_kb,
					"Bind, $name: owed where the next statement begins, KB");
			}
		},
		"Bind, $name");
	$w->close('S', 'bound')->sync->wait;
}

# ------------------------------------------------ a procedure that catches it

# It catches the cancel of each of its pauses, also of the one before its next
# transaction.  That is no way to get there without paying.
$dt->sql(
	qq{CREATE PROCEDURE catch(n int) LANGUAGE plpgsql AS \$\$
		BEGIN
			FOR i IN 1..n LOOP
				$rewrite;
				BEGIN
					PERFORM pg_sleep(10);
				EXCEPTION WHEN query_canceled THEN NULL;
				END;
				ROLLBACK;
				BEGIN
					PERFORM 1;
				EXCEPTION WHEN query_canceled THEN NULL;
				END;
			END LOOP;
		END \$\$});
fresh_limit($rate);
my ($most_kb, $cancels, $type) = (0, 0, '');
$w->simple('CALL catch(5)')->transmit;
while ($type ne 'Z' && $cancels < 100)
{
	my $row = $dt->group_row('a');

	$most_kb = $row->{dirty_debt} if $row->{dirty_debt} > $most_kb;
	if ($row->{paused})
	{
		$w->cancel;
		$cancels++;
	}
	($type) = $w->read(0.005);
	$type //= '';
}
cmp_ok($cancels, '>=', 1, 'a procedure that catches cancels: pauses');
cmp_ok($most_kb, '<=', 1.5 * $owed * $block_kb,
	'a procedure that catches cancels: the most that it owes, KB');
$w->value($MAY_WRITE);

# -------------------------------------- more at a time than max_commit_pause

my $big = 100;    # blocks, 0.2 s
$dt->sql(
	qq{TRUNCATE rewritten;
	INSERT INTO rewritten
		SELECT i, repeat('x', 900) FROM generate_series(1, $big) i;
	CREATE PROCEDURE rewrite_and_commit(n int) LANGUAGE plpgsql AS \$\$
		BEGIN
			FOR i IN 1..n LOOP
				$rewrite;
				COMMIT;
			END LOOP;
		END \$\$});
foreach my $max ('100ms', '0')
{
	$w->terminate;
	$dt->set_conf('dirty_throttle.max_commit_pause', $max);
	$w = DirtyThrottle::Wire->new($dt->node, user => 'app');

	my $most = 0;
	at_rate(
		$rate, $w,
		sub {
			foreach (1 .. 2)
			{
				$w->value('BEGIN');
				$w->value($MAY_WRITE);    # pays for what is owed
				$w->value("SET LOCAL dirty_throttle.transaction_grace = '20d'; $rewrite");
				my $pauses = $dt->group_row('a')->{pauses};
				$w->value('COMMIT');
				my $row = $dt->group_row('a');
				$most = $row->{dirty_debt} if $row->{dirty_debt} > $most;
				is($row->{pauses}, $pauses, 'no pause after a transaction')
				  if $max eq '0';
			}
		},
		"rewrites, max_commit_pause = $max");
	cmp_ok($most, '<=', 1.1 * $big * $block_kb, 'the most that was owed after it, KB');

	at_rate($rate, $w, sub { $w->value($rewrite) foreach 1, 2 },
		"rewrites without BEGIN, max_commit_pause = $max");
	at_rate($rate, $w, sub { $w->value('CALL rewrite_and_commit(2)') },
		"a procedure with COMMIT, max_commit_pause = $max");
}

# ------------------------------------------- a statement that executes itself

# PREPARE takes no such command, but the protocol does.
$dt->limit(a => 0);
foreach my $case (
	[ 'itself', '54001', s1 => 'EXECUTE s1' ],
	[ 'each other', '54001', s1 => 'EXECUTE s2', s2 => 'EXECUTE s1' ],
	[ 'explains itself', undef, s1 => 'EXPLAIN ANALYZE EXECUTE s1' ])
{
	my ($name, $sqlstate, %statements) = @$case;

	$w->terminate;
	$w = DirtyThrottle::Wire->new($dt->node, user => 'app');
	$w->parse($_, $statements{$_}) foreach sort keys %statements;
	$w->sync;
	is($w->wait->{sqlstate}, undef, "$name: parsed");
	is($w->bind('', 's1')->execute->sync->wait->{sqlstate}, $sqlstate, "$name: executed");
	is($w->query('EXECUTE s1')->{sqlstate}, $sqlstate, "$name: EXECUTE");
	is($w->query('SELECT 1')->{out}, 1, "$name: and the session is well");
}

$w->terminate;
$dt->finish;
