#!/usr/bin/env python3
"""Times PyTorch's causal scaled_dot_product_attention on the shapes of the attention
benchmarks of package cuda, to put beside them:

    go test -tags cuda -run '^$' -bench PrefillDense ./cuda
    scripts/sdpa.py

Prints a line per length and backend: milliseconds and TFLOP/s, half of the square
counted. "default" is what PyTorch chooses by itself. Needs torch and a GPU.
"""
import argparse
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"default": None, "cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def milliseconds(run, reps):
    """The median time of a run, after two that do not count."""
    for _ in range(2):
        run()
    times = []
    for _ in range(reps):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lengths", type=int, nargs="+", default=[8192, 32768, 131072])
    p.add_argument("--heads", type=int, default=32)
    p.add_argument("--kv-heads", type=int, default=8)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--reps", type=int, default=5)
    a = p.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {a.heads} heads, {a.kv_heads} kv heads of {a.dim}, f16")
    for n in a.lengths:
        q = torch.randn(1, a.heads, n, a.dim, device="cuda", dtype=torch.float16)
        k, v = (torch.randn(1, a.kv_heads, n, a.dim, device="cuda", dtype=torch.float16) for _ in range(2))
        for name, backend in BACKENDS.items():

            def run():
                return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

            try:
                if backend is None:
                    t = milliseconds(run, a.reps)
                else:
                    with sdpa_kernel(backend):
                        t = milliseconds(run, a.reps)
            except RuntimeError as err:
                print(f"n={n:<7} {name:<8} {str(err).splitlines()[0]}")
                continue
            print(f"n={n:<7} {name:<8} {t:9.3f} ms {2 * a.heads * a.dim * n * n / t / 1e9:6.0f} TFLOP/s")


if __name__ == "__main__":
    main()
