# Sets GO to a Go that is new enough for every module here.
#
# Go's toolchains are modules too: any older Go, such as Debian's, fetches a newer one through the module proxy, with
# its checksum from Go's checksum database.
# shellcheck shell=bash
GO_OLDEST=1.26.0
GO_FETCHED=1.26.8
export CGO_ENABLED=${CGO_ENABLED:-0} GOFLAGS='' GOTOOLCHAIN=local GOWORK=off GOTELEMETRY=off
export HOME=${HOME:-/root}
PATH=$PATH:/usr/local/go/bin

go_is_new_enough() {
	local version
	version=$("$1" env GOVERSION 2>/dev/null) || return 1
	printf '%s\n' "$GO_OLDEST" "${version#go}" | sort -V -C
}

fetch_go() {
	if ! command -v go >/dev/null; then
		say "no Go here: installing Debian's, to fetch Go $GO_FETCHED with it"
		apt-get -q -o DPkg::Lock::Timeout=300 update
		apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends golang-go ca-certificates
	else
		say "Go is older than $GO_OLDEST: fetching Go $GO_FETCHED"
	fi
	local module="golang.org/toolchain@v0.0.1-go$GO_FETCHED.linux-amd64" root=${CORTEN_CACHE:-$HOME/.cache/corten}/go/$GO_FETCHED
	if [ ! -x "$root/bin/go" ]; then
		# In a module of its own: an old Go does not understand the go.mod that is to be built.
		mkdir fetch
		(cd fetch && GO111MODULE=on go mod init fetch && go mod download "$module")
		# A module's files cannot be executed.
		mkdir -p "$root"
		cp -r "$(go env GOMODCACHE)/$module/." "$root"
		chmod -R u+w "$root"
		chmod 755 "$root"/pkg/tool/*/* "$root"/bin/*
	fi
	GO=$root/bin/go
}

GO=$(command -v go || true)
if [ -z "$GO" ] || ! go_is_new_enough "$GO"; then fetch_go; fi
"$GO" version
