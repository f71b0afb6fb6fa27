"""Ranks: those of this process, on soft NICs that can be made to fail."""

from . import _native
from .config import node_size


class Group:
    """One rank of a job: what `Buffer` takes for a process group."""

    def __init__(self, job, rank):
        self.job, self._rank = job, rank
        self._buffers = 0

    def rank(self):
        return self._rank

    def size(self):
        return self.job.ranks


class SoftJob:
    """`ranks` ranks of this process, each with `rails` soft NICs and a heap for one buffer of `num_rdma_bytes`.

    Ranks may be threads: kernels run with the interpreter let go. In normal mode `ranks_per_node` of them reach each
    other's memory, as over NVLink: eight where nothing is said, or as many as divide the ranks.
    """

    def __init__(self, ranks, num_rdma_bytes, *, rails=2, num_qps_per_rank=2, seed=1, ranks_per_node=None):
        node = node_size(max(ranks, 1)) if ranks_per_node is None else ranks_per_node
        if node < 1 or ranks % node:
            raise ValueError(f"ranks_per_node: {node} was given; a divisor of {ranks}, the ranks, is right")
        self.ranks, self.rails, self.ranks_per_node = ranks, rails, node
        self._native = _native.Job(ranks, rails, num_rdma_bytes, num_qps_per_rank, seed)
        self._groups = [Group(self, rank) for rank in range(ranks)]

    def group(self, rank):
        """Rank `rank`."""
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank}: 0 to {self.ranks - 1} is right")
        return self._groups[rank]

    def inject(self, rank, rail, fault):
        """Makes a rail of a rank fail now; faults are written as `shmem_put_bw --list-faults` shows them."""
        self._native.inject(rank, rail, fault)

    def failovers(self):
        """Switches to another path because of a fault, of all ranks."""
        return self._native.switches()[0]

    def switchbacks(self):
        """Switches back to a path that is well again."""
        return self._native.switches()[1]
