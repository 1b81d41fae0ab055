# Updates of the extension: whichever version it is updated from, ALTER
# EXTENSION UPDATE makes what CREATE EXTENSION makes, keeps what users have built
# on it, and disturbs nobody.
#
# All versions that are installed are tested, each way from one to the newest.
# While there is one version only, an extension that is made here, of the same
# library and with a version more, shows that the test works: its update script
# is right, and then wrong in each of several ways that must be found.

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
$dt->sql('CREATE DATABASE fresh; CREATE DATABASE updated;
	CREATE ROLE reader LOGIN; CREATE ROLE ops LOGIN');
my %session = map { $_ => $dt->session(dbname => $_) } qw(fresh updated);

# Every object of an extension, one per line: what it is, how it is defined,
# commented, and who may do what with it.
sub objects
{
	my ($session, $extension, $acl) = @_;

	$acl = $acl // 1 ? 'true' : 'false';
	return split /\n/, $session->query(
		qq{SELECT regexp_replace(i.type || ' ' || i.identity || ' owner ' || r.rolname ||
			coalesce(' -- ' || obj_description(d.objid, d.classid::regclass::name), '') ||
			coalesce(' ' || pg_get_functiondef(p.oid), '') ||
			CASE WHEN $acl THEN coalesce(' acl ' || p.proacl::text, '') ELSE '' END ||
			coalesce(' cost ' || p.procost || ' rows ' || p.prorows, '') ||
			coalesce(' ' || pg_get_viewdef(c.oid), '') ||
			CASE WHEN $acl THEN coalesce(' acl ' || c.relacl::text, '') ELSE '' END ||
			coalesce(' options ' || c.reloptions::text, '') ||
			coalesce(' initprivs ' || pi.initprivs::text, '') ||
			coalesce(' columns ' || (
				SELECT string_agg(concat_ws(' ', a.attnum, a.attname,
					format_type(a.atttypid, a.atttypmod),
					col_description(c.oid, a.attnum), a.attacl), ', '
					ORDER BY a.attnum)
				FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0), ''),
			E'\\n', ' ', 'g')
		FROM pg_depend d
			JOIN pg_extension e ON d.refobjid = e.oid AND
				d.refclassid = 'pg_extension'::regclass
			CROSS JOIN pg_identify_object(d.classid, d.objid, 0) i
			LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
			LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
			LEFT JOIN pg_init_privs pi ON pi.classoid = d.classid AND
				pi.objoid = d.objid AND pi.objsubid = 0
			LEFT JOIN pg_roles r ON r.oid = coalesce(p.proowner, c.relowner, e.extowner)
		WHERE e.extname = '$extension' AND d.deptype = 'e'
		ORDER BY i.type COLLATE "C", i.identity COLLATE "C"});
}

# What only one of two lists of objects has.
sub difference
{
	my ($fresh, $updated) = @_;
	my %fresh = map { $_ => 1 } @$fresh;
	my %updated = map { $_ => 1 } @$updated;

	return join "\n", (map { "only when created: $_" } grep { !$updated{$_} } @$fresh),
	  (map { "only when updated: $_" } grep { !$fresh{$_} } @$updated);
}

sub version
{
	my ($session, $extension) = @_;
	return $session->query(
		"SELECT extversion FROM pg_extension WHERE extname = '$extension'");
}

# The ways to the newest version, as [ from, to ].
sub ways
{
	my ($extension) = @_;
	return map { [ split /\|/ ] } split /\n/, $dt->sql(
		"SELECT u.source, u.target
		FROM pg_extension_update_paths('$extension') u
			JOIN pg_available_extensions a ON a.name = '$extension' AND
				a.default_version = u.target
			JOIN pg_available_extension_versions v ON v.name = a.name AND
				v.version = u.source
		WHERE u.path IS NOT NULL
		ORDER BY u.source");
}

# Is it the same, created and updated?  Otherwise what differs.
sub difference_of_way
{
	my ($extension, $from, $to, $schema, $search_path) = @_;
	my @fresh;
	my @updated;

	$session{$_}->query("CREATE SCHEMA IF NOT EXISTS $schema; CREATE SCHEMA IF NOT EXISTS elsewhere")
	  foreach qw(fresh updated);
	$session{fresh}->query("CREATE EXTENSION $extension SCHEMA $schema");
	$session{updated}->query("CREATE EXTENSION $extension SCHEMA $schema VERSION '$from';
		SET search_path = $search_path;
		ALTER EXTENSION $extension UPDATE;
		RESET search_path");
	die "updated to something else" if version($session{updated}, $extension) ne $to;
	@fresh = objects($session{fresh}, $extension);
	@updated = objects($session{updated}, $extension);
	die "no objects" if @fresh < 20;
	$session{$_}->query("DROP EXTENSION $extension") foreach qw(fresh updated);
	return difference(\@fresh, \@updated);
}

sub check_ways
{
	my ($extension) = @_;
	my @ways = ways($extension);

	foreach my $way (@ways)
	{
		my ($from, $to) = @$way;

		is(difference_of_way($extension, $from, $to, 'public', 'public'),
			'', "$extension, $from to $to: as created");
		is(difference_of_way($extension, $from, $to, 'throttle', 'elsewhere'),
			'', "$extension, $from to $to, in another schema: as created");
	}
	return scalar @ways;
}

# --------------------------------------------------- the versions that there are

my ($newest) = slurp_file("$FindBin::RealBin/../../dirty_throttle.control") =~
  /^default_version = '(.+)'$/m;
is( $dt->sql("SELECT default_version FROM pg_available_extensions
		WHERE name = 'dirty_throttle'"),
	$newest, 'what is installed is what is tested');
my %version = map { $_ => 1 } map { /--([^-]+)\.sql$/ ? $1 : () }
  glob "$FindBin::RealBin/../../sql/dirty_throttle--*.sql";
is( $dt->sql("SELECT string_agg(version, ' ' ORDER BY version COLLATE \"C\")
		FROM pg_available_extension_versions WHERE name = 'dirty_throttle'"),
	join(' ', sort keys %version), 'all versions can be created');
ok($version{$newest}, "one of them is $newest");
is(check_ways('dirty_throttle'), keys(%version) - 1,
	'there is a way to the newest version from every other one');

# ----------------------------------------------------- one with a version more

my $directory = `pg_config --sharedir`;
chomp $directory;
$directory .= '/extension';
unless (-w $directory)
{
	note "no extension can be made in $directory";
	$_->quit foreach values %session;
	$dt->finish;
	exit;
}
my $next = 'dirty_throttle_next';
my $next_files = "$directory/$next";
END { unlink glob "$next_files*" if defined $next_files }

sub write_file
{
	my ($name, $content) = @_;
	open my $f, '>', "$next_files$name" or die "$next_files$name: $!";
	print $f $content;
	close $f or die "$next_files$name: $!";
}

# A function for the DBA, and a column at the end of a view
my $script = slurp_file("$FindBin::RealBin/../../sql/dirty_throttle--$newest.sql");
my $function = q{
CREATE FUNCTION group_limit(group_name text) RETURNS float8
LANGUAGE SQL VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT dirty_limit FROM dirty_throttle_groups() AS g
	WHERE g.group_name OPERATOR(pg_catalog.=) $1;
END;};
my $revoke = 'REVOKE ALL ON FUNCTION group_limit(text) FROM PUBLIC;';
my $comment = q{COMMENT ON FUNCTION group_limit(text) IS 'Returns a limit.';};
my ($view) = $script =~ /^CREATE (VIEW dirty_throttle_groups AS\n.*?;)$/ms;
my $new_view = $view =~ s/(?=\nFROM)/, g.burst AS burst_ms/r;
isnt($new_view, $view, 'the view gets a column');
my $column = q{COMMENT ON COLUMN dirty_throttle_groups.burst_ms IS 'Burst';};
my $added = join "\n", $function, $revoke, $comment, $column;
my $update = "CREATE OR REPLACE $new_view\n$added\n";

write_file('.control', qq{default_version = '2.0'
module_pathname = '\$libdir/dirty_throttle'
relocatable = true
});
write_file('--1.0.sql', $script);
write_file('--2.0.sql', $script =~ s/\Q$view\E/$new_view/r . $added);
write_file('--1.0--2.0.sql', $update);
is(check_ways($next), 1, 'a right update: one way');

# Wrong ones: what is wrong, and the object that differs
foreach my $wrong (
	[ 'nothing', '', 'group_limit' ],
	[ 'a function is forgotten', "CREATE OR REPLACE $new_view\n$column", 'group_limit' ],
	[ 'the REVOKE is forgotten', $update =~ s/\Q$revoke\E//r, 'group_limit' ],
	[ 'a comment is forgotten', $update =~ s/\Q$comment\E//r, 'group_limit' ],
	[ 'another comment', $update =~ s/Returns a limit/Return a limit/r, 'group_limit' ],
	[ 'another volatility', $update =~ s/VOLATILE/STABLE/r, 'group_limit' ],
	[ 'another name of an argument',
		$update =~ s/group_limit\(group_name text/group_limit(name text/r, 'group_limit' ],
	[ 'the view is forgotten', join("\n", $function, $revoke, $comment),
		'dirty_throttle_groups' ],
	[ 'another column', $update =~ s/g\.burst AS burst_ms/g.dirty_rate AS burst_ms/r,
		'dirty_throttle_groups' ],
	[ "a column's comment is forgotten", $update =~ s/\Q$column\E//r,
		'dirty_throttle_groups' ],
	[ 'a GRANT more', "$update GRANT ALL ON dirty_throttle_pressure TO ops;",
		'dirty_throttle_pressure' ],
	[ 'something is left behind',
		"$update CREATE FUNCTION helper() RETURNS int LANGUAGE SQL RETURN 1;",
		'helper' ])
{
	my ($what, $sql, $object) = @$wrong;

	isnt($sql, $update, "a wrong update, $what: it is another one");
	write_file('--1.0--2.0.sql', $sql);
	like(
		difference_of_way($next, '1.0', '2.0', 'public', 'public'),
		qr/^only when (created|updated): (function|view) public\.$object\b/,
		"a wrong update, $what: found");
}
write_file('--1.0--2.0.sql', $update);

# ------------------------------------------------------ what users have made of it

# in the middle of a member's work
my $s = $session{updated};
$s->query("CREATE EXTENSION $next VERSION '1.0'");
$s->query("SELECT set_group_dirty_limit('grp_a', $limit), create_resource_group('grp_b')");
$s->query('CREATE TABLE t (id int, pad text) WITH (fillfactor = 10)');
my $member = $dt->session(dbname => 'updated', group => 'grp_a');
$member->send(insert_sql('t', 50000));
ok( poll_until(
		sub {
			$s->query('SELECT count(*) FROM dirty_throttle_sessions s
				JOIN pg_stat_activity a USING (pid)
				WHERE paused_since IS NOT NULL AND a.xact_start IS NOT NULL') == 1;
		},
		5),
	'a pause in flight');
$s->query(
	q{CREATE VIEW my_groups AS SELECT * FROM dirty_throttle_groups;
	CREATE VIEW my_sessions AS SELECT * FROM dirty_throttle_sessions;
	CREATE FUNCTION my_limit(name) RETURNS float8 LANGUAGE sql BEGIN ATOMIC
		SELECT dirty_limit FROM dirty_throttle_groups WHERE group_name = $1;
	END;
	REVOKE SELECT ON dirty_throttle_sessions FROM PUBLIC;
	GRANT SELECT ON dirty_throttle_sessions TO reader;
	GRANT EXECUTE ON FUNCTION set_group_dirty_limit(text, float8) TO ops});
my $columns = q{
	SELECT string_agg(attname, ' ' ORDER BY attnum)
	FROM pg_attribute WHERE attrelid = 'my_groups'::regclass AND attnum > 0};
my $my_columns = $s->query($columns);
$s->query('PREPARE groups AS SELECT count(*) FROM dirty_throttle_groups');
is($s->query('EXECUTE groups'), 2, 'before the update');
$s->query("ALTER EXTENSION $next UPDATE");
is(version($s, $next), '2.0', 'it is updated');
is($s->query('EXECUTE groups'), 2, 'a prepared statement survives it');
is($s->query($columns), $my_columns,
	"a user's view survives it, with the same columns");
is($s->query('SELECT group_name, dirty_limit FROM my_groups ORDER BY 1'),
	"grp_a|$limit\ngrp_b|", 'and answers');
is($s->query('SELECT pid, group_name, blocks_dirtied > 0 FROM my_sessions'),
	$member->pid . '|grp_a|t', 'the view of sessions, too');
is($s->query("SELECT my_limit('grp_a')"), $limit, "and a user's function");
is( $s->query(q{SELECT has_table_privilege('reader', 'dirty_throttle_sessions', 'SELECT'),
		has_table_privilege('ops', 'dirty_throttle_sessions', 'SELECT'),
		has_function_privilege('ops', 'set_group_dirty_limit(text, float8)', 'EXECUTE'),
		has_function_privilege('ops', 'group_limit(text)', 'EXECUTE')}),
	't|f|t|f', 'privileges are what they were');
is($s->query("SELECT group_limit('grp_a'), burst_ms FROM dirty_throttle_groups
		WHERE group_name = 'grp_a'"), "$limit|20", 'there is what is new');
$s->query("SELECT set_group_dirty_limit('grp_a', 0)");
is($member->wait->{sqlstate}, undef, 'a member at work does not notice');
$member->quit;

# But for the privileges that were changed here, it is what a new one is.
$session{fresh}->query("CREATE EXTENSION $next");
is( difference(
		[ objects($session{fresh}, $next, 0) ],
		[ objects($s, $next, 0) ]),
	'', 'created and updated: the same');

# What users have built on the old columns keeps it from being dropped.
is($s->run("DROP EXTENSION $next")->{sqlstate},
	'2BP01', 'a view of a user depends on it');
$s->query("DROP VIEW my_groups, my_sessions; DROP FUNCTION my_limit;
	DROP EXTENSION $next");
is($s->query("SELECT count(*) FROM pg_proc WHERE probin ~ 'dirty_throttle'"),
	0, 'nothing is left behind');

$_->quit foreach values %session;
$dt->finish;
