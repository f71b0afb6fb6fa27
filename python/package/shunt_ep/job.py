"""Ranks of this process, on soft NICs that can be made to fail."""

from __future__ import annotations

from . import _native, checked
from .config import node_size

# Half of it for each half of a buffer.
_HEAP_MAX = checked.HEAP_MAX // 2


class Group:
    """One rank of a job: what `Buffer` takes for a process group. `SoftJob.group(rank)` has it."""

    def __init__(self, job: SoftJob, rank: int) -> None:
        self.job, self._rank = checked.instance(job, SoftJob, "job", "a SoftJob"), rank
        self._buffers = 0

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self.job.ranks


class SoftJob:
    """`ranks` ranks of this process, each with `rails` soft NICs and a heap for one buffer of `num_rdma_bytes`, for each of
    its halves.

    Ranks may be threads: kernels run with the interpreter let go. `ranks_per_node` of them reach each other's memory, as
    over NVLink, and send each other nothing by NIC: eight where nothing is said, or as many as divide the ranks.
    """

    def __init__(
        self,
        ranks: int,
        num_rdma_bytes: int,
        *,
        rails: int = 2,
        num_qps_per_rank: int = 2,
        seed: int = 1,
        ranks_per_node: int | None = None,
    ) -> None:
        ranks, rails = checked.whole(ranks, "ranks", 2, 64), checked.whole(rails, "rails", 1, 8)
        bytes_ = checked.whole(num_rdma_bytes, "num_rdma_bytes", 0, _HEAP_MAX)
        if bytes_ == 0:
            right = "what a size hint of Buffer or of Config says"
            raise ValueError(f"num_rdma_bytes: expected {right}, 1 to {_HEAP_MAX}, got 0")
        qps = checked.whole(num_qps_per_rank, "num_qps_per_rank", 1, 64)
        seed = checked.whole(seed, "seed", 0, checked.U64)
        self.ranks, self.rails, self.ranks_per_node = ranks, rails, node_size(ranks, ranks_per_node)
        self.num_rdma_bytes = bytes_
        # Memory that nobody touches takes no room: each half of a buffer has its own.
        self._native = _native.Job(ranks, rails, bytes_ + -(-bytes_ // 128) * 128, qps, seed, self.ranks_per_node)
        self._groups = [Group(self, rank) for rank in range(ranks)]

    def group(self, rank: int) -> Group:
        """Rank `rank`."""
        return self._groups[checked.whole(rank, "rank", 0, self.ranks - 1)]

    def inject(self, rank: int, rail: int, fault: str) -> None:
        """Makes a rail of a rank fail now; faults are written as `shmem_put_bw --list-faults` shows them."""
        rank, rail = checked.whole(rank, "rank", 0, self.ranks - 1), checked.whole(rail, "rail", 0, self.rails - 1)
        self._native.inject(rank, rail, checked.instance(fault, str, "fault", 'text such as "down=20ms"'))

    def failovers(self) -> int:
        """Switches to another path because of a fault, of all ranks."""
        return self._native.switches()[0]

    def switchbacks(self) -> int:
        """Switches back to a path that is well again."""
        return self._native.switches()[1]
