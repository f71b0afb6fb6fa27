"""BF16 and FP8 (E4M3) as arrays of bits, for NumPy, which has neither."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import checked


def to_bf16(values: Any) -> np.ndarray:
    """The nearest BF16 of each number, ties to even, as bits (uint16)."""
    if checked.is_torch(values) and getattr(values, "is_floating_point", lambda: False)():
        values = values.float()
    values = checked.array(values, "values")
    if values.dtype.kind not in "biuf" and values.dtype.name not in ("bfloat16", "float8_e4m3fn"):
        raise ValueError(f"values: expected numbers that float32 holds, got {values.dtype}")
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | np.uint32(0x40), rounded).astype(np.uint16)


def _bits(given, what, bits, names):
    """Bits of numbers that NumPy does not have: of their own types, or as whole numbers of any."""
    made = checked.array(given, what)
    if made.dtype.name in names and made.dtype.isnative:
        return np.ascontiguousarray(made).view(bits)
    most = np.iinfo(bits).max
    if made.dtype.kind not in "iu":
        raise ValueError(f"{what}: expected {names[0]}, or its bits as {np.dtype(bits).name}, got {made.dtype}")
    if made.size and not (made.min() >= 0 and made.max() <= most):
        raise ValueError(f"{what}: expected bits from 0 to {most}, got {made.min()} to {made.max()}")
    return np.ascontiguousarray(made, dtype=bits)


def from_bf16(bits: Any) -> np.ndarray:
    """What BF16 bits stand for, as float32."""
    return (_bits(bits, "bits", np.uint16, ("bfloat16", "uint16", "int16")).astype(np.uint32) << 16).view(np.float32)


def _e4m3():
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, fraction / 512.0, (1 + fraction / 8.0) * 2.0 ** (exponent - 7.0))
    size[codes & 0x7F == 0x7F] = np.nan
    return np.where(codes >= 128, -size, size).astype(np.float32)


_E4M3 = _e4m3()


def from_fp8(codes: Any) -> np.ndarray:
    """What E4M3 codes (uint8) stand for, as float32."""
    return _E4M3[_bits(codes, "codes", np.uint8, ("float8_e4m3fn", "uint8", "int8"))]


def dequantise(received: Any) -> np.ndarray:
    """Rows of a dispatch as float32: of BF16 bits, or of FP8 codes and their scales, of either kind."""
    if not isinstance(received, tuple):
        return from_bf16(received)
    if len(received) != 2:
        raise ValueError(f"received: expected rows, or codes and their scales, got a tuple of {len(received)}")
    values, scales = from_fp8(received[0]), checked.array(received[1], "scales")
    if scales.dtype.name not in ("float32", "int32"):
        raise ValueError(f"scales: expected float32, or int32 of four exponents, got {scales.dtype}")
    each = 128 if scales.dtype == np.float32 else 512
    right = (*values.shape[:-1], values.shape[-1] // each) if values.ndim else ()
    if scales.shape != right:
        raise ValueError(f"scales: expected {right}, got {scales.shape}: one for every {each} channels")
    if scales.dtype == np.int32:
        # Four exponents a word.
        exponents = np.ascontiguousarray(scales).view(np.uint8).reshape(*scales.shape[:-1], -1)
        scales = (exponents.astype(np.uint32) << 23).view(np.float32)
    return values * np.repeat(scales, 128, axis=-1)
