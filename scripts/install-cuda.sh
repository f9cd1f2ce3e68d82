#!/usr/bin/env bash
# Puts what make cuda needs into build/cuda: NVIDIA's compiler and its headers, as
# wheels from PyPI (100 MB), and the headers of CUDA 12 that gorgonia.org/cu
# compiles with. No GPU and no driver are needed. On a bare Debian it installs
# what python and the compiler need first, as root.
set -euo pipefail
cd "$(dirname "$0")/.."
home=build/cuda
want="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-runtime-cu12==12.9.79"
[ "$(cat $home/installed 2>/dev/null)" = "$want" ] && exit

debian() { # PACKAGE...: install what is missing
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "install-cuda: $* is missing; install it, or run this as root on Debian" >&2
		exit 1
	fi
	apt-get update -qq >&2
	apt-get install -y -qq --no-install-recommends "$@" >&2
}

command -v g++ >/dev/null || debian g++
command -v python3 >/dev/null || debian python3 python3-venv
rm -rf $home
python3 -m venv $home/venv 2>/dev/null || { debian python3-venv && python3 -m venv $home/venv; }
echo "installing NVIDIA's compiler into $home" >&2
$home/venv/bin/pip install --quiet --no-deps --only-binary=:all: --target $home/site $want >&2
chmod +x $home/site/nvidia/cu13/bin/* $home/site/nvidia/cu13/nvvm/bin/*
ln -s site/nvidia/cu13 $home/toolkit
ln -s site/nvidia/cuda_runtime/include $home/include
echo "$want" >$home/installed
