# Notices of long pauses: who gets one, when and how often, what it says; and that
# it waits for no client that does not read.  On a clock that stands still while
# statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use DirtyThrottle::Wire;
use Test::More;

my $second = 1_000_000;
my $dt = DirtyThrottle::Clock->new('pause_notices');
$dt->limit(g => 0);
$dt->sql('CREATE TABLE t (id int, pad text) WITH (fillfactor = 10)');

my $w = DirtyThrottle::Wire->new($dt->node, options => '-c dirty_throttle.group=g');

# Each row dirties a block.
sub insert
{
	my ($rows) = @_;
	return "INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, $rows) k";
}

sub sleeps
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { $dt->state($w) eq 'sleeps' }), $name);
}

# The next message of the server, which it has sent already; undef if there is none.
sub sent
{
	my $r = $w->new_result;
	my ($type, $body) = $w->read(0);

	return undef unless defined $type;
	$w->take($r, $type, $body);
	return $type eq 'N' ? $r->{err} =~ s/\n$//r : $type;
}

sub notice
{
	my ($duration) = @_;
	my $bytes = ($dt->used('g', 'dirty'))[1];
	my $s = $duration // $bytes / 1000;    # at 1 KB/s

	return sprintf "NOTICE:  00000: this session pauses for about %d:%02d:%02d in resource group \"g\"\n"
	  . "DETAIL:  The group has used what its limits allow.\n"
	  . 'HINT:  The view dirty_throttle_groups shows the limits, and dirty_throttle_sessions all pauses.',
	  $s / 3600, $s / 60 % 60, $s % 60;
}

# What is owed is forgiven; all that was sent is read.
sub let_go
{
	my $r;

	$dt->limit(g => 0);
	$r = $w->wait;
	is($r->{sqlstate}, undef, 'it goes on') or diag $r->{err};
	return $r;
}

# --------------------------------------------------------------- a suspended group

$dt->sql(q{SELECT suspend_group('g')});
my $suspended = qq{NOTICE:  00000: this session pauses until resource group "g" is resumed
DETAIL:  The group is suspended.
HINT:  A superuser, or a role that may call resume_group(), can resume it. The view dirty_throttle_sessions shows all pauses.};
$w->simple(insert(1))->transmit;
sleeps('a suspended group');
is(sent(), $suspended, 'a notice, at once');
$dt->advance(59 * $second);
is(sent(), undef, 'no other one for a minute');
$dt->advance(2 * $second);
is(sent(), $suspended, 'and one each minute');
is(sent(), undef, 'one only');
$dt->sql(q{SELECT resume_group('g')});
is($w->wait->{types}, 'CZ', 'the statement goes on');

$dt->sql(q{SELECT suspend_group('g')});
$w->simple('BEGIN;' . insert(1))->transmit;
sleeps('another transaction');
is($w->wait(until => 'N')->{err}, $suspended, 'has one of its own');
$w->cancel;
is($w->wait->{sqlstate}, '57014', 'canceled');
$w->query('ROLLBACK');

foreach my $level (qw(warning notice))
{
	$w->query("SET client_min_messages = $level");
	$w->simple(insert(1))->transmit;
	sleeps("client_min_messages = $level");
	is(sent(), $level eq 'notice' ? $suspended : undef, 'is heeded');
	$w->cancel;
	$w->wait;
}
$dt->sql(q{SELECT resume_group('g')});

# --------------------------------------------------------------- after a transaction

$dt->fresh(g => dirty => 1);
$w->simple(insert(5))->transmit;
sleeps('a debt of more than 5 s, after the transaction');
is(sent(), notice(), 'how long it takes to pay');
let_go();

$w->query('SET dirty_throttle.max_commit_pause = 20000');
$dt->fresh(g => dirty => 1);
$w->simple(insert(5))->transmit;
sleeps('no longer than max_commit_pause');
is($w->wait(until => 'N')->{err}, notice(20), 'is said');
let_go();
$w->query('RESET dirty_throttle.max_commit_pause');

$dt->fresh(g => dirty => 10);
$w->simple(insert(5))->transmit;
sleeps('a pause of less than 5 s');
is(sent(), undef, 'and no notice');
let_go();

# ------------------------------------------------------------------------- in flight

