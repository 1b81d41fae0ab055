# protect_from(): what it chooses on servers that differ, what it says of that, and
# that it leaves alone what somebody has set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pressure;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Pressure->new('protect',
	init => [ allows_streaming => 1 ],
	conf => "checkpoint_timeout = 5min\nmax_wal_size = 1GB\nautovacuum = off\n");

# Call it: all notices.
sub protect
{
	my ($group) = @_;
	my $result = $dt->session->run("SELECT protect_from('$group')");

	is($result->{sqlstate}, undef, "protect_from('$group')");
	return $result->{err};
}

# What a group follows: "signal threshold", in the order of their names.
sub followed
{
	my ($group) = @_;
	return $dt->sql("SELECT string_agg(concat_ws(' ', signal, threshold), ', ' ORDER BY signal)
		FROM dirty_throttle_pressure WHERE group_name = '$group'");
}

sub floor_of
{
	my ($group) = @_;
	return $dt->group_row($group)->{floor};
}

# -------------------------------------------------- a server as it was installed

my $data = $dt->node->data_dir;
my (undef, $before) = split ' ', `df --output=size,avail -B1 $data | tail -1`;
my $err = protect('new');
like($err, qr/NOTICE:  00000: resource group "new" created/, 'it creates the group');
like($err, qr/"new" follows signal "commit_latency" at 50%\nDETAIL:  Nine of ten commits of sessions outside of the group may take half as long again as without it\./,
	'commit_latency');
like($err, qr/"new" does not follow signal "replica_lag"\nDETAIL:  No standby is streaming\./, 'no standby: not replica_lag');
like($err, qr/"new" does not follow signal "checkpoint"\nDETAIL:  All sessions together can write 1\.8\d MB\/s of WAL without forcing a checkpoint, and it is not known yet how much those write that do not follow the signal\.\nHINT:  Use ALTER SYSTEM SET max_wal_size = '11GB'; SELECT pg_reload_conf\(\); and then call protect_from\(\) again\. This leaves 10\.0 MB\/s/,
	'the default of max_wal_size leaves too little: not checkpoint');
like($err, qr/"new" follows signal "disk_free" at \d+[MGT]B\nDETAIL:  The file system of pg_wal has [\d.]+ .B, of which [\d.]+ .B are free\./,
	'disk_free');
like($err, qr/"new" is not slowed down below 512 kB\/s\n.*\nHINT:  Use set_group_pressure\(\), with NULL to remove a signal, and SELECT alter_resource_group\(.new., floor/,
	'the floor, and how to change what was chosen');
my ($disk) = $err =~ /"disk_free" at (\S+)\n/;
is(followed('new'), "commit_latency 50%, disk_free $disk", 'so it is defined');
is(floor_of('new'), 512, 'and the floor');

my ($size, $free) = split ' ', `df --output=size,avail -B1 @{[ $dt->node->data_dir ]} | tail -1`;
my $threshold = $dt->sql(q{SELECT threshold_value FROM dirty_throttle_pressure
	WHERE signal = 'disk_free'});
cmp_ok($threshold, '<=', $size / 10, 'disk_free: at most a tenth of the disk');
cmp_ok($threshold, '<=', ($before > $free ? $before : $free) / 3, 'and of what is free at most a quarter, as others use the disk, too');
cmp_ok($threshold, '>=', 1e6, 'and something');
ok(poll_until(sub { $dt->signal('disk_free')->{state} eq 'fresh' }), 'disk_free is measured');
cmp_ok($dt->group_row('new')->{effective_wal_limit}, '==', 0, 'and slows nobody down');

# -------------------------------------- what somebody has set stays as he has set it

# more WAL fits between two checkpoints
$dt->set_conf('max_wal_size', '32GB');
$dt->sql(q{SELECT set_group_pressure('new', 'commit_latency', '80%'), alter_resource_group('new', floor => 100)});
$err = protect('new');
like($err, qr/"new" follows signal "commit_latency" at 80%\nDETAIL:  This was already set, and stays as it is\./, 'a threshold');
like($err, qr/"new" is not slowed down below 100 kB\/s/, 'the floor');
like($err, qr/"new" follows signal "checkpoint"\nDETAIL:  All sessions together can write \d+\.?\d* MB\/s/, 'checkpoint: now there is room');
is(followed('new'), "checkpoint on, commit_latency 80%, disk_free $disk", 'so it is defined');

$dt->sql(q{SELECT set_group_wal_limit('small', '300 kB')});
$err = protect('small');
is(floor_of('small'), 150, 'a limit of 300 KB/s: a floor of half of it');
unlike($err, qr/no signal slows resource group/, 'so that signals do something');
$dt->sql(q{SELECT set_group_wal_limit('tiny', '30 kB')});
$err = protect('tiny');
is(floor_of('tiny'), 64, 'the floor is not lowered');
like($err, qr/no signal slows resource group "tiny" down below its WAL rate limit/, 'what that means is said');
like($err, qr/resource group "new" follows signal "commit_latency" at another threshold/, 'and what others do');
$dt->sql(q{SELECT drop_resource_group(g) FROM unnest('{small,tiny}'::text[]) g});

# What the group itself writes is not what others write.  With a time for its threshold it
# does not rest now and then.
$dt->sql(q{SELECT set_group_wal_limit('new', '20 MB'), set_group_pressure('new', 'commit_latency', '1s');
	CREATE TABLE written (pad text)});
my $writer = $dt->session(group => 'new');
$writer->send(q{DO $$ BEGIN LOOP
	INSERT INTO written SELECT repeat('x', 1000) FROM generate_series(1, 100); COMMIT; END LOOP; END $$});
ok(poll_until(sub { $dt->group_row('new')->{wal_rate} > 5000 }), 'the group writes');
my $admin = $dt->session;
ok(poll_until(sub {
	my $err = $admin->run(q{SELECT set_group_pressure('new', 'checkpoint', NULL), protect_from('new')})->{err};
	my ($amount, $unit) = $err =~ /those that do not follow the signal write ([\d.]+) (\w*)B\/s/;
	return defined $amount && $amount * { '' => 0.001, k => 1, M => 1000 }->{$unit} < $dt->group_row('new')->{wal_rate} / 3;
}), 'which is not counted as what others write');
sleep(2);
like($admin->run(q{SELECT set_group_pressure('new', 'checkpoint', NULL), protect_from('new')})->{err},
	qr/those that do not follow the signal write [\d.]+/, 'and is known at any time while a group follows a signal');

# Nor is it for another group, which shares the signal with it; nor is that to follow
# what is free of the disk at another threshold.
$dt->sql(q{SELECT set_group_pressure('new', 'disk_free', '7MB')});
my ($amount, $unit);
ok(poll_until(sub {
	$err = $admin->run(q{SELECT drop_resource_group('third', true)})->{err};
	$err = $admin->run(q{SELECT protect_from('third')})->{err};
	($amount, $unit) = $err =~ /those that do not follow the signal write ([\d.]+) (\w*)B\/s/;
	return defined $amount && $amount * { '' => 0.001, k => 1, M => 1000 }->{$unit} < $dt->group_row('new')->{wal_rate} / 3;
}), 'nor as what others of a second group write');
like($err, qr/"third" follows signal "disk_free" at 7MB\nDETAIL:  Resource group "new" follows it at the same threshold\./,
	'disk_free: as another group');
unlike($err, qr/"disk_free" at another threshold/, 'so no notice of that');
$dt->sql(qq{SELECT drop_resource_group('third'), set_group_pressure('new', 'disk_free', '$disk')});
$admin->quit;
$dt->sql('SELECT pg_cancel_backend(' . $writer->pid . ')');
$writer->wait;
$writer->quit;
$dt->sql(q{SELECT set_group_wal_limit('new', 0), set_group_pressure('new', 'commit_latency', '50%')});

# ------------------------------------------------------------------------ standbys

$dt->node->backup('standby');
my $node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($dt->node, 'standby', has_streaming => 1);
$node->start;
my $standby = DirtyThrottle::Pressure->over($node);
ok(poll_until(sub { $dt->sql(q{SELECT count(*) FROM pg_stat_replication
	WHERE state = 'streaming' AND replay_lsn IS NOT NULL}) == 1 }), 'a standby streams');
$err = protect('new');
like($err, qr/"new" follows signal "replica_lag" at 5s\nDETAIL:  1 standby is streaming\./, 'replica_lag');
is(followed('new'), "checkpoint on, commit_latency 50%, disk_free $disk, replica_lag 5s", 'so it is defined');

# One that is behind, on purpose or not, would keep the group at its floor.
$dt->sql(q{SELECT set_group_pressure('new', 'replica_lag', NULL);
	SELECT set_group_pressure('watch', 'replica_lag', '1d')});
ok(poll_until(sub {
	$dt->sql(q{SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))});
	return defined $dt->signal('replica_lag')->{value};
}), 'how fast it replays is known');
$standby->sql('SELECT pg_wal_replay_pause()');
ok(poll_until(sub {
	$dt->sql(q{SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 1000000))) FROM generate_series(1, 10)});
	return ($dt->signal('replica_lag')->{value} // 0) > 6000;
}), 'it is more than 5 s behind');
$err = protect('new');
like($err, qr/"new" does not follow signal "replica_lag"\nDETAIL:  A standby is already \d\S* \w+ behind\.\nHINT:  To follow the others, if there are any, use SELECT set_group_pressure\('new', 'replica_lag', '5s', ignore => 1\)\./,
	'a standby that is behind: not replica_lag');
