"""An end of a job of transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from shunt_ep import _native, checked
from shunt_ep.group import gatherer

from .pending import Expectation, Met, Scattered, Transfer, patience
from .watching import Watcher

_RAILS_MAX = 8
# Bytes of a word.
_WORD = 8


class Change(NamedTuple):
    """What has become of a peer: it joined, or it left. Of one that left nothing lands here any more."""

    peer: int
    joined: bool


class Message(NamedTuple):
    """What a peer has sent."""

    peer: int
    body: bytes


class Counts(NamedTuple):
    """What an end has seen so far: lanes left because of a fault, lanes opened, pieces sent again on another lane."""

    failovers: int
    opened: int
    again: int


class Share(NamedTuple):
    """What one peer gets of a scatter: `nbytes` of the source, 2^30 at most, and an immediate if there is one."""

    peer: int
    target: Target
    nbytes: int
    source_offset: int = 0
    target_offset: int = 0
    imm: int | None = None


class Region:
    """Memory of this end, registered on every rail. `Engine.register` makes it."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def nbytes(self) -> int:
        return int(self._native.bytes())

    def describe(self) -> bytes:
        """What a peer needs to make a `Target` of it."""
        return bytes(self._native.describe())


class Target:
    """A region of a peer, by the bytes that its `describe` gave there."""

    def __init__(self, description: bytes) -> None:
        right = "the bytes of Region.describe"
        self._native = _native.TransferTarget(checked.instance(description, bytes, "description", right))

    @property
    def nbytes(self) -> int:
        return int(self._native.bytes())


def _target(target: Target) -> Target:
    return checked.instance(target, Target, "target", "a Target")


def _share(share: Share) -> tuple[int, Any, int, int, int, int | None]:
    """As the library takes it: peer, target and offset in it, offset in the source, bytes, immediate."""
    share = checked.instance(share, Share, "shares", "a Share of each peer")
    peer, target = checked.whole(share.peer, "peer"), _target(share.target)
    to = checked.whole(share.target_offset, "target_offset", 0, checked.U64)
    at = checked.whole(share.source_offset, "source_offset", 0, checked.U64)
    imm = None if share.imm is None else checked.whole(share.imm, "imm")
    return peer, target._native, to, at, checked.whole(share.nbytes, "nbytes", 0, checked.U64), imm


def _pages(of: str, pages: Sequence[int], stride: int, offset: int) -> tuple[list[int], int, int]:
    """As the library takes them: indices, bytes from one page to the next, first byte of page 0."""
    indices = [checked.whole(page, f"{of}_pages") for page in pages]
    stride = checked.whole(stride, f"{of}_stride", 0, checked.U64)
    return indices, stride, checked.whole(offset, f"{of}_offset", 0, checked.U64)


def _memory(memory: Any, what: str = "memory", *, is_written: bool = True) -> tuple[int, int]:
    """Address and bytes."""
    right = "a NumPy array, a tensor on the CPU, or an object with a buffer that can be written to"
    if checked.is_torch(memory):
        if memory.device.type != "cpu":
            raise ValueError(f"{what}: expected a tensor on the CPU, got one on {memory.device}")
        if not memory.is_contiguous():
            raise ValueError(f"{what}: expected a contiguous tensor, got one with gaps")
        if memory.numel() == 0:
            raise ValueError(f"{what}: expected one byte or more, got none")
        return int(memory.data_ptr()), int(memory.element_size() * memory.numel())
    try:
        array = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
    except (TypeError, ValueError):
        raise TypeError(f"{what}: expected {right}, got {checked.shown(memory)}") from None
    if not array.flags.c_contiguous:
        raise ValueError(f"{what}: expected an array in C's order without gaps, got another one")
    if array.nbytes == 0:
        raise ValueError(f"{what}: expected one byte or more, got none")
    if is_written and not array.flags.writeable:
        raise ValueError(f"{what}: expected memory that can be written to, got memory that can be read alone")
    return int(array.ctypes.data), int(array.nbytes)


