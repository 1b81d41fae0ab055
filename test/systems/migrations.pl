# A backfill that a migration starts, as the recipe for migration tools has it, in one
# transaction with its ALTER TABLE: by psql -1, by Django and by Alembic where these are
# installed, each as it is by default, as a role with a statement_timeout of 1 s; and by
# a role without LOGIN.  The job outlives them.
#
# On demand: DT_PYTHON=program, another Python, with other releases of these.
#
# takes-about: 15 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

my $rows = 5000;
my ($recipe) = slurp_file("$FindBin::RealBin/../../docs/recipes.md") =~
  /^ALTER TABLE orders ADD COLUMN is_open.*?^(?=```)/ms ? $& : die 'the recipe has gone';
my ($alter, $start) = $recipe =~ /\A(.*?);\n(.*);\n\z/s or die 'the recipe is another one';

my $dt = DirtyThrottle->new('migrations');
my $node = $dt->node;
my $dir = PostgreSQL::Test::Utils::tempdir();
$dt->sql(q{SELECT set_group_wal_limit('batch', '300 kB');
	CREATE ROLE etl LOGIN;
	CREATE ROLE silent;
	ALTER ROLE etl SET dirty_throttle."group" = 'batch';
	ALTER ROLE etl SET statement_timeout = '1s';
	GRANT CREATE ON SCHEMA public TO etl, silent});

# A table of that role's, without the column.
sub begin
{
	my ($owner) = @_;

	$dt->sql(qq{DROP TABLE IF EXISTS orders;
		SELECT forget_batches(name) FROM dirty_throttle_batches;
		CREATE TABLE orders (id bigint PRIMARY KEY, state text);
		ALTER TABLE orders OWNER TO $owner;
		INSERT INTO orders SELECT i, CASE WHEN i % 2 = 0 THEN 'new' ELSE 'sent' END FROM generate_series(1, $rows) i;
		ANALYZE orders});
}

# The tool has ended, and the job, which takes longer than statement_timeout, has not;
# it is the role's, in its group.
sub check
{
	my ($how) = @_;

	is($dt->sql('SELECT owner || state FROM dirty_throttle_batches'), 'etlrunning', "$how: it runs");
	is($dt->sql('SELECT s.group_name FROM dirty_throttle_batches JOIN dirty_throttle_sessions s USING (pid)'),
		'batch', "$how: in the group");
	ok(poll_until(sub { $dt->sql('SELECT state FROM dirty_throttle_batches') eq 'finished' }), "$how: to its end")
	  or diag $dt->sql('SELECT * FROM dirty_throttle_batches');
	is($dt->sql(q{SELECT count(*) FROM orders WHERE is_open = (state = 'new')}), $rows, "$how: all rows");
	cmp_ok($dt->sql('SELECT elapsed_time FROM dirty_throttle_batches()'), '>', 1000, "$how: longer than 1 s");
}

# Run a Python program, if there is one with that module.
sub python
{
	my ($module, @arguments) = @_;
	my ($python) = grep { system(qq{'$_' -c 'import $module, psycopg2' >/dev/null 2>&1}) == 0 }
	  $ENV{DT_PYTHON} // (), 'python3';

	return unless $python;
	local $ENV{PYTHONPATH} = $dir;
	begin('etl');
	$node->command_ok([ $python, @arguments ], "$module: it migrates");
	check($module);
	return 1;
}

begin('etl');
$node->command_ok([ 'psql', '-X', '-1', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') . ' user=etl',
		'-c', $alter, '-c', $start ], 'psql -1');
check('psql -1');

my %database = (host => $node->host, port => $node->port);
mkdir "$dir/$_" foreach 'shop', 'shop/migrations', 'alembic', 'alembic/versions';
append_to_file("$dir/shop/$_", '') foreach '__init__.py', 'migrations/__init__.py';
append_to_file("$dir/settings.py", "SECRET_KEY = 'x'
INSTALLED_APPS = ['shop']
DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'postgres', 'USER': 'etl',
                         'HOST': '$database{host}', 'PORT': $database{port}}}
");
append_to_file("$dir/shop/migrations/0001_is_open.py", qq{from django.db import migrations

class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL("""$alter"""),
        migrations.RunSQL("""$start"""),
    ]
});
append_to_file("$dir/alembic.ini", "[alembic]\nscript_location = $dir/alembic\n");
append_to_file("$dir/alembic/env.py", qq{from alembic import context
from sqlalchemy import create_engine
with create_engine('postgresql+psycopg2://etl@/postgres?host=$database{host}&port=$database{port}').connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
});
append_to_file("$dir/alembic/versions/1_is_open.py", qq{from alembic import op
revision = '1'
down_revision = None

def upgrade():
    op.execute("""$alter""")
    op.execute("""$start""")
});
SKIP:
{
	python('django', '-m', 'django', 'migrate', '--settings', 'settings', '--pythonpath', $dir)
	  or skip 'not installed: python3-django, python3-psycopg2', 1;
}
SKIP:
{
	python('alembic', '-m', 'alembic', '-c', "$dir/alembic.ini", 'upgrade', 'head')
	  or skip 'not installed: python3-alembic, python3-psycopg2', 1;
}

# A role without LOGIN.
begin('silent');
my $session = $dt->session;
$session->query("SET SESSION AUTHORIZATION silent; $alter");
my $r = $session->run($start =~ s/\)\z/, unthrottled => true)/r);
if ($dt->sql('SHOW server_version_num') < 170000)
{
	is($r->{sqlstate}, '28000', 'a role without LOGIN, before 17: the error');
	like($r->{err}, qr/role "silent" may not log in.*HINT: .*with LOGIN, and use SET ROLE there/s, 'what to type');
	$dt->sql('GRANT silent TO etl');
	$session = $dt->session(user => 'etl');
	$r = $session->run("SET ROLE silent; $start");
}
is($r->{sqlstate}, undef, 'a role without LOGIN') or diag $r->{err};
ok(poll_until(sub { $dt->sql('SELECT owner || state FROM dirty_throttle_batches') eq 'silentfinished' }),
	'a role without LOGIN: it ends');
is($dt->sql(q{SELECT count(*) FROM orders WHERE is_open = (state = 'new')}), $rows, 'a role without LOGIN: all rows');
$dt->finish;