$standby->sql('SELECT pg_wal_replay_resume()');

# ---------------------------------------------------------------- the way back, and errors

is($dt->sql(q{SELECT count(set_group_pressure(group_name, signal, NULL)) FROM dirty_throttle_pressure
	WHERE group_name = 'new'}), 3, 'the way back');
is(followed('new'), '', 'follows nothing');

# What the core knows of it is enough where nothing was sampled, since there was no
# group yet.
$node->append_conf('postgresql.conf', "recovery_min_apply_delay = '7s'");
$node->reload;
$dt->sql(q{SELECT drop_resource_group(group_name) FROM dirty_throttle_groups});
ok(poll_until(sub {
	$dt->sql('SELECT pg_current_xact_id()');
	return $dt->sql(q{SELECT replay_lag > '6 s' FROM pg_stat_replication}) eq 't';
}), 'a standby that is behind on purpose');
ok(poll_until(sub { !defined $dt->signal('replica_lag')->{value} }, 180), 'nothing is sampled any more');
like(protect('first'), qr/"first" does not follow signal "replica_lag"\nDETAIL:  A standby is already \d\S* \w+ behind\./,
	'and the first group of the server: not replica_lag');

# Nor where the sampler has looked, and does not know yet how fast that one replays.
# It looks seldom then, so that what it knows is of another time than what the group
# writes now.
$dt->sql(q{SELECT drop_resource_group('first'), set_group_wal_limit('second', '20 MB')});
ok(poll_until(sub {
	$dt->sql('SELECT pg_current_xact_id()');
	return defined $dt->signal('replica_lag')->{value} && defined $dt->signal('wal_rate')->{value};
}, 60), 'it is sampled, though no group follows it');
$err = protect('second');
like($err, qr/"second" does not follow signal "replica_lag"\nDETAIL:  A standby is already \d\S* \w+ behind\./,
	'a group that has a limit: the same');
like($err, qr/"second" follows signal "checkpoint"\nDETAIL:  .* it is not known yet how much those write that do not follow the signal\./,
	'what is sampled seldom is not taken for what others write now');
$node->append_conf('postgresql.conf', 'recovery_min_apply_delay = 0');
$node->reload;

is($dt->session->run('SELECT protect_from(NULL)')->{sqlstate}, '22004', 'NULL');
$dt->sql('CREATE ROLE nobody LOGIN');
is($dt->session(user => 'nobody')->run(q{SELECT protect_from('new')})->{sqlstate}, '42501',
	'a privilege is needed');
is($standby->session->run(q{SELECT protect_from('new')})->{sqlstate}, '25006', 'not on a standby');

$standby->stop('fast');
$dt->finish;
