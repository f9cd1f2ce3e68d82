#!/usr/bin/env python3
"""Trains small Llamas that answer the tasks of RULER: testdata/ruler.gguf, and one of 16 layers.

  ruler.py vocab --rows ROWS                 the vocabulary         -> ruler-vocab.json
  ruler.py train --rows ROWS --out DIR       to the end of the schedule, or of --minutes; the
                                             same command again goes on -> DIR/weights-*.bin, state.json, log.jsonl
  ruler.py export --out DIR --gguf FILE      Q8_0                   -> FILE

--model deep is the one of 16 layers; --gpus N shares the batches of it among N.
ROWS is the program that makes the rows: CGO_ENABLED=0 go build -o ROWS ./eval/lab/demo/rows.
Training needs torch and a GPU of about 20 GB (deep: 40); ruler.md beside this has the figures.
"""

import argparse
import collections
import dataclasses
import json
import math
import os
import queue
import re
import subprocess
import sys
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
VOCAB = os.path.join(HERE, "ruler-vocab.json")
WORDS = os.path.join(HERE, "..", "..", "ruler", "words")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import gguf  # noqa: E402  ours, beside this project's other scripts

# ---------------------------------------------------------------- vocabulary

# The pre-tokenizer llama-bpe, for ASCII.
PIECES = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS, LOWER = "0123456789", "abcdefghijklmnopqrstuvwxyz"
UPPER = LOWER.upper()


