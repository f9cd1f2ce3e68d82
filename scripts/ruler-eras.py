#!/usr/bin/env python3
"""Write rows of gollm eval ruler-data as each era of the official generator would.

  gollm eval ruler-data -m testdata/ruler.gguf -o made --tasks niah_multiquery,vt,fwe \\
      --haystack builtin --lengths 1k -n 6 --fit fine --seed 7
  scripts/ruler-eras.py made eval/ruler/testdata

The sentences stay ours, so that no official text is in the files; their form is
that of the official code, which writes with this json module: the fields and their
order, the blanks, the escapes, and in which field the beginning of the answer is. Each era gets rows of its
own, an equal share in order.
"""
import json, os, sys


def first_era(row, line, needle):
    """To 2025-05-12: four fields, the prefix at the end of input, index counts."""
    return {"index": line, "input": row["input"] + row["answer_prefix"], "outputs": row["outputs"], "length": row["length"]}


def later_era(row, line, needle):
    """Since: the prefix is a field. In needle files index is where the first answer is."""
    keys = ["index", "input", "outputs", "length", "length_w_model_temp", "answer_prefix"]
    made = {k: row[k] for k in keys}
    made["index"] = row["input"].index(row["outputs"][0]) if needle else line
    if needle:
        made["token_position_answer"] = row["token_position_answer"]
    return made


def main(made, out):
    eras = {"E1": first_era, "E2": later_era, "E3": later_era}
    for folder, _, files in os.walk(made):
        for name in files:
            with open(os.path.join(folder, name)) as f:
                rows = [json.loads(line) for line in f]
            share, needle = len(rows) // len(eras), os.path.basename(folder).startswith("niah")
            for i, (era, write) in enumerate(eras.items()):
                path = os.path.join(out, era, os.path.relpath(folder, made), name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as to:
                    for line, row in enumerate(rows[i * share:(i + 1) * share]):
                        to.write(json.dumps(write(row, line, needle)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
