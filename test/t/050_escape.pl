# The escape suite: whatever a role without privileges does, in any order, it
# does not get out of its debt.
#
# Sequences of up to four of the actions below are run by sessions of such a
# role, each action dirtying a few blocks that take a few milliseconds.  Of
# every sequence is asserted:
#
#	paid		when a transaction begins its work, the session owes less
#				than the shortest pause, also of what it has left in its group
#				before, but for what it has only read (action parallel), which
#				may be paid later; and no more than the grace in any other group,
#				or in one that the transaction itself has joined, or if a command
#				that had passed the gate was canceled, as a SELECT does not wait
#				for that
#	rate		what was charged to a group, and is not owed by the end, is no
#				more than its rate comes to in the time that the sequence took,
#				and what a session had used when it learned of the limit
#	books		a group is charged with what was dirtied in it
#	not more	it sleeps no longer than the charges at the groups' rates take, and
#				what a process may oversleep on this machine
#
# All actions are run alone, and then, until the time is over, chosen sequences of
# two to four.  On demand, as variables for test/run:
#
#	DT_ESCAPE_SEED=n		others of these
#	DT_ESCAPE_SECONDS=n		after so many seconds it is over, 12
#	DT_ESCAPE_MINUTES=n		go on choosing for n minutes (beyond 18 also
#							PART_LIMIT=SECONDS in the environment)
#	DT_ESCAPE_LENGTH=n		all sequences of n actions, say 2, however long it takes
#	DT_ESCAPE_SEQUENCE='join_b cancel_after leave'
#							only this one, with all notices
#	DT_ESCAPE_WORKER=n		as the worker with that number does it, 0 to 3
#	DT_ESCAPE_REPEAT=n		n times, or until something is wrong
#
# expect-in-log: WARNING:  there is (no|already a) transaction in progress
# takes-about: 15 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Canary;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use Test::More;
use Time::HiRes qw(sleep time);

my $begun = time;
my $seed = $ENV{DT_ESCAPE_SEED} // 1;
my $seconds = $ENV{DT_ESCAPE_SECONDS} // 12;
$seconds = 60 * $ENV{DT_ESCAPE_MINUTES} if $ENV{DT_ESCAPE_MINUTES};
my $only = $ENV{DT_ESCAPE_SEQUENCE};

my $workers = $only ? 1 : 4;    # most of the time they sleep
my $which = $ENV{DT_ESCAPE_WORKER} // 0;    # runs the only one
my @letters = ('a' .. 'f');    # of each worker's groups; more than 5
my $n = 5;           # blocks that an action dirties at a time
my $n_hints = $only ? 100 : 4000;    # blocks with hint bits to be set
my $grace = 0.025;   # seconds

# With wal_level minimal commits dirty blocks, too; and full pages would be as
# much WAL as an action.
my $dt = DirtyThrottle::Life->new('escape', conf => q{
wal_level = replica
full_page_writes = off
log_statement = none
dirty_throttle.transaction_grace = 25ms
parallel_setup_cost = 0
parallel_tuple_cost = 0
max_worker_processes = 16
max_parallel_workers = 8
});
my $block_kb = $dt->block_kb;

# The workers differ in what is limited, in KB/s, and in what their sessions are
# in when they have joined nothing.  What a session may owe when it begins to
# work ("small") is less than the shortest pause, and what it has dirtied or
# written while it found out what to do.
my %dirty = (
	function => 'set_group_dirty_limit',
	used     => 'blocks_dirtied',
	unit_kb  => $block_kb,
	debt     => 'dirty_debt',
	rate     => 2000,       # 4.1 ms a block
	small_kb => 0.010 * 2000 + 1.5 * $block_kb,
	unnoticed_kb => 8 * $block_kb,
	books    => 1);
my %wal = (
	function => 'set_group_wal_limit',
	used     => 'wal_bytes',
	unit_kb  => 0.001,
	debt     => 'wal_debt',
	rate     => 250,
	small_kb => 0.010 * 250 + 1.5,
	unnoticed_kb => 4);
my @kinds = (
	{ %dirty, home => 'a' },
	{ %dirty, home => '' },
	{ %wal,   home => 'a' },
	{ %dirty, home => 'a' });

# ------------------------------------------------------------------ the actions

# Each is a function of the session; see package Escaper.  $n blocks are
# dirtied by work(), which tells in notices what it does, in which group.
my $work = "SELECT work($n)";
my $much = 'SELECT work(' . 4 * $n . ')';

