# Shared by the scripts: where things are, what must be there, errors of one line.
# shellcheck shell=bash

set -euo pipefail
CORTEN_CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${CORTEN_CACHE:=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/corten}"
: "${CARGO_TARGET_DIR:=$CORTEN_CHECKOUT/target}"
# The target is named in .cargo/config.toml, so cargo puts it into the path.
BUILD=$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu
export CORTEN_CHECKOUT CORTEN_CACHE CARGO_TARGET_DIR BUILD

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

progress() {
	if [ -t 2 ]; then printf '\033[1m==> %s\033[0m\n' "$*" >&2; else echo "==> $*" >&2; fi
}

need_root() { [ "$(id -u)" = 0 ] || fail "must run as root: it makes namespaces, TAPs and node VMs (try sudo)"; }

need_space() { # need_space MEBIBYTES DIRECTORY
	mkdir -p "$2" 2>/dev/null || fail "cannot create $2: set ${3:-CORTEN_CACHE} to a writable directory"
	local free
	free=$(($(stat -f -c '%a * %S' "$2") >> 20))
	[ "$free" -ge "$1" ] ||
		fail "only $free MiB are free at $2 and $1 MiB are needed: free some space, or set ${3:-CORTEN_CACHE}"
}

# Debian packages that are missing are installed; that is all the lab's own program cannot do for itself.
need_packages() {
	local missing=() package
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
	done
	[ ${#missing[@]} = 0 ] && return
	[ "$(id -u)" = 0 ] || fail "Debian packages are missing (${missing[*]}): run as root, or install them first"
	progress "installing ${missing[*]}"
	local log
	log=$(mktemp)
	local patience=(-o DPkg::Lock::Timeout=300)
	if ! { apt-get "${patience[@]}" update -q &&
		apt-get "${patience[@]}" install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
		local why
		why=$(grep -E '^(E|W): ' "$log" | tail -n 1)
		rm -f "$log"
		fail "cannot install ${missing[*]} (${why:-apt-get failed}): check the network and apt's sources"
	fi
	rm -f "$log"
}

need_cargo() {
	command -v cargo >/dev/null || fail "cargo is missing: install Rust $(rust_version) with rustup"
	need_packages gcc libc6-dev
	(cd "$CORTEN_CHECKOUT" && cargo --version >/dev/null 2>&1) ||
		fail "Rust $(rust_version) is missing: rustup toolchain install $(rust_version) --component clippy,rustfmt"
	need_space 3072 "$CARGO_TARGET_DIR" CARGO_TARGET_DIR
}

rust_version() { sed -n 's/^channel = "\(.*\)"/\1/p' "$CORTEN_CHECKOUT/rust-toolchain.toml"; }

# Builds quietly, unless something goes wrong or a person may wonder what takes so long.
build() {
	local quiet=(--quiet)
	[ -t 2 ] && quiet=()
	(cd "$CORTEN_CHECKOUT" && cargo build --locked "${quiet[@]}" "$@") || fail "the build failed"
}

# A cargo-installed tool, kept in the cache: tool NAME VERSION [options of cargo install]; its directory is printed.
tool() {
	local name=$1 version=$2 root=$CORTEN_CACHE/tools/$1-$2
	shift 2
	if [ ! -x "$root/bin/$name" ]; then
		progress "installing $name $version (once, some minutes)"
		need_space 3072 "$CORTEN_CACHE"
		# Outside the checkout, whose .cargo/config.toml is not meant for it.
		(cd / && CARGO_TARGET_DIR=$CORTEN_CACHE/tools/build \
			cargo install --quiet --locked --debug --root "$root" "$@" "$name@$version" >&2) ||
			fail "cannot install $name $version: check the network"
		rm -rf "$CORTEN_CACHE/tools/build"
	fi
	echo "$root/bin"
}
