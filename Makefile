# make help lists the targets. MODEL is a GGUF file, T the least time of a fuzz target.

GO     ?= go
T      ?= 30s
THREADS ?= 2
COUNT  := $(if $(CI),-count=1)
need_model = $(if $(MODEL),,$(error MODEL=file is missing, for example make $@ MODEL=testdata/demo.gguf))

.PHONY: always help build cuda cuda-headers program test-driver gpu-report gpu-report-binaries emulate emulate-kernels emulate-systems emulate-8b emulate-sanitized launches demo serve-clients test race fuzz hostile serve-load serve-hostile bench-serve-peer grammar lint bench bench-peer bench-attn vattention-trials golden generate check quick clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Whether bin/gollm is there and was built for GPUs too.
for_gpus = $(GO) version -m bin/gollm 2>/dev/null | grep -q -- '-tags=cuda$$'

build: ## bin/gollm for the CPU, without cgo
	@if $(for_gpus); then echo "make build: bin/gollm was for CPU and GPU, and is for the CPU alone now; make cuda builds it for both"; fi
	CGO_ENABLED=0 $(GO) build -o bin/gollm ./cmd/gollm

# bin/gollm for the targets that run it: brought up to date as it was built last, for
# GPUs too if make cuda did that, and with the compiler that it was told of then.
program:
	@if $(for_gpus); then eval "$(MAKE) --no-print-directory cuda $$(cat bin/cuda.told 2>/dev/null)"; \
	else $(MAKE) --no-print-directory build; fi

# The compiler and headers of CUDA. Others than the installed ones, the headers of CUDA
# 11.8 to 12.9 (gorgonia.org/cu does not compile with those of 13), by
# make cuda NVCC=/usr/local/cuda-12.8/bin/nvcc CUDA_INCLUDE=/usr/local/cuda-12.8/include
NVCC         ?= build/cuda/toolkit/bin/nvcc
CUDA_INCLUDE ?= $(CURDIR)/build/cuda/include
GPUS         := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 \
	-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90
FATBIN       := cuda/kernels/kernels.fatbin

# What cgo needs for -tags cuda.
CUDA_GO = CGO_ENABLED=1 CGO_CFLAGS="-O2 '-I$(CUDA_INCLUDE)'" CGO_LDFLAGS="'-L$(CURDIR)/build/cuda/lib' -Wl,--as-needed" $(GO)

cuda: cuda-headers $(FATBIN) build/cuda/lib/libcuda.so ## bin/gollm for CPU and NVIDIA GPUs
	$(CUDA_GO) build -tags cuda -o bin/gollm ./cmd/gollm
	@printf "'%s' " 'NVCC=$(NVCC)' 'CUDA_INCLUDE=$(CUDA_INCLUDE)' 'GPUS=$(GPUS)' >bin/cuda.told

cuda-headers: | $(NVCC)
	@version=$$(echo '#include <cuda.h>' | $(CC) -I"$(CUDA_INCLUDE)" -E -dM -x c - 2>/dev/null | awk '$$2 == "CUDA_VERSION" {print $$3}'); \
	if [ -z "$$version" ]; then found="there is no cuda.h in $(CUDA_INCLUDE)"; \
	elif [ $$version -lt 11080 ] || [ $$version -ge 13000 ]; then found="$(CUDA_INCLUDE)/cuda.h is of CUDA $$((version / 1000)).$$((version % 1000 / 10))"; \
	else exit 0; fi; \
	echo "make cuda: $$found; the Go packages compile with the headers of CUDA 11.8 to 12.9: name their folder with CUDA_INCLUDE=, or leave it out and they are installed (the compiler, NVCC=, may be of CUDA 13)" >&2; exit 1

test-driver: cuda ## tests of the calls of NVIDIA's driver, with one that computes nothing
	$(CUDA_GO) test -tags cuda $(COUNT) -run 'TestDriverOnAnyThread|TestOpenErrors|TestSharedMemory|TestClusterLaunches|TestKernelSizes|TestWGMMA|TestNoDriver' ./cuda

gpu-report-binaries: cuda ## what scripts/gpu-report.sh runs, in bin/
	CGO_ENABLED=0 $(GO) build -o bin/ ./eval/lab/gpureport ./eval/lab/randommodel ./eval/lab/hashnets ./eval/lab/load
	$(CUDA_GO) build -tags cuda -o bin/systems ./eval/lab/systems
	for package in cuda engine; do $(CUDA_GO) test -c -tags cuda -o bin/$$package.test ./$$package || exit 1; done

gpu-report: gpu-report-binaries ## what this machine's GPU does, as gpu-report.md and gpu-report.json
	scripts/gpu-report.sh

