# Kinds of commands, each under a limit on dirtying, some on WAL: what they use is
# paid, and they pause while they run, however slow the machine is.  How exactly is
# measured by bench/run commands.
#
# INSERT, REFRESH, CREATE TABLE AS and the PL/pgSQL function are paced between
# rows, the others at checks for interrupts.
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
use Test::More;

my $n = $ENV{DT_ROWS} // 20000;    # rows
my $seconds = 0.4;                 # that a command takes at its limit

my $dt = DirtyThrottle->new(
	'commands',
	init => [ allows_streaming => 'logical' ],
	conf => $COMMANDS_CONF);

$dt->sql("CREATE TABLESPACE place LOCATION ''");
my $number = 0;

# Workers of the server's own, and who is moved, have tests of their own.
my @todo = grep { !$_->{worker} && !$_->{move} }
  command_todo($dt, $n, $seconds, $ENV{DT_COMMANDS} // '.');

# A session in a group of its own, of that limit, and what is there before.
sub set_up
{
	my ($case) = @_;
	my $table = 't' . ++$number;

	$case->{group} = $table;
	$case->{command} = $case->{sql} =~ s/\btbl/$table/gr;
	$dt->sql($case->{setup} =~ s/\btbl/$table/gr) if $case->{setup};
	$dt->sql('CHECKPOINT');
	$dt->limit($table => 0);
	$case->{session} = $dt->session(group => $table);
	$case->{session}->query($case->{settings}) if $case->{settings};
}

sub clean_up
{
	my ($case) = @_;

	$case->{session}->quit;
	$dt->sql($case->{name} eq 'CREATE DATABASE'
		? "DROP DATABASE $case->{group}"
		: "DROP TABLE IF EXISTS $case->{group} CASCADE");
}

# It pays for what it uses.  By WAL some of them only, as that is the same code.
my $by_wal = qr/^(?:CREATE INDEX btree|ALTER TABLE SET TABLESPACE|COPY FROM a file|INSERT)/;
foreach my $case (grep { $_->{by} eq 'dirty' || $_->{name} =~ $by_wal } @todo)
{
	my $name = "$case->{name}, $case->{by}";

	set_up($case);
	my $r = $dt->check_limit(
		$name,
		$case->{group},
		sub { $case->{session}->run($case->{command}) },
		limit => $case->{limit},
		wal => $case->{by} eq 'wal',
		unnoticed => 40);
	is($r->{result}{sqlstate}, undef, "$name: no error");
	cmp_ok($r->{kb}, '>=', 0.8 * $case->{least}, "$name: KB");
	clean_up($case);
}

# It pauses while it runs, when it has done a tenth of what it has to do.  The rest
# would take more than a minute.
$dt->set_conf('dirty_throttle.transaction_grace', '10s');
foreach my $case (grep { $_->{by} eq 'dirty' && ($_->{late} // 1) > 0 } @todo)
{
	set_up($case);
	$dt->limit($case->{group} => $case->{least} / 100);
	$case->{session}->send($case->{command});
	ok($dt->wait_paused($case->{session}, 'in flight'),
		"$case->{name}: pauses while it runs");
	$dt->limit($case->{group} => 0);
	is($case->{session}->wait->{sqlstate}, undef, "$case->{name}: no error");
	clean_up($case);
}

# REPACK (CONCURRENTLY) has a worker of its own, which is in the leader's lock group.
# It waits for all transactions of the server, so it is alone.
SKIP:
{
	skip 'no REPACK (CONCURRENTLY) before 19', 7 if $dt->sql('SHOW server_version_num') < 190000;

	my $name = 'REPACK (CONCURRENTLY)';
	$dt->limit(repack => 0);
	$dt->sql("CREATE TABLE r AS SELECT i AS id, repeat('x', 90) AS pad FROM generate_series(1, $n) i;
		ALTER TABLE r ADD PRIMARY KEY (id);
		CHECKPOINT");
	my $s = $dt->session(group => 'repack');
	my $r = $dt->check_limit($name, 'repack', sub { $s->run('REPACK (CONCURRENTLY) r') },
		limit => 4000, wal => 1, unnoticed => 40);
	is($r->{result}{sqlstate}, undef, "$name: no error");
	cmp_ok($r->{kb}, '>=', 0.1 * $n, "$name: KB");
	is($dt->group_row('repack')->{members}, 1, "$name: it is still a member");

	# a busy machine may take as long for it as that limit asks for
	$dt->sql(q{SELECT set_group_wal_limit('repack', 10)});
	$s->send('REPACK (CONCURRENTLY) r');
	ok($dt->wait_paused($s), "$name: it pauses");
	$dt->sql(q{SELECT set_group_wal_limit('repack', 0)});
	is($s->wait->{sqlstate}, undef, "$name: no error");
	$s->quit;
}
$dt->finish;
