#!/usr/bin/env python3
"""Writes the tables of docs/results.md from the runs of scripts/results.sh.

  results.py PAGE FOLDER...

FOLDER is that of a run, beside a file that has the commit; its name is that of a section
(SECTIONS). What stands between the two marks of that section is replaced. A grid (GRIDS) has a
folder for each part and length instead, FOLDER-PART-LENGTH.
"""

import json
import pathlib
import random
import re
import sys

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


def mean_of(readings, key, digits=0):
    return f"{100 * sum(a[key] for a in readings) / len(readings):.{digits}f}"


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


# What an audit says: its name in a summary, words and digits.
READ = [("k_read", "Rows of K read", 0), ("v_read", "rows of V read", 0), ("mass", "retained mass", 0)]
RANKED = [("k_read", "Rows of K read", 0), ("mass", "retained mass", 1), ("recall_01", "recall (outputs within 0.01 of dense)", 1)]


def read(summary, lengths, phase, keys):
    """The readings keys of one phase."""
    rows = []
    for name, s in zip(names(summary), summary["settings"]):
        if s["attn"] == "dense":
            continue
        row = [name]
        for n in lengths:
            seen = audited(s, n, phase)
            row.append(" · ".join(mean_of(seen, key, digits) for key, _, digits in keys) if seen else "")
        rows.append(row)
    return table(["attention"] + [f"{tokens(n)} tokens" for n in lengths], rows)


def section(name, folder, phase, words, pictures, keys=READ):
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
    text += " · ".join(said for _, said, _ in keys) + f" of the {words}, in percent:\n\n"
    return text + read(summary, lengths, phase, keys)


# The sections of the page: title, phase that was audited, what it is called, whether there
# is a picture, and the readings.
SECTIONS = dict(
    prefill=("Sparse in the prompt, dense after it", "prefill", "prefill", True, READ),
    oracles=("There, selected by exact scores or at random", "prefill", "prefill", False, READ),
    decode=("Dense in the text, sparse in the question and the answer", "decode", "decode steps", True, READ),
    tried=("What else was tried there", "decode", "decode steps", False, READ),
    mirrors=("There, ranked by low-bit copies of the keys", "decode", "decode steps", False, RANKED),
)


def prompts_of(folder, number):
    """The scores of one setting by prompt: (length, task, row)."""
    found = {}
    for path in sorted(folder.glob(f"{number}-*/*/pred/*.jsonl")):
        for line in path.open():
            row = json.loads(line)
            found[int(path.parent.parent.name), path.stem, row["index"]] = row["gollm"]["score"]
    return found


class Grid:
    """What the folders of a grid have: by setting, the score of each prompt that every setting has
    answered."""

    def __init__(self, base):
        self.names, self.scores, self.densities, self.models = [], {}, {}, set()
        for path in sorted(base.parent.glob(f"{base.name}-*/manifest.json")):
            folder, manifest = path.parent, json.loads(path.read_text())
            self.models.add(manifest["identity"]["model_sha256"])
            command = manifest["about"]["command"]
            names = [text for flag, text in zip(command, command[1:]) if flag == "--attn"]
            self.names = self.names or names
            if names != self.names:
                sys.exit(f"{folder}: other settings than the folders before it")
            for number, name in enumerate(names):
                if manifest["identity"]["samples"] > 1:  # of one: a run for its audit
                    self.scores.setdefault(name, {}).update(prompts_of(folder, number))
            self.audits(folder)
        common = set.intersection(*(set(s) for s in self.scores.values()))
        self.scores = {name: {k: s[k] for k in sorted(common)} for name, s in self.scores.items()}
        if len(self.models) > 1:
            sys.exit(f"{base}: answers of {len(self.models)} models, want those of one")

    def audits(self, folder):
        summary = folder / "summary.json"
        for name, s in zip(self.names, json.loads(summary.read_text())["settings"] if summary.exists() else []):
            for u in s["units"]:
                for phase, seen in u.get("audit", {}).items():
                    self.densities.setdefault((name, phase), []).append(seen["density"])

    def density(self, name, phases):
        seen = [self.densities.get((name, phase)) for phase in phases]
        return " · ".join(f"{100 * sum(s) / len(s):.0f} %" for s in seen if s)


def mean(x):
    return sum(x) / len(x)


def cells(prompts):
    """The scores of each length and task."""
    found = {}
    for (length, task, _), x in prompts.items():
        found.setdefault((length, task), []).append(x)
    return found


