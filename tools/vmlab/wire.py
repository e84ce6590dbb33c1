# SPDX-License-Identifier: GPL-2.0
"""Messages of two machines on a wire, as RTRS and RNBD: captured by QEMU, decoded, one message a line.

A line holds all bytes that a peer can see, but for what is different in each session: keys, addresses, queue pair and
sequence numbers, uuids, the number of the chunk; and data of IO, of which it holds the length.
"""
from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vmlab.lab import Lab

ROCE_PORT = 4791
UD_SEND, ACK = 0x64, 0x11
FIRST, MIDDLE, LAST, ONLY = "first", "middle", "last", "only"
# Operation of a packet: its kind, and its place in the message.
OPERATIONS = {0: ("send", FIRST), 1: ("send", MIDDLE), 2: ("send", LAST), 3: ("send_imm", LAST), 4: ("send", ONLY),
              5: ("send_imm", ONLY), 6: ("write", FIRST), 7: ("write", MIDDLE), 8: ("write", LAST),
              9: ("write_imm", LAST), 10: ("write", ONLY), 11: ("write_imm", ONLY), 0x16: ("send_inv", LAST),
              0x17: ("send_inv", ONLY)}
REQ, REP = 0x10, 0x13
MANAGEMENT = {REQ: "REQ", 0x11: "MRA", 0x12: "REJ", REP: "REP", 0x14: "RTU", 0x15: "DREQ", 0x16: "DREP"}
MAD_HEADER = 24
IO_MESSAGE_BYTES = 32
# Type of an immediate: a heartbeat and its answer come when they come.
HEARTBEATS = (8, 9)
RTRS_READ, RTRS_WRITE = 3, 2


@dataclass
class Message:
    """One message, whole: who sent it, on which connection (-1: a connection manager's), and what is in it."""

    from_client: bool
    connection: int
    kind: str
    immediate: int | None
    data: bytes
    direct: bool = False    # an RDMA write
    address: int = 0        # where it writes to

    @property
    def is_heartbeat(self) -> bool:
        """Whether it is one, or the answer to one."""
        return self.immediate is not None and self.immediate >> 28 in HEARTBEATS

    def __str__(self) -> str:
        if self.connection < 0:
            return f"{self.kind} {_management(self.kind, self.data)}".strip()
        where = "admin" if self.connection == 0 else "io"
        imm = "" if self.immediate is None else f" imm type {self.immediate >> 28}"
        return f"{where} {self.kind}{imm} {self._content()}".strip()

    def _content(self) -> str:
        if self.from_client:
            return _request(self.data) if self.direct else self.data.hex()
        if self.immediate is not None:
            errno = (self.immediate & 0xfffffff) >> 19
            return f"errno {errno} {len(self.data)} bytes type {self.data[:2].hex()}"
        if self.connection == 0 and len(self.data) > 4096:      # the addresses and keys of all chunks
            lengths = {struct.unpack_from("<I", self.data, at + 12)[0] for at in range(8, len(self.data), 16)}
            return f"{self.data[:8].hex()} {len(self.data)} bytes, chunks of {sorted(lengths)}"
        return self.data.hex() if self.connection == 0 else f"{len(self.data)} bytes"


def _management(kind: str, data: bytes) -> str:
    """Private data of a connect request, without the uuids, or of its answer."""
    if kind == "REQ":
        return f"{data[36:48].hex()} uuids {data[80:92].hex()}"
    return data[:56].hex() if kind == "REP" else ""


def _request(data: bytes) -> str:
    """The parts of what a client writes into a chunk: data, then the user's message, then that of RTRS."""
    for count in range(1, 129):
        at = len(data) - 8 - 16 * count
        if at < 0:
            break
        kind, user, flags, found = struct.unpack_from("<4H", data, at)
        if kind == RTRS_READ and found == count:
            lengths = [struct.unpack_from("<I", data, at + 8 + 16 * each + 12)[0] for each in range(count)]
            return f"{at - user} bytes and {data[at - user:at].hex()} read flags {flags} into {lengths}"
    kind, user = struct.unpack_from("<2H", data, len(data) - 4)
    if kind != RTRS_WRITE:
        return f"unknown {data.hex()}"
    at = len(data) - 4 - user
    return f"{at} bytes and {data[at:-4].hex()} write"


