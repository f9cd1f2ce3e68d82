#!/usr/bin/env python3
"""Score the same predictions with gollm and with the official code, and compare.

  scripts/official-scores.py --gollm ./gollm [--ruler RULER] [--longbench LongBench] [--n 500] [--seed 1]

Predictions are made up: right answers, parts of them, other cases, punctuation,
control characters, other scripts, nothing at all. RULER is a checkout of
NVIDIA/RULER, LongBench one of THUDM/LongBench, whose metrics need the packages
rouge and fuzzywuzzy, and for three Chinese data sets jieba: they are left out where
it is not installed. Exits with 1 where a score differs in any digit.
"""
import argparse, importlib.util, json, os, random, re, subprocess, sys, tempfile, types

RULER = {"niah_single_1": "niah", "niah_multikey_3": "niah", "niah_multivalue": "niah", "vt": "variable_tracking",
         "cwe": "common_words_extraction", "fwe": "freq_words_extraction", "qa_1": "qa", "qa_2": "qa"}
LONGBENCH = ["narrativeqa", "qasper", "hotpotqa", "gov_report", "samsum", "trec", "triviaqa", "passage_count",
             "passage_retrieval_en", "passage_retrieval_zh", "lsht", "lcc", "repobench-p"]
CHINESE = ["multifieldqa_zh", "dureader", "vcsum"]
HAN = ("北京 清华大学 来到 网易 人工智能 长沙 市民 研究 生命 的 了 是 在 和 不 我们 他们 2026年 3.5% GPT-4 C++ 问题 回答 文章 会议 经济 发展 李小福 "
       "云计算 专家 结婚 尚未 和尚 东西 南北 一 二 三 十 百 龘 犇 ， 。 “ ” 、 ！ \u3000").split(" ")
WORDS = ("the a an The A. of and Paris paris 12 3,677 U.S.A. École ÉCOLE straße ΟΔΟΣ İstanbul 東京 ok_name x-ray don't "
         "return self.cache[key] if (x == null) int a = b; // c # note Paragraph 7 007 １２ 段落3 3.5 p.m.").split()


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def phrase(r, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(0, most)))


def sentence(r, most):
    return "".join(r.choice(HAN) for _ in range(r.randint(1, most)))


def answer(r, refs):
    """A prediction that has something to do with its references."""
    gold = r.choice(refs)
    kind = r.randrange(9)
    text = [gold, gold.upper(), " ".join(refs), gold[: len(gold) // 2], phrase(r, 30), "", "\n\n" + gold + "\n" + phrase(r, 5),
            phrase(r, 4) + " " + gold + ". " + phrase(r, 9), "```\n" + gold + "\x00" + phrase(r, 3) + "\t"][kind]
    return text.replace(" ", r.choice([" ", "  ", "\n", ". "]), r.randint(0, 3))


def score(a, suite, path, *more):
    out = subprocess.run([a.gollm, "eval", "score", "--suite", suite, "--json", *more, path], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"gollm failed: {out.stderr}")
    return json.loads(out.stdout)["files"][0]


def ruler(a, r, folder):
    evaluate = open(os.path.join(a.ruler, "scripts/eval/evaluate.py")).read()
    scope = {"re": re}
    exec(re.search(r"def postprocess_pred.*?return predict_str\n", evaluate, re.S).group(0), scope)
    tasks = load(os.path.join(a.ruler, "scripts/eval/synthetic/constants.py"), "official_ruler").TASKS
    for name, kind in RULER.items():
        refs = [[phrase(r, 3) + r.choice(WORDS) for _ in range(r.randint(1, 5))] for _ in range(a.n)]
        preds = [answer(r, x) for x in refs]
        path = os.path.join(folder, name + ".jsonl")
        with open(path, "w") as f:
            for i, (p, x) in enumerate(zip(preds, refs)):
                f.write(json.dumps(dict(index=i, pred=p, input="", outputs=x, others={}, truncation=-1, length=1)) + "\n")
        clean = [scope["postprocess_pred"](p, {}) for p in preds]
        yield name, tasks[kind]["metric_fn"](clean, refs), score(a, "ruler", path)["score"]
        yield name + " nulls", sum(not p for p in clean), score(a, "ruler", path)["nulls"]


def longbench(a, r, folder):
    try:
        import jieba
        jieba.setLogLevel(60)
        chinese, more = CHINESE, ["--jieba", jieba.__path__[0]]
    except ImportError:
        chinese, more = [], []
        sys.modules["jieba"] = types.ModuleType("jieba")
    sys.path.insert(0, os.path.join(a.longbench, "LongBench"))
    try:
        import numpy
    except ImportError:
        numpy = None
        sys.modules["numpy"] = types.ModuleType("numpy")
    official = load(os.path.join(a.longbench, "LongBench/eval.py"), "official_longbench")
    classes = ["Food", "Animal", "Disease and medicine", "Disease", "Other location", "City", "Country", "Number of something", "Other number"]
    for name in LONGBENCH + chinese:
        make = {"trec": lambda: r.choice(classes), "lsht": lambda: r.choice(classes), "passage_count": lambda: str(r.randint(1, 9)),
                "passage_retrieval_en": lambda: f"Paragraph {r.randint(1, 12)}", "passage_retrieval_zh": lambda: f"段落{r.randint(1, 12)}"}
        make.update({x: lambda: sentence(r, 40) for x in CHINESE})
        refs = [[make.get(name, lambda: phrase(r, 40) + r.choice(WORDS))() for _ in range(r.randint(1, 3))] for _ in range(a.n)]
        preds = [answer(r, x) for x in refs]
        if name in ("trec", "lsht"):
            preds = [p + " " + r.choice(classes) for p in preds]
        if name in CHINESE:
            preds = [p if r.random() < 0.5 else sentence(r, 60) for p in preds]
        lengths = [r.choice([100, 3999, 4000, 7999, 8000]) for _ in refs]
        path = os.path.join(folder, name + ".jsonl")
        with open(path, "w") as f:
            for p, x, n in zip(preds, refs, lengths):
                f.write(json.dumps(dict(pred=p, answers=x, all_classes=classes, length=n), ensure_ascii=False) + "\n")
        got = score(a, "longbench", path, "--e", *more)
        yield name, official.scorer(name, preds, refs, classes), got["score"]
        if numpy:
            for bucket, x in official.scorer_e(name, preds, refs, lengths, classes).items():
                yield f"{name} {bucket}", float(x), got["by_length"][bucket]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gollm", required=True, help="the program")
    p.add_argument("--ruler")
    p.add_argument("--longbench")
    p.add_argument("--n", type=int, default=500, help="predictions of each task")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if not a.ruler and not a.longbench:
        p.error("name a checkout: --ruler or --longbench")
    r, wrong, count = random.Random(a.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for suite in (ruler if a.ruler else None, longbench if a.longbench else None):
            for name, want, got in suite(a, r, folder) if suite else ():
                count += 1
                if want != got:
                    wrong += 1
                    print(f"{name}: official {want}, gollm {got}")
    print(f"{count - wrong} of {count} scores are equal")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
