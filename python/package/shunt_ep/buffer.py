"""DeepEP's `Buffer` with its names and shapes: its low-latency half, and what both halves have."""

import ctypes

import numpy as np

from . import _native, arrays, checked, events
from .job import Group
from .normal import NormalMode


class Handle(tuple):
    """DeepEP's handle: source indices, ranges, tokens of a rank at most, hidden size, experts.

    The first two are filled in by the receiving phase.
    """

    def __new__(cls, source, ranges, tokens, hidden, experts):
        self = super().__new__(cls, (source, ranges, tokens, hidden, experts))
        self.native, self.topk_idx, self.of = None, None, None
        return self


def _sizes(tokens, hidden, experts, ranks):
    """The sizes of a low-latency buffer, those that can be."""
    sizes = (
        checked.whole(tokens, "num_max_dispatch_tokens_per_rank", 1),
        checked.whole(hidden, "hidden", 1),
        checked.whole(experts, "num_experts", 1),
    )
    if sizes[1] % checked.HIDDEN_STEP:
        raise ValueError(f"hidden: {hidden} was given; a multiple of {checked.HIDDEN_STEP} is right")
    if sizes[2] % ranks:
        raise ValueError(f"num_experts: {experts} was given; a multiple of {ranks}, the ranks, is right")
    return sizes


def _hooked(return_recv_hook):
    return checked.flag(return_recv_hook, "return_recv_hook")


