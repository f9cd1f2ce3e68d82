#!/usr/bin/env bash
# The demo: a small model finds one sentence in a text of 4,000 tokens, then
# another tells a story. Exits 1 if the answer is wrong. make demo builds bin/gollm
# before. Needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
prompt=testdata/demo-prompt.txt

# The last line of the prompt is "Answer: The magic number for plum is".
question=$(grep '^Question:' $prompt)
key=$(tail -n 1 $prompt | sed 's/^Answer: The //; s/ is$//')
kind=${key% for *} name=${key#* for }
needle=$(grep -o "One of the ${kind}s for $name is [0-9]*" $prompt)
want=${needle##* }

cat <<END

1. A needle in a haystack
   testdata/demo.gguf has 4 million weights and was trained for this project.
   It reads $(wc -w <$prompt) words, and somewhere among them: "$needle."
   $question

END
got=$(bin/gollm generate -m testdata/demo.gguf -f $prompt --temp 0 -n 16)
answer=$(sed 's/^ *//; s/\..*//; q' <<<"$got")
echo
if [ "$answer" != "$want" ]; then
	echo "   Answer: $answer. That is wrong: it is $want."
	exit 1
fi
cat <<END
   Answer: $answer. That is right.

2. A story
   testdata/stories260K.gguf has 260 thousand weights and knows children's stories.

END
printf "Once upon a time"
tell() { bin/gollm generate -m testdata/stories260K.gguf -p "Once upon a time" --temp 0 -n 200; }
if ! { stats=$(tell 2>&1 >&3); } 3>&1; then
	printf "\n%s\n" "$stats" >&2
	exit 1
fi
printf "\n\n%s\n" "$stats"
