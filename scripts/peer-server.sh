#!/usr/bin/env bash
# Makes build/peer with the llama-server of llama-cpp-python's llama.cpp, built for this
# machine (ten minutes on two cores the first time), and prints its path. It is the
# version that scripts/peer-env.sh makes bindings of.
set -euo pipefail
cd "$(dirname "$0")/.."
peer=build/peer
version=$(sed -nE 's/^want="llama-cpp-python==([^ ]+).*/\1/p' scripts/peer-env.sh)
if [ "$(cat $peer/installed 2>/dev/null)" != "$version" ]; then
	echo "building llama-server of llama-cpp-python $version into $peer" >&2
	mkdir -p $peer
	python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version" -d $peer >&2
	tar -xzf $peer/llama_cpp_python-"$version".tar.gz -C $peer
	cmake -S $peer/llama_cpp_python-"$version"/vendor/llama.cpp -B $peer/make -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
		-DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
		-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w &>$peer/log
	cmake --build $peer/make --target llama-server --parallel 2 &>>$peer/log
	echo "$version" >$peer/installed
fi
echo "$PWD/$peer/make/bin/llama-server"
