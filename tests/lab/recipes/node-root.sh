# shellcheck shell=bash
# The root disk of every node: Debian with what tests use, and the modules of both kernels. Read-only in the node.
packages=(bash iproute2 iputils-ping kmod procps socat strace nftables ethtool tcpdump fio iperf3 linux-perf
	qemu-system-x86 qemu-utils e2fsprogs dosfstools fdisk netbase pciutils acpica-tools xz-utils zstd busybox-static nfs-common)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

# The machine's own sources of Debian, whatever mirror that is.
# shellcheck disable=SC2016 # apt's own variables
apt-get indextargets --format '$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
	awk -F'|' '$1 == "Debian" && !seen[$2]++ { print $2 }' >sources.list
say "installing Debian $suite and ${#packages[@]} packages"
mmdebstrap --variant=minbase --mode=root --format=tar --include="$(IFS=,; echo "${packages[*]}")" \
	--aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' "$suite" root.tar - <sources.list
mkdir root
tar -C root --exclude='./dev/*' -xf root.tar
rm root.tar
dpkg-query --admindir=root/var/lib/dpkg -W >"$OUT/packages"
# uid 107 reaches host directories below /root too.
chmod 755 root/root

say "adding modules"
for kernel in "$IN_KERNEL_6_1" "$IN_KERNEL_6_12"; do
	version=$(cat "$kernel/version")
	mkdir -p root/lib/modules
	cp -a "$kernel/lib/modules/$version" root/lib/modules/
	# No hardware of these kinds is ever in a node, and they are most of the bulk.
	for kind in drivers/gpu drivers/media drivers/net/wireless drivers/staging drivers/infiniband drivers/iio \
		drivers/isdn drivers/hwmon drivers/usb drivers/input drivers/net/ethernet sound; do
		rm -rf "root/lib/modules/$version/kernel/$kind"
	done
	depmod -b root "$version"
done
kilobytes=$(du -sk root | cut -f 1)
say "writing the disk ($((kilobytes / 1024)) MiB)"
mke2fs -q -t ext4 -O ^has_journal -m 0 -L node -d root "$OUT/root.ext4" "$((kilobytes * 11 / 10 + 65536))k"