$w->query('SET dirty_throttle.transaction_grace = 0');
$dt->fresh(g => dirty => 1);
$w->simple('COPY (' . insert(20) . ' RETURNING id) TO STDOUT')->transmit;
my ($advanced, @messages) = (0);
while (1)
{
	sleeps('between rows');
	while (defined(my $message = sent()))
	{
		push @messages, [ $message, $advanced ];
	}
	last if $advanced > 130;
	$dt->advance(5 * $second);
	$advanced += 5;
}
my @notices = grep { $_->[0] =~ /^NOTICE/ } @messages;
is(scalar @notices, 3, 'in two minutes');
cmp_ok($notices[$_][1] - $notices[ $_ - 1 ][1], '>=', 60, 'one each minute') foreach 1, 2;
like($notices[0][0], qr/^NOTICE:  00000: this session pauses for about 0:00:0\d in resource group "g"\n/, 'of the pause for one row');
is($messages[0][0], 'H', 'COPY TO STDOUT has begun before');
ok((grep { $_->[0] eq 'd' } @messages), 'and goes on between notices');
my $rest = let_go();
is((grep { $_->[0] eq 'd' } @messages) + ($rest->{types} =~ tr/d//), 20, 'all rows come');
like($rest->{types}, qr/^d*cCZ$/, 'and the end');

$dt->fresh(g => dirty => 1);
$w->query('BEGIN');
$w->simple(insert(1))->transmit;
sleeps('in a block');
like(sent(), qr/^NOTICE/, 'its first statement has a notice');
$dt->run;
$w->wait;
$w->simple(insert(1))->transmit;
sleeps('its second statement');
is(sent(), undef, 'has none');
$dt->limit(g => 0);
$w->wait;
$w->query('COMMIT');

# A check for interrupts, where nothing may fail.
$w->query('CREATE TABLE large (id int, pad text) WITH (fillfactor = 10)');
$w->query("INSERT INTO large SELECT k, repeat('x', 900) FROM generate_series(1, 3000) k");
$dt->fresh(g => dirty => 1);
$w->simple('ALTER TABLE large ALTER id TYPE bigint')->transmit;
my $at_check = $w->wait(until => 'N')->{err};
like($at_check, qr/^NOTICE:  00000: this session pauses for about \d:\d\d:\d\d in resource group "g"\n/, 'a command');
is($w->{input}, '', 'has one notice');
let_go();
is($w->query("SELECT pg_typeof(id), count(*) FROM large GROUP BY 1")->{out}, 'bigint|3000', 'and has done all');

# ------------------------------------------------------------------ who does not read

# Each transaction has a notice, until the socket is full.  Then the core waits for the
# client, after the pause; the pause itself never does.
my $n = 200;
$dt->fresh(g => dirty => 1);
$w->query('SET dirty_throttle.transaction_grace = 86400000');
$w->parse('s', "INSERT INTO t VALUES (1, repeat('x', 900)) RETURNING repeat('y', 6000)")->sync;
$w->wait;
$w->bind('', 's')->execute->sync foreach 1 .. $n;
my ($waits, $paused, $rounds) = ('', 0, 0);
until ($waits eq 'ClientWrite' || $rounds++ > $n)
{
	ok(poll_until(sub {
		($waits, $paused) = split /\|/, $dt->sql('SELECT wait_event, (SELECT paused FROM dirty_throttle_groups)
			FROM pg_stat_activity WHERE pid = ' . $w->pid);
		$waits eq 'ClientWrite' || $dt->state($w) eq 'sleeps';
	}), 'sleeps, or waits for its client') or last;
	$dt->advance(20 * $second) if $waits ne 'ClientWrite';
}
is($waits, 'ClientWrite', 'the client has not read');
is($paused, 0, 'and holds up no pause');
cmp_ok($rounds, '>', 5, 'after some transactions');
$dt->limit(g => 0);
my ($rows, $notices, $ends) = (0, 0, 0);
while ($ends < $n)
{
	my $r = $w->wait;
	$ends++;
	$notices += @{ $r->{notices} };
	$rows += grep { $_->[0] eq 'y' x 6000 } @{ $r->{rows} };
}
is($rows, $n, 'it has all rows');
cmp_ok($notices, '>', 0, 'and the notices that could be sent');
cmp_ok($notices, '<', $n, 'and not those that could not');

$dt->finish;
