# go-build: programs from Go modules. go.mod and go.sum in $FILES pin every module and its checksum.
#   PROGRAMS    packages to build, each as PACKAGE or PACKAGE=NAME of the program
#   GO_FLAGS    further arguments of go build
#   LINK_FLAGS  further flags of the linker
#   VERSION     of Kubernetes, where it is Kubernetes: its programs would call themselves v0.0.0
# shellcheck shell=bash
# shellcheck source=tests/cluster/recipes/go-toolchain.sh
. "$FILES/go-toolchain.sh"

mkdir module
cp "$FILES"/*.go "$FILES"/go.* module/
cd module || exit
linked="-s -w"
if [ -n "${VERSION:-}" ]; then
	IFS=. read -r major minor _ <<<"$VERSION"
	for value in "gitVersion=v$VERSION" "gitMajor=$major" "gitMinor=$minor" gitTreeState=clean; do
		linked+=" -X k8s.io/component-base/version.$value -X k8s.io/client-go/pkg/version.$value"
	done
fi
for program in $PROGRAMS; do
	package=${program%=*}
	name=${program#*=}
	name=${name##*/}
	say "building $name"
	# shellcheck disable=SC2086 # several words
	"$GO" build -mod=readonly -trimpath -buildvcs=false ${GO_FLAGS:-} -ldflags "$linked ${LINK_FLAGS:-}" -o "$OUT/$name" "$package"
done
