#!/usr/bin/env python3
"""Write eval/longbench/testdata/splits.json: what jieba makes of texts, by small tables.

  venv/bin/pip install jieba==0.42.1
  venv/bin/python scripts/jieba-vectors.py > eval/longbench/testdata/splits.json

Dictionary and tables are made up here and given to the official code, so that nothing
of its own is in the file: few characters, so that words overlap; counts that repeat, so
that paths are equally likely; and characters that only some tags, or none, know.
"""
import json, random, sys, tempfile
import jieba, jieba.finalseg

HAN = "天地人日月山水火木金土上下左右"
LATIN = ["a", "B", "3", "3.14", "12%", "C++", "x_1", "AT&T", "-", ".", "%", "5.5%b", "v2.0.1"]
BLANKS = ["，", "。", " ", "\n", "\r\n", "\r", "\u3000", "é", "５", "“", "😀", "\t\t"]


def main():
    r = random.Random(20261120)
    words = {}
    for n, count in ((1, 9), (2, 40), (3, 25), (4, 8)):
        for _ in range(count):
            words["".join(r.choice(HAN[:12]) for _ in range(n))] = r.choice([1, 2, 3, 3, 3, 5, 40, 700])
    words.update({"C++": 3, "AT&T": 4, "天a": 5, "火火": 0})
    dictionary = "".join(f"{w} {n} n\n" for w, n in words.items())
    number = lambda: -round(r.uniform(0.1, 9), 15)
    start = {"B": number(), "E": -3.14e100, "M": -3.14e100, "S": number()}
    trans = {"B": {"E": number(), "M": number()}, "E": {"B": number(), "S": number()},
             "M": {"E": number(), "M": number()}, "S": {"B": number(), "S": number()}}
    emit = {tag: {c: number() for c in HAN[:13] if r.random() < 0.8} for tag in "BEMS"}
    emit["B"]["天"] = emit["S"]["天"] = emit["E"]["天"] = emit["M"]["天"] = -2.5  # equals
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf8") as f:
        f.write(dictionary)
        f.flush()
        jieba.setLogLevel(60)
        t = jieba.Tokenizer(f.name)
        t.tmp_dir = tempfile.mkdtemp()
        jieba.finalseg.start_P, jieba.finalseg.trans_P, jieba.finalseg.emit_P = start, trans, emit
        splits = []
        for _ in range(600):
            text = "".join(r.choice(LATIN) if k == 0 else r.choice(BLANKS) if k == 1 else r.choice(HAN) for k in (r.randrange(14) for _ in range(r.randint(0, 24))))
            splits.append([text, list(t.cut(text, cut_all=False))])
    json.dump({"dictionary": dictionary, "start": "P=" + repr(start), "trans": "P=" + repr(trans), "emit": "P=" + ascii(emit), "splits": splits},
              sys.stdout, ensure_ascii=False, indent=0)
    print()


if __name__ == "__main__":
    main()
