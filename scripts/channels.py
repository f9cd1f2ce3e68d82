#!/usr/bin/env python3
"""The ranking of channels that --attn doublesparsity reads.

  channels.py rank    MODEL.gguf --tokens IDS.json -o CHANNELS.npy
  channels.py convert CONFIG.json [--kind qk] -o CHANNELS.npy

rank runs the model over a text and ranks the channels of each layer and query
head by the mean of |q·k|, both of the same token and after rotation. It is
exact.py's forward pass in float64: a 1B model takes minutes for a thousand
tokens. IDS.json is an array of token ids, as `gollm tokenize` prints it.

convert takes a file of the Double Sparsity repository's config folder.

Both write float32 [layers, heads, channels], best first, numbered as in Hugging
Face models. NumPy is all that they need.
"""

import argparse
import json
import pathlib

import numpy as np

import exact


class Done(Exception):
    """The last layer's queries and keys are known."""


class Channels(exact.Model):
    """A model that adds up |q·k| of its channels."""

    def __init__(self, path):
        super().__init__(path)
        self.query, self.means = None, []

    def _rotated(self, x):
        x = super()._rotated(x)
        if self.query is None:  # queries come first, keys second
            self.query = x
            return x
        keys = np.repeat(x, self.heads // self.kv_heads, axis=1)
        self.means.append(np.abs(self.query * keys).mean(axis=0))
        self.query = None
        if len(self.means) == self.layers:
            raise Done
        return x


def rank(args):
    model = Channels(args.model)
    try:
        model.logits(np.array(json.loads(pathlib.Path(args.tokens).read_text())))
    except Done:
        pass
    means = np.stack(model.means)
    # A GGUF rotates neighbours, a Hugging Face model halves.
    means = np.concatenate([means[..., 0::2], means[..., 1::2]], axis=-1)
    return np.argsort(-means, axis=-1, kind="stable")


def convert(args):
    config = json.loads(pathlib.Path(args.config).read_text())
    end = f".self_attn.{args.kind}_proj"
    layers = {int(name.split(".")[-3]): ranks for name, ranks in config.items() if name.endswith(end)}
    if not layers or sorted(layers) != list(range(len(layers))):
        raise SystemExit(f"{args.config}: layers {sorted(layers)} have a name that ends in {end}, want 0, 1 and so on")
    return np.array([layers[i] for i in range(len(layers))])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("rank")
    p.add_argument("model")
    p.add_argument("--tokens", required=True)
    p.set_defaults(run=rank)
    p = commands.add_parser("convert")
    p.add_argument("config")
    p.add_argument("--kind", default="qk", choices=["q", "k", "qk"])
    p.set_defaults(run=convert)
    for p in commands.choices.values():
        p.add_argument("-o", dest="out", required=True)
    args = parser.parse_args()
    ranks = args.run(args)
    np.save(args.out, ranks.astype("<f4"))
    print(f"{args.out}: {' x '.join(map(str, ranks.shape))}")


if __name__ == "__main__":
    main()