def score(prompts, length=None, task=None):
    """Mean score of 100 over lengths and tasks, each pair counting alike, or over those of one."""
    return f"{100 * mean([mean(x) for (n, t), x in cells(prompts).items() if length in (None, n) and task in (None, t)]):.0f}"


def interval(prompts, least=0, draws=2000):
    """Mean over lengths and tasks and its 95 % interval: percentile bootstrap inside each pair of
    them, and where all prompts have one score, of least to 1, Wilson's of so many."""
    groups = list(cells(prompts).values())
    value, reach = mean([mean(g) for g in groups]), 3.84 / (len(prompts) + 3.84)
    if min(prompts.values()) == max(prompts.values()):
        low, high = max(least, value - reach), min(1, value + reach)
    else:
        rng = random.Random(42)
        drawn = sorted(mean([mean(rng.choices(g, k=len(g))) for g in groups]) for _ in range(draws))
        low, high = drawn[draws // 40], drawn[-draws // 40 - 1]
    return f"{100 * value:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def grid(folder, phases, words):
    g = Grid(folder)
    dense = g.scores["dense"]
    lengths, tasks = sorted({k[0] for k in dense}), sorted({k[1] for k in dense})
    rows = []
    for name in g.names:
        prompts = g.scores[name]
        lost = interval({k: x - dense[k] for k, x in prompts.items()}, least=-1) if name != "dense" else ""
        row = [f"`{short(name)}`"] + [score(prompts, length=n) for n in lengths]
        row += [interval(prompts), lost] + [score(prompts, task=t) for t in tasks]
        rows.append(row + [g.density(name, phases)])
    each = sorted({len(x) for x in cells(dense).values()})
    each = f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0])
    text = f"{len(dense)} prompts a setting, {each} of each task at each length. {words} "
    text += "Mean scores of 100 at each length; over all lengths with a 95 % interval; how far that is from dense attention on the "
    text += "same prompts, with its own; by task over all lengths; and the density where it was audited.\n\n"
    return text + table(["attention"] + [tokens(n) for n in lengths] + ["all", "difference"] + tasks + ["density"], rows)


# The grids of the page: title, phases of the density, and what stands above the table.
RULER = "The paper's, of all of RULER at 4K to 64K with Llama-3.1-8B-Instruct and 80 % of blocks left out: dense 91.44, "
GRIDS = dict(
    walkprefill=("Readings of Sketch&Walk in the prompt", ["prefill"], RULER + "sparse in the prompt 91.35."),
    walkdecode=("Readings of Sketch&Walk in the question and the answer", ["decode"], RULER + "sparse in decode steps 91.08."),
    walkanswer=("In the answer alone, as the paper has it", ["decode"], RULER + "sparse in decode steps 91.08."),
    walkboth=("In prompt and answer", ["prefill", "decode"], RULER + "sparse in both 90.15. Two densities are of the prompt and of decode steps."),
    schedules=(
        "Schedules of CPE", ["prefill", "decode"],
        "The paper's, of LongBench with Llama-2-7B-Chat and 512 positions a head: dense 32.90, CIS 32.15 to 32.40, CPE 32.02 to 32.11; perplexity of WikiText 6.11 to 6.16 with all of them. Two densities are of the prompt and of decode steps.",
    ),
)


def made_of(folder, page):
    """The text of the section of a folder."""
    if folder.name in GRIDS:
        title, phases, words = GRIDS[folder.name]
        return f"### {title}\n\n" + grid(folder, phases, words)
    title, phase, words, picture, keys = SECTIONS[folder.name]
    return section(title, folder, phase, words, page.parent / "results" if picture else None, keys)


def main():
    path, folders = pathlib.Path(sys.argv[1]), [pathlib.Path(f) for f in sys.argv[2:]]
    text = path.read_text()
    for folder in folders:
        commit = (folder.parent / "commit").read_text().strip()
        made = made_of(folder, path)
        runs = f"RUNS={folder.name} " if folder.name in GRIDS else ""
        made += f"With the program of commit {commit}: `{runs}scripts/results.sh runs`\n"
        begin, end = f"<!-- {folder.name}: made by scripts/results.py -->\n", f"<!-- end of {folder.name} -->\n"
        head, rest = text.split(begin)
        text = head + begin + "\n" + made + "\n" + end + rest.split(end)[1]
    path.write_text(text)


main()
