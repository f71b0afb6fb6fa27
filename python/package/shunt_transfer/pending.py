"""What calls give back: something that ends once, to wait for or to await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from shunt_ep import checked

# Longer than any wait: what `timeout=None` means.
FOREVER = checked.U64

_T = TypeVar("_T")
# What the library says of an end: an error by its name and text, if there is one, and whether nothing lands any more.
_Ended = tuple[tuple[str, str] | None, bool]


class TransferError(RuntimeError):
    """A transfer or an expectation that failed.

    `kind` is `peer_lost`, `peer_left`, `denied`, `cancelled`, `uncertain`, `unproven` or `missing`.

    `is_quiet` says that no byte of it lands any more, so that its memory may be used again. It is False with `unproven`,
    and with `missing`: what did not come in time may still come.

    `peers`: of a barrier, those that failed.
    """

    def __init__(self, text: str, kind: str, is_quiet: bool, peers: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.kind, self.is_quiet, self.peers = kind, is_quiet, peers


def patience(timeout: float | None) -> int:
    """A time that may have no end, in nanoseconds."""
    return FOREVER if timeout is None else 0 if timeout == 0 else checked.seconds(timeout, "timeout")


async def awaited(wait: Callable[[], _T]) -> _T:
    """What a function that waits gives, in an event loop.

    It has a thread of its own: the loop's executor has few, and each would be taken by one that waits for a later one.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def tell(set_: Callable[[Any], None], what: Any) -> None:
        if not future.done():
            set_(what)

    def watch() -> None:
        told: tuple[Callable[[Any], None], Any]
        try:
            told = future.set_result, wait()
        except BaseException as raised:
            told = future.set_exception, raised
        # The loop may be closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=watch, name="shunt transfer await", daemon=True).start()
    return await future


def _error(ended: _Ended) -> TransferError | None:
    error, is_quiet = ended
    return None if error is None else TransferError(error[1], error[0], is_quiet)


class _Pending:
    """What ends once."""

    _what = "it"

    def __init__(self, native: Any) -> None:
        self._native = native

    def _end(self, timeout: float | None) -> Any:
        """What the library says of its end."""
        ended = self._native.wait(patience(timeout))
        if ended is None:
            raise TimeoutError(f"{self._what}: expected its end within {timeout} s, it goes on")
        return ended

    def _failure(self, ended: Any) -> TransferError | None:
        return _error(ended)

    def wait(self, timeout: float | None = None) -> None:
        """Returns when it has ended well.

        Raises TransferError if it failed, and TimeoutError if it has not ended after `timeout` seconds: it goes on.
        """
        failure = self._failure(self._end(timeout))
        if failure is not None:
            raise failure

    def __await__(self) -> Generator[Any, None, None]:
        """As `wait`, in an event loop. Any number may be awaited at once: each has a thread that waits for it."""
        return awaited(self.wait).__await__()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._native.wait(0) is not None


class _Cancelled(_Pending):
    """What ends once, and may be cancelled."""

    def cancel(self, how: str = "now", *, drain: float = 0.0) -> None:
        """Cancels it, and returns at once; `wait` then raises, with `kind` `cancelled`, or nothing if it had ended.

        `now` fences the rails that hold pieces of it. `drain` waits for those, for `drain` seconds at most. `unposted`
        waits for them as long as they take.
        """
        how = checked.instance(how, str, "how", '"now", "drain" or "unposted"')
        self._native.cancel(how, checked.seconds(drain, "drain") if drain else 0)


class Transfer(_Cancelled):
    """A write or read that was begun. It goes on if nothing refers to it any more."""

    _what = "a transfer"


class Scattered(_Cancelled):
    """A scatter that was begun. It ends when all its shares have; `wait` raises the error of the first that failed.

    The error's `is_quiet` is that of all shares together.
    """

    _what = "a scatter"

    def _failure(self, ended: list[_Ended]) -> TransferError | None:
        is_quiet = all(share[1] for share in ended)
        failed = (share[0] for share in ended if share[0] is not None)
        return _error((next(failed, None), is_quiet))

    def shares(self, timeout: float | None = None) -> list[TransferError | None]:
        """How each share ended, in order: None where all of it was written. Waits as `wait` does."""
        return [_error(share) for share in self._end(timeout)]


class Met(_Pending):
    """A barrier that was begun. The error that `wait` raises is that of the first peer that failed."""

    _what = "a barrier"

    def _failure(self, ended: list[tuple[int, tuple[str, str]]]) -> TransferError | None:
        if not ended:
            return None
        kind, text = ended[0][1]
        return TransferError(text, kind, False, tuple(sorted({peer for peer, _ in ended})))


class Expectation(_Pending):
    """Immediates that are awaited."""

    _what = "an expectation"
