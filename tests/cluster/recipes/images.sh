# images: what the cluster itself and its tests run in Pods, as OCI archives named by image.
# shellcheck shell=bash
mkdir "$OUT/images"
image() { # image FILE NAME arguments of `oci`
	"$LAB" oci --output "$OUT/images/$1.tar" --name "$2" "${@:3}"
}

gcc -Os -static -s -o pause "$FILES/pause.c"
image pause "$PAUSE" --entrypoint /pause --user 65535:65535 pause=/pause

image coredns "$COREDNS" --entrypoint /coredns "$IN_COREDNS/coredns=/coredns"

links=()
for applet in $(busybox --list); do
	[ "$applet" = busybox ] || links+=(--link "busybox=/bin/$applet")
done
image tools "$TOOLS" --entrypoint /bin/sh --env PATH=/bin "${links[@]}" "$(command -v busybox)=/bin/busybox"

image samples "$SAMPLES" --entrypoint /samples --user 107:107 "$IN_SAMPLES/samples=/samples"
