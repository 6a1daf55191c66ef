# node-disk: the disk of a cluster node. It holds the programs and the images that are imported before the node is saved;
# later the node's containerd and kubelet keep their files on it.
# shellcheck shell=bash
mkdir -p tree/bin tree/cni tree/containerd tree/kubelet tree/volumes
cp "$IN_KUBERNETES"/{kubelet,kube-proxy} "$IN_CONTAINERD"/* "$IN_RUNC/runc" tree/bin/
cp "$IN_CNI"/* tree/cni/
cp -r "$IN_IMAGES/images" tree/images
mke2fs -q -t ext4 -O ^has_journal -m 0 -L cluster -d tree "$OUT/disk.ext4" 40G
