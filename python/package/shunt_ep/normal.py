"""DeepEP's `Buffer`, its normal half: dispatch and combine between nodes, for many tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native, arrays, checked, events, handles
from .config import Config, combine_config, dispatch_config, even
from .events import CommStream, EventOverlap
from .group import ProcessJob
from .handles import NormalHandle, NormalState
from .job import SoftJob


def _differs(what, met, right, why):
    if not np.array_equal(met, right):
        raise ValueError(f"{what}: expected {right.tolist()}, got {met.tolist()}: {why}")


def _tokens(x):
    """Bits of tokens, their scales where they are FP8, and what results are to be like."""
    if not isinstance(x, tuple):
        return arrays.bf16(x, "x", 2), None, x
    if len(x) != 2:
        raise ValueError(f"x: expected FP8 and its scales, got a tuple of {len(x)}")
    codes, scales = arrays.fp8(x[0], "x[0]"), arrays.of(x[1], np.float32, "x[1]")
    right = (codes.shape[0], codes.shape[1] // 128)
    if scales.shape != right:
        raise ValueError(f"x[1]: expected {right}, got {scales.shape}: a scale for every 128 channels")
    return codes, scales, x[0]


def _room(rows, came):
    if 0 < rows < came:
        raise ValueError(f"num_worst_tokens: expected {came} at least, got {rows}: so many rows came")


def _rows(part, dtype, columns, rows):
    """Rows that came, and zeros up to `rows`."""
    came = np.frombuffer(part, dtype).reshape(-1, columns)
    out = np.zeros((max(rows, len(came)), columns), dtype)
    out[: len(came)] = came
    return out


class NormalMode:
    """The normal half; `Buffer` fills in what both halves have."""

    num_sms = 20

    job: SoftJob | ProcessJob
    rank: int
    group_size: int
    _stream: CommStream
    _mark: object
    _normal: Any
    _normal_sizes: Any
    _normal_rings: Any
    _normal_place: tuple[int, int]
    _timeout_ns: int
    _most_tokens: int
    _destroyed: bool

    @classmethod
    def set_num_sms(cls, new_num_sms: int) -> None:
        """SMs of configurations that nobody gave."""
        NormalMode.num_sms = even(new_num_sms, "new_num_sms")

    @staticmethod
    def capture() -> EventOverlap:
        """An event of all that was called before."""
        return events.EventOverlap(events.EventHandle())

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """What a dispatch of so many ranks starts from."""
        return dispatch_config(NormalMode.num_sms, num_ranks)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """What a combine of so many ranks starts from."""
        return combine_config(NormalMode.num_sms, num_ranks)

    def get_dispatch_layout(
        self,
        topk_idx: Any,
        num_experts: int,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Any, Any, Any, EventOverlap]:
        """DeepEP's: `(num_tokens_per_rank, num_tokens_per_rdma_rank, num_tokens_per_expert, is_token_in_rank, event)`.

        The second, tokens to each node, is None on one node.
        """
        async_finish = events.before(previous_event, async_finish, allocate_on_comm_stream)
        job, ranks = self.job, self.group_size
        local = self._local_experts(num_experts, "num_experts")
        topk = arrays.experts(topk_idx, None, local * ranks)
        parts = _native.normal_layout(job._native, self.rank, job.ranks_per_node, local, topk.shape[1], topk)
        to_rank, to_node, to_expert = (np.frombuffer(part, np.int32).copy() for part in parts[:3])
        inside = np.frombuffer(parts[3], np.bool_).reshape(-1, ranks).copy()
        to_nodes = arrays.like(to_node, topk_idx) if len(to_node) > 1 else None
        to_rank, to_expert, inside = (arrays.like(part, topk_idx) for part in (to_rank, to_expert, inside))
        return to_rank, to_nodes, to_expert, inside, events.ended(async_finish)

    def dispatch(
        self,
        x: Any,
        handle: tuple[Any, ...] | None = None,
        num_tokens_per_rank: Any = None,
        num_tokens_per_rdma_rank: Any = None,
        is_token_in_rank: Any = None,
        num_tokens_per_expert: Any = None,
        topk_idx: Any = None,
        topk_weights: Any = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Any, Any, list[int] | None, tuple[Any, ...] | None, EventOverlap]:
        """DeepEP's: `(recv_x, recv_topk_idx, recv_topk_weights, num_recv_tokens_per_expert_list, handle, event)`.

        `x` is BF16, or FP8 with a scale for every 128 channels; rows come in the order of ranks and of tokens there.
        With `handle` tokens go the ways of that dispatch, and all but rows and event is None. With
        `num_worst_tokens` there are so many rows, those behind the last of zeros and experts of -1, and no list; where
        more come this rank gives the call up, the others get a `Fault`, and all call `clean`. With a `handle` it is
        known before: a ValueError, and nothing is said to the others.

        What ranks do not have alike is a `Differs` on all of them; with a `handle` on a rank that is through by then
        in its next call.
        """
        async_finish = self._begin(previous_event, async_finish, allocate_on_comm_stream)
        codes, scales, like = _tokens(x)
        if len(codes) > self._most_tokens:
            right = f"{self._most_tokens} tokens at most, num_max_tokens_per_rank of this buffer"
            raise ValueError(f"x: expected {right}, got {len(codes)} tokens")
        if codes.shape[1] < 1 or codes.shape[1] % checked.HIDDEN_STEP:
            right = f"a multiple of {checked.HIDDEN_STEP}"
            raise ValueError(f"x: expected {right} channels, got {codes.shape[1]} channels")
        expert_alignment = checked.whole(expert_alignment, "expert_alignment", 1)
        # More rows than all tokens of all ranks never come.
        most = self.group_size * self._most_tokens
        num_worst_tokens = checked.whole(num_worst_tokens, "num_worst_tokens", 0, most)
        ways = {
            "num_tokens_per_rank": num_tokens_per_rank,
            "num_tokens_per_rdma_rank": num_tokens_per_rdma_rank,
            "is_token_in_rank": is_token_in_rank,
            "num_tokens_per_expert": num_tokens_per_expert,
        }
        event = events.ended(async_finish)
        if handle is not None:
            state = self._own(handle)
            for name, given in (ways | {"topk_idx": topk_idx, "topk_weights": topk_weights}).items():
                if given is not None:
                    raise ValueError(f"{name}: expected None with a handle, got {checked.shown(given)}: its ways are gone again")
            if codes.shape[1] != state.hidden:
                raise ValueError(f"x: expected {state.hidden} channels, as before, got {codes.shape[1]} channels")
            _room(num_worst_tokens, state.num_recv_tokens)
            native = self._rings(codes.shape[1], self._normal_sizes[1], config)
            *parts, _ = native.dispatch_cached(codes, scales, state.native)
            return self._came(codes, parts, num_worst_tokens, like), None, None, None, None, event
        inside, counts = self._ways(codes.shape[0], ways)
        experts = self._experts(topk_idx, topk_weights, inside, counts)
        native = self._rings(codes.shape[1], len(counts), config)
        goes = inside.view(np.uint8), counts.view(np.uint32)
        *parts, made = native.dispatch(codes, scales, *goes, experts, num_worst_tokens)
        topk = experts[0] if experts else 0
        state = NormalState(self._mark, made, inside, codes.shape[1], topk, num_worst_tokens)
        new = handles.normal(state, is_token_in_rank, inside, self.rank, self.job.ranks_per_node, like)
        received = self._came(codes, parts, num_worst_tokens, like)
        came = None, None
        if experts:
            index = _rows(parts[2], np.int64, topk, num_worst_tokens)
            index[state.num_recv_tokens :] = -1
            came = arrays.like(index, like), arrays.like(_rows(parts[3], np.float32, topk, num_worst_tokens), like)
        per_expert = [-(-count // expert_alignment) * expert_alignment for count in parts[4]]
        return received, *came, [] if num_worst_tokens else per_expert, new, event

    def combine(
        self,
        x: Any,
        handle: tuple[Any, ...],
        topk_weights: Any = None,
        bias: Any = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Any, EventOverlap]:
        """DeepEP's: `(combined_x, combined_topk_weights, event)`; sums of rows, and of their weights where there are.

        `bias` is one or two of `[tokens, hidden]`, BF16, in the sum before it is rounded.
        """
        async_finish = self._begin(previous_event, async_finish, allocate_on_comm_stream)
        state = self._own(handle)
        if isinstance(x, tuple):
            raise TypeError("x: expected BF16, got a tuple: FP8 is for a dispatch")
        made, right = arrays.bf16(x, "x", 2), (state.rows(), state.hidden)
        if made.shape != right:
            raise ValueError(f"x: expected {right}, got {made.shape}: a row for each that came")
        weights = None
        if topk_weights is not None:
            if not state.num_topk:
                raise ValueError("topk_weights: expected None, got weights: the dispatch had no topk_idx")
            weights = arrays.weights(topk_weights, (state.rows(), state.num_topk))[: state.num_recv_tokens]
        shape = state.tokens, state.hidden
        given = tuple(bias) if isinstance(bias, (tuple, list)) else (bias,)
        if len(given) > 2:
            raise ValueError(f"bias: expected two at most, got {len(given)}")
        biases = [one if one is None else arrays.bf16(one, "bias", 2) for one in (*given, None)[:2]]
        for one in biases:
            if one is not None and one.shape != shape:
                raise ValueError(f"bias: expected {shape}, got {one.shape}")
        native = self._rings(state.hidden, self._normal_sizes[1], config)
        combined = np.zeros(shape, np.uint16)
        sums = None if weights is None else np.zeros((state.tokens, state.num_topk), np.float32)

        def work():
            out, of_weights = native.combine(made[: state.num_recv_tokens], weights, biases, state.native)
            combined[:] = np.frombuffer(out, np.uint16).reshape(shape)
            if sums is not None:
                sums[:] = np.frombuffer(of_weights, np.float32).reshape(sums.shape)

        if async_finish:
            event = EventOverlap(self._stream.submit(work))
        else:
            work()
            event = events.ended(False)
        return arrays.like(combined, x, "bfloat16"), None if sums is None else arrays.like(sums, x), event

    # DeepEP has these two under names of their own: here the same roles serve ranks of the node and others.
    def internode_dispatch(
        self,
        x: Any,
        handle: tuple[Any, ...] | None = None,
        num_tokens_per_rank: Any = None,
        num_tokens_per_rdma_rank: Any = None,
        is_token_in_rank: Any = None,
        num_tokens_per_expert: Any = None,
        topk_idx: Any = None,
        topk_weights: Any = None,
        expert_alignment: int = 1,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
        *,
        num_worst_tokens: int = 0,
    ) -> tuple[Any, Any, Any, list[int] | None, tuple[Any, ...] | None, EventOverlap]:
        """`dispatch` with DeepEP v1.2.1's order of arguments."""
        ways = num_tokens_per_rank, num_tokens_per_rdma_rank, is_token_in_rank, num_tokens_per_expert
        rest = config, previous_event, async_finish, allocate_on_comm_stream
        return self.dispatch(x, handle, *ways, topk_idx, topk_weights, expert_alignment, num_worst_tokens, *rest)

    def internode_combine(
        self,
        x: Any,
        handle: tuple[Any, ...],
        topk_weights: Any = None,
        bias: Any = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Any, EventOverlap]:
        """`combine`."""
        rest = config, previous_event, async_finish, allocate_on_comm_stream
        return self.combine(x, handle, topk_weights, bias, *rest)

    def clean(self) -> None:
        """All ranks together: what was under way in normal mode is given up, and a buffer that met a fault is usable
        again; handles of before are not. Shunt's own."""
        if self._normal is None:
            raise RuntimeError("the buffer has no sizes yet: call a dispatch first")
        self._stream.synchronize()
        self._normal.clean()

    def _begin(self, *ordered):
        """Waits for what comes before a call; whether it gives back an event."""
        if self._destroyed:
            raise RuntimeError("the buffer is destroyed")
        async_finish = events.before(*ordered)
        self._stream.synchronize()
        return async_finish

    def _came(self, codes, parts, rows, like):
        fp8 = codes.dtype == np.uint8
        data = arrays.like(
            _rows(parts[0], codes.dtype, codes.shape[1], rows), like, "float8_e4m3fn" if fp8 else "bfloat16"
        )
        return (data, arrays.like(_rows(parts[1], np.float32, codes.shape[1] // 128, rows), like)) if fp8 else data

    def _local_experts(self, experts, what):
        experts = checked.whole(experts, what, 1, checked.LOCAL_EXPERTS_MAX * self.group_size)
        if experts % self.group_size:
            raise ValueError(f"{what}: expected a multiple of {self.group_size}, the ranks, got {experts}")
        return experts // self.group_size

    def _ways(self, tokens, ways):
        """Which token goes to which rank, and tokens to each expert: what the caller says, held against each other."""
        ranks, locals_ = self.group_size, self.job.ranks_per_node
        nodes = ranks // locals_
        for name, given in ways.items():
            if given is None and (name != "num_tokens_per_rdma_rank" or nodes > 1):
                raise ValueError(f"{name}: expected what get_dispatch_layout says, or a handle, got None")
        inside = arrays.of(ways["is_token_in_rank"], np.bool_, "is_token_in_rank")
        if inside.shape != (tokens, ranks):
            raise ValueError(f"is_token_in_rank: expected {(tokens, ranks)}, got {inside.shape}")
        whole = inside.reshape(tokens, nodes, locals_).any(axis=2)
        sums = {"num_tokens_per_rank": inside.sum(axis=0), "num_tokens_per_rdma_rank": whole.sum(axis=0)}
        for name, right in sums.items():
            if ways[name] is not None:
                _differs(name, arrays.of(ways[name], np.int32, name, 1), right, "as is_token_in_rank says")
        counts = arrays.of(ways["num_tokens_per_expert"], np.int32, "num_tokens_per_expert", 1)
        self._local_experts(len(counts), "num_tokens_per_expert, its length")
        if counts.size and not (counts.min() >= 0 and counts.max() <= tokens):
            met = f"{counts.min()} to {counts.max()}"
            raise ValueError(f"num_tokens_per_expert: expected 0 to {tokens}, the tokens of x, got {met}")
        return inside, counts

    def _experts(self, topk_idx, topk_weights, inside, counts):
        """Experts of a token, their numbers and weights; None where there are none."""
        if (topk_idx is None) != (topk_weights is None):
            raise ValueError("topk_idx and topk_weights: expected both or neither, got one of them")
        if topk_idx is None:
            return None
        topk = arrays.experts(topk_idx, len(inside), len(counts))
        weights = arrays.weights(topk_weights, topk.shape)
        token, _ = chosen = np.nonzero(topk >= 0)
        pairs = np.unique(np.stack([token, topk[chosen]]), axis=1)
        right = np.bincount(pairs[1], minlength=len(counts))
        _differs("num_tokens_per_expert", counts, right, "as topk_idx says")
        lost = ~inside[pairs[0], pairs[1] // (len(counts) // self.group_size)]
        if lost.any():
            token, expert = pairs[:, lost][:, 0]
            where = f"token {token} and the rank of its expert {expert}"
            raise ValueError(f"is_token_in_rank: expected True for {where}, as topk_idx says, got False")
        return topk.shape[1], topk, weights

    def _own(self, handle):
        """What is known of a handle of this buffer."""
        if not isinstance(handle, (tuple, list)):
            raise TypeError(f"handle: expected one of dispatch, got {checked.shown(handle)}")
        state = handles.recall(handle, NormalState)
        if state is None:
            raise ValueError("handle: expected one of dispatch, got one that no dispatch has made")
        if state.of is not self._mark:
            raise ValueError("handle: expected one of this buffer, got another buffer's")
        return state

    def _rings(self, hidden, experts, config):
        """The native buffer, made by the first call, whose sizes stay."""
        if config is not None:
            checked.instance(config, Config, "config", "a Config, or None,")
        if self._normal is None:
            config = config or self.get_dispatch_config(self.group_size)
            rings, job = config._rings(self.group_size), self.job
            local = experts // self.group_size
            sizes = (self.group_size, job.ranks_per_node, local, self._most_tokens, hidden)
            self._normal = _native.Normal(
                job._native, self.rank, *self._normal_place, sizes, rings, self._timeout_ns
            )
            self._normal_sizes, self._normal_rings = (hidden, experts), rings
        if self._normal_sizes != (hidden, experts):
            right = f"{self._normal_sizes}, as before"
            raise ValueError(f"hidden size, experts: expected {right}, got {(hidden, experts)}")
        if config is not None:
            sms, near, _, slots = self._normal_rings
            # What is sent at once was settled with the rings: another call may ask for more or less, and gets that.
            fits = config.num_sms == sms and config.num_max_nvl_chunked_recv_tokens >= near
            if not fits or config.num_max_rdma_chunked_recv_tokens < slots:
                right = f"num_sms={sms}, num_max_nvl_chunked_recv_tokens={near}"
                right = f"{right}, num_max_rdma_chunked_recv_tokens={slots}"
                raise ValueError(f"config: expected {right}, or more of all but SMs, got {config}: as rings are")
        return self._normal
