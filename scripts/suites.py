#!/usr/bin/env python3
"""Make what the tests of eval/published read.

  scripts/suites.py samples eval/published/testdata
      a few made-up rows of every data set, in the form of the published files
      (needs pyarrow 26.0.1)
  scripts/suites.py scores eval/published/testdata/scores.jsonl.gz --infinitebench InfiniteBench \\
      --scbench MInference --kvpress kvpress [--n 500]
      made-up predictions, n of each metric, and what the official code gives each; the
      similarity of MRCR is that of its dataset card, difflib's ratio behind the random text
      (needs rouge_score 0.1.2, numpy and pandas)

The checkouts are those of OpenBMB/InfiniteBench at 88b3daa, microsoft/MInference at fb56c91
and NVIDIA/kvpress at 8bb29b9. Nothing of theirs is written but numbers.
"""
import argparse, difflib, gzip, importlib.util, json, os, random, sys, types

KEYS = [a + "-" + b for a in "amber brisk calm dusty eager faint gentle hollow icy jolly keen lively".split() for b in "anchor basket candle dragon engine feather".split()]
WORDS = ("the a an The A. of and Paris paris 12 3,677 U.S.A. École ÉCOLE straße ΟΔΟΣ İstanbul ﬁne 東京 ok_name x-ray don't 7 007 １２ 3.5 -4 1_000 "
         "A B C D AB A. B: (C) Option option answer: The answer is: is: correct option is: answer is option is ` * - \" ' { } 北京 研究 的 ， 。").split(" ")


# The samples.

def needles(r, n):
    pairs = [(k, str(r.randint(1000000, 9999999))) for k in r.sample(KEYS, n)]
    lines = "\n".join(f"One of the special magic numbers for {k} is: {v}." for k, v in pairs)
    return ("The text below hides a special magic number. Read it with care: there will be a question about the number at the end.\n" + lines + "\n"), pairs


def ask(key):
    return f"Question: What is the special magic number for {key} in the text above?"


def begin(key):
    return f" Answer: The special magic number for {key} in the text above is"


def scbench_rows(r, name):
    rows = []
    for i in range(2):
        context, pairs = needles(r, 12)
        picked = r.sample(pairs, 3)
        turns = [dict(input=ask(k) + begin(k), answer=v) for k, v in picked]
        if name == "scbench_choice_eng":
            turns = [dict(input=ask(k), answer=v, options=[v if x == n % 4 else w for x, (_, w) in enumerate(r.sample([p for p in pairs if p[1] != v], 4))]) for n, (k, v) in enumerate(picked)]
        elif name == "scbench_vt":
            turns = [dict(t, answer=[t["answer"], "0000000"]) for t in turns]
        elif name == "scbench_mf":
            numbers = [r.randint(0, 99) for _ in range(60)]
            context = str(numbers)
            turns = [dict(input="The largest number of the list is:", answer=float(max(numbers))), dict(input="The smallest number of the list is:", answer=float(min(numbers)))]
        elif name == "scbench_summary_with_needles":
            turns = [dict(t, task="scbench_passkey" if n % 2 else "scbench_summary") for n, t in enumerate(turns)]
        elif name == "scbench_repoqa_and_kv":
            turns = [dict(t, task="scbench_kv" if n % 2 else "scbench_repoqa", name="f" if n % 2 == 0 else None) for n, t in enumerate(turns)]
        elif name == "scbench_repoqa":
            turns = [dict(t, name="f") for t in turns]
        row = dict(id=i, context=context, multi_turns=turns)
        if "repoqa" in name:
            row.update(lang="python", repo="made/up")
        rows.append(row)
    return rows


def infinite_rows(r, name):
    rows = []
    for i in range(2):
        context, pairs = needles(r, 12)
        key, value = r.choice(pairs)
        row = dict(id=i, context=context, input=ask(key) + begin(key), answer=value, options=[])
        if name in ("longbook_choice_eng", "code_debug"):
            options = [v for _, v in r.sample(pairs, 4)]
            row.update(options=options, answer=[options[i]])
        elif name == "longbook_sum_eng":
            row.update(answer=[f"the number is {value}\nand no other"])
        elif name in ("longbook_qa_eng", "longbook_qa_chn", "longdialogue_qa_eng"):
            row.update(answer=[value, "no number"])
        elif name == "math_find":
            numbers = [r.randint(0, 99) for _ in range(60)]
            row.update(context=str(numbers), input="The largest number of the list is:", answer=max(numbers))
        elif name == "math_calc":
            row.update(context="1 + 2 - 3 + 5", answer=[1, 3, 0, 5])
        elif name == "code_run":
            row.update(context="def func_1(x):\n    return x + 7\n", input="What is func_1(-2)?", answer=5)
        rows.append(row)
    return rows


