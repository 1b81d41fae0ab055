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
	$dt->sql("SELECT alter_resource_group('$group', burst => $ms)");
}

sub mode
{
	my ($group, $mode) = @_;
	$dt->sql("SELECT alter_resource_group('$group', mode => '$mode')");
}

# -------------------------------------------------------------------------- burst

$dt->limit(grp_a => 0);
is($dt->group_row('grp_a')->{burst}, 20, 'the default');
foreach my $case (
	[ "alter_resource_group('grp_a', burst => -1)", '22023' ],
	[ "alter_resource_group('grp_a', burst => 3600000.01)", '22023' ],
	[ "alter_resource_group('grp_a', burst => 'NaN')", '22023' ],
	[ "alter_resource_group('grp_a', burst => 'Infinity')", '22023' ],
	[ 'alter_resource_group(NULL, burst => 20)', '22004' ],
	[ "alter_resource_group('', burst => 20)", '22023' ],
	[ "alter_resource_group(repeat('x', 64), burst => 20)", '22023' ])
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
	  ->run("SELECT alter_resource_group('grp_a', burst => 1)")->{sqlstate},
	'42501', 'not for everybody');

# --------------------------------------------------------------------------- mode

is($dt->group_row('grp_a')->{mode}, 'enforce', 'the default');
foreach my $case (
	[ "alter_resource_group('grp_a', mode => 'look')", '22023' ],
	[ "alter_resource_group('grp_a', mode => '')", '22023' ],
	[ "alter_resource_group(NULL, mode => 'observe')", '22004' ],
	[ "alter_resource_group('', mode => 'observe')", '22023' ])
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

	is($nobody->run("SELECT alter_resource_group('grp_a', mode => 'observe')")->{sqlstate},
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
