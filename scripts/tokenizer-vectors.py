#!/usr/bin/env python3
"""Writes the tokenizer test vectors, with llama.cpp as the reference.

    python3 -m venv venv
    venv/bin/pip install llama-cpp-python==0.3.36     # builds llama.cpp, needs a C++ compiler
    venv/bin/python scripts/tokenizer-vectors.py ../shared/data tokenizer/testdata

The first argument is a folder with tokenizer/llama-bpe.gguf, tokenizer/llama-spm.gguf
and text/war-and-peace.txt. For each vocabulary a file NAME.json.gz is written:

    {"peer": version of llama-cpp-python,
     "cases": [{"text": string or "hex": bytes, "special": 0 or 1, "ids": [...]}],
     "runs": [{"text": string, "ids": [ids of the string repeated 1, 2, ... 257 times]}],
     "book": {"count": number of ids, "sha256": of the ids as little-endian int32},
     "ends": ids that end a generation,
     "pieces": sha256 of each token's text, each after its length as little-endian int32}

The pre-tokenizers that have no vocabulary of their own here are run on that of
Llama-3, with the name in the file's metadata replaced and a seventh of the texts.
"""

import ctypes
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import random
import struct
import sys
import tempfile

import llama_cpp

SPACES = [chr(c) for c in (
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
    0x202F, 0x205F, 0x3000, 0x180E, 0x200B, 0x2060, 0xFEFF)]
RUNS = list("aAezZ09!.,-=_#*/'\"<>|~ ") + [
    "\n", "\t", "\r", "\0", "\u00e9", "\u0301", "\u00a0", "\u200d", "\u3000", "\u2026",
    "\u4e2d", "\u3042", "\uac00", "\u0e01", "\u0661", "\U0001f600", "\U0001f999", "\ufffd",
    "\u2581", "ab", "\r\n", " \n", "the ", "\U0001f468\u200d\U0001f4bb"]
EMOJI = [
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f469\U0001f3fd\u200d\U0001f680",
    "\U0001f3f3\ufe0f\u200d\U0001f308", "\u2764\ufe0f\u200d\U0001f525", "\U0001f9d1\u200d\U0001f4bb",
    "\U0001f441\ufe0f\u200d\U0001f5e8\ufe0f", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"]
SCRIPTS = [
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u73a9\u3002",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3068\u30ab\u30bf\u30ab\u30ca",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663\u0664",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "na\u00efve caf\u00e9 \u00dcBER stra\u00dfe \u0130stanbul \u0131",
    "e\u0301 a\u0308\u0323 \u1e69", "\u2460\u2461 \u00bd \u2167 \u00b2\u00b3 \U0001d7d8\U0001d7d9", "\U0002ebf0\U0002ee5d \U00020000",
    "\U00010348\U0001f600\u17f0\u0bf3", "\u200b\u200e\u202e\u2066\u00ad x"]
CODE = [
    "def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n", "{\"a\":[1,2.5e-3,null],\"b\":\"\\u00e9\\n\"}",
    "<div class=\"x\">&nbsp;</div>\r\n<br/>", "SELECT * FROM t WHERE a<>'b' AND c>=10;", "https://example.org/a_b?c=%20d&e=f#g",
    "for(i=0;i<n;++i){a[i]+=b[i]*c;}//x", "$ ls -la | grep '^d' > /dev/null 2>&1", "a^b~c`d|e<f=g+h$i"]
CONTRACTIONS = ["s", "t", "m", "d", "re", "ve", "ll", "x", "r", "l", "\u017f", "\u212a"]
BPE_CHAT = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: 26 Jul 2024\n\nYou are a helpful assistant.<|eot_id|>")
BPE_TURN = (
    "<|start_header_id|>user<|end_header_id|>\n\nWhat is {0} + {0}?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{0} and {0} make it.<|eot_id|>")
SPM_CHAT = "<s>[INST] <<SYS>>\nYou are a helpful assistant.\n<</SYS>>\n\nHi! [/INST] Hello. </s>"
SPM_TURN = "<s>[INST] What is {0} + {0}? [/INST] {0} and {0} make it. </s>"


def spaces():
    for a in SPACES:
        yield from (a, a + a, f"x{a}y", f"x{a}{a}y", f"x{a}", f"{a}x", f"x {a} y", f"1{a}2", f".{a}.", f"{a}\n{a}x", f"\n{a}", f"x{a}\ny")
        for b in SPACES:
            yield f"w{a}{b}v"


def contractions():
    for c in CONTRACTIONS:
        forms = {c, c.upper(), c.capitalize(), c[0] + c[1:].upper()}
        for f in sorted(forms):
            for before in ("", "I", " ", "they ", "\n", "1", "''", "\u00e9"):
                for after in ("", " ok", "x", "'s", "1"):
                    yield f"{before}'{f}{after}"
            yield f"we\u2019{f} go"


def mixes(rng, alphabet, n, longest):
    for _ in range(n):
        yield "".join(rng.choice(alphabet) for _ in range(rng.randint(1, longest)))


def any_unicode(rng, n):
    blocks = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF), (0xE00, 0xE7F),
              (0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFD),
              (0x10000, 0x103FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF)]
    for _ in range(n):
        text = ""
        for _ in range(rng.randint(1, 4)):
            lo, hi = rng.choice(blocks)
            text += "".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 5)))
        yield text


