"""GGUF files in numpy: a reader, a writer, and the value of every quantized type.

read() maps a file; values() is the definition of what its bytes mean: each
quantized block is expanded in float64 from the layout in the comment above it.
"""

import struct

import numpy as np

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32

# Element types: number in the file -> (name, elements per block, bytes per block).
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}
NUMBER = {name: number for number, (name, _, _) in TYPES.items()}

# Metadata scalars: number in the file -> struct format.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Tensor:
    """A tensor as the file stores it; dims is row-major, so dims[-1] is contiguous."""

    def __init__(self, kind, dims, raw):
        self.kind, self.dims, self.raw = kind, dims, raw

    def values(self):
        """The tensor's values, float64, shaped dims."""
        return dequantize(self.kind, self.raw).reshape(self.dims)


def read(path):
    """Returns a file's metadata (dict) and tensors (dict of Tensor)."""
    data = np.memmap(path, np.uint8, "r")
    at = 0

    def take(fmt):
        nonlocal at
        out = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return out[0]

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return bytes(data[at - n : at]).decode("utf-8", "surrogateescape")

    def value(kind):
        if kind == STRING:
            return text()
        if kind == ARRAY:
            item, n = take("I"), take("Q")
            return [value(item) for _ in range(n)]
        return take(SCALARS[kind])

    if bytes(data[:4]) != MAGIC:
        raise SystemExit(f"{path} is not a GGUF file")
    at = 8
    n_tensors, n_meta = take("Q"), take("Q")
    meta = {}
    for _ in range(n_meta):
        key = text()
        meta[key] = value(take("I"))
    infos = []
    for _ in range(n_tensors):
        name, rank = text(), take("I")
        dims = [take("Q") for _ in range(rank)][::-1]
        infos.append((name, dims, take("I"), take("Q")))
    align = meta.get("general.alignment", ALIGNMENT)
    start = -(-at // align) * align
    tensors = {}
    for name, dims, number, offset in infos:
        kind, elements, size = TYPES[number]
        n = int(np.prod(dims)) // elements * size
        tensors[name] = Tensor(kind, dims, data[start + offset : start + offset + n])
    return meta, tensors


def write(path, meta, tensors):
    """Writes meta (ints become u32, in arrays i32, floats f32) and tensors (dict of Tensor)."""

    def text(s):
        b = s.encode()
        return struct.pack("<Q", len(b)) + b

    def scalar(v):
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        if isinstance(v, int):
            return 4, struct.pack("<I", v)
        if isinstance(v, float):
            return 6, struct.pack("<f", v)
        return STRING, text(v)

    def value(v):
        if not isinstance(v, list):
            kind, b = scalar(v)
            return struct.pack("<I", kind) + b
        if isinstance(v[0], int):
            return struct.pack(f"<IIQ{len(v)}i", ARRAY, 5, len(v), *v)
        items = [scalar(x) for x in v]
        return struct.pack("<IIQ", ARRAY, items[0][0], len(v)) + b"".join(b for _, b in items)

    head = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(meta))
    head += b"".join(text(k) + value(v) for k, v in meta.items())
    offset = 0
    for name, t in tensors.items():
        head += text(name) + struct.pack(f"<I{len(t.dims)}Q", len(t.dims), *t.dims[::-1])
        head += struct.pack("<IQ", NUMBER[t.kind], offset)
        offset += -(-len(t.raw) // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT))
        for t in tensors.values():
            f.write(bytes(t.raw) + bytes(-len(t.raw) % ALIGNMENT))


def plain(kind, values):
    """A Tensor of type F32, F16 or BF16 with the given values, rounded to nearest even."""
    x = np.ascontiguousarray(values, np.float32)
    if kind == "BF16":
        bits = x.view(np.uint32).astype(np.uint64)
        raw = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    else:
        raw = x.astype({"F32": "<f4", "F16": "<f2"}[kind])
    return Tensor(kind, list(x.shape), raw.reshape(-1).view(np.uint8))


def q8_0(values):
    """A Tensor of type Q8_0: 32 values share a scale, a 127th of the largest."""
    x = np.ascontiguousarray(values, np.float32).reshape(-1, 32)
    scale = (np.abs(x).max(1, keepdims=True) / 127).astype("<f2")
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    q = np.clip(np.rint(x / divisor), -127, 127).astype(np.int8)
    raw = np.concatenate([scale.view(np.uint8), q.view(np.uint8)], axis=1)
    return Tensor("Q8_0", list(np.shape(values)), raw.reshape(-1))


def dequantize(kind, raw):
    """The values of a tensor's bytes, float64, flat."""
    raw = np.asarray(raw)
    if kind == "F32":
        return raw.view("<f4").astype(np.float64)
    if kind == "F16":
        return raw.view("<f2").astype(np.float64)
    if kind == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    _, _, size = TYPES[NUMBER[kind]]
    return BLOCKS[kind](raw.reshape(-1, size)).reshape(-1)


def _half(b, at):
    """The f16 at byte at of every block, [blocks, 1]."""
    return np.ascontiguousarray(b[:, at : at + 2]).view("<f2").astype(np.float64)


def _nibbles(b):
    """Low nibbles of all bytes, then high nibbles: [blocks, n] -> [blocks, 2n]."""
    return np.concatenate([b & 15, b >> 4], axis=-1).astype(np.int64)


def _fifth(b, at):
    """The 32 bits at byte at, lowest first: [blocks, 32]."""
    return np.unpackbits(b[:, at : at + 4], axis=1, bitorder="little").astype(np.int64)


# f16 d, 16 bytes of nibbles
def _q4_0(b):
    return _half(b, 0) * (_nibbles(b[:, 2:]) - 8)


# f16 d, f16 m, 16 bytes of nibbles
def _q4_1(b):
    return _half(b, 0) * _nibbles(b[:, 4:]) + _half(b, 2)


# f16 d, 32 fifth bits, 16 bytes of nibbles
def _q5_0(b):
    return _half(b, 0) * ((_nibbles(b[:, 6:]) | _fifth(b, 2) << 4) - 16)


# f16 d, f16 m, 32 fifth bits, 16 bytes of nibbles
def _q5_1(b):
    return _half(b, 0) * (_nibbles(b[:, 8:]) | _fifth(b, 4) << 4) + _half(b, 2)


# f16 d, 32 i8
def _q8_0(b):
    return _half(b, 0) * b[:, 2:].view(np.int8)


CODES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


# f16 d, 16 bytes of nibbles that index CODES
def _iq4_nl(b):
    return _half(b, 0) * CODES[_nibbles(b[:, 2:])]


# f16 d, u16 high scale bits, 4 bytes of low scale nibbles, 8 x 16 bytes of nibbles
def _iq4_xs(b):
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2").astype(np.int64)
    group = np.arange(8)
    low = b[:, 4 + group // 2].astype(np.int64) >> 4 * (group % 2) & 15
    scale = (low | (high >> 2 * group & 3) << 4) - 32
    q = CODES[_nibbles(b[:, 8:].reshape(-1, 8, 16))]
    return _half(b, 0)[:, :, None] * scale[:, :, None] * q


def _two_bits(b):
    """64 bytes -> [blocks, 16, 16]: 2-bit values in the order of the 16-value groups."""
    halves = b.reshape(-1, 2, 1, 32)
    shift = np.array([0, 2, 4, 6]).reshape(1, 1, 4, 1)
    return (halves >> shift & 3).astype(np.int64).reshape(-1, 16, 16)


# 16 bytes of (scale, min) nibbles, 64 bytes of 2-bit values, f16 d, f16 dmin
def _q2_k(b):
    s = b[:, :16].astype(np.int64)
    q = _two_bits(b[:, 16:80])
    scale, least = _half(b, 80) * (s & 15), _half(b, 82) * (s >> 4)
    return scale[:, :, None] * q - least[:, :, None]


# 32 bytes of high bits, 64 bytes of 2-bit values, 16 six-bit scales in 12 bytes, f16 d
def _q3_k(b):
    group = np.arange(16)
    s = b[:, 96:108].astype(np.int64)
    low = s[:, group % 8] >> 4 * (group // 8) & 15
    high = s[:, 8 + group % 4] >> 2 * (group // 4) & 3
    scale = _half(b, 108) * ((low | high << 4) - 32)
    bit = np.arange(8).reshape(1, 8, 1)
    third = (b[:, None, :32] >> bit & 1).astype(np.int64).reshape(-1, 16, 16)
    q = _two_bits(b[:, 32:96]) + 4 * third - 4
    return scale[:, :, None] * q


def _six_bits(s):
    """The 8 six-bit scales and 8 six-bit minimums in 12 bytes, each [blocks, 8]."""
    s = s.astype(np.int64)
    a, b, c = s[:, :4], s[:, 4:8], s[:, 8:]
    scale = np.concatenate([a & 63, c & 15 | (a >> 6) << 4], axis=1)
    least = np.concatenate([b & 63, c >> 4 | (b >> 6) << 4], axis=1)
    return scale, least


# f16 d, f16 dmin, 12 bytes of six-bit scales and minimums, 4 x 32 bytes of nibbles
def _q4_k(b):
    scale, least = _six_bits(b[:, 4:16])
    q = _nibbles(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (_half(b, 0) * scale)[:, :, None] * q - (_half(b, 2) * least)[:, :, None]


# as Q4_K, with 32 bytes of fifth bits (bit j is group j's) before the nibbles
def _q5_k(b):
    scale, least = _six_bits(b[:, 4:16])
    q = _nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    q = q | (b[:, None, 16:48] >> np.arange(8).reshape(1, 8, 1) & 1).astype(np.int64) << 4
    return (_half(b, 0) * scale)[:, :, None] * q - (_half(b, 2) * least)[:, :, None]


# 2 x 64 bytes of nibbles, 2 x 32 bytes of high bit pairs, 16 i8 scales, f16 d
def _q6_k(b):
    low = b[:, :128].reshape(-1, 2, 64)
    low = np.stack([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shift = np.array([0, 2, 4, 6]).reshape(1, 1, 4, 1)
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> shift & 3
    q = (low.astype(np.int64) | high.astype(np.int64) << 4) - 32
    scale = _half(b, 208) * b[:, 192:208].view(np.int8)
    return scale[:, :, None] * q.reshape(-1, 16, 16)


BLOCKS = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
