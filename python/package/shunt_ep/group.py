"""Processes: a rank each, that find each other by a process group of torch, or by a communicator of mpi4py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _native, checked


def gatherer(group: Any, comm: Any) -> tuple[int, int, Callable[[Any], list[Any]]]:
    """This rank, ranks, and what gives an object to all and returns everyone's, by rank."""
    given = comm if group is None else group
    if hasattr(given, "Get_rank") and hasattr(given, "allgather"):
        return given.Get_rank(), given.Get_size(), given.allgather
    if not (callable(getattr(given, "rank", None)) and callable(getattr(given, "size", None))):
        right = "a torch.distributed.ProcessGroup, a communicator of mpi4py, or one of SoftJob.group(rank)"
        raise TypeError(f"group: expected {right}, got {checked.shown(given)}")
    import torch.distributed

    checked.instance(given, torch.distributed.ProcessGroup, "group", "a torch.distributed.ProcessGroup")

    def gather(mine: Any) -> list[Any]:
        everyones: list[Any] = [None] * given.size()
        torch.distributed.all_gather_object(everyones, mine, given)
        return everyones

    return given.rank(), given.size(), gather


class ProcessJob:
    """The rank that this process is, its NICs and its heap. `Buffer.job` is one where the group is of processes.

    `nics` says what carries the packets: by `SHUNT_NIC`, or the buffer's `nic`, RDMA devices (`mlx5`), software
    (`soft`), or devices where one is active and else software (`auto`).
    """

    def __init__(
        self,
        group: Any,
        comm: Any,
        heap_bytes: int,
        num_qps_per_rank: int,
        rails: int,
        nic: str | None,
        ranks_per_node: int | None,
    ) -> None:
        self.rank, self.ranks, gather = gatherer(group, comm)
        # The root listens for as long as this rank is in `join`.
        try:
            root, trouble = _native.Root() if self.rank == 0 else None, None
        except (RuntimeError, ValueError) as error:
            root, trouble = None, error
        unique_id = gather(root.unique_id() if root else None)[0]
        if trouble is not None:
            raise trouble
        if unique_id is None:
            raise RuntimeError("group: rank 0 has no address to listen at; its own error says why")
        self._native = _native.Job.join(
            self.rank, self.ranks, rails, heap_bytes, num_qps_per_rank, unique_id, root, nic, ranks_per_node
        )
        self.ranks_per_node: int = self._native.locals()
        self.nics: str = self._native.nics()

    def inject(self, rail: int, fault: str) -> None:
        """Makes a rail of this rank fail now, where NICs are software; faults as `shmem_put_bw --list-faults` has them."""
        rail = checked.whole(rail, "rail", 0)
        self._native.inject(self.rank, rail, checked.instance(fault, str, "fault", 'text such as "down=20ms"'))

    def failovers(self) -> int:
        """Switches of this rank's channels to another path because of a fault."""
        return self._native.switches()[0]

    def switchbacks(self) -> int:
        """Switches of this rank's channels back to a path that is well again."""
        return self._native.switches()[1]

    def leave(self, patience_ns: int) -> None:
        """Waits until all ranks leave, or one is gone: until then others may need this one's NICs."""
        self._native.meet(patience_ns)