class Buffer(NormalMode):
    """The buffer of one rank. Arrays are NumPy's, or CPU tensors of torch; results are of the kind of what came in.

    BF16 is `bfloat16` of torch or ml_dtypes, or its bits as uint16; results without torch are bits.
    """

    def __init__(
        self,
        group,
        num_nvl_bytes=0,
        num_rdma_bytes=0,
        low_latency_mode=False,
        num_qps_per_rank=24,
        allow_nvlink_for_low_latency_mode=True,
        allow_mnnvl=False,
        use_fabric=False,
        explicitly_destroy=False,
        enable_shrink=False,
        comm=None,
        *,
        timeout=100.0,
        absolute_signals=False,
        num_max_tokens_per_rank=8192,
    ):
        """With `low_latency_mode` the low-latency half is in the heap, else normal mode. `timeout` (seconds),
        `absolute_signals` (of low latency) and `num_max_tokens_per_rank` (of normal mode, on all ranks alike) are
        Shunt's own; what has no meaning on a CPU is not looked at."""
        checked.instance(group, Group, "group", "one of SoftJob.group(rank)")
        self.group, self.rank, self.group_size = group, group.rank(), group.size()
        if group.job.group(self.rank) is not group:
            raise ValueError("group: one that was made by hand was given; one of SoftJob.group(rank) is right")
        checked.whole(num_nvl_bytes, "num_nvl_bytes", 0, checked.U64)
        checked.whole(num_qps_per_rank, "num_qps_per_rank", 1)
        self.num_rdma_bytes = checked.whole(num_rdma_bytes, "num_rdma_bytes", 0, checked.U64)
        if self.num_rdma_bytes > group.job.num_rdma_bytes:
            right = f"{group.job.num_rdma_bytes} at most is right: what its SoftJob was given"
            raise ValueError(f"num_rdma_bytes: {self.num_rdma_bytes} was given; {right}")
        self.low_latency_mode = checked.flag(low_latency_mode, "low_latency_mode")
        self.enable_shrink = checked.flag(enable_shrink, "enable_shrink")
        if self.enable_shrink and not self.low_latency_mode:
            raise ValueError("enable_shrink: True was given; False is right: normal mode leaves no rank out")
        self._timeout_ns = checked.seconds(timeout, "timeout")
        self._absolute = checked.flag(absolute_signals, "absolute_signals")
        most = checked.TOKENS_MAX
        self._most_tokens = checked.whole(num_max_tokens_per_rank, "num_max_tokens_per_rank", 1, most)
        self._native, self._sizes, self._destroyed, self._mark = None, None, False, object()
        self._normal, self._normal_sizes, self._normal_rings = None, None, None
        # The last: a rank whose arguments were refused has its buffer still to come.
        if group._buffers:
            right = "another rank's is right: a heap holds one"
            raise ValueError(f"group: that of rank {self.rank} was given, which has had its buffer; {right}")
        group._buffers += 1

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts):
        """Bytes that a buffer takes."""
        ranks = checked.whole(num_ranks, "num_ranks", 1, checked.RANKS_MAX)
        tokens, hidden, experts = _sizes(num_max_dispatch_tokens_per_rank, hidden, num_experts, ranks)
        return _native.size_hint(tokens, hidden, ranks, experts)

    def _of(self, tokens, hidden, experts):
        """The native buffer, made by the first call, whose sizes stay."""
        if self._destroyed:
            raise RuntimeError("the buffer is destroyed")
        if not self.low_latency_mode:
            raise ValueError("low_latency_mode: False was given to this buffer; True is right for its low-latency half")
        sizes = _sizes(tokens, hidden, experts, self.group_size)
        if self._native is None:
            native = _native.Buffer(
                self.group.job._native,
                self.rank,
                *sizes,
                self._timeout_ns,
                self._absolute,
                self.enable_shrink,
            )
            self._native, self._sizes = native, sizes
        if self._sizes != sizes:
            met = f"tokens, hidden size, experts: {sizes} were given"
            raise ValueError(f"{met}; {self._sizes} are right: as before")
        return self._native

    def _handle(self, handle):
        """A handle of this buffer."""
        checked.instance(handle, Handle, "handle", "one of low_latency_dispatch")
        if handle.of is not self._mark:
            raise ValueError("handle: another buffer's was given; one of this buffer is right")
        if handle.native is None:
            raise RuntimeError("the dispatch of this handle was not received; its hook comes first")
        return handle

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank, hidden, num_experts):
        """All ranks together: what was under way is given up, and a buffer that met a fault is usable again."""
        self._of(num_max_dispatch_tokens_per_rank, hidden, num_experts).clean()

    def low_latency_dispatch(
        self,
        x,
        topk_idx,
        num_max_dispatch_tokens_per_rank,
        num_experts,
        cumulative_local_expert_recv_stats=None,
        dispatch_wait_recv_cost_stats=None,
        use_fp8=True,
        round_scale=False,
        use_ue8m0=False,
        async_finish=False,
        return_recv_hook=False,
    ):
        """DeepEP's: `(recv_x, recv_count, handle, event, hook)`.

        `recv_x` is `[local experts, ranks * tokens, hidden]`; with FP8 a pair, codes and scales. With
        `return_recv_hook` arrays are empty until `hook()`.
        """
        self._costs(dispatch_wait_recv_cost_stats, "dispatch_wait_recv_cost_stats")
        use_fp8, round_scale = checked.flag(use_fp8, "use_fp8"), checked.flag(round_scale, "round_scale")
        use_ue8m0 = checked.flag(use_ue8m0, "use_ue8m0")
        event, return_recv_hook = events.after(checked.flag(async_finish, "async_finish")), _hooked(return_recv_hook)
        if use_ue8m0 and not round_scale:
            raise ValueError("use_ue8m0: True was given with round_scale=False; round_scale=True is right with it")
        bits = arrays.bf16(x, "x", 2)
        sizes = _sizes(num_max_dispatch_tokens_per_rank, bits.shape[1], num_experts, self.group_size)
        tokens, hidden, num_experts = sizes
        if len(bits) > tokens:
            right = f"{tokens} at most are right: num_max_dispatch_tokens_per_rank"
            raise ValueError(f"x: {len(bits)} tokens were given; {right}")
        topk = arrays.experts(topk_idx, len(bits), num_experts)
        local, rows = num_experts // self.group_size, tokens * self.group_size
        stats = cumulative_local_expert_recv_stats
        if stats is not None:
            what = "cumulative_local_expert_recv_stats"
            stats = checked.writable(stats, what, ("int32", "int64"), (local,))
        native = self._of(*sizes)
        form = "fp8-exponents" if use_ue8m0 else "fp8-rounded" if round_scale else "fp8"
        sent = native.dispatch(bits, topk, form if use_fp8 else "bf16")
        came = np.zeros((local, rows, hidden), np.uint8 if use_fp8 else np.uint16)
        groups = hidden // 512 if use_ue8m0 else hidden // 128
        # By group first: neighbouring rows lie side by side, as matrix units want them.
        scales = np.zeros((local, groups, rows), np.int32 if use_ue8m0 else np.float32)
        counts = np.zeros(local, np.int32)
        source, ranges = np.zeros((local, rows), np.int32), np.zeros((local, self.group_size), np.int64)
        handle = Handle(source, ranges, tokens, hidden, num_experts)
        handle.topk_idx, handle.of = topk, self._mark

        def hook():
            *parts, native_handle = native.receive_dispatch(sent)
            for to, part in zip((came, scales, counts, source, ranges), parts, strict=True):
                if part:
                    to.reshape(-1)[:] = np.frombuffer(part, to.dtype)
            handle.native = native_handle
            if stats is not None:
                stats[:] += counts

        if not return_recv_hook:
            hook()
        received = arrays.like(came, x, "float8_e4m3fn" if use_fp8 else "bfloat16")
        if use_fp8:
            received = (received, arrays.like(scales, x).swapaxes(1, 2))
        return received, arrays.like(counts, x), handle, event, hook if return_recv_hook else None

    def low_latency_combine(
        self,
        x,
        topk_idx,
        topk_weights,
        handle,
        use_logfmt=False,
        zero_copy=False,
        async_finish=False,
        return_recv_hook=False,
        out=None,
        combine_wait_recv_cost_stats=None,
    ):
        """DeepEP's: `(combined_x, event, hook)`; `combined_x` is `[tokens, hidden]`, BF16."""
        self._costs(combine_wait_recv_cost_stats, "combine_wait_recv_cost_stats")
        if checked.flag(use_logfmt, "use_logfmt"):
            raise ValueError("use_logfmt: True was given; False is right: LogFMT is not here")
        zero_copy = checked.flag(zero_copy, "zero_copy")
        event, return_recv_hook = events.after(checked.flag(async_finish, "async_finish")), _hooked(return_recv_hook)
        _, _, tokens, hidden, experts = self._handle(handle)
        topk = arrays.of(topk_idx, np.int64, "topk_idx")
        if not np.array_equal(topk, handle.topk_idx):
            raise ValueError("topk_idx: another one was given; that of the dispatch is right")
        weights = arrays.weights(topk_weights, topk.shape)
        made = None
        if not zero_copy:
            made = arrays.bf16(x, "x", 3)
            right = (experts // self.group_size, tokens * self.group_size, hidden)
            if made.shape != right:
                raise ValueError(f"x: {made.shape} was given; {right} is right")
        if out is None:
            combined = np.zeros((len(topk), hidden), np.uint16)
            result = arrays.like(combined, topk_idx, "bfloat16")
        else:
            kinds = ("bfloat16", "uint16", "int16")
            combined, result = checked.writable(out, "out", kinds, (len(topk), hidden)), out
        native = self._of(tokens, hidden, experts)
        sent = native.combine(made, weights, handle.native)

        def hook():
            combined[:] = np.frombuffer(native.receive_combine(sent), np.uint16).reshape(combined.shape)

        if not return_recv_hook:
            hook()
        return result, event, hook if return_recv_hook else None

    def get_next_low_latency_combine_buffer(self, handle):
        """Where experts may leave what they make, for `low_latency_combine(..., zero_copy=True)`: BF16 as bits."""
        _, _, tokens, hidden, experts = self._handle(handle)
        address, stride = self._of(tokens, hidden, experts).next_combine_buffer()
        local, rows = experts // self.group_size, tokens * self.group_size
        memory = (ctypes.c_uint8 * (local * rows * stride)).from_address(address)
        # The heap lives as long as the job.
        memory.owner = self.group.job
        return np.ndarray((local, rows, hidden), np.uint16, memory, strides=(rows * stride, stride, 2))

    def low_latency_query_mask_buffer(self, mask_status):
        """Fills in which ranks are left out."""
        status = checked.writable(mask_status, "mask_status", ("int32", "int64"), (self.group_size,))
        status[:] = self._made().mask()

    def low_latency_query_mask_epoch(self):
        """Decisions of the ranks about who is left out that this buffer goes by. Shunt's own."""
        return self._made().epoch()

    def low_latency_update_mask_buffer(self, rank_to_mask, mask=False):
        """Leaves a rank out, or takes it in again. With enable_shrink the ranks agree on that, and nobody alone."""
        rank, mask = checked.whole(rank_to_mask, "rank_to_mask", 0, self.group_size - 1), checked.flag(mask, "mask")
        self._made().set_mask(rank, mask)

    def low_latency_clean_mask_buffer(self):
        """Takes all ranks in again."""
        for rank, masked in enumerate(self._made().mask()):
            if masked:
                self._made().set_mask(rank, False)

    def _made(self):
        if self._native is None:
            raise RuntimeError("the buffer has no sizes yet: a dispatch or clean_low_latency_buffer comes first")
        return self._native

    @staticmethod
    def _costs(stats, what):
        if stats is not None:
            raise ValueError(f"{what}: {checked.shown(stats)} was given; None is right: nothing here measures them")

    def destroy(self):
        """Lets the buffer go; the one that is in one of its kernels is waited for."""
        self._destroyed = True
        for native in (self._native, self._normal):
            if native is not None:
                native.destroy()
