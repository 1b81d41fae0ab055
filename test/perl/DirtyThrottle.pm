# What the TAP tests share: a server with the library preloaded, sessions that
# run in the background, and measuring.
#
#	my $dt = DirtyThrottle->new('rate');              # server and extension
#	$dt->limit(grp_a => 20000);                       # KB/s
#	my $s = $dt->session(group => 'grp_a');           # connected
#	my $rows = $s->query('SELECT ...');               # dies on an error
#	$s->send('INSERT ...');                           # does not wait
#	ok($dt->wait_paused($s, 'in flight'), '...');
#	my $r = $s->wait;                                 # out err sqlstate ms
#	$dt->finish;                                      # and done_testing()
#
# With DT_TEST_DISABLED=1 in the environment every server runs with
# dirty_throttle.enabled = off: tests of pauses and rates must fail then.

package DirtyThrottle;

use strict;
use warnings;

use DirtyThrottle::Books ();
use DirtyThrottle::Canary;
use DirtyThrottle::Session;
use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(between elapsed_ms poll_until $MAY_WRITE);

# A new server is a copy of INITDB_TEMPLATE, if that is set: PostgreSQL's module
# does that from 16 on, and calls initdb like this before.
{
	my $run = \&PostgreSQL::Test::Utils::system_or_bail;

	no warnings 'redefine';
	*PostgreSQL::Test::Utils::system_or_bail = sub {
		@_ = ('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $_[2])
		  if $ENV{INITDB_TEMPLATE} && @_ == 6 && "@_" eq "initdb -D $_[2] -A trust -N";
		goto &$run;
	};
}

# pg_ctl looks ten times a second whether the server has been started or
# stopped, in postmaster.pid.  This looks more often, and ends pg_ctl then.
{
	my $run = \&PostgreSQL::Test::Utils::system_log;

	no warnings 'redefine';
	*PostgreSQL::Test::Utils::system_log = sub {
		my ($dir) = map { $_[$_] =~ /^(-D|--pgdata)$/ ? $_[ $_ + 1 ] : () } 0 .. $#_;

		goto &$run unless $_[0] eq 'pg_ctl' && $_[-1] =~ /^st(art|op)$/ && $dir;
		print "# Running: @_\n";
		return _pg_ctl($dir, @_);
	};
}

sub _pg_ctl
{
	my ($dir, $pg_ctl, @arguments) = @_;
	my $old = _postmaster_pid($dir);    # of a server that was killed, perhaps
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		{ exec $pg_ctl, '-s', @arguments }
		POSIX::_exit(127);
	}
	while (waitpid($pid, POSIX::WNOHANG()) == 0)
	{
		my $new = _postmaster_pid($dir);

		if ($arguments[-1] eq 'stop'
			? $old ne '' && $new eq ''
			: $new ne $old && $new =~ /^(.*\n){7}(ready|standby)/)
		{
			kill 'KILL', $pid;
			waitpid $pid, 0;
			return 0;
		}
		sleep 0.005;
	}
	return $?;
}

sub _postmaster_pid
{
	my ($dir) = @_;

	open my $file, '<', "$dir/postmaster.pid" or return '';
	local $/;
	return <$file> // '';
}

# Seconds, for all that must happen at all.  How soon it happens on a machine that
# is busy with something else nobody knows, so nothing has a bound of its own.
our $TIMEOUT = 180;

# A statement of a writing kind, which does nothing.  What is owed is paid before it;
# SELECT begins at once.
our $MAY_WRITE = 'DO $$BEGIN END$$';

# Milliseconds that the code takes.
sub elapsed_ms
{
	my ($code) = @_;
	my $start = time;

	$code->();
	return (time - $start) * 1000;
}