def texts(rng):
    yield from ("", "Hello", " Hello", "Hello world", " Hello  world ", "I'm you're WE'LL", "3.14159265358979323846")
    yield from spaces()
    yield from contractions()
    yield from EMOJI + SCRIPTS + CODE
    for e in EMOJI:
        yield from (f"x{e}y", f"{e} {e}", f"{e}\u200d", f"\u200d{e}", "".join(EMOJI[:3]) + e)
    yield from mixes(rng, " \n\r\t\u00a0a", 300, 12)
    yield from mixes(rng, "0123456789 .,", 150, 20)
    yield from mixes(rng, "'sStTrReEvVlLdDmM a", 200, 10)
    yield from mixes(rng, "aAbB\u00e9\u00c9\u0301\u4e2d1 !\n", 200, 12)
    yield from mixes(rng, SCRIPTS[0] + SCRIPTS[1] + "a 1", 100, 30)
    yield from any_unicode(rng, 500)
    yield "supercalifragilisticexpialidocious" * 20
    yield "".join(SCRIPTS)


def invalid(rng):
    """Bytes that are not UTF-8, such that llama.cpp does not drop any."""
    yield from (b"\xff", b"a\xffb", b"\x80\x80 x", b"caf\xe9", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"ok \xf0\x9f\x98 no", b"\xfe\xfe\xff")
    for _ in range(60):
        yield bytes(rng.choice(b"ab \x80\xbf\xe2\x82\xac\xc3") for _ in range(rng.randint(1, 8)))


def specials(name):
    if name == "llama-spm":
        yield SPM_CHAT + "".join(SPM_TURN.format(i) for i in range(40)) + "<s>[INST] Bye [/INST]"
        yield from ("<s>", "</s>", "<s> x</s> y", "<s><s>", "a<s>b</s>", "<unk>", "<0x0A>", "<s", "x </s>", " <s>  a", "</s></s>\n<s>")
    else:
        yield BPE_CHAT + "".join(BPE_TURN.format(i) for i in range(40)) + "<|start_header_id|>assistant<|end_header_id|>\n\n"
        yield from ("<|eot_id|>", "<|begin_of_text|>x", "a<|eot_id|> b", "<|eot_id|><|eot_id|>", "<|eot_id", "<<|eot_id|>>",
                    "<|reserved_special_token_0|>", "<|python_tag|>print(1)<|eom_id|>", " <|end_of_text|> ", "<|eot_id|>'s", "a <|eot_id|>\n\nb")


