"""A user's program with types, for `mypy --strict`: one layer of low latency on two ranks that are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import shunt_ep

RANKS, EXPERTS, TOKENS, HIDDEN, TOPK = 2, 4, 8, 512, 2


def layer(buffer: shunt_ep.Buffer, seed: int) -> bool:
    """Experts give back what came; the weights of a token sum to one."""
    random = np.random.default_rng(seed)
    x: npt.NDArray[np.float32] = random.integers(-8, 8, (TOKENS, HIDDEN)).astype(np.float32)
    topk_idx: npt.NDArray[np.int64] = np.argsort(random.random((TOKENS, EXPERTS)))[:, :TOPK].copy()
    weights = np.full((TOKENS, TOPK), 0.5, np.float32)
    hook: Callable[[], None] | None
    event: shunt_ep.EventOverlap

    received, _, handle, event, hook = buffer.low_latency_dispatch(
        x, topk_idx, TOKENS, EXPERTS, use_fp8=False, return_recv_hook=True
    )
    assert hook is not None
    hook()
    combined, event, hook = buffer.low_latency_combine(received, topk_idx, weights, handle, async_finish=True)
    assert hook is None
    event.current_stream_wait()
    return bool(np.array_equal(shunt_ep.from_bf16(combined), x))


def main() -> None:
    size: int = shunt_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, RANKS, EXPERTS)
    job = shunt_ep.SoftJob(RANKS, size, num_qps_per_rank=EXPERTS // RANKS)
    kept: list[bool] = []

    def rank(number: int) -> None:
        buffer = shunt_ep.Buffer(job.group(number), num_rdma_bytes=size, low_latency_mode=True)
        kept.append(layer(buffer, number))
        buffer.destroy()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept == [True] * RANKS, kept


main()
