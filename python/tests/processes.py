"""One rank of a job of processes: layers of both modes in one buffer, a port that goes down and comes back in the middle,
all data compared. `shunt run` starts the ranks:

    shunt run -n 4 -- shunt soft-rdma run --nics 2 -- python python/tests/processes.py --meet DIR

The group is torch's, with gloo, where torch is installed; else a communicator of this file, with mpi4py's names, that
hands objects round in files of `DIR`, an empty folder. Ends with 0 where each layer was right and each rank left its path and came back.
"""

import argparse
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import shunt_ep as deep_ep

LOCALS, LOCAL_EXPERTS, TOKENS, HIDDEN, TOPK = 2, 2, 6, 512, 2
CONFIG = deep_ep.Config(4, 6, 16, 2, 8)
# Layers between two looks at how far all ranks are; seconds for each phase, many times what it takes.
LAYERS, PATIENCE = 5, 120.0


class Communicator:
    """Processes that share a folder, with mpi4py's names."""

    def __init__(self, folder, rank, ranks):
        self._folder, self._rank, self._ranks, self._round = folder, rank, ranks, 0

    def Get_rank(self):
        return self._rank

    def Get_size(self):
        return self._ranks

    def allgather(self, mine):
        self._round += 1
        place = lambda rank: self._folder / f"{self._round}.{rank}"
        half = place(self._rank).with_suffix(f".{self._rank}.half")
        half.write_bytes(pickle.dumps(mine))
        half.rename(place(self._rank))
        until = time.monotonic() + PATIENCE
        while not all(place(rank).exists() for rank in range(self._ranks)):
            if time.monotonic() > until:
                sys.exit(f"rank {self._rank}: not all ranks came to round {self._round}")
            time.sleep(0.001)
        return [pickle.loads(place(rank).read_bytes()) for rank in range(self._ranks)]


