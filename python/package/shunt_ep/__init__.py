"""DeepEP's buffer, on channels that survive: `import shunt_ep as deep_ep`."""

import atexit

from ._native import Differs, Fault, __version__, flush_log
from .buffer import Buffer
from .config import Config
from .events import CommStream, EventHandle, EventOverlap
from .group import ProcessJob
from .handles import NormalHandle
from .job import Group, SoftJob
from .numbers import dequantise, from_bf16, from_fp8, to_bf16

# The last lines of the log (`SHUNT_LOG`).
atexit.register(flush_log)

__all__ = [
    "Buffer",
    "CommStream",
    "Config",
    "Differs",
    "EventHandle",
    "EventOverlap",
    "Fault",
    "Group",
    "NormalHandle",
    "ProcessJob",
    "SoftJob",
    "__version__",
    "dequantise",
    "from_bf16",
    "from_fp8",
    "to_bf16",
]
