# Other systems in a directory, for root on Debian; sourced after sandbox.sh by
# the scripts that need one.
#
#	sb_make_chroot DIRECTORY SUITE [SOURCE-PACKAGE]
#							a release of Debian, from this machine's mirror
#	sb_in_chroot DIRECTORY COMMAND...
#							run a command there

SB_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# The apt sources of this machine: "URI RELEASE" for each of Debian's.
sb_machine_sources()
{
	apt-get indextargets 'Created-By: Packages' 'Origin: Debian' \
		--format '$(REPO_URI) $(RELEASE)' | sort -u
}

# Run a command as root in the chroot.  The mounts and all processes go away
# with it.
sb_in_chroot()
{
	local dir=$1

	shift
	unshare --mount --pid --fork --kill-child sh -c '
		cd "$1" && shift &&
		mount -t proc proc proc && mount --bind /dev dev &&
		mount -t tmpfs -o mode=1777 tmpfs dev/shm &&
		mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts &&
		exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
		' sh "$dir" "$@"
}

# sb_make_chroot DIRECTORY SUITE [SOURCE-PACKAGE]: a system with nothing but make,
# and the package lists; from experimental, only what is built of that package.
sb_make_chroot()
{
	local dir=$1 suite=$2 base=$2 mirror uri codename
	local scripts=/usr/share/debootstrap/scripts script

	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(sb_machine_sources | awk -v r="$codename" '$2 == r { print $1; exit }')
	[ -n "$mirror" ] || { echo "this machine has no apt source of Debian $codename"; return 1; }
	command -v debootstrap >/dev/null ||
		{ sb_apt_get update && sb_apt_install debootstrap; } || return

	[ "$suite" != experimental ] || base=sid
	# one that is newer than debootstrap is made like unstable
	script=$scripts/$base
	[ -e "$script" ] || script=$scripts/sid
	# what it mounts goes away with it
	unshare --mount debootstrap --variant=minbase --keyring=$SB_KEYRING --include=ca-certificates,make \
		"$base" "$dir" "$mirror" "$script" || return

	# what is needed here to reach the mirror
	cp /etc/resolv.conf /etc/hosts "$dir/etc/"
	apt-config dump Acquire >"$dir/etc/apt/apt.conf.d/99machine"
	# nothing starts a server there
	printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
	chmod 755 "$dir/usr/sbin/policy-rc.d"

	if [ "$suite" = experimental ]; then
		echo "deb [signed-by=$SB_KEYRING] $mirror experimental main" \
			>"$dir/etc/apt/sources.list.d/experimental.list"
		# this source package, and only what else it needs
		printf '%s\n' "Package: src:$3" 'Pin: release a=experimental' \
			'Pin-Priority: 500' >"$dir/etc/apt/preferences.d/experimental"
	fi
	uri=$(sb_machine_sources | awk -v r="$codename-security" '$2 == r { print $1; exit }')
	if [ -n "$uri" ] && [ $base = "$suite" ]; then
		echo "deb [signed-by=$SB_KEYRING] $uri $suite-security main" \
			>"$dir/etc/apt/sources.list.d/security.list"
		sb_in_chroot "$dir" apt-get -q -o APT::Update::Error-Mode=any update ||
			rm "$dir/etc/apt/sources.list.d/security.list"
	fi
	sb_in_chroot "$dir" apt-get -q update
}
