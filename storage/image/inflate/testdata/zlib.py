#!/usr/bin/env python3
"""Writes zlib.txt: streams, and what zlib makes of them when it is called as QEMU calls it (block/qcow2-threads.c).

One a line: the room in bytes; whether zlib fills it (Z_STREAM_END or Z_BUF_ERROR, and no room left); the CRC-32 of what
it unpacked; the stream."""
import ctypes
import random
import zlib

LIB = ctypes.CDLL("libz.so.1")
ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]
rand = random.Random(1)


class Stream(ctypes.Structure):
    _fields_ = [
        ("next_in", ctypes.c_void_p), ("avail_in", ctypes.c_uint), ("total_in", ctypes.c_ulong),
        ("next_out", ctypes.c_void_p), ("avail_out", ctypes.c_uint), ("total_out", ctypes.c_ulong),
        ("msg", ctypes.c_char_p), ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p), ("zfree", ctypes.c_void_p), ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int), ("adler", ctypes.c_ulong), ("reserved", ctypes.c_ulong),
    ]


def unpack(stream, room):
    source, out, s = ctypes.create_string_buffer(stream, len(stream) + 1), ctypes.create_string_buffer(room + 1), Stream()
    s.next_in, s.avail_in = ctypes.addressof(source), len(stream)
    s.next_out, s.avail_out = ctypes.addressof(out), room
    assert LIB.inflateInit2_(ctypes.byref(s), -12, zlib.ZLIB_VERSION.encode(), ctypes.sizeof(s)) == 0
    code = LIB.inflate(ctypes.byref(s), 4)  # Z_FINISH
    good = code in (1, -5) and s.avail_out == 0
    LIB.inflateEnd(ctypes.byref(s))
    return good, zlib.crc32(out.raw[:room]) if good else 0


def say(stream, room):
    good, crc = unpack(stream, room)
    print(room, str(good).lower(), "%08x" % crc, "x" + stream.hex())