def mrcr_rows(r, count):
    rows = []
    for i in range(2):
        pairs = [(r.choice(KEYS[:2]), str(r.randint(1000000, 9999999))) for _ in range(2 * count)]
        talk = []
        for k, v in pairs:
            talk += [dict(role="user", content=f"write a line about {k}"), dict(role="assistant", content=f"One of the special magic numbers for {k} is: {v}.")]
        key = pairs[0][0]
        place = [n for n, (k, _) in enumerate(pairs) if k == key]
        nth = r.randrange(len(place))
        marker = "".join(r.choices("abcdefgh123", k=10))
        talk.append(dict(role="user", content=f"Prepend {marker} to line {nth + 1} about {key}. No other text."))
        index = 2 * place[nth]
        rows.append(dict(prompt=json.dumps(talk), answer=marker + talk[index + 1]["content"], random_string_to_prepend=marker, n_needles=count,
                         desired_msg_index=index, total_messages=len(talk), n_chars=sum(len(m["content"]) for m in talk)))
    return rows


def kvpress_rows(r):
    rows = []
    for task in ("niah_single_1", "niah_multikey_2", "qa_1"):
        context, pairs = needles(r, 12)
        for key, value in r.sample(pairs, 2):
            answer = [value] if task != "qa_1" else [value, "none of that"]
            rows.append(dict(context=context, question=ask(key), answer_prefix=begin(key), answer=answer, task=task, max_new_tokens=16))
    return rows


def samples(a):
    import pyarrow, pyarrow.parquet
    r = random.Random(5)

    def write(path, rows):
        path = os.path.join(a.out, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if path.endswith(".parquet"):
            return pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, compression="snappy", row_group_size=4)
        with open(path, "w") as f:
            f.writelines(json.dumps(x, ensure_ascii=False) + "\n" for x in rows)

    for name in ("kv prefix_suffix vt repoqa qa_eng qa_chn choice_eng many_shot mf summary summary_with_needles repoqa_and_kv").split():
        name = "scbench_" + name
        rows = scbench_rows(r, name)
        write(f"scbench/{name}.jsonl", rows)
        if name in ("scbench_kv", "scbench_choice_eng", "scbench_mf"):
            write(f"scbench-parquet/{name}/test-00000-of-00002.parquet", rows[:1])
            write(f"scbench-parquet/{name}/test-00001-of-00002.parquet", rows[1:])
    for name in ("passkey number_string kv_retrieval longdialogue_qa_eng longbook_sum_eng longbook_choice_eng longbook_qa_eng longbook_qa_chn math_find math_calc code_run code_debug").split():
        write(f"infinitebench/{name}.jsonl", infinite_rows(r, name))
    for count in (2, 4, 8):
        rows = mrcr_rows(r, count)
        write(f"mrcr/{count}needle/{count}needle_0.parquet", rows[:1])
        write(f"mrcr/{count}needle/{count}needle_1.parquet", rows[1:])
    write("kvpress/4096/test-00000-of-00001.parquet", kvpress_rows(r))


# The scores.

def official(path, name, **stubs):
    """A module of a checkout, with stubs for what of its imports is not needed."""
    for stub, content in stubs.items():
        module = types.ModuleType(stub)
        module.__dict__.update(content)
        sys.modules[stub] = module
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))
    spec.loader.exec_module(module)
    sys.path.pop(0)
    return module


