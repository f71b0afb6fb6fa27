"""What callers hand in, as NumPy arrays of bits, and back: NumPy, ml_dtypes' bfloat16, or CPU tensors of torch."""

import numpy as np

from . import checked
from .checked import is_torch
from .numbers import to_bf16


def bf16(array, what, dimensions):
    """BF16 as bits: of bits, of bfloat16 of any library, or rounded from float32."""
    array = checked.array(array, what)
    if array.ndim != dimensions:
        raise ValueError(f"{what}: expected {dimensions} dimensions, got {array.ndim} dimensions")
    if array.dtype == np.float32:
        return to_bf16(array)
    if array.dtype.name not in ("uint16", "int16", "bfloat16") or not array.dtype.isnative:
        raise ValueError(f"{what}: expected bfloat16, its bits as uint16, or float32, got {array.dtype}")
    return np.ascontiguousarray(array).view(np.uint16)


def fp8(array, what):
    """FP8 (E4M3) as codes: of codes, or of float8_e4m3fn of any library."""
    array = checked.array(array, what)
    if array.ndim != 2 or array.dtype.name not in ("uint8", "float8_e4m3fn"):
        met = f"{array.dtype} of {array.ndim} dimensions"
        raise ValueError(f"{what}: expected float8_e4m3fn, or its codes as uint8, of 2, got {met}")
    return np.ascontiguousarray(array).view(np.uint8)


def of(array, dtype, what, dimensions=2):
    """An array of numbers of one type, which is not converted to silently."""
    array = checked.array(array, what)
    if array.dtype != dtype or array.ndim != dimensions:
        met = f"{array.dtype} of {array.ndim} dimensions"
        raise ValueError(f"{what}: expected {np.dtype(dtype).name} of {dimensions}, got {met}")
    return np.ascontiguousarray(array)


def experts(topk_idx, tokens, number):
    """Experts of each of so many tokens, of which there are `number`."""
    topk = of(topk_idx, np.int64, "topk_idx")
    if tokens is not None and topk.shape[0] != tokens:
        raise ValueError(f"topk_idx: expected {tokens} tokens, as many as x has, got {topk.shape[0]} tokens")
    if not 1 <= topk.shape[1] <= checked.TOPK_MAX:
        met = f"{topk.shape[1]} experts of a token"
        raise ValueError(f"topk_idx: expected 1 to {checked.TOPK_MAX} experts, got {met}")
    if topk.size and topk.max() >= number:
        raise ValueError(f"topk_idx: expected below {number}, or -1 for none, got {topk.max()}")
    return topk


def weights(topk_weights, shape, what="topk_weights"):
    """A weight for each of them."""
    made = of(topk_weights, np.float32, what)
    if made.shape != shape:
        raise ValueError(f"{what}: expected {shape}, got {made.shape}")
    return made


def tensor(array, kind=None):
    """An array as a tensor over the same memory, of the type `kind` of torch where bits stand for it."""
    import torch

    if array.dtype == np.uint32:
        array = array.view(np.int32)
    if kind == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    made = torch.from_numpy(array)
    return made.view(getattr(torch, kind)) if kind else made


def like(array, other, kind=None):
    """`array` as what `other` is: a tensor if that is one, of the type `kind` of torch where bits stand for it."""
    return tensor(array, kind) if is_torch(other) else array