@dataclass
class _Decoder:
    """Packets in, messages out."""

    client: str
    messages: list[Message] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)
    _asked: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _connections: dict[tuple[bool, int], int] = field(default_factory=dict)
    _parts: dict[tuple[bool, int], tuple[int, bytes]] = field(default_factory=dict)

    def packet(self, frame: bytes) -> None:
        """One Ethernet frame."""
        if frame[12:14] != b"\x08\x00" or frame[23] != 17:
            return      # not IPv4, not UDP
        udp = 14 + (frame[14] & 15) * 4
        length = struct.unpack_from(">H", frame, udp + 4)[0]
        if struct.unpack_from(">H", frame, udp + 2)[0] != ROCE_PORT:
            return
        source = ".".join(str(part) for part in frame[26:30])
        self._roce(source == self.client, frame[udp + 8:udp + length - 4])      # without the checksum

    def _roce(self, from_client: bool, packet: bytes) -> None:
        operation, pad = packet[0], packet[1] >> 4 & 3
        if operation == ACK:
            return
        if operation == UD_SEND:
            self._mad(from_client, packet[20:])
            return
        queue = int.from_bytes(packet[5:8], "big")
        name = bytes((from_client, *packet[:1], *packet[5:8], *packet[9:12]))
        if operation not in OPERATIONS or name in self._seen:
            return      # sent again
        self._seen.add(name)
        kind, place = OPERATIONS[operation]
        at = 12 + 16 * (kind.startswith("write") and place in (FIRST, ONLY))
        immediate = None
        if kind.endswith("_imm"):
            immediate = struct.unpack_from(">I", packet, at)[0]
        at += 4 * kind.endswith(("_imm", "_inv"))
        whose = (from_client, queue)
        start = struct.unpack_from(">Q", packet, 12)[0] if at >= 28 else 0
        address, before = self._parts.pop(whose, (start, b""))
        whole = before + packet[at:len(packet) - pad]
        if place in (FIRST, MIDDLE):
            self._parts[whose] = address, whole
            return
        self.messages.append(Message(from_client, self._connections.get(whose, 99), kind, immediate, whole,
                                     kind.startswith("write"), address))

    def _mad(self, from_client: bool, mad: bytes) -> None:
        number = struct.unpack_from(">H", mad, 16)[0]
        if mad in self._seen or number not in MANAGEMENT or mad[1] != 7:
            return
        self._seen.add(mad)
        body, data = mad[MAD_HEADER:], b""
        if number == REQ:
            data = body[140:232]
            self._asked[body[0:4]] = (int.from_bytes(body[32:35], "big"), struct.unpack_from("<H", data, 42)[0])
        elif number == REP:
            data = body[36:232]
            queue, connection = self._asked[body[4:8]]
            self._connections[False, queue] = connection
            self._connections[True, int.from_bytes(body[12:15], "big")] = connection
        self.messages.append(Message(from_client, -1, MANAGEMENT[number], None, data))


def decode(capture: bytes, client: str) -> list[Message]:
    """The messages of a capture in pcap format; `client` is the address of the client."""
    decoder = _Decoder(client)
    at = 24
    while at + 16 <= len(capture):
        length = struct.unpack_from("<I", capture, at + 8)[0]
        decoder.packet(capture[at + 16:at + 16 + length])
        at += 16 + length
    return decoder.messages


@contextmanager
def captured(lab: Lab, wire: int = 0) -> Iterator[list[Message]]:
    """Records a wire while the block runs; the list is filled when it has ended."""
    file = Path(lab.folder) / "capture.pcap"
    lab.client.qmp("object-add", **{"qom-type": "filter-dump", "id": "capture", "netdev": f"wire{wire}",
                                    "file": str(file), "maxlen": 65536})
    messages: list[Message] = []
    try:
        yield messages
    finally:
        lab.client.qmp("object-del", id="capture")
        messages += decode(file.read_bytes(), lab.address(lab.client, wire))
        file.unlink()
