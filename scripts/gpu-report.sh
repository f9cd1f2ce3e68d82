#!/usr/bin/env bash
# What a GPU build of gollm does on this machine, in under ten minutes, as one
# Markdown table and one JSON file:
#   make gpu-report-binaries && scripts/gpu-report.sh
#   scripts/gpu-report.sh --bin DIR     binaries that were built elsewhere
#   scripts/gpu-report.sh --small       small models: does the report itself work?
# Other options are those of eval/lab/gpureport. A row that cannot be measured here
# (no PyTorch, no compute-sanitizer, too little memory or time) says so.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=bin
if [ "${1:-}" = --bin ]; then
	bin=${2:?is missing: --bin DIR}
	shift 2
fi
for file in gollm gpureport randommodel hashnets systems load cuda.test engine.test; do
	if [ ! -x "$bin/$file" ]; then
		if [ "$bin" = bin ] && command -v go >/dev/null; then
			make gpu-report-binaries
			break
		fi
		echo "gpu-report: there is no $bin/$file; make gpu-report-binaries makes it where Go is installed" >&2
		case $file in gollm | gpureport | randommodel) exit 1 ;; esac # without the others their rows are unmeasured
	fi
done
# cuBLASLt comes with CUDA's libraries, or with PyTorch's wheels.
wheels=$(python3 -c 'import nvidia, os
print(":".join(os.path.join(root, path) for base in nvidia.__path__ for path in os.listdir(base)
    for root in [base] for path in [path + "/lib"] if os.path.exists(os.path.join(base, path))))' 2>/dev/null || true)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${wheels:+:$wheels}
exec "$bin/gpureport" --gollm "$bin/gollm" --randommodel "$bin/randommodel" --systems "$bin/systems" --hashnets "$bin/hashnets" --load "$bin/load" --cuda-test "$bin/cuda.test" \
	--engine-test "$bin/engine.test" --commit "$("$bin/gollm" version | head -1)" "$@"
