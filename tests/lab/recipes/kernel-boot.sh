# kernel-boot: an image with a kernel in it, as a VMI's kernelBoot names one: both forms of the kernel, and an initrd.
#   IN_KERNEL, IN_INITRD  the assets with these files
#   OUT                   image.tar, an OCI archive
# shellcheck shell=bash
"$LAB" oci --name "$NAME" --output "$OUT/image.tar" "$IN_KERNEL/vmlinuz=/boot/vmlinuz:0444:0:0" \
	"$IN_KERNEL/vmlinux=/boot/vmlinux:0444:0:0" "$IN_INITRD/initrd=/boot/initrd:0444:0:0"
