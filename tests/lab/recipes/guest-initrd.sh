# guest-initrd: an initramfs of busybox, the modules a guest of a test may need, and tests/lab/guest/init.
#   IN_KERNEL  kernel asset whose modules go in; needs its modules.dep
#   FILES      init, fstab, udhcpc
#   OUT        initrd: newc, not compressed, because an emulated CPU reads faster than it unpacks
# shellcheck shell=bash

# Every flavour has these, as a module or built in.
needed=(
	virtio_pci virtio_mmio virtio_blk virtio_scsi virtio_net virtio_rng virtio_balloon virtio_console virtio_mem
	virtio_pmem virtio_input vmw_vsock_virtio_transport virtiofs
	sd_mod sr_mod crc32c_generic ext4 isofs vfat nls_ascii nls_cp437 nls_utf8 overlay loop
	button evdev pvpanic_pci pvpanic_mmio ptp_kvm msr cpuid
)
# The cloud flavour leaves these out.
optional=(9p 9pnet_virtio i6300esb)

version=$(cat "$IN_KERNEL/version")
modules=$IN_KERNEL/lib/modules/$version

# Prints the file of a module and those of all it depends on, relative to $modules; nothing if it is built in.
files_of() {
	awk -v name="${1//-/_}" '
		function stem(path) { sub(/.*\//, "", path); sub(/\.ko.*/, "", path); gsub(/-/, "_", path); return path }
		FILENAME ~ /builtin$/ { if (stem($1) == name) found = 1; next }
		{ sub(/:/, "", $1) }
		stem($1) == name { found = 1; for (i = 1; i <= NF; i++) print $i }
		END { exit !found }
	' "$modules/modules.builtin" "$modules/modules.dep"
}

mkdir -p tree/{bin,dev,etc/udhcpc,mnt,proc,root,run,scripts,sys,tmp,usr} "tree/lib/modules/$version"
ln -s bin tree/sbin
ln -s ../bin tree/usr/bin
ln -s ../bin tree/usr/sbin
ln -s ../run/resolv.conf tree/etc/resolv.conf

busybox=$(command -v busybox)
cp "$busybox" tree/bin/busybox
"$busybox" --list | grep -vx busybox | while read -r applet; do ln -s busybox "tree/bin/$applet"; done

install -m 755 "$FILES/init" tree/init
install -m 644 "$FILES/fstab" tree/etc/fstab
install -m 755 "$FILES/udhcpc" tree/etc/udhcpc/default.script
mkfifo tree/etc/silence

for module in "${needed[@]}"; do
	files_of "$module" || { echo "kernel $version has no $module" >&2; exit 1; }
done >wanted
for module in "${optional[@]}"; do files_of "$module" || true; done >>wanted
sort -u wanted | while read -r file; do
	target=tree/lib/modules/$version/$file
	mkdir -p "${target%/*}"
	case $file in
	*.xz) xz -dc "$modules/$file" >"${target%.xz}" ;;
	*.zst) zstd -qdc "$modules/$file" >"${target%.zst}" ;;
	*) cp "$modules/$file" "$target" ;;
	esac
done
cp "$modules"/modules.{builtin,builtin.modinfo,order} "tree/lib/modules/$version/"
depmod -b tree "$version"
rm "tree/lib/modules/$version"/modules.{*.bin,builtin.modinfo,order,devname,softdep}
# modprobe of busybox knows no soft dependencies: without its checksum ext4 mounts nothing, and a virtio driver is no use
# without the transport. Dependencies are loaded from the end of a line to its start.
index=tree/lib/modules/$version/modules.dep
transport=$(sed -n 's,/virtio_pci\.ko:,/virtio_pci.ko,p' "$index")
awk -v transport="$transport" '
	$1 ~ /\/ext4\.ko:$/ { $0 = $0 " kernel/crypto/crc32c_generic.ko" }
	/\/virtio\.ko/ && $1 !~ /\/virtio(_ring|_mmio|_pci[a-z_]*)?\.ko:$/ { $0 = $0 " " transport }
	{ print }
' "$index" >modules.dep
mv modules.dep "$index"

find tree -exec touch --no-dereference --date=@0 {} +
(cd tree && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet --create --format=newc --owner=0:0 --reproducible) >"$OUT/initrd"
say "initrd of $version: $(stat -c %s "$OUT/initrd") bytes, $(sort -u wanted | wc -l) modules"
