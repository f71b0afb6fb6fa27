"""What callers hand in, as NumPy arrays of bits, and back: NumPy, ml_dtypes' bfloat16, or CPU tensors of torch."""

import numpy as np

from .numbers import to_bf16


def is_torch(array):
    return type(array).__module__.partition(".")[0] == "torch"


def _numpy(array, what):
    if is_torch(array):
        import torch

        if array.device.type != "cpu":
            raise ValueError(f"{what}: a tensor on {array.device} was given, one on the CPU is right")
        array = array.detach().contiguous()
        bits = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8}
        return array.view(bits.get(array.dtype, array.dtype)).numpy()
    return np.asarray(array)


def bf16(array, what, dimensions):
    """BF16 as bits: of bits, of bfloat16 of any library, or rounded from float32."""
    array = _numpy(array, what)
    if array.ndim != dimensions:
        raise ValueError(f"{what}: {array.ndim} dimensions were given, {dimensions} are right")
    if array.dtype == np.float32:
        return to_bf16(array)
    if array.dtype.itemsize != 2 or array.dtype.name not in ("uint16", "int16", "bfloat16"):
        raise ValueError(f"{what}: {array.dtype} was given; bfloat16, its bits as uint16, or float32 is right")
    return np.ascontiguousarray(array).view(np.uint16)


def fp8(array, what):
    """FP8 (E4M3) as codes: of codes, or of float8_e4m3fn of any library."""
    array = _numpy(array, what)
    if array.ndim != 2 or array.dtype.name not in ("uint8", "float8_e4m3fn"):
        met = f"{array.dtype} of {array.ndim} dimensions"
        raise ValueError(f"{what}: {met} was given; float8_e4m3fn, or its codes as uint8, of 2 is right")
    return np.ascontiguousarray(array).view(np.uint8)


def of(array, dtype, what, dimensions=2):
    """An array of numbers of one type, which is not converted to silently."""
    array = _numpy(array, what)
    if array.dtype != dtype or array.ndim != dimensions:
        met = f"{array.dtype} of {array.ndim} dimensions"
        raise ValueError(f"{what}: {met} was given, {np.dtype(dtype).name} of {dimensions} is right")
    return np.ascontiguousarray(array)


def like(array, other, kind=None):
    """`array` as what `other` is: a tensor if that is one, of the type `kind` of torch where bits stand for it."""
    if not is_torch(other):
        return array
    import torch

    if array.dtype == np.uint32:
        array = array.view(np.int32)
    if kind == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    tensor = torch.from_numpy(array)
    return tensor.view(getattr(torch, kind)) if kind else tensor