def alphabet():
    """The character that stands for each byte in a byte-level vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in shown}
    hidden = (b for b in range(256) if b not in table)
    return table | {b: chr(256 + i) for i, b in enumerate(hidden)}


BYTE = alphabet()
BLANK = BYTE[32]


def forced():
    """Merges that come first: numbers are cut into threes, and what RULER makes of
    random letters begins with a token of two letters, which tells words apart."""
    merges = [f"{a} {b}" for a in DIGITS for b in DIGITS]
    merges += [f"{a}{b} {c}" for a in DIGITS for b in DIGITS for c in DIGITS]
    for letters in UPPER, LOWER:
        merges += [f"{BLANK} {a}" for a in letters]
        merges += [f"{BLANK}{a} {b}" for a in letters for b in letters]
    merges += [f"{a} {b}" for a in UPPER for b in UPPER]
    return merges + [f"{BLANK} .", f"{BLANK}. .", f"{BLANK}.. ."]


def apply(merge, symbols):
    """symbols with every pair that the merge names joined."""
    left, right = merge.split(" ")
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and symbols[i] == left and symbols[i + 1] == right:
            out.append(left + right)
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Merger:
    """Byte pair encoding over counted words."""

    def __init__(self, counts):
        self.words = [[BYTE[b] for b in w.encode()] for w in counts]
        self.counts = list(counts.values())
        self.pairs = collections.Counter()
        self.where = collections.defaultdict(set)
        for i in range(len(self.words)):
            self.count(i, 1)

    def count(self, i, sign):
        symbols = self.words[i]
        for pair in zip(symbols, symbols[1:]):
            self.pairs[pair] += sign * self.counts[i]
            self.where[pair].add(i)

    def merge(self, merge):
        for i in list(self.where.pop(tuple(merge.split(" ")), ())):
            self.count(i, -1)
            self.words[i] = apply(merge, self.words[i])
            self.count(i, 1)

    def best(self):
        return " ".join(max(self.pairs, key=lambda p: (self.pairs[p], p)))


def make_vocab(a):
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    base = special + [BYTE[b] for b in range(256)]
    first = forced()
    with open(a.vocab, "w") as f:
        json.dump(dict(tokens=base + [m.replace(" ", "") for m in first], merges=first), f)
    recipes = "needles:3,niah_single_1:.3,niah_multikey_1:1,niah_multiquery:1,niah_multivalue:1,cwe:2,vt:1,fwe:.3,text:1"
    command = [a.rows, "-texts", "-vocab", a.vocab, "-lengths", "1500:1", "-recipes", recipes]
    texts = subprocess.run(command + ["-count", "1500"], check=True, stdout=subprocess.PIPE).stdout
    counts = collections.Counter()
    for line in texts.splitlines():
        counts.update(PIECES.findall(json.loads(line)))
    for name in "adjective", "noun", "verb":
        for word in open(f"{WORDS}/{name}list.txt").read().split():
            counts.update({" " + word: 8, "-" + word: 4 * (name == "noun")})
    counts = {w: n for w, n in counts.items() if n > 2 and not w.isdigit()}
    last = [f"{x} {y}" for x in LOWER for y in LOWER]
    merges, merger = first, Merger(counts)
    for merge in merges:
        merger.merge(merge)
    known = set(merges)
    while len(base) + len(known | set(last)) < a.size:
        merge = merger.best()
        merger.merge(merge)
        merges.append(merge)
        known.add(merge)
    merges += [m for m in last if m not in known]
    tokens = base + [m.replace(" ", "") for m in merges]
    assert len(set(tokens)) == len(tokens) == a.size, (len(set(tokens)), len(tokens))
    with open(a.vocab, "w") as f:
        json.dump(dict(tokens=tokens, merges=merges), f, separators=(",", ":"))
        f.write("\n")
    print(f"{a.vocab}: {len(tokens)} tokens")


# ------------------------------------------------------------------- stages

NATIVE = (
    "niah_single_1:.5,niah_single_2:.5,niah_single_3:.7,niah_multikey_1:.7,niah_multikey_2:1.2,"
    "niah_multikey_3:1.6,niah_multivalue:1.4,niah_multiquery:1,vt:1.2,cwe:1.4,fwe:1.2"
)
# What is known early.
EASY = "needles:1,niah_single_1:.3,niah_single_2:.3,niah_single_3:.3,niah_multikey_1:.3,niah_multikey_2:.7,niah_multikey_3:1,niah_multiquery:.4"
# What fits 512 tokens.
SHORT = NATIVE.replace(",vt:1.2,cwe:1.4", "")
# Of a stage: batches, tokens of a row and recipes with their weights, learning rate at the
# beginning and at the end.
STAGES = [
    (800, "256:1", "needles:8,text:.5", 1, 1),
    (1300, "512:1", f"needles:4,common:2,text:.1,{SHORT}", 1, 1),
    (2800, "512:1", "common:6,fwe:5,niah_multivalue:3,needles:2,niah_multikey_3:.7,niah_multiquery:.5,niah_single_3:.3", 1, 1),
    (2500, "1024:1", f"needles:2,common:1,text:.1,{NATIVE}", 1, 1),
    (2600, "1024:1", f"common:2,cwe:4,fwe:4,niah_multivalue:2,vt:.6,{EASY}", 1, 1),
    (3000, "1024:1,2048:2,4096:2", f"needles:1,common:.5,text:.1,{NATIVE}", 1, 1),
    (11000, "1024:1,2048:2,4096:2.5,8192:2.5,16384:.6", f"cwe:2.5,fwe:2.5,niah_multivalue:1.2,vt:.7,{EASY}", 1, 0),
]
# With 32,768 tokens, and lists of lines to repeat.
LONG = f"recite:1.5,cwe:2,fwe:2,niah_multivalue:1.2,vt:1,{EASY}"
DEEP_STAGES = [
    (700, "256:1", "needles:8,recite:1,text:.5", 1, 1),
    (1200, "512:1", f"needles:4,common:2,recite:.7,text:.1,{SHORT}", 1, 1),
    (2400, "512:1", "common:6,fwe:5,niah_multivalue:3,needles:2,recite:.5,niah_multikey_3:.7,niah_multiquery:.5,niah_single_3:.3", 1, 1),
    (2000, "1024:1", f"needles:2,common:1,recite:.7,text:.1,{NATIVE}", 1, 1),
    (2200, "1024:1", f"common:2,cwe:4,fwe:4,niah_multivalue:2,recite:.5,vt:.6,{EASY}", 1, 1),
    (2500, "1024:1,2048:2,4096:2", f"needles:1,common:.5,recite:1,text:.1,{NATIVE}", 1, 1),
    (8000, "1024:1,2048:2,4096:2.5,8192:2.5,16384:.8,32768:.5", LONG, 1, 0),
]


@dataclasses.dataclass
class Model:
    """The shape of a model and how it is trained."""

    name: str
    layers: int
    dim: int
    heads: int
    kv: int  # heads of K and V
    hidden: int
    context: int
    stages: list
    head: int = 64  # width of a head

    def matrices(self):
        """The shapes of a layer's matrices."""
        q, k = self.heads * self.head, self.kv * self.head
        return dict(
            q=(q, self.dim), k=(k, self.dim), v=(k, self.dim), o=(self.dim, q),
            gate=(self.hidden, self.dim), up=(self.hidden, self.dim), down=(self.dim, self.hidden),
        )

    def shapes(self, vocab):
        """Every tensor of the model; those of all layers are one."""
        layers = {name: (self.layers, *shape) for name, shape in self.matrices().items()}
        norms = dict(norm1=(self.layers, self.dim), norm2=(self.layers, self.dim), norm=(self.dim,))
        return dict(embed=(vocab, self.dim), **layers, **norms)


