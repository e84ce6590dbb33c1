# SPDX-License-Identifier: GPL-2.0
"""A gfmd and gfsds that say what a script wants (gfarm_fake_wire.py): as threads of a program in the guest.

Without lies they answer a login, the questions of gfarm_ra and its reads as real ones do, so a mount of them can be
listed and read.
"""
from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable

import gfarm_fake_wire as wire
from gfarm_fake_wire import OK, Fields, Node, Script, status, text, u32, u64

GFMD, PORT = "127.0.2.1", 10601
GFSDS = {"fs1": "127.0.2.2", "fs2": "127.0.2.3"}
GFSD_PORT = 10600
CHALLENGE_BYTES = 32
DROPPED = (OSError, EOFError)
LITTLE_BYTES = 4096


class Stream:
    """A connection, for its thread."""

    def __init__(self, peer: socket.socket, script: Script, gate: threading.Event) -> None:
        self.peer, self._script, self._gate = peer, script, gate
        self._bytes = b""

    def take(self, length: int) -> bytes:
        """The next bytes."""
        while len(self._bytes) < length:
            more = self.peer.recv(1 << 16)
            if not more:
                raise EOFError
            self._bytes += more
        taken, self._bytes = self._bytes[:length], self._bytes[length:]
        return taken

    def u32(self) -> int:
        """The next number."""
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        """The next long number."""
        return int.from_bytes(self.take(8), "big")

    def text(self) -> bytes:
        """The next byte string."""
        return self.take(self.u32())

    def say(self, spot: str, fields: Fields) -> None:
        """Answers, when the server is not frozen."""
        self._gate.wait()
        for turn in self._script.turns(spot, fields):
            if isinstance(turn, bytes):
                self.peer.sendall(turn)
            elif isinstance(turn, float):
                threading.Event().wait(turn)
            else:
                while turn == wire.SILENT and self.peer.recv(1 << 16):
                    pass
                raise EOFError


