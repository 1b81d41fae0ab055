#!/usr/bin/env perl
#
# The layout of src/: its parts are layers, a file includes only what is in its
# own layer or a lower one, and no files include each other in a circle.  The
# engine knows no PostgreSQL, and only compat.h asks for its version.  And src/README.md
# names the layers in this order, and files and functions that there are.
#
# Run at the top of the source tree; --list prints the graph.

use strict;
use warnings;
use Test::More;

# from the lowest layer up; what is in src/ itself is the highest
my @LAYERS = qw(engine shared waiters pressure session batch sql .);
my %ANYWHERE = map { $_ => 1 } qw(compat.h clock.h);    # but in the engine

my %rank = map { ($LAYERS[$_] => $_) } 0 .. $#LAYERS;
my (%includes, @foreign, @unqualified, @version, @clock, @instr_time);

foreach my $path (glob('src/*.[ch] src/*/*.[ch]'))
{
	(my $name = $path) =~ s{^src/}{};
	open my $file, '<', $path or die "$path: $!";
	while (my $line = <$file>)
	{
		push @version, $name
		  if $line =~ /\bPG_VERSION_NUM\b/ && $name ne 'compat.h';
		push @clock, $name
		  if $line =~ /\bDT_TEST_CLOCK\b/ && $name ne 'clock.h';
		push @instr_time, $name
		  if $line =~ /\bINSTR_TIME/ && $name ne 'shared/commits.c';
		next unless $line =~ /^\s*#\s*include\s*"([^"]+)"/;
		my $other = $1;
		(my $beside = $name) =~ s{[^/]+$}{$other};
		if (-f "src/$other") { $includes{$name}{$other} = 1 }
		elsif (-f "src/$beside") { push @unqualified, "$name: $other" }
		else { push @foreign, "$name: $other" }
	}
	$includes{$name} //= {};
}

sub layer { return $_[0] =~ m{^(.+)/} ? $1 : '.' }

# a file and its headers are one module
sub module { my $name = shift; $name =~ s/\.[ch]$//; return $name }

my (@up, %uses);
foreach my $name (sort keys %includes)
{
	foreach my $other (sort keys %{ $includes{$name} })
	{
		print "$name -> $other\n" if "@ARGV" eq '--list';
		next if $ANYWHERE{$other} && layer($name) ne 'engine';
		push @up, "$name includes $other"
		  if $rank{ layer($other) } > $rank{ layer($name) };
		$uses{ module($name) }{ module($other) } = 1
		  if module($name) ne module($other);
	}
}
exit 0 if "@ARGV" eq '--list';

# Depth first; what is on the path already closes a circle.
my (%done, @circles);

sub visit
{
	my ($module, @path) = @_;

	if (grep { $_ eq $module } @path)
	{
		push @circles, join(' -> ', @path, $module);
		return;
	}
	return if $done{$module};
	visit($_, @path, $module) foreach sort keys %{ $uses{$module} };
	$done{$module} = 1;
	return;
}
visit($_) foreach sort keys %uses;

cmp_ok(scalar(keys %includes), '>', 30, 'there are files to look at');
is_deeply([ grep { !exists $rank{ layer($_) } } sort keys %includes ],
	[], 'each is in a known layer');
is_deeply(\@unqualified, [], 'they include each other by the path from src/');
is_deeply(\@up, [], 'no file includes one of a higher layer');
is_deeply(\@circles, [], 'no files include each other in a circle');
is_deeply([ grep { /^engine/ } @foreign ],
	[], 'the engine includes nothing of PostgreSQL');
is_deeply(\@version, [], 'only compat.h asks for the version');
is_deeply(\@clock, [], 'only clock.h asks whether a test moves the clock');
is_deeply(\@instr_time, [], 'times that others see are not of a clock of this process');

# --------------------------------------------------------------- src/README.md

my %source;
foreach my $name (keys %includes)
{
	open my $file, '<', "src/$name" or die "src/$name: $!";
	local $/;
	$source{$name} = <$file>;
}
open my $readme, '<', 'src/README.md' or die "src/README.md: $!";
my (@parts, @absent);
while (my $line = <$readme>)
{
	my ($part) = $line =~ m{^\| `(\w+)/` \|};
	my @files = map { m{/} || -f "src/$_" ? $_ : defined $part ? "$part/$_" : "session/$_" } $line =~ /`([\w\/]+\.[ch])`/g;

	push @parts, $part if defined $part;
	push @absent, grep { !exists $source{$_} && !-f } @files;
	# a row of "Where is ...?", and steps: each function is in a file of the line
	foreach my $function ($line =~ /`(\w+)\(\)`/g)
	{
		push @absent, "$function() in @files"
		  if @files && !grep { ($source{$_} // '') =~ /^\Q$function\E\(|^\s+\Q$function\E\(|_V1\(\Q$function\E\)/m } @files;
	}
}
is_deeply(\@parts, [ @LAYERS[ 0 .. $#LAYERS - 1 ] ], 'src/README.md: the parts, from the lowest up');
is_deeply(\@absent, [], 'src/README.md: files and functions that there are');

done_testing();
