# What sessions of a role have left unpaid in a group, the next ones take over, and
# pay before their first statement there that writes, whatever else they do: also in
# a group that they come to through another one, and in functions with a SET clause.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use DirtyThrottle::Life;
use Test::More;

my $dt = DirtyThrottle::Clock->new('role_debt', conf => q{
wal_level = replica
dirty_throttle.transaction_grace = 50ms
dirty_throttle.max_commit_pause = 30s
});
$dt->table('t');
$dt->limit($_ => 0) foreach 'g', 'h';
$dt->sql("SELECT alter_resource_group('$_', burst => 0)") foreach 'g', 'h';
$dt->sql(
	q{CREATE ROLE app LOGIN;
	CREATE ROLE su SUPERUSER LOGIN;
	CREATE FUNCTION in_g(bytes int) RETURNS void LANGUAGE plpgsql
		SECURITY DEFINER SET dirty_throttle."group" = 'g' AS
		'BEGIN PERFORM pg_logical_emit_message(false, $$x$$, repeat($$x$$, bytes)); END';
	CREATE FUNCTION in_h(bytes int) RETURNS void LANGUAGE plpgsql
		SECURITY DEFINER SET dirty_throttle."group" = 'h' AS
		'BEGIN PERFORM pg_logical_emit_message(false, $$x$$, repeat($$x$$, bytes)); END';
	CREATE FUNCTION simply_in_h(bytes int) RETURNS void LANGUAGE plpgsql
		SECURITY DEFINER SET dirty_throttle."group" = 'h' AS
		'DECLARE
			x pg_lsn;
		BEGIN
			x := pg_logical_emit_message(false, $$x$$, repeat($$x$$, bytes));
		END'});

sub owed
{
	my ($group, $what) = @_;

	return ($dt->used($group, $what))[1];
}

# ------------------------------------------------------- one that uses much of h

# A new connection runs these: how many bytes does it use of h before it waits?
sub connection_uses
{
	my ($name, @sql) = @_;
	my $s = $dt->session(user => 'app');
	my $before = $dt->group_row('h')->{wal_bytes};

	foreach (@sql)
	{
		$s->send($_);
		$dt->settle;
		last if $dt->state($s) ne 'idle';
		$s->wait;
	}
	is($dt->state($s), 'sleeps', "$name: it sleeps");
	my $row = $dt->session_row($s);
	is("$row->{group_name} $row->{paused_by}", 'h wal', "$name: for h");
	my $used = $dt->group_row('h')->{wal_bytes} - $before;
	$dt->terminate_ms($s);
	# the next one takes over what it leaves
	poll_until(sub { !$dt->session_row($s) }, 180);
	return $used;
}

$dt->fresh(h => wal => 100);
$dt->fresh(g => wal => 10000);
cmp_ok(connection_uses('the first one', 'SELECT in_h(1000000)'),
	'>', 1000000, 'the first one: owes 10 s');
is(connection_uses('straight', 'SELECT in_h(1000000)'), 0, 'straight: uses nothing');

# 25 ms of g, which is less than the grace
foreach my $n (1 .. 2)
{
	is( connection_uses("through g ($n)",
			'BEGIN', 'SELECT in_g(250000)', 'SELECT in_h(1000000)'),
		0, "through g ($n): uses nothing");
	$dt->advance(30_000);    # what is owed to g
}

# An expression that is so simple that no executor runs it.
is(connection_uses('an expression', 'SELECT simply_in_h(1000000)'),
	0, 'an expression: uses nothing');

# ------------------------------------------------- one that owes much, among many

# The first who comes takes over as much as one of them has left, and not a tenth of
# all; the next ones share the rest.
$dt->sql('CREATE ROLE crowd SUPERUSER LOGIN');

# Members that have used so many bytes each and not paid for them.
sub crowd
{
	my @bytes = @_;
	my @crowd = map { $dt->session(user => 'crowd', group => 'h') } @bytes;

	foreach my $i (0 .. $#bytes)
	{
		$crowd[$i]->query($_) foreach 'SET dirty_throttle.max_commit_pause = 0',
		  q{SET dirty_throttle.transaction_grace = '1d'},
		  "SELECT pg_logical_emit_message(false, 'x', repeat('x', $bytes[$i]))";
	}
	return @crowd;
}

sub leave
{
	my $left = $dt->group_row('h')->{members} - @_;

	$_->quit foreach @_;
	ok(poll_until(sub { $dt->group_row('h')->{members} == $left }, 180), @_ . ' have left');
}

# A new session, and what it takes over, KB.
sub joins
{
	my $s = $dt->session(user => 'crowd', group => 'h');

	$s->query('BEGIN');
	return ($s, $dt->session_row($s)->{wal_debt});
}

$dt->limit(h => 0);
$dt->fresh(h => wal => 100);
leave(crowd(1_000_000, (10_000) x 9));
cmp_ok(owed('h', 'wal'), '>', 1_090_000, 'they owe more than ten seconds');
my ($first, $kb) = joins();
cmp_ok($kb, '>=', 1000, 'the first who comes takes over what one has left, KB');
(my $second, $kb) = joins();
cmp_ok($kb, '<', 50, 'the next one a part of the rest');
$_->quit foreach $first, $second;

# Of two that have left the first who comes takes over half.  Nobody has left more than
# the other half then.
$dt->limit(h => 0);
$dt->fresh(h => wal => 100);
my @crowd = crowd(1_000_000, (10_000) x 20);
leave(@crowd[ 0, 1 ]);
($first, $kb) = joins();
between($kb, 500, 550, 'one of two');
leave(@crowd[ 2 .. 20 ]);
($second, $kb) = joins();
between($kb, 500, 550, 'and the one who has left most among twenty');
$_->quit foreach $first, $second;
$dt->limit(h => 0);

# ------------------------------------------------------ what a DBA does meanwhile

# Who has left a debt in g has joined h, where his role owes more.
foreach my $case (
	[ 'nothing', 'SELECT 1' ],
	[ 'g has no limit', q{SELECT set_group_dirty_limit('g', 0)} ],
	[ 'g is dropped',   q{SELECT drop_resource_group('g')} ])
{
	my ($name, $sql) = @$case;
	my $other = $dt->session(user => 'su', group => 'h');
	my $s = $dt->session(user => 'su');

	$dt->limit($_ => 0) foreach 'g', 'h';
	$dt->fresh($_ => dirty => 1000) foreach 'g', 'h';
	$other->query(q{SET dirty_throttle.max_commit_pause = 0;
		SET dirty_throttle.interrupt_pauses = off});
	$other->send(insert_sql('t', 60));
	$dt->settle;
	$dt->terminate_ms($other);
	poll_until(sub { $dt->group_row('h')->{members} == 0 }, 180);
	$s->query('SET dirty_throttle.max_commit_pause = 0');
	$s->query($_) foreach 'BEGIN', q{SET dirty_throttle."group" = 'g'}, insert_sql('t', 5),
	  q{SET dirty_throttle."group" = 'h'}, 'COMMIT';
	my $in_h = owed('h', 'dirty');
	cmp_ok($in_h, '>', owed('g', 'dirty'), "$name: the role owes more to h");
	$dt->sql($sql);
	$s->send($MAY_WRITE);
	is($dt->run, $in_h, "$name: it waits for that, in us");
	$s->quit;
	is($dt->group_row('h')->{paused}, 0, "$name: nobody pauses any more");
}

# ------------------------------------------------------------- two roles, one pool

# The connections of a pool come and go, and each leaves what it owes.  Those of a role
# that writes little do not wait for what one that writes much has left: at half of the
# limit theirs takes 40 ms.  That is why debts are kept by role.
$dt->sql('CREATE ROLE little LOGIN; CREATE ROLE much LOGIN');
sub pooled
{
	my ($role, $bytes) = @_;
	my $s = $dt->session(user => $role);

	$s->send(qq{DO \$\$ BEGIN PERFORM in_h($bytes); END \$\$});
	$dt->settle;
	return $s;
}
$dt->limit(h => 0);
$dt->fresh(h => wal => 100);
my ($longest, $n) = (0, 0);
foreach my $round (1 .. 5)
{
	$dt->terminate_ms(pooled('much', 500_000));
	my $s = pooled('little', 2000);
	my $begin = $dt->now;
	$dt->advance(10_000) while !$s->finished && $dt->now < $begin + 10_000_000;
	$longest = $dt->now - $begin if $dt->now - $begin > $longest;
	$s->wait if $s->finished;
	$s->finished ? $s->quit : $dt->terminate_ms($s);
}
cmp_ok($longest, '<=', 60_000, 'the role that writes little waits for itself');

is($dt->crashes, '', 'no crash');
$dt->finish;
