# Sessions that do anything at random, and an administrator who changes everything
# meanwhile: what the tests share that only ask whether the server, its groups and
# its views survive that.
#
#	my $fuzz = DirtyThrottle::Fuzz->new;
#	$fuzz->create($dt);        # tables, groups, functions
#	$fuzz->connect($dt);       # eight sessions, and the administrator
#	$fuzz->run($seconds);
#	$fuzz->finish;             # wait for all

package DirtyThrottle::Fuzz;

use strict;
use warnings;

use DirtyThrottle;
use DirtyThrottle::Life;
use Exporter 'import';
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(pick);

my @names = map { "g$_" } 1 .. 6;
my $SESSIONS = 8;
my $ROLES = 4;              # as which they log in

# What may happen: an error that somebody has asked for.
my %EXPECTED = map { $_ => 1 } (
	'42704',    # no such group, session, role or prepared transaction
	'3D000',    # no such database
	'42710',    # there is one already
	'55006',    # it is in use
	'53400',    # no room
	'22012',    # 1/0
	'25P02',    # ... and after it
	'25P01',    # BEGIN was cancelled
	'34000',    # ... and so there is no cursor
	'55P03',    # somebody uses the table
	'57014',    # cancelled, timeout
	'2D000',    # COMMIT in a transaction that a cancelled one has left open
	'40P01',    # deadlock
	'25001',    # DISCARD ALL in such a transaction
	'23502',    # ALTER pad SET NOT NULL
	'38000',    # COPY's program, when COPY is cancelled; an error in PL/Python
	'3B001',    # the savepoint went with the transaction
	'55000',    # join_group() in a session that was moved; a temporary table is prepared
	'42P07',    # the index is there already
	'XX000');   # in PL/Perl: an error of the statement that it runs

# And when servers come and go.
my %LOST = map { $_ => 1 } ('57P01', '57P02', '57P03', '57P05');

sub pick { return $_[ rand @_ ] }

# Options: lost => whether sessions may lose their server.
sub new
{
	my ($class, %opt) = @_;
	return bless { %opt, seen => {}, unexpected => 0, nonsense => 0 }, $class;
}

