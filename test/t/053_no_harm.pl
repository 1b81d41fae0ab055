# Nobody waits for a member that pauses: for each kind of pause, everything
# that others may want.  The pauses last for hours, and no member goes on because
# somebody waits; so who gets what he wants has not waited for one.  While a
# transaction is in flight it keeps what it has locked, with or without a pause,
# and its snapshot; what does not conflict with these must not wait.
#
# takes-about: 5 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pauses;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $dt = DirtyThrottle::Life->new(
	'no_harm',
	init => [ allows_streaming => 'logical' ],
	conf => $DirtyThrottle::Pauses::CONF . "max_connections = 100
dirty_throttle.max_blocking_time = -1\n");
my $pauses = DirtyThrottle::Pauses->new($dt);
# Who pauses at a check holds what his command has locked: see 046_blocking.pl.
my @kinds = grep { $_->{name} !~ /^at a check/ } @{ $pauses->kinds };
my $outsider = $dt->session;
my $listener = $dt->session;

$dt->sql('CREATE TABLE other AS SELECT i FROM generate_series(1, 10) i;
	CREATE TABLE dead (i int)');
$listener->query('LISTEN news');
$outsider->query("SET statement_timeout = '${DirtyThrottle::TIMEOUT}s'");

# ------------------------------------------------------- what others want

# Each is a hash: name; code; before, which makes what is wanted; not, the states
# of a member (see Pauses.pm) in which it has to wait in any case; each, whether
# it is wanted of each member's table.
my @wants;
foreach my $mode (
	'ACCESS SHARE', 'ROW SHARE', 'ROW EXCLUSIVE', 'SHARE UPDATE EXCLUSIVE',
	'SHARE', 'SHARE ROW EXCLUSIVE', 'EXCLUSIVE', 'ACCESS EXCLUSIVE')
{
	push @wants,
	  {
		name => "LOCK IN $mode MODE",
		each => 1,
		not => $mode =~ /^SHARE$|SHARE ROW|EXCLUSIVE$/
		  && $mode !~ /^ROW EXCLUSIVE|SHARE UPDATE/ ? 'work relation' : '',
		code => sub { want("BEGIN; LOCK TABLE $_[0] IN $mode MODE; COMMIT") }
	  };
}
push @wants,
  {
	name => 'a row that it wrote',
	each => 1,
	not => 'work',
	code => sub { want("UPDATE $_[0] SET n = n + 1 WHERE id IN (0, 1)") }
  },
  {
	name => 'ALTER TABLE of another table',
	code => sub { want('ALTER TABLE other ALTER i SET STATISTICS 10') }
  },
  {
	name => 'CREATE INDEX CONCURRENTLY',
	each => 1,
	not => 'work relation',
	before => sub { want("DROP INDEX IF EXISTS $_[0]_idx") },
	code => sub { want("CREATE INDEX CONCURRENTLY $_[0]_idx ON $_[0] (id)") }
  },
  {
	name => 'CREATE INDEX CONCURRENTLY on another table',
	not => 'work',
	before => sub { want('DROP INDEX IF EXISTS other_idx') },
	code => sub { want('CREATE INDEX CONCURRENTLY other_idx ON other (i)') }
  },
  {
	name => 'VACUUM of dead rows',
	not => 'work',
	before => sub {
		want('INSERT INTO dead SELECT generate_series(1, 100)');
		want('DELETE FROM dead');
	},
	code => sub {
		return want('VACUUM dead')
		  && $outsider->query("SELECT pg_relation_size('dead')") == 0;
	}
  },
  {
	name => 'VACUUM of what it wrote',
	each => 1,
	code => sub { want("VACUUM (TRUNCATE false) $_[0]") }
  },
  {
	name => 'DROP DATABASE',
	before => sub { want('CREATE DATABASE victim') },
	code => sub { want('DROP DATABASE victim') }
  },
  {
	name => 'NOTIFY',
	code => sub {
		my $n = int rand 1e9;

		return want("NOTIFY news, 'n$n'")
		  && poll_until(sub { $listener->query('SELECT 1') =~ /"n$n"/ });
	}
  },
  {
	name => 'ALTER SYSTEM and reload',
	code => sub {
		my $kb = 4096 + 64 * int rand 100;

		return want("ALTER SYSTEM SET work_mem = $kb")
		  && want('SELECT pg_reload_conf()')
		  && poll_until(
			sub { $outsider->query("SELECT pg_size_bytes(current_setting('work_mem')) / 1024") == $kb });
	}
  },
  {
	name => 'a replication slot',
	not => 'work',
	code => sub {
		return
		  want("SELECT pg_create_logical_replication_slot('slot', 'pgoutput')")
		  && want("SELECT pg_drop_replication_slot('slot')");
	}
  },
  {
	name => 'a prepared transaction',
	code => sub {
		return want(
			"BEGIN; INSERT INTO other VALUES (0); PREPARE TRANSACTION 'out'")
		  && want("COMMIT PREPARED 'out'");
	}
  },
  {
	name => 'CHECKPOINT',
	code => sub { want('CHECKPOINT') }
  },
  {
	name => 'a login',
	code => sub { $dt->session->quit; 1 }
  };

# A statement of the outsider's: has it succeeded?
sub want
{
	my ($sql) = @_;
	my $result = $outsider->run($sql);

	return 1 unless defined $result->{sqlstate};
	note "$sql: $result->{err}";
	$outsider->run('ROLLBACK') if $sql =~ /^BEGIN/;
	return 0;
}

# A test: these can be had while members of these kinds pause.
sub check_wants
{
	my ($name, @of) = @_;

	foreach my $want (@wants)
	{
		next if grep { ($want->{not} // '') =~ $_->{state} } @of;
		foreach my $table ($want->{each} ? map { $_->{table} } @of : 'other')
		{
			$want->{before}->($table) if $want->{before};
			ok($want->{code}->($table),
				"$name: $want->{name}" . ($want->{each} ? " ($table)" : ''));
		}
	}
}

# All that are in the same state at the same time.
foreach my $state ('nothing', 'relation', 'work')
{
	my @of = grep { $_->{state} eq $state } @kinds;
	my %session;

	foreach my $kind (@of)
	{
		my $name = $kind->{name};
		my $s = $session{$name} = $pauses->session($kind);

		$pauses->put($s, $kind);
		note "$kind->{table}: $name";
		like(
			$pauses->holds($s),
			{
				work => qr/^RowExclusiveLock on \w+, a snapshot$/,
				relation => qr/^(no lock|Row(Exclusive|Share)Lock on \w+), no snapshot$/,
				nothing => qr/^no lock, no snapshot$/
			}->{$state},
			"$name: what it holds");
	}
	check_wants("while members hold $state", @of);
	foreach my $kind (@of)
	{
		my $s = $session{ $kind->{name} };

		$pauses->check_stays($s, $kind, 'after all that');
		$pauses->let_go($kind);
		is($s->wait->{sqlstate}, undef, "$kind->{name}: it has no error");
		$s->quit;
	}
}

# What the member itself has to tell others, it has told.
{
	my ($kind) = grep { $_->{name} eq 'after a block' } @kinds;
	my $s = $pauses->session($kind);

	$pauses->put($s,
		{ %$kind, sql => $kind->{sql} =~ s/BEGIN;/BEGIN;\nNOTIFY news, 'mine';/r });
	ok( poll_until(
			sub { $listener->query('SELECT 1') =~ /"news".*"mine"/s }),
		'a NOTIFY of its own is delivered');
	$pauses->let_go($kind);
	$s->quit;
}

# ------------------------------------------------- PREPARE TRANSACTION

# No pause after it: who coordinates goes on, and everything is to be had when
# it is finished, by whomever.
{
	my ($kind) = grep { $_->{name} eq 'after a transaction' } @kinds;
	my $table = $kind->{table};
	my @prepare = ('BEGIN', "INSERT INTO $table VALUES (0)",
		"ALTER TABLE $table ALTER n TYPE int USING n + 1",
		"PREPARE TRANSACTION 'member'");
	my $prepare = join ";\n", @prepare;
	my $s = $pauses->session($kind);
	my $owes = sub {
		return $dt->session_row($s)->{dirty_debt} > 300;    # 300 s
	};

	# it is not to pause before that, either
	$s->query(q{SET dirty_throttle.transaction_grace = '20d'});
	$dt->limit($kind->{group} => 1);
	is($s->run($prepare)->{sqlstate}, undef, 'PREPARE TRANSACTION answers');
	ok($owes->(), 'PREPARE TRANSACTION: it owes');
	ok(want("COMMIT PREPARED 'member'"), 'COMMIT PREPARED by somebody else');
	$dt->limit($kind->{group} => 0);
	$dt->limit($kind->{group} => 1);
	$s->query($prepare);
	is($s->run("COMMIT PREPARED 'member'")->{sqlstate},
		undef, 'COMMIT PREPARED by the member answers');
	ok($owes->(), 'COMMIT PREPARED: it owes');
	$s->send($MAY_WRITE);
	ok($dt->wait_paused($s, 'in flight'), 'it pays before it writes anything');
	is($pauses->holds($s), 'no lock, no snapshot', 'and holds nothing there');
	check_wants('before the next transaction', $kind);
	$pauses->let_go($kind);
	$s->quit;
}

# ------------------------------------------------------------- a standby

$outsider->query("CREATE DATABASE victim$_") foreach 1 .. 3;
$outsider->query('CREATE TABLE written (i int)');
$dt->node->backup('b');
my $standby_node = PostgreSQL::Test::Cluster->new('standby');
$standby_node->init_from_backup($dt->node, 'b', has_streaming => 1);
$standby_node->append_conf('postgresql.conf', q{
max_standby_streaming_delay = -1
hot_standby_feedback = off
});
$standby_node->start;
my $standby = DirtyThrottle::Life->over($standby_node);
ok( $standby_node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_wal_receiver WHERE status = 'streaming'"),
	'a standby streams');

my $victim = 0;
my @replayed = (
	[ 'ALTER TABLE of what it read', sub { 'ALTER TABLE written ADD x' . ++$victim . ' int' } ],
	[ 'VACUUM of what it read',
		sub { 'INSERT INTO written SELECT generate_series(1, 100);
			DELETE FROM written; VACUUM written' } ],
	[ 'DROP DATABASE', sub { "DROP DATABASE victim$victim" } ]);

sub check_replay
{
	my ($name) = @_;

	foreach (@replayed)
	{
		my ($what, $sql) = @$_;

		$outsider->query($_) foreach split /;/, $sql->();
		my $lsn = $outsider->query('SELECT pg_current_wal_insert_lsn()');
		ok( poll_until(
				sub { $standby->sql("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' }),
			"$name: replay of $what");
	}
}

$dt->limit(grp => 0);
$dt->node->wait_for_catchup('standby');
# A query has had a snapshot for its parse analysis.  This one is of a writing kind,
# but locks no rows, which recovery does not allow.
foreach my $case (
	[ 'after transaction' ],
	[ 'before DO', $MAY_WRITE ],
	[ 'before a query', 'SELECT FROM (SELECT 1) s FOR UPDATE' ])
{
	my ($name, $next) = @$case;
	my $s = $standby->session;
	my $read = 'DO $$BEGIN PERFORM count(*) FROM written; END$$';

	$s->query($read);
	$s->query(q{SET dirty_throttle.max_commit_pause = '1d'; SET dirty_throttle."group" = 'grp'});
	$s->query("BEGIN; $read") unless $next;
	$standby->sql("SELECT suspend_group('grp')");
	$s->send($next // 'COMMIT');
	ok($standby->wait_paused($s, $next ? 'in flight' : $name), "a standby, $name: it pauses");
	check_replay("a standby, $name");
	ok(!$s->finished, "a standby, $name: it pauses on");
	$standby->sql("SELECT resume_group('grp')");
	is($s->wait->{sqlstate}, undef, "a standby, $name: it has no error");
	$s->quit;
}
$standby->stop;

# -------------------------------------------------------------- the ends

$_->quit foreach $outsider, $listener;
my @all = map {
	my $s = $pauses->session($_);
	$pauses->put($s, $_);
	$s
} @kinds;
$dt->disconnect;
ok($dt->node->stop('fast', fail_ok => 1), 'fast shutdown with all kinds of pause');
$_->quit foreach @all;
$dt->node->start;

# In a smart one each session comes to its end: a debt is paid meanwhile.
my ($payer) = grep { $_->{name} eq 'after a transaction' } @kinds;
my $s = $pauses->session($payer);
$pauses->put($s, $payer);
$dt->limit($payer->{group} => 1000);
$dt->disconnect;
my $data = $dt->node->data_dir;
my $pg_ctl = fork // die "fork: $!";
if ($pg_ctl == 0)
{
	open STDOUT, '>', '/dev/null';
	exec 'pg_ctl', 'stop', '-D', $data, '-m', 'smart', '-t', $DirtyThrottle::TIMEOUT;
}
$s->wait;
$s->quit;
waitpid $pg_ctl, 0;
is($?, 0, 'smart shutdown: it comes to its end');
$dt->node->_update_pid(0);
$dt->node->start;

$dt->finish;
