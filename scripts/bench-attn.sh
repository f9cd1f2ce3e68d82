#!/usr/bin/env bash
# Every attention system beside dense, in turns, as Markdown tables:
#   scripts/bench-attn.sh MODEL.gguf            decode behind 8k, 32k and 64k tokens, prefill of 8k
#   DEPTHS=8k PROMPTS=0 scripts/bench-attn.sh   other lengths
# Systems that keep a share are given 0.1; the others have their defaults, and
# the table says what they kept.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:?is missing: scripts/bench-attn.sh MODEL.gguf}
depths=${DEPTHS:-8k,32k,64k} prompts=${PROMPTS:-8k} reps=${REPS:-3} steps=${STEPS:-8}

# settings prints --attn for each line of its input, less what a comment says.
settings() { sed -E 's/ *#.*//; /^$/d; s/.*/--attn\n&/'; }

readarray -t decode < <(settings <<-END
	dense
	streaming
	topk(k=0.1)
	topp(p=0.95)
	quest(budget=0.1)
	quest(budget=0.1,page=64)
	sketchwalk(density=0.1)
	cis(k=0.1)
	psaw
	cpe(k=0.1)
	vattention
	santa
	santa(exec=flash)
END
)
readarray -t prefill < <(settings <<-END
	dense
	sketchwalk(density=0.1)
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
