#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time: scripts/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
	package=$(dirname "$file")
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "fuzz $package $target for $time"
		go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x -parallel 2
	done
done
