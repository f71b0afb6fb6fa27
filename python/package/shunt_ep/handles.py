"""DeepEP's handles: tuples of tensors, or of arrays, in the order of DeepEP v1.2.1. What kernels need besides is kept
beside them, and found again by the items: a plain tuple of the same items will do."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from . import arrays

# By the number of an item: the item, and what was made with it.
_KNOWN: dict[int, tuple[weakref.ref[Any], Any]] = {}


def remember(item: Any, state: Any) -> None:
    """Keeps a state for as long as an item lives."""
    number = id(item)
    _KNOWN[number] = weakref.ref(item, lambda _: _KNOWN.pop(number, None)), state


def recall(handle: Any, kind: type) -> Any:
    """The state of the first item that has one of this kind; None if there is none."""
    for item in handle if isinstance(handle, (tuple, list)) else ():
        found = _KNOWN.get(id(item))
        if found is not None and found[0]() is item and isinstance(found[1], kind):
            return found[1]
    return None


class LowLatencyState:
    """What a low-latency combine needs of its dispatch. `native` is there once it was received."""

    def __init__(self, of: object, topk_idx: np.ndarray, sizes: tuple[int, int, int], tensors: bool) -> None:
        self.of, self.topk_idx, self.sizes, self.tensors = of, topk_idx, sizes, tensors
        self.native: Any = None


class NormalState:
    """What calls of normal mode need of their dispatch."""

    def __init__(self, of: object, native: Any, inside: np.ndarray, hidden: int, topk: int, worst: int) -> None:
        self.of, self.native, self.hidden, self.num_topk = of, native, hidden, topk
        self.tokens, self.num_recv_tokens, self.worst = len(inside), native.rows(), worst

    def rows(self) -> int:
        """Rows as the caller has them."""
        return self.worst or self.num_recv_tokens


class NormalHandle(tuple):
    """The handle of normal mode. Between nodes its items are:

    0 `is_token_in_rank` `[tokens, ranks]`; 1 `rdma_channel_prefix_matrix` `[nodes, channels]` and
    2 `gbl_channel_prefix_matrix` `[ranks, channels]`: tokens that this rank sends in the channels up to one;
    3 `recv_rdma_channel_prefix_matrix` `[nodes, channels]` and 4 `recv_rdma_rank_prefix_sum` `[nodes]`: tokens that come
    over this rank's rail; 5 `recv_gbl_channel_prefix_matrix` `[ranks, channels]`: the first row of each; 6
    `recv_gbl_rank_prefix_sum` `[ranks]`: rows of all ranks up to one; 7 `recv_src_meta` `[rows, 8]`: a row's node and a
    mask in which only this rank's bit is set; 8 `send_rdma_head` `[tokens, nodes]` and 9 `send_nvl_head`
    `[tokens over this rail, ranks of the node]`: a token's number in its channel, -1 where it does not go.

    On one node, as DeepEP's other handle: 0 `rank_prefix_matrix` `[ranks, ranks]`, known in this rank's column; 1
    `channel_prefix_matrix` and 2 `recv_channel_prefix_matrix` `[ranks, channels]`; 3 `recv_src_idx` `[rows]`, not known;
    4 `is_token_in_rank`; 5 `send_head` `[tokens, ranks]`. What is not known is -1.
    """

    is_token_in_rank: Any
    num_recv_tokens: int
    recv_rank_prefix_sum: Any


def _in_channels(goes: np.ndarray, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """`[to, channels]`: tokens in channels up to one; `[tokens, to]`: a token's number in its channel, or -1."""
    tokens, to = goes.shape
    part = max(1, -(-tokens // channels))
    counts, head = np.zeros((to, channels), np.int32), np.full(goes.shape, -1, np.int32)
    for channel in range(channels):
        some = goes[channel * part : (channel + 1) * part]
        counts[:, channel] = some.sum(axis=0)
        numbers = np.cumsum(some, axis=0, dtype=np.int32) - 1
        head[channel * part : (channel + 1) * part][some] = numbers[some]
    return np.cumsum(counts, axis=1, dtype=np.int32), head


def _forwarded(arriving: np.ndarray, forward: np.ndarray, locals_: int) -> np.ndarray:
    """`[tokens over this rail, ranks of the node]`: a token's number among those of its node and channel that go on to
    a rank."""
    heads = []
    for count, masks in zip(arriving.reshape(-1), forward.reshape(arriving.size, -1), strict=True):
        goes = (masks[:count, None] >> np.arange(locals_, dtype=np.uint32) & 1).astype(bool)
        heads.append(np.where(goes, np.cumsum(goes, axis=0) - 1, -1).astype(np.int32))
    return np.concatenate(heads) if heads else np.zeros((0, locals_), np.int32)


def normal(state: NormalState, given: Any, inside: np.ndarray, rank: int, locals_: int, like: Any) -> NormalHandle:
    """The handle of a dispatch; `given` is what the caller handed in for `inside`."""
    ranks, nodes = inside.shape[1], inside.shape[1] // locals_
    _, incoming, arriving, forward = (np.frombuffer(part, np.uint32) for part in state.native.ways())
    incoming, arriving = incoming.reshape(-1, ranks), arriving.reshape(nodes, -1)
    channels = len(incoming)
    sums = np.array(state.native.rank_prefix_sum(ranks), np.int32)
    first = np.concatenate([[0], sums[:-1]]).astype(np.int32)
    before = np.cumsum(incoming, axis=0, dtype=np.int32).T - incoming.T.astype(np.int32)
    sent, head = _in_channels(inside, channels)
    sources = np.searchsorted(sums, np.arange(state.num_recv_tokens), side="right").astype(np.int32)
    if nodes > 1:
        crosses = np.asarray(inside.reshape(-1, nodes, locals_).any(axis=2))
        to_node, node_head = _in_channels(crosses, channels)
        meta = np.stack([sources // locals_, np.full_like(sources, 1 << rank % locals_)], axis=1)
        over = np.cumsum(arriving, axis=1, dtype=np.int32)
        found = [
            to_node,
            sent,
            over,
            np.cumsum(over[:, -1], dtype=np.int32),
            first[:, None] + before,
            sums,
            meta.astype(np.int32).view(np.uint8),
            node_head,
            _forwarded(arriving, forward, locals_),
        ]
        items = [given, *(arrays.like(np.ascontiguousarray(part), like) for part in found)]
    else:
        matrix = np.full((ranks, ranks), -1, np.int32)
        matrix[:, rank] = sums
        found = [matrix, sent, before, np.full(state.num_recv_tokens, -1, np.int32)]
        items = [arrays.like(np.ascontiguousarray(part), like) for part in found]
        items += [given, arrays.like(head, like)]
    handle = NormalHandle(items)
    handle.is_token_in_rank, handle.num_recv_tokens, handle.recv_rank_prefix_sum = given, state.num_recv_tokens, sums
    # Not by what the caller handed in, which other dispatches may have as well.
    for item in items:
        if item is not given:
            remember(item, state)
    return handle
