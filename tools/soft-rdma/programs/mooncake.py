"""Moves blocks from one process to another by Mooncake's transfer engine, and compares all of them.

    python3 mooncake.py --listen PORT                       # one end
    python3 mooncake.py --connect HOST:PORT --bytes 10G     # the other

It needs a wheel of Mooncake (mooncake-transfer-engine or mooncake-transfer-engine-non-cuda), and nothing else. Who
connects writes its memory into the other's, pass after pass, each pass with other bytes. The other clears its memory
before each pass and sums up every block after it. One line of JSON says what came of it; the exit status is 1 if a call
failed or a block was wrong.
"""

import argparse
import ctypes
import json
import os
import socket
import struct
import sys
import time
import zlib

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Each pass begins so many bytes further on in what is sent.
SHIFT = 4096


def size(text):
    unit = UNITS.get(text[-1:].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 65536, 64K or 10G, got {text!r}")
    return int(digits) * unit


class Memory:
    """Bytes at an address that stays."""

    def __init__(self, length):
        self.length = length
        self.bytes = bytearray(length)
        self.address = ctypes.addressof((ctypes.c_char * length).from_buffer(self.bytes))

    def sums(self, first, count, block):
        view = memoryview(self.bytes)
        return [zlib.crc32(view[at : at + block]) for at in range(first, first + count * block, block)]

    def clear(self):
        ctypes.memset(self.address, 0, self.length)


def say(stream, value):
    text = json.dumps(value).encode()
    stream.sendall(struct.pack("!I", len(text)) + text)


def read(stream, length):
    got = b""
    while len(got) < length:
        piece = stream.recv(length - len(got))
        if not piece:
            raise EOFError("the other end went away")
        got += piece
    return got


def hear(stream):
    return json.loads(read(stream, struct.unpack("!I", read(stream, 4))[0]))


def engine(options, memory):
    # This file has the package's name and lies in the first folder that is searched.
    own = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != own]
    from mooncake.engine import TransferEngine

    made = TransferEngine()
    status = made.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", options.device)
    if status != 0:
        sys.exit(f"error: initialize: expected 0, got {status}")
    status = made.register_memory(memory.address, memory.length)
    if status != 0:
        sys.exit(f"error: register_memory: expected 0, got {status}")
    return made


def listen(options):
    listener = socket.create_server(("127.0.0.1", options.listen))
    stream, _ = listener.accept()
    asked = hear(stream)
    memory = Memory(asked["memory"])
    made = engine(options, memory)
    say(stream, {"name": f"127.0.0.1:{made.get_rpc_port()}", "address": memory.address})
    wrong = 0
    while (sums := hear(stream)) is not None:
        if sums:
            own = memory.sums(0, len(sums), asked["block"])
            wrong += sum(there != here for there, here in zip(sums, own))
        memory.clear()
        say(stream, wrong)
    return {"wrong": wrong}


def reach(address):
    host, _, port = address.rpartition(":")
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def connect(options):
    stream = reach(options.connect)
    block = options.block
    blocks = max(1, options.memory // block)
    say(stream, {"memory": blocks * block, "block": block})
    there = hear(stream)
    memory = Memory(blocks * block + block)
    memory.bytes[:] = os.urandom(memory.length)
    made = engine(options, memory)
    say(stream, [])
    hear(stream)
    left = -(-options.bytes // block)
    found = {"block": block, "blocks": 0, "passes": 0, "wrong": 0, "failed": 0}
    seconds, longest = 0.0, 0.0
    while left and (not options.until_failure or not found["failed"]):
        count = min(left, blocks)
        first = found["passes"] * SHIFT % block
        for at in range(0, count, options.batch):
            some = range(at, min(at + options.batch, count))
            begin = time.monotonic()
            status = made.batch_transfer_sync_write(
                there["name"],
                [memory.address + first + one * block for one in some],
                [there["address"] + one * block for one in some],
                [block] * len(some),
            )
            took = time.monotonic() - begin
            seconds, longest = seconds + took, max(longest, took)
            found["failed"] += status != 0
        say(stream, memory.sums(first, count, block))
        found["wrong"] = hear(stream)
        found["blocks"] += count
        found["passes"] += 1
        left -= count
    say(stream, None)
    found.update(
        bytes=found["blocks"] * block,
        seconds=round(seconds, 3),
        longest_call_ms=round(longest * 1e3, 1),
        mb_s=round(found["blocks"] * block / seconds / 1e6, 1),
    )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("--listen", type=int, metavar="PORT")
    side.add_argument("--connect", metavar="HOST:PORT")
    parser.add_argument("--device", default="mlx5_0", help="NICs, with commas between them (mlx5_0)")
    parser.add_argument("--bytes", type=size, default=size("1G"), help="in all (1G)")
    parser.add_argument("--block", type=size, default=size("64K"), help="of a request (64K)")
    parser.add_argument("--memory", type=size, default=size("64M"), help="of a pass (64M)")
    parser.add_argument("--batch", type=int, default=64, help="requests of a call (64)")
    parser.add_argument("--until-failure", action="store_true", help="end with the pass in which a call failed")
    options = parser.parse_args()
    found = listen(options) if options.connect is None else connect(options)
    print(json.dumps(found), flush=True)
    return 1 if found["wrong"] or found.get("failed") else 0


if __name__ == "__main__":
    sys.exit(main())
