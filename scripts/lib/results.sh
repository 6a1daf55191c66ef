# Collects results of checks and tests: a line "pass|fail SECONDS NAME" each.
# shellcheck shell=bash

RESULTS=$(mktemp)
trap 'rm -f "$RESULTS"' EXIT

now() { date +%s.%N; }

record() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$RESULTS"; }

failed() {
	echo "FAIL $1" >&2
	record fail 0 "$1"
}

any_failed() { grep -q '^fail' "$RESULTS"; }

check() { # check NAME COMMAND...
	local name=$1 started log status=pass
	shift
	started=$(now)
	log=$(mktemp)
	"$@" >"$log" 2>&1 || status=fail
	local seconds
	seconds=$(echo "$(now) $started" | awk '{ printf "%.3f", $1 - $2 }')
	if [ $status = pass ]; then
		printf '  ok   %s (%.1f s)\n' "$name" "$seconds" >&2
	else
		sed 's/^/  | /' "$log" >&2
		printf '  FAIL %s (%.1f s)\n' "$name" "$seconds" >&2
	fi
	rm -f "$log"
	record $status "$seconds" "$name"
}

count_junit() { # count_junit FILE: one line for each test case that nextest reports
	awk -v RS='<testcase ' 'NR > 1 {
		match($0, / time="[0-9.]+"/); seconds = substr($0, RSTART + 7, RLENGTH - 8)
		match($0, /classname="[^"]*"/); class = substr($0, RSTART + 11, RLENGTH - 12)
		match($0, /name="[^"]*"/); name = substr($0, RSTART + 6, RLENGTH - 7)
		outcome = /<(failure|error)/ ? "fail" : "pass"
		printf "%s\t%s\t%s %s\n", outcome, seconds, class, name
	}' "$1" >>"$RESULTS"
}

summary() {
	echo
	echo "The ten slowest:"
	sort -t "$(printf '\t')" -k 2,2 -rn "$RESULTS" | awk -F '\t' 'NR <= 10 { printf "%9.1f s  %s\n", $2, $3 }'
	local passed broken
	passed=$(grep -c '^pass' "$RESULTS" || true)
	broken=$(grep -c '^fail' "$RESULTS" || true)
	if [ "$broken" -gt 0 ]; then
		echo
		awk -F '\t' '$1 == "fail" { print "failed: " $3 }' "$RESULTS"
	fi
	echo
	echo "$passed passed, $broken failed"
	[ "$broken" = 0 ] && [ "$passed" -gt 0 ]
}
