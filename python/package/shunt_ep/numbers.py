"""BF16 and FP8 (E4M3) as arrays of bits, for NumPy, which has neither."""

import numpy as np


def to_bf16(values):
    """The nearest BF16 of each number, ties to even, as bits (uint16)."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    nan = np.isnan(np.asarray(values, dtype=np.float32))
    return np.where(nan, (bits >> 16) | np.uint32(0x40), rounded).astype(np.uint16)


def from_bf16(bits):
    """What BF16 bits stand for, as float32."""
    return (np.ascontiguousarray(bits, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)


def _e4m3():
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, fraction / 512.0, (1 + fraction / 8.0) * 2.0 ** (exponent - 7.0))
    size[codes & 0x7F == 0x7F] = np.nan
    return np.where(codes >= 128, -size, size).astype(np.float32)


_E4M3 = _e4m3()


def from_fp8(codes):
    """What E4M3 codes (uint8) stand for, as float32."""
    return _E4M3[np.asarray(codes, dtype=np.uint8)]


def dequantise(received):
    """Rows of a dispatch as float32: of BF16 bits, or of FP8 codes and their scales, of either kind."""
    if not isinstance(received, tuple):
        return from_bf16(received)
    codes, scales = received
    if scales.dtype == np.int32:
        # Four exponents a word.
        exponents = np.ascontiguousarray(scales).view(np.uint8).reshape(*scales.shape[:-1], -1)
        scales = (exponents.astype(np.uint32) << 23).view(np.float32)
    return from_fp8(codes) * np.repeat(scales, 128, axis=-1)
