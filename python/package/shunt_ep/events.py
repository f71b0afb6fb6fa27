"""DeepEP's events, and the communication stream of a buffer: a thread that receives what was sent asynchronously."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

from . import checked


class EventHandle:
    """An event: of a call that has ended, or of one that the communication stream still works on."""

    def __init__(self, work: concurrent.futures.Future[None] | None = None) -> None:
        self._work = work

    def current_stream_wait(self) -> None:
        """Waits until the call has ended. What ended it early is raised here."""
        if self._work is not None:
            self._work.result()

    def query(self) -> bool:
        """Whether the call has ended."""
        return self._work is None or self._work.done()


class EventOverlap:
    """DeepEP's wrapper of an event."""

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple[Any, ...] | None = None) -> None:
        if event is not None:
            checked.instance(event, EventHandle, "event", "an EventHandle of this module, or None,")
        self.event, self.extra_tensors = event, extra_tensors

    def current_stream_wait(self) -> None:
        """Waits until the call has ended. What ended it early is raised here."""
        if self.event is None:
            right = "that of a call with async_finish=True"
            raise ValueError(f"event: expected {right}, got None")
        self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: object) -> None:
        if self.event is not None:
            self.event.current_stream_wait()


class CommStream:
    """The communication stream of a buffer: one call after the other, beside the thread that makes them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._last: concurrent.futures.Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> EventHandle:
        """Does the work behind all that was submitted before."""
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self._last = self._pool.submit(work)
        return EventHandle(self._last)

    def query(self) -> bool:
        """Whether nothing is under way."""
        return self._last is None or self._last.done()

    def synchronize(self) -> None:
        """Waits until nothing is under way. What a call ended with is raised by its own event."""
        if self._last is not None:
            concurrent.futures.wait([self._last])
            self._last = None

    def wait_event(self, event: EventHandle) -> None:
        """What is submitted from now on is done after an event."""
        self.submit(event.current_stream_wait)

    def close(self) -> None:
        """Waits for the last call; no other one comes."""
        self.synchronize()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def before(previous_event: EventOverlap | None, async_finish: bool, allocate_on_comm_stream: bool) -> bool:
    """Waits for what comes before a call; whether the call gives back an event."""
    async_finish = checked.flag(async_finish, "async_finish")
    if previous_event is not None:
        right = "an EventOverlap of this module, or None,"
        with checked.instance(previous_event, EventOverlap, "previous_event", right):
            pass
    on_stream = checked.flag(allocate_on_comm_stream, "allocate_on_comm_stream")
    if on_stream and (previous_event is None or not async_finish):
        met = f"previous_event={checked.shown(previous_event)}, async_finish={async_finish}"
        raise ValueError(f"allocate_on_comm_stream: expected an event and async_finish=True with it, got True with {met}")
    return async_finish


def ended(async_finish: bool) -> EventOverlap:
    """What a call gives back that has ended."""
    return EventOverlap(EventHandle() if async_finish else None)
