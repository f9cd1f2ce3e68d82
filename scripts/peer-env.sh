#!/usr/bin/env bash
# Makes build/venv with llama.cpp built for this machine (from source, a few
# minutes the first time) and prints the path of its Python.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
want="llama-cpp-python==0.3.36 numpy==2.4.6"
if [ "$(cat $venv/installed 2>/dev/null)" != "$want" ]; then
	echo "building llama.cpp into $venv" >&2
	python3 -m venv $venv
	CMAKE_ARGS="-DGGML_NATIVE=ON" $venv/bin/pip install --quiet \
		--no-binary llama-cpp-python $want >&2
	echo "$want" >$venv/installed
fi
echo "$PWD/$venv/bin/python"
