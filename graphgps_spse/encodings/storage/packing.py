"""Path counts of one graph as bytes: half of a symmetric matrix, length by length, one or two bytes for each pair.

A length whose counts are whole numbers below 65,536 is kept as it is, in 8 or 16 bits. Any other is kept as ln(1 + S)
in 16 bits: code 0 is a count of 0, and codes 1 to 65,535 divide the range of its other values evenly. So zero stays
zero, nothing else becomes zero, and ln(1 + S) is off by at most half a `step`, (largest - smallest) / 131,068: with
counts from 1 to e^60, 4.5e-4. f = alpha * g^n + beta with n >= 1 is then off by at most |alpha| times that.

Two-byte codes of a length are laid down as all low bytes, then all high bytes, which zstd packs better.
"""

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from graphgps_spse.encodings.scaling import Scaling
from graphgps_spse.jit import kernel

EMPTY, BYTE, SHORT, LOG = 0, 1, 2, 3

_MOST_BYTE, _MOST_SHORT, _NUM_STEPS = 255.0, 65535.0, 65534
_ZSTD_LEVEL = 3


class PackedCounts(NamedTuple):
    """The counts of one graph of `num_nodes` nodes, K lengths."""

    num_nodes: int
    symmetric: bool
    """Only pairs i < j are kept, row by row; else all n * n."""
    kind_K: np.ndarray
    """[K] uint8: EMPTY (all zero, no bytes), BYTE, SHORT or LOG."""
    low_K: np.ndarray
    """[K] float64: the smallest ln(1 + S) of a LOG length that is not 0."""
    step_K: np.ndarray
    """[K] float64: the distance of two codes of a LOG length; half of it bounds the error of ln(1 + S)."""
    payload: bytes
    """The codes, length by length, packed by zstd."""


def pack_counts(counts_PK: np.ndarray, num_nodes: int) -> PackedCounts:
    """Pack the [n * n, K] float64 counts of one graph. Raises ValueError for one that is negative or not finite."""
    num_lengths = counts_PK.shape[1]
    kind_K = np.empty(num_lengths, np.uint8)
    low_K, step_K = np.zeros(num_lengths), np.zeros(num_lengths)
    symmetric, wrong = _survey(counts_PK, num_nodes, kind_K, low_K, step_K)
    if wrong:
        raise ValueError(f"length {wrong}: a count is negative or not finite")
    codes = np.empty(_num_bytes(kind_K, num_nodes, symmetric), np.uint8)
    _write_codes(counts_PK, num_nodes, symmetric, kind_K, low_K, step_K, codes)
    payload = pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(codes, asbytes=True) if len(codes) else b""
    return PackedCounts(num_nodes, bool(symmetric), kind_K, low_K, step_K, payload)


def unpack_into(packed: PackedCounts, table: np.ndarray, scaling: Scaling, identity: bool, out_PC: np.ndarray) -> None:
    """Write f of every count, all n * n pairs, to `out_PC`, [n * n, C] float32 or float64.

    Channels are the identity (if `identity`), f of each length, and f(0) in what is left. `table` [TABLE_SIZE] holds
    f(0), f(1), .. in the type of `out_PC`.
    """
    alpha, beta, n = scaling
    size = _num_bytes(packed.kind_K, packed.num_nodes, packed.symmetric)
    codes = np.empty(0, np.uint8)
    if size:
        codes = np.frombuffer(pa.Codec("zstd").decompress(packed.payload, decompressed_size=size), np.uint8)
    kinds, lows, steps = packed.kind_K, packed.low_K, packed.step_K
    _expand(codes, packed.num_nodes, packed.symmetric, kinds, lows, steps, table, alpha, beta, n, int(identity), out_PC)


def _num_bytes(kind_K: np.ndarray, num_nodes: int, symmetric: bool) -> int:
    cells = num_nodes * (num_nodes - 1) // 2 if symmetric else num_nodes * num_nodes
    return int(np.array([0, 1, 2, 2])[kind_K].sum()) * cells


@kernel
def _survey(counts_PK, n, kind_K, low_K, step_K):
    """Decide how each length is kept; return whether half is enough, and a length (from 1) with a bad count or 0."""
    num_lengths = counts_PK.shape[1]
    whole = np.ones(num_lengths, np.bool_)
    smallest, largest = np.full(num_lengths, np.inf), np.zeros(num_lengths)
    symmetric = True
    for i in range(n):
        for j in range(n):
            for k in range(num_lengths):
                count = counts_PK[i * n + j, k]
                if not 0.0 <= count < np.inf:
                    return False, k + 1
                if i == j:
                    symmetric = symmetric and count == 0.0
                else:
                    symmetric = symmetric and count == counts_PK[j * n + i, k]
                if count > 0.0:
                    whole[k] = whole[k] and count == np.floor(count)
                    smallest[k] = min(smallest[k], count)
                    largest[k] = max(largest[k], count)
    for k in range(num_lengths):
        if largest[k] == 0.0:
            kind_K[k] = EMPTY
        elif whole[k] and largest[k] <= _MOST_SHORT:
            kind_K[k] = BYTE if largest[k] <= _MOST_BYTE else SHORT
        else:
            kind_K[k] = LOG
            low_K[k] = math.log1p(smallest[k])
            step_K[k] = (math.log1p(largest[k]) - low_K[k]) / _NUM_STEPS
    return symmetric, 0


