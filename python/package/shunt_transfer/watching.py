"""Words that a kernel or another thread writes, and that an engine looks at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from .pending import FOREVER, awaited, patience


class Watcher:
    """A word that is watched until `Engine.unwatch`, or until its engine is closed. `Engine.watch` makes it."""

    def __init__(self, node: Any, native: Any, each: Callable[[int, int], object] | None) -> None:
        self._node, self._native, self._is_over = node, native, False
        self._thread = None
        if each is not None:
            self._thread = threading.Thread(target=self._tell, args=(each,), name="shunt transfer watch", daemon=True)
            self._thread.start()

    def _refuse_a_second(self) -> None:
        if self._thread is not None:
            raise ValueError("a watcher: expected one without a function, got one whose function is told")

    def wait(self, timeout: float | None = None) -> tuple[int, int]:
        """The value before and the value now, of changes that were not taken; those between may be passed over.

        Raises TimeoutError if there is none within `timeout` seconds, and RuntimeError once the watcher has ended.
        """
        self._refuse_a_second()
        change = self._native.wait(patience(timeout))
        if change is None:
            raise TimeoutError(f"a watched word: expected a change within {timeout} s, got none")
        return int(change[0]), int(change[1])

    def __await__(self) -> Generator[Any, None, tuple[int, int]]:
        """As `wait`, in an event loop. What is cancelled there takes no change."""
        self._refuse_a_second()
        return self._next().__await__()

    async def _next(self) -> tuple[int, int]:
        while True:
            await awaited(lambda: self._native.ready(FOREVER))
            change = self._native.wait(0)
            if change is not None:
                return int(change[0]), int(change[1])

    def _tell(self, each: Callable[[int, int], object]) -> None:
        try:
            while self._native.ready(FOREVER) and not self._is_over:
                change = self._native.wait(0)
                if change is not None and each(*change):
                    return
        finally:
            self._is_over = True
            # Of an engine that is closed it is over.
            with suppress(RuntimeError):
                self._node.unwatch(self._native)

    def _end(self, node: Any) -> bool:
        if node is not self._node:
            raise ValueError("watcher: expected one of this node, got one of another node")
        self._is_over = True
        was_there = bool(node.unwatch(self._native))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return was_there
