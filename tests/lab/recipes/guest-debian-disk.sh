# guest-debian-disk: a small Debian 12 with the cloud kernel, systemd, cloud-init and the QEMU guest agent, as a user would
# bring it. Its boot loader configuration is missing: grub-probe wants a real disk, so update-grub runs in a node
# (tests/lab/guest/update-grub-in-node).
#   FILES  make-disk
#   OUT    disk.raw: GPT, one ext4 partition with /boot inside; vmlinuz and initrd: copies of what is in /boot
# shellcheck shell=bash
uuid=c0471e40-de12-4000-8000-000000000012
mib=1024
packages=(
	linux-image-cloud-amd64 initramfs-tools zstd
	systemd-sysv systemd-resolved udev dbus kmod
	cloud-init cloud-guest-utils fdisk netplan.io iproute2 iputils-ping qemu-guest-agent
	grub2-common e2fsprogs procps
)

# The machine's own sources of Debian 12, whatever mirror that is.
# shellcheck disable=SC2016 # apt expands these
apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
	awk -v key=/usr/share/keyrings/debian-archive-keyring.gpg '
		$1 == "Debian" && $2 ~ /^bookworm(-updates|-security)?$/ { print "deb [signed-by=" key "]", $3, $2, $4 }
	' | sort -u >sources.list
[ -s sources.list ] || { say "apt knows no source of Debian 12" && exit 1; }

say "installing Debian 12 and ${#packages[@]} packages"
touch started
# With SOURCE_DATE_EPOCH, Python would compile to files that are compared with their source at each import.
env --unset=SOURCE_DATE_EPOCH mmdebstrap --quiet --mode=root --variant=minbase --format=directory \
	--include="$(IFS=,; echo "${packages[*]}")" --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/info/*' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	bookworm tree - <sources.list
dpkg-query --admindir=tree/var/lib/dpkg -W >"$OUT/packages"

echo "UUID=$uuid / ext4 rw,discard,errors=remount-ro 0 1" >tree/etc/fstab
echo debian >tree/etc/hostname
printf '127.0.0.1\tlocalhost debian\n::1\tlocalhost ip6-localhost ip6-loopback\n' >tree/etc/hosts
ln -sf ../run/systemd/resolve/stub-resolv.conf tree/etc/resolv.conf
# root logs in on the serial console without a password; there is no other way in.
chroot tree passwd --quiet --delete root

# The packages that bring this file also want to write a boot sector, so they are not installed.
cat >tree/etc/default/grub <<'END'
GRUB_DEFAULT=0
GRUB_TIMEOUT=1
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="console=ttyS0"
GRUB_DISABLE_OS_PROBER=true
END
mkdir -p tree/boot/grub

# What a Pod offers, and as little as the schema allows for what is not installed: sshd and locales.
cat >tree/etc/cloud/cloud.cfg.d/90-lab.cfg <<'END'
datasource_list: [ NoCloud, ConfigDrive, None ]
locale: C.UTF-8
ssh_deletekeys: false
ssh_genkeytypes: [ ed25519 ]
END
# A test wants a quiet machine.
for unit in {apt-daily,apt-daily-upgrade,dpkg-db-backup,e2scrub_all,fstrim}.timer e2scrub_reap.service; do
	ln -sf /dev/null "tree/etc/systemd/system/$unit"
done

# An initramfs with every driver Debian knows takes seconds more to unpack in emulation.
echo MODULES=list >tree/etc/initramfs-tools/conf.d/lab
printf '%s\n' virtio_pci virtio_mmio virtio_blk virtio_scsi sd_mod ext4 >tree/etc/initramfs-tools/modules
chroot tree update-initramfs -u

# What the first boot makes anew, what only the build needed, and what differs from one build to the next.
: >tree/etc/machine-id
rm -rf tree/{dev,run,tmp,var/tmp}/* tree/var/lib/apt/lists/* tree/var/cache/{apt,ldconfig}/* tree/var/cache/debconf/*-old
rm -rf tree/etc/apt/sources.list tree/etc/apt/sources.list.d/* tree/var/lib/dpkg/*-old tree/var/lib/dbus/machine-id
rm -f tree/etc/{passwd,group,shadow,gshadow,subuid,subgid}-
find tree/var/log -type f -delete
find tree -newer started -exec touch --no-dereference --date=@0 {} +
# Newer than /usr: otherwise systemd takes this for an update and rebuilds caches in the first boot.
touch --date=@1 tree/etc/.updated tree/var/.updated
touch --date=@0 tree/usr tree/etc tree/var

cp tree/boot/vmlinuz-* "$OUT/vmlinuz"
cp tree/boot/initrd.img-* "$OUT/initrd"
say "writing the disk ($(du -sm tree | cut -f 1) MiB)"
bash "$FILES/make-disk" tree "$OUT/disk.raw" "$mib" debian "$uuid"
