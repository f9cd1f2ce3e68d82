# make help lists the targets. MODEL is a GGUF file, T the least time of a fuzz target.

GO     ?= go
T      ?= 30s
THREADS ?= 2
COUNT  := $(if $(CI),-count=1)
need_model = $(if $(MODEL),,$(error MODEL=file is missing, for example make $@ MODEL=testdata/demo.gguf))

.PHONY: help build demo test race fuzz lint bench bench-peer bench-attn golden generate check quick clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/gollm, without cgo
	CGO_ENABLED=0 $(GO) build -o bin/gollm ./cmd/gollm

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
