#!/usr/bin/env python3
"""Writes testdata/families.json: what llama.cpp and numpy make of random models.

  family-peer.py testdata/families.json

A model of every family and every type of weights, which tests make anew by package
model/randommodel: the file's hash says that theirs is the same. Of each:

  error    llama.cpp's relative error of the logits of "tokens", F16 cache
  exact    the first logits of the last position, float64 (scripts/exact.py)
  prompt   of those tried, the one behind which llama.cpp's greedy ids are the most certain
  greedy   these ids; text: what they say; lead: by how many logits the least certain led

Run it in the root of the repository, with the Python that scripts/peer-env.sh makes.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import exact
import llamacpp

SHAPES = ["tiny-nemo", "tiny-qwen2", "tiny-qwen3", "tiny-yarn"]
TYPES = "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs".split()
VOCAB, POSITIONS, STEPS, PROMPTS, EXACT = 320, 16, 8, 64, 16


def model(path, tokens, prompts):
    """What is recorded of a file."""
    want = exact.Model(path).logits(tokens)
    engine = llamacpp.Engine(path)
    context = engine.context(256, threads=1)
    got = context.logits(tokens).astype(np.float64)
    answers = [context.greedy(p, STEPS) for p in prompts]
    best = max(range(len(prompts)), key=lambda i: min(answers[i][1]))
    ids, leads = answers[best]
    text = engine.text(ids)
    context.close()
    engine.close()
    return dict(
        sha256=hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest(),
        error=float(f"{np.linalg.norm(got - want) / np.linalg.norm(want):.4g}"),
        exact=[float(f"{x:.9g}") for x in want[-1, :EXACT]],
        prompt=prompts[best],
        greedy=ids,
        text=text,
        lead=round(min(leads), 4),
    )


def main():
    draw = np.random.default_rng(20260101)

    def ids(n):
        return [1] + [int(t) for t in draw.integers(3, VOCAB, n - 1)]

    tokens, prompts = ids(POSITIONS), [ids(6) for _ in range(PROMPTS)]
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["go", "build", "-o", folder, "./eval/lab/randommodel"], check=True)
        for shape in SHAPES:
            for kind in TYPES:
                path = f"{folder}/model.gguf"
                subprocess.run([f"{folder}/randommodel", "-shape", shape, "-type", kind, "-o", path], check=True)
                models[f"{shape}/{kind}"] = m = model(path, tokens, prompts)
                print(f"{shape}/{kind}: llama.cpp's error {m['error']}, greedy ids lead by {m['lead']}", flush=True)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(m)}" for name, m in models.items())
    head = f'"tokens": {json.dumps(tokens)}'
    pathlib.Path(sys.argv[1]).write_text(f'{{{head},\n"models": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