class Server:
    """A server with a thread for each connection."""

    def __init__(self, script: Script, address: str, port: int, serve: Callable[[Stream], None]) -> None:
        self._script, self._serve = script, serve
        self._gate = threading.Event()
        self._gate.set()
        self._lock = threading.Lock()
        self._peers: set[socket.socket] = set()
        self._socket = socket.create_server((address, port), backlog=200)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            peer, _address = self._socket.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._peers.add(peer)
            threading.Thread(target=self._run, args=(peer,), daemon=True).start()

    def _run(self, peer: socket.socket) -> None:
        try:
            self._serve(Stream(peer, self._script, self._gate))
        except DROPPED:
            pass
        finally:
            with self._lock:
                self._peers.discard(peer)
            peer.close()

    def hold_little(self) -> None:
        """Connections that come from now on keep few bytes that were not read."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE_BYTES)

    def freeze(self) -> None:
        """Connections stay, and nothing is answered."""
        self._gate.clear()

    def thaw(self) -> None:
        """Answers go on."""
        self._gate.set()

    def drop(self) -> None:
        """Ends all connections, as one that is restarted."""
        with self._lock:
            for peer in self._peers:
                try:
                    peer.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class World:
    """All servers, and what they share."""

    def __init__(self, key: str) -> None:
        self.script = Script()
        expire, secret = key.split()
        self._expire, self._secret = int(expire, 16), bytes.fromhex(secret)
        self._lock = threading.Lock()
        self._files: dict[int, Node] = {}
        self._last_fd, self._processes = 0, 0
        self.most = 0           # the most descriptors that were open at a time
        self.gfmd = Server(self.script, GFMD, PORT, self._gfmd)
        self.gfsds = {name: Server(self.script, address, GFSD_PORT, lambda stream, name=name: self._gfsd(stream, name))
                      for name, address in GFSDS.items()}

    @property
    def processes(self) -> int:
        """The number of processes that gfmd was asked for: one by each connection."""
        return self._processes

    @property
    def descriptors(self) -> int:
        """The number of descriptors that are open at gfmd."""
        return len(self._files)

    def _login(self, stream: Stream, who: str) -> None:
        """The server's side of the authentication."""
        stream.say(f"{who}.methods", [("methods", text(b"\1"))])
        if stream.u32() != 1:
            raise EOFError
        stream.say(f"{who}.method", status())
        stream.text()
        if stream.u32() != 1:
            raise EOFError
        challenge = os.urandom(CHALLENGE_BYTES)
        stream.say(f"{who}.challenge", [*status(), ("challenge", text(challenge))])
        expire, response = stream.u32(), stream.text()
        wanted = hashlib.md5(challenge + self._secret, usedforsecurity=False).digest()
        right = expire == self._expire and response == wanted
        stream.say(f"{who}.verdict", status(0 if right else 3))
        if not right:
            raise EOFError

    # -- gfmd ------------------------------------------------------------------------------------------------

    def _gfmd(self, stream: Stream) -> None:
        self._login(stream, "gfmd")
        while True:
            command = stream.u32()
            if command == wire.PROCESS_ALLOC:
                stream.u32()
                stream.text()
                with self._lock:
                    self._processes += 1
                stream.say("gfmd.process", [*status(), ("pid", u64(self._processes))])
            elif command == wire.STATFS:
                stream.say("gfmd.usage", [*status(), ("used", u64(1000)), ("avail", u64(2000)), ("files", u64(3))])
            elif command == wire.BEGIN:
                self._compound(stream)
            else:
                raise EOFError

    def _compound(self, stream: Stream) -> None:
        """Reads requests up to the end, and answers all of them at once: after an error none any more."""
        node, at, kind, put = wire.ROOT, 0, "close", 0
        fields, failed = status(), False
        while True:
            command = stream.u32()
            error, more = 0, list[tuple[str, bytes]]()
            if command == wire.OPEN_ROOT:
                stream.u32()
            elif command == wire.PUT_FD:
                put = stream.u32()
                error = 0 if put in self._files else wire.BAD_FD
                node = self._files.get(put, wire.ROOT)
            elif command == wire.CLOSE_FD:
                if not failed:
                    self._files.pop(put, None)
            elif command == wire.OPEN:
                name = stream.text().decode(errors="replace")
                stream.u32()
                found = wire.find(name)
                if not failed and found is None:
                    error = wire.ENOENT
                node = found or node
                more = [("inum", u64(node.inum)), ("gen", u64(1 if node.kind == wire.REGULAR else 0)),
                        ("mode", u32(node.mode))]
            elif command == wire.VERIFY_TYPE:
                error = 0 if stream.u32() == node.kind else wire.NOT_DIRECTORY
            elif command == wire.FSTAT:
                kind, more = "attributes", wire.attributes(node)
            elif command == wire.READLINK:
                kind, more = "link", [("link", text(wire.TARGET))]
            elif command == wire.SEEK:
                at = stream.u64()
                stream.u32()
                more = [("offset", u64(at))]
            elif command == wire.LIST:
                kind, more = "list", self._entries(node, at, stream.u32())
            elif command == wire.SCHEDULE:
                stream.text()
                kind, more = "open", self._hosts()
            elif command == wire.GET_FD:
                more = [("fd", u32(self._export(node)))]
            elif command != wire.END:
                raise EOFError
            if not failed:
                fields += status(error) + ([] if error else more)
                failed = error != 0
            if command == wire.END:
                stream.say(f"gfmd.{kind}", fields)
                return

    @staticmethod
    def _entries(node: Node, at: int, count: int) -> Fields:
        found = wire.entries_of(node)[at:at + count]
        fields: Fields = [("count", u32(len(found)))]
        for entry in found:
            fields += [("name", text(entry.name.encode())), *wire.attributes(entry)]
        return fields

    @staticmethod
    def _hosts() -> Fields:
        fields: Fields = [("count", u32(len(GFSDS)))]
        for load, name in enumerate(GFSDS):
            fields += wire.host(name.encode(), GFSD_PORT, load * 4096)
        return fields

    def forget(self, step: int) -> None:
        """Closes each so many-th descriptor, and does not say so."""
        with self._lock:
            for fd in sorted(self._files)[::step]:
                del self._files[fd]

    def end_processes(self) -> None:
        """Ends the connections of gfmd; descriptors end with them."""
        with self._lock:
            self._files.clear()
        self.gfmd.drop()

    def _export(self, node: Node) -> int:
        with self._lock:
            self._last_fd += 1
            self._files[self._last_fd] = node
            self.most = max(self.most, len(self._files))
            return self._last_fd

    # -- gfsd ------------------------------------------------------------------------------------------------

    def _gfsd(self, stream: Stream, who: str) -> None:
        self._login(stream, who)
        opened: dict[int, Node] = {}
        while True:
            command = stream.u32()
            if command in (wire.GFS_PROCESS_SET, wire.GFS_PROCESS_RESET):
                stream.take(4 + 4 + 32 + 8 + (4 if command == wire.GFS_PROCESS_RESET else 0))
                opened.clear()
                stream.say(f"{who}.join", status())
                continue
            fd = stream.u32()
            node = opened.get(fd)
            if command == wire.GFS_OPEN:
                if fd in self._files:
                    opened[fd] = self._files[fd]
                stream.say(f"{who}.open", status(0 if fd in opened else wire.BAD_FD))
            elif command == wire.GFS_CLOSE:
                stream.say(f"{who}.close", status(0 if opened.pop(fd, None) else wire.BAD_FD))
            elif command == wire.GFS_FSTAT:
                stream.say(f"{who}.stat", wire.live(node) if node else status(wire.BAD_FD))
            elif command == wire.GFS_PREAD:
                length, offset = min(stream.u32(), wire.READ_MAX), stream.u64()
                data = text(node.bytes_at(offset, length)) if node else b""
                fields = [*status(), ("length", data[:4]), ("data", data[4:])] if node else status(wire.BAD_FD)
                stream.say(f"{who}.read", fields)
            elif command == wire.GFS_BULKREAD:
                length, offset = stream.u64(), stream.u64()
                stream.say(f"{who}.bulk", self._chunks(node, offset, length) if node else status(wire.BAD_FD))
            else:
                raise EOFError

    @staticmethod
    def _chunks(node: Node, offset: int, length: int) -> Fields:
        fields, data = status(), node.bytes_at(offset, length)
        for begin in range(0, len(data), wire.READ_MAX):
            chunk = data[begin:begin + wire.READ_MAX]
            fields += [("chunk", u32(len(chunk))), ("data", chunk)]
        return [*fields, ("end", OK), ("error", OK)]