def _typed(
    transport: str, provider: str | None, addresses: Sequence[str], nic: str | None, soft_gbps: float | None
) -> tuple[str, str | None, list[str], str | None, float | None]:
    """What carries transfers, as the library takes it."""
    transport = checked.instance(transport, str, "transport", '"rdma", "tcp", "shm" or "libfabric"')
    if soft_gbps is not None and not (isinstance(soft_gbps, Real) and 0.01 <= soft_gbps <= 800):
        raise ValueError(f"soft_gbps: expected Gb/s from 0.01 to 800, got {checked.shown(soft_gbps)}")
    if provider is not None:
        provider = checked.instance(provider, str, "provider", 'a provider of libfabric such as "efa"')
    if isinstance(addresses, str):
        raise TypeError(f"addresses: expected a list of addresses, got {checked.shown(addresses)}")
    right = "addresses of this machine"
    return transport, provider, [checked.instance(at, str, "addresses", right) for at in addresses], nic, soft_gbps


class Engine:
    """This process's end: connected to every other one over each rail. `from_env`, `from_group` and `threads` make it.

    `listen` makes a node without peers instead, which connects to others one by one.

    All of them take what carries transfers: `transport` is `rdma` (NICs), `tcp` or `shm` (libfabric over TCP or shared
    memory), or `libfabric` with a `provider` such as `efa`. `addresses` are those of this machine for the rails of
    libfabric, one a rail; without them libfabric finds one.
    """

    def __init__(self, native: Any) -> None:
        self._native = native
        self.end, self.ends = native.place()
        self.nics: str = native.nics()

    @classmethod
    def from_env(
        cls,
        *,
        rails: int = 2,
        nic: str | None = None,
        soft_gbps: float | None = None,
        transport: str = "rdma",
        provider: str | None = None,
        addresses: Sequence[str] = (),
    ) -> Engine:
        """The end that the launcher's variables name: `shunt run`, mpirun, srun or torchrun.

        `rails`: rails of each end. `nic`: `auto`, `mlx5` or `soft`, else as `SHUNT_NIC` says. `soft_gbps`: Gb/s of a
        rail in software, 1 if nothing is said.
        """
        typed = _typed(transport, provider, addresses, nic, soft_gbps)
        return cls(_native.TransferNode.from_env(checked.whole(rails, "rails", 1, _RAILS_MAX), typed))

    @classmethod
    def from_group(
        cls,
        group: Any = None,
        comm: Any = None,
        *,
        rails: int = 2,
        nic: str | None = None,
        soft_gbps: float | None = None,
        transport: str = "rdma",
        provider: str | None = None,
        addresses: Sequence[str] = (),
    ) -> Engine:
        """The end that this process is in a process group of torch, or in a communicator of mpi4py."""
        typed = _typed(transport, provider, addresses, nic, soft_gbps)
        rails = checked.whole(rails, "rails", 1, _RAILS_MAX)
        rank, ranks, gather = gatherer(group, comm)
        # The root listens for as long as this rank is in `join`.
        root = _native.Root() if rank == 0 else None
        unique_id = gather(root.unique_id() if root else None)[0]
        return cls(_native.TransferNode.join(rank, ranks, unique_id, root, rails, typed))

    @classmethod
    def threads(
        cls,
        ends: int = 2,
        *,
        rails: int = 2,
        soft_gbps: float | None = None,
        transport: str = "rdma",
        provider: str | None = None,
        addresses: Sequence[str] = (),
    ) -> list[Engine]:
        """All ends in this process, on NICs in software or over libfabric: for tests."""
        typed = _typed(transport, provider, addresses, None, soft_gbps)
        ends, rails = checked.whole(ends, "ends", 2, 64), checked.whole(rails, "rails", 1, _RAILS_MAX)
        return [cls(native) for native in _native.TransferNode.alone(ends, rails, typed)]

    @classmethod
    def listen(
        cls,
        at: str = "127.0.0.1:0",
        *,
        end: int = 0,
        rails: int = 2,
        nic: str | None = None,
        soft_gbps: float | None = None,
        transport: str = "rdma",
        provider: str | None = None,
        addresses: Sequence[str] = (),
    ) -> Engine:
        """A node that listens at `at`, `HOST:PORT`, for others with the same SHUNT_SECRET_FILE, which come and go.

        On this machine alone no secret is needed. `end`: a number of its own among the nodes of this machine whose NICs
        are software; they share the fabric that `SHUNT_FABRIC` names.
        """
        rails, end = checked.whole(rails, "rails", 1, _RAILS_MAX), checked.whole(end, "end")
        at = checked.instance(at, str, "at", "HOST:PORT")
        typed = _typed(transport, provider, addresses, nic, soft_gbps)
        return cls(_native.TransferNode.listen(at, end, rails, typed))

    @property
    def listens_at(self) -> str:
        """Where others connect to."""
        return str(self._native.listens_at())

    def connect(self, to: str, timeout: float = 30.0) -> int:
        """Connects to the node that listens at `to`, `HOST:PORT`: its number here. One that is connected has its number.

        Raises RuntimeError with the reason if there is no lane to it after `timeout` seconds. It is no peer then.
        """
        to = checked.instance(to, str, "to", "HOST:PORT")
        return int(self._native.connect(to, checked.seconds(timeout, "timeout")))

    def peers(self) -> list[int]:
        """Peers of a node that are there."""
        return list(self._native.peers())

    def next_change(self, timeout: float | None = None) -> Change | None:
        """The oldest change among the peers of a node; None if there is none within `timeout` seconds."""
        change = self._native.next_change(patience(timeout))
        return None if change is None else Change(*change)

    def revoke(self, peer: int, timeout: float = 5.0) -> bool:
        """Cuts a peer off, whether it answers or not. Its number is not used again.

        True: nothing of it lands in memory of this end any more. False: that was not proven within `timeout` seconds.
        Asked again it waits for the same proof. An end of a job that has left in order is asked for the same way.
        """
        return bool(self._native.revoke(checked.whole(peer, "peer"), checked.seconds(timeout, "timeout")))

    def send(self, peer: int, message: bytes) -> Transfer:
        """Begins to send at most 1 MiB, which is copied. A peer gets the messages of an end in order, each once."""
        message = checked.instance(message, bytes, "message", "bytes")
        return Transfer(self._native.send(checked.whole(peer, "peer"), message))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The oldest message; None if none comes within `timeout` seconds."""
        came = self._native.receive(patience(timeout))
        return None if came is None else Message(came[0], bytes(came[1]))

    def deregister(self, region: Region) -> None:
        """Takes a region's keys back. Then nothing of any peer lands there, whether the peer answers or not.

        What a peer still sends to it fails there with `denied`. Raises ValueError while a transfer of this end uses it.
        """
        self._native.deregister(checked.instance(region, Region, "region", "what register gave")._native)

    def exchange(self, mine: bytes, timeout: float = 60.0) -> list[bytes]:
        """Gives bytes to all ends, and returns everyone's, by number. All ends call it equally often.

        Raises TimeoutError once an end is missing for `timeout` seconds. That counts as a call.
        """
        mine = checked.instance(mine, bytes, "mine", "bytes")
        return [bytes(other) for other in self._native.exchange(mine, checked.seconds(timeout, "timeout"))]

    def register(self, memory: Any, rights: str = "local") -> Region:
        """Registers memory on every rail. It is kept until the engine is closed.

        `rights`: what peers may do with it: `local` nothing, `write`, `read` or `read_write`.
        """
        address, nbytes = _memory(memory)
        right = '"local", "write", "read" or "read_write"'
        return Region(self._native.register(address, nbytes, checked.instance(rights, str, "rights", right), memory))

    def _place(self, source: Region, target: Target) -> tuple[Any, Any]:
        checked.instance(source, Region, "region", "what register gave")
        checked.instance(target, Target, "target", "a Target")
        return source._native, target._native

    def write(
        self,
        peer: int,
        source: Region,
        target: Target,
        nbytes: int | None = None,
        *,
        source_offset: int = 0,
        target_offset: int = 0,
        imm: int | None = None,
    ) -> Transfer:
        """Begins to write `nbytes` of `source` (all behind the offset, if nothing is said) into a peer's region.

        The peer counts `writes_of(nbytes)` immediates. Raises ValueError where it does not fit, and posts nothing then.
        """
        own, other = self._place(source, target)
        at = checked.whole(source_offset, "source_offset", 0, checked.U64)
        to = checked.whole(target_offset, "target_offset", 0, checked.U64)
        count = max(source.nbytes - at, 0) if nbytes is None else checked.whole(nbytes, "nbytes", 0, checked.U64)
        imm = None if imm is None else checked.whole(imm, "imm")
        return Transfer(self._native.write(checked.whole(peer, "peer"), count, imm, own, at, other, to))

    def write_pages(
        self,
        peer: int,
        source: Region,
        source_pages: Sequence[int],
        target: Target,
        target_pages: Sequence[int],
        page_bytes: int,
        *,
        source_stride: int | None = None,
        source_offset: int = 0,
        target_stride: int | None = None,
        target_offset: int = 0,
        imm: int | None = None,
    ) -> Transfer:
        """Begins to write pages, in order: page `i` of a region begins at its offset + `i` times its stride.

        A stride is `page_bytes` if nothing is said: pages without gaps. The peer counts an immediate for each page.
        Raises ValueError where one does not fit, and posts nothing then.
        """
        own, other = self._place(source, target)
        size = checked.whole(page_bytes, "page_bytes", 1, checked.U64)
        imm = None if imm is None else checked.whole(imm, "imm")
        peer = checked.whole(peer, "peer")
        from_ = _pages("source", source_pages, size if source_stride is None else source_stride, source_offset)
        to = _pages("target", target_pages, size if target_stride is None else target_stride, target_offset)
        return Transfer(self._native.write_pages(peer, size, imm, own, from_, other, to))

    def read(
        self,
        peer: int,
        source: Target,
        region: Region,
        nbytes: int | None = None,
        *,
        source_offset: int = 0,
        region_offset: int = 0,
    ) -> Transfer:
        """Begins to read bytes of a peer's region into one of this end. The peer is told nothing."""
        own, other = self._place(region, source)
        at = checked.whole(source_offset, "source_offset", 0, checked.U64)
        to = checked.whole(region_offset, "region_offset", 0, checked.U64)
        count = max(source.nbytes - at, 0) if nbytes is None else checked.whole(nbytes, "nbytes", 0, checked.U64)
        return Transfer(self._native.read(checked.whole(peer, "peer"), count, other, at, own, to))

    def scatter(self, source: Region, shares: Sequence[Share]) -> Scattered:
        """Begins to write parts of `source` to several peers, each its share: one write and one immediate each.

        A peer that is lost holds up no other one. Raises ValueError where one does not fit, and posts nothing then.
        """
        checked.instance(source, Region, "source", "what register gave")
        return Scattered(self._native.scatter(source._native, [_share(share) for share in shares]))

    def barrier(self, imm: int, region: Region, others: Mapping[int, Target], timeout: float | None = None) -> Met:
        """Begins to meet others: ends when each of them has called it with this end.

        `others`: a region of each, by its number here, which peers may write. These and `region` lend their keys alone.
        What was written before is not covered: wait for its end first. After `timeout` seconds, or when one of them is
        lost, it ends with `missing`; another kind is that of a peer which has come and may not know that this end has.
        Then take another `imm` for the next one: what comes late would count.
        """
        imm = checked.whole(imm, "imm")
        checked.instance(region, Region, "region", "what register gave")
        right = "targets by the numbers of peers"
        pairs = checked.instance(others, Mapping, "others", right).items()
        others_ = [(checked.whole(peer, "peer"), _target(target)._native) for peer, target in pairs]
        return Met(self._native.barrier(imm, region._native, others_, patience(timeout)))

    def writes_of(self, nbytes: int) -> int:
        """How many immediates a single write of so many bytes counts."""
        return int(self._native.writes_of(checked.whole(nbytes, "nbytes", 0, checked.U64)))

    def expect(self, peer: int, imm: int, count: int = 1, timeout: float | None = None) -> Expectation:
        """Awaits `count` immediates of a peer. Those that came before are counted.

        After `timeout` seconds, or when the peer is lost, it ends with `missing`.
        """
        peer, imm = checked.whole(peer, "peer"), checked.whole(imm, "imm")
        count = checked.whole(count, "count", 1, checked.U64)
        patience = None if timeout is None else checked.seconds(timeout, "timeout")
        return Expectation(self._native.expect(peer, imm, count, patience))

    def counter(self, peer: int, imm: int) -> int:
        """How many immediates of a peer have arrived and were not taken by an expectation."""
        return int(self._native.counter(checked.whole(peer, "peer"), checked.whole(imm, "imm")))

    def forget(self, peer: int, imm: int) -> None:
        """Drops that count, of a transfer that was cancelled, say. An expectation of it ends with `missing`."""
        self._native.forget(checked.whole(peer, "peer"), checked.whole(imm, "imm"))

    def watch(self, word: Any, each: Callable[[int, int], object] | None = None) -> Watcher:
        """Has the engine look at a word in each of its steps: 8 bytes that a kernel or another thread writes, say.

        `word`: memory of 8 bytes at a multiple of 8, as in `numpy.zeros(1, numpy.uint64)`. It is written in one piece,
        after what it tells of, and kept until the watcher ends. Values between two looks are passed over, the last one
        never is. `each` is called with the value before and the value now, on a thread of the watcher's; what is true
        ends it. Without `each` a change is waited for, or awaited.
        """
        address, nbytes = _memory(word, "word", is_written=False)
        if nbytes != _WORD:
            raise ValueError(f"word: expected memory of {_WORD} bytes, got {nbytes}")
        if each is not None and not callable(each):
            raise TypeError(f"each: expected a function of two values, got {checked.shown(each)}")
        return Watcher(self._native, self._native.watch(address, word), each)

    def unwatch(self, watcher: Watcher) -> bool:
        """Ends a watcher: its word is not read and its function not called any more. False if it has ended already.

        It waits for the function, unless that is what calls it.
        """
        checked.instance(watcher, Watcher, "watcher", "what watch gave")
        return watcher._end(self._native)

    def give_up(self) -> float:
        """Seconds that a peer may be without a rail before it counts as lost."""
        return int(self._native.give_up()) / 1e9

    def counts(self) -> Counts:
        """What this end has seen so far."""
        return Counts(*self._native.counts())

    def rails_to(self, peer: int) -> list[tuple[int, int]]:
        """Pairs of rails, of this end and of the peer, that work now."""
        return list(self._native.rails_to(checked.whole(peer, "peer")))

    def inject(self, rail: int, fault: str) -> None:
        """Makes a rail of this end fail now, where NICs are software; faults as `shmem_put_bw --list-faults` has them."""
        fault = checked.instance(fault, str, "fault", 'text such as "down=20ms"')
        self._native.inject(checked.whole(rail, "rail"), fault)

    def close(self) -> None:
        """Ends it, with what is under way. Other ends may need this one until all have agreed to end."""
        self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
