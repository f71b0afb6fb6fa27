"""A user's program with types, for `mypy --strict`: one layer of low latency on two ranks that are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import shunt_ep
import shunt_transfer as st

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


def transfers() -> list[tuple[int, int]]:
    """A scatter of one share, a barrier, a count, and a word that is watched."""
    told: list[tuple[int, int]] = []
    one, two = st.Engine.threads(2)
    with one, two:
        word: npt.NDArray[np.uint64] = np.zeros(1, np.uint64)
        own, other = one.register(np.full(1, 5, np.uint64), "write"), two.register(word, "write")
        target = st.Target(other.describe())
        seen = threading.Event()

        def each(before: int, now: int) -> None:
            told.append((before, now))
            seen.set()

        watcher: st.Watcher = two.watch(word, each)
        scatter: st.Scattered = one.scatter(own, [st.Share(1, target, 8, imm=1)])
        ends: list[st.TransferError | None] = scatter.shares(30)
        met: st.Met = one.barrier(2, own, {1: target}, timeout=30)
        two.barrier(2, other, {0: st.Target(own.describe())}, timeout=30).wait()
        met.wait()
        two.expect(0, 1, timeout=30).wait()
        count: int = two.counter(0, 1)
        two.forget(0, 1)
        was_there: bool = seen.wait(30) and two.unwatch(watcher)
        assert was_there and ends == [None] and count == 0, (ends, count)
    return told


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
    assert transfers() == [(0, 5)]


main()
