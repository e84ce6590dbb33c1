# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: an RTRS + RNBD server that follows the protocol unless told otherwise.

It serves one session with one path, single-threaded, one request at a time, from memory.
"""
from __future__ import annotations

import contextlib
import os
import struct
import time

import messages as m
from scripted_peer import Endpoint, Refused, ScriptedPeer

TYPE_CHECKING = False
if TYPE_CHECKING:   # it would take an emulated machine a tenth of a second
    from typing import Any

PORT = 1234
# Where things lie in an endpoint's memory: chunks first, then what is sent and received.
SEND, RECEIVE = 0xE0000, 0xE8000
RECEIVES = 64
# The test makes it when its IO has ended: now the server does what it has left for later.
GO = "/tmp/peer/go"


class Lies:
    """The fields that a server falsifies; None and empty mean valid ones."""

    def __init__(self, **fields: object) -> None:
        self.connect: dict[str, Any] = {}           # fields of the connect response
        self.reject: bytes | None = None            # reject with this private data
        self.info: bytes | None = None              # another info response
        self.silent_after_info = False
        self.open: dict[str, Any] = {}              # fields of the open response
        self.open_again: dict[str, Any] = {}        # the same of every OPEN but the first
        self.opens_one = False                      # answers no OPEN but the first
        self.session: dict[str, Any] = {}           # fields of the session info's answer
        self.echoes = False                         # sends the client's nonce back
        self.slow_seconds = 0.0                     # to say its version
        self.answer_size: int | None = None         # bytes of the answer to a READ of ours that are written
        self.at_io: Any = None                       # called instead of answering the first IO request
        self.later: Any = None                       # called once there is GO
        self.at_info: Any = None                     # called instead of answering an info request
        self.stays = False                          # after the client has disconnected
        self.depth = 4                              # chunks
        self.tells = ""                             # a file that gets a line for each IO (operation, sector, bytes)
        #                                             and for each CLOSE ("close", number)
        self.__dict__.update(fields)


class Server:
    """One session; `run` serves until the deadline."""

    def __init__(self, peer: ScriptedPeer, lies: Lies, chunk: int = 131072) -> None:
        self.peer, self.lies, self.depth, self.chunk = peer, lies, lies.depth, chunk
        depth = lies.depth
        self.reply = (0, 0, 0)                      # address, key and size of the last READ's memory
        self.sector = 0                             # of that READ
        self.is_asked = False                       # to invalidate that key
        self.kept = 0                               # a key for later
        self.lost = (0, 0, 0)                       # as `reply`, of a READ that was never answered
        self.ends: list[Endpoint] = []
        self.expected = 0
        self.memory_bits = 28 - (depth - 1).bit_length()
        self.closed = False
        self.opened = 0
        peer.listen(PORT)

    # -- establishment ---------------------------------------------------------------------------------

    def _accept(self, number: int, private: bytes) -> None:
        if self.lies.reject is not None:
            self.peer.reject(number, self.lies.reject)
            return
        cid, self.expected = struct.unpack_from("<HH", private, 6)
        if cid == 0:
            # A new life of the path: the word of the old one's end may come later.
            self.ends.clear()
        fields: dict[str, Any] = {"depth": self.depth, "io_size": self.chunk - 4096, "flags": 0} | self.lies.connect
        end = self.peer.accept(number, m.connect_response(**fields))
        end.receive(RECEIVE, 512, RECEIVES)
        self.ends.append(end)

    def _info(self) -> None:
        end, io_end = self.ends[0], self.ends[-1]
        # The chunks lie in the memory of the last connection; it is one domain for all.
        data = self.lies.info
        if data is None:
            data = m.info_response([(io_end.buffer, io_end.key, self.depth * self.chunk)])
        end.put(SEND, data)
        end.post("send", SEND, len(data))

    # -- requests --------------------------------------------------------------------------------------

    def respond(self, end: Endpoint, chunk: int, errno: int = 0, kind: int = m.IMM_RESPONSE) -> None:
        """An empty write with the response's immediate."""
        end.post("write", SEND, 0, 0, 0, m.imm(kind, errno << 19 | chunk))

    def _request(self, end: Endpoint, imm: int) -> None:
        payload = imm & 0xFFFFFFF
        chunk, offset = payload >> self.memory_bits, payload & ((1 << self.memory_bits) - 1)
        memory = self.ends[-1]
        kind, user_size = struct.unpack("<HH", memory.get(chunk * self.chunk + offset, 4))
        user = memory.get(chunk * self.chunk + offset - user_size, user_size)
        block_kind = struct.unpack_from("<H", user)[0] if len(user) >= 2 else -1
        if block_kind == m.IO and kind == m.READ:
            head = memory.get(chunk * self.chunk + offset, 24)
            self.reply = struct.unpack_from("<QII", head, 8)
            self.sector = struct.unpack_from("<Q", user, 8)[0]
            self.is_asked = bool(struct.unpack_from("<H", head, 4)[0] & m.NEED_INVAL)
        if block_kind == m.OPEN and self._keeps_open(user):
            return
        if block_kind == m.IO and self.lies.at_io:
            deed, self.lies.at_io = self.lies.at_io, None
            deed(self, end, chunk)
            return
        if block_kind == m.IO:
            sector, operation, size = struct.unpack_from("<QII", user, 8)
            self._tell(f"{operation & 0xff} {sector} {size}")
        elif block_kind == m.CLOSE:
            self._tell(f"close {struct.unpack_from('<I', user, 4)[0]}")
        if kind == m.READ:
            self._bring(end, chunk, offset, user)
        self.respond(end, chunk)

    def _keeps_open(self, _user: bytes) -> bool:
        """Says whether an OPEN is not answered."""
        keeps = bool(self.opened and self.lies.opens_one)
        if keeps:
            self._tell("open")
        return keeps

    def _tell(self, line: str) -> None:
        if self.lies.tells:
            with open(self.lies.tells, "a", encoding="ascii") as file:
                file.write(line + "\n")

    def _bring(self, end: Endpoint, chunk: int, offset: int, user: bytes) -> None:
        block_kind = struct.unpack_from("<H", user)[0] if len(user) >= 2 else -1
        session = dict(self.lies.session)
        if block_kind == m.SESSION_INFO:
            time.sleep(self.lies.slow_seconds)
        if self.lies.echoes and block_kind == m.SESSION_INFO:
            session["magic"], session["nonce"] = struct.unpack_from("<IQ", user, 8)
        fields = dict(self.lies.open)
        if block_kind == m.OPEN:
            fields |= self.lies.open_again if self.opened else {}
            self.opened += 1
        memory = self.ends[-1]
        head = memory.get(chunk * self.chunk + offset, 24)
        address, key, size = struct.unpack_from("<QII", head, 8)
        data = {m.SESSION_INFO: m.session_info(2, m.SESSION_INFO_RESPONSE, **session),
                m.OPEN: m.open_response(**fields)}.get(block_kind, bytes(size))
        if self.lies.answer_size is not None and block_kind in (m.SESSION_INFO, m.OPEN):
            data = data[:self.lies.answer_size]
        end.put(SEND, data[:8192])
        end.post("write", SEND, min(len(data), size, 8192), address, key)

    # -- loop ------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Serves until the time is over or the client has disconnected."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.closed:
            event = self.peer.event(0 if self.ends else 100)
            if event and event.name == "RDMA_CM_EVENT_CONNECT_REQUEST":
                self._accept(event.endpoint, event.private)
            elif event and event.name == "RDMA_CM_EVENT_DISCONNECTED":
                self._disconnected(event.endpoint)
            for end in self.ends:
                while self._poll(end):
                    pass
            if self.lies.later and os.path.exists(GO):
                later, self.lies.later = self.lies.later, None
                later(self)

    def _disconnected(self, number: int) -> None:
        self.closed = not self.lies.stays
        for end in [end for end in self.ends if end.number == number]:
            self.ends.remove(end)
            with contextlib.suppress(Refused):
                end.disconnect()

    def _poll(self, end: Endpoint) -> bool:
        """Handles a completion; says whether there was one."""
        got = end.completion(0)
        if got is None or got.status:
            return False
        if not got.opcode & 128:
            return True
        end.receive(got.request, 512)
        if not got.has_imm:
            if self.lies.at_info and self.lost[1]:
                self.lies.at_info(self)
            elif not self.lies.silent_after_info:
                self._info()
        elif got.imm >> 28 == m.IMM_HEARTBEAT:
            end.post("write", SEND, 0, 0, 0, m.imm(m.IMM_HEARTBEAT_ACK, 0))
        elif got.imm >> 28 == m.IMM_REQUEST:
            self._request(end, got.imm)
        elif got.imm >> 28 == m.IMM_FENCE:
            self._fence(end, got.imm & 0xFFFFFFF)
        return True

    def _fence(self, end: Endpoint, number: int) -> None:
        """The client asks whether path `number` is drained; this server has not agreed upon the message."""