my %actions = (
	plain => sub { $_[0]->do($work) },
	much => sub { $_[0]->do($much) },
	join_b => sub { $_[0]->do(q{SELECT join_group(mine('b'))}, $work) },
	join_c => sub { $_[0]->do(q{SELECT join_group(mine('c'))}, $work) },
	leave => sub { $_[0]->do('SELECT join_group(NULL)', $work) },
	tour => sub { $_[0]->do('SELECT tour()') },
	hops => sub {
		$_[0]->do("SELECT hop(2) FROM generate_series(1, $n)");
	},
	set_clause => sub { $_[0]->do("SELECT work_in_c($n)") },
	free_function => sub { $_[0]->do('SELECT work_in_none(2)', $work) },
	set_clause_call => sub { $_[0]->do("CALL work_in_b($n)") },
	savepoint => sub {
		$_[0]->do('BEGIN', $work, 'SAVEPOINT s',
			q{SELECT join_group(mine('b'))},
			$work, 'ROLLBACK TO s', $work, 'COMMIT');
	},
	begin => sub { $_[0]->do('BEGIN', $work) },
	commit => sub { $_[0]->do($work, 'COMMIT') },
	rollback => sub {
		$_[0]->do('BEGIN', q{SELECT join_group(mine('c'))}, $work, 'ROLLBACK');
	},
	cancel_after => sub { $_[0]->cancelled(0.006, $work) },
	cancel_in_flight => sub { $_[0]->cancelled(0.010, $much) },
	cancel_before => sub { $_[0]->cancelled(0.001, $work) },
	timeout => sub {
		$_[0]->do('SET statement_timeout = 10', $much,
			'RESET statement_timeout');
	},
	error => sub { $_[0]->do("$work; SELECT 1/0") },
	caught => sub {
		$_[0]->do("DO 'BEGIN
			BEGIN
				PERFORM join_group(mine(\$\$b\$\$)), work($n);
				PERFORM 1/0;
			EXCEPTION WHEN division_by_zero THEN
				PERFORM work($n);
			END;
		END'");
	},
	caught_cancel => sub {
		$_[0]->cancelled(0.010, "DO 'BEGIN
			BEGIN
				PERFORM work(4 * $n);
			EXCEPTION WHEN query_canceled THEN
				PERFORM work($n);
			END;
		END'");
	},
	# what fails is in one expression with the work; x := true is a check
	caught_own_cancel => sub { $_[0]->catch('query_canceled',
		'pg_cancel_backend(pg_backend_pid())') },
	caught_lock_timeout => sub {
		my ($e) = @_;
		$e->do('SET lock_timeout = 2');
		$e->catch('lock_not_available', 'pg_advisory_lock(:n) IS NULL');
		$e->do('RESET lock_timeout');
	},
	caught_timeout => sub {
		my ($e) = @_;
		$e->do('SET statement_timeout = 10');
		$e->catch('query_canceled', 'work(3 * 5) > 0');
		$e->do('RESET statement_timeout');
	},
	commits => sub { $_[0]->do('CALL commits()') },
	hold_cursor => sub {
		$_[0]->do('BEGIN', "DECLARE c CURSOR WITH HOLD FOR $work",
			'COMMIT', 'FETCH c', 'CLOSE c');
	},
	prepare => sub {
		$_[0]->do('BEGIN', $work, "PREPARE TRANSACTION 'p:n'",
			"COMMIT PREPARED 'p:n'");
	},
	function_call => sub {
		my ($e) = @_;
		$e->{w}->function_call($e->{work_oid}, pack 'N', $n);
		$e->answer;
	},
	call_join => sub {
		my ($e) = @_;
		$e->{w}->function_call($e->{join_oid}, "b$e->{i}");
		$e->answer;
		$e->{w}->function_call($e->{work_oid}, pack 'N', $n);
		$e->answer;
	},
	call_set_clause => sub {
		my ($e) = @_;
		$e->{w}->function_call($e->{set_clause_oid}, pack 'N', $n);
		$e->answer;
	},
	set_then_call => sub {
		my ($e) = @_;
		# after an error the server would skip the call, too, and wait
		my $before = $e->{w}->status;
		return if $before eq 'E';
		$e->{w}->extended('SET work_mem = 5000')
		  ->function_call($e->{work_oid}, pack 'N', $n);
		$e->answer;
		# from 18 on the call leaves the transaction open that the SET began
		$e->do('COMMIT') if $before eq 'I' && $e->{w}->status eq 'T';
	},
	pipeline => sub {
		my ($e) = @_;
		$e->{w}->extended($work)->extended(q{SELECT join_group(mine('b'))})
		  ->extended($work)->sync;
		$e->answer;
	},
	pipeline_commit => sub {
		my ($e) = @_;
		$e->{w}->extended('BEGIN')->extended($work)->extended('COMMIT')
		  ->extended($work)->sync;
		$e->answer;
	},
	prepared => sub {
		my ($e) = @_;
		$e->{w}->close('S', 's')->parse('s', $work)->sync;
		$e->answer;
		$e->{w}->bind('', 's')->execute->sync;
		$e->answer;
	},
	many_statements => sub {
		$_[0]->do("$work; SELECT join_group(mine('c')); COMMIT; $work");
	},
	copy => sub {
		my ($e) = @_;
		$e->{w}->simple('COPY copied FROM STDIN');
		$e->answer(until => 'G');
		return $e->answer if $e->{failed};
		$e->{w}->copy_data("$_\t" . 'x' x 900 . "\n") foreach 1 .. $n;
		$e->{w}->copy_done;
		$e->answer;
	},
	rewrite => sub {
		my ($e) = @_;
		$e->do('ALTER TABLE rewritten ALTER id TYPE int'
			  . " USING CASE WHEN id = 1 THEN note('rewrite $n') ELSE id END");
		$e->did($n) unless $e->{failed};
	},
	parallel => sub {
		my ($e) = @_;
		$e->do("SELECT note('do $n')", "SET $e->{parallel} = on",
			sprintf('SELECT count(pad) FROM hints WHERE id BETWEEN %d AND %d',
				$e->{hints} + 1, $e->{hints} + $n),
			"RESET $e->{parallel}");
		$e->{hints} = ($e->{hints} + $n) % $n_hints;
	},
	temp_table => sub {
		$_[0]->do('CREATE TEMP TABLE IF NOT EXISTS x (id int)',
			$work, 'DROP TABLE IF EXISTS x');
	},
	discard => sub { $_[0]->do('DISCARD ALL', $work) },
	reset => sub { $_[0]->do('RESET ALL', $work) },
	reconnect => sub { $_[0]->reconnect; $_[0]->do($work) },
	# in one expression with the work
	terminate_self => sub {
		my ($e) = @_;
		$e->reconnect("SELECT work($n), pg_terminate_backend(pg_backend_pid())");
		$e->do($work);
	});
my @names = sort keys %actions;

# Their transactions join a group before they work in it.
my %joins_within = map { $_ => 1 } qw(call_set_clause caught commits hops
  many_statements pipeline rollback savepoint set_clause set_clause_call tour);

# ----------------------------------------------------- what the actions run on

# One schema, one role and some groups for each worker.
sub create_world
{
	my ($i) = @_;
	my $kind = $kinds[$i];

	foreach (@letters)
	{
		$dt->limit("$_$i" => 0);
		$dt->sql("SELECT alter_resource_group('$_$i', burst => 0)");
	}
	$dt->sql("CREATE ROLE app$i LOGIN");
	$dt->sql("SELECT grant_group_use('$_$i', 'app$i')") foreach @letters;
	$dt->sql(qq{ALTER ROLE app$i SET dirty_throttle."group" = '$kind->{home}$i'})
	  if $kind->{home};
	$dt->sql(
		qq{
		ALTER ROLE app$i SET search_path = s$i, public;
		CREATE SCHEMA s$i AUTHORIZATION app$i;
		SET search_path = s$i, public;
		CREATE TABLE worked (id int, pad text) WITH (fillfactor = 10);
		CREATE TABLE copied (id int, pad text) WITH (fillfactor = 10);
		CREATE TABLE rewritten (id int, pad text) WITH (fillfactor = 10);
		CREATE TABLE hints (id int PRIMARY KEY, pad text)
			WITH (fillfactor = 10);
		INSERT INTO rewritten
			SELECT i, repeat('x', 900) FROM generate_series(1, $n) i;
		INSERT INTO hints
			SELECT i, repeat('x', 900) FROM generate_series(1, $n_hints) i;
		ALTER TABLE worked OWNER TO app$i;
		ALTER TABLE copied OWNER TO app$i;
		ALTER TABLE rewritten OWNER TO app$i;
		GRANT SELECT ON hints TO app$i;

		CREATE FUNCTION mine(name text) RETURNS text LANGUAGE sql
			AS 'SELECT name || $i';

		-- what is done, in which group and transaction, when, and what the
		-- groups are owed
		CREATE FUNCTION note(what text) RETURNS int LANGUAGE plpgsql AS \$\$
			DECLARE
				name text := current_setting('dirty_throttle.group');
				owed text := '';
			BEGIN
				IF what NOT LIKE 'did%' THEN
					SELECT string_agg(group_name || '=' || $kind->{debt}, ' ')
						INTO owed FROM dirty_throttle_groups()
						WHERE group_name LIKE '_$i';
				END IF;
				RAISE NOTICE '% in % xact % at % owed %', what,
					coalesce(nullif(name, ''), 'none'), pg_current_xact_id(),
					extract(epoch FROM clock_timestamp()), owed;
				RETURN 1;
			END \$\$;
		CREATE FUNCTION work(n int) RETURNS int LANGUAGE plpgsql AS \$\$
			BEGIN
				PERFORM note('do ' || n);
				INSERT INTO s$i.worked
					SELECT i, repeat('x', 900) FROM generate_series(1, n) i;
				RETURN note('did ' || n);
			END \$\$;
		CREATE FUNCTION work_in_c(n int) RETURNS int
			LANGUAGE plpgsql SECURITY DEFINER
			SET dirty_throttle."group" = 'c$i'
			AS 'BEGIN RETURN s$i.work(n); END';
		CREATE FUNCTION work_in_none(n int) RETURNS int
			LANGUAGE plpgsql SECURITY DEFINER
			SET dirty_throttle."group" = ''
			AS 'BEGIN RETURN s$i.work(n); END';
		CREATE PROCEDURE work_in_b(n int)
			LANGUAGE plpgsql SECURITY DEFINER
			SET dirty_throttle."group" = 'b$i'
			AS 'BEGIN PERFORM s$i.work(n); END';
		CREATE FUNCTION hop(n int) RETURNS int LANGUAGE plpgsql AS \$\$
			BEGIN
				PERFORM join_group('b$i');
				PERFORM work(n);
				PERFORM join_group(NULL);
				RETURN 1;
			END \$\$;
		CREATE FUNCTION tour() RETURNS int LANGUAGE plpgsql AS \$\$
			DECLARE letter text;
			BEGIN
				FOREACH letter IN ARRAY '{@{[join ',', @letters]}}'::text[] LOOP
					PERFORM join_group(letter || $i);
					PERFORM work(2);
				END LOOP;
				PERFORM join_group(NULL);
				RETURN 1;
			END \$\$;
		CREATE PROCEDURE commits() LANGUAGE plpgsql AS \$\$
			BEGIN
				PERFORM work($n);
				COMMIT;
				PERFORM join_group('b$i'), work($n);
				ROLLBACK;
				PERFORM work($n);
			END \$\$;
		CREATE FUNCTION note_copy() RETURNS trigger LANGUAGE plpgsql AS \$\$
			BEGIN
				PERFORM note(TG_ARGV[0]);
				RETURN NULL;
			END \$\$;
		CREATE TRIGGER before BEFORE INSERT ON copied
			EXECUTE FUNCTION note_copy('do $n');
		CREATE TRIGGER after AFTER INSERT ON copied
			EXECUTE FUNCTION note_copy('did $n');
		RESET search_path});
}

# -------------------------------------------------------------------- a session

package Escaper;

use DirtyThrottle::Canary;
use Time::HiRes qw(sleep time);

sub new
{
	my ($class, $i) = @_;
	my $self = bless {
		%{ $kinds[$i] },
		i      => $i,
		groups => [ map { "$_$i" } @letters ],
		hints  => 0
	}, $class;

	$self->{admin} = DirtyThrottle::Wire->new($dt->node);
	$self->{work_oid} =
	  $self->{admin}->value("SELECT 's$i.work(int)'::regprocedure::oid");
	$self->{set_clause_oid} =
	  $self->{admin}->value("SELECT 's$i.work_in_c(int)'::regprocedure::oid");
	$self->{join_oid} =
	  $self->{admin}->value("SELECT 'join_group(text)'::regprocedure::oid");
	$self->{parallel} = $self->{admin}->value(
		q{SELECT name FROM pg_settings
		  WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
	$self->{owed_by_gone} = {};
	# what they wait for in vain
	$self->{admin}->value("SELECT pg_advisory_lock($i)");
	$self->connect;
	return $self;
}

sub connect
{
	my ($self) = @_;
	$self->{w} = DirtyThrottle::Wire->new($dt->node, user => "app$self->{i}");
}

# Run these, one after the other.  What they say is noted, errors are welcome.
sub do
{
	my ($self, @sql) = @_;

	foreach my $sql (@sql)
	{
		$self->{w}->simple($sql =~ s/:n/$self->{i}/gr);
		$self->answer;
	}
}

# Work, and fail in the same expression: in one that catches that.
sub catch
{
	my ($self, $condition, $fails) = @_;

	$self->do("DO 'DECLARE
			x bool;
		BEGIN
			FOR i IN 1 .. 2 LOOP
				BEGIN
					x := work($n) > 0 AND $fails;
					x := true;
				EXCEPTION WHEN $condition THEN
					x := work(1) > 0;
				END;
			END LOOP;
		END'");
}

sub cancelled
{
	my ($self, $after, $sql) = @_;

	$self->{w}->simple($sql);
	$self->answer(cancel_at => [$after]);
}

sub answer
{
	my ($self, %opt) = @_;

	$self->take($self->{w}->wait(%opt));
}

sub take
{
	my ($self, $r) = @_;

	$self->{failed} = $r->{sqlstate};
	push @{ $self->{notes} },
	  grep { /^(do|did|rewrite|end) / } map { $_->[1] } @{ $r->{notices} };
	push @{ $self->{notes} }, map { "# $_->[0] $_->[1]" } @{ $r->{errors} };
}

# It has dirtied that in the group it has been in last.
sub did
{
	my ($self, $blocks) = @_;
	my ($last) = grep { !/^#/ } reverse @{ $self->{notes} };

	push @{ $self->{notes} }, $last =~ s/^rewrite \d+/did $blocks/r;
}

# What the session owes when it ends, its groups pay.  A statement may end it.
sub reconnect
{
	my ($self, $sql) = @_;
	my $w = $self->{w};
	my $pid = $w->pid;

	if ($sql)
	{
		my $r = $w->new_result;
		my $type = '';

		$w->simple($sql);
		eval {
			while ($type ne 'Z')
			{
				($type, my $body) = $w->read or die 'no answer';
				$w->take($r, $type, $body);
			}
		};
		$self->take($r);
	}
	eval { $w->terminate };
	sleep 0.001
	  while $self->{admin}->value(
		"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid");
	my %row = $self->rows;
	$self->{owed_by_gone}{$_} = { kb => $row{$_}[1], at => time }
	  foreach keys %row;
	$self->connect;
	push @{ $self->{notes} }, '# connected';
}

# At most what of that can be left at a time: half of the rate is theirs.
sub owed_by_gone
{
	my ($self, $group, $at) = @_;
	my $gone = $self->{owed_by_gone}{$group} // return 0;
	my $left = $gone->{kb} - 0.45 * $self->{rate} * ($at - $gone->{at});

	return $left > 0 ? $left : 0;
}

# The groups: name => [ used, debt in KB, ms that members have slept ].
sub rows
{
	my ($self) = @_;

	return map { /(.*)\|(.*)\|(.*)\|(.*)/ ? ($1 => [ $2, $3, $4 ]) : () }
	  split /\n/,
	  $self->{admin}->value(
		"SELECT group_name, $self->{used}, $self->{debt}, paused_time
		 FROM dirty_throttle_groups() WHERE group_name LIKE '_$self->{i}'");
}

# Nobody owes anything, and nothing was saved up in the groups that these
# actions come to.
sub set_limits
{
	my ($self, $kb, @sequence) = @_;
	my $last = grep({ $_ eq 'tour' } @sequence) ? 'z' : 'c';

	# each in force for a moment
	foreach my $limit (0, $kb)
	{
		$self->{admin}->value('SELECT ' . join ', ',
			map { "$self->{function}('$_', $limit)" }
			grep { substr($_, 0, 1) le $last } @{ $self->{groups} });
	}
	$self->{owed_by_gone} = {};
}

# Back to where each sequence begins.
sub clean
{
	my ($self) = @_;

	$self->{w}->query('ROLLBACK') if $self->{w}->status ne 'I';
	$self->{w}->query('DISCARD ALL');
	return unless $self->{runs}++ % 200 == 0;
	$self->{admin}->value("TRUNCATE s$self->{i}.worked, s$self->{i}.copied");
}

# Run a sequence: what is wrong with it, as a list.  Also its figures.
sub run
{
	my ($self, $kb, @sequence) = @_;
	my @wrong;
	my %result = (wrong => \@wrong);

	$self->clean;
	$self->{notes} = [];
	my %before = $self->rows;
	my $overslept = overslept_ms(0);
	my $start = monotonic_time();
	$self->set_limits($kb, @sequence);
	foreach (@sequence)
	{
		push @{ $self->{notes} }, "# action $_";
		$actions{$_}->($self);
	}
	$self->{w}->query('ROLLBACK') if $self->{w}->status ne 'I';
	$self->do("SELECT note('end 0')");
	my %after = $self->rows;
	my $end = monotonic_time();

	@result{qw(ms ideal_ms)} = (0, 0);
	my ($paid, $books) = $self->judge_notes;
	push @wrong, @$paid if $kb;
	my $extra = 0;
	foreach my $group (@{ $self->{groups} })
	{
		my $used = $after{$group}[0] - $before{$group}[0];
		my $used_kb = $used * $self->{unit_kb};
		my $owed_kb = $after{$group}[1];

		if ($self->{books})
		{
			my $did = $books->{did}{$group} // 0;

			$extra += $used - ($books->{do}{$group} // 0);
			push @wrong, "books: $used blocks charged to $group of $did"
			  if $used < $did;
		}
		next unless $kb;
		$result{ms} += $after{$group}[2] - $before{$group}[2];
		$result{ideal_ms} += $used_kb / $kb * 1000;
		push @wrong,
		  sprintf('rate: %.1f KB charged to %s, of which it owes %.1f,'
			  . ' in %.1f ms', $used_kb, $group, $owed_kb, ($end - $start) * 1000)
		  if $used_kb - $owed_kb > $kb * ($end - $start) + $self->{unnoticed_kb};
	}
	push @wrong,
	  sprintf('not more: it sleeps %.1f ms for %.1f', @result{qw(ms ideal_ms)})
	  if $kb && $result{ms} > $result{ideal_ms} + $DirtyThrottle::OVERSLEPT_MS
	  && $result{ms} > $result{ideal_ms} + $DirtyThrottle::OVERSLEPT_MS
	  + overslept_ms() - $overslept;
	push @wrong, "books: $extra blocks more charged than dirtied"
	  if $extra > 6 + 4 * @sequence;
	$result{extra} = $extra;
	return \%result;
}

# The notes: what is wrong with what was owed when transactions began to work,
# and how much was done in which group.
sub judge_notes
{
	my ($self) = @_;
	my (@wrong, %books);
	my $xact = '';
	my $doing = '';
	my $read_kb = 0;
	my ($joins, $command, $left);

	foreach (@{ $self->{notes} })
	{
		($joins, $command) = ($joins_within{$1}, $1 eq 'caught_cancel') if /^# action (.*)/;
		$left = 1 if $command && /^# 57014/;
		$read_kb = $n * $block_kb if /^# action parallel/;
		next if /^#/;
		my ($what, $blocks, $group, $this, $at, $owed) =
		  /^(\w+) (\d+) in (\w+) xact (\S+) at (\S+) owed (.*)/
		  or die "not a note: $_";
		$what = 'do' if $what eq 'rewrite';
		$books{$what}{$group} += $blocks
		  if $what ne 'did' || $doing eq "$blocks $group";
		$doing = "$blocks $group";
		next if $this eq $xact;
		$xact = $this;
		# a rewrite writes to the catalogs first
		next if /^rewrite/;
		foreach (split / /, $owed)
		{
			my ($owed_to, $kb) = split /=/;
			my $bound = $self->{small_kb} + $read_kb;

			$bound += $grace * $self->{rate} + $self->{unnoticed_kb}
			  + $self->owed_by_gone($owed_to, $at)
			  if $joins || $left || $owed_to ne $group;
			push @wrong,
			  sprintf('paid: a transaction begins in %s while %s is owed %.1f KB'
				  . ' and not %.1f', $group, $owed_to, $kb, $bound)
			  if $kb > $bound;
		}
		$left = 0;
	}
	return (\@wrong, \%books);
}

package main;

# --------------------------------------------------------- which sequences

# There are so many of a length; and the one with that number, from 0.
sub count_sequences
{
	my ($length) = @_;
	return @names**$length;
}

sub sequence
{
	my ($length, $number) = @_;
	my @sequence;

	foreach (1 .. $length)
	{
		unshift @sequence, $names[ $number % @names ];
		$number = int($number / @names);
	}
	return @sequence;
}

# What a worker does: its part of all short ones, then of the chosen ones until
# the time is over.  It prints a line for each to its pipe.
sub worker
{
	my ($i, $out) = @_;
	my $e = Escaper->new($i);

	$e->run(0, @names);    # caches and catalogs
	my $try = sub {
		my (@sequence) = @_;
		my $r = $e->run($e->{rate}, @sequence);
		my $text = join '; ', @{ $r->{wrong} };

		printf $out "%d\t%.1f\t%.1f\t%s\t%s\n", scalar @sequence,
		  $r->{ms}, $r->{ideal_ms}, "@sequence", $text && "worker $i: $text";
		print $out map { "$_\n" } @{ $e->{notes} } if $text;
	};

	my $length = $ENV{DT_ESCAPE_LENGTH};
	foreach my $short ($length // 1)
	{
		for (my $j = $i; $j < count_sequences($short); $j += $workers)
		{
			$try->(sequence($short, $j));
		}
	}
	return if $length;
	srand($seed + $i);
	while (time - $begun < $seconds)
	{
		$try->(map { $names[ rand @names ] } 1 .. 2 + int rand 3);
	}
}

# ----------------------------------------------------------------------- main

create_world($_) foreach $only ? $which : (0 .. $workers - 1);
$dt->sql('VACUUM (FREEZE) pg_class, pg_attribute, pg_type, pg_proc');
$dt->sql('CHECKPOINT');

if ($only)
{
	my $e = Escaper->new($which);
	my @sequence = split ' ', $only;

	my $r;

	$e->run(0, @names);
	foreach (1 .. $ENV{DT_ESCAPE_REPEAT} // 1)
	{
		$r = $e->run($e->{rate}, @sequence);
		last if @{ $r->{wrong} };
	}
	note $_ foreach @{ $e->{notes} };
	note sprintf '%.1f ms slept, ideal %.1f ms, %d blocks more than dirtied',
	  $r->{ms}, $r->{ideal_ms}, $r->{extra};
	is(join('; ', @{ $r->{wrong} }), '', "@sequence");
	$e->{w}->terminate;
	$e->{admin}->terminate;
	$dt->finish;
	exit;
}

overslept_ms(0);    # all workers ask the same one
note "DT_ESCAPE_SEED=$seed, " . @names . ' actions';
my @pipes;
foreach my $i (0 .. $workers - 1)
{
	my $pid = open my $pipe, '-|';
	die "fork: $!" unless defined $pid;
	if (!$pid)
	{
		$SIG{ALRM} = 'DEFAULT';
		STDOUT->autoflush(1);
		eval { worker($i, \*STDOUT); print "end\n"; 1 } or print "died: $@";
		require POSIX;
		POSIX::_exit(0);    # the server and the results are the parent's
	}
	push @pipes, $pipe;
}

my (%count, %wrong, %sum);
my $done = 0;
foreach my $pipe (@pipes)
{
	my $last;    # the text of the last one with something wrong

	while (my $line = <$pipe>)
	{
		chomp $line;
		my ($length, $ms, $ideal_ms, $sequence, $text) = split /\t/, $line;
		if (!defined $sequence)
		{
			$line eq 'end' ? $done++ : $last ? ($$last .= "\n$line") : note $line;
			next;
		}
		$count{$length}++;
		$sum{ms} += $ms;
		$sum{ideal_ms} += $ideal_ms;
		next unless $text;
		push @{ $wrong{$length} }, "$sequence: $text";
		$last = \$wrong{$length}[-1];
	}
	close $pipe;
}
is($done, $workers, 'all workers have come to their end');
foreach my $length (sort keys %count)
{
	is(join("\n", grep { defined } @{ $wrong{$length} // [] }[ 0 .. 19 ]), '',
		"$count{$length} sequences of $length actions, seed $seed: none gets out of debt");
}
note sprintf 'all together slept %.1f s; at the limits it would be %.1f s',
  map { $_ / 1000 } @sum{qw(ms ideal_ms)};

$dt->finish;
