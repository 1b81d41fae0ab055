# A session that listens asks in its pause how full the queue of notifications is.  For
# that the server may remove files, which may fail; after a COMMIT that is no reason to
# end anything.  On a clock that stands still while statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use Test::More;

my $second = 1_000_000;
my $dt = DirtyThrottle::Clock->new('notify_fails');
my $files = $dt->node->data_dir . '/pg_notify';

$dt->fresh('g');
$dt->sql('CREATE TABLE t (n int)');
my $s = $dt->session(group => 'g');
$s->query('LISTEN news');
# more than a file, which the listener has read, and nobody has removed since then
$dt->sql(q{SELECT count(pg_notify('news', i || repeat('x', 7990))) FROM generate_series(1, 33) i});
$s->query('SELECT 1');
$dt->fresh(g => wal => 100);
$s->send(q{INSERT INTO t SELECT length(pg_logical_emit_message(true, '', repeat('x', 1000000))::text)});
$dt->settle;
is($dt->state($s), 'sleeps', 'it pauses after its transaction');
chmod 0, $files or die "$files: $!";
$dt->sql('NOTIFY news');
$dt->advance($second) foreach 1 .. 3;
is($dt->state($s), 'sleeps', 'the queue cannot be read: it pauses on');
chmod 0700, $files or die "$files: $!";
$dt->advance($second) foreach 1 .. 10;
ok($s->finished, 'and then it has paid');
is($s->wait->{sqlstate}, undef, 'without an error');
is($dt->sql('SELECT count(*) FROM t'), 1, 'nothing is lost');
$s->quit;

$dt->finish;
