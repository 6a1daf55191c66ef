# shellcheck shell=bash
# One of Debian's kernels as a package brings it, with the ELF image out of the compressed one and its module index.
# $PACKAGE is the meta package; it names the one with the files.
real=$(apt-cache depends "$PACKAGE" | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }')
real=${real:-$PACKAGE}
say "fetching $real"
apt-get download -q "$real"
dpkg-deb -x ./*.deb unpacked
basename ./*.deb >"$OUT/packages"

mkdir -p "$OUT/lib"
if [ -d unpacked/usr/lib/modules ]; then
	mv unpacked/usr/lib/modules "$OUT/lib/modules"
else
	mv unpacked/lib/modules "$OUT/lib/modules"
fi
cp unpacked/boot/vmlinuz-* "$OUT/vmlinuz"
cp unpacked/boot/config-* "$OUT/config"
version=$(ls "$OUT/lib/modules")
echo "$version" >"$OUT/version"
depmod -b "$OUT" "$version"

# The setup header of a bzImage says where its payload lies (Documentation/arch/x86/boot.rst): protected-mode code
# after setup_sects + 1 sectors, payload at payload_offset from there, its unpacked size in the last four bytes.
number() { od -An -v -t "u$2" -j "$1" -N "$2" "$OUT/vmlinuz" | tr -d ' '; }
setup_sects=$(number $((0x1f1)) 1)
start=$(((setup_sects + 1) * 512 + $(number $((0x248)) 4)))
length=$(number $((0x24c)) 4)
size=$(number $((start + length - 4)) 4)
case $(od -An -t x1 -j "$start" -N 4 "$OUT/vmlinuz" | tr -d ' ') in
28b52ffd) unpack=(zstd -dcq) ;;
02214c18) unpack=(lz4 -dcq) ;;
fd377a58) unpack=(xz -dcq --single-stream) ;;
*) say "the kernel is compressed in a way the lab does not know" && exit 1 ;;
esac
tail -c "+$((start + 1))" "$OUT/vmlinuz" | head -c "$((length - 4))" | "${unpack[@]}" >"$OUT/vmlinux" || true
[ "$(stat -c %s "$OUT/vmlinux")" = "$size" ] || { say "unpacking the kernel failed" && exit 1; }
