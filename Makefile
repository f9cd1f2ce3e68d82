# make help lists the targets. MODEL is a GGUF file, T the least time of a fuzz target.

GO     ?= go
T      ?= 30s
THREADS ?= 2
COUNT  := $(if $(CI),-count=1)
need_model = $(if $(MODEL),,$(error MODEL=file is missing, for example make $@ MODEL=testdata/demo.gguf))

.PHONY: help build cuda test-driver gpu-report gpu-report-binaries emulate emulate-kernels emulate-systems emulate-sanitized demo test race fuzz lint bench bench-peer bench-attn golden generate check quick clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/gollm, without cgo
	CGO_ENABLED=0 $(GO) build -o bin/gollm ./cmd/gollm

# The compiler and headers of CUDA; others than the installed ones by
# make cuda NVCC=/usr/local/cuda/bin/nvcc CUDA_INCLUDE=/usr/local/cuda/include
NVCC         ?= build/cuda/toolkit/bin/nvcc
CUDA_INCLUDE ?= $(CURDIR)/build/cuda/include
GPUS         := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 \
	-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90
FATBIN       := cuda/kernels/kernels.fatbin

# What cgo needs for -tags cuda.
CUDA_GO = CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CUDA_INCLUDE)" CGO_LDFLAGS="-L$(CURDIR)/build/cuda/lib -Wl,--as-needed" $(GO)

cuda: $(FATBIN) build/cuda/lib/libcuda.so ## bin/gollm for CPU and NVIDIA GPUs
	$(CUDA_GO) build -tags cuda -o bin/gollm ./cmd/gollm

test-driver: cuda ## tests of the calls of NVIDIA's driver, with one that computes nothing
	$(CUDA_GO) test -tags cuda $(COUNT) -run 'TestDriverOnAnyThread|TestOpenErrors' ./cuda

gpu-report-binaries: cuda ## what scripts/gpu-report.sh runs, in bin/
	CGO_ENABLED=0 $(GO) build -o bin/ ./scripts/gpureport ./scripts/randommodel
	for package in cuda engine; do $(CUDA_GO) test -c -tags cuda -o bin/$$package.test ./$$package || exit 1; done

gpu-report: gpu-report-binaries ## what this machine's GPU does, as gpu-report.md and gpu-report.json
	scripts/gpu-report.sh

# nvcc makes one file of machine code for every kind of GPU.
$(FATBIN): $(wildcard cuda/kernels/*.cu cuda/kernels/*.cuh) | $(NVCC)
	$(NVCC) -std=c++17 -O3 --threads 2 -fatbin $(GPUS) -o $@ cuda/kernels/kernels.cu

# gorgonia.org/cu names libcuda when it links; cuda/shim.c has its functions.
build/cuda/lib/libcuda.so: | $(NVCC)
	mkdir -p $(@D)
	$(CC) -shared -o $@ -x c /dev/null

build/cuda/toolkit/bin/nvcc:
	scripts/install-cuda.sh

emulate: emulate-kernels emulate-systems ## the tests of the CUDA kernels and of what runs on them, on the CPU

emulate-kernels:
	CGO_ENABLED=1 $(GO) test -tags cudaemu $(COUNT) -timeout 30m ./cuda/...

# Every attention system, and passes of small models. The means over seeds take long.
emulate-systems:
	CGO_ENABLED=1 $(GO) test -tags cudaemu $(COUNT) -timeout 30m \
		-run 'TestEverySystem|TestLawDenseLimit$$|TestLogitsAgainstExact|TestGreedyText' -skip 'TestLawDenseLimit/.*santa' ./sparse ./engine

# The sanitizers of the C++ compiler find what a kernel does beyond its memory.
SANITIZED ?= TestConformance/(memory|failures|append|reuse|graph)$$|TestSchedules
emulate-sanitized: ## some tests of the CUDA kernels with the sanitizers
	CGO_ENABLED=1 CGO_CXXFLAGS="-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined" CGO_LDFLAGS="-fsanitize=undefined" \
		$(GO) test -asan -tags cudaemu $(COUNT) -timeout 30m -run '$(SANITIZED)' ./cuda

demo: ## a small model finds a needle in 4,000 tokens, another tells a story
	@scripts/demo.sh

test: quick race ## every test, without and with the race detector (twenty minutes on two cores)

race: ## every test, with the race detector
	$(GO) test -race -timeout 40m $(COUNT) ./...

quick: ## every test, without the race detector
	$(GO) test $(COUNT) ./...

fuzz: ## every fuzz target for at least T=30s
	@scripts/fuzz.sh $(T)

lint: ## gofmt, vet, staticcheck and the rules of this tree
	@scripts/lint.sh

bench: ## speed of MODEL=file beside what the machine allows
	$(need_model)$(GO) run ./cmd/gollm bench -m $(MODEL) --threads $(THREADS)

bench-peer: build ## speed of MODEL="file ..." beside llama.cpp's
	$(need_model)$$(scripts/peer-env.sh) scripts/bench-peer.py --threads $(THREADS) $(MODEL)

bench-attn: build ## every attention system of MODEL=file beside dense, in turns
	$(need_model)scripts/bench-attn.sh $(MODEL)

golden: ## remake testdata/logits with llama.cpp and numpy; then look at the diff
	$$(scripts/peer-env.sh) scripts/logits-peer.py testdata testdata/logits

generate: ## remake the assembly from its generator
	$(GO) generate ./cpu/...

check: ## what CI runs
	.ci/run

clean: ## remove what was built
	rm -rf bin build
