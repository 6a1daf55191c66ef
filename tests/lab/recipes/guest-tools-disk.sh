# guest-tools-disk: programs that busybox does not have, for guests that mount it: lscpu, lspci, blkdiscard, fio, socat and the like.
#   OUT  disk.raw: ext4 without partitions, to be mounted read-only and entered by chroot
# shellcheck shell=bash
packages=(util-linux pciutils dmidecode e2fsprogs coreutils grep bash socat fio iperf3 ethtool iproute2 isc-dhcp-client
	qemu-guest-agent)

# The machine's own sources of Debian 12, whatever mirror that is.
# shellcheck disable=SC2016 # apt expands these
apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
	awk -v key=/usr/share/keyrings/debian-archive-keyring.gpg '
		$1 == "Debian" && $2 ~ /^bookworm(-updates|-security)?$/ { print "deb [signed-by=" key "]", $3, $2, $4 }
	' | sort -u >sources.list
[ -s sources.list ] || { say "apt knows no source of Debian 12" && exit 1; }

say "installing ${#packages[@]} packages"
# Unpacked is enough: nothing of it is started as a service.
mmdebstrap --quiet --mode=root --variant=extract --format=directory \
	--include="$(IFS=,; echo "${packages[*]}")" --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	bookworm tree - <sources.list
rm -rf tree/usr/share/{doc,man,locale,info,perl} tree/var/lib/apt tree/var/cache tree/usr/lib/x86_64-linux-gnu/perl*
mkdir -p tree/{dev,proc,sys}
truncate -s 320M "$OUT/disk.raw"
mke2fs -q -F -t ext4 -m 0 -L tools -O '^has_journal' -d tree "$OUT/disk.raw"
