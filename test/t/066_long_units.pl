# What works long between two checks for interrupts, here a function that writes
# a megabyte to a large object in one expression, again and again, is held at
# its rate: however it is called, and although its session has its pauses
# interrupted all the time.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Wire;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 2000;    # KB/s: two calls a second
my $seconds = 2;
my $dt = DirtyThrottle->new('units');
my $unit = 1000000;  # bytes; it dirties more than that
my $idle = 0.05;     # s, after which a session's timer is not set any more

# The advisory locks of a session count its calls.
$dt->sql(q{
-- nothing that could be compressed, and no query: that would be paced
CREATE FUNCTION unit() RETURNS bytea IMMUTABLE LANGUAGE plpgsql AS $$
	DECLARE
		all_of_it bytea := '';
		i int := 0;
	BEGIN
		WHILE i < 500 LOOP
			all_of_it := all_of_it || decode(md5(i::text), 'hex');
			i := i + 1;
		END LOOP;
		i := 0;
		WHILE i < 7 LOOP
			all_of_it := all_of_it || all_of_it;
			i := i + 1;
		END LOOP;
		RETURN substr(all_of_it, 1, 1000000);
	END $$;
CREATE FUNCTION writes(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
	DECLARE
		fd int := lo_open(lo_create(0), 393216);
		unit bytea := unit();
		i int := 0;
	BEGIN
		WHILE i < n AND pg_try_advisory_xact_lock_shared(i) LOOP
			i := i + sign(lowrite(fd, unit));
		END LOOP;
		RETURN i;
	END $$;
-- A cancel outside of one block is caught by another one.
CREATE FUNCTION catches_at(depth int, fd int, unit bytea) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		i int := 1000 * depth;
	BEGIN
		LOOP
			BEGIN
				IF depth < 100 THEN
					i := catches_at(depth + 1, fd, unit);
				END IF;
				LOOP
					i := i + sign(lowrite(fd, unit)) * pg_try_advisory_lock_shared(i)::int;
				END LOOP;
			EXCEPTION WHEN query_canceled THEN
				i := i + 1;
			END;
		END LOOP;
	END $$;
CREATE FUNCTION catches() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		RETURN catches_at(1, lo_open(lo_create(0), 393216), unit());
	END $$;
CREATE TABLE deferred (i int);
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		i int;
	BEGIN
		i := writes(1000);
		RETURN NULL;
	END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON deferred
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()});

my $writes = 'DO $$ DECLARE i int; BEGIN i := writes(1000); END $$';
my $oid = $dt->sql("SELECT 'writes(int)'::regprocedure::oid");

# Each: a name, and what the session, which is connected, does.
my @cases = (
	[ 'a statement', sub { $_[0]->simple($writes)->transmit } ],
	[ 'whose client is looked for every millisecond',
		sub {
			$_[0]->query('SET client_connection_check_interval = 1');
			$_[0]->simple($writes)->transmit;
		} ],
	[ 'that catches cancels',
		sub { $_[0]->simple('DO $$ DECLARE i int; BEGIN i := catches(); END $$')->transmit },
		1 ],
	[ 'in planning, in a transaction that was idle',
		sub {
			$_[0]->query('BEGIN; SELECT 1');
			sleep $idle;
			$_[0]->simple('SELECT writes(1000)')->transmit;
		} ],
	[ 'in planning by Bind, in a transaction that was idle',
		sub {
			$_[0]->query('BEGIN; SELECT 1');
			$_[0]->parse('s', 'SELECT writes(1000)')->sync->wait;
			sleep $idle;
			$_[0]->bind('', 's')->execute->sync;
		} ],
	[ 'by the function-call protocol',
		sub { $_[0]->function_call($oid, pack('N', 1000))->transmit } ],
	[ 'by the function-call protocol, in a transaction that was idle',
		sub {
			$_[0]->query('BEGIN; SELECT 1');
			sleep $idle;
			$_[0]->function_call($oid, pack('N', 1000))->transmit;
		} ],
	[ 'by a deferred trigger at Sync',
		sub { $_[0]->extended('INSERT INTO deferred VALUES (1)')->sync } ]);

sub calls
{
	my ($w) = @_;
	return $dt->sql(
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = " . $w->pid);
}

# All at the same time, each in a group of its own.
my @running;
foreach my $n (0 .. $#cases)
{
	my ($name, $code, $is_cancelled) = @{ $cases[$n] };

	$dt->limit("g$n", $limit);
	my $w = DirtyThrottle::Wire->new($dt->node, options => qq{-c dirty_throttle.group=g$n});
	push @running,
	  { name => $name, w => $w, start => time, is_cancelled => $is_cancelled };
	$code->($w);
}
my $end = time + $seconds;
my $cancels = 0;
# on a busy machine it takes longer until there are enough cancels
while (time < $end || ($cancels <= 5 && time < $end + $DirtyThrottle::TIMEOUT))
{
	$cancels += $dt->sql(
		"SELECT count(pg_cancel_backend(pid)) FROM dirty_throttle_sessions()
		 WHERE paused_since IS NOT NULL AND pid = @{[ $_->{w}->pid ]}")
	  foreach grep { $_->{is_cancelled} } @running;
	sleep 0.01;
}
cmp_ok($cancels, '>', 5, 'pauses that are cancelled');

# Not more than the limit and what the books grant when one charge is a call: two
# calls before it pauses, and one more each time until a pause is as long as a call
# takes.  A cancel that is caught adds none, as the next check pays on.  Besides, what
# it writes until a timer of CPU time notices that it works at all: some calls, as the
# kernel looks at such timers at its own ticks, of which a busy machine may give them to
# others.
my $granted = granted(kb => $limit, charge => $unit, new => 1) + 10 * $unit;
foreach (@running)
{
	my $kb = $unit / 1000 * calls($_->{w});

	# a call counts when it begins
	cmp_ok($kb, '<=', $limit * (time - $_->{start}) + ($granted + $unit) / 1000,
		"$_->{name}: KB written");
}
$dt->sql("SELECT pg_terminate_backend(@{[ $_->{w}->pid ]})") foreach @running;
ok(poll_until(sub { $dt->sql('SELECT count(*) FROM dirty_throttle_sessions()') == 0 }),
	'all end at once');
$dt->finish;
