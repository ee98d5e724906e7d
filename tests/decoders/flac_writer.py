"""Writes FLAC files with everything that the format allows (RFC 9639), whether encoders use it or not.

A `Writer` draws a file: block sizes, how they are told, predictors, residuals and stereo are all random. `Writer.samples` are
what a decoder should find.
"""

from __future__ import annotations

import numpy as np

RATES = {
    88200: 1,
    176400: 2,
    192000: 3,
    8000: 4,
    16000: 5,
    22050: 6,
    24000: 7,
    32000: 8,
    44100: 9,
    48000: 10,
    96000: 11,
}
BITS_CODES = {8: 1, 12: 2, 16: 4, 20: 5, 24: 6}
SIZES = {192: 1, 576: 2, 1152: 3, 2304: 4, 4608: 5, 256: 8, 512: 9, 1024: 10, 2048: 11, 4096: 12}
LEFT_SIDE, SIDE_RIGHT, MID_SIDE = 8, 9, 10
FIXED = {0: [], 1: [1], 2: [2, -1], 3: [3, -3, 1], 4: [4, -6, 4, -1]}


class Bits:
    """A stream of bits."""

    def __init__(self) -> None:
        self.text: list[str] = []

    def put(self, value: int, count: int) -> None:
        if count:
            self.text.append(format(int(value) & ((1 << count) - 1), f"0{count}b"))

    def zeros_and_one(self, count: int) -> None:
        self.text.append("0" * count + "1")

    def bytes(self) -> bytes:
        text = "".join(self.text)
        text += "0" * (-len(text) % 8)
        return int("1" + text, 2).to_bytes(len(text) // 8 + 1, "big")[1:]


def crc(data: bytes, bits: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = value << 1 ^ (polynomial | 1 << bits if value >> (bits - 1) else 0)
    return value


def coded_number(value: int) -> bytes:
    """As UTF-8 codes characters, but up to 36 bits."""
    if value < 0x80:
        return bytes([value])
    more = 1
    while value >> (6 * more) >= 1 << (6 - more):
        more += 1
    first = (0xFF << (7 - more)) & 0xFF | value >> (6 * more)
    return bytes([first, *(0x80 | value >> 6 * k & 63 for k in range(more - 1, -1, -1))])


def with_checksum(frame: bytes) -> bytes:
    """A frame with the checksum that it should have."""
    return frame[:-2] + crc(frame[:-2], 16, 0x8005).to_bytes(2, "big")


class Writer:
    """Draws a file."""

    def __init__(self, rng: np.random.Generator, bits: int | None = None) -> None:
        self.rng = rng
        self.bits = bits or int(rng.choice([8, 16, 24]))
        self.channels = int(rng.choice([1, 1, 2, 2, 2, 3, 5, 8]))
        self.rate = int(rng.choice([*RATES, 11025, 12345, 50000]))
        self.is_fixed = bool(rng.random() < 0.5)
        self.samples = np.zeros((0, self.channels), np.int64)  # of the file that was written

    def file(self, frames: int) -> bytes:
        rng, parts = self.rng, []
        block = int(rng.choice([16, 192, 200, 256, 576, 1000, 4096]))
        sizes = [block] * frames
        if self.is_fixed:
            sizes[-1] = int(rng.integers(1, block + 1))
        else:
            sizes = [int(rng.integers(1, block + 1)) for _ in sizes]
        done = 0
        for k, n in enumerate(sizes):
            parts.append(self._frame(k if self.is_fixed else done, n))
            done += n
        # A stream of one short block is told as such: its length is no block size of others.
        least = block if self.is_fixed else min(16, block - 1)
        return self._head(least, block, done) + b"".join(parts)

    def _head(self, least: int, most: int, total: int) -> bytes:
        head = Bits()
        head.put(least, 16)
        head.put(most, 16)
        head.put(0, 48)
        head.put(self.rate, 20)
        head.put(self.channels - 1, 3)
        head.put(self.bits - 1, 5)
        head.put(total, 36)
        head.put(0, 128)
        padding = int(self.rng.integers(0, 20))
        return (
            b"fLaC\0\0\0\x22" + head.bytes() + b"\x81" + padding.to_bytes(3, "big") + bytes(padding)
        )

    def _frame(self, number: int, n: int) -> bytes:
        rng, head = self.rng, Bits()
        stored = self.channels - 1
        if self.channels == 2:
            stored = int(rng.choice([1, LEFT_SIDE, SIDE_RIGHT, MID_SIDE]))
        size = SIZES.get(n) if rng.random() < 0.7 else None
        if size is None:
            size = 6 if n <= 256 and rng.random() < 0.7 else 7
        rate = RATES.get(self.rate) if rng.random() < 0.5 else 0
        if rate is None:
            rate = 13 if self.rate != 50000 else int(rng.choice([12, 13, 14]))
        head.put(0b111111111111100, 15)
        head.put(not self.is_fixed, 1)
        head.put(size, 4)
        head.put(rate, 4)
        head.put(stored, 4)
        head.put(BITS_CODES.get(self.bits, 0) if rng.random() < 0.7 else 0, 3)
        head.put(0, 1)
        begin = head.bytes() + coded_number(number)
        begin += (n - 1).to_bytes(size - 5, "big") if size in (6, 7) else b""
        begin += {12: bytes([self.rate // 1000 & 255]), 13: (self.rate & 0xFFFF).to_bytes(2, "big"),
                  14: (self.rate // 10 & 0xFFFF).to_bytes(2, "big")}.get(rate, b"")  # fmt: skip
        begin += bytes([crc(begin, 8, 0x07)])
        body = Bits()
        for row, bits in self._rows(n, stored):
            self._channel(body, row, bits)
        frame = begin + body.bytes()
        return frame + crc(frame, 16, 0x8005).to_bytes(2, "big")

    def _rows(self, n: int, stored: int) -> list[tuple[list[int], int]]:
        """Channels as they are stored, and their widths."""
        rng, high = self.rng, 1 << (self.bits - 1)
        channels = []
        for _ in range(self.channels):
            how = rng.random()
            if how < 0.15:
                row = np.full(n, rng.integers(-high, high))
            elif how < 0.4:
                row = rng.integers(-high, high, n)
            else:
                wave = np.sin(np.arange(n) * rng.uniform(0.001, 1.5) + rng.uniform(0, 6))
                row = np.rint(wave * rng.uniform(0, high - 1)).astype(np.int64)
                row += rng.integers(-2, 3, n) if how < 0.8 else 0
            unused = int(rng.integers(0, self.bits - 1)) if rng.random() < 0.15 else 0
            channels.append(np.clip(row, -high, high - 1) >> unused << unused)
        bits = [self.bits] * self.channels
        self.samples = np.concatenate([self.samples, np.stack(channels, axis=1)])
        if stored >= LEFT_SIDE:
            left, right = channels
            side, middle = left - right, (left + right) >> 1
            channels = {
                LEFT_SIDE: [left, side],
                SIDE_RIGHT: [side, right],
                MID_SIDE: [middle, side],
            }[stored]
            bits[0 if stored == SIDE_RIGHT else 1] += 1
        return [([int(x) for x in c], b) for c, b in zip(channels, bits, strict=True)]

    def _channel(self, out: Bits, row: list[int], bits: int) -> None:
        rng, n = self.rng, len(row)
        together = 0
        for x in row:
            together |= x
        zeros = (together & -together).bit_length() - 1 if together else bits - 1
        unused = min(int(rng.integers(0, zeros + 1)) if rng.random() < 0.5 else zeros, bits - 1)
        row, bits = [x >> unused for x in row], bits - unused
        kinds = ["verbatim", "fixed", "fixed", "linear", "linear", "linear"]
        kind = "constant" if len(set(row)) == 1 and rng.random() < 0.7 else str(rng.choice(kinds))
        order = int(rng.integers(0, min(4, n) + 1))
        if kind == "linear":
            order = int(rng.choice([1, 2, 3, 4, 5, 8, 9, 12, 13, 20, 31, 32]))
            order, kind = (order, kind) if order <= n else (0, "fixed")
        out.put(0, 1)
        out.put({"constant": 0, "verbatim": 1, "fixed": 8 + order, "linear": 31 + order}[kind], 6)
        out.put(unused > 0, 1)
        if unused:
            out.zeros_and_one(unused - 1)
        if kind in ("constant", "verbatim"):
            for x in row[:1] if kind == "constant" else row:
                out.put(x, bits)
            return
        for x in row[:order]:
            out.put(x, bits)
        factors, shift = FIXED.get(order, []), 0
        if kind == "linear":
            precision, shift = int(rng.integers(2, 16)), int(rng.integers(0, 16))
            most = min(1 << (precision - 1), max(1, (2 << shift) // order))  # small residuals
            factors = [int(x) for x in rng.integers(-most, most, order)]
            out.put(precision - 1, 4)
            out.put(shift, 5)
            for factor in factors:
                out.put(factor, precision)
        past = [
            sum(f * row[i - 1 - k] for k, f in enumerate(factors)) >> shift for i in range(order, n)
        ]
        self._residuals(out, [x - p for x, p in zip(row[order:], past, strict=True)], n, order)

    def _residuals(self, out: Bits, values: list[int], n: int, order: int) -> None:
        rng = self.rng
        parts = [p for p in range(9) if n % (1 << p) == 0 and n >> p > order]
        parts_log = int(rng.choice(parts)) if parts else 0
        method = int(rng.integers(0, 2))
        out.put(method, 2)
        out.put(parts_log, 4)
        escape = 31 if method else 15
        length = n >> parts_log
        for part in range(1 << parts_log):
            own = values[max(part * length - order, 0) : (part + 1) * length - order]
            folded = [2 * x if x >= 0 else -2 * x - 1 for x in own]
            mean = sum(folded) / max(len(folded), 1)
            low = int(np.clip(round(np.log2(mean + 1)) + rng.integers(-2, 3), 0, escape - 1))
            if rng.random() < 0.1 or max(folded, default=0) >> low > 5000:
                width = max((x.bit_length() for x in folded), default=0) if any(folded) else 0
                width = min(width + (int(rng.integers(0, 3)) if width else 0), 31)
                out.put(escape, 4 + method)
                out.put(width, 5)
                for x in own:
                    out.put(x, width)
                continue
            out.put(low, 4 + method)
            for x in folded:
                out.zeros_and_one(x >> low)
                out.put(x, low)
