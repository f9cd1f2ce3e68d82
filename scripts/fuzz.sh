#!/usr/bin/env bash
# Runs every fuzz target of the tree for at least the given time: scripts/fuzz.sh 10s
#
# A run counts inputs, it does not watch the clock: go test -fuzztime 10s sometimes
# fails with "context deadline exceeded" where nothing was found. So the inputs of
# a target double from run to run until its time is over; each run begins with what
# the ones before it found worth keeping.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-30s}
case $time in
*[!0-9smh]* | [!0-9]* | *[smh]?* | "") echo "fuzz.sh: time $time, want a whole number with s, m or h, such as 10s" >&2 && exit 2 ;;
*h) seconds=$((${time%h} * 3600)) ;;
*m) seconds=$((${time%m} * 60)) ;;
*) seconds=${time%s} ;;
esac

# fuzz PACKAGE TARGET FLAG...: go test of that target; -run keeps the tests out.
fuzz() {
	go test "$1" -run '^$' -fuzz "^$2\$" "${@:3}"
}

grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
	package=$(dirname "$file")
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "fuzz $package $target for $time"
		fuzz "$package" "$target" -c -o /dev/null # building is not part of the time
		inputs=2000
		end=$((SECONDS + seconds))
		while
			fuzz "$package" "$target" -fuzztime "${inputs}x" -fuzzminimizetime 20x -parallel 2 || exit 1
			((SECONDS < end))
		do
			inputs=$((inputs * 2))
		done
	done
done
