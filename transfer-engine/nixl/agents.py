"""Two agents of NIXL on Shunt's backend: pages, reads, notifications, a request that is released under way, memory that is
deregistered under way, an agent that ends and starts again.

    NIXL_PLUGIN_DIR=FOLDER shunt run -n 2 -- python3 agents.py --meet EMPTY_FOLDER

FOLDER has libplugin_SHUNT.so. Agents find each other's metadata in the other folder; the second one starts a second later.
NIXL's wheel and NumPy must be installed. Ends with 0 where every byte and every notification was as it was sent, and
nothing landed after the release, nor after the memory was deregistered.
"""

import argparse
import gc
import importlib
import os
import pathlib
import time

import numpy as np

PAGE, PAGES, TURNS, SOON = 4096, 512, 5, 60.0
# Gb/s of a rail in software: slow, so that a request is still under way when it is released.
SOFT_GBPS = "0.05"


def api():
    """NIXL's module, whichever wheel it came with."""
    for name in ("nixl_cu12._api", "nixl_cu13._api", "nixl._api"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise SystemExit("nixl: expected one of its wheels, got none")


class Agent:
    def __init__(self, meet, life="first"):
        self.rank, self.meet = int(os.environ["SHUNT_RANK"]), meet
        nixl = api()
        self.agent = nixl.nixl_agent(f"agent{self.rank}", nixl.nixl_agent_config(backends=[]))
        self.agent.create_backend("SHUNT", {"rails": "2", "soft_gbps": SOFT_GBPS})
        self.memory = np.zeros((PAGES, PAGE), np.uint8)
        self.base = self.memory.ctypes.data
        self.held = self.agent.register_memory(self.agent.get_reg_descs([(self.base, self.memory.nbytes, 0, "")], "DRAM"))
        self.put("metadata-" + life, self.agent.get_agent_metadata())
        self.put("base-" + life, str(self.base).encode())
        self.meets("first")

    def meets(self, life):
        """Takes up the other agent, in this life of it."""
        self.peer = self.agent.add_remote_agent(self.get("metadata-" + life))
        self.theirs, self.waiting = int(self.get("base-" + life)), []

    def name(self):
        return self.peer if isinstance(self.peer, str) else self.peer.decode()

    def put(self, name, data):
        """Gives the other agent a file, whole or not at all."""
        (self.meet / f"new-{name}{self.rank}").write_bytes(data)
        os.rename(self.meet / f"new-{name}{self.rank}", self.meet / f"{name}{self.rank}")

    def get(self, name):
        path, until = self.meet / f"{name}{1 - self.rank}", time.monotonic() + SOON
        while not path.exists():
            assert time.monotonic() < until, f"{path}: expected it within {SOON} s"
            time.sleep(0.01)
        return path.read_bytes()

    def tell(self, text):
        self.agent.send_notif(self.peer, text)

    def hear(self, text):
        """The next notification is this one."""
        name, until = self.name(), time.monotonic() + SOON
        while not self.waiting:
            assert time.monotonic() < until, f"{text!r}: expected it within {SOON} s"
            self.waiting += self.agent.get_new_notifs().get(name, [])
        got = self.waiting.pop(0)
        assert got == text, f"notification: expected {text[:80]!r}, got {got[:80]!r}"

    def start(self, kind, mine, theirs, text=b""):
        def pages(base, indices):
            return self.agent.get_xfer_descs([(base + index * PAGE, PAGE, 0) for index in indices], "DRAM")

        here, there = pages(self.base, mine), pages(self.theirs, theirs)
        handle = self.agent.initialize_xfer(kind, here, there, self.peer, text, backends=["SHUNT"])
        return handle, self.agent.transfer(handle)

    def ends(self, handle):
        """How a request ended."""
        until = time.monotonic() + SOON
        while True:
            assert time.monotonic() < until, f"a request: expected its end within {SOON} s"
            try:
                state = self.agent.check_xfer_state(handle)
            except Exception as error:
                return type(error).__name__
            if state != "PROC":
                return state

    def run(self, kind, mine, theirs, text=b""):
        (handle, state), until = self.start(kind, mine, theirs, text), time.monotonic() + SOON
        while state == "PROC":
            assert time.monotonic() < until, f"{kind}: expected its end within {SOON} s"
            state = self.agent.check_xfer_state(handle)
        assert state == "DONE", f"{kind}: expected DONE, got {state}"
        self.agent.release_xfer_handle(handle)


FORTH, BACK = range(PAGES), range(PAGES)[::-1]
CONTENT = np.arange(PAGES, dtype=np.uint32)[:, None] % 251


def first(own):
    own.memory[:] = CONTENT
    for turn in range(TURNS):
        own.run("WRITE", FORTH, BACK, b"turn %d" % turn)
        own.hear(b"seen %d" % turn)
    own.memory[:] = 0
    own.run("READ", FORTH, FORTH, b"read")
    assert (own.memory[::-1] == CONTENT).all(), "READ: expected what the other agent has"
    own.hear(b"x" * 10000)
    for number in range(200):
        own.tell(b"many %d" % number)
    own.hear(b"all of them")
    own.memory[:] = 7
    own.hear(b"ready")
    handle, state = own.start("WRITE", FORTH, FORTH)
    assert state == "PROC", f"expected a request that is under way, got {state}"
    own.agent.release_xfer_handle(handle)
    own.memory[:] = 9
    # Not by a notification: it would come behind what is under way.
    own.put("released", b"")
    own.hear(b"untouched")
    own.run("WRITE", FORTH, FORTH, b"after")
    own.hear(b"again")
    # The other agent deregisters its memory while this one writes to it.
    handle, state = own.start("WRITE", FORTH, FORTH, b"never told")
    own.put("begun", b"")
    state = own.ends(handle)
    assert state != "DONE", f"expected a request that is refused, got {state}"
    # It ends, and starts again under its name.
    own.agent.remove_remote_agent(own.name())
    own.meets("second")
    own.memory[:] = 5
    own.run("WRITE", FORTH, FORTH, b"second life")
    own.hear(b"end")
    print(f"agent 0: {TURNS} times {PAGES} pages written, {PAGES} read, one request released under way", flush=True)


def second(own):
    for turn in range(TURNS):
        own.hear(b"turn %d" % turn)
        assert (own.memory[::-1] == CONTENT).all(), f"turn {turn}: expected what was written"
        own.memory[:] = CONTENT[::-1] if turn + 1 == TURNS else 0
        own.tell(b"seen %d" % turn)
    own.hear(b"read")
    own.tell(b"x" * 10000)
    for number in range(200):
        own.hear(b"many %d" % number)
    own.tell(b"all of them")
    own.memory[:] = 0
    own.tell(b"ready")
    own.get("released")
    written = int(own.memory.any(1).sum())
    assert written < PAGES, "expected a request that is released before all of it was written"
    own.memory[:] = 0xEE
    time.sleep(1.0)
    late = int((own.memory != 0xEE).sum())
    assert late == 0, f"after the release: expected no byte, got {late}"
    own.tell(b"untouched")
    own.hear(b"after")
    assert (own.memory == 9).all(), "expected what was written after the release"
    own.memory[:] = 0
    own.tell(b"again")
    own.get("begun")
    until = time.monotonic() + SOON
    while not own.memory.any():
        assert time.monotonic() < until, "expected a page that arrives"
    own.agent.deregister_memory(own.held)
    own.memory[:] = 0xEE
    time.sleep(1.0)
    late = int((own.memory != 0xEE).sum())
    assert late == 0, f"after the memory was deregistered: expected no byte, got {late}"
    meet, own.agent = own.meet, None
    del own
    gc.collect()
    own = Agent(meet, "second")
    own.hear(b"second life")
    assert (own.memory == 5).all(), "expected what was written to the second life"
    own.tell(b"end")
    print(f"agent 1: every byte as it was sent, {written} pages before the release, late bytes: {late}", flush=True)
    # What it said last is on its way.
    time.sleep(0.5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meet", type=pathlib.Path, required=True)
    meet = parser.parse_args().meet
    if os.environ["SHUNT_RANK"] == "1":
        time.sleep(1.0)
    agent = Agent(meet)
    (first if agent.rank == 0 else second)(agent)
