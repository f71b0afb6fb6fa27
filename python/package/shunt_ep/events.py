"""DeepEP's events. Calls here end with their work, so each event is over when there is one."""

from . import checked


class EventHandle:
    """An event of a kernel that has ended: on the CPU each has, when its call returns."""

    def current_stream_wait(self):
        pass


class EventOverlap:
    """DeepEP's wrapper of an event."""

    def __init__(self, event=None, extra_tensors=None):
        if event is not None:
            checked.instance(event, EventHandle, "event", "an EventHandle of this module, or None,")
        self.event, self.extra_tensors = event, extra_tensors

    def current_stream_wait(self):
        if self.event is None:
            right = "that of a call with async_finish=True"
            raise ValueError(f"event: None was given to this EventOverlap; {right} is right")
        self.event.current_stream_wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.event is not None:
            self.event.current_stream_wait()


def after(async_finish):
    """What a call gives back, which has ended."""
    return EventOverlap(EventHandle() if async_finish else None)


def around(previous_event, async_finish, allocate_on_comm_stream):
    """Waits for what comes before a call; the event that it gives back."""
    async_finish = checked.flag(async_finish, "async_finish")
    if previous_event is not None:
        right = "an EventOverlap of this module, or None,"
        with checked.instance(previous_event, EventOverlap, "previous_event", right):
            pass
    on_stream = checked.flag(allocate_on_comm_stream, "allocate_on_comm_stream")
    if on_stream and (previous_event is None or not async_finish):
        met = f"previous_event={checked.shown(previous_event)}, async_finish={async_finish}"
        raise ValueError(f"allocate_on_comm_stream: True was given with {met}; with an event and True it is right")
    return after(async_finish)
