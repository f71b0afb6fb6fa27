"""DeepEP's `Buffer` with its names and shapes: its low-latency half, and what both halves have."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _native, arrays, checked, events
from .events import CommStream, EventOverlap
from .group import ProcessJob, gatherer
from .handles import LowLatencyState, recall, remember
from .job import Group, SoftJob
from .normal import NormalMode


def _sizes(tokens, hidden, experts, ranks):
    """The sizes of a low-latency buffer, those that can be."""
    sizes = (
        checked.whole(tokens, "num_max_dispatch_tokens_per_rank", 1),
        checked.whole(hidden, "hidden", 1),
        checked.whole(experts, "num_experts", 1),
    )
    if sizes[1] % checked.HIDDEN_STEP:
        raise ValueError(f"hidden: expected a multiple of {checked.HIDDEN_STEP}, got {hidden}")
    if sizes[2] % ranks:
        raise ValueError(f"num_experts: expected a multiple of {ranks}, the ranks, got {experts}")
    return sizes


def _hooked(return_recv_hook):
    return checked.flag(return_recv_hook, "return_recv_hook")


def _aligned(bytes_):
    return -(-bytes_ // 128) * 128


class Buffer(NormalMode):
    """The buffer of one rank. Arrays are NumPy's, or CPU tensors of torch; results are of the kind of what came in.

    BF16 is `bfloat16` of torch or ml_dtypes, or its bits as uint16; results without torch are bits.
    """

    def __init__(
        self,
        group: Any = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        explicitly_destroy: bool = False,
        comm: Any = None,
        *,
        use_fabric: bool = False,
        enable_shrink: bool = False,
        timeout: float = 100.0,
        absolute_signals: bool = False,
        num_max_tokens_per_rank: int = 8192,
        ranks_per_node: int | None = None,
        rails: int = 2,
        nic: str | None = None,
    ) -> None:
        """All ranks together. `group` is a `torch.distributed.ProcessGroup`, each rank a process, or one of
        `SoftJob.group(rank)`; `comm` a communicator of mpi4py in its place. The order is DeepEP v1.2.1's; what later
        versions added is given by name. With `low_latency_mode` both halves are there, each in memory of its own, else
        normal mode. Of processes `num_nvl_bytes` are for normal mode as well: all rings are in one heap.

        Shunt's own: `timeout` (seconds), `absolute_signals` (of low latency), `num_max_tokens_per_rank` (of normal mode,
        on all ranks alike); of processes `ranks_per_node` (of one machine, at most 8 unless given), `rails` at most, and
        `nic`, as `SHUNT_NIC` has it. Without `allow_nvlink_for_low_latency_mode` ranks of a node send each other by NIC
        as well, in low latency. What has no meaning on a CPU is not looked at.
        """
        if not isinstance(group, Group):
            gatherer(group, comm)
        nvl = checked.whole(num_nvl_bytes, "num_nvl_bytes", 0, checked.U64)
        qps = checked.whole(num_qps_per_rank, "num_qps_per_rank", 1)
        self.num_nvl_bytes, self.num_rdma_bytes = nvl, checked.whole(num_rdma_bytes, "num_rdma_bytes", 0, checked.U64)
        self.low_latency_mode = checked.flag(low_latency_mode, "low_latency_mode")
        self.explicitly_destroy = checked.flag(explicitly_destroy, "explicitly_destroy")
        self.enable_shrink = checked.flag(enable_shrink, "enable_shrink")
        if self.low_latency_mode and not self.num_rdma_bytes:
            right = "1 or more with low_latency_mode=True (Buffer.get_low_latency_rdma_size_hint says how many)"
            raise ValueError(f"num_rdma_bytes: expected {right}, got 0")
        if self.enable_shrink and not self.low_latency_mode:
            raise ValueError("enable_shrink: expected False, got True: normal mode leaves no rank out")
        self._by_memory = checked.flag(allow_nvlink_for_low_latency_mode, "allow_nvlink_for_low_latency_mode")
        self._timeout_ns = checked.seconds(timeout, "timeout")
        self._absolute = checked.flag(absolute_signals, "absolute_signals")
        most = checked.TOKENS_MAX
        self._most_tokens = checked.whole(num_max_tokens_per_rank, "num_max_tokens_per_rank", 1, most)
        self._native, self._sizes, self._destroyed, self._mark = None, None, False, object()
        self._normal, self._normal_sizes, self._normal_rings = None, None, None
        self.group = comm if group is None else group
        self.job: SoftJob | ProcessJob
        if isinstance(group, Group):
            self.job = self._of_soft_job(group)
        else:
            rails = checked.whole(rails, "rails", 1, 8)
            self.job = self._of_processes(group, comm, qps, rails, nic, ranks_per_node)
        self._stream = CommStream(f"comm of rank {self.rank}")

    def _of_soft_job(self, group: Group) -> SoftJob:
        """One of the ranks of this process."""
        self.rank, self.group_size = group.rank(), group.size()
        if group.job.group(self.rank) is not group:
            raise ValueError("group: expected one of SoftJob.group(rank), got one that was made by hand")
        if self.num_rdma_bytes > group.job.num_rdma_bytes:
            right = f"{group.job.num_rdma_bytes} at most, what its SoftJob has"
            raise ValueError(f"num_rdma_bytes: expected {right}, got {self.num_rdma_bytes}")
        # The last: a rank whose arguments were refused has its buffer still to come.
        if group._buffers:
            met = f"that of rank {self.rank}, which has had its buffer"
            raise ValueError(f"group: expected another rank's, got {met}: a heap holds one")
        group._buffers += 1
        room = group.job.num_rdma_bytes
        self._low_latency_place = 0, room
        self._normal_place = (_aligned(room), room) if self.low_latency_mode else (0, room)
        return group.job

    def _of_processes(
        self, group: Any, comm: Any, qps: int, rails: int, nic: str | None, ranks_per_node: int | None
    ) -> ProcessJob:
        """The rank that this process is."""
        if ranks_per_node is not None:
            ranks_per_node = checked.whole(ranks_per_node, "ranks_per_node", 1, 32)
        first = self.num_rdma_bytes if self.low_latency_mode else 0
        second = self.num_nvl_bytes + self.num_rdma_bytes
        total = _aligned(first) + _aligned(second)
        if not 0 < total <= checked.HEAP_MAX:
            right = f"what a size hint of Buffer or of Config says, 1 to {checked.HEAP_MAX // 2}"
            raise ValueError(f"num_rdma_bytes: expected {right}, got {self.num_rdma_bytes}")
        self._low_latency_place, self._normal_place = (0, first), (_aligned(first), second)
        job = ProcessJob(group, comm, total, min(qps, checked.QPS_MAX), rails, nic, ranks_per_node)
        self.rank, self.group_size = job.rank, job.ranks
        return job

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes that a buffer takes."""
        ranks = checked.whole(num_ranks, "num_ranks", 1, checked.RANKS_MAX)
        tokens, hidden, experts = _sizes(num_max_dispatch_tokens_per_rank, hidden, num_experts, ranks)
        return _native.size_hint(tokens, hidden, ranks, experts)

    def _of(self, tokens, hidden, experts):
        """The native buffer, made by the first call, whose sizes stay."""
        if self._destroyed:
            raise RuntimeError("the buffer is destroyed")
        if not self.low_latency_mode:
            raise ValueError("low_latency_mode: expected True for the low-latency half, got False")
        sizes = _sizes(tokens, hidden, experts, self.group_size)
        if self._native is None:
            native = _native.Buffer(
                self.job._native,
                self.rank,
                *self._low_latency_place,
                *sizes,
                self._timeout_ns,
                self._absolute,
                self.enable_shrink,
                self._by_memory,
            )
            self._native, self._sizes = native, sizes
        if self._sizes != sizes:
            right = f"{self._sizes}, as before"
            raise ValueError(f"tokens, hidden size, experts: expected {right}, got {sizes}")
        return self._native

    def _handle(self, handle):
        """What is known of a handle of this buffer."""
        if not isinstance(handle, (tuple, list)):
            raise TypeError(f"handle: expected one of low_latency_dispatch, got {checked.shown(handle)}")
        state = recall(handle, LowLatencyState)
        if state is None:
            raise ValueError("handle: expected one of low_latency_dispatch, got one that no dispatch has made")
        if state.of is not self._mark:
            raise ValueError("handle: expected one of this buffer, got another buffer's")
        self._stream.synchronize()
        if state.native is None:
            raise RuntimeError("the dispatch of this handle was not received: call its hook first")
        return state

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """All ranks together: what was under way is given up, and a buffer that met a fault is usable again."""
        native = self._of(num_max_dispatch_tokens_per_rank, hidden, num_experts)
        self._stream.synchronize()
        native.clean()

    def low_latency_dispatch(
        self,
        x: Any,
        topk_idx: Any,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Any = None,
        dispatch_wait_recv_cost_stats: Any = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
    ) -> tuple[Any, Any, tuple[Any, ...], EventOverlap, Callable[[], None] | None]:
        """DeepEP's: `(recv_x, recv_count, handle, event, hook)`.

        `recv_x` is `[local experts, ranks * tokens, hidden]`; with FP8 a pair, codes and scales. With
        `return_recv_hook` arrays are empty until `hook()`.
        """
        costs = self._costs(dispatch_wait_recv_cost_stats, "dispatch_wait_recv_cost_stats")
        use_fp8, round_scale = checked.flag(use_fp8, "use_fp8"), checked.flag(round_scale, "round_scale")
        use_ue8m0 = checked.flag(use_ue8m0, "use_ue8m0")
        async_finish, return_recv_hook = checked.flag(async_finish, "async_finish"), _hooked(return_recv_hook)
        if use_ue8m0 and not round_scale:
            raise ValueError("use_ue8m0: expected round_scale=True with it, got use_ue8m0=True and round_scale=False")
        bits = arrays.bf16(x, "x", 2)
        sizes = _sizes(num_max_dispatch_tokens_per_rank, bits.shape[1], num_experts, self.group_size)
        tokens, hidden, num_experts = sizes
        if len(bits) > tokens:
            right = f"{tokens} tokens at most, num_max_dispatch_tokens_per_rank"
            raise ValueError(f"x: expected {right}, got {len(bits)} tokens")
        topk = arrays.experts(topk_idx, len(bits), num_experts)
        local, rows = num_experts // self.group_size, tokens * self.group_size
        stats = cumulative_local_expert_recv_stats
        if stats is not None:
            what = "cumulative_local_expert_recv_stats"
            stats = checked.writable(stats, what, ("int32", "int64"), (local,))
        native = self._of(*sizes)
        self._stream.synchronize()
        form = "fp8-exponents" if use_ue8m0 else "fp8-rounded" if round_scale else "fp8"
        sent = native.dispatch(bits, topk, form if use_fp8 else "bf16")
        came = np.zeros((local, rows, hidden), np.uint8 if use_fp8 else np.uint16)
        groups = hidden // 512 if use_ue8m0 else hidden // 128
        # By group first: neighbouring rows lie side by side, as matrix units want them.
        scales = np.zeros((local, groups, rows), np.int32 if use_ue8m0 else np.float32)
        counts = np.zeros(local, np.int32)
        source, ranges = np.zeros((local, rows), np.int32), np.zeros((local, self.group_size), np.int64)
        state = LowLatencyState(self._mark, topk, sizes, checked.is_torch(x))
        handle = (arrays.like(source, x), arrays.like(ranges, x), tokens, hidden, num_experts)
        remember(handle[0], state)
        remember(handle[1], state)

        def receive():
            *parts, state.native, took = native.receive_dispatch(sent, costs is not None)
            for to, part in zip((came, scales, counts, source, ranges), parts, strict=True):
                if part:
                    to.reshape(-1)[:] = np.frombuffer(part, to.dtype)
            if stats is not None:
                stats[:] += counts
            if costs is not None:
                costs[:] += np.array(took, np.int64)

        event, hook = self._received(receive, async_finish, return_recv_hook)
        received = arrays.like(came, x, "float8_e4m3fn" if use_fp8 else "bfloat16")
        if use_fp8:
            received = (received, arrays.like(scales, x).swapaxes(1, 2))
        return received, arrays.like(counts, x), handle, event, hook

    def _received(self, receive, async_finish, return_recv_hook):
        """Receives now, on the communication stream, or when the hook is called: the event and the hook."""
        if return_recv_hook:
            return events.ended(async_finish), receive
        if async_finish:
            return EventOverlap(self._stream.submit(receive)), None
        receive()
        return events.ended(False), None

    def low_latency_combine(
        self,
        x: Any,
        topk_idx: Any,
        topk_weights: Any,
        handle: tuple[Any, ...],
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Any = None,
        combine_wait_recv_cost_stats: Any = None,
    ) -> tuple[Any, EventOverlap, Callable[[], None] | None]:
        """DeepEP's: `(combined_x, event, hook)`; `combined_x` is `[tokens, hidden]`, BF16."""
        costs = self._costs(combine_wait_recv_cost_stats, "combine_wait_recv_cost_stats")
        use_logfmt, zero_copy = checked.flag(use_logfmt, "use_logfmt"), checked.flag(zero_copy, "zero_copy")
        if use_logfmt and zero_copy:
            raise ValueError("use_logfmt: expected False with zero_copy=True, got True: LogFMT is made from x")
        async_finish, return_recv_hook = checked.flag(async_finish, "async_finish"), _hooked(return_recv_hook)
        state = self._handle(handle)
        tokens, hidden, experts = state.sizes
        topk = arrays.of(topk_idx, np.int64, "topk_idx")
        if not np.array_equal(topk, state.topk_idx):
            raise ValueError("topk_idx: expected that of the dispatch, got another one")
        weights = arrays.weights(topk_weights, topk.shape)
        made = None
        if not zero_copy:
            made = arrays.bf16(x, "x", 3)
            right = (experts // self.group_size, tokens * self.group_size, hidden)
            if made.shape != right:
                raise ValueError(f"x: expected {right}, got {made.shape}")
        if out is None:
            combined = np.zeros((len(topk), hidden), np.uint16)
            result = arrays.like(combined, topk_idx, "bfloat16")
        else:
            kinds = ("bfloat16", "uint16", "int16")
            combined, result = checked.writable(out, "out", kinds, (len(topk), hidden)), out
        native = self._of(tokens, hidden, experts)
        sent = native.combine(made, weights, state.native, use_logfmt)

        def receive():
            out, took = native.receive_combine(sent, costs is not None)
            combined[:] = np.frombuffer(out, np.uint16).reshape(combined.shape)
            if costs is not None:
                costs[:] += np.array(took, np.int64)

        event, hook = self._received(receive, async_finish, return_recv_hook)
        return result, event, hook

    def get_next_low_latency_combine_buffer(self, handle: tuple[Any, ...]) -> Any:
        """Where experts may leave what they make, for `low_latency_combine(..., zero_copy=True)`: a tensor
        if tensors came in, else BF16 as bits."""
        state = self._handle(handle)
        tokens, hidden, experts = state.sizes
        address, stride = self._of(tokens, hidden, experts).next_combine_buffer()
        local, rows = experts // self.group_size, tokens * self.group_size
        memory = self._memory(address, local * rows * stride)
        found = np.ndarray((local, rows, hidden), np.uint16, memory, strides=(rows * stride, stride, 2))
        return arrays.tensor(found, "bfloat16") if state.tensors else found

    def _memory(self, address: int, bytes_: int) -> Any:
        """Memory of the heap, which lives as long as the job."""
        memory: Any = (ctypes.c_uint8 * bytes_).from_address(address)
        memory.owner = self.job
        return memory

    def get_local_buffer_tensor(
        self, dtype: Any, size: Any = None, offset: int = 0, use_rdma_buffer: bool = False
    ) -> Any:
        """The memory of this rank's buffer as a tensor: `num_rdma_bytes` from element `offset` on, in the shape `size`
        if one is given."""
        if not checked.flag(use_rdma_buffer, "use_rdma_buffer"):
            raise ValueError("use_rdma_buffer: expected True, got False: rings inside a node are in the same heap")
        if self._destroyed:
            raise RuntimeError("the buffer is destroyed")
        import torch

        checked.instance(dtype, torch.dtype, "dtype", "a dtype of torch")
        bytes_ = self.num_rdma_bytes // dtype.itemsize * dtype.itemsize
        offset = checked.whole(offset, "offset", 0, bytes_ // dtype.itemsize)
        place = self._low_latency_place if self.low_latency_mode else self._normal_place
        memory = self._memory(self.job._native.address(self.rank) + place[0], bytes_)
        whole = torch.frombuffer(memory, dtype=torch.uint8).view(dtype)[offset:]
        if size is None:
            return whole
        size = torch.Size(size)
        if size.numel() > whole.numel():
            raise ValueError(f"size: expected {whole.numel()} elements at most, got {tuple(size)}")
        return whole[: size.numel()].view(size)

    def get_comm_stream(self) -> CommStream:
        """The thread that receives what was sent with `async_finish`, as a stream."""
        return self._stream

    @staticmethod
    def is_sm90_compiled() -> bool:
        """True: what DeepEP has for sm_90 alone, low latency, FP8 and normal mode between nodes, is here."""
        return True

    def low_latency_query_mask_buffer(self, mask_status: Any) -> None:
        """Fills in which ranks are left out."""
        status = checked.writable(mask_status, "mask_status", ("int32", "int64"), (self.group_size,))
        status[:] = self._made().mask()

    def low_latency_query_mask_epoch(self) -> int:
        """Decisions of the ranks about who is left out that this buffer goes by. Shunt's own."""
        return self._made().epoch()

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Leaves a rank out, or takes it in again. With enable_shrink the ranks agree on that, and nobody alone."""
        rank, mask = checked.whole(rank_to_mask, "rank_to_mask", 0, self.group_size - 1), checked.flag(mask, "mask")
        self._made().set_mask(rank, mask)

    def low_latency_clean_mask_buffer(self) -> None:
        """Takes all ranks in again."""
        for rank, masked in enumerate(self._made().mask()):
            if masked:
                self._made().set_mask(rank, False)

    def _made(self):
        if self._native is None:
            raise RuntimeError("the buffer has no sizes yet: call a dispatch or clean_low_latency_buffer first")
        return self._native

    def _costs(self, stats: Any, what: str) -> Any:
        """Where times of waits are added up, by rank, in nanoseconds."""
        return None if stats is None else checked.writable(stats, what, ("int64",), (self.group_size,))

    def destroy(self) -> None:
        """Lets the buffer go; the one that is in one of its kernels is waited for, and of processes all that come."""
        if self._destroyed:
            return
        self._destroyed = True
        self._stream.close()
        if isinstance(self.job, ProcessJob):
            self.job.leave(self._timeout_ns)
        for native in (self._native, self._normal):
            if native is not None:
                native.destroy()
