# From 1.0 to 1.1: the library serves the SQL objects of both, ALTER EXTENSION
# UPDATE makes of the old ones what CREATE EXTENSION makes, keeps what users
# have built on them, and the definitions of 1.0 are read.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 20000;    # KB/s

my $dt = DirtyThrottle::Life->new('upgrade', no_extension => 1);
my $node = $dt->node;
$dt->sql('CREATE DATABASE old; CREATE DATABASE new; CREATE DATABASE again;
	CREATE ROLE reader LOGIN; CREATE ROLE ops LOGIN');
my $old = $dt->session(dbname => 'old');
my $new = $dt->session(dbname => 'new');

# Every object of the extension: what it is, how it is defined, commented,
# and who may do what with it.
my $objects = q{
	SELECT i.type || ' ' || i.identity || ' owner ' || r.rolname ||
		coalesce(' -- ' || obj_description(d.objid, d.classid::regclass::name), '') ||
		coalesce(' ' || pg_get_functiondef(p.oid), '') ||
		coalesce(' acl ' || p.proacl::text, '') ||
		coalesce(' cost ' || p.procost || ' rows ' || p.prorows, '') ||
		coalesce(' ' || pg_get_viewdef(c.oid), '') ||
		coalesce(' acl ' || c.relacl::text, '') ||
		coalesce(' options ' || c.reloptions::text, '') ||
		coalesce(' initprivs ' || pi.initprivs::text, '') ||
		coalesce(' columns ' || (
			SELECT string_agg(concat_ws(' ', a.attnum, a.attname,
				format_type(a.atttypid, a.atttypmod),
				col_description(c.oid, a.attnum), a.attacl), E'\n'
				ORDER BY a.attnum)
			FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0), '')
	FROM pg_depend d
		JOIN pg_extension e ON d.refobjid = e.oid AND
			d.refclassid = 'pg_extension'::regclass
		CROSS JOIN pg_identify_object(d.classid, d.objid, 0) i
		LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
		LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
		LEFT JOIN pg_init_privs pi ON pi.classoid = d.classid AND
			pi.objoid = d.objid AND pi.objsubid = 0
		LEFT JOIN pg_roles r ON r.oid = coalesce(p.proowner, c.relowner, e.extowner)
	WHERE e.extname = 'dirty_throttle' AND d.deptype = 'e'
	ORDER BY i.type COLLATE "C", i.identity COLLATE "C"};

my $columns = q{
	SELECT string_agg(attname, ' ' ORDER BY attnum)
	FROM pg_attribute WHERE attrelid = '%s'::regclass AND attnum > 0};

# ---------------------------------------------------- 1.0 with this library

$old->query("CREATE EXTENSION dirty_throttle VERSION '1.0'");
is($old->query("SELECT extversion FROM pg_extension
		WHERE extname = 'dirty_throttle'"), '1.0', 'version 1.0 is created');
is( $old->query(sprintf $columns, 'dirty_throttle_groups'),
	'group_name dirty_rate_limit active_processes per_process_dirty_rate_limit'
	  . ' paused_processes dirty_rate blocks_dirtied pauses paused_time debt_kb'
	  . ' stats_reset',
	'its view of groups');
is( $old->query(sprintf $columns, 'dirty_throttle_sessions'),
	'pid usename datname application_name group_name blocks_dirtied pauses'
	  . ' paused_time debt_kb paused_since',
	'its view of sessions');
$old->query("SELECT set_group_dirty_limit('grp_a', $limit),
	create_resource_group('grp_b', 5), create_resource_group('grp_c'),
	rename_resource_group('grp_c', 'grp_d'), reset_group_dirty_limit('grp_b')");
is( $old->query('SELECT group_name, dirty_rate_limit, active_processes,
			per_process_dirty_rate_limit, blocks_dirtied, pauses, debt_kb,
			stats_reset <= now()
		FROM dirty_throttle_groups ORDER BY 1'),
	"grp_a|$limit|0||0|0|0|t\ngrp_b|0|0||0|0|0|t\ngrp_d|0|0||0|0|0|t",
	'1.0: groups');
$old->query("SELECT drop_resource_group('grp_d'), dirty_throttle_reset(),
	dirty_throttle_reset('grp_a')");
is( $old->query('SELECT dirty_throttle_ddl()'),
	"SELECT public.set_group_dirty_limit('grp_a', $limit);\n"
	  . "SELECT public.set_group_dirty_limit('grp_b', 0);",
	'1.0: the DDL');

# It throttles, and the rows in the old views are right.
my $copied = PostgreSQL::Test::Utils::tempdir() . '/copy.data';
append_to_file($copied, join('', map { "$_\t" . 'x' x 900 . "\n" } 1 .. 2500));
$old->query('CREATE TABLE t (id int, pad text) WITH (fillfactor = 10)');
my $member = $dt->session(dbname => 'old', group => 'grp_a');
is( $old->query(q{SELECT pid, usename = current_user, datname,
			application_name <> '', group_name, pauses, paused_time, debt_kb,
			paused_since
		FROM dirty_throttle_sessions}),
	$member->pid . '|t|old|t|grp_a|0|0|0|', '1.0: sessions');
foreach my $sql (insert_sql('t', 2500), "COPY t FROM '$copied'")
{
	my ($name) = $sql =~ /^(\w+)/;

	at_limit(
		sub {
			$old->query("SELECT set_group_dirty_limit('grp_a', 0),
				set_group_dirty_limit('grp_a', $limit)");
			$old->query('SELECT dirty_throttle_reset()');
			my $ms = $member->run($sql)->{ms};
			my $blocks = $old->query("SELECT blocks_dirtied
				FROM dirty_throttle_groups WHERE group_name = 'grp_a'");
			return 100 * $blocks * 8.192 / $ms * 1000 / $limit;
		},
		"1.0: $name");
}
$member->send(insert_sql('t', 50000));
ok( poll_until(
		sub {
			$old->query('SELECT count(*) FROM dirty_throttle_sessions s
				JOIN pg_stat_activity a USING (pid)
				WHERE paused_since IS NOT NULL AND xact_start IS NOT NULL') == 1;
		},
		5),
	'1.0: a pause in flight is shown');

# ---------------------------------------------------------- the update

# What users have made of it, in the middle of a member's work
$old->query(
	q{CREATE VIEW my_groups AS SELECT * FROM dirty_throttle_groups;
	CREATE VIEW my_sessions AS SELECT * FROM dirty_throttle_sessions;
	CREATE FUNCTION my_limit(name) RETURNS float8 LANGUAGE sql BEGIN ATOMIC
		SELECT dirty_rate_limit FROM dirty_throttle_groups WHERE group_name = $1;
	END;
	REVOKE SELECT ON dirty_throttle_sessions FROM PUBLIC;
	GRANT SELECT ON dirty_throttle_sessions TO reader;
	GRANT EXECUTE ON FUNCTION set_group_dirty_limit TO ops});
my $my_columns = $old->query(sprintf $columns, 'my_groups');
$old->query('PREPARE groups AS SELECT count(*) FROM dirty_throttle_groups');
is($old->query('EXECUTE groups'), 2, 'before the update');
$old->query('ALTER EXTENSION dirty_throttle UPDATE');
is($old->query("SELECT extversion FROM pg_extension
		WHERE extname = 'dirty_throttle'"), '1.1', 'it is updated');
is($old->query('EXECUTE groups'), 2, 'a prepared statement survives it');
is($old->query(sprintf $columns, 'my_groups'),
	$my_columns, "a user's view survives it, with the same columns");
is($old->query('SELECT group_name, dirty_rate_limit FROM my_groups ORDER BY 1'),
	"grp_a|$limit\ngrp_b|0", 'and answers');
is( $old->query('SELECT pid, group_name, blocks_dirtied > 0 FROM my_sessions'),
	$member->pid . '|grp_a|t', 'the view of sessions, too');
is($old->query("SELECT my_limit('grp_a')"), $limit, "and a user's function");
is( $old->query(q{SELECT has_table_privilege('reader', 'dirty_throttle_sessions', 'SELECT'),
		has_table_privilege('ops', 'dirty_throttle_sessions', 'SELECT'),
		has_function_privilege('ops', 'set_group_dirty_limit(text, float8)', 'EXECUTE'),
		has_function_privilege('ops', 'set_group_wal_limit(text, float8)', 'EXECUTE')}),
	't|f|t|f', 'privileges are what they were');
is($old->query('SELECT count(*) FROM dirty_throttle_sessions
		WHERE NOT moved AND wal_bytes > 0'), 1, 'there are the new columns');
$old->query("SELECT set_group_dirty_limit('grp_a', 0)");
is($member->wait->{sqlstate}, undef, 'a member at work does not notice');
$member->quit;

# After it, it is what a new one is, but for the privileges that were changed
# here, and wherever it is.
$new->query('CREATE EXTENSION dirty_throttle');
is( $old->query($objects =~ s/coalesce\(' acl ' \|\| [pc]\.\w+acl::text, ''\) \|\|//gr),
	$new->query($objects =~ s/coalesce\(' acl ' \|\| [pc]\.\w+acl::text, ''\) \|\|//gr),
	'updated and new: the same');
my $again = $dt->session(dbname => 'again');
my $all = $new->query($objects);
ok(length $all > 10000, 'and that is much');
like($all, qr/^view public.dirty_throttle_blocking owner/m, 'with the new views');
$again->query("CREATE EXTENSION dirty_throttle VERSION '1.0'");
isnt($again->query($objects), $all, '1.0 is something else');
$again->query("ALTER EXTENSION dirty_throttle UPDATE TO '1.1'");
is($again->query($objects), $all,
	'updated and new: the same, privileges included');
$again->query('DROP EXTENSION dirty_throttle');

# In a schema of its own, and with another search_path
$again->query(q{CREATE SCHEMA throttle; CREATE SCHEMA elsewhere;
	CREATE EXTENSION dirty_throttle SCHEMA throttle VERSION '1.0';
	SET search_path = elsewhere;
	ALTER EXTENSION dirty_throttle UPDATE;
	RESET search_path});
is( $again->query($objects) =~ s/\bthrottle\.//gr,
	$all =~ s/\bpublic\.//gr, 'in another schema: the same');
$again->query('DROP EXTENSION dirty_throttle; DROP SCHEMA throttle, elsewhere');

# Users' views on the old columns do not keep it from being dropped.
is($old->run('DROP EXTENSION dirty_throttle')->{sqlstate},
	'2BP01', 'a view of a user depends on it');
$old->query('DROP VIEW my_groups, my_sessions; DROP FUNCTION my_limit;
	DROP EXTENSION dirty_throttle');
is($old->query("SELECT count(*) FROM pg_proc WHERE probin ~ 'dirty_throttle'"),
	0, 'nothing is left behind');

# There is a way to the newest version from every one, and none back.
is( $new->query("SELECT string_agg(version, ' ' ORDER BY version)
		FROM pg_available_extension_versions WHERE name = 'dirty_throttle'"),
	'1.0 1.1', 'versions');
is( $new->query("SELECT source || ' ' || target || ' ' || path
		FROM pg_extension_update_paths('dirty_throttle')
		WHERE path IS NOT NULL"),
	'1.0 1.1 1.0--1.1', 'update paths');
$_->quit foreach $old, $new, $again;

# ----------------------------------------------- the definitions file of 1.0

$dt->sql('CREATE EXTENSION dirty_throttle');
my $file = $node->data_dir . '/dirty_throttle.groups';

sub crc32c
{
	my $crc = 0xffffffff;

	foreach my $byte (unpack 'C*', shift)
	{
		$crc ^= $byte;
		$crc = ($crc >> 1) ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

# Byte for byte what 1.0 wrote: header, entries of a name and a limit in
# bytes/s, checksum.
sub write_version_1
{
	my (@entries) = @_;
	my $body = pack('L4', 0x64747467, 1, scalar @entries, 64 + 8)
	  . join '', map { pack 'a64q', @$_ } @entries;

	open my $f, '>', $file or die "$file: $!";
	binmode $f;
	print $f $body . pack 'L', crc32c($body);
	close $f or die "$file: $!";
}

sub version_of_file
{
	return unpack 'x4L', slurp_file($file);
}

# All that is defined, defaults included
sub everything
{
	return $dt->sql(
		q{SELECT group_name, dirty_rate_limit, wal_rate_limit, burst, mode,
			paused_since
		FROM dirty_throttle_groups ORDER BY group_name COLLATE "C"});
}

foreach my $case (
	[ 'no group', [] ],
	[ 'one group', [ [ 'grp_a', 12288500 ] ] ],
	[ 'three groups', [ [ 'grp_b', 0 ], [ 'grp_a', 1 ], [ 'GRP', 16777216000 ] ] ],
	[ 'long and odd names', [ [ 'x' x 63, 5000 ], [ q{it's "odd" \\}, 6000 ] ] ],
	[ '64 groups', [ map { [ "grp_$_", 1000 * $_ ] } 1 .. 64 ] ])
{
	my ($name, $entries) = @$case;
	my $expected = join "\n", map { "$_->[0]|" . $_->[1] / 1000 . '|0|20|enforce|' }
	  sort { $a->[0] cmp $b->[0] } @$entries;

	$dt->stop;
	write_version_1(@$entries);
	unlink "$file.damaged";
	my $mark = $dt->log_mark;
	$node->start;
	unlike($dt->log_since($mark), qr/WARNING|ERROR|FATAL|damaged/,
		"version 1, $name: nothing in the log");
	is(everything(), $expected, "version 1, $name: all is read");
	is($dt->sql('SELECT count(*) FROM dirty_throttle_grants'),
		0, "version 1, $name: nobody was granted anything");
	ok(-e $file && !-e "$file.damaged", "version 1, $name: the file is in its place");
	is(version_of_file(), 1, "version 1, $name: unchanged by being read");

	# read again, and then changed
	$dt->stop('immediate');
	$node->start;
	is(everything(), $expected, "version 1, $name: read again after a crash");
	if (@$entries < 64)
	{
		$dt->sql(q{SELECT create_resource_group('zzz', 7)});
		$expected .= ($expected eq '' ? '' : "\n") . 'zzz|7|0|20|enforce|';
	}
	else
	{
		$dt->sql(q{SELECT set_group_dirty_limit('grp_1', 5)});
		$expected =~ s/^grp_1\|1\|/grp_1|5|/m;
	}
	is(version_of_file(), 2, "version 1, $name: version 2 after a change");
	is(everything(), $expected, "version 1, $name: with the change");
	$dt->stop('immediate');
	$node->start;
	is(everything(), $expected, "version 1, $name: version 2 is read");
}

# Sessions join the groups of an old file, and are throttled.
$dt->stop;
write_version_1([ 'grp_a', $limit * 1000 ]);
$node->start;
$dt->table('t');
at_limit(
	sub {
		my $s = $dt->session(group => 'grp_a');
		my $percent =
		  $dt->measure($s, insert_sql('t', 2500))->{kb_per_s} / $limit * 100;
		$s->quit;
		return $percent;
	},
	'a group of an old file');

# New properties of an old group
$dt->sql("SELECT set_group_wal_limit('grp_a', 99), set_group_burst('grp_a', 5),
	set_group_mode('grp_a', 'observe'), grant_group_use('grp_a', 'ops')");
my $expected = everything();
is($expected, "grp_a|$limit|99|5|observe|", 'new properties of an old group');
$dt->stop;
$node->start;
is(everything(), $expected, 'and they last');
is($dt->sql('SELECT group_name, role_name FROM dirty_throttle_grants'),
	'grp_a|ops', 'as do grants');

$dt->finish;
