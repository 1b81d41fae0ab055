# Shell functions shared by test/run and demo/run; sourced, for bash.
#
# They give a script a directory of its own that holds a copy of the source
# tree and a copy of a PostgreSQL installation, so that "make install" and
# servers touch nothing else on the machine.  A copied installation finds its
# files relative to its programs (find_my_exec), which is why the programs
# are real files at the same place relative to the rest.
#
# All that is built and started runs as an ordinary user: the caller, or, when
# that is root, user postgres or nobody.  Everything is stopped and removed
# when the script ends, however it ends; SB_KEEP=1 keeps the directory.
#
#	sb_install test|demo	install what is missing, or say what is
#	sb_install_systems		install what only part systems of test/run needs
#	sb_create				make the directory
#	sb_user COMMAND...		run as the ordinary user, in a clean environment
#	sb_job SECONDS LOG SHOW COMMAND...
#							the same with a time limit, shows progress
#	sb_start LOG SHOW COMMAND...
#							the same in the background; sets SB_JOB
#	sb_running JOB, sb_wait JOB, sb_stop JOB DIRECTORY
#							is it, its exit status, end it and its servers
#	sb_say TEXT				a line with the time since the start
#
# They set SB_DIR, SB_SRC (the source copy), SB_BINDIR and SB_PG_CONFIG (in
# the installation copy), SB_MAJOR.

SB_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
SB_KEEP=${SB_KEEP:-0}
SB_DIR=
SB_JOB=							# the process group that was started last
SB_JOBS=()						# all that are not waited for, as subscripts
SB_AS=()						# what makes a command run as the ordinary user
SB_OLDEST=15					# releases that are supported
SB_NEWEST=19

sb_say()
{
	printf '[%4d s] %s\n' "$SECONDS" "$*"
}

# Scripts may set SB_LAST_WORDS, printed when they give up.
sb_die()
{
	printf '%s: %s\n' "$0" "$*" >&2
	[ -z "${SB_LAST_WORDS:-}" ] || echo "$SB_LAST_WORDS"
	exit 2
}

# ---------------------------------------------------------------- clean up

# Processes that run a program of the copied installation, in a directory.
sb_processes()
{
	local pid

	for pid in $(find /proc -mindepth 2 -maxdepth 2 -name exe -lname "$SB_DIR/*" \
		2>/dev/null | cut -d / -f 3); do
		case $(readlink "/proc/$pid/cwd")/ in "${1:-}"/*) echo "$pid" ;; esac
	done
}

# sb_alive DIRECTORY JOB...: is anything left of them?
sb_alive()
{
	local job

	[ -z "$(sb_processes "$1")" ] || return 0
	shift
	for job; do
		! kill -0 -- "-$job" 2>/dev/null || return 0
	done
	return 1
}

# End a job and the servers below a directory (fast shutdown); what is left
# after ten seconds is killed.  Without arguments: all of them.
sb_stop()
{
	local dir=${2:-} jobs=(${1:-${!SB_JOBS[@]}}) job pid pids i

	for job in "${jobs[@]}"; do
		kill -TERM -- "-$job" 2>/dev/null
	done
	pids=" $(sb_processes "$dir" | tr '\n' ' ')"
	while read -r pid; do
		case $pids in *" $pid "*) kill -INT "$pid" 2>/dev/null ;; esac
	done < <(find "${dir:-$SB_DIR}" -name postmaster.pid -exec head -n 1 {} \; 2>/dev/null)
	for ((i = 0; i < 100; i++)); do
		sb_alive "$dir" "${jobs[@]}" || break
		sleep 0.1
	done
	pids=$(sb_processes "$dir")
	[ -z "$pids" ] || kill -KILL $pids 2>/dev/null
	for job in "${jobs[@]}"; do
		kill -KILL -- "-$job" 2>/dev/null
		sb_wait "$job"
	done
}

sb_end()
{
	local status=$?

	trap '' INT TERM HUP		# the cleaning up itself is not interrupted
	trap - EXIT
	if [ -n "$SB_DIR" ]; then
		sb_stop
		if [ "$SB_KEEP" = 1 ]; then
			echo "kept: $SB_DIR" >&2
		else
			rm -rf "$SB_DIR"
		fi
	fi
	exit "$status"
}

trap sb_end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# -------------------------------------------------------- what is installed

# Has this pg_config a server, headers and PGXS?  Prints the major version.
sb_check_pg_config()
{
	local version

	version=$("$1" --version 2>/dev/null) || return
	version=${version#PostgreSQL }
	version=${version%%[!0-9]*}
	[ -x "$("$1" --bindir)/postgres" ] && [ -x "$("$1" --bindir)/initdb" ] &&
		[ -f "$("$1" --includedir-server)/postgres.h" ] &&
		[ -f "$("$1" --pgxs)" ] && echo "$version"
}

# $PG_CONFIG, or the newest usable one; sets SB_SYSTEM_PG_CONFIG, SB_MAJOR.
sb_find_pg_config()
{
	local candidate version

	SB_SYSTEM_PG_CONFIG=
	SB_MAJOR=0
	if [ -n "${PG_CONFIG:-}" ]; then
		SB_SYSTEM_PG_CONFIG=$(command -v "$PG_CONFIG") &&
			SB_MAJOR=$(sb_check_pg_config "$SB_SYSTEM_PG_CONFIG") ||
			sb_die "PG_CONFIG=$PG_CONFIG is not the pg_config of an installation with server, server headers and PGXS"
		return
	fi
	for candidate in /usr/lib/postgresql/*/bin/pg_config \
		/usr/pgsql-*/bin/pg_config $(type -ap pg_config); do
		version=$(sb_check_pg_config "$candidate") || continue
		if [ "$version" -ge $SB_OLDEST ] && [ "$version" -le $SB_NEWEST ] &&
			[ "$version" -gt "$SB_MAJOR" ]; then
			SB_SYSTEM_PG_CONFIG=$candidate
			SB_MAJOR=$version
		fi
	done
	[ -n "$SB_SYSTEM_PG_CONFIG" ]
}

