# README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md, packaging/README.md and
# docs/: every relative link leads to a file, and to a heading of it; every block
# of SQL runs without an error or a warning; and docs/reference.md describes the
# functions, views and parameters that there are, and no others; docs/operators.md
# knows how much shared memory they take and whom to grant what; and
# docs/troubleshooting.md says what test/sql/mistakes.sql reports.
#
# Each block runs in a session of its own, as a superuser, after those that are
# before it in the file.  In the files there are two kinds of comment for this
# test, each at the beginning of a line:
#
#	<!-- not run: REASON -->			the next block of SQL cannot be run
#	<!-- before the examples: SQL -->	runs before the blocks of the file
#
# takes-about: 12 s

use strict;
use warnings FATAL => 'all';

use Config;
use Cwd qw(realpath);
use Encode qw(decode);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;

my $top = realpath("$FindBin::RealBin/../..");

# ------------------------------------------------------------------ the files

# A Markdown file: its text without blocks of code (prose), its blocks of SQL,
# the SQL that is to run before them, and comments that belong to no block.
sub parse
{
	my ($file) = @_;
	my %doc = (prose => '', blocks => [], before => '', stray => []);
	my ($block, $reason);
	my $n = 0;

	foreach my $line (split /\n/,
		decode('UTF-8', slurp_file("$top/$file"), Encode::FB_CROAK))
	{
		$n++;
		if (defined $block)
		{
			if ($line =~ /^```\s*$/) { undef $block }
			else { $block->{sql} .= "$line\n" }
			next;
		}
		if ($line =~ /^```(\w*)/)
		{
			$block = { name => "$file:$n", sql => '', reason => $reason };
			if ($1 eq 'sql')
			{
				push @{ $doc{blocks} }, $block;
				undef $reason;
			}
			next;
		}
		if ($line =~ /\S/ && defined $reason)
		{
			push @{ $doc{stray} }, $reason;
			undef $reason;
		}
		$reason = $1 if $line =~ /^<!-- not run: (.+) -->$/;
		$doc{before} .= "$1;\n" if $line =~ /^<!-- before the examples: (.+) -->$/;
		$doc{prose} .= "$line\n";
	}
	push @{ $doc{stray} }, $reason if defined $reason;
	push @{ $doc{stray} }, "$block->{name} does not end" if defined $block;
	return \%doc;
}

my @files = map { s!^\Q$top\E/!!r } grep { -f } "$top/README.md",
  "$top/CONTRIBUTING.md", "$top/CHANGELOG.md", "$top/SECURITY.md",
  "$top/packaging/README.md", glob("$top/docs/*.md"),
  glob("$top/docs/benchmarks/*.md");
my %docs = map { $_ => parse($_) } @files;

# ---------------------------------------------------------------------- links

# The anchors that GitHub makes of the headings of a file.
sub anchors
{
	my ($file) = @_;
	my %seen;

	return map {
		my $anchor = lc s/\[([^\]]*)\]\([^)]*\)/$1/gr;
		$anchor =~ s/[^\w\- ]//g;
		$anchor =~ tr/ /-/;
		$seen{$anchor}++ ? "$anchor-" . ($seen{$anchor} - 1) : $anchor;
	} $docs{$file}{prose} =~ /^#{1,6} +(.*?) *$/mg;
}

my %anchors = map { my $file = $_; $file => { map { $_ => 1 } anchors($file) } }
  @files;
my ($links, %linked) = (0);

