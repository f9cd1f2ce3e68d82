#!/usr/bin/env bash
# Every attention method beside dense, in turns, as Markdown tables:
#   scripts/bench-attn.sh MODEL.gguf            decode behind 8k, 32k and 64k tokens, prefill of 8k
#   DEPTHS=8k PROMPTS=0 scripts/bench-attn.sh   other lengths
# Systems that keep a share are given 0.1; the others have their defaults, and
# the table says what they kept. doublesparsity ranks channels by our README.md, and
# hashattention has networks of random weights: their speed is that of trained
# ones, their choice means nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:?is missing: scripts/bench-attn.sh MODEL.gguf}
depths=${DEPTHS:-8k,32k,64k} prompts=${PROMPTS:-8k} reps=${REPS:-3} steps=${STEPS:-8}

files=build/bench-attn
mkdir -p $files
bin/gollm channels -m "$model" -f README.md -o $files/channels.npy
go run ./eval/lab/hashnets "$model" $files/networks

# settings prints --attn for each line of its input, less what a comment says.
settings() { sed -E 's/ *#.*//; /^$/d; s/.*/--attn\n&/'; }

readarray -t decode < <(settings <<-END
	dense
	streaming
	psaw
	sketchwalk:paper-90        # layers 0 and 1 are dense, of quest too
	quest(budget=0.1)
	quest(budget=0.1,share=group)
	topk(k=0.1)                    # four heads of a kv head read a third of its rows
	topk(k=0.026)                  # and here a tenth
	topk(k=0.1,index=q8)           # ranked by copies of the keys in 8 and in 4 bits
	topk(k=0.1,index=q4)
	cis(k=0.1)
	cis(k=0.1,share=group)
	cis(k=0.1,share=group,index=q4)
	cpe(k=0.1,share=group)
	vattention:tenth
	vattention:tenth(share=group)
	vattention:tenth(share=group,index=q4)
	santa
	santa(exec=flash)
	h2o(hh=1638,recent=1638)       # a tenth of 32k
	magicpig
	doublesparsity(file=$files/channels.npy,k=0.1) # layers 0 and 1 are dense
	hashattention(dir=$files/networks,k=0.1)
	topp(p=0.1)                    # a tenth of the weight, in fewer positions than that
	random(k=0.1,share=group)
END
)
readarray -t prefill < <(settings <<-END
	dense
	sketchwalk:paper-90
	anchor
	vslash
	flexprefill
	etf
	cpe
END
)

if [ "$depths" != 0 ]; then
	bin/gollm bench -m "$model" --markdown --reps "$reps" --steps "$steps" --prefill 0 --decode "$depths" "${decode[@]}"
	echo
fi
if [ "$prompts" != 0 ]; then
	bin/gollm bench -m "$model" --markdown --reps 1 --prefill "$prompts" --decode 0 "${prefill[@]}"
fi
