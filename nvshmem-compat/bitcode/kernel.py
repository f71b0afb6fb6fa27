"""A kernel of Triton that calls device functions of libnvshmem_device.bc, compiled for each architecture without a GPU.

kernel.py LIBRARY.bc: 0 if nothing stays undefined and the host can find what it must write.
"""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

LONG, INT = core.dtype("int64"), core.dtype("int32")
# What the host writes before a kernel runs.
WORDS = (".visible .const .align 16 .b8 shunt_root[", ".visible .const .align 8 .b8 shunt_nvshmem_device_state[")


def call(name, arguments, types, semantic):
    return core.extern_elementwise("", "", arguments, {types: (name, INT)}, is_pure=False, _semantic=semantic)


@core.extern
def my_pe(_semantic=None):
    return call("nvshmem_my_pe", [], (), _semantic)


@core.extern
def putmem_block(to, source, size, pe, _semantic=None):
    return call("nvshmemx_putmem_block", [to, source, size, pe], (LONG, LONG, LONG, INT), _semantic)


@core.extern
def signal_op(word, value, op, pe, _semantic=None):
    return call("nvshmemx_signal_op", [word, value, op, pe], (LONG, LONG, INT, INT), _semantic)


@core.extern
def signal_wait_until(word, compare, value, _semantic=None):
    return call("nvshmem_signal_wait_until", [word, compare, value], (LONG, INT, LONG), _semantic)


@core.extern
def quiet(_semantic=None):
    return call("nvshmem_quiet", [], (), _semantic)


@triton.jit
def kernel(to, source, word, size, pe):
    putmem_block(to.to(tl.int64), source.to(tl.int64), size, pe + my_pe())
    quiet()
    signal_op(word.to(tl.int64), size, 9, pe)
    signal_wait_until(word.to(tl.int64), 0, size)


def main(library):
    signature = {"to": "*fp32", "source": "*fp32", "word": "*i64", "size": "i64", "pe": "i32"}
    wrong = 0
    for capability in (80, 90):
        made = triton.compile(
            ASTSource(fn=kernel, signature=signature),
            target=GPUTarget("cuda", capability, 32),
            options={"extern_libs": {"libnvshmem_device": library}},
        )
        ptx = made.asm["ptx"]
        missing = [word for word in WORDS if word not in ptx]
        wrong += bool(missing) or ".extern" in ptx or not made.asm["cubin"]
        print(f"triton {triton.__version__}, sm_{capability}: {len(made.asm['cubin'])} bytes, missing: {missing}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