@kernel
def _write_codes(counts_PK, n, symmetric, kind_K, low_K, step_K, codes):
    cells = n * (n - 1) // 2 if symmetric else n * n
    start = 0
    for k in range(len(kind_K)):
        if kind_K[k] == EMPTY:
            continue
        place = start
        for i in range(n):
            for j in range(i + 1 if symmetric else 0, n):
                count = counts_PK[i * n + j, k]
                code = 0
                if kind_K[k] != LOG:
                    code = int(count)
                elif count > 0.0:
                    code = 1
                    if step_K[k] > 0.0:
                        code += min(_NUM_STEPS, int((math.log1p(count) - low_K[k]) / step_K[k] + 0.5))
                codes[place] = code & 255
                if kind_K[k] != BYTE:
                    codes[place + cells] = code >> 8
                place += 1
        start += cells if kind_K[k] == BYTE else 2 * cells


@kernel
def _expand(codes, n, symmetric, kind_K, low_K, step_K, table, alpha, beta, times, first_column, out_PC):
    """Decode length by length, then lay the values down pair by pair: rows are written once, from end to end."""
    num_lengths = len(kind_K)
    cells = n * (n - 1) // 2 if symmetric else n * n
    values_KT = np.empty((num_lengths, cells), out_PC.dtype)
    start = 0
    for k in range(num_lengths):
        values, low, high = values_KT[k], codes[start : start + cells], codes[start + cells : start + 2 * cells]
        if kind_K[k] == EMPTY:
            values[:] = table[0]
        elif kind_K[k] == BYTE:
            for t in range(cells):
                values[t] = table[low[t]]
            start += cells
        elif kind_K[k] == SHORT:
            for t in range(cells):
                values[t] = table[low[t] + 256 * np.int64(high[t])]
            start += 2 * cells
        else:
            _decode_logs(low, high, low_K[k], step_K[k], table[0], alpha, beta, times, values)
            start += 2 * cells
    t = 0
    for i in range(n):
        for k in range(first_column + num_lengths if symmetric else 0):
            out_PC[i * n + i, k] = table[0]
        for j in range(i + 1 if symmetric else 0, n):
            row, mirrored = i * n + j, j * n + i if symmetric else i * n + j
            for k in range(num_lengths):
                value = values_KT[k, t]
                out_PC[row, first_column + k] = value
                out_PC[mirrored, first_column + k] = value
            t += 1
    for p in range(n * n):
        for k in range(first_column):
            out_PC[p, k] = 0.0
        for k in range(first_column + num_lengths, out_PC.shape[1]):
            out_PC[p, k] = table[0]
    for i in range(n):
        for k in range(first_column):
            out_PC[i * n + i, k] = 1.0


@kernel
def _decode_logs(low, high, smallest, step, zero, alpha, beta, times, values):
    for t in range(len(values)):
        value = smallest + step * (low[t] + 256 * np.int64(high[t]) - 1)
        values[t] = math.expm1(value) if times == 0 else value
    for _ in range(times - 1):
        _log1p_of_all(values)
    for t in range(len(values)):
        values[t] = alpha * values[t] + beta if low[t] | high[t] else zero


@kernel
def _log1p_of_all(values):
    """Replace x >= 0 by ln(1 + x) in float32, off by less than 1e-6, in loops that the compiler makes parallel.

    With 1 + x = (1 + m) * 2^e and m in [-0.3, 0.4): ln(1 + x) = e ln 2 + ln(1 + m), the latter by a polynomial.
    """
    number, fraction = np.empty(len(values), np.float32), np.empty(len(values), np.float32)
    exponent = np.empty(len(values), np.int32)
    bits, fraction_bits = number.view(np.int32), fraction.view(np.int32)
    for t in range(len(values)):
        number[t] = np.float32(values[t]) + np.float32(1.0)
    for t in range(len(values)):  # 0x3F333333 is 0.7; bits 23 and up are the exponent
        exponent[t] = np.int32(bits[t] - np.int32(0x3F333333)) >> np.int32(23)
        fraction_bits[t] = np.int32(bits[t] - np.int32(exponent[t] << np.int32(23)))
    for t in range(len(values)):
        m = fraction[t] - np.float32(1.0)
        log = np.float32(0.131593065) + m * np.float32(-0.0816785801)  # Chebyshev interpolation of ln(1 + m) / m
        log = np.float32(0.141417284) + m * (np.float32(-0.131659758) + m * log)
        log = np.float32(0.200038963) + m * (np.float32(-0.166124537) + m * log)
        log = np.float32(0.333332977) + m * (np.float32(-0.250015299) + m * log)
        log = np.float32(1.0) + m * (np.float32(-0.499999886) + m * log)
        values[t] = np.float32(exponent[t]) * np.float32(math.log(2.0)) + m * log
