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
	local log why=''
	log=$(mktemp)
	apt_install "$log" "${missing[@]}" || why=$(apt_reason "$log")
	rm -f "$log"
	[ -z "$why" ] || fail "cannot install ${missing[*]} ($why)"
}

APT_PATIENCE=300

# Waits for others who use apt. By itself it waits for dpkg's lock, but not for those of its lists and archives.
apt_install() { # apt_install LOG PACKAGE...
	local log=$1 started=$SECONDS
	shift
	until { apt_get update && apt_get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; do
		grep -q '^E: Could not get lock' "$log" || return
		[ $((SECONDS - started)) -lt $APT_PATIENCE ] || return
		sleep 2
	done
}

apt_get() { LC_ALL=C apt-get -q -o DPkg::Lock::Timeout=$APT_PATIENCE "$@"; }

# One line from what apt-get said. That a source cannot be reached is a warning to it, and then packages are "not found".
apt_reason() { # apt_reason LOG
	grep -m 1 '^E: Could not get lock' "$1" && return
	if ! grep -Eq '^(Hit|Get):' "$1"; then
		grep -m 1 -E '^[EW]: .*(Failed to fetch|Could not resolve|Could not connect)' "$1" && return
	fi
	grep '^[EW]: ' "$1" | tail -n 1 | grep . || echo "apt-get failed"
}

need_cargo() {
	command -v cargo >/dev/null || fail "cargo is missing: install Rust $(rust_version) with rustup"
	need_packages gcc libc6-dev
	(cd "$CORTEN_CHECKOUT" && cargo --version >/dev/null 2>&1) ||
		fail "Rust $(rust_version) is missing: rustup toolchain install $(rust_version) --component clippy,rustfmt"
	local space=3072
	# Most of it is there already.
	[ -d "$BUILD" ] && space=512
	need_space $space "$CARGO_TARGET_DIR" CARGO_TARGET_DIR
}

rust_version() { sed -n 's/^channel = "\(.*\)"/\1/p' "$CORTEN_CHECKOUT/rust-toolchain.toml"; }

# Builds quietly, unless something goes wrong or a person may wonder what takes so long.
# What is shipped names no place of this machine: panic messages name source files, and those of dependencies lie in
# somebody's home. Our own are named from the checkout on, wherever that is. Tests drive the same programs.
build() {
	local quiet=(--quiet) shipped=() word
	[ -t 2 ] && quiet=()
	for word in "$@"; do
		[ "$word" != release ] && [ "$word" != service ] || shipped=(--config "target.x86_64-unknown-linux-gnu.rustflags=[
			\"--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo\",
			\"--remap-path-prefix=$(realpath -m "$CARGO_TARGET_DIR")=/target\"]")
	done
	(cd "$CORTEN_CHECKOUT" && cargo build --locked "${quiet[@]}" "${shipped[@]}" "$@") || fail "the build failed"
}

# Each by itself: together they would have each other's features of shared dependencies.
build_program() { # build_program PROGRAM...
	local program package
	for program in "$@"; do
		case $program in
		corten) package=corten-cli ;;
		corten-lab-node) package=corten-lab ;;
		*) package=$program ;;
		esac
		build --profile "$(profile_of "$program")" -p "$package" --bin "$program"
	done
}

# That of Cargo.toml; the profile is also the directory that cargo puts a program into.
profile_of() { # profile_of PROGRAM
	case $1 in
	corten-operator | corten-node-agent) echo service ;;
	corten-lab | corten-lab-node | corten-cluster | corten-bench) echo tools ;;
	*) echo release ;;
	esac
}

# A cargo-installed tool, kept in the cache: tool NAME VERSION [options of cargo install]; its directory is printed.
tool() {
	local name=$1 version=$2 tools=$CORTEN_CACHE/tools
	local root=$tools/$name-$version
	shift 2
	if [ ! -x "$root/bin/$name" ]; then
		need_space 3072 "$tools"
		# One run installs; others wait and find it done.
		exec 9>"$tools/lock"
		flock --nonblock 9 || { progress "waiting for another run to install tools" && flock 9; }
		[ -x "$root/bin/$name" ] || install_tool "$root" "$name@$version" "$@"
		exec 9>&-
	fi
	echo "$root/bin"
}

install_tool() { # install_tool DIRECTORY NAME@VERSION [options of cargo install]
	local root=$1 new=$1.new crate=$2
	shift 2
	progress "installing $crate (once, some minutes)"
	rm -rf "$new"
	# Outside the checkout, whose .cargo/config.toml is not meant for it.
	(cd / && CARGO_TARGET_DIR=$CORTEN_CACHE/tools/build \
		cargo install --quiet --locked --debug --root "$new" "$@" "$crate" >&2) ||
		fail "cannot install $crate: check the network"
	rm -rf "$CORTEN_CACHE/tools/build" "$root"
	mv "$new" "$root"
}
