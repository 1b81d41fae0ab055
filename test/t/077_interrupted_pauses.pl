# What ends a pause, what does not, and who comes to one at all:
#
#	- an interrupt of an unknown kind ends a pause in flight;
#	- messages of a parallel worker do not, and one that is there when a pause
#	  begins does not hide it;
#	- a client that has gone is noticed in each kind of pause, without
#	  client_connection_check_interval;
#	- who catches his own cancels, timeouts and errors pays in between;
#	- function calls and the triggers of a Sync pause, also when
#	  track_activities is off.
#
# takes-about: 16 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pauses;
use DirtyThrottle::Wire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $patience = 180;    # s, for what must happen at all

my $library = compile_library('interrupt_later');

my $dt = DirtyThrottle::Life->new('interrupted_pauses',
	conf => $DirtyThrottle::Pauses::CONF . "autovacuum = off\n");

sub is_gone
{
	my ($pid) = @_;
	return $dt->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0;
}

# ------------------------------------------------------- an unknown interrupt

SKIP:
{
	skip 'no library can be compiled here', 2 unless $library;
	$dt->sql("CREATE FUNCTION interrupt_later(ms int) RETURNS void
		LANGUAGE c AS '$library'");
	$dt->table('unknown');
	$dt->limit(unknown => 0.02);
	my $s = $dt->session(group => 'unknown');

	$s->query(q{SET idle_in_transaction_session_timeout = '1h'});
	# 400 s for a block
	$s->send("SELECT interrupt_later(2000); " . insert_sql('unknown', 100));
	ok($dt->wait_paused($s, 'in flight', $patience), 'unknown interrupt: it pauses');
	ok(poll_until(sub { is_gone($s->pid) }, $patience),
		'unknown interrupt: the core serves it');
	$s->quit;
}

# ------------------------------------------------- messages of parallel workers

SKIP:
{
	skip 'no library can be compiled here', 2 unless $library;
	$dt->sql("CREATE FUNCTION messages_at_checks() RETURNS void
		LANGUAGE c AS '$library'");
	$dt->table('spoken');
	$dt->limit(spoken => 100);
	my $s = $dt->session(group => 'spoken');

	$s->query('SELECT messages_at_checks()');
	# it hands over no rows
	$s->send(q{COPY spoken (pad) FROM PROGRAM 'seq 1 1000000'});
	ok($dt->wait_paused($s, 'in flight', $patience),
		'a message is there when a pause begins: the pause is seen');
	is($dt->sql('SELECT paused_since > xact_start
		FROM dirty_throttle_sessions() JOIN pg_stat_activity USING (pid)
		WHERE pid = ' . $s->pid), 't', 'and since when');
	$dt->cancel_ms($s);
	$s->quit;
}

# A worker sends messages and does nothing else, while the leader reads rows that
# nobody has looked at: 98 MB.
{
	$dt->sql(q{CREATE TABLE fresh WITH (fillfactor = 10, parallel_workers = 1)
			AS SELECT i, repeat('x', 500) FROM generate_series(1, 12000) i;
		CREATE FUNCTION speaks(leader int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS $$
		BEGIN
			WHILE pg_backend_pid() <> leader LOOP
				RAISE NOTICE 'something';
			END LOOP;
			RETURN 0;
		END $$});
	$dt->limit(speaks => 100);
	my $s = $dt->session(group => 'speaks');

	$s->query('SET max_parallel_workers_per_gather = 1; SET parallel_setup_cost = 0;
		SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
	$s->send('SELECT count(*) FROM fresh WHERE speaks(' . $s->pid . ') = 1');
	ok($dt->wait_paused($s, 'in flight', $patience), 'messages of a worker: the leader pauses');
	sleep 3;
	cmp_ok($dt->group_row('speaks')->{blocks_dirtied}, '<', 6000,
		'they do not end its pauses');
	$dt->cancel_ms($s);
	$s->quit;
}

# ------------------------------------------------------------- the client goes

{
	my $pauses = DirtyThrottle::Pauses->new($dt);
	my @all;

	foreach my $kind (@{ $pauses->kinds })
	{
		my $s = $pauses->session($kind,
			sql => q{SET dirty_throttle.max_commit_pause = '1h'});

		$pauses->put($s, $kind);
		# it would take 400 s
		$dt->limit($kind->{group} => 0.2) if $kind->{by} eq 'limit';
		push @all, [ $kind, $s ];
	}
	$_->[1]->hang_up foreach @all;
	my $deadline = time + $patience;
	foreach (@all)
	{
		my ($kind, $s) = @$_;
		my $left = $deadline - time;

		ok(poll_until(sub { is_gone($s->pid) }, $left > 1 ? $left : 1),
			"the client goes, $kind->{name}: so does its session");
		$pauses->let_go($kind);
	}
}

# ------------------------------------------------------------ what is caught

$dt->set_conf('dirty_throttle.transaction_grace', '50ms');
{
	my $holder = $dt->session;

	$holder->query('SELECT pg_advisory_lock(1)');
	$dt->limit(caught => 0);
	$dt->sql("SELECT set_group_wal_limit('caught', 1000)");
	$dt->sql("SELECT alter_resource_group('caught', burst => 0)");
	foreach (
		[ 'cancel', 'query_canceled', 'pg_cancel_backend(pg_backend_pid())' ],
		[ 'lock_timeout', 'lock_not_available', 'pg_advisory_lock(1) IS NULL' ])
	{
		my ($name, $condition, $fails) = @$_;
		my $s = $dt->session(group => 'caught');

		# 3 MB, in pieces without a check
		my $r = $s->run(
			"SET lock_timeout = '1ms';
			DO \$\$
			DECLARE
				x bool;
			BEGIN
				FOR i IN 1 .. 30 LOOP
					BEGIN
						x := pg_logical_emit_message(false, '', repeat('x', 100000)) IS NULL
							OR $fails;
						x := true;		-- a check
					EXCEPTION WHEN $condition THEN
						NULL;
					END;
				END LOOP;
				RAISE NOTICE 'ms: %',
					extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000;
			END \$\$");
		my ($ms) = $r->{err} =~ /ms: (\d+)/;
		is($r->{sqlstate}, undef, "$name is caught, and nothing else happens");
		note "$name: $ms ms";
		cmp_ok($ms // 0, '>', 1500, "$name is caught: it pays as it goes, ms");
		$s->quit;
	}
	$holder->quit;
}

# ---------------------------------------------------------- track_activities

{
	my $admin = $dt->session;

	$dt->sql(
		q{CREATE TABLE indexed WITH (fillfactor = 10) AS
			SELECT i, repeat('x', 800) AS pad FROM generate_series(1, 20000) i;
		CREATE INDEX brin ON indexed USING brin (i) WITH (pages_per_range = 1);
		CREATE TABLE fires (i int);
		CREATE FUNCTION write_much() RETURNS int LANGUAGE plpgsql AS $$
			DECLARE x bool;
			BEGIN
				FOR i IN 1 .. 1000000 LOOP
					x := pg_logical_emit_message(false, '', repeat('x', 100)) IS NULL;
				END LOOP;
				RETURN 1;
			END $$;
		CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
			DECLARE i int;
			BEGIN
				i := write_much();
				RETURN NULL;
			END $$;
		CREATE CONSTRAINT TRIGGER fire AFTER INSERT ON fires
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fire();
		VACUUM ANALYZE});
	my $write_much = $dt->sql("SELECT 'write_much()'::regprocedure::oid");
	my $summarize = $dt->sql("SELECT 'brin_summarize_new_values(regclass)'::regprocedure::oid");
	my $brin = $dt->sql("SELECT 'brin'::regclass::oid");

	foreach my $setting ('on', 'off')
	{
		foreach (
			[ 'a function call', sub { $_[0]->function_call($write_much) } ],
			[ 'a call of a C function',
				sub { $_[0]->function_call($summarize, pack 'N', $brin) } ],
			[ 'the trigger of a Sync',
				sub { $_[0]->extended('INSERT INTO fires VALUES (1)')->sync } ])
		{
			my ($name, $do) = @$_;
			my $w = DirtyThrottle::Wire->new($dt->node);
			my $pid = $w->pid;

			$name .= ", track_activities = $setting";
			$dt->sql(q{SELECT count(brin_desummarize_range('brin', b))
				FROM generate_series(0, 19999) b});
			$dt->limit(activity => 0);
			$dt->sql("SELECT set_group_wal_limit('activity', 20)");
			$w->query(q{SET dirty_throttle."group" = 'activity'});
			$w->query("SET track_activities = $setting");
			$do->($w);
			$w->transmit;
			# after the transaction it pauses without its transaction ID
			ok( poll_until(
					sub {
						$dt->sql(
							"SELECT count(*) FROM dirty_throttle_sessions s
							JOIN pg_locks l USING (pid) WHERE pid = $pid
								AND paused_since IS NOT NULL
								AND locktype = 'virtualxid'") > 0;
					}, $patience),
				"$name: it pauses in its transaction");
			$dt->sql("SELECT pg_cancel_backend($pid)");
			$w->wait;
			$w->terminate;
			$dt->sql("SELECT set_group_wal_limit('activity', 0)");
		}
	}
	$admin->quit;
}

$dt->finish;
