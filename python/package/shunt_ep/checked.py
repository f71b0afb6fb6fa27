"""What callers hand in, looked at before anything is done with it.

What is of another kind than it must be is a TypeError, what cannot be a ValueError. Both read `name: expected X, got
Y`, and nothing was sent or kept by then.
"""

import operator
import reprlib
from numbers import Real

import numpy as np

# The largest numbers of 32 and of 64 bits.
U32, U64 = 2**32 - 1, 2**64 - 1
# Ranks, experts of a rank, experts of a token, channels that a hidden size is a multiple of.
RANKS_MAX, LOCAL_EXPERTS_MAX, TOPK_MAX, HIDDEN_STEP = 1024, 1024, 11, 512
# What of the heap's 2^46 bytes is left for both halves of a buffer; queue pairs of a rank to each other.
HEAP_MAX, QPS_MAX = 2**46 - 2**20, 64
# Tokens of a rank in one call: words are kept for each of them.
TOKENS_MAX = 2**20
# How the bits of a BF16 are seen, by what they are handed in as.
_BITS = {"uint16": np.uint16, "int16": np.uint16, "bfloat16": np.uint16}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def shown(value):
    """A value and its type, whatever it is and however long."""
    kind = type(value).__name__
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, float)):
        return str(value)
    return f"{_short.repr(value)} ({kind})"


def whole(value, what, least=0, most=U32):
    """A whole number in a range: Python's, NumPy's, or one of a tensor."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    right = f"{least} to {most}" if most < U32 else f"{least} at least"
    if number is None:
        raise TypeError(f"{what}: expected a whole number, {right}, got {shown(value)}")
    if not least <= number <= most:
        right = f"{most} at most" if most >= U32 and number > most else right
        raise ValueError(f"{what}: expected {right}, got {shown(number)}")
    return number


def flag(value, what):
    """A truth: Python's, NumPy's, or one of the numbers that stand for it."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{what}: expected True or False, got {shown(value)}")


def seconds(value, what):
    """A time that ends, in nanoseconds."""
    right = "seconds from 0.001 to 1e9"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{what}: expected {right}, got {shown(value)}")
    # Not a number is in no range.
    if not 1e-3 <= value <= 1e9:
        raise ValueError(f"{what}: expected {right}, got {shown(value)}")
    return int(float(value) * 1e9)


def instance(value, kind, what, right):
    """One of ours."""
    if not isinstance(value, kind):
        raise TypeError(f"{what}: expected {right}, got {shown(value)}")
    return value


def is_torch(array):
    return type(array).__module__.partition(".")[0] == "torch"


def _tensor(array, what):
    import torch

    if not isinstance(array, torch.Tensor):
        raise TypeError(f"{what}: expected a tensor on the CPU, or an array, got {shown(array)}")
    if array.device.type != "cpu":
        raise ValueError(f"{what}: expected a tensor on the CPU, got a tensor on {array.device}")
    if array.layout != torch.strided:
        raise ValueError(f"{what}: expected a dense tensor, got a tensor of layout {array.layout}")
    return array.detach().resolve_conj().resolve_neg()


def array(given, what):
    """Any array of numbers as NumPy's; BF16 and FP8 of torch, which NumPy has not, as their bits."""
    if is_torch(given):
        import torch

        tensor = _tensor(given, what).contiguous()
        # Before 2.1 torch has no FP8.
        bits = {torch.bfloat16: torch.int16, getattr(torch, "float8_e4m3fn", None): torch.uint8}
        try:
            return tensor.view(bits.get(tensor.dtype, tensor.dtype)).numpy()
        except TypeError:
            right = "a type that NumPy has, bfloat16 or float8_e4m3fn"
            raise ValueError(f"{what}: expected {right}, got {tensor.dtype}") from None
    try:
        made = np.asarray(given)
    except (TypeError, ValueError):
        made = None
    # Numbers, or of kind V the types that other libraries add.
    if made is None or made.dtype.kind not in "biufcV":
        raise TypeError(f"{what}: expected an array of numbers, or a tensor on the CPU, got {shown(given)}")
    return made


def writable(given, what, kinds, shape):
    """The memory of an array or tensor that is to be filled in; of BF16 its bits, as uint16."""
    if is_torch(given):
        import torch

        memory, name = _tensor(given, what), str(getattr(given, "dtype", "")).removeprefix("torch.")
        memory = memory.view(torch.int16) if name == "bfloat16" else memory
        memory = memory.numpy() if name in kinds else None
    elif isinstance(given, np.ndarray):
        memory, name = given, given.dtype.name if given.dtype.isnative else given.dtype.str
    else:
        raise TypeError(f"{what}: expected an array, or a tensor on the CPU, to be filled in, got {shown(given)}")
    if name not in kinds or memory.shape != shape:
        met = f"{name} of {tuple(given.shape)}"
        raise ValueError(f"{what}: expected {' or '.join(kinds)} of {shape}, got {met}")
    if not memory.flags.writeable:
        raise ValueError(f"{what}: expected an array that can be written, got one that cannot be written")
    return memory.view(_BITS[name]) if name in _BITS else memory
