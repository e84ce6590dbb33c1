# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: an RTRS client that follows the protocol unless told otherwise."""
from __future__ import annotations

import errno
import os
import struct
import time

import messages as m
from scripted_peer import Completion, Endpoint, Event, ScriptedPeer

TYPE_CHECKING = False
if TYPE_CHECKING:   # it would take an emulated machine a tenth of a second
    from typing import Any

PORT = 1234
# Where things lie in an endpoint's memory.
SEND, REPLY, RECEIVE = 0, 0x40000, 0x80000
# 64 requests of a sector can be in flight before their memory is used again.
SEND_ALIGN = 0x1000
TABLE = 0xC0000
RECEIVES = 256
# A new key, and the end of a READ's data where it was asked for with it.
RECEIVE_SIZE = 8 + m.TAIL_MAX
# Between two looks at what the connection manager says.
SLICE_MS = 100


class Closed(Exception):
    """The server closed the path (or a request on it failed)."""


class NotAdmitted(Closed):
    """The server rejected the session with this errno in the info response."""

    def __init__(self, number: int) -> None:
        super().__init__(f"session refused: {errno.errorcode.get(number, number)}")
        self.errno = number


class Client:
    """One session with one path; every step can be taken alone and with false values."""

    def __init__(self, peer: ScriptedPeer, address: str, name: bytes = b"scripted", connections: int = 2) -> None:
        self.peer, self.address, self.name, self.count = peer, address, name, connections
        self.uuid, self.group, self.attempt = os.urandom(16), os.urandom(16), 1
        self.ends: list[Endpoint] = []
        self.chunks: list[tuple[int, int]] = []
        self.depth = self.chunk_size = self.new_keys = 0
        # Whether it says that it knows the fence message, and its number in those of others.
        self.fences, self.number = False, 0
        # Where the next message of an end begins in its send memory.
        self.sent: dict[int, int] = {}
        self.tail = b""

    def another_path(self, address: str, peer: ScriptedPeer | None = None) -> Client:
        """A further path of the same session, not connected yet."""
        path = Client(peer or self.peer, address, self.name, self.count)
        path.group, path.fences = self.group, self.fences
        return path

    def anew(self, peer: ScriptedPeer | None = None, attempt: int | None = None) -> Client:
        """The same path as it connects again, not connected yet."""
        path = self.another_path(self.address, peer)
        path.uuid, path.attempt = self.uuid, self.attempt + 1 if attempt is None else attempt
        return path

    # -- establishment ---------------------------------------------------------------------------------

    def connect_one(self, cid: int, **lies: object) -> Event:
        """Connects one connection; returns the event that answered."""
        end = self.peer.open(self.address, PORT)
        fields: dict[str, Any] = {"cid": cid, "connections": self.count, "reconnect": self.attempt,
                                  "fences": self.fences} | lies
        private = fields.pop("private", None) or m.connect_request(self.uuid, self.group, **fields)
        size = 16384 if cid == 0 else RECEIVE_SIZE
        end.receive(RECEIVE, size, 16 if cid == 0 else RECEIVES)
        event = end.connect(private)
        if event.name == "RDMA_CM_EVENT_ESTABLISHED":
            self.ends.append(end)
            answer = m.parse_connect_response(event.private)
            self.depth, self.new_keys = answer["depth"], answer["flags"] & 2
            self.chunk_size = answer["io_size"] + answer["head_size"]
            self.number, _session = m.parse_life(event.private)
        return event

    def info(self, data: bytes | None = None, timeout_ms: int = 10_000) -> None:
        """Sends the info request and takes the chunk addresses out of the answer."""
        end = self.ends[0]
        data = m.info_request(self.name) if data is None else data
        end.put(SEND, data)
        end.post("send", SEND, len(data))
        answer = self._receive(end, timeout_ms)
        response = end.get(answer.request, answer.size)
        refusal = m.parse_info_refusal(response)
        if refusal:
            raise NotAdmitted(refusal)
        regions = m.parse_info_response(response)
        self.chunks = [(address + start, key) for address, key, size in regions
                       for start in range(0, size, self.chunk_size)]

    def open(self) -> Client:
        """The whole set-up, with valid messages."""
        for cid in range(self.count):
            event = self.connect_one(cid)
            if event.name != "RDMA_CM_EVENT_ESTABLISHED":
                raise Closed(f"connection {cid}: {event.name} {event.status}")
        self.info()
        return self

    # -- completions -----------------------------------------------------------------------------------

    def _receive(self, end: Endpoint, timeout_ms: int = 10_000) -> Completion:
        """The next received message; own sends are skipped, an error means a closed path."""
        limit = time.monotonic() + timeout_ms / 1000
        while True:
            got = end.completion(SLICE_MS)
            if got is None:
                # As a real client does: a server that says nothing more may have hung up.
                if self.is_closed(0):
                    raise Closed("the server disconnected")
                if time.monotonic() > limit:
                    raise TimeoutError("no answer")
                continue
            if got.status:
                raise Closed(f"completion status {got.status}")
            if got.opcode & 128:
                return got

    def answer(self, chunk: int, timeout_ms: int = 10_000) -> int:
        """Waits for the response to a chunk's request; returns its errno and stores a new key, and what is behind."""
        request, error = self.any_answer(timeout_ms)
        if request != chunk:
            raise AssertionError(f"answer for request {request}, asked {chunk}")
        return error

    def any_answer(self, timeout_ms: int = 10_000) -> tuple[int, int]:
        """Waits for a response; returns its chunk and errno, and stores a new key, and what is behind."""
        end = self.ends[1]
        while True:
            got = self._receive(end, timeout_ms)
            end.receive(got.request, RECEIVE_SIZE)
            if not got.has_imm:
                continue
            kind, error, request = m.split_response(got.imm)
            if kind in (m.IMM_HEARTBEAT, m.IMM_HEARTBEAT_ACK):
                continue
            if self.new_keys:
                message = end.get(got.request, got.size)
                kind, buffer, key = struct.unpack_from("<HHI", message)
                self.tail = message[8:]
                assert (kind, buffer) == (m.RKEY, request), (kind, buffer)
                self.chunks[request] = (self.chunks[request][0], key)
            return request, error

    # -- requests --------------------------------------------------------------------------------------

    def raw(self, chunk: int, start: int, data: bytes, imm: int | None, address: int | None = None,
            key: int | None = None, end: int = 1) -> None:
        """Writes bytes at an offset of a chunk with any immediate."""
        base, right_key = self.chunks[chunk % len(self.chunks)]
        source = self._send_memory(end, len(data))
        self.ends[end].put(source, data)
        self.ends[end].post("write", source, len(data), base + start if address is None else address,
                            right_key if key is None else key, imm)

    def _send_memory(self, end: int, size: int) -> int:
        """The next piece of the send memory: the RDMA device may still read (and repeat) what was posted before."""
        start = self.sent.get(end, SEND)
        if start + size > REPLY:
            start = SEND
        self.sent[end] = start + max(-(-size // SEND_ALIGN), 1) * SEND_ALIGN
        return start

    def barrage(self, count: int, seed: int) -> tuple[int, int, int]:
        """Random messages, thousands a second; returns how many were sent, answered, refused."""
        table = b"".join(struct.pack("<QII", address, key, 0) for address, key in self.chunks[:64])
        self.ends[1].put(TABLE, table)
        return self.ends[1].barrage(count, seed, 28 - (self.depth - 1).bit_length())

    def payload(self, chunk: int, offset: int) -> int:
        """The immediate of a request: chunk and offset of the message's head."""
        memory_bits = 28 - (self.depth - 1).bit_length()
        return m.imm(m.IMM_REQUEST, chunk << memory_bits | offset)

    def write(self, chunk: int, data: bytes, user: bytes, head: bytes | None = None,
              offset: int | None = None) -> None:
        """A WRITE: data, user message, head."""
        head = m.write_head(len(user)) if head is None else head
        offset = len(data) + len(user) if offset is None else offset
        self.raw(chunk, 0, data + user + head, self.payload(chunk, offset))

    def heartbeats(self, seconds: float) -> None:
        """Answers the server's heartbeats for this time, as a live client does."""
        end, limit = self.ends[0], time.monotonic() + seconds
        while time.monotonic() < limit:
            got = end.completion(SLICE_MS)
            if got and got.status:
                raise Closed(f"completion status {got.status}")
            if got and got.opcode & 128:
                end.receive(got.request, 8)
                if got.has_imm and m.split_response(got.imm)[0] == m.IMM_HEARTBEAT:
                    self.raw(0, 0, b"", m.imm(m.IMM_HEARTBEAT_ACK, 0), end=0)

    def fence(self, number: int, end: int = 0) -> None:
        """Says that the path of this number was given up."""
        self.raw(0, 0, b"", m.imm(m.IMM_FENCE, number), end=end)

    def fenced(self, timeout_ms: int = 10_000) -> int:
        """Waits for the answer to that; returns its number."""
        end = self.ends[0]
        while True:
            got = self._receive(end, timeout_ms)
            end.receive(got.request, 8)
            kind, payload = got.imm >> 28, got.imm & 0xFFFFFFF
            if got.has_imm and kind == m.IMM_FENCED:
                return payload
            assert kind in (m.IMM_HEARTBEAT, m.IMM_HEARTBEAT_ACK), f"immediate {got.imm:#x}"

    def read(self, chunk: int, size: int, user: bytes, head: bytes | None = None, flags: int = 0) -> None:
        """A READ of `size` bytes into the endpoint's reply memory."""
        end = self.ends[1]
        if head is None:
            regions = [(end.buffer + REPLY, end.key, size)] if size else []
            head = m.read_head(len(user), regions, flags)
        self.raw(chunk, size, user + head, self.payload(chunk, size + len(user)))

    def read_tail(self, chunk: int, size: int, tail: int, user: bytes, flags: int = m.TAIL) -> None:
        """A READ of `size` bytes of which `tail` have no room in the endpoint's reply memory."""
        end = self.ends[1]
        self.read(chunk, size, user, m.read_head(len(user), [(end.buffer + REPLY, end.key, size - tail)], flags))

    def reply(self, size: int) -> bytes:
        """The data that the last READ brought."""
        return self.ends[1].get(REPLY, size)

    # -- block device ----------------------------------------------------------------------------------

    def map(self, name: bytes, mode: int = m.RW, chunk: int = 0) -> int:
        """SESS_INFO and OPEN; returns the device id, raises OSError with the server's errno."""
        self.read(chunk, 36, m.session_info())
        error = self.answer(chunk)
        if not error:
            self.read(chunk, 56, m.open_device(name, mode))
            error = self.answer(chunk)
        if error:
            raise OSError(error, os.strerror(error))
        return int(struct.unpack_from("<I", self.reply(56), 4)[0])

    def read_device(self, device: int, sector: int, size: int, chunk: int = 1) -> bytes:
        """Reads from the device, with valid messages."""
        self.read(chunk, size, m.io(device, sector, m.OP_READ, size))
        error = self.answer(chunk)
        if error:
            raise OSError(error, os.strerror(error))
        return self.reply(size)

    def write_device(self, device: int, sector: int, data: bytes, chunk: int = 1) -> None:
        """Writes to the device, with valid messages."""
        self.write(chunk, data, m.io(device, sector, m.OP_WRITE, len(data)))
        error = self.answer(chunk)
        if error:
            raise OSError(error, os.strerror(error))

    def is_closed(self, timeout_ms: int = 5000) -> bool:
        """Whether the server closes the path within the time."""
        for _ in range(50):
            event = self.peer.event(timeout_ms)
            if event is None:
                return False
            if event.name in ("RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_TIMEWAIT_EXIT"):
                return True
        return False
