#!/usr/bin/env python3
"""Write rows of RULER with its official generator, for gollm's to be compared with.

  python3 -m venv venv && venv/bin/pip install nltk==3.10.1 wonderwords==2.2.0 numpy tqdm pyyaml
  venv/bin/python scripts/ruler-rows.py --ruler RULER --haystack TEXT -o ROWS
  go test ./eval/ruler -run OfficialRows -v -ruler RULER -rows ROWS
  venv/bin/python scripts/ruler-rows.py --ruler RULER --toy | gofmt

RULER is a checkout of NVIDIA/RULER. Its code runs as it is, in a copy: the tokenizer
is one that counts words, the essays are TEXT, and NLTK finds the tables of
eval/punkt/english.txt.gz. --toy prints, for eval/ruler/vectors_test.go, the vectors of
essay tasks and of a small text that the test makes too.
"""
import argparse, gzip, hashlib, importlib.metadata, importlib.util, json, os, shutil, subprocess, sys, tempfile
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKENIZER = """
class Words:
    def text_to_tokens(self, text):
        return text.split()

def select_tokenizer(kind, path):
    return Words()
"""
TOY = ["Mr. Ox saw no. 7 in the U.S.", "We left at 5 p.m. He did not.", "J. Bach wrote it (in Oct. 1721).", 'He said "Go." Then he went.',
       "Is it so?! Yes... it is.", "St. Paul, Minn. is far.", "It cost 3.5 million. The Co. paid.", "\u201cWait.\u201d she said."]


def tables(folder):
    """The tables of punkt as NLTK's data package punkt_tab has them."""
    os.makedirs(folder)
    files = {"abbrev_types.txt": [], "collocations.tab": [], "sent_starters.txt": [], "ortho_context.tab": []}
    for line in gzip.open(os.path.join(ROOT, "eval/punkt/english.txt.gz"), "rt", encoding="ascii", newline="\n"):
        name, *words = line[:-1].split("\t")
        if name == "abbreviations":
            files["abbrev_types.txt"] = words
        elif name == "collocations":
            files["collocations.tab"] = [w.replace(" ", "\t") for w in words]
        elif name == "starters":
            files["sent_starters.txt"] = words
        else:
            files["ortho_context.tab"] += [f"{w}\t{name}" for w in words]
    for name, lines in files.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write("\n".join(lines))


def copy(checkout, text, to):
    """A copy of the official code with our tokenizer and essays, and its tasks."""
    data = os.path.join(to, "data")
    shutil.copytree(os.path.join(checkout, "scripts/data"), data)
    with open(os.path.join(data, "synthetic/json/PaulGrahamEssays.json"), "w") as f:
        json.dump({"text": text}, f)
    with open(os.path.join(data, "tokenizer.py"), "w") as f:
        f.write(TOKENIZER)
    tables(os.path.join(to, "nltk/tokenizers/punkt_tab/english"))
    spec = importlib.util.spec_from_file_location("official", os.path.join(data, "synthetic/constants.py"))
    official = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(official)
    tasks = yaml.safe_load(open(os.path.join(checkout, "scripts/synthetic.yaml")))
    return data, {name: {**t, **official.TASKS[t["task"]]} for name, t in tasks.items() if t["task"] != "qa"}


def generate(data, name, task, length, seed, rows, out):
    """Run the generator of one task; path of what it wrote."""
    command = [sys.executable, os.path.join(data, "synthetic", task["task"] + ".py"), "--save_dir", out, "--save_name", name,
               "--tokenizer_path", "words", "--tokenizer_type", "hf", "--max_seq_length", str(length), "--random_seed", str(seed),
               "--tokens_to_generate", str(task["tokens_to_generate"]), "--num_samples", str(rows), "--template", task["template"] + task["answer_prefix"]]
    for key, value in task["args"].items():
        command += ["--" + key, str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env={**os.environ, "NLTK_DATA": os.path.join(os.path.dirname(data), "nltk")})
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    return os.path.join(out, name, "validation.jsonl")


def toy(data, tasks, folder):
    """Vectors: hash of the text between the template's lines, which has no wording in it."""
    for name, task in tasks.items():
        if task["args"].get("type_haystack") == "essay":
            with open(generate(data, name, task, 3000, 42, 2, folder)) as f:
                for row in map(json.loads, f):
                    context = row["input"].split("\n")[1]
                    print(f'\t{{"{name}", {row["length"]}, {row["index"]}, {row["token_position_answer"]}, "{hashlib.sha256(context.encode()).hexdigest()[:24]}", "{" ".join(row["outputs"])}"}},')


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ruler", required=True)
    p.add_argument("--toy", action="store_true")
    p.add_argument("--haystack")
    p.add_argument("-o", "--out")
    p.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 16384])
    p.add_argument("--seeds", type=int, nargs="+", default=[42, 7])
    p.add_argument("--tasks", nargs="+")
    p.add_argument("-n", type=int, default=5)
    a = p.parse_args()
    text = " ".join(TOY[i * i * 7 % 8] + " " + TOY[i % 8] for i in range(40)) if a.toy else open(a.haystack, encoding="utf-8").read()
    with tempfile.TemporaryDirectory() as to:
        data, tasks = copy(a.ruler, text, to)
        if a.toy:
            return toy(data, tasks, to)
        os.makedirs(a.out, exist_ok=True)
        with open(os.path.join(a.out, "made.json"), "w") as f:
            json.dump({"nltk": importlib.metadata.version("nltk"), "wonderwords": importlib.metadata.version("wonderwords"), "text": text}, f)
        for seed in a.seeds:
            for length in a.lengths:
                for name in a.tasks or tasks:
                    generate(data, name, tasks[name], length, seed, a.n, os.path.join(a.out, str(seed), str(length), "data"))


if __name__ == "__main__":
    main()
