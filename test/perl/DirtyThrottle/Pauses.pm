# Every kind of pause, each with a session, a group and a table of its own, so
# that all of them can last at the same time.
#
#	my $pauses = DirtyThrottle::Pauses->new($dt);     # tables and groups
#	foreach my $kind (@{ $pauses->kinds })
#	{
#		my $s = $pauses->session($kind);              # a member
#		$pauses->put($s, $kind);                      # now it pauses
#		$pauses->check_stays($s, $kind, 'name');      # where it was put
#		$pauses->let_go($kind); $s->wait;
#	}
#
# A kind is a hash:
#	name   what the tests say of it
#	where  'in flight', in a transaction, or 'after transaction'
#	order  'in flight', 'before' or 'after' its work
#	state  what its transaction keeps meanwhile: 'work' the locks of what it
#	       has written, and its snapshot; 'relation' the lock on its table that
#	       parse analysis takes; 'nothing'
#	by     'limit' or 'soft' (suspend_group)
#	group, table
#	sql    what comes to the pause
#
# The server needs dirty_throttle.transaction_grace = 140s: at 1 KB/s, the
# lowest of all limits, that is for 17 blocks: the ten that a small transaction
# writes, and some that are dirtied beside.
#
# Once it is there, the limit is lowered: what would last minutes lasts for longer
# than any time-out, and so do those after transactions.
#
# A pause at a check for interrupts lasts 200 ms, then the command goes on to
# its next check; that it is somewhere else then is not seen from outside.

package DirtyThrottle::Pauses;

use strict;
use warnings;

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

our $CONF = "dirty_throttle.transaction_grace = 140s\n";

my $INSERT = "INSERT INTO %t SELECT i, 0, repeat('x', 800) FROM generate_series";

# What is owed for it stays below the grace, so it pays when it is done.
my $SMALL = "$INSERT(1001, 1010) i";

# It hands over no rows; the first 20 exceed the grace, the others take time, too.
my $REWRITE = q{ALTER TABLE %t ALTER n TYPE int USING
	n + CASE WHEN id > 20 AND (pg_stat_file('%t.naps', true)).size IS NOT NULL
		THEN length(pg_sleep(0.05)::text) ELSE 1 END};

# name, order, state, by, sql, sql before the pause
my @KINDS = (
	[ 'in flight', 'in flight', 'work', 'limit', "$INSERT(1001, 1100) i" ],
	[ 'in flight, in a block', 'in flight', 'work', 'limit',
		"BEGIN;\n$INSERT(1001, 1100) i" ],
	[ 'at a check', 'in flight', 'work', 'limit', $REWRITE ],
	[ 'at a check, in a block', 'in flight', 'work', 'limit',
		"BEGIN;\nINSERT INTO %t VALUES (0);\n$REWRITE" ],
	[ 'after a transaction', 'after', 'nothing', 'limit', $SMALL ],
	[ 'after a block', 'after', 'nothing', 'limit',
		"BEGIN;\nINSERT INTO %t VALUES (0);\n$SMALL;\nCOMMIT" ],
	[ 'after COPY', 'after', 'nothing', 'limit',
		"COPY %t (id, filler) FROM PROGRAM " .
		q{'awk "BEGIN { for (i = 1; i <= 10; i++) printf \"%%d\\\\t%%0800d\\\\n\", i + 1000, 0 }"'} ],
	[ 'after COMMIT in a procedure', 'after', 'nothing', 'limit',
		'CALL rewrite_%t()' ],
	[ 'before DO', 'before', 'nothing', 'limit', $MAY_WRITE ],
	[ 'before a SELECT that locks rows', 'before', 'relation', 'limit',
		'SELECT id FROM %t WHERE id < 0 FOR UPDATE' ],
	[ 'before INSERT', 'before', 'relation', 'limit',
		'INSERT INTO %t VALUES (-1)' ],
	[ 'before EXECUTE', 'before', 'relation', 'limit', 'EXECUTE ins' ],
	[ 'before ALTER TABLE', 'before', 'nothing', 'limit',
		"ALTER TABLE %t ALTER filler SET DEFAULT 'x'" ],
	[ 'after a transaction, suspended', 'after', 'nothing', 'soft',
		"BEGIN;\nUPDATE %t SET n = 1 WHERE id = 1;\nCOMMIT" ],
	[ 'before DO, suspended', 'before', 'nothing', 'soft', $MAY_WRITE ],
	[ 'before INSERT, suspended', 'before', 'relation', 'soft',
		'INSERT INTO %t VALUES (-1)' ]);