# A test: is the value, a number of blocks, say, within the bounds?  Not for a
# time or a rate: of these there is one bound only that holds on any machine.
sub between
{
	my ($value, $low, $high, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( defined $value && $value >= $low && $value <= $high,
		sprintf('%s: %s within %s .. %s',
			$name, defined $value ? sprintf('%.4g', $value) : 'undef',
			$low, $high));
}

# Call the code until it returns true; returns that, or 0 after the timeout.
# The longer it takes, the less often: tests that run at the same time need the
# processor as well.
sub poll_until
{
	my ($code, $timeout) = @_;
	my $start = time;
	my $end = $start + ($timeout // $TIMEOUT);

	while (time < $end)
	{
		my $result = $code->();
		return $result if $result;

		my $pause = (time - $start) / 20;
		sleep($pause < 0.002 ? 0.002 : $pause > 0.05 ? 0.05 : $pause);
	}
	return 0;
}

# What must not be in a server log, whatever happened.
our $BAD_LOG = qr/PANIC: |TRAP:|terminated by signal| leak|not closed/;

# A server with the library preloaded, started, with the extension created in
# database postgres.  Options:
#	conf       lines for postgresql.conf
#	init       arguments for $node->init
#	no_start   only initialize and configure it
#	no_extension  start it, but do not create the extension
# Nothing but the sessions dirties shared buffers here, nothing else writes
# them, and durability costs no time.
sub new
{
	my ($class, $name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $self = bless { node => $node }, $class;

	$node->init(@{ $opt{init} // [] });
	$node->append_conf(
		'postgresql.conf', q{
shared_preload_libraries = 'dirty_throttle'
shared_buffers = 256MB
fsync = off
max_wal_size = 4GB
checkpoint_timeout = 1h
autovacuum = off
bgwriter_lru_maxpages = 0
max_prepared_transactions = 10
max_parallel_workers_per_gather = 0
jit = off
log_min_messages = warning
});
	$node->append_conf('postgresql.conf', 'dirty_throttle.enabled = off')
	  if $ENV{DT_TEST_DISABLED};
	$node->append_conf('postgresql.conf', $opt{conf}) if $opt{conf};
	return $self if $opt{no_start};

	$node->start;
	$self->sql('CREATE EXTENSION dirty_throttle') unless $opt{no_extension};
	return $self;
}

# The PostgreSQL::Test::Cluster.
sub node
{
	my ($self) = @_;
	return $self->{node};
}

# A new session; see DirtyThrottle::Session.  Options:
#	dbname, user   default: postgres, and the superuser
#	group          SET dirty_throttle."group"
#	options        PGOPTIONS
sub session
{
	my ($self, %opt) = @_;
	return DirtyThrottle::Session->new($self->{node}, %opt);
}

# Run SQL in a session of our own, which is in no group: the output.  Dies on
# an error.  That session is opened again when the server has been restarted.
sub sql
{
	my ($self, $sql) = @_;

	$self->{admin} = $self->session
	  unless $self->{admin} && $self->{admin}->alive;
	return $self->{admin}->query($sql);
}

# Set the limit of a group, KB/s; creates it when it is new.
sub limit
{
	my ($self, $group, $kb) = @_;
	$self->sql("SELECT set_group_dirty_limit('$group', $kb)");
}

# The row of a group in dirty_throttle_groups(), or of a session and its present
# group in dirty_throttle_sessions, as a hash; undef when there is none.  A limit
# that is NULL is 0 here, so that it can be compared.
sub group_row
{
	my ($self, $group) = @_;
	my $row = $self->_row(
		"SELECT * FROM dirty_throttle_groups() WHERE group_name = '$group' AND instance IS NULL");

	$row->{$_} //= 0 foreach $row ? grep { /_limit$/ } keys %$row : ();
	return $row;
}

sub session_row
{
	my ($self, $session) = @_;
	return $self->_row(
		"SELECT * FROM dirty_throttle_sessions()
		 WHERE pid = " . $session->pid);
}

# One row as a hash of column name to text (undef for NULL).
sub _row
{
	my ($self, $query) = @_;
	my $out = $self->sql(
		"SELECT j.key || '=' || coalesce('=' || j.value, '')
		 FROM ($query LIMIT 1) q, json_each_text(row_to_json(q)) j");
	my %row = map { /^(\w+)=(?:=(.*))?$/s ? ($1 => $2) : () } split /\n/, $out;

	return %row ? \%row : undef;
}

# Wait until the session pauses, 'in flight' or 'after transaction' or (no
# third argument) anywhere; false when it ends before, or does not in time.
sub wait_paused
{
	my ($self, $session, $where, $timeout) = @_;
	my $pid = $session->pid;
	my $condition =
		!defined $where        ? 'true'
	  : $where eq 'in flight' ? 'xact_start IS NOT NULL'
	  :                         'xact_start IS NULL';
	my $paused = 0;

	# the functions, as the views take the planner three times as long
	poll_until(
		sub {
			$paused = $self->sql(
				"SELECT count(*)
				 FROM dirty_throttle_sessions() s, pg_stat_get_activity($pid)
				 WHERE s.pid = $pid AND paused_since IS NOT NULL
				   AND $condition");
			return $paused || $session->finished;
		},
		$timeout);
	return $paused;
}

# A statement that cannot pause in the middle of commands, so that it pays after
# its transactions, as where that does not work at all.
sub pays_after
{
	my ($sql) = @_;
	return "SET dirty_throttle.interrupt_pauses = off; $sql; RESET dirty_throttle.interrupt_pauses";
}

# The kinds of pause: for each, where wait_paused() finds it, and statements
# that come to one when the limit is small.
our %KINDS = (
	'in flight' => [
		'in flight',
		"INSERT INTO sleep SELECT generate_series(1, 100), repeat('x', 800)"
	],
	'at a check' => [
		'in flight',
		"COPY sleep (id) FROM PROGRAM 'seq 1 200000'"
	],
	'after commit' => [
		'after transaction',
		pays_after('ALTER TABLE rewrite ALTER id TYPE int USING id + 1')
	],
	'after COMMIT in a procedure' => [
		'after transaction',
		pays_after('CALL rewrite_and_commit()')
	]);

# Create what these statements need: a table without rows and one of 50
# blocks.
sub create_sleep_tables
{
	my ($self) = @_;

	$self->sql(
		q{CREATE TABLE sleep (id int, filler text) WITH (fillfactor = 10);
		CREATE TABLE rewrite (id int, filler text) WITH (fillfactor = 10);
		INSERT INTO rewrite
			SELECT i, repeat('x', 800) FROM generate_series(1, 50) i;
		CREATE PROCEDURE rewrite_and_commit() LANGUAGE plpgsql AS $$
			BEGIN
				FOR i IN 1..3 LOOP
					ALTER TABLE rewrite ALTER id TYPE int USING id + 1;
					COMMIT;
				END LOOP;
			END $$});
}

# Make a session pause in this way, for longer than any test runs.  The group
# has the lowest of all limits then, and no other debt.  A test fails when the
# session does not pause.
sub put_to_sleep
{
	my ($self, $session, $group, $kind) = @_;
	my ($where, $sql) = @{ $KINDS{$kind} };

	$self->limit($group => 0);
	$self->limit($group => 1);
	$session->send($sql);
	fail("a session pauses $kind")
	  unless $self->wait_paused($session, $where);
}

# Who oversleeps sleeps less the next time.  The last time it is not made up for;
# nor is what the pool of the group cannot keep, which is more when the machine is
# busy; see Canary.pm.
our $OVERSLEPT_MS = 1000;

# A test: while the code runs, its group pays for at most what the limit allows in
# that time, and what the books grant (see Books.pm); and nobody sleeps for
# longer than that takes.  This holds on any machine: who is slower uses less,
# and what takes time is not slept.  What was paid is what was used, without what
# is still owed, so graces and charges do not count.  Options:
#	limit    set this limit, KB/s, before: nothing is owed or saved up then
#	wal      it is the limit on WAL
#	members  so many pause, those that have left in debt included; default: 1
# What it returns has the code's result, the kb that were used, the blocks, and
# the ms that were slept.
sub check_limit
{
	my ($self, $name, $group, $code, %opt) = @_;
	my $members = $opt{members} // 1;
	my ($used, $owed, $limit) =
	  $opt{wal}
	  ? qw(wal_bytes wal_debt effective_wal_limit)
	  : qw(blocks_dirtied dirty_debt effective_dirty_limit);
	my $kind = $opt{wal} ? 'wal' : 'dirty';

	$self->sql("SELECT set_group_${kind}_limit('$group', 0)")
	  if defined $opt{limit};
	my $overslept = overslept_ms(0);
	my $start = monotonic_time();
	$self->sql("SELECT set_group_${kind}_limit('$group', $opt{limit})")
	  if defined $opt{limit};
	my $before = $self->group_row($group);
	my $result = $code->();
	my $after = $self->group_row($group);
	my $seconds = monotonic_time() - $start;
	$overslept = overslept_ms() - $overslept;

	my $kb = ($after->{$used} - $before->{$used}) *
	  ($opt{wal} ? 0.001 : $self->block_kb);
	my $ms = $after->{paused_time} - $before->{paused_time};
	# what a member has used before it notices a new limit is not owed
	my $unnoticed =
	  defined $opt{limit} ? ($opt{unnoticed} // 8) * $members * $self->block_kb : 0;
	my $granted = $unnoticed + DirtyThrottle::Books::grantable(
		kb => $after->{$limit},
		burst_ms => $after->{burst},
		new => defined $opt{limit},
		members => $members) / 1000;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok(
		$kb + $before->{$owed} - $after->{$owed},
		'<=',
		$after->{$limit} * $seconds + $granted,
		sprintf('%s: KB paid in %.2f s', $name, $seconds));
	cmp_ok(
		$ms,
		'<=',
		$members *
		  (1000 * ($kb + $before->{$owed}) / $after->{$limit} + $OVERSLEPT_MS + $overslept),
		sprintf('%s: ms slept for %.0f KB', $name, $kb));
	return {
		result => $result,
		kb => $kb,
		blocks => $after->{blocks_dirtied} - $before->{blocks_dirtied},
		ms => $ms
	};
}

# Run a statement in a session that is a member and measure it: what wait()
# returns, and the blocks (from the view) and kb_per_s (by the wall time of the
# client).  Dies on an error.
sub measure
{
	my ($self, $session, $sql) = @_;
	my $before = $self->session_row($session)->{blocks_dirtied};
	my $result;
	my $ms = elapsed_ms(sub { $result = $session->run($sql) });

	die "$sql: $result->{err}" if $result->{err} =~ /ERROR|FATAL|PANIC/;
	$result->{blocks} =
	  $self->session_row($session)->{blocks_dirtied} - $before;
	$result->{kb_per_s} = $result->{blocks} * $self->block_kb / ($ms / 1000);
	return $result;
}

# A block in KB of 1000 bytes.
sub block_kb
{
	my ($self) = @_;
	$self->{block_kb} //=
	  $self->sql("SELECT current_setting('block_size')::int / 1000.0");
	return $self->{block_kb};
}

# Cancel what a session does, or end it; returns milliseconds until the client
# knows.
sub cancel_ms
{
	my ($self, $session) = @_;
	return $self->_signal_ms('pg_cancel_backend', $session);
}

sub terminate_ms
{
	my ($self, $session) = @_;
	return $self->_signal_ms('pg_terminate_backend', $session);
}

sub _signal_ms
{
	my ($self, $function, $session) = @_;
	my $pid = $session->pid;

	return elapsed_ms(
		sub {
			$self->sql("SELECT $function($pid)");
			$session->wait;
		});
}

# Change a parameter of the server (PGC_SIGHUP), and wait until the sessions,
# which must be idle and in no debt, have seen it, and so have new ones.
sub set_conf
{
	my ($self, $name, $value, @sessions) = @_;

	$self->sql("ALTER SYSTEM SET $name = '$value'");
	$self->sql('SELECT pg_reload_conf()');
	foreach my $session ($self->{admin}, @sessions)
	{
		poll_until(sub { $session->query("SHOW $name") eq $value })
		  or die "$name is not $value";
	}
}

# The end of a test file: stop the server, and look at its log.
sub finish
{
	my ($self) = @_;

	$self->stop;
	unlike(slurp_file($self->{node}->logfile),
		$BAD_LOG, 'nothing bad in the server log');
	done_testing();
}

# End our own session, and the server.
sub disconnect
{
	my ($self) = @_;

	$self->{admin}->quit if $self->{admin};
	delete $self->{admin};
}

sub stop
{
	my ($self, $mode) = @_;

	$self->disconnect;
	$self->{node}->stop($mode);
}

1;