# The release to install: one whose server is there already, or the newest.
sb_pick_release()
{
	local available v

	available=$(apt-cache search --names-only '^postgresql-server-dev-[0-9]+$' |
		sed 's/^postgresql-server-dev-\([0-9]*\) .*/\1/' | sort -rn)
	for v in $available; do
		[ "$v" -ge $SB_OLDEST ] && [ "$v" -le $SB_NEWEST ] || continue
		[ -x "/usr/lib/postgresql/$v/bin/postgres" ] && echo "$v" && return
	done
	for v in $available; do
		[ "$v" -ge $SB_OLDEST ] && [ "$v" -le $SB_NEWEST ] || continue
		echo "$v" && return
	done
	return 1
}

# Debian packages that are missing for a purpose, in SB_PACKAGES.
sb_missing()
{
	local release

	SB_PACKAGES=()
	command -v make >/dev/null || SB_PACKAGES+=(make)
	command -v gcc >/dev/null || SB_PACKAGES+=(gcc)
	[ -f /usr/include/stdio.h ] || SB_PACKAGES+=(libc6-dev)
	if [ "$1" = test ]; then
		command -v prove >/dev/null || SB_PACKAGES+=(perl)
		perl -MIPC::Run -e 1 2>/dev/null || SB_PACKAGES+=(libipc-run-perl)
	fi
	if ! sb_find_pg_config; then
		if release=$(sb_pick_release 2>/dev/null); then
			SB_PACKAGES+=("postgresql-$release" "postgresql-server-dev-$release")
		else
			SB_PACKAGES+=(postgresql postgresql-server-dev-all)
		fi
	fi
}

sb_apt_get()
{
	DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
		"$@" </dev/null
}

# Install packages.  Debian creates and starts a "main" cluster with the
# server, unless told not to; nobody asked us for one.
sb_apt_install()
{
	local dir=/etc/postgresql-common/createcluster.d status
	local file=$dir/dirty_throttle-no-main-cluster.conf

	mkdir -p $dir && echo 'create_main_cluster = false' >$file || return
	sb_apt_get install --no-install-recommends "$@"
	status=$?
	rm -f $file
	return $status
}

