#!/usr/bin/env python3
"""Writes model/testdata/yarn.json: YaRN's frequencies by scripts/exact.py, in float64.

  yarn-vectors.py model/testdata/yarn.json

Needs numpy: the Python of scripts/peer-env.sh has it.
"""

import json
import pathlib
import sys

import numpy as np

import exact

# Dimensions of a head, base, trained context, and the ramp's two borders in rotations.
MODELS = [(64, 10000.0, 4096, 32.0, 1.0), (128, 1000000.0, 32768, 32.0, 1.0), (128, 500000.0, 8192, 16.0, 2.0)]


def main():
    cases = []
    for dims, base, trained, fast, slow in MODELS:
        freq = base ** (-2 * np.arange(dims // 2) / dims)
        for factor in (1.0, 4.0, 8.0, 40.0):
            freqs, scale = exact.yarn(freq, base, factor, trained, fast, slow)
            freqs = [float(f"{f:.9g}") for f in freqs]
            cases.append(dict(dims=dims, base=base, trained=trained, fast=fast, slow=slow, factor=factor, scale=scale, freqs=freqs))
    pathlib.Path(sys.argv[1]).write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
