#!/usr/bin/env python3
"""Compares the greedy answers of a run of gollm eval ruler with those of llama.cpp.

  ruler-peer.py testdata/ruler.gguf RUN/0-dense RUN/prompts --each 2

Run it with the Python that scripts/peer-env.sh makes. For each task and length the
first prompts are asked; the number of tokens of the prompt is compared too.
"""

import argparse
import glob
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../scripts"))
import llamacpp

END = 1  # the token that ends an answer


def lines(path, n):
    with open(path) as f:
        return [json.loads(line) for _, line in zip(range(n), f)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("answers")
    parser.add_argument("prompts")
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--longest", type=int, default=4096)
    a = parser.parse_args()
    engine = llamacpp.Engine(a.model)
    same = total = counted = 0
    for path in sorted(glob.glob(f"{a.answers}/*/pred/*.jsonl")):
        length, task = path.split("/")[-3], os.path.basename(path)[:-6]
        if int(length) > a.longest:
            continue
        context = engine.context(int(length) + 192, threads=2)
        rows = lines(f"{a.prompts}/{length}/data/{task}/validation.jsonl", a.each)
        for ours, row in zip(lines(path, a.each), rows):
            tokens = engine.tokenize(row["input"] + row["answer_prefix"])
            room = int(row["length"]) - len(tokens) + 1  # length has no BOS but room for an answer
            out, leads = context.greedy(tokens, ours["gollm"]["new_tokens"] + 1)
            text = engine.text(out[: out.index(END)] if END in out else out)
            counted += room in (30, 50, 120, 128)
            same += text.strip() == ours["pred"].strip()
            total += 1
            if text.strip() != ours["pred"].strip():
                print(f"{task} at {length}: least lead {min(leads):.3f}\n  ours {ours['pred']!r}\n  peer {text!r}")
    print(f"{same} of {total} answers are the same, {counted} prompts have as many tokens")


if __name__ == "__main__":
    main()
