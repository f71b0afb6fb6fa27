"""The native half: what it takes and gives is looked at and shaped by the modules beside it."""

from typing import Any

__version__: str

def flush_log() -> None: ...

class Fault(RuntimeError):
    """A kernel met a fault: stage, peer, path and syndrome are in its text."""

    peer: int
    syndrome: int

class Differs(ValueError):
    """Ranks do not have alike what they must."""

    peer: int
    what: str
    theirs: int | None
    ours: int | None

class Root:
    def unique_id(self) -> bytes: ...

class Job:
    def __init__(self, ranks: int, rails: int, bytes: int, channels: int, seed: int, locals: int) -> None: ...
    @staticmethod
    def join(
        rank: int,
        ranks: int,
        rails: int,
        bytes: int,
        channels: int,
        unique_id: bytes,
        root: Root | None,
        nic: str | None,
        locals: int | None,
    ) -> Job: ...
    def inject(self, rank: int, rail: int, fault: str) -> None: ...
    def switches(self) -> tuple[int, int]: ...
    def nics(self) -> str: ...
    def locals(self) -> int: ...
    def address(self, rank: int) -> int: ...
    def meet(self, patience_ns: int) -> str | None: ...

class Buffer:
    def __init__(self, *parts: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Normal:
    def __init__(self, *parts: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class TransferNode:
    @staticmethod
    def alone(ends: int, rails: int, soft_gbps: float) -> list[TransferNode]: ...
    @staticmethod
    def from_env(nic: str | None, rails: int, soft_gbps: float) -> TransferNode: ...
    @staticmethod
    def join(
        rank: int,
        ranks: int,
        unique_id: bytes,
        root: Root | None,
        nic: str | None,
        rails: int,
        soft_gbps: float,
    ) -> TransferNode: ...
    @staticmethod
    def listen(at: str, end: int, nic: str | None, rails: int, soft_gbps: float) -> TransferNode: ...
    def __getattr__(self, name: str) -> Any: ...

class TransferTarget:
    def __init__(self, description: bytes) -> None: ...
    def bytes(self) -> int: ...

def size_hint(tokens: int, hidden: int, ranks: int, experts: int) -> int: ...
def normal_size_hint(sizes: tuple[int, ...], rings: tuple[int, ...]) -> int: ...
def normal_layout(*parts: Any) -> tuple[bytes, bytes, bytes, bytes]: ...
