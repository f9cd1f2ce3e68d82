#!/usr/bin/env python3
"""Speed beside llama.cpp's, as a Markdown table.

  bench-peer.py MODEL.gguf...                     512 and 2048 tokens of prompt, decode behind 128 and 8192
  bench-peer.py --write docs/performance.md ...   puts the tables between the file's markers too
  bench-peer.py --only peer ...                   llama.cpp alone

The two run in turns, in one order and then the other, with the same threads, the
same file and the same shapes; a figure is the median of the rounds, its range
stands beside it. Both sides compute the logits of a prompt's last position only,
sample nothing, and use an F16 cache that is filled with copies of computed
positions. llama.cpp runs with the better of flash attention on and off, then the better of
batches of 512 and 2048, selected by one run of each.
Run it with the Python that scripts/peer-env.sh makes (make bench-peer does).
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import llama_cpp
import llamacpp

ISA = "avx2 avx512f avx512_vnni avx_vnni avx512_bf16 avx512_fp16 amx_int8 asimddp i8mm".split()
QUIET = 0.8  # idle share of the cores below which a comparison is not worth keeping
MARKS = "<!-- bench-peer: written by make bench-peer -->", "<!-- /bench-peer -->"


class Row:
    """One figure: a phase at a length, and what each side measured in every round."""

    def __init__(self, phase, length):
        self.phase, self.length = phase, length
        self.peer, self.ours, self.limit = [], [], 0.0
        self.context = self.settings = None

    def run(self, context, steps):
        if self.phase == "prefill":
            return context.time_prefill(self.length)
        return context.time_decode(self.length, steps)


class Peer:
    """llama.cpp with a context for every row, in the settings that suit it best."""

    def __init__(self, path, rows, args):
        self.engine = llamacpp.Engine(path)
        self.rows, self.args = rows, args
        for row in rows:
            self._choose(row)

    def measure(self):
        for row in self.rows:
            row.peer.append(row.run(row.context, self.args.steps))

    def close(self):
        for row in self.rows:
            row.context.close()
        self.engine.close()

    def _choose(self, row):
        """Keeps the context of the settings in which one run of the row is fastest."""
        best = 0.0
        for flash in (False, True):
            best = self._try(row, flash, 512, best)
        if row.phase == "prefill" and row.length > 512:
            self._try(row, row.settings.startswith("flash on"), 2048, best)

    def _try(self, row, flash, batch, best):
        """Runs the row once and keeps its context if it beats best; the faster of the two."""
        context = self.engine.context(row.length + self.args.steps, self.args.threads, flash, ubatch=batch)
        context.time_prefill(32)  # wakes the threads and touches the weights
        context.truncate(0)
        speed = row.run(context, self.args.steps)
        if speed <= best:
            context.close()
            return best
        if row.context:
            row.context.close()
        row.context, row.settings = context, f"flash {'on' if flash else 'off'}, batch {batch}"
        return speed


def measure_ours(path, rows, args):
    """One run of gollm bench."""
    lengths = {p: ",".join(str(r.length) for r in rows if r.phase == p) for p in ("prefill", "decode")}
    command = [args.gollm, "bench", "-m", path, "--device", "cpu", "--json", "--reps", "1"]
    command += ["--threads", str(args.threads), "--steps", str(args.steps)]
    command += [f"--{phase}={lengths[phase]}" for phase in lengths]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = {(r["phase"], r.get("tokens") or r.get("depth")): r for r in report["rows"]}
    for row in rows:
        r = found[row.phase, row.length]
        row.ours.append(r["tok_s"])
        row.limit = max(row.limit, r["floor_tok_s"])


def bench(path, args):
    """The rows of one model."""
    rows = [Row("prefill", n) for n in args.prefill] + [Row("decode", n) for n in args.decode]
    sides = []
    if args.only != "gollm":
        peer = Peer(path, rows, args)
        sides.append(peer.measure)
    if args.only != "peer":
        sides.append(lambda: measure_ours(path, rows, args))
    for i in range(args.rounds):
        for side in sides if i % 2 == 0 else reversed(sides):
            side()
    if args.only != "gollm":
        peer.close()
    return rows


def figure(runs):
    """Median and range of runs."""
    if not runs:
        return "-"
    low, mid, high = min(runs), statistics.median(runs), max(runs)
    digits = 0 if mid >= 100 else 1 if mid >= 10 else 2
    return f"{mid:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(path, rows):
    """The rows of one model as Markdown."""
    lines = [
        f"**{pathlib.Path(path).name}**",
        "",
        "| | gollm tok/s | llama.cpp tok/s | ratio | limit tok/s | of limit | llama.cpp's settings |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for r in rows:
        name = f"prefill {r.length}" if r.phase == "prefill" else f"decode at {r.length}"
        ratio = limit = share = "-"
        if r.ours and r.peer:
            ratio = f"{statistics.median(r.ours) / statistics.median(r.peer):.2f}"
        if r.ours and r.limit:
            limit, share = f"{r.limit:.1f}", f"{statistics.median(r.ours) / r.limit:.0%}"
        cells = [name, figure(r.ours), figure(r.peer), ratio, limit, share, r.settings or "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def heading(args, load, quiet):
    """When, where and with what the tables were made."""
    info = dict(
        line.split(":", 1) for line in open("/proc/cpuinfo").read().split("\n\n")[0].replace("\t", "").splitlines()
    )
    flags = set(info.get("flags", info.get("Features", "")).split())
    version = output("git", "describe", "--always", "--dirty")
    return "\n".join([
        f"{datetime.date.today()}, {info.get('model name', 'unknown CPU').strip()}, {os.cpu_count()} cores "
        f"({' '.join(f for f in ISA if f in flags)}), {args.threads} threads.",
        f"gollm {version} built with {output('go', 'env', 'GOVERSION')}; llama.cpp of llama-cpp-python "
        f"{llama_cpp.__version__}, built here for this CPU.",
        f"{args.rounds} rounds in turns, {args.steps} steps a decode; median (least-most). Load average before: "
        f"{load:.1f}; of the machine's cores {quiet:.0%} were idle just before.",
    ])  # fmt: skip


def output(*command):
    """What a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def idle():
    """The idle share of all cores over one second."""

    def ticks():
        t = [int(x) for x in open("/proc/stat").readline().split()[1:]]
        return t[3] + t[4], sum(t)

    a = ticks()
    time.sleep(1)
    b = ticks()
    return (b[0] - a[0]) / (b[1] - a[1])


