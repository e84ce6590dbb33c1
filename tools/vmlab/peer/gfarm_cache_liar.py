# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: a peer of a node of Gfarm's cooperative cache that lies in one way after another.

    gfarm_cache_liar.py FOLDER KEY INUM GEN MTIME FILE COMMAND

FOLDER is that of the node below /proc, FILE has the content of the file with INUM, GEN and MTIME, in
nanoseconds. Prints JSON: for each lie
what the node has counted, as it is and as it should be, and what it has answered.
"""
from __future__ import annotations

import ipaddress
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gfarm_cache_wire as wire
from gfarm_cache_wire import HAVE, HELLO, HOLDER, MEMBERS, NAMED_OWNER, REPLY, REQUEST, Head, Record, Request

PROGRAM = "/tmp/peer/datagram_peer"
DEVICE, QKEY = "rxe0", 0x1234
PAGE = 4096
# For a machine that has much else to do.
ANSWER_MS, PATIENCE = 10_000, 60
# No more than the node has receives for, so that none is lost.
AT_ONCE = 32
# Answers that may be lost in a series: a node takes memory for each request without waiting for it.
LOST_MAX = 2
Counts = dict[str, int]


class Sockets:
    """Queue pairs for datagrams, in a process of their own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def say(self, *words: object) -> list[str]:
        """Gives one command; answers the words of its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        answer = self._process.stdout.readline().split()
        if not answer or answer[0] != "ok":
            raise OSError(f"{words[0]}: {' '.join(answer)}")
        return answer[1:]


class Pair:
    """One queue pair."""

    def __init__(self, sockets: Sockets, gid_index: int, qkey: int = QKEY) -> None:
        self._sockets, self.qkey = sockets, qkey
        number, qpn, gid = sockets.say("open", DEVICE, gid_index, qkey)
        self.number, self.qpn, self.gid = int(number), int(qpn), bytes.fromhex(gid)

    def send(self, to: tuple[bytes, int, int], data: bytes, imm: int | None = None) -> None:
        """Sends one datagram."""
        gid, qpn, qkey = to
        self._sockets.say("send", self.number, gid.hex(), qpn, qkey, "-" if imm is None else imm, data.hex() or "-")

    def receive(self, wait_ms: int) -> tuple[int, int | None, bytes] | None:
        """The next datagram: the queue pair that has sent it, its immediate, and its bytes."""
        words = self._sockets.say("receive", self.number, wait_ms)
        if words[0] == "none":
            return None
        qpn, imm, data = words
        return int(qpn), None if imm == "-" else int(imm), b"" if data == "-" else bytes.fromhex(data)

    def barrage(self, to: tuple[bytes, int, int], count: int, seed: int, message: bytes = b"") -> int:
        """Sends random datagrams, or a message with changes."""
        gid, qpn, qkey = to
        said = self._sockets.say("barrage", self.number, gid.hex(), qpn, qkey, count, seed, message.hex() or "-")
        return int(said[0])


def own_gid(address: bytes) -> int:
    """The index of an address of the device."""
    for entry in Path(f"/sys/class/infiniband/{DEVICE}/ports/1/gids").iterdir():
        if ipaddress.IPv6Address(entry.read_text().strip()).packed == address:
            return int(entry.name)
    raise LookupError(address.hex())


class Liar:
    """A member of the cache, and what it sends to one node."""

    def __init__(self, folder: str, key: str, inum: int, gen: int, mtime_ns: int, file: str) -> None:
        self.folder, self.key, self.content = Path(folder), bytes.fromhex(key), Path(file).read_bytes()
        self.node_at = wire.address_of((self.folder / "ibaddr").read_text().splitlines()[0])
        self.sockets = Sockets()
        index = own_gid(self.node_at[0])
        self.public, self.data, self.other = (Pair(self.sockets, index) for _ in range(3))
        self.me = time.monotonic_ns() | 1
        self.node, self.boot, self._sequence = 0, 0, time.monotonic_ns()
        self.request = Request(1, inum, gen, *divmod(mtime_ns, 1_000_000_000), len(self.content),
                               reply_qpn=self.public.qpn, reply_qkey=QKEY)
        self.replies: list[wire.Reply] = []
        self.asked: list[Request] = []
        self._unseen, self._seen, self._incarnation, self.busy = 0, self.datagrams(), 0, 0

    def sequence(self) -> int:
        """The number of the next datagram."""
        self._sequence += 1
        return self._sequence

    def record(self) -> Record:
        """The record of itself: each time something newer, so that it contradicts who takes it for dead."""
        self._incarnation += 1
        return Record(self.me, self.public.gid, self.public.qpn, QKEY, self.boot, incarnation=self._incarnation)

    def head(self, kind: int) -> Head:
        """A head that is right."""
        return Head(kind, self.me, self.node, self.sequence())

    def sealed(self, kind: int, body: bytes) -> bytes:
        """A datagram that is right, but perhaps for its body."""
        return wire.seal(self.head(kind), body, self.key)

    def datagrams(self) -> int:
        """The number of datagrams that the node has received."""
        return int((self.folder / "ibstat").read_text().partition("\ndatagrams ")[2].partition("\n")[0])

    def send(self, data: bytes, to: tuple[bytes, int, int] | None = None) -> None:
        """Sends to a queue pair of the node, by default the public one; waits now and then until all was received."""
        self.public.send(to or self.node_at, data)
        self._unseen += 1
        if self._unseen < AT_ONCE:
            return
        until = time.monotonic() + ANSWER_MS / 1000
        while self.datagrams() < self._seen + self._unseen and time.monotonic() < until:
            time.sleep(0.002)
        self._unseen, self._seen = 0, self.datagrams()

    def poll(self, wait_ms: int) -> bool:
        """Takes all that has come from the node: keeps replies, answers its last question. Whether there was any."""
        came = first = self.public.receive(wait_ms)
        nonce: int | None = None
        while came is not None:
            head, body = wire.opened(came[2], self.key)
            if head.kind == HELLO:
                # The node waits for the answer to the last one only.
                nonce, sender = wire.gossiped(body)
                self.node, self.boot = sender.node, sender.boot
            elif head.kind == REPLY:
                self.replies.append(wire.reply(body))
            elif head.kind == REQUEST:
                self.asked.append(wire.request(body))
            came = self.public.receive(0)
        if nonce is not None:
            self.send(self.sealed(MEMBERS, wire.gossip(nonce, self.record())))
        return first is not None

    def rest(self, wait_ms: int) -> None:
        """Asks for nothing for a time; answers the node's questions, so that it stays a member."""
        until = time.monotonic() + wait_ms / 1000
        while (left := until - time.monotonic()) > 0:
            self.poll(min(50, math.ceil(left * 1000)))

    def join(self) -> None:
        """Becomes a member: the administrator registers it, and it answers the node's probe."""
        gid = ipaddress.IPv6Address(self.public.gid)
        (self.folder / "ibaddr").write_text(f"add gid={gid} qpn={self.public.qpn} qkey={QKEY}\n")
        until = time.monotonic() + PATIENCE
        while f"qpn={self.public.qpn} " not in self.alive():
            assert time.monotonic() < until, "the node did not take it for a member"
            self.poll(100)

    def alive(self) -> str:
        """The lines of ibaddr of peers that are alive."""
        lines = (self.folder / "ibaddr").read_text().splitlines()
        return "\n".join(line for line in lines if " state=alive " in line)

    def counts(self) -> Counts:
        """Counts of messages by the node, but for those that go on meanwhile."""
        rows = (line.split() for line in (self.folder / "ibstat").read_text().splitlines())
        return {name: int(count) for name, count in rows if name.startswith(("dropped_", "said_", "told_", "requests"))}

    def changes(self, before: Counts) -> Counts:
        """Counts since `before`."""
        return {name: count - before[name] for name, count in self.counts().items() if count != before[name]}

    def ask(self, request: Request) -> wire.Reply | None:
        """Sends a request; answers the reply, or none in time."""
        self.replies.clear()
        request = request.but(cookie=self.sequence())
        self.send(self.sealed(REQUEST, request.body()))
        until = time.monotonic() + ANSWER_MS / 1000
        while time.monotonic() < until:
            self.poll(50)
            for found in self.replies:
                if found.cookie == request.cookie:
                    return found
        return None

    def holder(self, pages: int = 1, fragment: int = 1024) -> Request:
        """A request for pages, to the node as a holder."""
        return self.request.but(role=HOLDER, pages=pages, qpn=self.data.qpn, qkey=QKEY, fragment=fragment)

    def fetch(self, pages: int, fragment: int) -> bytes | None:
        """The bytes of pages that the node sends, in fragments of this length; none if it has not all. Asks again when
        the node has too much to do, as each requester does."""
        while self.data.receive(0):
            pass
        until = time.monotonic() + PATIENCE
        answer = self.ask(self.holder(pages, fragment))
        while answer is not None and answer.status == wire.BUSY and time.monotonic() < until:
            self.busy += 1
            self.rest(answer.detail)
            answer = self.ask(self.holder(pages, fragment))
        if answer is None or answer.status != wire.DATA or answer.pages != pages:
            return None
        parts: dict[int, bytes] = {}
        for _ in range(pages.bit_count() * PAGE // fragment):
            came = self.data.receive(1000)
            if came is None:
                return None
            _, imm, data = came
            assert imm is not None and imm >> 16 == self.request.tag and len(data) == fragment
            parts[imm & 0xffff] = data
        return b"".join(parts[number] for number in sorted(parts))

    def right(self, pages: int) -> bytes:
        """The right content of these pages."""
        whole = [self.content[n * PAGE:(n + 1) * PAGE].ljust(PAGE, b"\0") for n in range(256) if pages >> n & 1]
        return b"".join(whole)


def settle(liar: Liar, before: Counts, wanted: Counts) -> Counts:
    """Counts since `before`, as soon as they are what is wanted, or after some seconds."""
    until = time.monotonic() + ANSWER_MS / 1000
    while (found := counted(liar, before, wanted)) != wanted and time.monotonic() < until:
        liar.poll(10)
    return found


def counted(liar: Liar, before: Counts, wanted: Counts) -> Counts:
    """Counts since `before`; but for answers to questions that the node has asked again by then."""
    found, name = liar.changes(before), "dropped_unasked"
    if found.get(name, 0) > wanted.get(name, 0):
        del found[name]
        found |= {name: wanted[name]} if name in wanted else {}
    return found


def changed_bytes(liar: Liar) -> Counts:
    """A right request with one byte changed, each in turn."""
    good = liar.sealed(REQUEST, liar.holder().body())
    for place, byte in enumerate(good):
        liar.send(good[:place] + bytes([byte ^ 0x80]) + good[place + 1:])
    few = {"dropped_magic": 4, "dropped_version": 2, "dropped_kind": 2, "dropped_receiver": 8}
    return few | {"dropped_code": len(good) - 16}


def cut_off(liar: Liar) -> Counts:
    """A right request, cut off behind each of its bytes."""
    good = liar.sealed(REQUEST, liar.holder().body())
    for length in range(len(good)):
        liar.send(good[:length])
    return {"dropped_length": 40, "dropped_code": len(good) - 40}


def too_long(liar: Liar) -> Counts:
    """Longer than any message, with a right code as well; and with bytes behind the code."""
    liar.send(liar.sealed(REQUEST, liar.holder().body()) + b"\0")
    liar.send(liar.sealed(REQUEST, bytes(1149)))
    liar.send(bytes(1189))
    liar.send(bytes(4096))
    return {"dropped_code": 1, "dropped_length": 3}


def another_key(liar: Liar) -> Counts:
    """Right but for the key of the code."""
    for kind in (REQUEST, REPLY, HELLO, MEMBERS, HAVE):
        liar.send(wire.seal(liar.head(kind), liar.holder().body(), bytes(16)))
    return {"dropped_code": 4, "dropped_queue_pair": 1}


def heads(liar: Liar) -> Counts:
    """Right codes, and heads that no node sends, or those of the version before and of the next one."""
    for head in (Head(REQUEST, 0, liar.node, 1), *(Head(REQUEST, liar.me, to, 1) for to in (0, liar.node ^ 1)),
                 *(Head(kind, liar.me ^ 2, liar.node, 1) for kind in (REQUEST, HAVE)),
                 *(Head(kind, liar.me, liar.node, 1, version=at) for kind in (REQUEST, HELLO) for at in (4, 6))):
        liar.send(wire.seal(head, liar.holder().body(), liar.key))
    return {"dropped_from": 1, "dropped_receiver": 2, "dropped_sender": 2, "dropped_version": 4}


def another_source(liar: Liar) -> Counts:
    """A right request and a right Hello, from another queue pair than that of the member."""
    liar.other.send(liar.node_at, liar.sealed(REQUEST, liar.holder().body()))
    liar.other.send(liar.node_at, liar.sealed(HELLO, wire.gossip(1, liar.record())))
    return {"dropped_address": 2}


def repeated(liar: Liar) -> Counts:
    """A request that was answered, once more; a number that is too old; one that another message had."""
    good = liar.sealed(REQUEST, liar.request.but(role=NAMED_OWNER, gen=liar.request.gen + 1, cookie=5).body())
    for _ in range(3):
        liar.send(good)
    old = Head(REQUEST, liar.me, liar.node, liar.sequence() - 1000)
    liar.send(wire.seal(old, liar.holder().body(), liar.key))
    return {"requests": 1, "said_fetch": 1, "dropped_repeated": 3}


def bodies(liar: Liar) -> Counts:
    """Right codes, and bodies of another length than their kind, or with contents that no node sends."""
    request, me = liar.request.body(), liar.record()
    for kind, body in ((REQUEST, b""), (REQUEST, request[:-1]), (REQUEST, request + b"\0"), (HAVE, bytes(67)),
                       (HAVE, bytes(68)), (HAVE, bytes(69)), (HELLO, b""), (HELLO, wire.gossip(1, me)[:-1]),
                       (HELLO, wire.gossip(1, me) + b"\0"), (HELLO, wire.gossip(1, me, count=1)),
                       (HELLO, wire.gossip(1, me, (me,) * 20, count=21)), (HELLO, wire.gossip(1, me, reserved=1)),
                       (HELLO, wire.gossip(1, Record(me.node, me.gid, 1, QKEY, 0))),
                       (HELLO, wire.gossip(1, Record(me.node, bytes(16), me.qpn, QKEY, 0))),
                       (HELLO, wire.gossip(1, Record(me.node, me.gid, me.qpn, QKEY, 0, 4))),
                       *((HELLO, wire.gossip(1, Record(me.node, me.gid, me.qpn, QKEY, 0, group=at))) for at in (0, 65)),
                       *((REQUEST, liar.request.but(reply_qpn=at).body()) for at in (0, 1, 1 << 24)),
                       *((REQUEST, liar.request.but(reply_qkey=at).body()) for at in (0, 1 << 31)),
                       (HELLO, wire.gossip(1, Record(me.node ^ 2, me.gid, me.qpn, QKEY, 0)))):
        liar.send(liar.sealed(kind, body))
    return {"dropped_body": 23}


def news(liar: Liar) -> Counts:
    """Members that no one has asked for, to it and to another; a Hello with the node's own number."""
    liar.send(liar.sealed(MEMBERS, wire.gossip(0x55555555, liar.record())))
    head = Head(MEMBERS, liar.me, liar.node ^ 1, 1)
    liar.send(wire.seal(head, wire.gossip(1, liar.record()), liar.key))
    own = Record(liar.node, liar.public.gid, liar.public.qpn, QKEY, liar.boot)
    liar.send(wire.seal(Head(HELLO, liar.node, liar.node, 1), wire.gossip(1, own), liar.key))
    return {"dropped_unasked": 1, "dropped_receiver": 1, "dropped_sender": 1}


def greetings(liar: Liar) -> Counts:
    """A Hello once more, one to another mount, and one to no one: the third node that these tell of is not believed."""
    ghost = Record(liar.me ^ 4, liar.public.gid, 0xfffffe, QKEY, 0)
    good = liar.sealed(HELLO, wire.gossip(1, liar.record()))
    liar.send(good)
    liar.send(good)
    for to in liar.node ^ 1, 0:
        told = wire.gossip(1, liar.record(), (ghost,))
        liar.send(wire.seal(Head(HELLO, liar.me, to, liar.sequence()), told, liar.key))
    liar.poll(100)
    assert "qpn=16777214 " not in (liar.folder / "ibaddr").read_text(), "a recorded greeting is believed"
    return {"dropped_repeated": 1, "dropped_receiver": 1}


def replies(liar: Liar) -> Counts:
    """Replies, which do not come to the public queue pair, right or wrong."""
    for body in (*(wire.data(liar.sequence(), tag, len(liar.content)) for tag in (0, 3, 0xffff)), bytes(12)):
        liar.send(liar.sealed(REPLY, body))
    return {"dropped_queue_pair": 4}


def fields(liar: Liar) -> Counts:
    """Each field of a request with a value that no node sends: it is told so."""
    good, me = liar.holder(), liar.me
    wrong: list[dict[str, object]] = [
        {"inum": 0}, {"nsec": 1_000_000_000},
        {"size": 0}, {"size": 1 << 63}, {"pages": 0}, {"pages": 1 << 255}, {"chunk": 1 << 63},
        {"chunk": (1 << 64) - 1}, {"qpn": 0}, {"qpn": 1}, {"qpn": 1 << 24}, {"qkey": 0}, {"qkey": 1 << 31},
        {"fragment": 0}, {"fragment": 128}, {"fragment": 1000}, {"fragment": 8192}, {"fragment": 256, "pages": 0x1ffff},
        {"role": 0}, {"role": 1}, {"role": 3}, {"role": 255}, {"flags": 4}, {"flags": 255}, {"timeout": 0},
        {"timeout": 10001}, {"excluded": (me, 0, 0, 0)}, {"excluded": (0, me, 0, 0), "reasons": b"\0\1\0\0"},
        {"excluded": (me, me, 0, 0), "reasons": b"\1\1\0\0"}, {"excluded": (me, 0, 0, 0), "reasons": b"\4\0\0\0"},
        {"reasons": b"\1\0\0\0"}]
    for change in wrong:
        answer = liar.ask(good.but(**change))
        assert answer is not None and (answer.status, answer.detail) == (wire.REFUSED, 1), f"{change}: {answer}"
    return {"requests": len(wrong), "said_invalid": len(wrong)}


def contents(liar: Liar) -> Counts:
    """Another generation, time, size or file: it has nothing. Longer fragments than the mount lets."""
    for change in ({"gen": liar.request.gen + 1}, {"sec": liar.request.sec - 1}, {"nsec": liar.request.nsec ^ 1},
                   {"size": liar.request.size + 1}, {"inum": liar.request.inum + 1000}):
        answer = liar.ask(liar.holder().but(**change))
        assert answer is not None and answer.status == wire.MISS, f"{change}: {answer}"
    answer = liar.ask(liar.holder(fragment=2048))
    assert answer is not None and (answer.status, answer.detail) == (wire.REFUSED, 2), f"{answer}"
    return {"requests": 6, "said_miss": 5, "said_fragment": 1}


def truth(liar: Liar) -> Counts:
    """Pages are served, with each length of fragments: the first, the last, and some between."""
    last = (len(liar.content) - 1) // PAGE
    pages, busy = 1 | 1 << last | 0b101100, liar.busy
    for fragment in (256, 512, 1024):
        assert liar.fetch(pages, fragment) == liar.right(pages), f"fragments of {fragment} bytes"
    count = 3 * pages.bit_count()
    wanted = {"requests": 3, "said_data": 3, "said_pages": count, "said_bytes": count * PAGE}
    busy = liar.busy - busy
    return wanted | {"requests": 3 + busy, "said_busy": busy} if busy else wanted


LIES: tuple[Callable[[Liar], Counts], ...] = (
    truth, changed_bytes, cut_off, too_long, another_key, heads, another_source, repeated, bodies, news,
    greetings, replies, fields, contents,
    truth)


def lie(liar: Liar) -> list[dict[str, object]]:
    """Tells all lies, each looked at alone."""
    told = []
    for number, one in enumerate(LIES):
        before = liar.counts()
        try:
            wanted, said = one(liar), ""
        except AssertionError as why:
            wanted, said = {}, str(why)
        found = settle(liar, before, wanted)
        told.append({"name": f"{number} {one.__name__}", "found": found, "wanted": wanted, "said": said})
    return told


def barrage(liar: Liar, count: int, seed: int) -> dict[str, object]:
    """Random datagrams and changed messages to the public queue pair, and some to all others of the node."""
    request = liar.sealed(REQUEST, liar.holder().body())
    hello = liar.sealed(HELLO, wire.gossip(1, liar.record()))
    have = liar.sealed(HAVE, bytes(68))
    sent = sum(liar.other.barrage(liar.node_at, count // 5, seed + n, message)
               for n, message in enumerate((b"", request, hello, have)))
    listed = json.loads(subprocess.run(["rdma", "-j", "resource", "show", "qp", "link", f"{DEVICE}/1"], check=True,
                                       capture_output=True, text=True).stdout)
    others = [pair["lqpn"] for pair in listed if pair["type"] == "UD" and "rdma_rust" in str(pair.get("comm"))
              and pair["lqpn"] != liar.node_at[1]]
    for qpn in others:
        to = liar.node_at[0], qpn, seed % (1 << 30) + qpn
        sent += liar.other.barrage(to, count // 5 // len(others), seed + qpn)
    return {"sent": sent, "others": len(others)}


def crowd(liar: Liar, rounds: int) -> dict[str, int]:
    """More requests at a time than the node serves: how many it has answered with pages, as busy, and otherwise."""
    before = liar.counts()["requests"]
    for _ in range(rounds):
        for _ in range(4):
            liar.send(liar.sealed(REQUEST, liar.holder((1 << 16) - 1, 256).but(cookie=liar.sequence()).body()))
        until = time.monotonic() + ANSWER_MS / 1000
        while time.monotonic() < until:
            if not liar.poll(200) and liar.counts()["requests"] - before == len(liar.replies):
                break
    answers = [reply.status for reply in liar.replies]
    kinds = {"data": answers.count(wire.DATA), "busy": answers.count(wire.BUSY)}
    return kinds | {"others": len(answers) - sum(kinds.values())}


def greed(liar: Liar, requests: int) -> dict[str, float]:
    """Asks for 64 pages again and again, as soon as the node lets it: how long that took, and what it was told."""
    began, busy, most, done, lost, before = time.monotonic(), 0, 0, 0, 0, liar.counts()
    while done < requests:
        answer = liar.ask(liar.holder((1 << 64) - 1, 1024))
        if answer is None:
            # A datagram may be lost, as each requester knows; not again and again.
            lost += 1
            assert lost <= LOST_MAX, f"{liar.alive()!r}, {liar.changes(before)}"
            continue
        assert answer.status in (wire.DATA, wire.BUSY), f"{answer}"
        credits = answer.credits
        if answer.status == wire.DATA:
            done += 1
        else:
            busy, most = busy + 1, max(most, answer.detail)
            liar.rest(answer.detail)
    return {"seconds": time.monotonic() - began, "busy": busy, "wait_ms": most, "credits": credits, "lost": lost}


def silence(liar: Liar, end: Path) -> list[int]:
    """Answers probes and no request, until there is a file; answers the times that the node waits for."""
    while not end.exists():
        liar.poll(20)
    return [request.timeout for request in liar.asked]


def main() -> None:
    """Joins, and does what it is told."""
    folder, key, inum, gen, mtime_ns, file, command, *words = sys.argv[1:]
    liar = Liar(folder, key, int(inum), int(gen), int(mtime_ns), file)
    liar.join()
    if command == "lie":
        print(json.dumps(lie(liar)))
    elif command == "barrage":
        said = barrage(liar, int(words[0]), int(words[1]))
        liar.poll(0)
        tries, right, until = 0, False, time.monotonic() + PATIENCE
        while not right and time.monotonic() < until:
            tries, right = tries + 1, liar.fetch(0b111, 1024) == liar.right(0b111)
        print(json.dumps(said | {"right": right, "tries": tries}))
    elif command == "crowd":
        print(json.dumps(crowd(liar, int(words[0]))))
    elif command == "greed":
        print(json.dumps(greed(liar, int(words[0]))))
    elif command == "silence":
        print(json.dumps(silence(liar, Path(words[0]))))


if __name__ == "__main__":
    main()