MODELS = dict(
    ruler=Model("gollm ruler", 8, 384, 6, 2, 768, 16384, STAGES),
    deep=Model("gollm ruler deep", 16, 384, 8, 2, 1024, 32768, DEEP_STAGES),
)
BATCH = 65536  # tokens; a schedule counts such batches, of which a step may take several
CHOICES = 64  # of a row
LOSSES = 12288  # positions of a batch whose loss counts
TEXT = 0.15  # weight of the loss on text beside that on answers
ITEM = 3  # weight of a token that picks an item of an answer


class Rows:
    """The batches of a stage, made by the program beside this one."""

    def __init__(self, a, stage, first, seed):
        steps, lengths, recipes, _, _ = a.model.stages[stage]
        self.names = [r.split(":")[0] for r in recipes.split(",")]
        command = [a.rows, "-vocab", a.vocab, "-lengths", lengths, "-recipes", recipes]
        command += ["-tokens", str(BATCH * a.batches // a.gpus), "-seed", str(seed), "-first", str(first)]
        command += ["-count", str(-(-(steps - first) // a.batches))]
        self.process = subprocess.Popen(command + ["-workers", str(a.workers)], stdout=subprocess.PIPE, bufsize=1 << 22)
        self.queue, self.rng = queue.Queue(16), np.random.default_rng(seed)
        threading.Thread(target=self.read, daemon=True).start()

    def take(self, kind, *shape):
        n = int(np.prod(shape)) * np.dtype(kind).itemsize
        data = self.process.stdout.read(n)
        if len(data) < n:
            raise EOFError
        return np.frombuffer(data, kind).reshape(shape)

    def read(self):
        try:
            while True:
                self.queue.put(self.batch())
        except EOFError:
            self.queue.put(None)

    def close(self):
        self.process.kill()

    def batch(self):
        """Ids and, of the positions whose loss counts: where they are, the next
        token, the weight, and further tokens that are right there."""
        length, rows = map(int, self.take("<u4", 2))
        ids = self.take("<u2", rows, length).astype(np.int64)
        choices = self.take("<u2", rows, CHOICES, 2).astype(np.int64)
        classes, recipes = self.take("u1", rows, length), self.take("u1", rows)
        what = np.zeros(rows * length, np.uint8)  # class of the token after each
        what.reshape(rows, length)[:, :-1] = classes[:, 1:]
        answer, text = np.flatnonzero(what > 1), np.flatnonzero(what == 1)
        if len(answer) > LOSSES - 256:
            answer = self.rng.choice(answer, LOSSES - 256, replace=False)
        text = self.rng.choice(text, min(LOSSES - len(answer), len(text)), replace=False)
        at = np.sort(np.concatenate([answer, text]))
        weight = np.select([what[at] == 3, what[at] == 2], [ITEM, 1.0], 0.0)
        weight /= weight.sum()
        weight[what[at] == 1] = TEXT / max(1, len(text))
        row, slot = np.nonzero(choices[:, :, 0] != 0xFFFF)
        flat = row * length + choices[row, slot, 0] - 1
        found = np.searchsorted(at, flat)
        keep = (found < len(at)) & (at[np.minimum(found, len(at) - 1)] == flat)
        also = np.stack([found[keep], choices[row, slot, 1][keep]])
        return dict(
            length=length, ids=ids, at=at, target=ids.reshape(-1)[at + 1], weight=weight.astype(np.float32),
            also=also, row=at // length, answer=what[at] > 1, item=what[at] == 3, recipes=[self.names[i] for i in recipes],
        )

    def __iter__(self):
        while (b := self.queue.get()) is not None:
            yield b


# -------------------------------------------------------------------- model

DEVICE = "cuda"
THETA, EPS = 500000.0, 1e-5


def start(model, vocab, seed):
    """Random weights, float32."""
    rng, w = np.random.default_rng(seed), {}
    for name, shape in model.shapes(vocab).items():
        if name.startswith("norm"):
            w[name] = np.ones(shape)
        elif name == "embed":
            w[name] = rng.normal(0, 0.04, shape)
        else:
            scale = 0.1 if name in ("o", "down") else 1
            w[name] = rng.normal(0, scale / math.sqrt(shape[-1]), shape)
    return {name: x.astype(np.float32) for name, x in w.items()}


PART = 15 << 20  # bytes of a file of weights


def tensors(w):
    """The tensors as the model's file has them: norms in F32, the rest in Q8_0."""
    return {name: gguf.plain("F32", x) if name.startswith("norm") else gguf.q8_0(x) for name, x in w.items()}


def load(folder, model, vocab):
    """Weights that save wrote, and the stage and batch to go on with."""
    state = json.load(open(f"{folder}/state.json"))
    data = b"".join(open(f"{folder}/weights-{i}.bin", "rb").read() for i in range(state["files"]))
    data, at, w = np.frombuffer(data, np.uint8), 0, {}
    for name, shape in model.shapes(vocab).items():
        n = int(np.prod(shape))
        kind, size = ("F32", 4 * n) if name.startswith("norm") else ("Q8_0", n // 32 * 34)
        w[name] = gguf.dequantize(kind, data[at : at + size]).astype(np.float32).reshape(shape)
        at += size
    assert at == len(data), (at, len(data))
    return w, state


def save(folder, w, state):
    """Writes weights and how far training has come; a half-written state is never read."""
    data = np.concatenate([t.raw for t in tensors(w).values()]).tobytes()
    files = -(-len(data) // PART)
    for i in range(files):
        with open(f"{folder}/weights-{i}.bin", "wb") as f:
            f.write(data[i * PART : (i + 1) * PART])
    with open(f"{folder}/state.part", "w") as f:
        json.dump(state | dict(files=files), f)
    os.replace(f"{folder}/state.part", f"{folder}/state.json")


def build(model, w, torch):
    """The model on the GPU: its parameters and the function of a batch's loss."""
    import torch.nn.functional as F

    p = {name: torch.nn.Parameter(torch.tensor(x, device=DEVICE)) for name, x in w.items()}
    heads, kv, width = model.heads, model.kv, model.head
    angle = THETA ** (-torch.arange(0, width, 2, device=DEVICE).double() / width)
    angles = torch.arange(model.context, device=DEVICE).double()[:, None] * angle
    cos, sin = angles.cos().float(), angles.sin().float()

    def norm(x, weight):
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight).bfloat16()

    def rotate(x, c, s):
        a, b = x.float().unflatten(-1, (width // 2, 2)).unbind(-1)
        c, s = c[:, None], s[:, None]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2).bfloat16()

    @torch.compile(dynamic=False)
    def before(x, weight, q, k, v, c, s):
        y = norm(x, weight)
        q, k, v = (y @ m.t() for m in (q, k, v))
        return rotate(q.view(-1, heads, width), c, s), rotate(k.view(-1, kv, width), c, s), v.view(-1, kv, width)

    @torch.compile(dynamic=False)
    def after(x, a, o, weight, gate, up, down):
        x = x + (a @ o.t()).float()
        y = norm(x, weight)
        return x + ((F.silu(y @ gate.t()) * (y @ up.t())) @ down.t()).float()

    tables = {}

    def hidden(ids):
        rows, length = ids.shape
        if length not in tables:
            tables[length] = [t[:length].repeat(rows, 1) for t in (cos, sin)]
        c, s = tables[length]
        m = {name: p[name].bfloat16().unbind(0) for name in model.matrices()}
        n1, n2 = p["norm1"].unbind(0), p["norm2"].unbind(0)
        x = F.embedding(ids.reshape(-1), p["embed"])
        for i in range(model.layers):
            parts = before(x, n1[i], m["q"][i], m["k"][i], m["v"][i], c, s)
            q, k, v = (t.view(rows, length, -1, width).transpose(1, 2) for t in parts)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            a = a.transpose(1, 2).reshape(rows * length, -1)
            x = after(x, a, m["o"][i], n2[i], m["gate"][i], m["up"][i], m["down"][i])
        return x

    def loss(b):
        """The loss, and for each position whether the likeliest token is right."""
        y = norm(hidden(b["ids"])[b["at"]], p["norm"])
        logits = (y @ p["embed"].bfloat16().t()).float()
        with torch.no_grad():
            at, token = b["also"]
            best = logits.argmax(-1)
            ok = best == b["target"]
            ok = ok.index_put((at,), (best[at] == token), accumulate=True)
        loss = F.cross_entropy(logits, b["target"], reduction="none")
        return (loss * b["weight"]).sum(), ok

    return p, loss


class Optimizer:
    """Muon for the matrices, Adam for the rest."""

    def __init__(self, p, matrices, torch, muon, adam):
        self.torch, self.muon, self.adam, self.step_number = torch, muon, adam, 0
        self.matrices = [p[name] for name in matrices]
        self.rest = [x for name, x in p.items() if name not in matrices]
        self.momentum = [torch.zeros_like(x) for x in self.matrices]
        self.mean = [torch.zeros_like(x) for x in self.rest]
        self.square = [torch.zeros_like(x) for x in self.rest]

    def orthogonal(self, g):
        """Newton-Schulz: each matrix with its singular values near one."""
        x = g.bfloat16()
        tall = x.shape[1] > x.shape[2]
        x = x.mT if tall else x
        x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).bfloat16()
        for _ in range(5):
            square = x @ x.mT
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return (x.mT if tall else x).float()

    def step(self, scale):
        with self.torch.no_grad():
            self.step_number += 1
            t = self.step_number
            for x, m in zip(self.matrices, self.momentum):
                m.mul_(0.95).add_(x.grad)
                u = self.orthogonal(x.grad + 0.95 * m)
                x.mul_(1 - 0.01 * self.muon * scale)
                x.add_(u, alpha=-self.muon * scale * max(1, x.shape[1] / x.shape[2]) ** 0.5)
            for x, a, b in zip(self.rest, self.mean, self.square):
                a.mul_(0.9).add_(x.grad, alpha=0.1)
                b.mul_(0.98).addcmul_(x.grad, x.grad, value=0.02)
                x.addcdiv_(a / (1 - 0.9**t), (b / (1 - 0.98**t)).sqrt_().add_(1e-9), value=-self.adam * scale)
            for x in self.matrices + self.rest:
                x.grad = None


# ----------------------------------------------------------------- training


def put(b, torch):
    """The arrays of a batch on the GPU."""
    return b | {
        name: torch.from_numpy(b[name]).to(DEVICE, non_blocking=True)
        for name in ("ids", "at", "target", "weight", "also")
    }


class Scores:
    """The share of rows of each recipe and length with a whole answer right, the
    share of items, and how many rows there were. What came before a token in an
    answer is given, so that an answer of the model's own can be worse."""

    def __init__(self):
        self.rows = collections.defaultdict(lambda: np.zeros(4))

    def add(self, b, ok):
        ok = ok.cpu().numpy()
        size = len(b["recipes"])
        wrong = np.bincount(b["row"][b["answer"] & ~ok], minlength=size) > 0
        items = np.bincount(b["row"][b["item"]], minlength=size)
        right = np.bincount(b["row"][b["item"] & ok], minlength=size)
        for row, recipe in enumerate(b["recipes"]):
            self.rows[f"{recipe}@{b['length']}"] += (not wrong[row], right[row], items[row], 1)

    def take(self):
        out = {}
        for key, (whole, right, items, rows) in sorted(self.rows.items()):
            out[key] = f"{100 * whole / rows:.0f}/{100 * right / max(items, 1):.0f}/{rows:.0f}"
        self.rows.clear()
        return out


class Clock:
    """How far a call may go: --minutes, in which the model must be saved, too."""

    def __init__(self, minutes):
        self.began, self.seconds = time.time(), 60 * minutes or math.inf

    def spent(self):
        return time.time() - self.began


def train(a):
    """Trains on one GPU, or starts a process for each of several."""
    if a.gpus == 1:
        return work(0, a)
    import torch.multiprocessing as processes

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    processes.spawn(work, (a,), a.gpus)


def work(rank, a):
    """Trains on GPU number rank with its share of every batch."""
    import torch

    torch.cuda.set_device(rank)
    if a.gpus > 1:
        torch.distributed.init_process_group("nccl", rank=rank, world_size=a.gpus)
    torch.backends.cuda.matmul.allow_tf32 = True
    vocab = len(json.load(open(a.vocab))["tokens"])
    w, state = start(a.model, vocab, a.seed), dict(stage=0, step=0, number=0, seconds=0)
    if os.path.exists(f"{a.out}/state.json"):
        w, state = load(a.out, a.model, vocab)
    p, loss = build(a.model, w, torch)
    o = Optimizer(p, a.model.matrices(), torch, a.muon, a.adam)
    log = open(f"{a.out}/log.jsonl" if rank == 0 else os.devnull, "a")
    if rank == 0:
        print("parameters", sum(x.numel() for x in p.values()), "from", state, flush=True)
    clock = Clock(a.minutes)

    def keep():
        if rank == 0:
            save(a.out, {name: x.detach().cpu().numpy() for name, x in p.items()}, state | dict(seconds=state["seconds"] + round(clock.spent())))

    going = True
    for stage in range(state["stage"], len(a.model.stages)):
        if stage > state["stage"]:
            state |= dict(stage=stage, step=0)
        going = run_stage(a, rank, torch, state, p, loss, o, log, clock, keep)
        if not going:
            break
    if going:
        state["stage"] = len(a.model.stages)
    keep()
    if rank == 0:
        print(f"{clock.spent():.0f} s", "to be continued" if not going else "and done", state, flush=True)


def run_stage(a, rank, torch, state, p, loss, o, log, clock, keep):
    """Trains one stage from batch state["step"] on; False where time is up before its end."""
    steps, _, _, first, last = a.model.stages[state["stage"]]
    rows = Rows(a, state["stage"], state["step"], (a.seed * 100 + state["stage"]) * 100 + rank)
    scores, total, stop = Scores(), 0.0, torch.zeros(1, device=DEVICE)
    for b in rows:
        value, ok = loss(put(b, torch))
        value.backward()
        if o.step_number % 20 == 0:  # all stop together
            stop.fill_(clock.spent() > clock.seconds - a.reserve)
            if a.gpus > 1:
                torch.distributed.all_reduce(stop, torch.distributed.ReduceOp.MAX)
            if stop.item() > 0:
                rows.close()
                return False
        if a.gpus > 1:
            for x in p.values():
                torch.distributed.all_reduce(x.grad, torch.distributed.ReduceOp.AVG)
        state["number"] += a.batches
        o.step((first + (last - first) * state["step"] / steps) * min(1, o.step_number / 100))
        state["step"] += a.batches
        total += value.detach()
        if rank == 0 and o.step_number % 5 == 0:
            scores.add(b, ok)
        if rank == 0 and o.step_number % a.every == 0:
            line = dict(
                stage=state["stage"], step=state["number"], seconds=round(state["seconds"] + clock.spent(), 1),
                mtok=state["number"] * BATCH >> 20, loss=round(float(total) / a.every, 4), waiting=rows.queue.qsize(), **scores.take(),
            )
            total = 0.0
            print(json.dumps(line), flush=True)
            log.write(json.dumps(line) + "\n")
            log.flush()
        if o.step_number % 1000 == 0:
            keep()
    return True


# ------------------------------------------------------------------- export


def export(a):
    v, m = json.load(open(a.vocab)), a.model
    n = len(v["tokens"])
    w, _ = load(a.out, m, n)
    meta = {
        "general.architecture": "llama", "general.name": m.name, "general.file_type": 7,
        "llama.context_length": m.context, "llama.embedding_length": m.dim, "llama.block_count": m.layers,
        "llama.feed_forward_length": m.hidden, "llama.attention.head_count": m.heads,
        "llama.attention.head_count_kv": m.kv, "llama.attention.key_length": m.head,
        "llama.attention.value_length": m.head, "llama.attention.layer_norm_rms_epsilon": EPS,
        "llama.rope.dimension_count": m.head, "llama.rope.freq_base": THETA, "llama.vocab_size": n,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": v["tokens"], "tokenizer.ggml.token_type": [3, 3] + [1] * (n - 2),
        "tokenizer.ggml.merges": v["merges"], "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.add_bos_token": True,
    }
    named = {"token_embd.weight": gguf.q8_0(w["embed"]), "output_norm.weight": gguf.plain("F32", w["norm"])}
    names = dict(q="attn_q", k="attn_k", v="attn_v", o="attn_output", gate="ffn_gate", up="ffn_up", down="ffn_down")
    for i in range(m.layers):
        for name, norm in (("attn_norm", "norm1"), ("ffn_norm", "norm2")):
            named[f"blk.{i}.{name}.weight"] = gguf.plain("F32", w[norm][i])
        for name, long in names.items():
            named[f"blk.{i}.{long}.weight"] = gguf.q8_0(w[name][i])
    gguf.write(a.gguf, meta, named)
    print(a.gguf, os.path.getsize(a.gguf), "bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["vocab", "train", "export"])
    parser.add_argument("--rows", default=os.path.join(ROOT, "bin", "rows"))
    parser.add_argument("--vocab", default=VOCAB)
    parser.add_argument("--size", type=int, default=6144, help="tokens of the vocabulary")
    parser.add_argument("--out", default=".")
    parser.add_argument("--gguf", default="ruler.gguf")
    parser.add_argument("--model", choices=list(MODELS), default="ruler")
    parser.add_argument("--minutes", type=float, default=0, help="of this call; the next goes on where it stopped")
    parser.add_argument("--reserve", type=float, default=20, help="seconds of them for the end")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--batches", type=int, default=1, help="of 65,536 tokens in a step, which the GPUs share")
    parser.add_argument("--last", type=int, help="batches of the last stage, for a shorter schedule")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon", type=float, default=0.01)
    parser.add_argument("--adam", type=float, default=0.003)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--every", type=int, default=100)
    a = parser.parse_args()
    a.model = MODELS[a.model]
    if a.last:
        a.model.stages[-1] = (a.last, *a.model.stages[-1][1:])
    {"vocab": make_vocab, "train": train, "export": export}[a.command](a)


if __name__ == "__main__":
    main()
