#!/usr/bin/env python3
"""Writes the tables of docs/results.md from the runs of scripts/results.sh.

  results.py PAGE PREFILL DECODE

What stands between the two marks of the page is replaced; PREFILL and DECODE are
the folders of the two runs.
"""

import json
import pathlib
import re
import subprocess
import sys

BEGIN, END = "<!-- made by scripts/results.py -->\n", "<!-- end of what is made -->\n"


def short(attn):
    """The part of a setting that is not said above its table."""
    attn = re.sub(r"^prefill=dense decode=", "", attn)
    return re.sub(r"^prefill=(.*) decode=dense$", r"\1", attn)


def table(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)] + rows
    return "".join("| " + " | ".join(line) + " |\n" for line in lines) + "\n"


def tokens(n):
    return f"{n:,}"


def scores(summary, lengths):
    """Score and interval of each setting at each length."""
    rows = []
    for s in summary["settings"]:
        means = {m["length"]: m for m in s["means"] if m["task"] == "mean"}
        row = [f"`{short(s['attn'])}`"]
        for n in lengths:
            i = means[n]["score"]
            row.append(f"{100 * i['mean']:.0f} [{100 * i['low']:.0f}, {100 * i['high']:.0f}]" if means[n]["done"] else "")
        done = [means[n]["score"]["mean"] for n in lengths if means[n]["done"]]
        row.append(f"{100 * sum(done) / len(done):.1f}" if done else "")
        rows.append(row)
    return table(["attention"] + [f"{tokens(n)} tokens" for n in lengths] + ["mean"], rows)


def by_task(summary):
    """Score of each setting in each task, over all lengths."""
    tasks = list(dict.fromkeys(u["task"] for u in summary["manifest"]["units"]))
    rows = []
    for s in summary["settings"]:
        row = [f"`{short(s['attn'])}`"]
        for t in tasks:
            done = [u["score"]["mean"] for u in s["units"] if u["task"] == t and u["done"]]
            row.append(f"{100 * sum(done) / len(done):.0f}" if done else "")
        rows.append(row)
    return table(["attention"] + tasks, rows)


def read(summary, lengths, phase):
    """Density, rows of K and V read, and retained mass of one phase."""
    rows = []
    for s in summary["settings"]:
        if s["attn"] == "dense":
            continue
        row = [f"`{short(s['attn'])}`"]
        for n in lengths:
            seen = [u["audit"][phase] for u in s["units"] if u["length"] == n and u.get("audit", {}).get(phase)]
            mean = lambda key: f"{100 * sum(a[key] for a in seen) / len(seen):.0f}"
            row.append(" · ".join(map(mean, ["density", "k_read", "v_read", "mass"])) if seen else "")
        rows.append(row)
    return table(["attention"] + [f"{tokens(n)} tokens" for n in lengths], rows)


def section(name, folder, phase):
    summary = json.loads(pathlib.Path(folder, "summary.json").read_text())
    manifest = summary["manifest"]
    lengths = sorted({u["length"] for u in manifest["units"]})
    done = sum(u["done"] for u in summary["settings"][0]["units"])
    cells = len(manifest["units"])
    text = f"### {name}\n\n"
    text += f"{done} prompts a setting: {done / cells:.4g} of each of {cells // len(lengths)} tasks at each length. "
    text += "Scores of 100 with 95 % bootstrap intervals.\n\n" + scores(summary, lengths)
    text += "The same by task, over all lengths:\n\n" + by_task(summary)
    text += f"Density · rows of K read · rows of V read · retained mass, in percent, of the {phase}:\n\n"
    text += read(summary, lengths, "prefill" if phase == "prefill" else "decode")
    return text


def main():
    page, prefill, decode = sys.argv[1:]
    root = pathlib.Path(__file__).parent
    git = lambda *args: subprocess.run(["git", "-C", root, *args], capture_output=True, text=True).stdout.strip()
    commit = git("log", "-1", "--format=%h", "--", "../sparse", "../cpu", "../engine", "../eval", "../cmd", "../kvcache", "../model", "../testdata/ruler.gguf")
    made = f"Made at commit {commit}: `scripts/results.sh runs`\n\n"
    made += section("Sparse in the prompt", prefill, "prefill")
    made += section("Sparse in the question and the answer", decode, "decode steps")
    path = pathlib.Path(page)
    text = path.read_text()
    head, rest = text.split(BEGIN)
    path.write_text(head + BEGIN + "\n" + made.rstrip() + "\n\n" + END + rest.split(END)[1])


main()
