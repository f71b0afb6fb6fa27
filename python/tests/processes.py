"""One rank of a job of processes: layers of both modes in one buffer, a port that goes down and comes back in the
middle, all data compared. `shunt run` starts the ranks:

    shunt run -n 4 -- shunt soft-rdma run --nics 2 -- python python/tests/processes.py --meet 127.0.0.1:7800

Rank 0 listens there, and on the next port. The group is torch's, with gloo, where torch is installed; else a
communicator of this file, with mpi4py's names. With `--links` nobody here takes a port down: links go down and come
back by somebody else's hand. Ranks are on two nodes. Ends with 0 where each layer was right and each rank left its path
and came back. mpirun, torchrun and srun start the ranks as well.
"""

import argparse
import os
import sys
import time
from multiprocessing.connection import Client, Listener

import numpy as np
import shunt_ep as deep_ep

LOCAL_EXPERTS, TOKENS, HIDDEN, TOPK = 2, 6, 512, 2
CONFIG = deep_ep.Config(4, 6, 16, 2, 8)
# Layers between two looks at how far all ranks are; seconds for each phase, many times what it takes.
LAYERS, PATIENCE = 5, 120.0


# Variables of a rank and of all of them: shunt run, torchrun, mpirun and prterun, srun.
LAUNCHERS = (
    ("SHUNT_RANK", "SHUNT_WORLD"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


class Communicator:
    """Processes that all reach rank 0, with mpi4py's names."""

    def __init__(self, place, rank, ranks):
        self._rank, self._ranks, self._others = rank, ranks, {}
        key = os.environ.get("SHUNT_SECRET", "tests").encode()
        if rank == 0:
            with Listener(place, backlog=ranks, authkey=key) as listener:
                for _ in range(1, ranks):
                    other = listener.accept()
                    self._others[self._heard(other)] = other
            return
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._root = Client(place, authkey=key)
                break
            except OSError as error:
                if time.monotonic() > until:
                    sys.exit(f"rank {rank}: rank 0 is not at {place}: {error}")
                time.sleep(0.05)
        self._root.send(rank)

    def Get_rank(self):
        return self._rank

    def Get_size(self):
        return self._ranks

    def _heard(self, other):
        if not other.poll(PATIENCE):
            sys.exit(f"rank {self._rank}: not all ranks came in {PATIENCE} s")
        return other.recv()

    def allgather(self, mine):
        if self._rank != 0:
            self._root.send(mine)
            return self._heard(self._root)
        told = [mine if rank == 0 else self._heard(self._others[rank]) for rank in range(self._ranks)]
        for other in self._others.values():
            other.send(told)
        return told


def group_of(place, rank, ranks):
    """What a buffer is given of the group, and what makes its kind of array of NumPy's."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return {"comm": Communicator(place, rank, ranks)}, lambda array: array, "the script's own group"
    dist.init_process_group("gloo", init_method=f"tcp://{place[0]}:{place[1]}", rank=rank, world_size=ranks)
    return {"group": dist.group.WORLD}, torch.from_numpy, f"torch {torch.__version__}, gloo"


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
    parser.add_argument("--meet", metavar="HOST:PORT", required=True, help="where rank 0 listens")
    parser.add_argument("--links", action="store_true", help="links go down by somebody else's hand")
    given = parser.parse_args()
    host, _, port = given.meet.partition(":")
    if not port.isdecimal():
        parser.error(f"--meet: expected HOST:PORT, got {given.meet!r}")
    rank, ranks = next(
        (int(os.environ[one]), int(os.environ[all])) for one, all in LAUNCHERS if {one, all} <= os.environ.keys()
    )
    group, kind, called = group_of((host, int(port)), rank, ranks)
    # What all ranks say of their progress goes round by itself: the buffer has a group of its own.
    gather = Communicator((host, int(port) + 1), rank, ranks).allgather
    size = max(
        deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, ranks, ranks * LOCAL_EXPERTS),
        CONFIG.get_rdma_buffer_size_hint(2 * HIDDEN, ranks, ranks_per_node=ranks // 2),
    )
    buffer = deep_ep.Buffer(
        **group,
        num_rdma_bytes=size,
        low_latency_mode=True,
        num_qps_per_rank=4,
        explicitly_destroy=True,
        ranks_per_node=ranks // 2,
        num_max_tokens_per_rank=TOKENS,
    )
    if "RDMA devices" not in buffer.job.nics:
        sys.exit(f"rank {rank}: expected RDMA devices, got {buffer.job.nics}")
    layers, job = Layers(buffer, kind), buffer.job
    layers.until(gather, lambda: True, "a layer")
    print(f"rank {rank}: started", flush=True)
    if not given.links:
        job.inject(0, "down")
    layers.until(gather, lambda: job.failovers() > 0, "a failover")
    if not given.links:
        job.inject(0, "up")
    layers.until(gather, lambda: job.switchbacks() > 0, "a switch-back")
    layers.until(gather, lambda: True, "a layer")
    if not (layers.waited > 0).any():
        sys.exit(f"rank {rank}: nobody was waited for: {layers.waited}")
    failovers, back = job.failovers(), job.switchbacks()
    buffer.destroy()
    switched = f"{failovers} failovers, {back} switch-backs"
    print(f"rank {rank}: {layers.number} layers right, {switched}, {job.nics}, {called}", flush=True)


if __name__ == "__main__":
    main()
