"""DeepEP's events. Calls here end with their work, so each event is over when there is one."""


class EventHandle:
    """An event of a kernel that has ended: on the CPU each has, when its call returns."""

    def current_stream_wait(self):
        pass


class EventOverlap:
    """DeepEP's wrapper of an event."""

    def __init__(self, event=None, extra_tensors=None):
        self.event, self.extra_tensors = event, extra_tensors

    def current_stream_wait(self):
        if self.event is None:
            raise ValueError("no event: async_finish=True would have made one")
        self.event.current_stream_wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.event is not None:
            self.event.current_stream_wait()


def around(previous_event, async_finish, allocate_on_comm_stream):
    """Waits for what comes before a call; the event that it gives back."""
    if previous_event is not None:
        if not isinstance(previous_event, EventOverlap):
            met = type(previous_event).__name__
            raise ValueError(f"previous_event: {met} was given; an EventOverlap of this module, or None, is right")
        with previous_event:
            pass
    if allocate_on_comm_stream and (previous_event is None or not async_finish):
        raise ValueError("allocate_on_comm_stream=True: previous_event and async_finish=True are right, too")
    return EventOverlap(EventHandle() if async_finish else None)
