"""Answers questions about rdma-core's own descriptions of mlx5 mailboxes.

The descriptions are scapy packets in Debian's python3-pyverbs (rdma-core's tests); they are loaded from where the
package has them. One JSON object a line on stdin, one on stdout:

  {"layout": CLASS}                    -> {"bytes": N, "fields": [[NAME, FIRST BIT, BITS], ...]}
  {"build": CLASS, "values": {NAME: N}} -> {"bytes": HEX}
  {"parse": CLASS, "bytes": HEX}       -> {"values": {NAME: N, ...}}

Names of nested fields are joined with dots, elements of lists are numbered, values are numbers; bit 0 is the most
significant bit of the first byte. Fields called "reserved" are left out.
"""

import gzip
import importlib.util
import json
import os
import sys
import tempfile

SOURCE = "/usr/share/doc/rdma-core/tests/mlx5_prm_structs.py"
# The event data of an EQE is chosen by the type of the event.
EVENT_DATA = {0x0: "CompEvent", 0x4: "CqError", 0x9: "PortStateChangeEvent"}


def load():
    """Imports the descriptions; packages may have compressed them."""
    plain = os.path.exists(SOURCE)
    with open(SOURCE, "rb") if plain else gzip.open(SOURCE + ".gz", "rb") as file:
        text = file.read()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "mlx5_prm_structs.py")
        with open(path, "wb") as file:
            file.write(text)
        spec = importlib.util.spec_from_file_location("mlx5_prm_structs", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for cls in vars(module).values():
        if isinstance(cls, type) and hasattr(cls, "extract_padding"):
            # A nested packet must leave what follows it to the packet around it; the descriptions are only built
            # from where they are at home, so they do not say so.
            cls.extract_padding = lambda self, rest: (b"", rest)
    return module


PRM = load()


def is_packet(value):
    return hasattr(value, "fields_desc")


def is_mac(value):
    return isinstance(value, str) and value.count(":") == 5


def described(packet):
    """Fields of a packet that have a meaning, in order."""
    return [field for field in packet.fields_desc if not field.name.startswith("reserved")]


def flatten(packet, prefix=""):
    """Every field as (name, number), nested packets included."""
    for field in described(packet):
        name, value = prefix + field.name, packet.getfieldval(field.name)
        if is_packet(value):
            yield from flatten(value, name + ".")
        elif isinstance(value, list):
            for index, element in enumerate(value):
                if not is_packet(element):
                    yield f"{name}.{index}", element
        elif is_mac(value):
            yield name, int(value.replace(":", ""), 16)
        elif isinstance(value, (bytes, bytearray)):
            yield name, int.from_bytes(value, "big")
        else:
            yield name, 0 if value is None else value


def convert(value, like):
    """A number in the form that a field with the value `like` takes."""
    if is_mac(like):
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    return value


def make(cls, values):
    """A packet with these values; the rest is zero."""
    packet = cls()
    nested = {}
    # Event data is laid out by the event's type, so plain fields come first.
    for name, value in values.items():
        first, dot, rest = name.partition(".")
        if not dot:
            setattr(packet, first, convert(value, packet.getfieldval(first)))
        else:
            nested.setdefault(first, {})[rest] = value
    for first, inner in nested.items():
        packet.setfieldval(first, make_nested(packet, first, inner))
    zero_opcode(packet, values)
    return packet


def zero_opcode(packet, values):
    """Descriptions fill in their own opcode; what was asked for is what counts."""
    if "opcode" not in values and any(field.name == "opcode" for field in packet.fields_desc):
        packet.opcode = 0


def make_nested(packet, name, inner):
    value = packet.getfieldval(name)
    if name == "event_data":
        return make(getattr(PRM, EVENT_DATA[packet.event_type]), inner)
    if is_packet(value):
        return make(type(value), inner)
    elements = list(value)
    for index, element in inner.items():
        elements[int(index)] = element
    return elements


def layout(cls, values):
    """Where each field lies: the bits that all ones in it alone set. `values` choose between variants."""
    base = bytes(make(cls, values))
    size = len(base) * 8
    fields = []
    for name, _ in flatten(cls(base)):
        if name in values:
            continue
        low, high = bits_of(cls, values, base, name, size)
        fields.append([name, low, high - low + 1])
    return {"bytes": len(base), "fields": fields}


def bits_of(cls, values, base, name, size):
    for width in (64, 48, 32, 29, 24, 20, 16, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1):
        try:
            full = bytes(make(cls, {**values, name: (1 << width) - 1}))
        except Exception:  # too wide for its kind of field
            continue
        if len(full) != len(base):
            continue
        difference = int.from_bytes(full, "big") ^ int.from_bytes(base, "big")
        if difference:
            return size - difference.bit_length(), size - (difference & -difference).bit_length()
    raise ValueError(f"{cls.__name__}.{name} sets no bit")


def answer(request):
    values = request.get("values", {})
    if "layout" in request:
        return layout(getattr(PRM, request["layout"]), values)
    if "build" in request:
        return {"bytes": bytes(make(getattr(PRM, request["build"]), values)).hex()}
    packet = getattr(PRM, request["parse"])(bytes.fromhex(request["bytes"]))
    return {"values": dict(flatten(packet))}


def main():
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