class Peer:
    def __init__(self, path):
        self.llm = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        self.vocab = llama_cpp.llama_model_get_vocab(self.llm._model.model)

    def ids(self, data, special=False):
        return self.llm.tokenize(data, add_bos=False, special=special) if data else []

    def size(self):
        return llama_cpp.llama_vocab_n_tokens(self.vocab)

    def ends(self):
        return [i for i in range(self.size()) if llama_cpp.llama_vocab_is_eog(self.vocab, i)]

    def pieces(self):
        digest = hashlib.sha256()
        buf = ctypes.create_string_buffer(4096)
        for i in range(self.size()):
            n = llama_cpp.llama_token_to_piece(self.vocab, i, buf, 4096, 0, True)
            digest.update(struct.pack("<i", n) + buf.raw[:n])
        return digest.hexdigest()


def with_pre(path, pre):
    """A copy of the file in which tokenizer.ggml.pre is another name."""
    data = open(path, "rb").read()
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = data.index(key) + len(key)
    (n,) = struct.unpack_from("<Q", data, at)
    name = pre.encode()
    out = tempfile.NamedTemporaryFile(suffix=".gguf", delete=False)
    out.write(data[:at] + struct.pack("<Q", len(name)) + name + data[at + 8 + n:])
    out.close()
    return out.name


def vectors(peer, name, book, every=1, only_ascii=False):
    rng = random.Random(20)
    plain = [(t.encode(), False) for t in texts(rng)]
    bad = [(b, False) for b in invalid(rng)]
    marked = [(t.encode(), s) for t in specials(name) for s in (False, True)]
    keep = (lambda b: b.isascii()) if only_ascii else (lambda b: True)
    cases = []
    for data, special in (plain + bad)[::every] + marked:
        if not keep(data):
            continue
        case = {"special": 1} if special else {}
        try:
            case["text"] = data.decode()
        except UnicodeDecodeError:
            case["hex"] = data.hex()
        cases.append(case | {"ids": peer.ids(data, special)})
    runs = [{"text": r, "ids": [peer.ids((r * n).encode()) for n in range(1, 258)]} for r in RUNS[::every] if keep(r.encode())]
    out = {"peer": importlib.metadata.version("llama-cpp-python"), "cases": cases, "runs": runs, "ends": peer.ends(), "pieces": peer.pieces()}
    if not only_ascii:
        ids = peer.ids(book)
        out["book"] = {"count": len(ids), "sha256": hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()}
    return out


def write(path, data):
    raw = json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode()
    buf = io.BytesIO()
    with gzip.GzipFile(fileobj=buf, mode="wb", compresslevel=9, mtime=0) as z:
        z.write(raw)
    with open(path, "wb") as f:
        f.write(buf.getvalue())
    print(f"{path}: {len(buf.getvalue())} bytes, {len(data['cases'])} cases, {len(data['runs'])} runs")


def main():
    shared, out = sys.argv[1:3]
    book = open(f"{shared}/text/war-and-peace.txt", "rb").read()
    for name in ("llama-bpe", "llama-spm"):
        peer = Peer(f"{shared}/tokenizer/{name}.gguf")
        write(f"{out}/{name}.json.gz", vectors(peer, name, book))
    for pre in ("gpt-2", "default", "smaug-bpe", "tekken", "qwen2", "smollm"):
        path = with_pre(f"{shared}/tokenizer/llama-bpe.gguf", pre)
        # Outside ASCII llama.cpp only approximates the pattern of tekken.
        every = 3 if pre == "qwen2" else 7  # a thousand texts
        write(f"{out}/{pre}.json.gz", vectors(Peer(path), "llama-bpe", book, every, only_ascii=pre == "tekken"))
        os.unlink(path)


if __name__ == "__main__":
    main()