def group_of(folder, rank, ranks):
    """What a buffer is given of the group, and what makes its kind of array of NumPy's."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return {"comm": Communicator(folder, rank, ranks)}, lambda array: array
    dist.init_process_group("gloo", init_method=f"file://{folder}/torch", rank=rank, world_size=ranks)
    return {"group": dist.group.WORLD}, torch.from_numpy


class Layers:
    """Layers of a rank, each with numbers of its own."""

    def __init__(self, buffer, kind):
        self.buffer, self.kind, self.number = buffer, kind, 0
        self.experts = buffer.group_size * LOCAL_EXPERTS
        self.waited = np.zeros(buffer.group_size, np.int64)

    def inputs(self):
        self.number += 1
        random = np.random.default_rng((self.number, self.buffer.rank))
        x = random.integers(-8, 8, (TOKENS, HIDDEN)).astype(np.float32)
        topk = np.argsort(random.random((TOKENS, self.experts)))[:, :TOPK].copy()
        return x, topk, np.full((TOKENS, TOPK), 0.5, np.float32)

    def check(self, combined, right, what):
        if type(combined) is not type(self.kind(np.zeros(1, np.float32))):
            sys.exit(f"rank {self.buffer.rank}: {what} {self.number}: a {type(combined)} came back")
        if not np.array_equal(deep_ep.from_bf16(combined), right):
            sys.exit(f"rank {self.buffer.rank}: {what} {self.number}: a combined token is wrong")

    def low_latency(self):
        """Experts multiply by their number."""
        buffer, (x, topk, weights) = self.buffer, self.inputs()
        # Kinds of both ways that a call may end.
        hooked = self.number % 2 == 0
        received, counts, handle, event, hook = buffer.low_latency_dispatch(
            self.kind(deep_ep.to_bf16(x)) if self.kind(x) is x else self.kind(x).bfloat16(),
            self.kind(topk),
            TOKENS,
            self.experts,
            dispatch_wait_recv_cost_stats=self.waited,
            use_fp8=False,
            return_recv_hook=hooked,
            async_finish=not hooked,
        )
        hook() if hooked else event.current_stream_wait()
        rows = deep_ep.dequantise(received)
        made = np.zeros(rows.shape, np.float32)
        for local, count in enumerate(counts):
            made[local, :count] = rows[local, :count] * (buffer.rank * LOCAL_EXPERTS + local + 1)
        combined, event, _ = buffer.low_latency_combine(
            self.kind(made), self.kind(topk), self.kind(weights), handle, async_finish=True
        )
        event.current_stream_wait()
        right = sum(x * (topk[:, [k]] + 1) * weights[:, [k]] for k in range(TOPK))
        # Rounded as the kernel does it: the sum once.
        self.check(combined, deep_ep.from_bf16(deep_ep.to_bf16(right)), "low latency, layer")

    def normal(self):
        """Each rank gives back what came: a token comes as often as there are ranks that it went to."""
        buffer, (x, topk, weights) = self.buffer, self.inputs()
        topk, weights = self.kind(topk), self.kind(weights)
        per_rank, per_node, per_expert, inside, _ = buffer.get_dispatch_layout(topk, self.experts)
        ways = per_rank, per_node, inside, per_expert
        rows, _, came, _, handle, _ = buffer.dispatch(
            self.kind(x), None, *ways, topk, weights, config=CONFIG, async_finish=True
        )
        combined, sums, event = buffer.combine(rows, tuple(handle), topk_weights=came, async_finish=True)
        event.current_stream_wait()
        self.check(combined, x * np.asarray(inside).sum(axis=1, keepdims=True), "normal mode, layer")
        if not np.array_equal(np.asarray(sums), np.asarray(weights)):
            sys.exit(f"rank {buffer.rank}: normal mode, layer {self.number}: a sum of weights is wrong")

    def until(self, gather, done, what):
        """Runs layers until all ranks are so far."""
        began = time.monotonic()
        while True:
            for _ in range(LAYERS):
                self.low_latency()
                self.normal()
            told = gather((done(), time.monotonic() - began))
            if all(there for there, _ in told):
                return
            if max(seconds for _, seconds in told) > PATIENCE:
                sys.exit(f"rank {self.buffer.rank}: {what} did not come on all ranks: {told}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meet", type=Path, required=True, help="an empty folder of all ranks")
    folder = parser.parse_args().meet.resolve()
    rank, ranks = (int(os.environ[name]) for name in ("SHUNT_RANK", "SHUNT_WORLD"))
    group, kind = group_of(folder, rank, ranks)
    # What all ranks say of their progress goes round by itself: the buffer has a group of its own.
    (folder / "progress").mkdir(exist_ok=True)
    gather = Communicator(folder / "progress", rank, ranks).allgather
    size = max(
        deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, ranks, ranks * LOCAL_EXPERTS),
        CONFIG.get_rdma_buffer_size_hint(2 * HIDDEN, ranks, ranks_per_node=LOCALS),
    )
    buffer = deep_ep.Buffer(
        **group,
        num_rdma_bytes=size,
        low_latency_mode=True,
        num_qps_per_rank=4,
        explicitly_destroy=True,
        ranks_per_node=LOCALS,
        num_max_tokens_per_rank=TOKENS,
    )
    if "RDMA devices" not in buffer.job.nics:
        sys.exit(f"rank {rank}: expected RDMA devices, got {buffer.job.nics}")
    layers, job = Layers(buffer, kind), buffer.job
    layers.until(gather, lambda: True, "a layer")
    job.inject(0, "down")
    layers.until(gather, lambda: job.failovers() > 0, "a failover")
    job.inject(0, "up")
    layers.until(gather, lambda: job.switchbacks() > 0, "a switch-back")
    layers.until(gather, lambda: True, "a layer")
    if not (layers.waited > 0).any():
        sys.exit(f"rank {rank}: nobody was waited for: {layers.waited}")
    failovers, back = job.failovers(), job.switchbacks()
    buffer.destroy()
    print(f"rank {rank}: {layers.number} layers right, {failovers} failovers, {back} switch-backs, {job.nics}", flush=True)


if __name__ == "__main__":
    main()
