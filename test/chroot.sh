# Other systems in a directory, for root on Debian; sourced after sandbox.sh by
# the scripts that need one.
#
#	sb_make_chroot DIRECTORY SUITE [SOURCE-PACKAGE]
#							a release of Debian, from this machine's mirror
#	sb_keep_chroot DIRECTORY SUITE [SOURCE-PACKAGE]
#							the same, made once
#	sb_base_chroot			this machine's release, made once: sets SB_BASE, which
#							is to be copied, or SB_WHY_NOT
#	sb_copy_tree DIRECTORY	copy the source to a new directory, as from an archive
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

# sb_make_chroot DIRECTORY SUITE [SOURCE-PACKAGE]: a system with nothing but the
# package lists; from experimental, only what is built of that package.
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
	unshare --mount debootstrap --variant=minbase --keyring=$SB_KEYRING --include=ca-certificates \
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

# The caller bounds its time, and says where its output goes.
sb_keep_chroot()
{
	[ ! -f "$1.done" ] || return 0
	mkdir -p "$(dirname "$1")" && rm -rf --one-file-system "$1" &&
		sb_make_chroot "$@" && touch "$1.done"
}

sb_base_chroot()
{
	local codename cache=${XDG_CACHE_HOME:-/var/cache}/dirty_throttle-chroot

	[ "$(id -u)" -eq 0 ] || { SB_WHY_NOT="a chroot needs root"; return 1; }
	codename=$(. /etc/os-release && echo "$ID $VERSION_CODENAME")
	case $codename in
		"debian "*) codename=${codename#* } ;;
		*) SB_WHY_NOT="this is not Debian"; return 1 ;;
	esac
	SB_BASE=$cache/$codename
	[ ! -f "$SB_BASE.done" ] || return 0
	sb_say "making a chroot of Debian $codename (about a minute, once)"
	mkdir -p "$cache" && timeout 600 bash -c '. "$1/test/sandbox.sh"; . "$1/test/chroot.sh"
		sb_keep_chroot "$2" "$3"' sh "$SB_TOP" "$SB_BASE" "$codename" >"$SB_BASE.log" 2>&1 ||
		{ tail -n 5 "$SB_BASE.log"; SB_WHY_NOT="no chroot can be made, see $SB_BASE.log"; return 1; }
}

sb_copy_tree()
{
	mkdir "$1" && tar -C "$SB_TOP" --exclude=./.git --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' --exclude='./tmp_check*' -cf - . | tar -C "$1" -xf -
}