foreach my $file (@files)
{
	my $prose = $docs{$file}{prose};
	my %defined = $prose =~ /^\[([^\]]+)\]: +(\S+)$/mg;
	my @targets = ($prose =~ /\]\(([^)\s]+)\)/g, values %defined);
	my @broken;

	foreach my $target (grep { !/^https?:/ } @targets)
	{
		my ($path, $anchor) = $target =~ /^([^#]*)(?:#(.*))?$/;
		my $to =
		  $path eq '' ? "$top/$file" : realpath(dirname("$top/$file") . "/$path");

		$links++;
		if (!defined $to || !-e $to || $to !~ s!^\Q$top\E/!!)
		{
			push @broken, $target;
			next;
		}
		$linked{$file}{$to} = 1;
		push @broken, $target
		  if defined $anchor && !$anchors{$to}{$anchor};
	}
	is_deeply(\@broken, [], "$file: every link leads somewhere");

	# [001] without parentheses is a link only if it is defined
	my %used = map { $_ => 1 } $prose =~ /\[(\d+)\](?![(:])/g;
	is_deeply([ sort keys %used ],
		[ sort keys %defined ], "$file: links that are defined below");
}
is_deeply(
	[ grep { m!^docs/[^/]*$! && !$linked{'README.md'}{$_} } @files ],
	[], 'README.md leads to all of docs/');
note "$links links followed";

# ------------------------------------------------------------------------ SQL

my $dt = DirtyThrottle->new('docs', init => [ allows_streaming => 1 ]);
my ($run, $not_run) = (0, 0);

# Run SQL in a session of its own: errors and warnings.  A query that psql
# repeats (\watch) runs once, and what is large enough to be watched is not.
sub problems
{
	my ($sql) = @_;
	my $session = $dt->session(dbname => 'docs');
	my $result = $session->run(
		$sql =~ s/\s*\\watch \d+$/;/mgr =~ s/generate_series\(1, \K10{5,6}\b/1000/gr);
	my @problems =
	  $result->{err} =~ /^.*(?:WARNING|ERROR|FATAL|PANIC):.*$/mg;

	push @problems, 'the session has ended' unless $session->alive;
	$session->quit;
	return join "\n", @problems;
}

# The query of docs/operators.md about removing finds what sets or grants a parameter, and its
# statements leave nothing.
sub check_removal
{
	my ($sql) = map { $_->{sql} }
	  grep { $_->{sql} =~ /pg_proc/ && $_->{sql} =~ /pg_parameter_acl/ }
	  @{ $docs{'docs/operators.md'}{blocks} };
	my $session = $dt->session(dbname => 'docs');

	$session->query(
		q{CREATE FUNCTION "Quoted Name"(int, text) RETURNS int LANGUAGE sql
			SET dirty_throttle."group" = 'batch' SET work_mem = '1MB' AS 'SELECT 1';
		ALTER ROLE ALL SET dirty_throttle.log_min_pause = '1s';
		ALTER DATABASE docs SET dirty_throttle."group" = 'batch';
		CREATE ROLE "an operator";
		ALTER ROLE "an operator" IN DATABASE docs SET dirty_throttle."group" = 'batch';
		GRANT SET ON PARAMETER dirty_throttle."group" TO "an operator" WITH GRANT OPTION;
		GRANT SET ON PARAMETER dirty_throttle.log_min_pause TO PUBLIC});
	my $found = $session->query($sql);
	like($found, qr/^\Q$_\E/m, "what is to be reset: $_")
	  foreach 'ALTER ROUTINE "Quoted Name"(integer,text) RESET dirty_throttle."group";',
	  'ALTER ROUTINE purge_log() RESET dirty_throttle."group";',
	  'ALTER ROLE etl RESET dirty_throttle."group";',
	  'ALTER ROLE ALL RESET dirty_throttle.log_min_pause;',
	  'ALTER DATABASE docs RESET dirty_throttle."group";',
	  'ALTER ROLE "an operator" IN DATABASE docs RESET dirty_throttle."group";',
	  'REVOKE ALL ON PARAMETER dirty_throttle."group" FROM "an operator"',
	  'REVOKE ALL ON PARAMETER dirty_throttle.log_min_pause FROM PUBLIC';
	unlike($found, qr/work_mem/, 'and nothing else');
	is($session->run($found)->{err}, '', 'its statements run');
	is($session->query($sql), '', 'and leave nothing');
	is( $dt->sql(q{SELECT count(*) FROM pg_parameter_acl WHERE parname LIKE 'dirty%'}),
		0, 'no privilege on a parameter');
	$session->quit;
}

foreach my $file (@files)
{
	my @blocks = @{ $docs{$file}{blocks} };

	is_deeply($docs{$file}{stray}, [],
		"$file: comments and blocks belong together");
	next unless @blocks;

	$dt->sql('CREATE DATABASE docs');
	is(problems($docs{$file}{before}), '', "$file: before the examples")
	  if $docs{$file}{before} ne '';
	foreach my $block (@blocks)
	{
		if (defined $block->{reason})
		{
			$not_run++;
			note "$block->{name} is not run: $block->{reason}";
			next;
		}
		is(problems($block->{sql}), '', "$block->{name}: runs");
		$run++;
	}

	check_removal() if $file eq 'docs/operators.md';

	# leave nothing to the next file
	$dt->sql(
		q{ALTER SYSTEM RESET ALL;
		SELECT pg_reload_conf();
		ALTER DATABASE postgres RESET ALL;
		DROP DATABASE docs WITH (FORCE);
		SELECT drop_resource_group(group_name, force => true)
			FROM dirty_throttle_groups WHERE instance IS NULL});
	$dt->sql(qq{DROP OWNED BY "$_"; DROP ROLE "$_"})
	  foreach split /\n/,
	  $dt->sql(q{SELECT rolname FROM pg_roles
		  WHERE rolname !~ '^pg_' AND rolname <> current_user});
}
cmp_ok($run, '>', 0, 'there are blocks of SQL');
note "SQL blocks: $run run, $not_run not run";

# ------------------------------------------------------------------ reference

# The cells of the rows of the tables in a section of docs/reference.md.
sub table_rows
{
	my ($heading) = @_;
	my ($level, $section) =
	  $docs{'docs/reference.md'}{prose} =~ /^(#+) \Q$heading\E$(.*?)(?=^#|\z)/ms;

	die "docs/reference.md has no section $heading" unless defined $section;
	return map { [ map { s/^ | $//gr } split /\|/, $_ ] }
	  $section =~ /^\|(.*)\|$/mg;
}

# What a name stands for in a cell: without backquotes.
sub plain { return $_[0] =~ tr/`//dr }

my %of_view = map { @$_ } map { [ split /\t/, $_, 2 ] } split /\n/, $dt->sql(
	q{SELECT c.relname || E'\t' || string_agg(
			a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum)
	  FROM pg_depend AS d
		   JOIN pg_extension AS e ON d.refobjid = e.oid
		   JOIN pg_class AS c ON d.objid = c.oid AND d.classid = 'pg_class'::regclass
		   JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
	  WHERE d.refclassid = 'pg_extension'::regclass AND e.extname = 'dirty_throttle'
		AND c.relkind = 'v'
	  GROUP BY c.relname});
my %type = (
	int => 'integer',
	float8 => 'double precision',
	timestamptz => 'timestamp with time zone');

ok(scalar keys %of_view, 'there are views');
is_deeply(
	[ sort $docs{'docs/reference.md'}{prose} =~ /^### View `(\w+)`$/mg ],
	[ sort keys %of_view ],
	'reference: all views');
foreach my $view (sort keys %of_view)
{
	my @columns = map { plain($_->[0]) . ' ' . ($type{ $_->[1] } // $_->[1]) }
	  grep { $_->[0] =~ /^`/ } table_rows("View `$view`");

	is(join(', ', @columns), $of_view{$view}, "reference: columns of $view");
}

# As the reference writes them: the arguments that are given, short types.
my @functions = split /\n/, $dt->sql(
	q{SELECT p.proname || '(' || CASE WHEN p.pronargs = 0 THEN ''
			ELSE regexp_replace(replace(replace(replace(pg_get_function_arguments(p.oid),
				'double precision', 'float8'), 'integer', 'int'), '::text', ''),
				'\mIN |(?<=NULL)::\w+', '', 'g') END || ')'
	  FROM pg_depend AS d
		   JOIN pg_extension AS e ON d.refobjid = e.oid
		   JOIN pg_proc AS p ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	  WHERE d.refclassid = 'pg_extension'::regclass AND e.extname = 'dirty_throttle'
		AND p.proname NOT LIKE 'dirty_throttle_stored_%'});    # nobody's
my @described = map { plain($_->[0]) =~ /(\w+\([^)]*\))/g }
  map { table_rows($_) } 'Functions that define groups',
  'Functions for everybody';

ok(scalar @functions, 'there are functions');
is_deeply([ sort @described ], [ sort @functions ], 'reference: functions');

my @parameters = split /\n/, $dt->sql(
	q{SELECT concat_ws(', ', name, coalesce(nullif(current_setting(name), ''), 'empty'),
			CASE vartype WHEN 'bool' THEN 'on' ELSE min_val END,
			CASE vartype WHEN 'bool' THEN 'off' ELSE max_val END, context)
	  FROM pg_settings WHERE name LIKE 'dirty\_throttle.%'});
my %context = (
	'superusers' => 'superuser',
	'configuration file' => 'sighup',
	'server start' => 'postmaster');
@described = map {
	my ($name, $default, $range, $set_by) = map { plain($_) } @$_;

	join ', ', $name =~ tr/"//dr, $default,
	  ($range eq 'on, off' ? qw(on off) : $range =~ /^(-?\d+) to (\d+)/),
	  $context{ $set_by =~ s/,.*//r } // "unknown: $set_by";
} grep { $_->[0] =~ /^`/ } table_rows('Parameters');

ok(scalar @parameters, 'there are parameters');
is_deeply([ sort @described ], [ sort @parameters ], 'reference: parameters');

# -------------------------------------------------------------------- memory

# The numbers of docs/operators.md about shared memory are those of this server,
# whose settings are others.  A struct that grows has to be told there, too.
SKIP:
{
	skip 'the numbers are those of 64 bits', 7 unless $Config{ptrsize} == 8;

	my $page = $docs{'docs/operators.md'}{prose};
	my %server = map { split /\|/ } split /\n/,
	  $dt->sql(q{SELECT name || '|' || size FROM pg_shmem_allocations
		  WHERE name LIKE 'dirty\_throttle%'});
	my $max_groups = $dt->sql('SHOW dirty_throttle.max_groups');
	my $settings = $dt->sql(
		q{SELECT sum(setting::int) FROM pg_settings WHERE name IN ('max_connections',
			'max_worker_processes', 'max_wal_senders', CASE
			WHEN current_setting('server_version_num')::int < 180000
			THEN 'autovacuum_max_workers' ELSE 'autovacuum_worker_slots' END)});
	my %total = map { $_->[0] => $_->[1] =~ tr/ //dr }
	  map { [ $page =~ /^\| `(\Q$_\E)` \| ([\d ]+) \|/m ] } sort keys %server;
	my ($group) = map { tr/ //dr } $page =~ /\| ([\d ]+) for each of `max_groups` \|/;
	my ($member, $claim) = map { tr/ //dr } $page =~ /\| ([\d ]+) for each possible backend \|/g;
	my ($debt, $more) = map { tr/ //dr }
	  $page =~ /\| ([\d ]+) for each possible backend and (\d+) more \|/;
	my ($wait, $fixed) =
	  map { tr/ //dr } $page =~ /\| ([\d ]+) for each possible backend, prepared .*, and (\d+) \|/;
	my ($groups, $members) =
	  $page =~ /`max_groups` = (\d+) and (\d+) possible backends/;

	is($total{'dirty_throttle'}, $server{'dirty_throttle'}, 'operators: fixed memory');
	is($group * $max_groups, $server{'dirty_throttle groups'}, 'operators: of a group');
	# the launcher of autovacuum counts, too, and from 17 on another process
	my $backends = $server{'dirty_throttle members'} / $member;
	ok( $backends =~ /^\d+$/ && $backends > $settings && $backends <= $settings + 3,
		"operators: of a backend, $backends of $settings in the settings");
	is($debt * ($backends + $more), $server{'dirty_throttle role debts'},
		'operators: of a debt of a role');
	my $others = ($server{'dirty_throttle waits'} - $fixed) / $wait - $backends -
	  $dt->sql('SHOW max_prepared_transactions');
	ok($others =~ /^\d+$/ && $others >= 5 && $others < 45,
		"operators: of who may wait, $others others");
	is($claim * $backends, $server{'dirty_throttle batches'}, 'operators: of a job');
	is_deeply(
		\%total,
		{
			'dirty_throttle batches' => $claim * $members,
			'dirty_throttle' => $total{'dirty_throttle'},
			'dirty_throttle groups' => $group * $groups,
			'dirty_throttle members' => $member * $members,
			'dirty_throttle role debts' => $debt * ($members + $more),
			'dirty_throttle waits' => $wait * ($members + 5) + $fixed
		},
		'operators: the sums');
	is_deeply(
		[ $page =~ /10 000 groups take (\d+) MB, and 5000 connections ([\d.]+) MB/ ],
		[ sprintf('%.0f', 10000 * $group / 1e6), sprintf('%.1f', 5000 * ($member + $debt + $wait + $claim) / 1e6) ],
		'operators: of many groups and backends');
}

# ------------------------------------------------------------------ delegation

# The page that says how to leave the groups to others names all functions that are
# not for everybody.
{
	my @granted = split /\n/, $dt->sql(
		q{SELECT p.proname || CASE WHEN count(*) OVER (PARTITION BY p.proname) = 1 THEN ''
				ELSE '(' || replace(pg_get_function_identity_arguments(p.oid),
					'double precision', 'float8') || ')' END
		  FROM pg_depend AS d
			   JOIN pg_extension AS e ON d.refobjid = e.oid
			   JOIN pg_proc AS p ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		  WHERE d.refclassid = 'pg_extension'::regclass AND e.extname = 'dirty_throttle'
			AND p.proname NOT LIKE 'dirty_throttle_stored_%'
			AND NOT EXISTS (SELECT FROM aclexplode(p.proacl) WHERE grantee = 0)});

	s/\w+ (?=text|float8)//g foreach @granted;
	cmp_ok(scalar @granted, '>', 10, 'functions that are not for everybody');
	my ($list) = map { $_->{sql} =~ /^GRANT EXECUTE ON FUNCTION\s+(\w+[(,].*?) TO \w+;/ms }
	  @{ $docs{'docs/operators.md'}{blocks} };

	is_deeply([ sort split /\s*,\s*(?![^(]*\))/, $list // '' ],
		[ sort @granted ], 'operators: GRANT names all of them');
}

# ------------------------------------------------------------- states of a job

# docs/troubleshooting.md has each state of a batch job, and its messages are in the
# source, or the server's own.
{
	my ($table) = $docs{'docs/troubleshooting.md'}{prose} =~ /^\| `state` \|.*?\n((?:\|.*\n)+)/m;
	my @rows = map { [ split /\s*\|\s*/ ] } grep { !/^\|---/ } split /\n/, $table // '';
	my ($comment) = slurp_file((glob("$top/sql/dirty_throttle--*.sql"))[0]) =~
	  /^COMMENT ON COLUMN dirty_throttle_batches\.state IS '([^']+)'/m;
	my %states = map { $_->[1] =~ tr/`//dr => 1 } @rows;
	my @formats = map { slurp_file($_) =~ s/"\s*\n\s*"//gr =~ /"((?:[^"\\\n]|\\.)+)"/g }
	  glob("$top/src/batch/*.c $top/src/sql/views.c");
	my @known = (qr/^canceling statement due to (?:lock|statement) timeout$/, qr/^permission denied for table \w+$/, qr/^relation "\w+" does not exist$/,
		qr/^(?:retries|paused_time|error)$/,
		map { my $f = $_ =~ s/\\"/"/gr; $f = quotemeta $f; $f =~ s/\\%(?:ll)?[sdu]/.+/g; qr/^$f/ } grep { /\w \w/ } @formats);

	is_deeply([ grep { $comment !~ /\b\Q$_\E\b/ } sort keys %states ], [], 'troubleshooting: states that there are');
	is_deeply([ grep { !$states{$_} } $comment =~ /\b(waiting|running|suspended|finished|stopped|failed|interrupted)\b/g ],
		[], 'troubleshooting: all states');
	is_deeply(
		[ grep { my $message = $_; !grep { $message =~ $_ || $message =~ s/^batch job "x" //r =~ $_ } @known } map { $_->[2] =~ /`([^`]+)`/g } @rows ],
		[], 'troubleshooting: messages that there are');
	cmp_ok(scalar @rows, '>', 10, 'troubleshooting: rows');
}

# --------------------------------------------------------------- the mistakes

# What test/sql/mistakes.sql prints, as rows of docs/troubleshooting.md: the message,
# and then detail and hint; before them, where it is known, the command.
sub mistakes
{
	my (@rows, $command);

	foreach my $line (split /\n/, slurp_file("$top/expected/mistakes.out"))
	{
		next if $line =~ /^LINE \d+: |^ +\^$/;    # the place of a syntax error
		$line =~ s/x{64}/xxx.../ unless $line =~ /^SELECT/;
		if ($line =~ /^    (.+)/)
		{
			if (defined $command) { push @rows, [ $command, $1 ] }
			else { push @{ $rows[-1] }, $1 }
			undef $command;
		}
		elsif ($line =~ /^(?:ERROR|NOTICE|WARNING): +(.+)/) { push @rows, [ undef, $1 ] }
		elsif ($line =~ /^(?:DETAIL|HINT): +(.+)/) { push @{ $rows[-1] }, $1 }
		elsif ($line =~ /^(\d[0-9A-Z]{4})$/) { $rows[-1][1] = "$1 $rows[-1][1]" }
		else { $command = $line =~ s/^SELECT //r }
	}
	return map { my ($c, $m, @rest) = @$_; [ $c, $m, join ' ', @rest ] } @rows;
}

my @told = mistakes();
my %with_command = map { join(' | ', @$_) => 1 } grep { defined $_->[0] } @told;
my %without = map { join(' | ', @$_[ 1, 2 ]) => 1 } grep { !defined $_->[0] } @told;
my $source = join '', map { slurp_file($_) } glob "$top/src/*/*.c";
my ($rows, @wrong) = (0);

# A message without the names and numbers in it: the page has one example of each.
sub kind { return $_[0] =~ s/^[0-9A-Z]{5} //r =~ s/"[^"]*"/""/gr =~ s/\d+(?:\.\d+)?/0/gr }

my %missing = map { kind($_->[1]) => "$_->[1] | $_->[2]" } grep { $_->[2] ne '' } @told;
my ($messages) = $docs{'docs/troubleshooting.md'}{prose} =~ /^## Messages$(.*)/ms;
foreach my $cells ($messages =~ /^\| (.+) \|$/mg)
{
	my ($what, $message, $rest) = split / \| ?/, "$cells ", 3;

	next if $what =~ /^What/;
	$rest =~ s/ +$//;
	$rows++;
	delete $missing{ kind($message) };
	next
	  if delete $with_command{ join ' | ', $what =~ s/^`(.*)`$/$1/r, $message, $rest }
	  or delete $without{"$message | $rest"};
	# what needs a server of another kind, or two sessions: the source says it so
	next
	  if $what =~ /^A change on a standby|without the library|^While /
	  && !grep { index($source, '"' . s/"/\\"/gr . '"') < 0 }
	  map { s/"states"/"%s"/r =~ s/SELECT start_batches\('states'.*?\)|'states'/%s/r =~ s/process \.\.\./process %d/r =~ s/failed 10/failed %d/r }
	  grep { !/^canceling statement/ }    # the server says that
	  $message =~ s/^[0-9A-Z]{5} //r, $rest;
	push @wrong, "$what | $message | $rest";
}
cmp_ok($rows, '>', 40, 'troubleshooting: messages of mistakes');
is_deeply(\@wrong, [], 'troubleshooting: these are what is reported');
is_deeply([ sort values %missing ], [], 'troubleshooting: each message with a hint');

$dt->finish;
