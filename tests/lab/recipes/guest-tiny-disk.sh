# guest-tiny-disk: a disk that boots in seconds: what is in the initramfs as a root file system, with the kernel, the
# initramfs and a grub.cfg in /boot. It runs the user-data of a NoCloud disk, then waits for the power button.
#   IN_KERNEL, IN_INITRD  a kernel and the guest initramfs made for it
#   FILES                 make-disk; tiny-grub.cfg: boot entries, with two blanks to fill in
#   OUT                   disk.raw: GPT, one ext4 partition
# shellcheck shell=bash
uuid=c0471e40-0000-4000-8000-000000000001
mib=96
version=$(cat "$IN_KERNEL/version")

mkdir tree
(cd tree && cpio --quiet --extract --make-directories) <"$IN_INITRD/initrd"
# Not sbin, which is a link to it.
mv tree/init tree/bin/init
mkdir -p tree/boot/grub
cp "$IN_KERNEL/vmlinuz" "tree/boot/vmlinuz-$version"
cp "$IN_INITRD/initrd" "tree/boot/initrd.img-$version"
sed "s/@UUID@/$uuid/g; s/@VERSION@/$version/g" "$FILES/tiny-grub.cfg" >tree/boot/grub/grub.cfg
find tree -exec touch --no-dereference --date=@0 {} +

bash "$FILES/make-disk" tree "$OUT/disk.raw" "$mib" tiny "$uuid"
say "$(du -m "$OUT/disk.raw" | cut -f 1) of $mib MiB used"
