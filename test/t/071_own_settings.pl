# Nothing that a member has set is changed behind its back: vacuum_cost_delay
# is what the session has set, before, while and after a VACUUM is
# parsed or run.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use Test::More;

my $dt = DirtyThrottle::Life->new('settings');
$dt->limit(a => 100000);
$dt->sql(q{CREATE ROLE app LOGIN;
	ALTER ROLE app SET dirty_throttle."group" = 'a';
	CREATE TABLE t (id int);
	ALTER TABLE t OWNER TO app});

my $w = DirtyThrottle::Wire->new($dt->node, user => 'app');
sub delay { return $w->query('SHOW vacuum_cost_delay')->{out} }

is($dt->group_row('a')->{members}, 1, 'a member');
is(delay(), '0', 'there is no delay');

$w->query('BEGIN');
$w->parse('', 'VACUUM t')->sync;
is($w->wait->{sqlstate}, undef, 'a VACUUM is parsed and never executed');
is(delay(), '0', 'and the delay is still none');
$w->query('SET vacuum_cost_delay = 10');
$w->query('COMMIT');
is(delay(), '10ms', 'what the transaction has set stays');

$w->query('RESET vacuum_cost_delay');
$w->query('BEGIN');
$w->parse('', 'VACUUM t')->sync;
$w->wait;
$w->query('ROLLBACK');
is(delay(), '0', 'after a ROLLBACK there is none');
is($w->query('VACUUM t')->{sqlstate}, undef, 'VACUUM');
is(delay(), '0', 'and after a VACUUM');

is($dt->crashes, '', 'no crash');
$dt->finish;
