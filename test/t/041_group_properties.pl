# Bursts and modes of groups: how they are set, and that they are there after a
# restart.  102 and 104 test what they do.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $dt = DirtyThrottle->new('properties');

sub set_burst
{
	my ($group, $ms) = @_;
	$dt->sql("SELECT set_group_burst('$group', $ms)");
}

sub mode
{
	my ($group, $mode) = @_;
	$dt->sql("SELECT set_group_mode('$group', '$mode')");
}

# -------------------------------------------------------------------------- burst

$dt->limit(grp_a => 0);
is($dt->group_row('grp_a')->{burst}, 20, 'the default');
foreach my $case (
	[ "set_group_burst('grp_a', -1)", '22023' ],
	[ "set_group_burst('grp_a', 3600000.01)", '22023' ],
	[ "set_group_burst('grp_a', 'NaN')", '22023' ],
	[ "set_group_burst('grp_a', 'Infinity')", '22023' ],
	[ "set_group_burst('grp_a', NULL)", '22004' ],
	[ 'set_group_burst(NULL, 20)', '22004' ],
	[ "set_group_burst('', 20)", '22023' ],
	[ "set_group_burst(repeat('x', 64), 20)", '22023' ])
{
	my ($call, $sqlstate) = @$case;
	my $result = $dt->session->run("SELECT $call");

	is($result->{sqlstate}, $sqlstate, "$call: SQLSTATE")
	  or diag $result->{err};
}
is( $dt->sql('SELECT string_agg(group_name || burst, $$ $$)
		FROM dirty_throttle_groups'),
	'grp_a20', 'none of these has changed anything');
foreach my $ms (0, 0.5, 3600000)
{
	set_burst(grp_a => $ms);
	is($dt->group_row('grp_a')->{burst}, $ms, "a burst of $ms ms");
}
$dt->sql('BEGIN');
set_burst(grp_a => 1500);
$dt->sql('ROLLBACK');
is($dt->group_row('grp_a')->{burst}, 3600000, 'ROLLBACK undoes it');
set_burst(grp_a => 1500);
$dt->limit(grp_a => 77);
is($dt->group_row('grp_a')->{burst}, 1500, 'a limit leaves it alone');
set_burst(grp_a => 20);
$dt->sql('CREATE ROLE nobody LOGIN');
is( $dt->session(user => 'nobody')
	  ->run("SELECT set_group_burst('grp_a', 1)")->{sqlstate},
	'42501', 'not for everybody');

# --------------------------------------------------------------------------- mode

is($dt->group_row('grp_a')->{mode}, 'enforce', 'the default');
foreach my $case (
	[ "set_group_mode('grp_a', 'look')", '22023' ],
	[ "set_group_mode('grp_a', '')", '22023' ],
	[ "set_group_mode('grp_a', NULL)", '22004' ],
	[ "set_group_mode(NULL, 'observe')", '22004' ],
	[ "set_group_mode('', 'observe')", '22023' ])
{
	my ($call, $sqlstate) = @$case;
	my $result = $dt->session->run("SELECT $call");

	is($result->{sqlstate}, $sqlstate, "$call: SQLSTATE")
	  or diag $result->{err};
	like($result->{err}, qr/HINT:.*enforce.*observe/, "$call: a hint")
	  if $call =~ /look/;
}
is( $dt->sql('SELECT string_agg(group_name || mode, $$ $$)
		FROM dirty_throttle_groups'),
	'grp_aenforce', 'none of these has changed anything');
$dt->sql('BEGIN');
mode(grp_a => 'observe');
$dt->sql('ROLLBACK');
is($dt->group_row('grp_a')->{mode}, 'enforce', 'ROLLBACK undoes it');
{
	my $nobody = $dt->session(user => 'nobody');

	is($nobody->run("SELECT set_group_mode('grp_a', 'observe')")->{sqlstate},
		'42501', 'not for everybody');
}

# Over a restart
{
	set_burst(grp_a => 12345);
	mode(grp_a => 'observe');
	$dt->disconnect;
	$dt->node->restart;
	my $row = $dt->group_row('grp_a');
	is("$row->{burst} $row->{mode}", '12345 observe', 'both are there after a restart');
}

$dt->finish;
