# nfs-ganesha: an NFS server that runs in user space, unpacked with its libraries beside the system's. Installed, it would
# be a service of the machine.
# shellcheck shell=bash
packages=(nfs-ganesha nfs-ganesha-vfs libntirpc4.3 libnfsidmap1 liburcu8 libwbclient0 libdbus-1-3 libgssapi-krb5-2 libkrb5-3
	libkrb5support0 libk5crypto3 libkeyutils1 libcom-err2 libcap2 libacl1 libblkid1 libuuid1 libbsd0 libmd0 libsystemd0
	liblz4-1 libzstd1 liblzma5 libgcrypt20 libgpg-error0 libtirpc3 libldap-2.5-0 libsasl2-2 libgnutls30 libp11-kit0
	libidn2-0 libunistring2 libtasn1-6 libnettle8 libhogweed6 libgmp10 libffi8)
say "fetching nfs-ganesha"
apt-get download -q "${packages[@]}"
for deb in ./*.deb; do
	dpkg-deb -x "$deb" "$OUT"
	basename "$deb" >>"$OUT/packages"
done
libraries=$OUT/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$OUT/usr/lib/ganesha:$libraries:$OUT/lib/x86_64-linux-gnu
missing=$(ldd "$OUT/usr/bin/ganesha.nfsd" "$libraries/ganesha/libfsalvfs.so" | grep 'not found' | sort -u) || true
[ -z "$missing" ] || { say "libraries are missing: $missing" && exit 1; }
