# shellcheck shell=bash
# QEMU 10 from Debian's backports, unpacked beside the system's, whose libraries it uses.
#
# Multi-threaded emulation before 8.1 runs stale code when the node's kernel patches itself: sooner or later the node
# dies with "Oops: int3". Debian 12's own 7.2 is therefore only a baseline to measure against.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt's own variables
mirror=$(apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(REPO_URI)' |
	awk -F'|' -v suite="$suite" '$1 == "Debian" && $2 == suite { print $3; exit }')
[ -n "$mirror" ] || { say "apt has no source for Debian $suite"; exit 1; }

mkdir -p lists/partial cache/archives/partial debs
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror $suite-backports main" >sources.list
apt=(-q -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/lists"
	-o "Dir::Cache=$PWD/cache" -o APT::Sandbox::User=root)
say "fetching QEMU from $suite-backports"
apt-get "${apt[@]}" update
(cd debs && apt-get "${apt[@]}" download qemu-system-x86/"$suite"-backports qemu-system-common/"$suite"-backports \
	qemu-system-data/"$suite"-backports seabios/"$suite"-backports)
for deb in debs/*.deb; do
	dpkg-deb -x "$deb" "$OUT"
	basename "$deb" >>"$OUT/packages"
done
"$OUT/usr/bin/qemu-system-x86_64" --version >"$OUT/version"