# nvcc makes one file of machine code for every kind of GPU. Warning 128, a loop that
# is not reachable, is not said: a template that several kernels are made of leaves
# loops out in some of them.
$(FATBIN): $(wildcard cuda/kernels/*.cu cuda/kernels/*.cuh) build/cuda/compiled-by | $(NVCC)
	@echo "compiling the kernels for every kind of GPU, which takes about three minutes"
	$(NVCC) -std=c++17 -O3 -diag-suppress 128 --threads 2 -fatbin $(GPUS) -o $@.part cuda/kernels/kernels.cu
	mv $@.part $@

# Kernels by another compiler, or for other GPUs, are other kernels.
build/cuda/compiled-by: always
	@mkdir -p $(@D); echo '$(NVCC) $(GPUS)' >$@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# gorgonia.org/cu names libcuda when it links; cuda/shim.c has its functions.
build/cuda/lib/libcuda.so: | $(NVCC)
	mkdir -p $(@D)
	$(CC) -shared -o $@ -x c /dev/null

build/cuda/toolkit/bin/nvcc:
	scripts/install-cuda.sh

emulate: emulate-kernels emulate-systems ## the tests of the CUDA kernels and of what runs on them, on the CPU

emulate-kernels:
	CGO_ENABLED=1 $(GO) test -tags cudaemu $(COUNT) -timeout 30m ./cuda/...

# Every attention method, and passes of small models. The means over seeds take long.
emulate-systems:
	CGO_ENABLED=1 $(GO) test -tags cudaemu $(COUNT) -timeout 30m \
		-run 'TestEveryMethod|TestLawDenseLimit$$|TestLogitsAgainstExact|TestGreedyText|TestLaunches|TestStepLaunches|TestTrace$$' -skip 'TestLawDenseLimit/.*santa' ./sparse ./engine

launches: ## write engine/testdata/launches.txt anew: the kernels of a decode step of every method
	CGO_ENABLED=1 $(GO) test -tags cudaemu -run 'TestStepLaunches' ./engine -launches

emulate-8b: ## every attention method on layers of Llama-3.1-8B's shape, on the CPU (ten minutes)
	CGO_ENABLED=1 $(GO) test -tags cudaemu $(COUNT) -timeout 60m -v -run 'TestEveryMethodAtFullSize' ./sparse -fullsize

# The sanitizers of the C++ compiler find what a kernel does beyond its memory.
SANITIZED ?= TestConformance/(memory|failures|append|reuse|graph)$$|TestSchedules
emulate-sanitized: ## some tests of the CUDA kernels with the sanitizers
	CGO_ENABLED=1 CGO_CXXFLAGS="-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined" CGO_LDFLAGS="-fsanitize=undefined" \
		$(GO) test -asan -tags cudaemu $(COUNT) -timeout 30m -run '$(SANITIZED)' ./cuda

demo: program ## a small model finds a needle in 4,000 tokens, another tells a story
	@scripts/demo.sh

serve-clients: program ## the openai package and lm-evaluation-harness against gollm serve (they are installed into build/)
	@scripts/serve-clients.py

test: quick race ## every test, and again with the race detector (twenty minutes on two cores)

# Package sparse starts no goroutine: what runs in parallel there are operations of the
# CPU, whose own tests run here in full. Two of its laws take every method through them,
# in a prompt cut at every place and with several sequences in a step.
race: ## the tests with the race detector; of ./sparse, two laws over every method
	$(GO) test -race -timeout 40m $(COUNT) $$($(GO) list ./... | grep -v '/sparse$$')
	$(GO) test -race -timeout 40m $(COUNT) -run 'TestLaw(Chunks|Batch)$$' ./sparse

quick: ## every test, without the race detector
	$(GO) test $(COUNT) ./...

fuzz: ## every fuzz target for at least T=30s
	@scripts/fuzz.sh $(T)

grammar: ## documents of 10,000 random JSON schemas, by their masks, beside an independent validator
	$(GO) test $(COUNT) -timeout 60m -run '^TestRandomSchemas$$' ./grammar -schemas 10000

# One worker for each core; a time of 10m gives each of the six kinds of input two minutes.
hostile: ## wrong files, specs, templates, arrays and lines for T=10m; the most expensive headers
	$(GO) build -o bin/hostile ./eval/lab/hostile
	bin/hostile -headers
	bin/hostile -for $(T)

# N requests by CLIENTS at once, on loopback. The memory is printed; it should stay flat.
N       ?=
CLIENTS ?= 64
serve-load: program ## gollm serve under N=10000 mixed requests by CLIENTS=64: answers, pages, goroutines, memory, kill -9
	$(GO) build -o bin/load ./eval/lab/load
	bin/load soak -n $(or $(N),10000) -clients $(CLIENTS)

serve-hostile: program ## N=100000 wrong requests to the handlers of gollm serve, and bad clients on its connections
	$(GO) build -o bin/ ./eval/lab/hostile ./eval/lab/load
	bin/hostile -part request -n $(or $(N),100000) -for 1h
	bin/load connections

lint: ## gofmt, vet, staticcheck and the rules of this tree
	@scripts/lint.sh

# BENCH is more arguments of a benchmark, such as "-rounds 3 -write docs/performance.md".
BENCH ?=

bench: program ## speed of MODEL=file beside what the machine allows
	$(need_model)bin/gollm bench -m $(MODEL) --threads $(THREADS)

bench-peer: program ## speed of MODEL="file ..." beside llama.cpp's
	$(need_model)$$(scripts/peer-env.sh) scripts/bench-peer.py --threads $(THREADS) $(MODEL)

bench-serve-peer: program ## tokens a second of MODEL=file at 1, 4, 16 and 64 clients beside llama-server, in turns (an hour for 1B on two cores)
	$(GO) build -o bin/load ./eval/lab/load
	$(need_model)bin/load bench -m $(MODEL) -threads $(THREADS) -peer "$$(scripts/peer-server.sh)" $(BENCH)

vattention-trials: ## the promise of vattention with keys of 8 and 4 bits, 2,000 samples of each of three kinds of keys
	$(GO) test $(COUNT) -run TestVAttentionWithLowBitKeys -v ./sparse -trials 2000

bench-attn: program ## every attention method of MODEL=file beside dense, in turns
	$(need_model)scripts/bench-attn.sh $(MODEL)

golden: ## remake testdata/logits with llama.cpp and numpy; then look at the diff
	$$(scripts/peer-env.sh) scripts/logits-peer.py testdata testdata/logits

generate: ## remake the assembly from its generator
	$(GO) generate ./cpu/...

check: ## what CI runs
	.ci/run

clean: ## remove what was built
	rm -rf bin build
