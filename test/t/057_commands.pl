# Kinds of commands, each under a limit on dirtying, some on WAL: what they use is
# paid, and they pause while they run, however slow the machine is.  How exactly is
# measured by bench/run commands.
#
# INSERT, REFRESH, CREATE TABLE AS and the PL/pgSQL function are paced between
# rows.  The others fail here when dirty_throttle.interrupt_pauses is off.
#
# Not checked is, in the core: a write to a large object (inv_write: lo_put(),
# lo_import(), lo_from_bytea()); a WAL record, however big
# (pg_logical_emit_message()); and the pending list of a GIN index, as it is
# moved, for the entries that came meanwhile.  They are paid at the next check.
#
# takes-about: 25 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Commands;
use PostgreSQL::Test::Utils;
use Test::More;

my $n = $ENV{DT_ROWS} // 20000;    # rows
my $seconds = 0.4;                 # that a command takes at its limit

my $dt = DirtyThrottle->new(
	'commands',
	init => [ allows_streaming => 'logical' ],
	conf => $COMMANDS_CONF . 'dirty_throttle.log_min_pause = 0');

$dt->sql("CREATE TABLESPACE place LOCATION ''");
my $number = 0;

# What is written to the WAL in one go is paid afterwards, so these are few.
my $by_wal = qr/^(?:CREATE INDEX btree|ALTER TABLE SET TABLESPACE|COPY FROM a file|INSERT)/;

foreach my $case (command_todo($dt, $n, $seconds, $ENV{DT_COMMANDS} // '.'))
{
	# workers of the server's own, and who is moved, have tests of their own
	next if $case->{worker} || $case->{move};
	next if $case->{by} eq 'wal' && $case->{name} !~ $by_wal;
	my $name = "$case->{name}, $case->{by}";
	my $table = 't' . ++$number;
	my $of_its_own = sub { $_[0] =~ s/\btbl/$table/gr };

	$dt->sql($of_its_own->($case->{setup})) if $case->{setup};
	$dt->sql('CHECKPOINT');
	$dt->limit($table => 0);
	my $s = $dt->session(group => $table);
	$s->query($case->{settings}) if $case->{settings};
	my $mark = -s $dt->node->logfile;
	my $r = $dt->check_limit(
		$name, $table,
		sub { $s->run($of_its_own->($case->{sql})) },
		limit => $case->{limit},
		wal => $case->{by} eq 'wal',
		unnoticed => 40);
	is($r->{result}{sqlstate}, undef, "$name: no error");
	cmp_ok($r->{kb}, '>=', 0.8 * $case->{least}, "$name: KB");
	like(slurp_file($dt->node->logfile, $mark),
		qr/in flight: (?!0\.000)/, "$name: pauses while it runs")
	  if $case->{by} eq 'dirty' && ($case->{late} // 1) > 0;
	$s->quit;
	$dt->sql($case->{name} eq 'CREATE DATABASE'
		? "DROP DATABASE $table"
		: "DROP TABLE IF EXISTS $table CASCADE");
}
$dt->finish;
