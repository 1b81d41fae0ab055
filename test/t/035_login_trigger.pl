# A login pauses for nothing, also if a trigger writes at each (17 and later): who
# cannot connect cannot even read, and takes the server for dead.  What it writes is
# paid before the first statement that writes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle->new('login_trigger');
plan skip_all => 'login triggers are new in 17'
  if $dt->sql(q{SELECT current_setting('server_version_num')::int < 170000}) eq 't';

# A login writes more than the grace and than reading may.
$dt->limit(g => 0);
$dt->sql(
	q{CREATE ROLE app LOGIN;
	ALTER DATABASE postgres SET dirty_throttle."group" = 'g';
	CREATE TABLE logins (who text, pad text) WITH (fillfactor = 10);
	CREATE TABLE t (id int);
	GRANT ALL ON logins, t TO PUBLIC;
	CREATE FUNCTION note_login() RETURNS event_trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO public.logins SELECT session_user, repeat('x', 800) FROM generate_series(1, 100);
		END $$;
	CREATE EVENT TRIGGER note_login ON login EXECUTE FUNCTION note_login();
	ALTER EVENT TRIGGER note_login ENABLE ALWAYS});

sub logins { return $dt->sql(q{SELECT count(*) / 100 FROM logins WHERE who = 'app'}) }

foreach my $case (
	[ 'with a limit', sub { $dt->limit(g => 1) }, 'dirty' ],
	[ 'suspended', sub { $dt->sql(q{SELECT suspend_group('g')}) }, 'suspend_group' ])
{
	my ($name, $begin, $paused_by) = @$case;
	my $n = logins();

	$begin->();
	foreach my $again (1, 2)
	{
		my $s = eval { $dt->session(user => 'app') };

		ok($s, "$name, login $again") or last;
		is(logins(), $n + $again, "$name, login $again: its trigger has run");
		is($s->query('SELECT pg_is_in_recovery()'), 'f', "$name, login $again: then it may read");
		$s->send('INSERT INTO t VALUES (1)');
		ok($dt->wait_paused($s, 'in flight'), "$name, login $again: what writes pays first");
		is($dt->session_row($s)->{paused_by}, $paused_by, "$name, login $again: for that");
		is($dt->sql('SELECT count(*) FROM t'), 0, "$name, login $again: before it writes");
		$dt->cancel_ms($s);
		$s->quit;
	}
	cmp_ok($dt->group_row('g')->{dirty_debt}, '>', 2 * 100 * 8, "$name: all of it is owed")
	  if $name eq 'with a limit';
	$dt->limit(g => 0);
	$dt->sql(q{SELECT resume_group('g')}) if $name =~ /suspended/;
}

$dt->finish;
