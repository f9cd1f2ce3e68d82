#!/usr/bin/env python3
"""Writes the tables of docs/results.md from the runs of scripts/results.sh.

  results.py PAGE PREFILL ORACLES DECODE TRIED

What stands between the two marks of the page is replaced; the others are the folders
of the runs, beside a file that has the commit.
"""

import json
import pathlib
import random
import re
import sys

BEGIN, END = "<!-- made by scripts/results.py -->\n", "<!-- end of what is made -->\n"


def short(attn):
    """The part of a setting that is not said above its table."""
    attn = re.sub(r"^prefill=dense decode=", "", attn)
    return re.sub(r"^prefill=(.*) decode=dense$", r"\1", attn)


def names(summary):
    """The settings as they were asked for: with options that are defaults, too."""
    about = summary["manifest"]["about"]
    if "shards" in about:  # of a run that was merged; each was asked for the same settings
        about = about["shards"][0]["about"]
    command = about["command"]
    return [f"`{short(text)}`" for flag, text in zip(command, command[1:]) if flag == "--attn"]


def table(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)] + rows
    return "".join("| " + " | ".join(line) + " |\n" for line in lines) + "\n"


def tokens(n):
    return f"{n:,}"


def audited(setting, length, phase):
    """The readings of a phase at one length, of all tasks."""
    return [u["audit"][phase] for u in setting["units"] if u["length"] == length and u.get("audit", {}).get(phase)]


def mean_of(readings, key):
    return f"{100 * sum(a[key] for a in readings) / len(readings):.0f}"


def every(folder, number):
    """The scores of all prompts under one setting."""
    return [json.loads(line)["gollm"]["score"] for path in sorted(folder.glob(f"{number}-*/*/pred/*.jsonl")) for line in path.open()]


def pooled(scores):
    """Mean and 95 % interval over prompts of all tasks and lengths."""
    if not scores:
        return ""
    rng, n = random.Random(42), len(scores)
    means = sorted(100 * sum(rng.choices(scores, k=n)) / n for _ in range(10000))
    return f"{100 * sum(scores) / n:.1f} [{means[250]:.0f}, {means[9749]:.0f}]"


def scores(folder, summary, lengths, phase):
    """Score, interval and density of each setting at each length."""
    rows = []
    for number, s in enumerate(summary["settings"]):
        row = [names(summary)[number]]
        for n in lengths:
            mean = next(m for m in s["means"] if m["length"] == n and m["task"] == "mean")
            least = min(u["done"] for u in s["units"] if u["length"] == n)
            i, seen = mean["score"], audited(s, n, phase)
            cell = f"{100 * i['mean']:.0f}" if mean["done"] else ""
            if least >= 3:
                cell += f" [{100 * i['low']:.0f}, {100 * i['high']:.0f}]"
            if seen and mean["done"]:
                cell += f" at {mean_of(seen, 'density')} %"
            row.append(cell)
        rows.append(row + [pooled(every(folder, number))])
    return table(["attention"] + [f"{tokens(n)} tokens" for n in lengths] + ["all"], rows)


def by_task(summary):
    """Score of each setting in each task, over all lengths."""
    tasks = list(dict.fromkeys(u["task"] for u in summary["manifest"]["units"]))
    rows = []
    for name, s in zip(names(summary), summary["settings"]):
        row = [name]
        for t in tasks:
            done = [u["score"]["mean"] for u in s["units"] if u["task"] == t and u["done"]]
            row.append(f"{100 * sum(done) / len(done):.0f}" if done else "")
        rows.append(row)
    return table(["attention"] + tasks, rows)


def read(summary, lengths, phase):
    """Rows of K and V read, and retained mass of one phase."""
    rows = []
    for name, s in zip(names(summary), summary["settings"]):
        if s["attn"] == "dense":
            continue
        row = [name]
        for n in lengths:
            seen = audited(s, n, phase)
            row.append(" · ".join(mean_of(seen, key) for key in ["k_read", "v_read", "mass"]) if seen else "")
        rows.append(row)
    return table(["attention"] + [f"{tokens(n)} tokens" for n in lengths], rows)


def section(name, folder, phase, words, pictures):
    folder = pathlib.Path(folder)
    summary = json.loads((folder / "summary.json").read_text())
    units = summary["manifest"]["units"]
    lengths = sorted({u["length"] for u in units})
    done = sum(u["done"] for u in summary["settings"][0]["units"])
    figure = folder / "figures" / f"score-density-{phase}.svg"
    if pictures and figure.exists():
        pictures.mkdir(exist_ok=True)
        (pictures / f"{phase}.svg").write_text(figure.read_text())
    text = f"### {name}\n\n"
    text += f"{done} prompts a setting, {done / len(units):.4g} of each of {len(units) // len(lengths)} tasks at each length. "
    text += "Mean score of 100, its 95 % interval where a task has three prompts or more, and the density; "
    text += "the last column is of all prompts, with an interval over prompts of all tasks and lengths. "
    text += "Where there is no density, no audit was run.\n\n"
    text += scores(folder, summary, lengths, phase)
    text += f"![score against density of the {words}](results/{phase}.svg)\n\n" if pictures and figure.exists() else ""
    text += "By task, over all lengths:\n\n" + by_task(summary)
    text += f"Rows of K read · rows of V read · retained mass of the {words}, in percent:\n\n"
    return text + read(summary, lengths, phase)


def main():
    page, prefill, oracles, decode, tried = sys.argv[1:]
    commit = pathlib.Path(prefill).parent / "commit"
    made = f"With the program of commit {commit.read_text().strip()}: `scripts/results.sh runs`\n\n"
    path = pathlib.Path(page)
    pictures = path.parent / "results"
    made += section("Sparse in the prompt, dense after it", prefill, "prefill", "prefill", pictures)
    made += section("There, selected by exact scores or at random", oracles, "prefill", "prefill", None)
    made += section("Dense in the text, sparse in the question and the answer", decode, "decode", "decode steps", pictures)
    made += section("What else was tried there", tried, "decode", "decode steps", None)
    text = path.read_text()
    head, rest = text.split(BEGIN)
    path.write_text(head + BEGIN + "\n" + made.rstrip() + "\n\n" + END + rest.split(END)[1])


main()
