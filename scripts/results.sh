#!/usr/bin/env bash
# What sparse attention costs the RULER model: the runs behind docs/results.md.
#   scripts/results.sh DIR          all parts
#   scripts/results.sh DIR 0 1      parts 0 and 1 of eight
# A part is one of the 8 samples of each task and length; part 0 has the audits, too. A
# run that is stopped goes on with the same command; after each part the tables of
# docs/results.md are those of the parts that are complete. Several calls with other parts
# may run side by side. RUNS names some of the runs, "decode mirrors" say. GOLLM is the program; it is built into DIR if that is unset, and
# DIR/commit says of what. A part takes two free cores about a quarter of an hour.
#
# RUNS="walkprefill walkdecode walkanswer walkboth schedules" are the readings of Sketch&Walk and the schedules of
# CPE, which are not among the runs by default. Each length of a part of these is a folder of
# its own, and part audit is one prompt for densities alone. Of them LENGTHS, TASKS, AUDITS (samples of each task) and DEVICE may be given,
# MODEL is another model, and TABLES=no writes no page. scripts/results.sh DIR none only does that.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?is missing: scripts/results.sh DIR [PART...]}
shift
parts=("$@")
((${#parts[@]})) || parts=(0 1 2 3 4 5 6 7)
[[ ${parts[0]} == none ]] && parts=()
read -ra runs <<<"${RUNS:-prefill oracles decode tried mirrors}"
mkdir -p "$dir"
dir=$(realpath "$dir") root=$PWD
model=$(realpath "${MODEL:-testdata/ruler.gguf}")
lengths=${LENGTHS:-2k,4k,8k} tasks=${TASKS:-niah_multikey_2,niah_multiquery,vt,fwe}
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
	prefill=sketchwalk:paper
	prefill=sketchwalk:paper(walk=onehop)  # the control: no walk
	prefill=sketchwalk:paper(score=softmax,heads=mean_score)
	prefill=sketchwalk:paper(density=0.4,score=softmax,heads=mean_score)
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
	sketchwalk:paper
	sketchwalk:paper(walk=onehop)
	sketchwalk:paper(score=softmax,heads=mean_score)
	sketchwalk:paper(density=0.4,score=softmax,heads=mean_score)
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
	sketchwalk:paper(score=softmax,heads=mean_score,walk=onehop)
	sketchwalk:paper(score=relu,heads=mean_score)
	sketchwalk:paper(density=0.6,score=softmax,heads=mean_score)
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

# The readings of Sketch&Walk, one option at a time from that of its paper's text and from that
# of its public code, at one density. Options of the prompt alone, and of decode steps alone,
# are left out of the other list.
readings=(
	dense
	sketchwalk:paper
	'sketchwalk:paper(score=relu)'
	'sketchwalk:paper(score=softmax)'
	'sketchwalk:paper(score=softmax,exponent=1)'
	'sketchwalk:paper(exponent=2)'
	'sketchwalk:paper(power=matrix,exponent=2,score=relu)'
	'sketchwalk:paper(heads=mean_score)'
	'sketchwalk:paper(heads=mean_score,score=softmax)'
	'sketchwalk:paper(heads=each,score=relu)'
	'sketchwalk:paper(heads=each,score=softmax,exponent=1)'
	'sketchwalk:paper(sketch=exact)'
	'sketchwalk:paper(r=16)'
	'sketchwalk:paper(walk=onehop)'
	'sketchwalk:paper(walk_start=0)'
	'sketchwalk:paper(causal=none)'
	'sketchwalk:paper(damping=0.25,steps=3)'
	'sketchwalk:paper(dense=1)'
	'sketchwalk:paper(dense=4)'
	'sketchwalk:paper(sink=0.025,recent=0.05)'
	sketchwalk:code
	'sketchwalk:code(causal=none)'
	'sketchwalk:code(temperature=1.56)'
	'sketchwalk:code(damping=1,steps=1,walk=onehop)'
)
code() { local option; for option; do printf '%s\n' "sketchwalk:code($at$option)"; done; }
around=(temperature=0.3 temperature=0.1 temperature=0.3,damping=1,steps=1,walk=onehop steps=1 damping=0.5 heads=mean_score
	exponent=4 score=relu,temperature=1 sink=1,recent=1 dense=1 dense=4 r=16)
readarray -t prompts < <(at= code "${around[@]}" last=0 last=0,sink=1,recent=1)
readarray -t steps < <(at=query=token, code "${around[@]}" damping=1,steps=1,walk=onehop temperature=0.1,damping=1,steps=1,walk=onehop causal=none diag=blockmean)
prompts+=(
	'sketchwalk:paper(budget=total)'
	'sketchwalk:paper(last=4)'
)
steps+=(
	'sketchwalk:code(query=token)'
	'sketchwalk:paper(row=last_token)'
	'sketchwalk:paper(diag=blockmean)'
	'sketchwalk:paper(query=block)'
	'sketchwalk:paper(forced=literal)'
	'sketchwalk:paper(forced=literal,row=last_token,diag=blockmean)'
	'quest(budget=0.2)'
	'topk(k=0.2)'
	'random(k=0.2)'
)
walkprefill=() walkdecode=()
for reading in "${readings[@]}" "${prompts[@]}"; do
	[[ $reading == dense ]] || reading=prefill=$reading
	walkprefill+=(--attn "$reading")
done
for reading in "${readings[@]}" "${steps[@]}"; do walkdecode+=(--attn "$reading"); done

# Some of them as the paper has them: the question is part of the prompt, and attention is
# sparse in the answer alone, or everywhere.
readarray -t walkanswer < <(settings <<-END
	dense
	sketchwalk:paper
	sketchwalk:paper(walk=onehop)
	sketchwalk:paper(score=softmax,heads=mean_score)
	sketchwalk:paper(score=softmax,exponent=1,heads=each)
	sketchwalk:code
	sketchwalk:code(query=token)
	sketchwalk:code(query=token,last=0)
	sketchwalk:code(query=token,damping=1,steps=1,walk=onehop)
	quest(budget=0.2)
END
)
walkboth=("${walkanswer[@]}")

# The schedules of CPE, on few layers: where windows close and positions freeze, and how far.
readarray -t schedules < <(settings <<-END
	dense
	psaw
	psaw(phi=0.8)
	psaw(phi=0.9)
	psaw(alpha=0.5)
	psaw(alpha=2)
	psaw(ls=0.5)
	psaw(ls=0.5,phi=0.9)
	psaw(ls=0.9)
	psaw(sink=64)
	etf
	etf(psi=0.8)
	etf(gamma=2)
	etf(ls=0.5)
	etf(ls=0.5,psi=0.8)
	etf(etf=kv)
	cis(k=0.125)
	cpe(k=0.125)
	cpe(k=0.125,phi=0.9)
	cpe(k=0.125,phi=0.9,psi=0.8)
	cpe(k=0.125,ls=0.9)
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

# lengthwise answers a part of one of the runs of which each length is a folder: lengthwise NAME PART
lengthwise() {
	local -n settings=$1
	local phase=() folder length many=8 part=$2
	[[ $2 == audit ]] && many=1 part=0
	case $1 in
	walkdecode) phase=(--sparse-phase question+decode) ;;
	walkanswer) phase=(--sparse-phase decode) ;;
	walkboth) phase=(--sparse-phase all) ;;
	esac
	for length in ${lengths//,/ }; do
		folder=$1-$2-$length
		[[ -e $folder.done ]] && continue
		"$GOLLM" eval ruler -m "$model" --device "${DEVICE:-auto}" --tasks "$tasks" --lengths "$length" -n "$many" --shard "$part/$many" \
			--haystack builtin --fit fine -t 1 --truncate-input 0 --audit-samples "${AUDITS:-1}" -o "$folder" "${phase[@]}" "${settings[@]}" >"$folder.txt"
		touch "$folder.done"
	done
}

# tables joins the parts that are complete and writes the page.
tables() {
	local name parts=()
	for part in done-[0-7]; do
		[[ -e $part ]] || continue
		parts+=("${part#done-}")
	done
	for name in "${runs[@]}"; do
		by_length "$name" && continue
		rm -rf "$name"
		"$GOLLM" eval merge --partial -o "$name" "${parts[@]/#/$name-}" >"$name.txt"
	done
	"$root/scripts/results.py" "$root/docs/results.md" "${runs[@]}"
}

# locked lets one call at a time do what concerns all parts.
locked() { (flock 9 && "$@") 9>lock; }

# by_length reports whether a run has a folder for each length.
by_length() { [[ $1 == walk* || $1 == schedules ]]; }

cd "$dir"
[[ " ${runs[*]} " == *" decode "* ]] && locked channels
for part in "${parts[@]}"; do
	started=()
	for name in "${runs[@]}"; do # two at a time
		if ((${#started[@]} > 1)); then
			wait "${started[0]}"
			started=("${started[1]}")
		fi
		if by_length "$name"; then lengthwise "$name" "$part" & else run "$name" "$part" & fi
		started+=($!)
	done
	for one in "${started[@]}"; do wait "$one"; done
	[[ ${TABLES:-} == no ]] && continue
	for name in "${runs[@]}"; do by_length "$name" || touch "done-$part"; done
	locked tables
done
((${#parts[@]})) || locked tables
