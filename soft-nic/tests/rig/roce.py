"""Prints what Scapy reads in each frame of a capture: opcode, PSN, destination queue pair, pads, ICRC right or not."""

import sys

from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

for data, _ in RawPcapReader(sys.argv[1]):
    frame = Ether(data)
    bth = frame[BTH]
    sent = data[-4:]
    made = bth.compute_icrc(None)
    word = "right" if sent == made else "wrong: %s, not %s" % (sent.hex(), made.hex())
    print(bth.opcode, bth.psn, bth.dqpn, bth.padcount, bth.ackreq, word)
