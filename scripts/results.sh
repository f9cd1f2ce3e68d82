#!/usr/bin/env bash
# What sparse attention costs the RULER model: the runs behind docs/results.md.
#   scripts/results.sh DIR          all parts
#   scripts/results.sh DIR 0 1      parts 0 and 1 of eight
# A part is one of the 8 samples of each task and length; part 0 has the audits, too. A
# run that is stopped goes on with the same command; after each part the tables of
# docs/results.md are those of the parts that are complete. Several calls with other parts
# may run side by side. RUNS names some of the runs, "decode mirrors" say. GOLLM is the program; it is built into DIR if that is unset, and
# DIR/commit says of what. A part takes two free cores about a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?is missing: scripts/results.sh DIR [PART...]}
shift
parts=("$@")
((${#parts[@]})) || parts=(0 1 2 3 4 5 6 7)
read -ra runs <<<"${RUNS:-prefill oracles decode tried mirrors}"
mkdir -p "$dir"
dir=$(realpath "$dir") root=$PWD
model=$root/testdata/ruler.gguf
if [[ -z ${GOLLM:-} ]]; then
	GOLLM=$dir/gollm
	CGO_ENABLED=0 go build -o "$GOLLM" ./cmd/gollm
	git rev-parse --short HEAD >"$dir/commit"
fi

# settings prints --attn for each line of its input, less what a comment says.
settings() { sed -E 's/ *#.*//; /^$/d; s/.*/--attn\n&/'; }

# Where attention is sparse in the prompt and dense after it; cpe and etf as they are.
readarray -t prefill < <(settings <<-END
	dense
	prefill=sketchwalk(density=0.2)
	prefill=sketchwalk(density=0.2,walk=onehop)  # the control: no walk
	prefill=sketchwalk(density=0.2,score=softmax,heads=mean_score)
	prefill=sketchwalk(density=0.4,score=softmax,heads=mean_score)
	prefill=anchor
	prefill=anchor(block=64,step=4)              # a group of rows is 2,048 by default
	prefill=flexprefill(min=256)                 # 1,024 by default
	prefill=vslash(vertical=128,slash=256)       # 1,000 and 6,096 by default
	prefill=streaming(sink=64,window=512)
	prefill=psaw
	prefill=etf
	prefill=etf(psi=0.8)
	cpe(k=0.125)
END
)

# There, what chooses row by row by exact scores, or by chance: slow.
readarray -t oracles < <(settings <<-END
	dense
	prefill=topk(k=0.1)
	prefill=topp
	prefill=random(k=0.2)
END
)

# Where the prompt is read densely and the question and the answer sparsely.
readarray -t decode < <(settings <<-END
	dense
	sketchwalk(density=0.2)
	sketchwalk(density=0.2,walk=onehop)
	sketchwalk(density=0.2,score=softmax,heads=mean_score)
	sketchwalk(density=0.4,score=softmax,heads=mean_score)
	vattention(eps=0.05)
	vattention(eps=0.2)
	santa(samples=128)
	santa(samples=32)
	cis(k=0.125)
	psaw
	cpe(k=0.125)
	streaming(sink=64,window=512)
	topk(k=0.1)
	topp
	quest(budget=0.2)
	h2o
	magicpig
	magicpig(bits=6,tables=50)                   # for 8,192 positions, not for 100,000
	doublesparsity(file=channels.npy,factor=8,k=0.1)
	random(k=0.2)
END
)

# What else was tried of those that lose most there.
readarray -t tried < <(settings <<-END
	dense
	sketchwalk(density=0.2,score=softmax,heads=mean_score,walk=onehop)
	sketchwalk(density=0.2,score=relu,heads=mean_score)
	sketchwalk(density=0.6,score=softmax,heads=mean_score)
	quest(budget=0.4)
	quest(budget=0.2,page=64)
	psaw(phi=0.9)
	h2o(hh=0.3,recent=0.1)
	streaming(sink=64,window=2048)
END
)

# What ranking by low-bit copies of the keys costs, beside the same by exact keys.
readarray -t mirrors < <(settings <<-END
	dense
	topk(k=0.1)
	topk(k=0.1,index=q8)
	topk(k=0.1,index=q4)
	topk(k=0.1,index=q4,rescore=2)
	topp
	topp(index=q8)
	topp(index=q4)
	cis(k=0.125)
	cis(k=0.125,index=q8)
	cis(k=0.125,index=q4)
	cpe(k=0.125)
	cpe(k=0.125,index=q8)
	cpe(k=0.125,index=q4)
	vattention
	vattention(index=q8)
	vattention(index=q4)
	vattention(index=q4,rescore=2)
END
)

# The channels are ranked on one prompt of another seed.
channels() {
	[[ -e channels.npy ]] && return
	"$GOLLM" eval ruler-data -m "$model" -o calibration --tasks niah_multiquery --lengths 1k -n 1 --seed 7 --haystack builtin --fit fine
	python3 -c 'import json; print(json.loads(open("calibration/1024/data/niah_multiquery/validation.jsonl").readline())["input"], end="")' |
		"$GOLLM" channels -m "$model" -f - -o channels.npy
}

# run answers a part of one of the runs: run NAME PART
run() {
	local -n settings=$1
	local phase=()
	case $1 in decode | tried | mirrors) phase=(--sparse-phase question+decode) ;; esac
	"$GOLLM" eval ruler -m "$model" --tasks niah_multikey_2,niah_multiquery,vt,fwe --lengths 1k,2k,4k,8k \
		-n 8 --haystack builtin --fit fine -t 1 --shard "$2/8" -o "$1-$2" "${phase[@]}" "${settings[@]}" >"$1-$2.txt"
}

# tables joins the parts that are complete and writes the page.
tables() {
	local name parts=()
	for part in done-[0-7]; do
		parts+=("${part#done-}")
	done
	for name in "${runs[@]}"; do
		rm -rf "$name"
		"$GOLLM" eval merge --partial -o "$name" "${parts[@]/#/$name-}" >"$name.txt"
	done
	"$root/scripts/results.py" "$root/docs/results.md" "${runs[@]}"
}

# locked lets one call at a time do what concerns all parts.
locked() { (flock 9 && "$@") 9>lock; }

cd "$dir"
locked channels
for part in "${parts[@]}"; do
	started=()
	for name in "${runs[@]}"; do # two at a time
		if ((${#started[@]} > 1)); then
			wait "${started[0]}"
			started=("${started[1]}")
		fi
		run "$name" "$part" &
		started+=($!)
	done
	for one in "${started[@]}"; do wait "$one"; done
	touch "done-$part"
	locked tables
done