# Create what they need.  Option: only => a regular expression for names.
sub new
{
	my ($class, $dt, %opt) = @_;
	my $self = bless { dt => $dt, kinds => [] }, $class;
	my $n = 0;

	foreach my $row (@KINDS)
	{
		my %kind;

		@kind{qw(name order state by sql)} = @$row;
		next if $opt{only} && $kind{name} !~ $opt{only};
		$n++;
		$kind{where} =
		  $kind{order} eq 'after' ? 'after transaction' : 'in flight';
		$kind{group} = "g$n";
		$kind{table} = "t$n";
		$kind{sql} = _for_table(\%kind, $kind{sql});
		# a rewrite is to last for longer than it is looked at
		my $rows = $kind{sql} =~ /naps/ ? 800 : 160;
		$dt->limit($kind{group} => 0);
		$dt->sql(
			"CREATE TABLE t$n (id int, n int, filler text)
				WITH (fillfactor = 10);
			INSERT INTO t$n
				SELECT i, 0, repeat('x', 800) FROM generate_series(1, $rows) i;
			CREATE PROCEDURE rewrite_t$n() LANGUAGE plpgsql AS \$\$ BEGIN
				FOR i IN 1..3 LOOP
					INSERT INTO t$n
						SELECT k, 0, repeat('x', 800) FROM generate_series(1001, 1010) k;
					COMMIT;
				END LOOP; END \$\$");
		push @{ $self->{kinds} }, \%kind;
	}
	return $self;
}

sub _for_table
{
	my ($kind, $sql) = @_;

	$sql =~ s/%t/$kind->{table}/g;
	$sql =~ s/%%/%/g;
	return $sql;
}

sub kinds
{
	my ($self) = @_;
	return $self->{kinds};
}

# A session that can be put into this kind of pause.  Options: sql to run
# first; member => 0 for one that is in no group.
sub session
{
	my ($self, $kind, %opt) = @_;
	my $s;

	$self->let_go($kind);
	$s = $self->{dt}->session(
		($opt{member} // 1) ? (group => $kind->{group}) : ());

	$s->query("PREPARE ins AS INSERT INTO $kind->{table} VALUES (-1)");
	$s->query(q{SET dirty_throttle.max_commit_pause = '1d'});
	$s->query($opt{sql}) if $opt{sql};
	return $s;
}

# Put it there.  "Settings" is SQL that the session runs just before what
# pauses; it must not be anything that pays.  With "may_end" it may have ended
# before it is seen to pause; then this returns false, and no test fails.
sub put
{
	my ($self, $s, $kind, $settings, $may_end) = @_;
	my $dt = $self->{dt};
	my $group = $kind->{group};
	my $sql = ($settings ? "$settings;\n" : '') . $kind->{sql};

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$self->let_go($kind);
	append_to_file($self->naps($kind), '');
	$dt->limit($group => 1) if $kind->{by} eq 'limit';
	if ($kind->{order} eq 'before' && $kind->{by} eq 'limit')
	{
		# the pause of what came before it is cancelled
		$s->send(_for_table($kind, $SMALL));
		$dt->wait_paused($s, 'after transaction')
		  or fail("$kind->{name}: it pauses before that");
		$dt->cancel_ms($s);
		$s->send($sql);
	}
	elsif ($kind->{order} eq 'before')
	{
		$dt->sql("SELECT suspend_group('$group')");
		$s->send($sql);
	}
	elsif ($kind->{by} eq 'soft')
	{
		# it must have begun before the group is suspended
		my ($work, $end) = $sql =~ /^(.*);\n(COMMIT)$/s;
		$s->query($work);
		$dt->sql("SELECT suspend_group('$group')");
		$s->send($end);
	}
	else
	{
		$s->send($sql);
	}
	my $paused = $dt->wait_paused($s, $kind->{where});
	fail("$kind->{name}: it pauses") unless $paused || $may_end;
	$dt->limit($group => 0.02) if $kind->{by} eq 'limit';
	# it may serve an interrupt just now
	$self->{place}{ $s->pid } = $self->place($s) =~ s/^runs/pauses/r;
	return $paused;
}

# End the pauses of a kind: nothing is owed, no group suspended.
sub let_go
{
	my ($self, $kind) = @_;
	my $dt = $self->{dt};

	$self->no_naps($kind);
	$dt->limit($kind->{group} => 0);
	$dt->sql("SELECT resume_group('$kind->{group}')")
	  if defined $dt->group_row($kind->{group})->{suspended_since};
}

# The file that makes its rewrite take time; without it there is hardly any
# work left.
sub naps
{
	my ($self, $kind) = @_;
	return $self->{dt}->node->data_dir . "/$kind->{table}.naps";
}

sub no_naps
{
	my ($self, $kind) = @_;
	unlink $self->naps($kind);
}

# Where a session is: the same text as long as it pauses in the same statement.
# It has no locks and no snapshot while it is nowhere.
sub place
{
	my ($self, $s) = @_;
	return $self->{dt}->sql(
		'SELECT format($$%s, %s, since %s, %s$$,
			CASE WHEN s.paused_since IS NULL THEN $$runs$$ ELSE $$pauses$$ END,
			CASE WHEN a.xact_start IS NULL THEN $$after transaction$$
				ELSE $$in flight$$ END, a.query_start, a.query)
		FROM pg_stat_activity a JOIN dirty_throttle_sessions s USING (pid)
		WHERE pid = ' . $s->pid);
}

# A test: it still pauses where put() has put it.
sub check_stays
{
	my ($self, $s, $kind, $name) = @_;
	my $place;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# it may have served an interrupt just now
	poll_until(
		sub {
			$place = $self->place($s);
			return $place =~ /^pauses/;
		});
	is($place, $self->{place}{ $s->pid }, "$name: $kind->{name}: it pauses on");
	return $place eq $self->{place}{ $s->pid };
}

# The locks it holds on anything but its own transaction IDs, and its
# snapshot: 'no lock, no snapshot'.
sub holds
{
	my ($self, $s) = @_;
	return $self->{dt}->sql(
		q{SELECT coalesce((SELECT string_agg(mode || ' on ' ||
				coalesce(relation::regclass::text, locktype), ', ')
			FROM pg_locks WHERE pid = a.pid
				AND locktype NOT IN ('virtualxid', 'transactionid')), 'no lock')
			|| CASE WHEN backend_xmin IS NULL THEN ', no snapshot'
				ELSE ', a snapshot' END
		FROM pg_stat_activity a WHERE pid = } . $s->pid);
}

1;
