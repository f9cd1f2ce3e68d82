"""The forward pass of Llama, Qwen2 and Qwen3 in float64, written from its definition.

Nothing here is fast and nothing is shared with the engine: it says what the
logits of a GGUF are, so that engines can be measured against it.
"""

import math

import numpy as np

import gguf


class Model:
    """A model with its weights expanded to float64."""

    def __init__(self, path):
        meta, self.tensors = gguf.read(path)
        arch = meta["general.architecture"]
        self.meta = {k.removeprefix(arch + "."): v for k, v in meta.items()}
        get = self.meta.get
        self.dim, self.layers = get("embedding_length"), get("block_count")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.head_dim = get("attention.key_length", self.dim // self.heads)
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.window = get("attention.sliding_window", 0)
        self.halves = arch != "llama"  # pair i is elements i and i + d/2, not 2i and 2i + 1
        self.rotate, self.mscale = self._rope()

    def logits(self, tokens):
        """The logits of every position, float64 [len(tokens), vocab]."""
        w = self._weight
        x = w("token_embd.weight")[tokens]
        for layer in range(self.layers):
            blk = f"blk.{layer}."
            x = x + self._attend(blk, self._norm(x, w(blk + "attn_norm.weight")))
            h = self._norm(x, w(blk + "ffn_norm.weight"))
            gate, up = h @ w(blk + "ffn_gate.weight").T, h @ w(blk + "ffn_up.weight").T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w(blk + "ffn_down.weight").T
        head = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        return self._norm(x, w("output_norm.weight")) @ w(head).T

    def _attend(self, blk, h):
        n, d = len(h), self.head_dim
        q, k, v = (h @ self._weight(f"{blk}attn_{c}.weight").T for c in "qkv")
        if f"{blk}attn_q.bias" in self.tensors:
            q, k, v = (x + self._weight(f"{blk}attn_{c}.bias") for x, c in zip((q, k, v), "qkv", strict=True))
        q, k, v = (x.reshape(n, -1, d) for x in (q, k, v))
        if f"{blk}attn_q_norm.weight" in self.tensors:
            q, k = (self._norm(x, self._weight(f"{blk}attn_{c}_norm.weight")) for x, c in ((q, "q"), (k, "k")))
        q, k = self._rotated(q), self._rotated(k)
        back = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = (back >= 0) & (back < (self.window or n))
        out = np.empty((n, self.heads, d))
        for head in range(self.heads):
            shared = head * self.kv_heads // self.heads
            scores = np.where(seen, q[:, head] @ k[:, shared].T / math.sqrt(d), -np.inf)
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = p / p.sum(axis=1, keepdims=True) @ v[:, shared]
        return out.reshape(n, -1) @ self._weight(blk + "attn_output.weight").T

    def _norm(self, x, weight):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * weight

    def _rotated(self, x):
        """Rotates the pairs of x, [positions, heads, head dim], by position."""
        angle = np.arange(len(x))[:, None, None] * self.rotate
        cos, sin = np.cos(angle) * self.mscale, np.sin(angle) * self.mscale
        if self.halves:
            a, b = np.split(x, 2, axis=-1)
            return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)

    def _rope(self):
        """The angle per position of every pair, and the length of a rotated unit vector."""
        get, d = self.meta.get, self.head_dim
        base, factor = get("rope.freq_base", 10000.0), get("rope.scaling.factor", 1.0)
        pair = np.arange(d // 2)
        freq = base ** (-2 * pair / d)
        if "rope_freqs.weight" in self.tensors:
            freq = freq / self._weight("rope_freqs.weight")
        kind = get("rope.scaling.type", "none")
        if kind == "none":
            return freq, 1.0
        if kind == "linear":
            return freq / factor, 1.0
        if kind != "yarn":
            raise SystemExit(f"rope scaling {kind} is not defined here")
        trained = get("rope.scaling.original_context_length")
        fast, slow = get("rope.scaling.yarn_beta_fast", 32.0), get("rope.scaling.yarn_beta_slow", 1.0)
        return yarn(freq, base, factor, trained, fast, slow)

    def _weight(self, name):
        return self.tensors[name].values()


def yarn(freq, base, factor, trained, fast=32.0, slow=1.0):
    """YaRN's angles per position and the length of a rotated unit vector.

    Pairs that turn often within the trained context keep their angle, those that turn
    less than once are interpolated, with a ramp between.
    """
    pairs = len(freq)

    def turning(turns):
        return pairs * math.log(trained / (turns * 2 * math.pi)) / math.log(base)

    low, high = max(0, math.floor(turning(fast))), min(2 * pairs - 1, math.ceil(turning(slow)))
    keep = 1 - np.clip((np.arange(pairs) - low) / max(0.001, high - low), 0, 1)
    return freq / factor * (1 - keep) + freq * keep, 1 + 0.1 * math.log(factor)
