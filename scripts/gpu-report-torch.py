#!/usr/bin/env python3
"""The time of PyTorch's scaled_dot_product_attention on the shapes of gpu-report.sh.

Prints JSON: the version of PyTorch, and milliseconds of one layer, the median of
several runs timed with events, on random F16 tensors with the keys and values in one
piece.
"""
import json
import statistics

import torch
import torch.nn.functional as F


def median_ms(call, runs):
    for _ in range(3):
        call()
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def random(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def attention(batch, heads, kv_heads, queries, keys, runs):
    """One layer: queries are the last of the keys."""
    q, k, v = random(batch, heads, queries, 128), random(batch, kv_heads, keys, 128), random(batch, kv_heads, keys, 128)
    return median_ms(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=queries > 1, enable_gqa=heads != kv_heads), runs)


def main():
    k = 1024
    ms = {
        "prefill-32k": attention(1, 32, 8, 32 * k, 32 * k, 5),
        "prefill-128k": attention(1, 32, 8, 128 * k, 128 * k, 2),
        "decode-32k": attention(1, 32, 8, 1, 32 * k, 30),
        "decode-128k": attention(1, 32, 8, 1, 128 * k, 30),
        "wide-2k": attention(16, 32, 32, 1, 2 * k, 30),
        "wide-4k": attention(16, 32, 32, 1, 4 * k, 30),
    }
    print(json.dumps({"version": torch.__version__, "ms": ms}))


if __name__ == "__main__":
    main()
