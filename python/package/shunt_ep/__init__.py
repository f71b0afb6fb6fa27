"""DeepEP's buffer, on channels that survive: `import shunt_ep as deep_ep`."""

from ._native import Differs, Fault
from .buffer import Buffer
from .config import Config
from .events import EventHandle, EventOverlap
from .job import Group, SoftJob
from .numbers import dequantise, from_bf16, from_fp8, to_bf16

__all__ = [
    "Buffer",
    "Config",
    "Differs",
    "EventHandle",
    "EventOverlap",
    "Fault",
    "Group",
    "SoftJob",
    "dequantise",
    "from_bf16",
    "from_fp8",
    "to_bf16",
]