sb_install()
{
	local log

	sb_missing "$1"
	[ ${#SB_PACKAGES[@]} -eq 0 ] && return
	if ! command -v apt-get >/dev/null; then
		sb_die "needed, but not found (as Debian calls it): ${SB_PACKAGES[*]}; install this, or set PG_CONFIG"
	fi
	if [ "$(id -u)" -ne 0 ]; then
		sb_die "packages are missing. Install them and run this again:
    sudo apt-get install --no-install-recommends ${SB_PACKAGES[*]}"
	fi

	log=$(mktemp) || exit
	sb_say "fetching package lists"
	sb_apt_get update >"$log" 2>&1 || { cat "$log"; rm -f "$log"
		sb_die "apt-get update failed"; }
	sb_missing "$1"				# now that the releases are known
	sb_say "installing ${SB_PACKAGES[*]} (a minute or two)"
	sb_apt_install "${SB_PACKAGES[@]}" >"$log" 2>&1 || { tail -n 40 "$log"
		rm -f "$log"; sb_die "apt-get install failed"; }
	rm -f "$log"
	hash -r
	sb_missing "$1"
	[ ${#SB_PACKAGES[@]} -eq 0 ] ||
		sb_die "still missing after installation: ${SB_PACKAGES[*]}"
}

# What part systems of test/run can use, as Debian and its PostgreSQL repository
# call it.
sb_systems_packages()
{
	echo etcd-server patroni pgbouncer python3-alembic python3-asyncpg python3-django \
		python3-etcd python3-psycopg python3-psycopg2 prometheus prometheus-postgres-exporter \
		"postgresql-$SB_MAJOR-cron" "postgresql-$SB_MAJOR-partman" \
		"postgresql-$SB_MAJOR-pglogical" \
		"postgresql-$SB_MAJOR-plprofiler" "postgresql-$SB_MAJOR-squeeze"
}

# Install these, each that can be had; tests say which they miss.  None of the
# services that come with them is started.
sb_install_systems()
{
	local log policy=/usr/sbin/policy-rc.d made=0 package

	[ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null ||
		{ sb_say "only root on Debian or Ubuntu can install packages"; return; }
	log=$(mktemp) || exit
	sb_apt_get update >"$log" 2>&1
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && made=1
	fi
	for package in $(sb_systems_packages); do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' &&
			continue
		apt-cache policy "$package" | grep -q 'Candidate: [^(]' || continue
		sb_say "installing $package"
		sb_apt_install "$package" >>"$log" 2>&1 || sb_say "  failed"
	done
	[ $made = 0 ] || rm -f $policy
	rm -f "$log"
}

# ------------------------------------------------------------ the directory

# Nothing of the caller's environment may matter: PGHOST, CFLAGS, MAKEFLAGS; but
# for what tests ask for: DT_SECONDS, DT_SEED.
sb_user()
{
	local name tests=()

	for name in $(compgen -e DT_); do
		tests+=("$name=${!name}")
	done
	"${SB_AS[@]}" env -i PATH="${SB_BINDIR:+$SB_BINDIR:}/usr/local/bin:/usr/bin:/bin" \
		HOME="$SB_DIR" TMPDIR="$SB_DIR/tmp" LANG="$SB_LOCALE" \
		"${tests[@]}" "$@"
}

# Copy files from one place to another; the ordinary user may be unable to
# read the first, and is to own the second.
sb_copy()
{
	local from=$1 to=$2

	shift 2
	sb_user mkdir -p "$to" && tar -C "$from" -cf - "$@" | sb_user tar -C "$to" -xf -
	case "${PIPESTATUS[*]}" in
		"0 0" | "1 0") ;;		# 1: a file changed meanwhile
		*) return 1 ;;
	esac
}

# Programs of a PostgreSQL installation; its bindir may be /usr/bin.
sb_programs()
{
	local program

	cd "$1" || return
	for program in pg_* postgres initdb psql pgbench createdb dropdb createuser \
		dropuser clusterdb reindexdb vacuumdb vacuumlo oid2name; do
		[ -f "$program" ] && [ ! -L "$program" ] && echo "$program"
	done
}

# Copy what is written to or must know its place, link to all the rest.  What
# is installed of the extension stays behind: it may be another release's.
sb_copy_installation()
{
	local config=$SB_SYSTEM_PG_CONFIG root=$SB_DIR/root
	local bindir sharedir pkglibdir dir entry

	bindir=$("$config" --bindir)
	sharedir=$("$config" --sharedir)
	pkglibdir=$("$config" --pkglibdir)

	sb_copy "$bindir" "$root$bindir" $(sb_programs "$bindir") &&
		sb_copy "$sharedir" "$root$sharedir" --exclude='*/dirty_throttle*' . &&
		sb_copy "$pkglibdir" "$root$pkglibdir" --exclude='*/dirty_throttle*' . ||
		return
	for dir in "$bindir" "$sharedir" "$pkglibdir"; do
		while dir=$(dirname "$dir") && [ "$dir" != / ]; do
			for entry in "$dir"/*; do
				[ -e "$root$entry" ] || [ -L "$root$entry" ] || echo "$entry"
			done
		done
	done | sort -u | while IFS= read -r entry; do
		printf '%s\0%s\0' "$entry" "$root$entry"
	done | sb_user xargs -0 -r -n 2 ln -s

	SB_BINDIR=$root$bindir
	SB_PG_CONFIG=$SB_BINDIR/pg_config
	sb_user "$SB_PG_CONFIG" --version >/dev/null ||
		sb_die "programs cannot be run in $SB_DIR; set TMPDIR to a directory on a file system that allows it"
	for dir in "$(sb_user "$SB_PG_CONFIG" --pkglibdir)" \
		"$(sb_user "$SB_PG_CONFIG" --sharedir)"; do
		case $dir in
			"$root"/*) ;;
			*) sb_die "the PostgreSQL of $config cannot be relocated ($dir)" ;;
		esac
	done
}

sb_create()
{
	local user parent=${TMPDIR:-/tmp}

	# names of sockets may have 107 bytes only
	[ ${#parent} -le 40 ] || parent=/tmp
	# UTF-8, but in no language; pg_regress and the TAP modules unset LC_ALL
	SB_LOCALE=C
	locale -a 2>/dev/null | grep -qix 'C.utf-\?8' && SB_LOCALE=C.UTF-8

	SB_DIR=$(mktemp -d "$parent/dirty_throttle.XXXXXX") || exit
	SB_DIR=$(cd "$SB_DIR" && pwd -P)
	if [ "$(id -u)" -eq 0 ]; then
		user=nobody
		id postgres >/dev/null 2>&1 && user=postgres
		if command -v setpriv >/dev/null; then
			SB_AS=(setpriv --reuid "$user" --regid "$(id -g $user)" --init-groups)
		else
			SB_AS=(runuser -u "$user" --)
		fi
		chown "$user" "$SB_DIR" || exit
	fi
	cd "$SB_DIR" || exit
	sb_user mkdir tmp || exit

	SB_SRC=$SB_DIR/src
	sb_copy "$SB_TOP" "$SB_SRC" --exclude=./.git --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' --exclude='./tmp_check*' --exclude=./output_iso \
		--exclude=./results --exclude=./log . ||
		sb_die "could not copy $SB_TOP"
	sb_copy_installation || sb_die "could not copy the PostgreSQL installation"
}

# Run a command in the background, its output in LOG; lines that match the
# extended regular expression SHOW, if any, are shown as progress.
sb_start()
{
	local log=$1 show=$2

	shift 2
	set -m						# a process group that can be ended as a whole
	if [ -z "$show" ]; then
		sb_user "$@" </dev/null >>"$log" 2>&1 &
	else
		{
			sb_user "$@" </dev/null 2>&1 | while IFS= read -r line; do
				printf '%s\n' "$line" >>"$log"
				[[ $line =~ $show ]] && sb_say "  $line"
			done
			exit "${PIPESTATUS[0]}"
		} &
	fi
	SB_JOB=$!
	set +m
	SB_JOBS[SB_JOB]=1
}

sb_running()
{
	kill -0 "$1" 2>/dev/null
}

sb_wait()
{
	local status

	wait "$1" 2>/dev/null
	status=$?
	unset "SB_JOBS[$1]"
	return $status
}

# The same with a time limit, and wait for it.
sb_job()
{
	local limit=$1 log=$2 deadline

	shift
	deadline=$((SECONDS + limit))
	sb_start "$@"
	while sb_running "$SB_JOB"; do
		if [ $SECONDS -ge $deadline ]; then
			sb_say "  no end after $limit s: stopped"
			echo "stopped after $limit s" >>"$log"
			sb_stop
			return 124
		fi
		sleep 0.1
	done
	sb_wait "$SB_JOB"
}
