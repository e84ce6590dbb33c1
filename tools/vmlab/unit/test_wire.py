# SPDX-License-Identifier: GPL-2.0
"""Messages that are made of the packets of a capture."""
from __future__ import annotations

import socket
import struct
import unittest

from vmlab import wire

CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
CHUNK = 0x10000000


def packet(source: str, target: str, operation: int, sequence: int, rest: bytes) -> bytes:
    """An Ethernet frame with one RoCE packet to queue pair 17, and its record in a capture."""
    roce = struct.pack(">BBHII", operation, 0, 0xffff, 17, sequence) + rest + bytes(4)
    udp = struct.pack(">HHHH", 50000, wire.ROCE_PORT, 8 + len(roce), 0) + roce
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    frame = bytes(12) + b"\x08\x00" + struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 64, 17, 0) + addresses + udp
    return struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame


def write(sequence: int, data: bytes) -> bytes:
    """A request: RDMA WRITE with an immediate, in one packet."""
    return packet(CLIENT, SERVER, 11, sequence, struct.pack(">QIII", CHUNK, 7, len(data), 0x20) + data)


class DecodeTest(unittest.TestCase):
    """Messages of captures."""

    def test_a_request_that_is_sent_again_is_one_message(self) -> None:
        """The message has its address, its immediate, and what the user and RTRS say in it."""
        data = bytes(512) + b"user" + struct.pack("<HH", wire.RTRS_WRITE, 4)
        (message,) = wire.decode(bytes(24) + write(5, data) + write(5, data), CLIENT)
        self.assertEqual((message.from_client, message.address, message.immediate), (True, CHUNK, 0x20))
        self.assertTrue(str(message).endswith(f"imm type 0 512 bytes and {b'user'.hex()} write"), str(message))

    def test_descriptors_are_told_by_their_lengths(self) -> None:
        """Addresses and keys are different in each session."""
        texts = set()
        for address, key in ((1, 2), (3, 4)):
            head = struct.pack("<HHHHQII", wire.RTRS_READ, 4, 1, 1, address, key, 4096)
            (message,) = wire.decode(bytes(24) + write(5, b"user" + head), CLIENT)
            texts.add(str(message))
        self.assertEqual(len(texts), 1)
        self.assertIn("into [4096]", texts.pop())

    def test_a_message_of_several_packets_is_one(self) -> None:
        """First, middle and last."""
        packets = (packet(SERVER, CLIENT, number, number, bytes([number]) * 8) for number in (0, 1, 2))
        (message,) = wire.decode(bytes(24) + b"".join(packets), CLIENT)
        self.assertEqual((message.from_client, message.kind, message.data),
                         (False, "send", bytes(8) + b"\x01" * 8 + b"\x02" * 8))

    def test_what_is_not_roce_is_left_out(self) -> None:
        """Another port, and an acknowledgement."""
        other = write(1, bytes(8)).replace(struct.pack(">H", wire.ROCE_PORT), struct.pack(">H", 53))
        self.assertEqual(wire.decode(bytes(24) + other + packet(SERVER, CLIENT, wire.ACK, 1, bytes(4)), CLIENT), [])


if __name__ == "__main__":
    unittest.main()
