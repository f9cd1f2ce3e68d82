"""llama.cpp through llama-cpp-python's C bindings, without its Python classes.

Engine loads a GGUF; Context runs tokens through it and reads logits. Nothing is
sampled and nothing is copied inside a timed loop: a decode step is one call of
llama_decode with a batch that points at one token, as in llama.cpp's llama-bench.
"""

import ctypes
import random
import time

import llama_cpp as lc
import numpy as np

ERROR = 3  # GGML_LOG_LEVEL_ERROR
_complaints = []  # what llama.cpp logged at level error


@lc.llama_log_callback
def _log(level, text, data):
    if level == ERROR:
        _complaints.append(text.decode(errors="replace").strip())


class Engine:
    """A model that llama.cpp has loaded."""

    def __init__(self, path, repack=True):
        lc.llama_log_set(_log, ctypes.c_void_p(0))
        lc.llama_backend_init()
        params = lc.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = repack
        self.model = lc.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}: {' / '.join(_complaints)}")
        self.vocab_size = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))

    def context(self, size, threads, flash=False, batch=2048, ubatch=512, cache=None):
        return Context(self, size, threads, flash, batch, ubatch, cache)

    def tokenize(self, text):
        """The ids of text with the model's own rules for BOS; markup is plain text."""
        data = text.encode()
        out = (lc.llama_token * (len(data) + 8))()
        vocab = lc.llama_model_get_vocab(self.model)
        n = lc.llama_tokenize(vocab, data, len(data), out, len(out), True, False)
        return list(out[:n])

    def text(self, tokens):
        """The text of tokens."""
        vocab, out = lc.llama_model_get_vocab(self.model), b""
        piece = (ctypes.c_char * 256)()
        for token in tokens:
            n = lc.llama_token_to_piece(vocab, token, piece, len(piece), 0, False)
            out += bytes(piece[:n])
        return out.decode(errors="replace")

    def close(self):
        lc.llama_model_free(self.model)


