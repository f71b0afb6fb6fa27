"""Transfers between processes over several NICs, which outlive one of them.

Memory is a NumPy array, a tensor on the CPU, or anything with a buffer. A region keeps it until its engine is closed.
Between the begin of a transfer and its end, do not touch what it reads or writes. Transfers have no order; immediates
are counted once, whatever fails.
"""

from .engine import Change, Counts, Engine, Message, Region, Share, Target
from .pending import Expectation, Met, Scattered, Transfer, TransferError
from .watching import Watcher

__all__ = [
    "Change",
    "Counts",
    "Engine",
    "Expectation",
    "Message",
    "Met",
    "Region",
    "Scattered",
    "Share",
    "Target",
    "Transfer",
    "TransferError",
    "Watcher",
]
