# The doors through which code of a user runs in a member's session, other than by
# rows: at each one a check for interrupts costs next to nothing, it pauses at its
# limit, and it can be canceled.  Around the code there is a text of 5 MB, or it is
# 600 calls deep: both are dear where the core collects the context of a message,
# and where no hook is, that cannot be avoided.
#
# All doors at once, each in a group of its own.
#
# takes-about: 4 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'needs /proc' unless -r '/proc/self/stat';

my $limit = 200;         # KB/s
my $slack = 4_000_000;   # bytes: what is used between two checks, which may be late
my $patience = 180;      # s, for what must happen at all

my $dt = DirtyThrottle->new('doors', conf => q{
autovacuum = off
max_stack_depth = 6MB
});

$dt->sql(
	q{CREATE FUNCTION writes(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
		BEGIN
			IF n > 1 THEN
				RETURN writes(n - 1);
			END IF;
			LOOP
				n := length(pg_logical_emit_message(false, '', repeat('x', 1000))::text);
			END LOOP;
		END $$;
	CREATE FUNCTION wrote(n int) RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN
			RETURN writes(n) = 1;
		END $$;
	CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			b bool;
		BEGIN
			b := wrote(NEW.i);
			RETURN NULL;
		END $$;
	CREATE TABLE after (i int);
	CREATE TRIGGER fires AFTER INSERT ON after
		FOR EACH ROW EXECUTE FUNCTION fires();
	CREATE TABLE deferred (i int);
	CREATE CONSTRAINT TRIGGER fires AFTER INSERT ON deferred
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fires();
	CREATE DOMAIN checked AS int CHECK (wrote(VALUE))});
my $writes = $dt->sql("SELECT 'writes(int)'::regprocedure::oid");
my $checked = $dt->sql("SELECT 'checked'::regtype::oid");

sub in_text
{
	my ($sql) = @_;
	return "DO \$do\$ BEGIN EXECUTE \$s\$$sql\$s\$ || ' --' || repeat('x', 5000000); END \$do\$";
}

# name, and what does it
my @doors = (
	map({
			my ($name, $sql) = @$_;

			(   [ "$name, 5 MB", in_text(sprintf $sql, 1) ],
				[ "$name, 600 deep", sprintf($sql, 600) ]);
	} (
		[ 'the planner', 'SELECT writes(%d)' ],
		[ 'a query', 'SELECT wrote(%d)' ],
		[ 'an AFTER trigger', 'INSERT INTO after VALUES (%d)' ],
		[ 'parse analysis', q{SELECT '{%d}'::checked[]} ],
		[ 'a command', 'CREATE TEMP TABLE made AS SELECT wrote(%d)' ] )),
	[ 'a deferred trigger at COMMIT', 'BEGIN; INSERT INTO deferred VALUES (600); COMMIT' ],
	[ 'Bind', sub {
			$_[0]->message('P', "\0SELECT \$1\0" . pack('nN', 1, $checked))->bind('', '', 600)->sync;
		} ],
	[ 'a function call', sub { $_[0]->function_call($writes, pack 'N', 600) } ]);

my @all;
foreach (@doors)
{
	my ($name, $do) = @$_;
	my $door = { name => $name, group => 'door' . @all };
	my $w = DirtyThrottle::Wire->new($dt->node);

	$dt->limit($door->{group} => 0);
	$dt->sql("SELECT set_group_wal_limit('$door->{group}', $limit)");
	$w->query(qq{SET dirty_throttle."group" = '$door->{group}'});
	ref $do ? $do->($w) : $w->simple($do);
	$w->transmit;
	@$door{qw(session pid)} = ($w, $w->pid);
	push @all, $door;
}
foreach my $door (@all)
{
	ok(poll_until(sub { ($dt->session_row($door->{session})->{paused_time} // 0) > 0 }, $patience),
		"$door->{name}: it pauses");
	$door->{start} = time;
	# what it has used until then it owes
	my $row = $dt->session_row($door->{session});
	$door->{paused} = $row->{paused_time} // 0;
	$door->{bytes} = $row->{wal_bytes} // 0;
	$door->{cpu} = cpu_s($door->{pid});
}
foreach my $door (@all)
{
	my $row;

	ok( poll_until(
			sub {
				$row = $dt->session_row($door->{session});
				return ($row->{paused_time} // 0) >= $door->{paused} + 2000;
			}, $patience),
		"$door->{name}: again and again");
	my $cpu = 100 * 1000 * (cpu_s($door->{pid}) - $door->{cpu}) /
		((($row->{paused_time} // 0) - $door->{paused}) || 1);
	note sprintf '%s: %.1f %% of a processor', $door->{name}, $cpu;
	cmp_ok($cpu, '<', 10, "$door->{name}: CPU time, % of the pauses");
	cmp_ok($row->{wal_bytes} - $door->{bytes}, '<=',
		1000 * $limit * (time - $door->{start}) + $slack, "$door->{name}: bytes of WAL");
}
$dt->sql("SELECT pg_cancel_backend($_->{pid})") foreach @all;
foreach my $door (@all)
{
	my $r = $door->{session}->wait;

	is($r->{sqlstate}, '57014', "$door->{name}: it can be canceled");
	$door->{session}->terminate;
}
$dt->finish;