class Context:
    """A KV cache of one sequence with room for size tokens."""

    def __init__(self, engine, size, threads, flash, batch, ubatch, cache):
        params = lc.llama_context_default_params()
        params.n_ctx = size
        params.n_batch = max(batch, ubatch)
        params.n_ubatch = ubatch
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = (
            lc.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        if cache is not None:
            params.type_k = params.type_v = cache
        params.no_perf = True
        self.engine = engine
        self.batch = params.n_batch
        self.ctx = lc.llama_init_from_model(engine.model, params)
        if not self.ctx:
            raise SystemExit(f"llama.cpp cannot make a context of {size} tokens")
        self.memory = lc.llama_get_memory(self.ctx)
        self.length = 0

    def truncate(self, length):
        """Forgets every position from length on."""
        if length == 0:
            lc.llama_memory_clear(self.memory, False)
        elif not lc.llama_memory_seq_rm(self.memory, 0, length, -1):
            raise SystemExit(f"llama.cpp cannot truncate its cache to {length}")
        self.length = length

    def extend(self, tokens):
        """Runs tokens; logits are computed for the last one of every batch only."""
        for i in range(0, len(tokens), self.batch):
            part = (lc.llama_token * len(tokens[i : i + self.batch]))(*tokens[i : i + self.batch])
            self._decode(lc.llama_batch_get_one(part, len(part)))
        lc.llama_synchronize(self.ctx)
        self.length += len(tokens)

    def logits(self, tokens):
        """Runs tokens in one call; returns their logits, float32 [len(tokens), vocab]."""
        batch = lc.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self.length + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = 1
        self._decode(batch)
        rows = lc.llama_get_logits(self.ctx)
        out = np.ctypeslib.as_array(rows, shape=(len(tokens), self.engine.vocab_size)).copy()
        lc.llama_batch_free(batch)
        self.length += len(tokens)
        return out

    def greedy(self, tokens, n):
        """The n most likely tokens after tokens, one at a time, and their lead in logits."""
        self.truncate(0)
        self.extend(tokens[:-1])
        out, leads, last = [], [], tokens[-1]
        for _ in range(n):
            row = self.logits([last])[0]
            second, last = (int(t) for t in np.argsort(row)[-2:])
            out.append(last)
            leads.append(float(row[last] - row[second]))
        return out, leads

    def time_prefill(self, n):
        """Tokens per second of one prompt of n random tokens in an empty cache."""
        self.truncate(0)
        tokens = self._random(n)
        start = time.perf_counter()
        self.extend(tokens)
        return n / (time.perf_counter() - start)

    def time_decode(self, depth, n):
        """Tokens per second of n single-token steps after depth tokens in the cache."""
        if self.length < depth:
            self.fill(depth)
        self.truncate(depth)
        token = (lc.llama_token * 1)(0)
        batch = lc.llama_batch_get_one(token, 1)
        tokens = self._random(n)
        decode, wait, ctx = lc.llama_decode, lc.llama_synchronize, self.ctx
        start = time.perf_counter()
        for token[0] in tokens:
            decode(ctx, batch)
            wait(ctx)
        seconds = time.perf_counter() - start
        self.length += n
        if lc.llama_memory_seq_pos_max(self.memory, 0) != depth + n - 1:
            raise SystemExit(f"llama.cpp did not decode {n} tokens at depth {depth}")
        self.truncate(depth)
        return n / seconds

    def fill(self, depth, base=256):
        """Makes the cache depth tokens long with copies of base computed ones.

        A step's cost does not depend on the values in the cache, and a real prefill
        of a large model to 8,192 tokens takes many minutes. The sequence's state is
        read, repeated and set; its layout is that of the pinned version.
        """
        base = min(base, depth)
        self.truncate(0)
        self.extend(self._random(base))
        if base == depth:
            return
        size = lc.llama_state_seq_get_size(self.ctx, 0)
        state = np.zeros(size, np.uint8)
        lc.llama_state_seq_get_data(self.ctx, _bytes(state), size, 0)
        longer = _repeat(state, base, depth)
        self.truncate(0)
        if not lc.llama_state_seq_set_data(self.ctx, _bytes(longer), len(longer), 0):
            raise SystemExit(f"llama.cpp does not take a cache of {depth} tokens")
        self.length = depth

    def close(self):
        lc.llama_free(self.ctx)

    def _decode(self, batch):
        status = lc.llama_decode(self.ctx, batch)
        if status != 0:
            raise SystemExit(f"llama_decode failed with {status} at position {self.length}")

    def _random(self, n):
        draw = random.Random(self.length * 1000003 + n)
        return [draw.randrange(self.engine.vocab_size) for _ in range(n)]


def _bytes(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _repeat(state, base, depth):
    """The state of a sequence of base tokens, repeated to depth tokens, uint8 [n].

    The layout: magic, sequence, streams, cells; position, 1 and sequence of every
    cell; transposed, layers; keys of every layer (type, bytes of a row, rows); values
    the same way, or if transposed (type, bytes of an element, rows, elements).
    """
    at, out = 0, []

    def copy(n):
        nonlocal at
        at += n
        out.append(state[at - n : at])
        return int.from_bytes(out[-1].tobytes(), "little")

    def repeat(rows, size):
        nonlocal at
        cells = state[at : at + rows * base * size].reshape(rows, base, size)
        at += cells.size
        out.append(cells[:, np.arange(depth) % base].reshape(-1))

    copy(12)
    if copy(4) != base:
        raise SystemExit("llama.cpp's state has another layout than the pinned version's")
    out[-1] = np.array([depth], "<u4").view(np.uint8)
    at += base * 12
    cells = np.tile(np.array([0, 1, 0], "<u4"), (depth, 1))
    cells[:, 0] = np.arange(depth)
    out.append(cells.reshape(-1).view(np.uint8))
    transposed, layers = copy(4), copy(4)
    for part in "kv":
        for _ in range(layers):
            copy(4)
            if part == "v" and transposed:
                size, rows = copy(4), copy(4)
                repeat(rows, size)
            else:
                repeat(1, copy(8))
    if at != len(state):
        raise SystemExit("llama.cpp's state has another layout than the pinned version's")
    return np.concatenate(out)
