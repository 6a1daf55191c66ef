# shellcheck shell=bash
# The initramfs of a node: the agent as /init, and the modules it loads, in order. Uncompressed: an emulated CPU
# unpacks slowly. Everything else a node may load comes from its root disk.
modules=(virtio_pci virtio_console virtio_blk crc32c_generic ext4 overlay 9p 9pnet_virtio kvm_amd kvm_intel virtio_net
	virtio_rng virtio_scsi sd_mod tun tap vhost_net vhost_vsock vsock_loopback bridge veth msr cpuid loop nf_tables)
version=$(cat "$IN_KERNEL/version")

mkdir -p tree/{modules,proc,sys,dev}
for module in "${modules[@]}"; do
	modprobe -d "$IN_KERNEL" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >wanted
while read -r file; do
	name=$(basename "$file")
	case $name in
	*.xz) xz -dc "$file" >"tree/modules/${name%.xz}" ;;
	*) cp "$file" "tree/modules/$name" ;;
	esac
	echo "${name%.xz}" >>tree/modules/order
done <wanted
install -m 755 "$FILES/corten-lab-node" tree/init
(cd tree && find . -print0 | LC_ALL=C sort -z | cpio -0 -o -H newc -R 0:0 --quiet --reproducible) >"$OUT/initrd.cpio"
