# container-disk: an image with a disk in it, laid out as KubeVirt's containerDisk: one file in /disk that uid 107 may read.
#   IN_DISK  an asset with disk.qcow2
#   OUT      image.tar, an OCI archive
# shellcheck shell=bash
"$LAB" oci --name "$NAME" --output "$OUT/image.tar" "$IN_DISK/disk.qcow2=/disk/disk.qcow2:0440:107:107"