sub create
{
	my ($self, $dt) = @_;
	my %languages = map { $_ => 1 } split /\n/,
	  $dt->sql(q{SELECT name FROM pg_available_extensions WHERE name IN ('plperl', 'plpython3u')});

	$dt->sql("SELECT set_group_dirty_limit('$_', 5000)") foreach @names;
	$dt->sql("CREATE ROLE u$_ SUPERUSER LOGIN") foreach 1 .. $ROLES;
	$dt->table('shared');
	$dt->table("t$_") foreach 1 .. $SESSIONS;
	$self->{functions} = ['sql_writes'];
	$dt->sql(q{CREATE FUNCTION sql_writes(t text, n int) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1..n LOOP
				BEGIN
					EXECUTE format('INSERT INTO %I VALUES ($1, $2)', t) USING i, repeat('x', 900);
					IF i % 7 = 0 THEN PERFORM 1 / 0; END IF;
				EXCEPTION WHEN division_by_zero OR query_canceled THEN NULL;
				END;
			END LOOP;
		END $$});
	if ($languages{plperl})
	{
		push @{ $self->{functions} }, 'perl_writes';
		$dt->sql(q{CREATE EXTENSION plperl;
			CREATE FUNCTION perl_writes(t text, n int) RETURNS void LANGUAGE plperl AS $$
				my ($t, $n) = @_;
				foreach my $i (1 .. $n) {
					eval { spi_exec_query("INSERT INTO $t VALUES ($i, repeat('x', 900))") };
					eval { spi_exec_query('SELECT 1 / 0') } if $i % 7 == 0;
				}
			$$});
	}
	if ($languages{plpython3u})
	{
		push @{ $self->{functions} }, 'python_writes';
		$dt->sql(q{CREATE EXTENSION plpython3u;
			CREATE FUNCTION python_writes(t text, n int) RETURNS void LANGUAGE plpython3u AS $$
				for i in range(n):
					try:
						with plpy.subtransaction():
							plpy.execute("INSERT INTO %s VALUES (%d, repeat('x', 900))" % (t, i))
							if i % 7 == 0:
								plpy.execute('SELECT 1 / 0')
					except plpy.SPIError:
						pass
			$$} =~ s/^\t\t\t(?=\t)//mgr =~ s/^\t(?=\t*(for|try|with|plpy|if|except|pass))//mgr);
	}
	note "functions: @{ $self->{functions} }";
}

sub _login
{
	my ($dt, $id) = @_;
	return $dt->session(user => 'u' . (1 + $id % $ROLES));
}

sub connect
{
	my ($self, $dt) = @_;

	$self->{dt} = $dt;
	$self->{admin} = { session => $dt->session, busy => 0 };
	$self->{sessions} = [
		map { { session => _login($dt, $_), id => $_, table => "t$_", busy => 0 } }
		  1 .. $SESSIONS
	];
}

# What a session does next.
sub _statement
{
	my ($self, $s) = @_;
	my $table = pick($s->{table}, $s->{table}, 'shared');
	my $group = pick(@names);
	my $insert = insert_sql($table, pick(1, 5, 50, 300));
	my $set = qq{SET dirty_throttle."group" = '$group'};
	my $other = pick(@{ $self->{sessions} })->{session}->pid;
	my $function = pick(@{ $self->{functions} }) . "('$table', " . pick(3, 30) . ')';

	return pick(
		$set,
		$set,
		'RESET dirty_throttle."group"',
		"SELECT join_group('$group')",
		qq{BEGIN; SET LOCAL dirty_throttle."group" = '$group'; $insert; }
		  . pick('COMMIT', 'ROLLBACK'),
		qq{BEGIN; $insert; $set; $insert; } . pick('COMMIT', 'ROLLBACK'),
		$insert,
		$insert,
		$insert,
		"SELECT $function",
		"BEGIN; SELECT $function; SELECT $function; " . pick('COMMIT', 'ROLLBACK'),
		"BEGIN; $insert; SELECT 1/0; COMMIT",
		"BEGIN; SAVEPOINT a; $insert; SELECT 1/0; ROLLBACK TO a; $insert; COMMIT",
		"BEGIN; SAVEPOINT a; $set; ROLLBACK TO a; $insert; COMMIT",
		"BEGIN; $insert; PREPARE TRANSACTION 'p$s->{id}'; "
		  . pick('COMMIT', 'ROLLBACK')
		  . " PREPARED 'p$s->{id}'",
		"BEGIN; DECLARE c CURSOR FOR SELECT * FROM $table FOR UPDATE; FETCH 10 FROM c; COMMIT",
		"DO \$\$BEGIN FOR n IN 1..30 LOOP $insert; COMMIT; END LOOP; END\$\$",
		"DO \$\$BEGIN $insert; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN $insert; END\$\$",
		"SET statement_timeout = '50ms'; $insert; $insert; RESET statement_timeout",
		'SET dirty_throttle.' . pick(
			'transaction_grace = 0', 'transaction_grace = 1000',
			'max_commit_pause = 0', 'max_blocking_time = -1',
			'max_blocking_time = 0', 'interrupt_pauses = off',
			'log_min_pause = 0', 'interrupt_pauses = on'),
		"COPY $table FROM PROGRAM 'seq 1 200 | sed s/\$/,x/' (FORMAT csv)",
		"SET LOCAL enable_seqscan = on; SET parallel_setup_cost = 0;"
		  . " SET max_parallel_workers_per_gather = 2; SELECT count(*) FROM $table",
		"TRUNCATE $s->{table}",
		"ALTER TABLE $s->{table} ALTER pad SET NOT NULL",
		"ALTER TABLE $s->{table} ALTER id TYPE " . pick('bigint', 'int'),
		"CREATE INDEX IF NOT EXISTS i$s->{id} ON $s->{table} (id); REINDEX TABLE $s->{table}",
		"CREATE INDEX CONCURRENTLY i$s->{id} ON $s->{table} (id); DROP INDEX IF EXISTS i$s->{id}",
		"VACUUM $table",
		"CREATE INDEX IF NOT EXISTS i$s->{id} ON $s->{table} (id);"
		  . " ALTER TABLE $s->{table} ALTER id SET NOT NULL;"
		  . " CALL run_in_batches('b$s->{id}', '$s->{table}',"
		  . " 'UPDATE $s->{table} SET pad = pad WHERE {batch}', key => 'id', restart => true, unthrottled => true)",
		pick("SELECT stop_batches('b$s->{id}')", "SELECT forget_batches('b$s->{id}')"),
		"CREATE TEMP TABLE IF NOT EXISTS x AS SELECT 1",
		"SELECT pg_cancel_backend($other)",
		"SELECT pg_cancel_backend($other)",
		"SELECT pg_log_backend_memory_contexts($other)",
		($self->{lost} ? "SELECT pg_terminate_backend($other)" : ()),
		"SELECT set_session_group($other, " . pick("'$group'", "'$group'", q{''}, 'NULL') . ')',
		'SELECT count(*) FROM dirty_throttle_sessions',
		'SELECT count(*) FROM dirty_throttle_groups',
		'SELECT count(*) FROM dirty_throttle_blocking',
		'SELECT count(*) FROM dirty_throttle_pressure',
		'SELECT count(*) FROM dirty_throttle_writers',
		"DELETE FROM $table WHERE random() < 0.3",
		'DISCARD ALL');
}

# What the administrator does next.
sub _administrate
{
	my $group = pick(@names);
	my $limit = pick(0, 1, 0.5, 1000, 5000, 5000, 50000, 16777216);

	return pick(
		"SELECT set_group_dirty_limit('$group', $limit)",
		"SELECT set_group_dirty_limit('$group', $limit)",
		"SELECT set_group_dirty_limit('$group', $limit)",
		"SELECT set_group_wal_limit('$group', $limit)",
		"SELECT reset_group_dirty_limit('$group')",
		"SELECT create_resource_group('$group', $limit)",
		"SELECT rename_resource_group('$group', '" . pick(@names, 'h') . "')",
		"SELECT rename_resource_group('h', '$group')",
		"SELECT drop_resource_group('$group')",
		"SELECT drop_resource_group('$group', true, force => true)",
		"SELECT drop_resource_group('$group', true, force => true), set_group_dirty_limit('$group', $limit)",
		"SELECT set_group_mode('$group', '" . pick('observe', 'enforce') . "')",
		"SELECT suspend_group('$group'); SELECT resume_group('$group')",
		(map { "SELECT alter_resource_group('$group', scope => '$_', wal_limit => $limit)" }
			  qw(role role database group)),
		"SELECT alter_resource_group('$group', dirty_limit => $limit, instance => 'u"
		  . pick(1 .. $ROLES + 1) . "')",
		"CREATE ROLE u" . ($ROLES + 1),
		"DROP ROLE u" . ($ROLES + 1),
		'SELECT dirty_throttle_reset()',
		# so that the longest statement stays short, whatever DT_SECONDS is
		"SET lock_timeout = '100ms'; TRUNCATE shared; RESET lock_timeout",
		'SELECT pg_reload_conf()');
}

# A statement has ended: was that to be expected?
sub _judge
{
	my ($self, $s) = @_;
	my $r = $s->{session}->wait;

	$s->{busy} = 0;
	$self->{seen}{statements}++;
	foreach my $code ($r->{err} =~ /(?:ERROR|FATAL|PANIC):  (\w{5}): /g)
	{
		$self->{seen}{$code}++;
		next if $EXPECTED{$code} || ($self->{lost} && $LOST{$code});
		$self->{unexpected}++;
		diag "$s->{sql}: $r->{err}";
	}
	return if $s->{session}->alive;
	if (!$self->{lost})
	{
		diag "lost: $s->{sql}: $r->{err}";
		$self->{unexpected}++;
	}
	$s->{session} = $s->{id} ? _login($self->{dt}, $s->{id}) : $self->{dt}->session;
}

# Everybody works for so many seconds.
sub run
{
	my ($self, $seconds) = @_;
	my $end = time + $seconds;
	my $admin = $self->{admin};

	while (time < $end)
	{
		foreach my $s (@{ $self->{sessions} }, $admin)
		{
			if ($s->{busy})
			{
				next unless $s->{session}->finished;
				$self->_judge($s);
			}
			# a failed transaction must not stay open
			$s->{sql} = $s == $admin ? _administrate() :
			  $self->_statement($s) . ";\nROLLBACK";
			$s->{session}->send($s->{sql});
			$s->{busy} = 1;
		}
		$self->{nonsense} += $self->{dt}->sql(
			q{SELECT count(*) FROM dirty_throttle_groups()
			  WHERE members NOT BETWEEN 0 AND 8
			     OR paused NOT BETWEEN 0 AND 8
			     OR least(dirty_limit, effective_dirty_limit, wal_limit, effective_wal_limit) <= 0
			     OR dirty_debt < 0 OR blocks_dirtied < 0 OR pauses < 0 OR paused_time < 0
			     OR dirty_rate < 0});
		sleep 0.003;
	}
}

# The administrator comes to an end, and what is owed can be repaid soon: at limits
# that nobody changes any more.
sub calm
{
	my ($self) = @_;
	my $admin = $self->{admin};

	ok(eval { $self->_judge($admin) if $admin->{busy}; 1 },
		'the administrator comes to an end')
	  or diag "$admin->{sql}: $@";
	$self->{dt}->sql(
		q{SELECT set_group_dirty_limit(group_name, 1000000), set_group_wal_limit(group_name, 0)
		  FROM dirty_throttle_groups WHERE instance IS NULL});
}

# Wait for everybody.
sub finish
{
	my ($self) = @_;

	$self->calm;
	foreach my $s (@{ $self->{sessions} })
	{
		ok(eval { $self->_judge($s) if $s->{busy}; 1 }, 'a session comes to its end')
		  or diag "$s->{sql}: $@";
	}
}

# Half of the sessions leave their groups, the others just go.
sub leave
{
	my ($self) = @_;
	my @sessions = @{ $self->{sessions} };

	$sessions[$_]{session}->query('RESET dirty_throttle."group"') foreach 0 .. 3;
	$_->{session}->quit foreach @sessions, $self->{admin};
}

# The tests of what has been noticed meanwhile.
sub check
{
	my ($self) = @_;

	is($self->{unexpected}, 0, 'no error that was not asked for');
	is($self->{nonsense}, 0, 'the view has shown nothing impossible');
	note join ' ', map { "$_=$self->{seen}{$_}" } sort keys %{ $self->{seen} };
	cmp_ok($self->{seen}{statements} // 0, '>', 0, 'something has happened');
}

1;
