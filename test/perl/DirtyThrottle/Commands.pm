# Kinds of commands that dirty buffers and write WAL: those of the test that each
# of them pays (057), and of the benchmark of how exactly (bench/commands.pl).

package DirtyThrottle::Commands;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(command_cases command_todo $COMMANDS_CONF);

our $COMMANDS_CONF = q{
shared_buffers = 512MB
max_wal_size = 16GB
wal_log_hints = on
allow_in_place_tablespaces = on
max_connections = 30
max_worker_processes = 24
max_parallel_workers = 16
maintenance_work_mem = 64MB
min_parallel_table_scan_size = 0
min_parallel_index_scan_size = 0
dirty_throttle.max_groups = 200
};

# For tables of so many rows, on this server.
sub command_cases
{
	my ($dt, $n) = @_;
	my $version = $dt->sql('SHOW server_version_num');
	my $directory = $dt->node->data_dir;
	my $connstr = $dt->node->connstr;

	# Rows that nobody has looked at: to read them sets hint bits, which dirties
	# their pages and, with wal_log_hints, writes them to the WAL.
	my $fresh = "CREATE TABLE tbl AS SELECT i AS id FROM generate_series(1, $n) i";
	my $empty = 'CREATE TABLE tbl (id int)';
	my $indexed = "$fresh; CREATE INDEX tbl_idx ON tbl USING";
	my $more = $fresh =~ s/, $n/, 2 * $n/r;
	my $big = $fresh =~ s/, $n/, 4 * $n/r;
	my $dead = "$big; CREATE INDEX ON tbl (id); DELETE FROM tbl WHERE id % 2 = 0";
	my $half = $fresh =~ s/, $n/, $n \/ 2/r;
	my $view = "$fresh; CREATE MATERIALIZED VIEW tbl_v AS SELECT * FROM tbl WITH NO DATA";
	my $rows = "SELECT i FROM generate_series(1, $n) i";

	# What takes time for each row.
	my $slow = "length(repeat(md5(id::text), 20))";

	my $slow_id = "((id + 0 * $slow))";
	my $rejects = "SELECT count(*) FROM tbl WHERE $slow < 0";

	my $checked = "CREATE TABLE tbl (id int CHECK ($slow > 0))";

	# A point each, anywhere.
	my $point = 'point(hashint4(id), hashint4(id + 1))';

	# Each: a name, what is there before, the command ("tbl" is a table of the
	# case's own), and what it dirties and writes to the WAL at least, in KB, when
	# there are 100000 rows.  Options:
	#	any_rows   however many rows there are
	#	alone      of those with the same word here one at a time
	#	db         the database
	#	settings   of the session
	#	move       the session is put into the group when the command has run so
	#	           many seconds
	#	worker     another process does it: the view that tells which, and the group
	#	           that it is in; the command only starts it
	#	own        it takes time for what is neither dirtied nor written: no more than
	#	           all of it does without a limit
	#	late       how much of it, in %, has to be paid while it runs, where that is
	#	           less than nearly all
	#	burst      much of it comes in one go
	#	even       no second has much more than its share, although workers have
	#	           written what the leader is not charged for
	my %late = (late => 35);
	my %burst = (burst => 1);
	my %even = (even => 1);
	my %concurrently = (alone => 'concurrently', db => 'other');
	my @cases = (
		[ 'CREATE INDEX btree', $more,
			"CREATE INDEX ON tbl $slow_id", 7200, 11200, %even ],
		[ 'CREATE INDEX hash', $fresh,
			'CREATE INDEX ON tbl USING hash (id)', 7800, 10800 ],
		[ 'CREATE INDEX gin', $fresh,
			'CREATE INDEX ON tbl USING gin ((ARRAY[id]))', 9200, 6400, %late ],
		[ 'CREATE INDEX gist', $half,
			'CREATE INDEX ON tbl USING gist (box(point(id, id), point(id, id)))',
			6800, 4000, %late ],
		[ 'CREATE INDEX gist, sorted', $fresh,
			'CREATE INDEX ON tbl USING gist (point(id, id))', 3600, 8000 ],
		[ 'CREATE INDEX spgist', $half,
			"CREATE INDEX ON tbl USING spgist ($point)", 5000, 4000, %late ],
		[ 'CREATE INDEX brin', $fresh,
			"CREATE INDEX ON tbl USING brin $slow_id WITH (pages_per_range = 1)",
			3600, 3600 ],
		[ 'CREATE INDEX btree, parallel', $more,
			"CREATE INDEX ON tbl $slow_id", 7200, 11200, %even,
			settings => 'SET max_parallel_maintenance_workers = 2' ],
		[ 'CREATE INDEX CONCURRENTLY', $fresh,
			"CREATE INDEX CONCURRENTLY ON tbl $slow_id", 3600, 5600,
			%concurrently ],
		[ 'CREATE INDEX CONCURRENTLY hash', $fresh,
			'CREATE INDEX CONCURRENTLY ON tbl USING hash (id)', 7800, 10800,
			%concurrently ],
		[ 'REINDEX', "$indexed hash (id)", 'REINDEX INDEX tbl_idx',
			4200, 7200, %burst ],
		[ 'REINDEX CONCURRENTLY', "$indexed hash (id)",
			'REINDEX INDEX CONCURRENTLY tbl_idx', 4200, 7200, %burst, %concurrently ],
		[ 'ALTER TABLE, rewrite', $fresh,
			'ALTER TABLE tbl ALTER id TYPE bigint', 7200, 9900 ],
		[ 'ALTER TABLE ADD CHECK', $fresh,
			"ALTER TABLE tbl ADD CHECK ($slow > 0)", 3600, 3600 ],
		[ 'ALTER TABLE ADD FOREIGN KEY', "$fresh;
				CREATE TABLE tbl_p (id int PRIMARY KEY); INSERT INTO tbl_p $rows",
			'ALTER TABLE tbl ADD FOREIGN KEY (id) REFERENCES tbl_p', 7200, 7200 ],
		[ 'ALTER TABLE SET TABLESPACE', $big,
			'ALTER TABLE tbl SET TABLESPACE place', undef, 14400, %late ],
		[ 'CLUSTER', "$empty; CREATE INDEX tbl_idx ON tbl (id);
				INSERT INTO tbl $rows", 'CLUSTER tbl USING tbl_idx', 3600, 9200 ],
		[ 'VACUUM FULL', $big, 'VACUUM FULL tbl', 14400, 29000 ],
		# not CONCURRENTLY: that waits for all transactions of the server, which then
		# do not pause in flight
		$version < 190000 ? () : (
			[ 'REPACK', "$empty; CREATE INDEX tbl_idx ON tbl (id);
				INSERT INTO tbl $rows", 'REPACK tbl USING INDEX tbl_idx', 3600, 9200 ]),
		[ 'VACUUM', $dead, 'VACUUM tbl', 23600, 19600 ],
		[ 'VACUUM (PARALLEL 2)', "$dead; CREATE INDEX ON tbl ((id + 1))",
			'VACUUM (PARALLEL 2) tbl', 23600, 13000 ],
		# from 17 on it has its checks where it holds a page's lock
		[ 'ANALYZE', $big, 'ANALYZE tbl', 14400, 14400,
			$version < 170000 ? () : (%burst, late => 0) ],
		[ 'REFRESH MATERIALIZED VIEW', $view,
			'REFRESH MATERIALIZED VIEW tbl_v', 7200, 9500 ],
		[ 'REFRESH ... CONCURRENTLY', "$view; REFRESH MATERIALIZED VIEW tbl_v;
				CREATE UNIQUE INDEX ON tbl_v (id);
				UPDATE tbl SET id = -id WHERE id % 10 = 0",
			'REFRESH MATERIALIZED VIEW CONCURRENTLY tbl_v', 8000, 9000,
			own => 1 ],
		[ 'CREATE DATABASE', '',
			'CREATE DATABASE tbl STRATEGY wal_log', 7500, 4300, %late,
			any_rows => 1 ],
		[ 'COPY FROM a file', "$checked; COPY ($rows) TO '$directory/tbl.copy'",
			"COPY tbl FROM '$directory/tbl.copy'", 3600, 1200 ],
		[ 'COPY FROM STDIN', $checked,
			join("\n", 'COPY tbl FROM STDIN;', 1 .. $n, "\\.\n"), 3600, 1200 ],
		[ 'CREATE TABLE AS', '', "CREATE TABLE tbl AS $rows", 3600, 5900 ],
		[ 'INSERT ... SELECT', $empty, "INSERT INTO tbl $rows", 3600, 5900 ],
		[ 'a filter that rejects all', $fresh, $rejects, 3600, 3600 ],
		[ 'a filter, compiled', $fresh, $rejects, 3600, 3600,
			settings => 'SET jit = on; SET jit_above_cost = 0;
				SET jit_inline_above_cost = -1; SET jit_optimize_above_cost = -1' ],
		[ 'a PL/pgSQL function', "$empty;
				CREATE FUNCTION tbl_f() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN
					FOR i IN 1 .. $n LOOP INSERT INTO tbl VALUES (i); END LOOP;
				END \$\$",
			'SELECT tbl_f()', 3600, 5900 ],
		[ 'a SQL function', "$fresh;
				CREATE FUNCTION tbl_f() RETURNS bigint LANGUAGE sql
					AS \$\$ $rejects \$\$",
			'SELECT tbl_f()', 3600, 3600 ],
		[ 'DO', $fresh, "DO \$\$ DECLARE n int; BEGIN n := ($rejects); END \$\$",
			3600, 3600 ],
		[ 'a query, moved', $fresh, $rejects, 3300, 3300, move => 0.02 ],
		[ 'CREATE INDEX, moved', $more, 'CREATE INDEX ON tbl USING hash (id)',
			7400, 16000, move => 0.02 ],
		[ 'autovacuum', "$dead; ALTER TABLE tbl SET (autovacuum_enabled = off,
				autovacuum_vacuum_threshold = 1)",
			'ALTER TABLE tbl SET (autovacuum_enabled = on)', 23600, 19600,
			alone => 'autovacuum', worker => [ 'pg_stat_progress_vacuum', 'autovacuum' ] ],
		[ 'copy of a subscription', $checked, "CREATE SUBSCRIPTION tbl
				CONNECTION '" . $connstr . " dbname=other' PUBLICATION tbl
				WITH (create_slot = false)", 3600, 1200,
			alone => 'copy', worker => [ 'pg_stat_progress_copy', 'apply' ],
			publish => "$fresh; CREATE PUBLICATION tbl FOR TABLE tbl;
				SELECT pg_create_logical_replication_slot('tbl', 'pgoutput')" ],
	);
	return @cases;
}

# The cases whose names match, once for each limit, which is what the command
# takes so many seconds at.
sub command_todo
{
	my ($dt, $n, $seconds, $wanted) = @_;
	my $jit = $dt->sql('SET jit = on; SELECT pg_jit_available(); RESET jit') eq 't';
	my @todo;

	foreach my $case (command_cases($dt, $n))
	{
		my ($name, $setup, $sql, $dirty_kb, $wal_kb, %opt) = @$case;

		next if $name =~ /compiled/ && !$jit;
		next if $name !~ /$wanted/;
		foreach my $by ('dirty', 'wal')
		{
			my $kb = $by eq 'dirty' ? $dirty_kb : $wal_kb;

			$kb *= $n / 100000 if $kb && !$opt{any_rows};
			push @todo,
			  { name => $name, setup => $setup, sql => $sql, by => $by, least => $kb,
				limit => sprintf('%.0f', $kb / $seconds), db => 'postgres', %opt }
			  if $kb;
		}
	}
	return @todo;
}

1;
