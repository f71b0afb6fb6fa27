"""What DeepEP's tests take from a device: its timers, as wall clocks that run a call once."""

import time


def _once(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def bench(fn, num_warmups=50, num_tests=50, post_fn=None):
    """Average, shortest and longest time of a call, in seconds: of one."""
    took = _once(fn)
    if post_fn is not None:
        post_fn()
    return took, took, took


def bench_kineto(fn, kernel_names, *_, num_kernels_per_period=1, **__):
    """A time for each kernel that the profiler of a GPU would name, in seconds: that of the call of them all."""
    took = _once(fn)
    each = took if num_kernels_per_period == 1 else [took] * num_kernels_per_period
    return (each,) * len(kernel_names) if isinstance(kernel_names, tuple) else each
