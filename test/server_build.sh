# A server of PostgreSQL's own, with assertions, from the Debian source
# package, and what its tests say; sourced after sandbox.sh.
#
#	sb_build_server NAME PACKAGES CONFIGURE-ARGUMENT...
#
# builds release $major (default: what the machine's apt sources have) in
# ${XDG_CACHE_HOME:-/var/cache}/dirty_throttle-core, unless it is there
# already; sets $build, the build tree, and PG_CONFIG.

# The Debian mirror that this machine has its packages from.
sb_apt_mirror()
{
	local codename

	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	apt-get indextargets 'Created-By: Packages' 'Origin: Debian' \
		--format '$(REPO_URI) $(RELEASE)' |
		awk -v r="$codename" '$2 == r && !found { print $1; found = 1 }'
}

# sb_apt_sources DIRECTORY [RELEASE]: have apt-get fetch sources from where this
# machine has its packages from, with a state of its own; those of another
# release of Debian from the same mirror.
sb_apt_sources()
{
	local dir=$1 other=${2:-} uri release component

	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" || return
	if [ -n "$other" ]; then
		uri=$(sb_apt_mirror)
		[ -z "$uri" ] || echo "$uri $other main"
	else
		apt-get indextargets 'Created-By: Packages' 'Origin: Debian' \
			--format '$(REPO_URI) $(RELEASE) $(COMPONENT)' | sort -u
	fi | while read -r uri release component; do
		echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release $component"
	done >"$dir/sources.list"
	[ -s "$dir/sources.list" ] || return
	cat >"$dir/apt.conf" <<CONF
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$dir/lists";
Dir::Cache "$dir/cache";
APT::Sandbox::User "root";
CONF
	export APT_CONFIG=$dir/apt.conf
	apt-get -q update
}

# sb_fetch_source DIRECTORY [PATTERN...]: unpack the newest source of release
# $major that can be had into src, or what matches of it.  What a security
# update has replaced may not be there any more.
sb_fetch_source()
{
	local versions version

	cd "$1" || return
	shift
	versions=$(apt-cache showsrc --only-source "postgresql-$major" |
		sed -n 's/^Version: //p' | sort -rVu)
	for version in $versions; do
		rm -f postgresql-*
		apt-get -q source --download-only "postgresql-$major=$version" || continue
		# as PostgreSQL released it: Debian's patches change where it installs
		mkdir src && tar -xf postgresql-*.orig.tar.* -C src --strip-components=1 \
			--wildcards "$@"
		return
	done
	echo "no source package postgresql-$major can be had" >&2
	return 1
}

# sb_results LOG: "name ok" or "name failed" for each test in the output of
# pg_regress, of up to 15 and from 16, and for each file in that of prove.
sb_results()
{
	sed -nE 's/^(test)? +([^ ]+) +\.\.\. (ok|FAILED|failed).*/\2 \3/
		s/^ok [0-9]+ +[-+] ([^ ]+).*/\1 ok/
		s/^not ok [0-9]+ +[-+] ([^ ]+).*/\1 failed/
		s/^(t\/[^ ]+\.pl) \.+ (ok|skipped).*/\1 ok/
		s/^(t\/[^ ]+\.pl) +\(Wstat.*/\1 failed/
		s/^([^ ]+) (FAILED|failed)$/\1 failed/
		/^[^ ]+ (ok|failed)$/p' "$1" | sort -u
}

sb_build_server()
{
	local name=$1 packages=$2 top log

	shift 2
	[ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null ||
		sb_die "only root on Debian or Ubuntu can fetch a source package; use --build"
	[ -n "$major" ] || major=$(sb_pick_release) || sb_die "no release to build"
	top=${XDG_CACHE_HOME:-/var/cache}/dirty_throttle-core/$major-$name
	log=$top/build.log
	build=$top/build
	export PG_CONFIG=$top/pgsql/bin/pg_config

	packages="$packages gcc make libc6-dev bison flex perl pkg-config libicu-dev zlib1g-dev bzip2"
	if [ -f "$top/done" ]; then
		return
	fi
	rm -rf "$top"
	mkdir -p "$build" || exit
	sb_say "installing what building a server needs"
	{ sb_apt_get update; sb_apt_install $packages; } >"$log" 2>&1 ||
		{ tail -n 40 "$log"; sb_die "apt-get install failed"; }
	sb_say "fetching the source of PostgreSQL $major"
	(sb_apt_sources "$top/apt" && sb_fetch_source "$top") >>"$log" 2>&1 ||
		{ tail -n 40 "$log"; sb_die "no source"; }
	sb_say "building it (some minutes)"
	(
		cd "$build" &&
			../src/configure --prefix="$top/pgsql" --enable-cassert --enable-debug \
				--with-icu --without-readline CFLAGS='-O1 -g' "$@" &&
			make -s -j "$(nproc)" && make -s install &&
			make -s -C src/test/regress && make -s -C src/test/isolation
	) >>"$log" 2>&1 </dev/null || { tail -n 40 "$log"; sb_die "the build failed, see $log"; }
	touch "$top/done"
}
