#!/usr/bin/env python3
"""Write what NLTK's punkt makes of texts, a line of JSON for each.

  python3 -m venv old && old/bin/pip install nltk==3.10.1
  python3 -m venv new && new/bin/pip install nltk==3.10.4
  old/bin/python scripts/punkt-vectors.py eval/punkt/english.txt.gz > eval/punkt/testdata/3.10.1.jsonl
  new/bin/python scripts/punkt-vectors.py eval/punkt/english.txt.gz > eval/punkt/testdata/3.10.4.jsonl
  new/bin/python scripts/punkt-vectors.py eval/punkt/english.txt.gz --texts 100000 --file TEXT > more.jsonl
  go test ./eval/punkt -run NLTK -nltk "$PWD/more.jsonl"

The first line is the release of NLTK. The texts are made up, of what the rules look at:
words of the tables in all cases, initials, numbers, dots, dashes, quotes, brackets,
white space and letters of other scripts. --file is a text that is cut too, as it is and
with its white space collapsed as RULER does it. The tables are given to the official
code, which is otherwise as it comes.
"""
import argparse, gzip, json, random, re
import nltk
from nltk.tokenize.punkt import PunktSentenceTokenizer

NUMBERS = ["1", "12", "3.5", "1,000", "-4", ".5", "-.7,", "1990s", "٣", "٣.٤", "12-13", "½", "1.2.3", "-", "-.", "4.-"]
LETTERS = list("aAbBjJsSéÉßΣσ_²Ⅷªᴬǅİ東१") + ["ΟΔΟΣ", "école", "École", "İstanbul", "東京", "e\u0301", "ᾈ", "😀", "ǅep", "Ⅷ", "Ⅷ", "Ⓐ", "Ⓐ", "ⓐ", "\u0301", "\u0301", "\u200d"]
WITHIN = [".", ".", ".", "-", "'", ",", "&", "/", "@", ":", "*", "..", "--", "_", "\u2019", "`", "#"]
ENDS = [".", ".", ".", ".", ".", "?", "!", "...", "..", "....", "?!", "!!!", ".?", "?..", ",", ";", ":", "", "", ". . .", ".\xa0.\xa0.", ".\u2003.\u2003.\u2003.", ".\xa0.", ". . . .", ".\xa0.\n.", ".\xa0.\n."]
OPEN = list("\"'([{`<\u201c\u2018\u00ab") + ["``", "--", "*", "@", "#"]
CLOSE = list("\"')]}>\u201d\u2019\u00bb") + ["''", ")\"", "\u201d)", "--", "''--", "*", ",", ".)", ":", "@"]
BLANKS = [" "] * 12 + ["  ", "\n", "\n\n", "\t", "\r\n", "\xa0", "\u3000", "\x85", "\u2028", "\x1c", "\x0b", "", "", "\u200b", " \n ", "\n\x1c\n"]


def tables(path):
    made = PunktSentenceTokenizer()
    p = made._params
    for line in gzip.open(path, "rt", encoding="ascii", newline="\n"):
        name, *words = line[:-1].split("\t")
        if name == "abbreviations":
            p.abbrev_types = set(words)
        elif name == "collocations":
            p.collocations = {tuple(pair.split(" ")) for pair in words}
        elif name == "starters":
            p.sent_starters = set(words)
        else:
            p.ortho_context.update((w, int(name)) for w in words)
    return made


class Texts:
    """Made-up texts, the same for a seed."""

    def __init__(self, params, seed):
        self.r = random.Random(seed)
        self.abbreviations, self.starters = sorted(params.abbrev_types), sorted(params.sent_starters)
        self.pairs = sorted(params.collocations)
        self.words = {}
        for w, flags in sorted(params.ortho_context.items()):
            self.words.setdefault(flags, []).append(w)
        self.words = list(self.words.values())

    def cased(self, w):
        return self.r.choice([w, w, w.capitalize(), w.capitalize(), w.upper(), w[:1] + w[1:].title()])

    def word(self):
        r = self.r
        k = r.randrange(18)
        if k < 4:
            return self.cased(r.choice(r.choice(self.words)))
        if k < 7:
            return self.cased(r.choice(self.abbreviations)) + r.choice(["", ".", "."])
        if k < 9:
            return self.cased(r.choice(self.starters))
        if k == 9:
            a, b = r.choice(self.pairs)
            a = a.replace("##number##", r.choice(NUMBERS[:6]))
            return self.cased(a) + "." + r.choice([" ", " ", ") "]) + self.cased(b)
        if k == 10:
            return r.choice(NUMBERS)
        if k == 11:
            return r.choice(LETTERS) + r.choice(["", "."])
        if k == 12:
            return r.choice(LETTERS) + r.choice(WITHIN) + self.word()
        if k == 13:
            return "well-" + r.choice(self.abbreviations) + "."
        if k < 16:  # an initial or a number, and what is or looks like a letter or a word of any flags
            return r.choice([r.choice(LETTERS), r.choice(NUMBERS)]) + ". " + r.choice([r.choice(LETTERS), self.cased(r.choice(r.choice(self.words)))])
        return r.choice(["He", "the", "We", "and", "it", "This", "I", "pp", "No", "e.g.", "i.e.", "Ph.D.", "U.S.", "x"])

    def text(self):
        r, made = self.r, ""
        for _ in range(r.randint(0, 14)):
            if r.random() < 0.15:
                made += r.choice(OPEN)
            made += self.word()
            if r.random() < 0.5:
                made += r.choice(ENDS)
            while r.random() < 0.25:
                made += r.choice(CLOSE)
            made += r.choice(BLANKS)
        return made


def main():
    a = argparse.ArgumentParser()
    a.add_argument("tables")
    a.add_argument("--texts", type=int, default=350)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--file")
    a = a.parse_args()
    punkt = tables(a.tables)
    texts = Texts(punkt._params, a.seed)
    print(json.dumps({"nltk": nltk.__version__}))

    def cut(text):
        print(json.dumps({"text": text, "sentences": punkt.tokenize(text)}, ensure_ascii=False))

    for _ in range(a.texts):
        cut(texts.text())
    if a.file:
        text = open(a.file, encoding="utf-8", newline="").read()
        cut(text)
        cut(re.sub(r"\s+", " ", text).strip())


if __name__ == "__main__":
    main()
