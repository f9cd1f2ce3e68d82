#!/usr/bin/env bash
# What must hold of the source before any test runs.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0

# rule SENTENCE COMMAND...: what the command prints breaks the rule.
rule() {
	local sentence=$1 found
	shift
	found=$("$@")
	if [ -n "$found" ]; then
		printf 'lint: %s\n%s\n' "$sentence" "$found"
		failed=1
	fi
}

# library PATTERN ALLOWED: lines of library code, which commands, the lab and what runs
# them in tests are not, that match outside of the allowed files.
library() {
	grep -rnE "$1" --include='*.go' --exclude='*_test.go' --exclude-dir=gen --exclude-dir=cmd --exclude-dir=lab --exclude-dir=clitest . |
		grep -vE "^\./($2)"
}

rule "gofmt these files" gofmt -l .
rule "a library asks for the time only to measure, to park a worker and to stop a template" \
	library 'time\.Now\(' '(engine|eval|serve|internal/(console|openmodel))/|cpu/(pool|roofline)\.go|cuda/(roofline|driver_emu)\.go|cpu/kernel/peak\.go|tokenizer/chat/fence\.go'
rule "no environment variables as configuration" library 'os\.(Getenv|LookupEnv|Environ)\(' '^$'
rule "libraries do not print" library '\b(fmt\.Print|log\.Print|println\()' '^$'
rule "a TODO is an issue, not a comment" git grep --untracked -nE '\b(TODO|FIXME|XXX)\b' -- '*.go' '*.py' '*.sh' ':!scripts/lint.sh'

# Words of the dictionary (docs/glossary.md) that are retired, with what to say instead, in
# what people write here: data has words of its own.
prose=('*.go' '*.cu' '*.cuh' '*.c' '*.h' '*.cpp' '*.s' '*.py' '*.sh' '*.html' '*.md' Makefile)
retired() {
	local word instead
	while IFS=$'\t' read -r word instead; do
		git grep --untracked -nP -e "$word" -- "${prose[@]}" | sed "s|$| (say: $instead)|"
	done < <(grep -v '^#' scripts/words.txt)
}
rule "retired words: docs/glossary.md has the field's" retired

# What tests alone may call: the suites, what makes files for tests, the portable kernels
# by name, replays beside a model, and the names of all calls.
for_tests='^(device/devtest|model/modeltest|internal/(golden|clitest))/|cpu/kernel/(isa|quantize)\.go|engine/replay\.go|device/call\.go.* Rules$|weights/writer\.go'
unreached() {
	local all
	all=$(go tool -modfile=tools.mod deadcode ./...) || echo "deadcode did not run"
	grep -vE "$for_tests|^$" <<<"$all"
}
rule "functions that no command reaches are deleted, or named in scripts/lint.sh where only tests need them" unreached

go vet ./... || failed=1
go tool -modfile=tools.mod staticcheck ./... || failed=1
exit $failed