def write(path, text):
    """Replaces what stands between the marks of a file, or adds it at the end."""
    path = pathlib.Path(path)
    old = path.read_text() if path.exists() else ""
    if MARKS[0] not in old:
        old = old.rstrip("\n") + f"\n\n{MARKS[0]}\n{MARKS[1]}\n"
    before, rest = old.split(MARKS[0], 1)
    after = rest.split(MARKS[1], 1)[1]
    path.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")


def lengths(text):
    """A list of lengths separated by commas."""
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description="Speed beside llama.cpp's, as a Markdown table.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--prefill", type=lengths, default=[512, 2048], help="lengths of prompts (512,2048)")
    parser.add_argument("--decode", type=lengths, default=[128, 8192], help="depths (128,8192)")
    parser.add_argument("--steps", type=int, default=32, help="decode steps of a run (32)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads (all cores)")
    parser.add_argument("--only", choices=["peer", "gollm"], help="measure one side")
    parser.add_argument("--gollm", default="bin/gollm", help="the program to measure (bin/gollm)")
    parser.add_argument("--write", metavar="FILE", help="put the tables between the marks of FILE too")
    args = parser.parse_args()

    quiet = idle()
    if quiet < QUIET:
        print(
            f"Warning: only {quiet:.0%} of the cores are idle. llama.cpp's threads wait for each "
            "other by spinning, so other programs slow it far more than they slow gollm: these "
            "ratios mean nothing.",
            file=sys.stderr,
        )
        if args.write:
            raise SystemExit(f"bench-peer: --write needs {QUIET:.0%} idle cores; stop the other programs")
    parts = [heading(args, os.getloadavg()[0], quiet)]
    print(parts[0], flush=True)
    for path in args.models:
        parts.append(table(path, bench(path, args)))
        print("\n" + parts[-1], flush=True)
    if args.write:
        write(args.write, "\n\n".join(parts))


if __name__ == "__main__":
    main()
