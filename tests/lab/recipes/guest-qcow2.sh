# guest-qcow2: a raw disk as compressed qcow2, the form disks have in images.
#   IN_DISK  an asset with disk.raw
#   OUT      disk.qcow2
# shellcheck shell=bash
qemu-img convert -f raw -O qcow2 -c "$IN_DISK/disk.raw" "$OUT/disk.qcow2"
say "$(du -m "$OUT/disk.qcow2" | cut -f 1) MiB"
