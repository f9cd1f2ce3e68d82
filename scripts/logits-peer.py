#!/usr/bin/env python3
"""Logits to compare engines with.

  logits-peer.py peer    MODEL --tokens IDS.json -o OUT.f32   llama.cpp's logits
  logits-peer.py exact   MODEL --tokens IDS.json -o OUT.f32   float64, from the definition
  logits-peer.py compare A.f32 EXACT.f32 --vocab N            relative error, top-1 agreement
  logits-peer.py testdata DIR                                 the models and logits of testdata/logits

A .f32 file is [position][vocabulary], float32 little endian. IDS.json is an
array of token ids. Run it with the Python that scripts/peer-env.sh makes.
"""

import argparse
import json
import pathlib
import tempfile

import numpy as np

import exact
import gguf

SEED = 20250607
VOCAB, POSITIONS = 272, 32

# llama.cpp's file types for a model whose matrices all have one type.
FTYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 14,
    "Q5_K": 16, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30,
}  # fmt: skip

# Shapes: the width that the type's block allows, and no more, because the files are committed.
SMALL = dict(dim=64, ff=128, layers=2, heads=2, kv_heads=1, head_dim=32)
BLOCK32 = dict(dim=128, ff=160, layers=2, heads=4, kv_heads=2, head_dim=32)
BLOCK256 = dict(dim=256, ff=256, layers=2, heads=4, kv_heads=1, head_dim=64)

