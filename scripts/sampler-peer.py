"""What llama.cpp's samplers leave of a model's logits, and 10,000 of its draws.

    $(scripts/peer-env.sh) scripts/sampler-peer.py testdata/stories260K.gguf testdata/sampler.json

The file has the logits after a prompt, float32 in base64, the prompt's tokens, and for
each setting the tokens that are left with their probabilities, which are computed in
float64 from the logits that llama.cpp leaves, and how often it drew each. The names in a
setting are those of llama.cpp's flags; go test ./cpu -run TestSampleAgainstLlamaCpp -v
prints how gollm's draws and these agree.
"""

import base64
import ctypes
import json
import sys

import llama_cpp as lc
import numpy as np

import llamacpp

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play with her mom. One day, Lily and her mom went to the park and saw a"
DRAWS = 10_000
DEFAULTS = {
    "samplers": "penalties;top_k;top_p;min_p;temperature", "temp": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
    "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repeat_last_n": 64,
}
PENALTIES = {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3}
SETTINGS = {
    "defaults": {},
    "hot": {"temp": 1.5, "top_p": 0.9},
    "penalties": PENALTIES | {"temp": 1.0},
    "last": PENALTIES | {"repeat_last_n": 7, "temp": 1.2},
    "rewarded": {"repeat_penalty": 0.8, "frequency_penalty": -0.5, "min_p": 0.0},
    "all": {"temp": 1.3, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "topp": {"temp": 2.0, "top_k": 0, "top_p": 0.8, "min_p": 0.0},
    "minp": {"temp": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.02},
    "warm first": {"samplers": "temperature;top_k;top_p;min_p", "temp": 1.5, "top_p": 0.9},
    "mass first": {"samplers": "top_p;min_p;top_k;temperature", "temp": 1.5, "top_k": 5, "top_p": 0.9},
    "penalties later": PENALTIES | {"samplers": "top_k;penalties;min_p;top_p;temperature", "temp": 1.2, "top_k": 12},
    "penalties last": PENALTIES | {"samplers": "top_k;temperature;penalties", "temp": 2.0},
    "no temperature": {"samplers": "min_p", "min_p": 0.1},
    "greedy": {"temp": 0.0},
    "greedy penalties": PENALTIES | {"temp": 0.0},
    "greedy before penalties": PENALTIES | {"temp": 0.0, "samplers": "temperature;penalties"},
}


def chain(vocab, s, tokens):
    """The samplers of a setting, which have seen the tokens."""
    c = lc.llama_sampler_chain_init(lc.llama_sampler_chain_default_params())
    make = {
        "penalties": lambda: lc.llama_sampler_init_penalties(
            *([vocab] if len(lc.llama_sampler_init_penalties.argtypes) == 5 else []),
            s["repeat_last_n"], s["repeat_penalty"], s["frequency_penalty"], s["presence_penalty"]),
        "top_k": lambda: lc.llama_sampler_init_top_k(s["top_k"]),
        "top_p": lambda: lc.llama_sampler_init_top_p(s["top_p"], 0),
        "min_p": lambda: lc.llama_sampler_init_min_p(s["min_p"], 0),
        "temperature": lambda: lc.llama_sampler_init_temp(s["temp"]),
    }
    for name in s["samplers"].split(";"):
        lc.llama_sampler_chain_add(c, make[name]())
    for token in tokens:
        lc.llama_sampler_accept(c, token)
    return c


def apply(sampler, logits):
    """What a sampler leaves of the logits: ids, their logits, and which is selected."""
    data = (lc.llama_token_data * len(logits))()
    for i, logit in enumerate(logits):
        data[i].id, data[i].logit, data[i].p = i, logit, 0
    array = lc.llama_token_data_array(data, len(logits), -1, False)
    lc.llama_sampler_apply(sampler, ctypes.byref(array))
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    return left, array.data[array.selected].id if array.selected >= 0 else -1


def exact(left):
    """Ids that may be sampled and their probabilities, ascending by id."""
    top = max(logit for _, logit in left)
    weights = {i: float(np.exp(np.float64(logit) - top)) for i, logit in left}
    total = sum(weights.values())
    return {str(i): weights[i] / total for i in sorted(weights) if weights[i] > 0}


def main():
    path, out = sys.argv[1:]
    engine = llamacpp.Engine(path)
    tokens = engine.tokenize(PROMPT)
    context = engine.context(len(tokens) + 8, 1)
    logits = context.logits(tokens)[-1].astype("<f4")
    cases = []
    for name, changes in SETTINGS.items():
        s = DEFAULTS | changes
        c = chain(engine.vocab_size, s, tokens)
        left, _ = apply(c, logits)
        lc.llama_sampler_chain_add(c, lc.llama_sampler_init_dist(1))
        drawn = {}
        for _ in range(DRAWS):
            token = apply(c, logits)[1]
            drawn[token] = drawn.get(token, 0) + 1
        lc.llama_sampler_free(c)
        cases.append({"name": name, "setting": s, "left": exact(left), "drawn": {str(i): drawn[i] for i in sorted(drawn)}})
    with open(out, "w") as f:
        head = {"logits": base64.b64encode(logits.tobytes()).decode(), "tokens": tokens, "draws": DRAWS}
        f.write(json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
    print(f"{out}: {len(cases)} settings, {len(tokens)} tokens, {len(logits)} logits")


if __name__ == "__main__":
    main()