class Rouge:
    """The metric rouge of evaluate, which needs a download, over the package that it calls."""

    def compute(self, predictions, references, use_aggregator):
        from rouge_score import rouge_scorer
        scorer = rouge_scorer.RougeScorer(rouge_types=["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=False)
        score = scorer.score_multi if isinstance(references[0], list) else scorer.score
        return {"rougeLsum": [score(g, p)["rougeLsum"].fmeasure for g, p in zip(references, predictions)]}


def phrase(r, most):
    text = " ".join(r.choice(WORDS) for _ in range(r.randint(0, most)))
    return text.replace(" ", r.choice([" ", "  ", "\n", ". ", ", ", "\u3000"]), r.randint(0, 4))


def texts(gold):
    return [str(x) for x in gold] if isinstance(gold, list) else [str(gold)]


def answer(r, gold):
    """A prediction that has something to do with its right answer."""
    g = r.choice(texts(gold))
    kind = r.randrange(12)
    return [g, g.upper(), " ".join(texts(gold)), g[: len(g) // 2], phrase(r, 30), "", "\n\n" + g + "\n" + phrase(r, 5), phrase(r, 4) + " " + g + ". " + phrase(r, 9),
            "```\n" + g + "\x00" + phrase(r, 3) + "\t", "The answer is: " + g, r.choice(WORDS) + r.choice([":", ".", " "]) + phrase(r, 3), phrase(r, 9) + " correct option is: " + g][kind]


def gold_of(r, task):
    word = lambda: r.choice([w for w in WORDS if w])
    number = lambda: r.choice([r.randint(0, 99), r.randint(0, 10**12), 7])
    choices = [word() + " " + word(), word(), phrase(r, 3) or "x", "D " + word()]
    i = r.randrange(4)
    make = {
        "passkey": lambda: str(number()), "number_string": lambda: [str(number())], "kv_retrieval": word, "code_run": number, "code_debug": lambda: [choices[i], "ABCD"[i]],
        "longbook_choice_eng": lambda: [choices[i], "ABCD"[i]], "longdialogue_qa_eng": lambda: [word().upper() for _ in range(r.randint(1, 3))],
        "longbook_qa_eng": lambda: [phrase(r, 9) or "x" for _ in range(r.randint(1, 3))], "longbook_qa_chn": lambda: r.choice([[phrase(r, 9) or "x"], phrase(r, 9) or "x"]),
        "longbook_sum_eng": lambda: r.choice([phrase(r, 60) + "\n" + phrase(r, 60), [phrase(r, 60), phrase(r, 60)]]),
        "math_find": lambda: r.choice([number(), 3.5, 12.0, float(number())]), "math_calc": lambda: [r.randint(-3, 30) for _ in range(r.randint(1, 6))],
        "scbench_kv": word, "scbench_vt": lambda: [word() for _ in range(r.randint(1, 7))], "scbench_many_shot": lambda: r.choice([word(), [word()]]), "scbench_mf": lambda: r.choice([number(), 3.5, 12.0]),
    }
    return make[task]()


def scores(a):
    r = random.Random(a.seed)
    rouge = dict(evaluate=dict(load=lambda name: Rouge()), args=dict(parse_args=None), tqdm=dict(tqdm=lambda x: x))
    infinite = official(os.path.join(a.infinitebench, "src/compute_scores.py"), "official_infinite", **rouge)
    shared = official(os.path.join(a.scbench, "scbench/compute_scores.py"), "official_scbench", repo_qa_utils=dict(compute_score=None), **rouge)
    kvpress = official(os.path.join(a.kvpress, "evaluation/benchmarks/ruler/calculate_metrics.py"), "official_kvpress")
    with gzip.GzipFile(a.out, "wb", mtime=0) as out:
        def write(suite, task, prediction, truth, score, marker=None):
            line = dict(suite=suite, task=task, prediction=prediction, ground_truth=truth, score=score)
            if marker is not None:
                line["random_string_to_prepend"] = marker
            out.write((json.dumps(line) + "\n").encode())

        for task in "passkey number_string kv_retrieval longdialogue_qa_eng longbook_sum_eng longbook_choice_eng longbook_qa_eng longbook_qa_chn math_find math_calc code_run code_debug".split():
            for _ in range(a.n):
                gold = gold_of(r, task)
                pred = answer(r, gold)
                if task == "math_calc":
                    pred = r.choice([pred, str(gold), str(gold[: len(gold) // 2]) + " 5"])
                try:
                    score = infinite.get_score_one(pred, gold, task, "made-up")
                except ValueError:  # int("3.5"): the official code stops there
                    score = 0.0
                write("infinitebench", task, pred, gold, score)
        for name, like in dict(kv="scbench_kv", prefix_suffix="scbench_kv", vt="scbench_vt", qa_eng="longdialogue_qa_eng", qa_chn="longbook_qa_chn", choice_eng="longbook_choice_eng",
                               many_shot="scbench_many_shot", mf="scbench_mf", summary="longbook_sum_eng").items():
            task = shared.Multiturnbench_to_Infinitebench.get("scbench_" + name, "scbench_" + name)
            for _ in range(a.n):
                gold = gold_of(r, like)
                pred = answer(r, gold)
                write("scbench", "scbench_" + name, pred, gold, shared.get_score_one(pred, gold, task, "made-up"))
        import pandas
        for task in ("niah_multivalue", "qa_1"):
            for _ in range(a.n):
                gold = [r.choice([w for w in WORDS if w]) for _ in range(r.randint(1, 7))]
                pred = answer(r, gold)
                frame = pandas.DataFrame([dict(task=task, predicted_answer=pred, answer=gold)])
                write("kvpress-ruler", task, pred, gold, kvpress.calculate_metrics(frame)[task]["string_match"])
        for _ in range(a.n):
            marker = "".join(r.choices("abcXYZ09", k=10))
            gold = marker + phrase(r, r.choice([5, 40, 400]))
            words = gold.split(" ")
            pred = r.choice([gold, gold[10:], marker + phrase(r, 40), gold[: r.randint(0, len(gold))], marker, "", marker + " " + gold[10:], " ".join(w for w in words if r.random() < 0.8),
                             words[0] + " " + " ".join(r.sample(words[1:], len(words) - 1))])
            score = 0.0
            if pred.startswith(marker):
                score = difflib.SequenceMatcher(None, pred.removeprefix(marker), gold.removeprefix(marker)).ratio()
            write("mrcr", "2needle", pred, gold, score, marker)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["samples", "scores"])
    p.add_argument("out")
    for name in ("infinitebench", "scbench", "kvpress"):
        p.add_argument("--" + name, help="a checkout")
    p.add_argument("--n", type=int, default=500)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.what == "samples":
        return samples(a)
    if not (a.infinitebench and a.scbench and a.kvpress):
        p.error("scores needs --infinitebench, --scbench and --kvpress")
    scores(a)


if __name__ == "__main__":
    main()