# What the plain models vary: metadata, or a tensor.
VARIANTS = {
    "untied": dict(tied=False),
    "head-dim": dict(head_dim=48),
    "rope-freqs": dict(rope_freqs=True),
    "rope-linear": dict(meta={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "rope-yarn": dict(
        meta={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        }
    ),
    "window": dict(meta={"attention.sliding_window": 12}),
}


def weights(shape, kind, seed, tied=True, rope_freqs=False):
    """Random tensors of unit gain, some rows and some columns louder than others."""
    draw = np.random.default_rng(seed)
    dim, ff = shape["dim"], shape["ff"]
    q, kv = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]

    def matrix(rows, cols):
        w = draw.standard_normal((rows, cols)) / np.sqrt(cols)
        w *= np.exp(0.3 * draw.standard_normal((rows, 1)))
        return gguf.plain(kind, w * np.where(draw.random(w.shape) < 0.01, 4, 1))

    def norm():
        return gguf.plain("F32", 1 + 0.2 * draw.standard_normal(dim))

    out = {"token_embd.weight": matrix(VOCAB, dim), "output_norm.weight": norm()}
    if not tied:
        out["output.weight"] = matrix(VOCAB, dim)
    if rope_freqs:
        out["rope_freqs.weight"] = gguf.plain("F32", np.geomspace(1, 8, shape["head_dim"] // 2))
    for layer in range(shape["layers"]):
        blk = f"blk.{layer}."
        out |= {
            blk + "attn_norm.weight": norm(),
            blk + "attn_q.weight": matrix(q, dim),
            blk + "attn_k.weight": matrix(kv, dim),
            blk + "attn_v.weight": matrix(kv, dim),
            blk + "attn_output.weight": matrix(dim, q),
            blk + "ffn_norm.weight": norm(),
            blk + "ffn_gate.weight": matrix(ff, dim),
            blk + "ffn_up.weight": matrix(ff, dim),
            blk + "ffn_down.weight": matrix(dim, ff),
        }
    return out


def metadata(shape, name, extra):
    """The metadata of a Llama model with a vocabulary of bytes and words."""
    words = [f"\u2581w{i}" for i in range(VOCAB - 259)]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + words
    kinds = [2, 3, 3] + [6] * 256 + [1] * len(words)
    llama = {
        "block_count": shape["layers"],
        "context_length": 256,
        "embedding_length": shape["dim"],
        "feed_forward_length": shape["ff"],
        "attention.head_count": shape["heads"],
        "attention.head_count_kv": shape["kv_heads"],
        "attention.key_length": shape["head_dim"],
        "attention.value_length": shape["head_dim"],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape["head_dim"],
        "rope.freq_base": 1000.0,
        "vocab_size": VOCAB,
    } | extra
    return {
        "general.architecture": "llama",
        "general.name": name,
        **{"llama." + k: v for k, v in llama.items()},
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(VOCAB)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def quantize(source, target, kind):
    """Writes source with every matrix in the given type, by llama.cpp's quantizer."""
    import ctypes

    import llama_cpp as lc

    lc.llama_backend_init()
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.nthread = FTYPES[kind], 1
    params.pure, params.quantize_output_tensor = True, True
    if lc.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)):
        raise SystemExit(f"llama.cpp cannot quantize {source} to {kind}")
    got = {t.kind for t in gguf.read(target)[1].values() if len(t.dims) == 2}
    if got != {kind}:
        raise SystemExit(f"{target} has {got}, want only {kind}")


def peer_logits(path, tokens):
    """llama.cpp's logits of every position, with its F16 cache and repacked weights."""
    import llamacpp

    engine = llamacpp.Engine(path)
    context = engine.context(max(256, len(tokens)), threads=1, ubatch=max(512, len(tokens)))
    out = context.logits(tokens)
    context.close()
    engine.close()
    return out


def distance(got, want):
    """The relative error of got and how often its largest logit is want's."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    return error, float((got.argmax(axis=1) == want.argmax(axis=1)).mean())


class Testdata:
    """Makes the models of a folder, their exact logits, and the manifest."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        draw = np.random.default_rng(SEED)
        self.tokens = [1] + [int(t) for t in draw.integers(3, VOCAB, POSITIONS - 1)]
        self.models = {}

    def make(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for kind in ("F32", "F16", "BF16"):
            self.plain(kind.lower(), kind, SMALL)
        for name, change in VARIANTS.items():
            self.plain(name, "F16", SMALL, **change)
        for kind in FTYPES:
            self.quantized(kind, BLOCK256 if gguf.TYPES[gguf.NUMBER[kind]][1] == 256 else BLOCK32)
        manifest = dict(
            tokens=self.tokens,
            layout="logits[pos][vocab], float32 little-endian, exact float64 forward of the "
            "dequantized weights rounded to float32",
            models=self.models,
        )
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")

    def plain(self, name, kind, shape, meta=None, head_dim=None, **tensors):
        shape = shape | (dict(head_dim=head_dim) if head_dim else {})
        meta, path = meta or {}, self.folder / f"{name}.gguf"
        parts = weights(shape, kind, SEED, **tensors)
        gguf.write(path, metadata(shape, name, meta), parts)
        note = None
        if "attention.sliding_window" in meta:  # llama.cpp ignores it for this architecture
            note = "llama.cpp's error on the same weights without the window, which it ignores"
        self.record(name, kind, note)

    def quantized(self, kind, shape):
        name = kind.lower()
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "source.gguf"
            gguf.write(source, metadata(shape, name, {}), weights(shape, "F32", SEED))
            quantize(source, self.folder / f"{name}.gguf", kind)
        self.record(name, kind)

    def record(self, name, kind, note=None):
        path = self.folder / f"{name}.gguf"
        model = exact.Model(path)
        want = model.logits(self.tokens)
        want.astype("<f4").tofile(self.folder / f"{name}.f32")
        if note:
            model.window = 0
            compared = model.logits(self.tokens)
        else:
            compared = want
        error, top1 = distance(peer_logits(path, self.tokens), compared)
        self.models[name] = dict(
            file=f"{name}.gguf",
            logits=f"{name}.f32",
            shape=list(want.shape),
            weights=kind,
            peer_relative_error=float(f"{error:.4g}"),
            peer_top1=round(top1, 4),
        ) | ({"peer_note": note} if note else {})
        print(f"{name:12} llama.cpp: relative error {error:.5f}, top-1 {top1:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Logits to compare engines with.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("peer", "exact"):
        p = commands.add_parser(name)
        p.add_argument("model")
        p.add_argument("--tokens", required=True)
        p.add_argument("-o", "--out", required=True)
    p = commands.add_parser("compare")
    p.add_argument("got")
    p.add_argument("want")
    p.add_argument("--vocab", type=int, required=True)
    commands.add_parser("testdata").add_argument("folder")
    a = parser.parse_args()

    if a.command == "testdata":
        Testdata(a.folder).make()
    elif a.command == "compare":
        got, want = (np.fromfile(f, "<f4").reshape(-1, a.vocab) for f in (a.got, a.want))
        error, top1 = distance(got, want)
        print(f"relative error {error:.6f}, top-1 agreement {top1:.4f}, positions {len(want)}")
    else:
        tokens = json.loads(pathlib.Path(a.tokens).read_text())
        run = peer_logits if a.command == "peer" else lambda m, t: exact.Model(m).logits(t)
        run(a.model, tokens).astype("<f4").tofile(a.out)


if __name__ == "__main__":
    main()
