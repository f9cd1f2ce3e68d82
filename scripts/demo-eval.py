#!/usr/bin/env python3
"""Adds llama.cpp's greedy answers to the demo model's prompts.

  demo-eval.py PROMPTS.jsonl testdata/demo.gguf testdata/demo-eval.jsonl.gz --peer 0,1,5

PROMPTS.jsonl is what eval/lab/demo/train.py data writes. Rows whose index is in
--peer get peer_tokens (max_new greedy ids), peer_text (the same as text),
peer_answer (the text before the first full stop or line end) and peer_lead (by
how much the least certain token of the answer led, in logits).
Run it with the Python that scripts/peer-env.sh makes.
"""

import argparse
import gzip
import json

import llamacpp


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompts")
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--peer", required=True, help="indices, separated by commas")
    a = parser.parse_args()
    selected = {int(i) for i in a.peer.split(",")}

    engine = llamacpp.Engine(a.model)
    rows = [json.loads(line) for line in open(a.prompts)]
    longest = max(r["length"] + r["max_new"] for r in rows if r["index"] in selected)
    context = engine.context(longest + 64, threads=1)
    for row in rows:
        if row["index"] not in selected:
            continue
        tokens = engine.tokenize(row["input"])
        if len(tokens) != row["length"]:
            raise SystemExit(f"prompt {row['index']}: {len(tokens)} tokens, want {row['length']}")
        out, leads = context.greedy(tokens, row["max_new"])
        ends = [i for i, t in enumerate(out) if set(".\n") & set(engine.text([t]))] + [len(out)]
        answer = engine.text(out).split(".")[0].split("\n")[0]
        lead = round(min(leads[: ends[0]]), 3)
        row |= dict(
            peer_tokens=out, peer_text=engine.text(out), peer_answer=answer, peer_lead=lead
        )
        print(row["index"], row["task"], row["length"], lead, repr(answer), flush=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with open(a.out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(lines.encode())


if __name__ == "__main__":
    main()
