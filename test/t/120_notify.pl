# A session that listens reads the queue of notifications only while it waits for a
# command.  Where it pauses before a statement, and the queue is half full, it goes on,
# as when others wait for it.  On a clock that stands still while statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use Test::More;

# expect-in-log: WARNING:  NOTIFY queue is

my $second = 1_000_000;
my $dt = DirtyThrottle::Clock->new('notify');

plan skip_all => 'the queue can be made small from PostgreSQL 17 on'
  if $dt->sql('SHOW server_version_num') < 170000;

$dt->sql('ALTER SYSTEM SET max_notify_queue_pages = 64');
$dt->node->restart;

foreach my $listens (0, 1)
{
	my $name = $listens ? 'a session that listens' : 'one that does not';
	my $reader = $dt->session;
	my $s = $dt->session(group => 'g');

	# somebody keeps the queue in any case
	$reader->query($_) foreach 'LISTEN news', 'BEGIN';
	$s->query('LISTEN news') if $listens;
	$dt->fresh(g => wal => 100);
	$s->query($_) foreach 'BEGIN', q{SELECT pg_logical_emit_message(false, '', repeat('x', 2000000))}, 'ROLLBACK';
	$s->send($MAY_WRITE);
	$dt->settle;
	is($dt->state($s), 'sleeps', "$name: it pauses");
	$dt->sql(q{SELECT pg_notify('news', i || repeat('x', 7000)) FROM generate_series(1, 45) i});
	cmp_ok($dt->sql('SELECT pg_notification_queue_usage()'), '>=', 0.5, "$name: the queue is half full");
	$dt->advance($second / 10) foreach 1 .. 30;
	is($s->finished ? 'goes on' : 'sleeps', $listens ? 'goes on' : 'sleeps', "$name: 3 of 20 s later");
	$dt->cancel_ms($s) if !$listens;
	$s->wait;
	$reader->query('COMMIT');
	$_->quit foreach $reader, $s;
}

$dt->finish;