def content(size):
    data = bytearray()
    while len(data) < size:
        n = rand.randrange(1, size + 1)
        data += rand.choice([bytes(n), rand.randbytes(n // 2), b"compressible %d " % n * (n // 15 + 1), bytes(rand.choices(b"etaoin shrdlu", k=n))])
    return bytes(data[:size])


def packed(data, level, window=-12, memory=9, strategy=zlib.Z_DEFAULT_STRATEGY, flush=zlib.Z_NO_FLUSH):
    c, half = zlib.compressobj(level, zlib.DEFLATED, window, memory, strategy), len(data) // 2
    return c.compress(data[:half]) + c.flush(flush) + c.compress(data[half:]) + c.flush()


def damaged(stream):
    stream, kind = bytearray(stream), rand.randrange(5)
    if kind == 0:
        stream[rand.randrange(len(stream))] ^= 1 << rand.randrange(8)
    elif kind == 1:
        stream = stream[:rand.randrange(len(stream))]
    elif kind == 2:
        stream += rand.randbytes(rand.randrange(100))
    elif kind == 3:
        stream[rand.randrange(min(len(stream), 40))] = rand.randrange(256)
    return bytes(stream)


class Writer:
    def __init__(self):
        self.value, self.n = 0, 0

    def put(self, value, n):
        self.value |= (value & (1 << n) - 1) << self.n
        self.n += n

    def bytes(self):
        return self.value.to_bytes((self.n + 7) // 8, "little")


def codes(lengths):
    """The canonical code of these lengths, as its bits stand in a stream."""
    found, code = {}, 0
    for n in range(1, 16):
        for symbol, length in enumerate(lengths):
            if length == n:
                found[symbol] = int(format(code & (1 << n) - 1, "0%db" % n)[::-1], 2)
                code += 1
        code <<= 1
    return found


def lengths(symbols, longest, used):
    """Lengths of a code that is complete in most cases."""
    leaves = [] if used == 0 else [0]
    while len(leaves) < min(used, symbols):
        fit = [n for n in leaves if n < longest]
        leaf = rand.choice(fit) if rand.random() < .7 else max(fit)
        leaves.remove(leaf)
        leaves += [leaf + 1, leaf + 1]
    leaves = [max(1, n) for n in leaves]
    if leaves and rand.random() < .08:
        i = rand.randrange(len(leaves))
        leaves[i] = max(1, min(longest, leaves[i] + rand.choice([-1, 1])))
    list_ = [0] * symbols
    for symbol, n in zip(rand.sample(range(symbols), len(leaves)), leaves):
        list_[symbol] = n
    return list_


def dynamic():
    """A block with odd codes of its own."""
    w = Writer()
    w.put(rand.randrange(2) | 2 << 1, 3)
    literals, distances = rand.randrange(257, 288), rand.randrange(1, 32)
    lit = lengths(literals, 15, rand.choice([1, 2, 3, 5, 10, 20, 80]))
    if lit[256] == 0 and rand.random() < .95:
        other = rand.choice([i for i, n in enumerate(lit) if n])
        lit[256], lit[other] = lit[other], 0
    dist = lengths(distances, 15, rand.choice([0, 1, 1, 2, 3, 8, 20]))
    both, ops = lit + dist, []
    i = 0
    while i < len(both):
        run = next((j for j in range(i, len(both)) if both[j] != both[i]), len(both)) - i
        if both[i] == 0 and run >= 3:
            n = min(run, 138) + (rand.random() < .02)
            ops.append((18, n - 11, 7) if n >= 11 else (17, n - 3, 3))
            i += n
        elif i > 0 and run >= 3 and both[i - 1] == both[i]:
            ops.append((16, min(run, 6) - 3, 2))
            i += min(run, 6)
        else:
            ops.append((both[i], 0, 0))
            i += 1
    if rand.random() < .03:
        ops.insert(0, (16, 0, 2))
    used = sorted({op[0] for op in ops})
    meta = [0] * 19
    shape = lengths(max(2, len(used)), 7, max(2, len(used)))
    for symbol, n in zip(used + [s for s in range(19) if s not in used], shape):
        meta[symbol] = n
    if rand.random() < .03:
        meta = [0] * 19
    w.put(literals - 257, 5)
    w.put(distances - 1, 5)
    w.put(15, 4)
    for symbol in ORDER:
        w.put(meta[symbol], 3)
    meta_codes, lit_codes, dist_codes = codes(meta), codes(lit), codes(dist)
    for symbol, value, extra in ops:
        w.put(meta_codes.get(symbol, 0), meta[symbol])
        w.put(value, extra)
    for _ in range(rand.randrange(40)):
        symbol = rand.choice(list(lit_codes))
        w.put(lit_codes[symbol], lit[symbol])
        if symbol > 256:
            w.put(rand.getrandbits(5), 0 if symbol < 265 or symbol >= 285 else (symbol - 261) // 4)
            distance = min(dist_codes, default=None) if rand.random() < .8 else rand.choice(list(dist_codes) or [None])
            if distance is not None:
                w.put(dist_codes[distance], dist[distance])
                w.put(rand.getrandbits(13) * (rand.random() < .2), max(0, distance // 2 - 1))
    if 256 in lit_codes and rand.random() < .9:
        w.put(lit_codes[256], lit[256])
    w.put(rand.getrandbits(64), rand.randrange(65))
    return w.bytes()


def main():
    for level in range(10):
        for strategy in range(5):
            data = content(600)
            say(packed(data, level, strategy=strategy), len(data))
    for _ in range(150):
        data = content(rand.choice([1, 20, 300, 700]))
        flush = rand.choice([zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
        stream = packed(data, rand.randrange(10), rand.choice([-9, -12, -15]), rand.randrange(1, 10), rand.randrange(5), flush)
        say(damaged(stream), max(0, len(data) + rand.choice([0, 0, 0, -1, 1, -5, -250])))
    for _ in range(600):
        stream = dynamic()
        try:
            room = max(0, len(zlib.decompressobj(-15).decompress(stream)) + rand.choice([0, 0, -1, 1]))
        except zlib.error:
            room = rand.choice([0, 1, 2, 3, 10, 50, 300])
        say(stream, room)


main()
