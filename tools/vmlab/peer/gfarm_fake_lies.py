# SPDX-License-Identifier: GPL-2.0
"""Lies of the fake servers of Gfarm, and what must come of each at the mount.

A case is: a spot, the lie that is told there, what a user does meanwhile, the errors that may come out of it ("" for
success with the right result), and what a line of the kernel's log must say.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import gfarm_fake_wire as wire
from gfarm_fake_wire import CLOSE, OK, SILENT, Fields, Lie, Turn, find, host, status, text, u32, u64

# After this, what is known of a name is asked for again: actimeo.
GETS_OLD = 1.1
# A gfmd that is lost sooner was not back (PAUSE_MS_MAX): the time limit of who waits began with the loss before.
IS_BACK = 5.2
EIO, DONE, ANY = ("EIO",), ("",), ("", "EIO")
# What nobody can tell from a right one: other names, and an end.
OTHER = ("a wrong result",)
HUGE = 0xFFFFFFFF
# The names of each directory are 10; those of a directory without end begin with this number.
FRESH = 0x5000000


@dataclass(frozen=True)
class Case:
    """One lie."""

    name: str
    spot: str
    lie: Lie
    does: str
    errors: tuple[str, ...] = EIO
    words: str = ""
    times: int | None = None
    seconds: float = 24.0
    # As many as gfmd, two gfsds and a file may need that are lost once; more are a flood.
    lines: int = 6
    # Before the lie gfmd is there for so long: its loss is then one of its own.
    after: float = 0.0


def joined(fields: Fields) -> bytes:
    """The bytes of fields, as they are sent."""
    return b"".join(data for _name, data in fields)


def change(name: str, data: bytes, which: int = -1) -> Lie:
    """The last field of this name, or another one, is something else."""
    def lie(fields: Fields) -> list[Turn]:
        places = [place for place, (label, _data) in enumerate(fields) if label == name]
        if places:
            fields[places[which]] = (name, data)
        return [joined(fields)]
    return lie


def before(name: str, *turns: Turn) -> Lie:
    """Up to the first field of this name the answer is right; then comes that."""
    def lie(fields: Fields) -> list[Turn]:
        labels = [label for label, _data in fields]
        return [joined(fields[:labels.index(name)] if name in labels else fields), *turns]
    return lie


def cut(count: int, more: int = 0) -> Lie:
    """Ends the connection after so many fields, and so many bytes of the next one."""
    def lie(fields: Fields) -> list[Turn]:
        head = joined(fields[:count])
        return [head + joined(fields[count:])[:more], CLOSE]
    return lie


def behind(data: bytes) -> Lie:
    """A lie that follows the answer."""
    return lambda fields: [joined(fields) + data]


def instead(*turns: Turn) -> Lie:
    """A lie that comes instead of an answer."""
    return lambda _fields: list(turns)


def later(lie: Lie) -> Lie:
    """The first answer is right."""
    count = 0

    def told(fields: Fields) -> Iterable[Turn]:
        nonlocal count
        count += 1
        return lie(fields) if count > 1 else [joined(fields)]
    return told


def drip(pause: float, name: str = "") -> Lie:
    """A byte now and then; with a name, from that field on."""
    def lie(fields: Fields) -> list[Turn]:
        labels = [label for label, _data in fields]
        begin = labels.index(name) if name in labels else 0
        turns: list[Turn] = [joined(fields[:begin])]
        for byte in joined(fields[begin:]):
            turns += [pause, bytes([byte])]
        return turns
    return lie


def listing(make: Callable[[int], list[tuple[bytes, wire.Node]]]) -> Lie:
    """Directories in which other entries are: `make` gets the number of the answer."""
    count = 0

    def lie(fields: Fields) -> list[Turn]:
        nonlocal count
        labels = [label for label, _data in fields]
        entries = make(count)
        count += 1
        told = [*fields[:labels.index("count")], ("count", u32(len(entries)))]
        for name, node in entries:
            told += [("name", text(name)), *wire.attributes(node)]
        return [joined([*told, *status()])]
    return lie


def node(number: int) -> wire.Node:
    """A file that is nobody else's."""
    return find(f"f{FRESH + number}") or wire.ROOT


def named(name: bytes) -> Lie:
    """The last entry has this name."""
    return change("name", text(name))


def dots_twice(count: int) -> list[tuple[bytes, wire.Node]]:
    """Among the right names, at once; nothing behind them."""
    names = [entry.name.encode() for entry in wire.entries_of(wire.ROOT)] if count == 0 else []
    return [(name, node(n)) for n, name in enumerate([b".", b".."][:2 * len(names)] + names)]


def endless(count: int) -> list[tuple[bytes, wire.Node]]:
    """Other names each time."""
    return [(b"n%d" % n, node(n)) for n in range(count * 10, count * 10 + 10)]


def full() -> list[tuple[bytes, wire.Node]]:
    """Names, as many as are asked for."""
    return [(b"%03d" % n, node(n)) for n in range(512)]


def many_hosts(count: int) -> Lie:
    """So many gfsds, behind those that are there; their names have no address."""
    def lie(fields: Fields) -> list[Turn]:
        labels = [label for label, _data in fields]
        place = labels.index("count")
        last = len(labels) - 1 - labels[::-1].index("flags")
        told = fields[place + 1:last + 1]
        for n in range(count):
            told += host(b"no%d" % n, 1 + n, 9999)
        return [joined([*fields[:place], ("count", u32(count + 2)), *told, *fields[last + 1:]])]
    return lie


def strangers(count: int) -> Lie:
    """So many gfsds without an address, in place of those that are there."""
    def lie(fields: Fields) -> list[Turn]:
        labels = [label for label, _data in fields]
        last = len(labels) - 1 - labels[::-1].index("flags")
        told = [("count", u32(count))]
        for n in range(count):
            told += host(b"stranger%d" % n, 1)
        return [joined([*fields[:labels.index("count")], *told, *fields[last + 1:]])]
    return lie


def no_hosts(fields: Fields) -> list[Turn]:
    """No gfsd has the file."""
    labels = [label for label, _data in fields]
    last = len(labels) - 1 - labels[::-1].index("flags")
    return [joined([*fields[:labels.index("count")], ("count", OK), *fields[last + 1:]])]


def names() -> list[Case]:
    """Lies of gfmd about names."""
    def gfmd(what: str, lie: Lie, words: str = "", errors: tuple[str, ...] = EIO) -> Case:
        return Case(what, "gfmd.attributes", lie, "stat", errors, words and f"gfmd .*malformed answer: {words}")

    def listed(what: str, lie: Lie, words: str = "", errors: tuple[str, ...] = EIO, does: str = "list") -> Case:
        return Case(what, "gfmd.list", lie, does, errors, words)

    bad_name = "malformed answer: name has"
    return [
        gfmd("an inode number of 0", change("inum", u64(0)), "inum has"),
        gfmd("an opened inode number of 0", change("inum", u64(0), 0), "inum has"),
        gfmd("no type", change("mode", u32(0)), "mode has"),
        gfmd("a device", change("mode", u32(0o060644)), "mode has"),
        gfmd("a negative size", change("size", u64(-1)), "size has"),
        gfmd("the largest size", change("size", u64((1 << 63) - 1)), errors=DONE),
        gfmd("a user of 256 bytes", change("user", text(b"u" * 256)), "user has 256"),
        gfmd("a user of 4 GiB", change("user", u32(HUGE)), "user has 4294967295"),
        gfmd("a negative group", change("group", u32(-1)), "group has 4294967295"),
        gfmd("times that are none", change("mtime_ns", u32(HUGE)), errors=DONE),
        gfmd("times before all times", change("mtime", u64(1 << 63)), errors=DONE),
        gfmd("no links", change("nlink", u64(0)), errors=DONE),
        gfmd("very many links", change("nlink", u64(-1)), errors=DONE),
        gfmd("an unknown error", change("status", u32(4_000_000_000), 2)),
        gfmd("the first number that is no error yet", instead(u32(107))),
        gfmd("busy without end", instead(u32(11)), errors=("EAGAIN",)),
        Case("bytes that nobody has asked for", "gfmd.attributes",
             lambda fields: [joined(fields), GETS_OLD / 3, u32(wire.ENOENT)], "stat again", ("", "ENOENT"), times=1,
             after=IS_BACK),
        gfmd("bytes behind an answer", behind(b"\xff" * 64), "end of the answer has", DONE),
        # Taken for the answer to the first question they say that there is no such file.
        Case("bytes behind a process", "gfmd.process", behind(OK + OK + u32(wire.ENOENT)), "stat anew", DONE, times=1,
             after=IS_BACK),
        gfmd("random bytes", instead(random.Random(1).randbytes(400)), errors=("EIO", "ESTALE")),
        gfmd("a directory in itself", lambda fields: [joined([
            (name, {"inum": u64(2), "gen": u64(0), "mode": u32(0o40755)}.get(name, data)) for name, data in fields])],
            errors=("ELOOP",)),
        Case("another object than before", "gfmd.attributes", later(change("inum", u64(77))), "stat again",
             ("ESTALE", "")),
        listed("more entries than asked for", change("count", u32(513)), "malformed answer: entries has 513"),
        listed("entries without number", change("count", u32(HUGE)), "entries has 4294967295"),
        listed("fewer entries than counted", change("count", u32(3)), errors=("EIO", "ENOEXEC")),
        listed("a name with a slash", named(b"a/b"), bad_name), listed("a name with a NUL", named(b"a\0b"), bad_name),
        listed("a name without a letter", named(b""), bad_name),
        listed("a name of 256 bytes", named(b"n" * 256), "name has 256"),
        listed("a name of 4 GiB", change("name", u32(HUGE)), "name has 4294967295"),
        listed("an entry of number 0", change("inum", u64(0)), "inum has"),
        listed("dots twice", listing(dots_twice), errors=DONE, does="list the root"),
        listed("nothing but dots", listing(lambda _count: [(b".", wire.ROOT), (b"..", wire.ROOT)]), errors=OTHER),
        listed("the same entries again and again", listing(lambda _count: endless(0)), errors=OTHER),
        listed("the same part again and again", listing(lambda _count: full()),
               "gfmd has told of inode .*without end"),
        listed("a directory without end", listing(endless), "more than 268435456", does="list far"),
        Case("a link to nothing", "gfmd.link", change("link", OK), "link", EIO, "link has"),
        Case("a link with a NUL", "gfmd.link", change("link", text(b"a\0b")), "link", EIO, "link has"),
        Case("a long link", "gfmd.link", change("link", text(b"l" * 4096)), "link", EIO, "link has 4096"),
        Case("negative space", "gfmd.usage", change("used", u64(-5)), "usage", DONE),
        Case("an error of usage", "gfmd.usage", change("status", u32(5)), "usage"),
    ]


def opening() -> list[Case]:
    """Lies of gfmd about a file that is opened, and of a gfsd before it is read."""
    def opened(what: str, lie: Lie, words: str = "", errors: tuple[str, ...] = EIO) -> Case:
        return Case(what, "gfmd.open", lie, "read", errors, words)

    return [
        opened("a gfsd without a name", change("host", OK), "malformed answer: host has"),
        opened("a gfsd with a NUL", change("host", text(b"fs\0")), "malformed answer: host has"),
        opened("a name of 256 bytes", change("host", text(b"h" * 256)), "host has 256"),
        opened("port 0", change("port", OK), "malformed answer: port has"),
        opened("port 65536", change("port", u32(65536)), "malformed answer: port has"),
        opened("port -1", change("port", u32(-1)), "malformed answer: port has"),
        opened("more gfsds than there can be", change("count", u32(65537)), "entries has 65537"),
        opened("five thousand gfsds", many_hosts(5000), errors=DONE),
        opened("no gfsd", no_hosts, "cannot be read"),
        opened("a negative descriptor", change("fd", u32(-1)), "fd has"),
        opened("another object", change("inum", u64(78)), errors=("ESTALE", "EIO")),
        opened("a directory", change("mode", u32(0o40755)), errors=("ESTALE", "EIO", "EISDIR")),
        opened("an unknown error", change("status", u32(5000), 5)),
        Case("a gfsd that does not know the process", "gfsd.join", change("status", u32(1)), "read", ("EPERM", "EIO")),
        Case("a gfsd with an unknown error", "gfsd.open", change("status", u32(5000)), "read"),
        Case("a gfsd that has another file", "gfsd.open", change("status", u32(79)), "read", EIO, "cannot be read"),
        Case("a gfsd with another secret", "gfsd.verdict", change("status", u32(3)), "read", ("EIO", "EKEYREJECTED")),
        Case("a gfsd with a short challenge", "gfsd.challenge", change("challenge", text(b"c" * 31)), "read", EIO,
             "gfsd fs.: challenge has"),
        Case("a gfsd that speaks something else", "gfsd.methods", instead(b"220 mail.example ESMTP\r\n"), "read", EIO,
             "gfsd fs.: methods has"),
        Case("a gfsd that ends each login", "gfsd.method", instead(CLOSE), "read", EIO, "gfsd fs.: connection ended"),
    ]


def content() -> list[Case]:
    """Lies of gfsds about the bytes of a file: all of them, for ever."""
    def gfsd(what: str, spot: str, lie: Lie, words: str = "", does: str = "read") -> Case:
        # The part of a read that a worker finds alone is not asked for in bulk. On a slow host each may be, in turn.
        errors = ANY if does == "bulk" else EIO
        return Case(what, f"gfsd.{spot}", lie, does, errors, words and f"gfsd fs.: .*{words}")

    return [
        gfsd("a negative size", "stat", change("size", u64(-1)), "size has"),
        # gfmd's size is the one that counts as long as no read ends before it.
        Case("a size that is not gfmd's", "gfsd.stat", lambda fields: [joined(
            [(name, u64(1 << 40) if name == "size" else data) for name, data in fields])], "read", ANY),
        gfsd("more bytes than asked for", "read", change("length", u32(wire.READ_MAX + 1)), "data has 1048577"),
        gfsd("four GiB", "read", change("length", u32(HUGE)), "data has 4294967295"),
        gfsd("no bytes", "read", instead(OK + OK), "end of the file has"),
        # What is read ahead fails; then each page is read by itself, all of it.
        Case("some of the bytes", "gfsd.read", lambda fields: [joined(fields[:1]) + text(fields[-1][1][:5000])], "read",
             ANY, "gfsd fs.: .*end of the file has"),
        gfsd("an unknown error", "read", change("status", u32(5000))),
        gfsd("the end before the bytes", "read", before("data", CLOSE), "connection ended"),
        gfsd("random bytes", "read", instead(random.Random(2).randbytes(300))),
        gfsd("a chunk of four GiB", "bulk", change("chunk", u32(HUGE)), "chunk has 4294967295", "bulk"),
        gfsd("a chunk too many", "bulk", change("end", text(b"x" * 10)), "chunk has 10", "bulk"),
        gfsd("an error behind the last chunk", "bulk", change("error", u32(5)), does="bulk"),
        gfsd("the end before the last chunk", "bulk", before("end", CLOSE), "connection ended", "bulk"),
        gfsd("no chunk at all", "bulk", instead(OK + OK + OK), "end of the file has", "bulk"),
    ]


def replicas() -> list[Case]:
    """One gfsd lies, or both do once: what is read is right."""
    lies = {case.name: case for case in content() if case.words}
    first = next(iter(lies.values()))
    # A gfsd that has failed is the second choice for a while: only the first case can be sure to meet it.
    found = [Case(f"{first.name}, at one gfsd", first.spot.replace("gfsd", "fs1"), first.lie, first.does, DONE)]
    return found + [Case(f"{case.name}, once", case.spot, case.lie, case.does, DONE, "", 1)
                    for case in lies.values()]


def silence() -> list[Case]:
    """Servers that say nothing, or too slowly, are waited for as long as the options tell."""
    late = "gfmd .*no answer in time"
    return [
        Case("a gfmd that is silent", "gfmd.attributes", instead(SILENT), "stat", EIO, late),
        Case("a gfmd that is silent in an answer", "gfmd.attributes", before("user", SILENT), "stat", EIO, late),
        Case("a gfmd that says a byte now and then", "gfmd.attributes", drip(0.5), "stat", EIO, late),
        # It is connected each time, so each loss is one.
        Case("a gfmd that ends each connection", "gfmd.attributes", instead(CLOSE), "stat", EIO, "connection ended",
             lines=20),
        Case("a login that never ends", "gfmd.verdict", instead(SILENT), "stat anew", EIO, "gfmd .*lost"),
        Case("a login that is slow without end", "gfmd.challenge", drip(0.5), "stat anew", EIO, "gfmd .*lost"),
        Case("a process that is never made", "gfmd.process", drip(1.0), "stat anew", EIO, "gfmd .*lost"),
        Case("a gfsd that is silent", "gfsd.read", instead(SILENT), "read", EIO, "gfsd .*no answer in time"),
        Case("a gfsd that is silent in the bytes", "gfsd.read", before("data", b"abc", SILENT), "read", EIO,
             "gfsd .*no answer in time"),
        Case("a gfsd that says a byte now and then", "gfsd.read", drip(0.5, "data"), "read", EIO,
             "gfsd .*no answer in time"),
        Case("chunks of a byte, now and then", "gfsd.bulk",
             lambda fields: [joined(fields[:1]), *[part for _n in range(400) for part in (0.5, text(b"x"))]], "bulk",
             ANY, "gfsd .*no answer in time"),
    ]


def logins() -> list[Case]:
    """Mounts of a gfmd that is none: `errors` are words of what who mounts is told."""
    def login(what: str, spot: str, lie: Lie, told: str, words: str = "") -> Case:
        return Case(what, f"gfmd.{spot}", lie, "mount", (told,), words)

    no_gfmd, refused = "EPROTO|what answers there is no gfmd", "the user is refused"
    cannot = "cannot be connected: "
    cases = [
        login("no method", "methods", change("methods", text(b"")), "EPROTONOSUPPORT|authentication", refused),
        login("other methods", "methods", change("methods", text(b"\3\4")), "EPROTONOSUPPORT|authentication", refused),
        login("65 methods", "methods", change("methods", text(b"\1" * 65)), no_gfmd, f"{cannot}methods has 65"),
        login("methods without end", "methods", change("methods", u32(HUGE)), no_gfmd, "methods has 4294967295"),
        login("another protocol", "methods", instead(b"SSH-2.0-OpenSSH_9.2p1\r\n"), no_gfmd, "methods has 1397966893"),
        login("the method is denied", "method", change("status", u32(1)), "EACCES|not let in", refused),
        login("the method has an unknown error", "method", change("status", u32(70)), "EACCES|not let in", refused),
        login("a short challenge", "challenge", change("challenge", text(b"c" * 31)), no_gfmd, "challenge has an"),
        login("a long challenge", "challenge", change("challenge", text(b"c" * 33)), no_gfmd, "challenge has 33"),
        login("no challenge", "challenge", change("challenge", OK), no_gfmd, "challenge has an"),
        login("a challenge of 4 GiB", "challenge", change("challenge", u32(HUGE)), no_gfmd, "challenge has 4294967295"),
        login("the user is not known", "challenge", change("status", u32(3)), "EKEYREJECTED|another key", refused),
        login("the key has expired", "verdict", change("status", u32(4)), "EKEYEXPIRED|expired", refused),
        login("the verdict is unknown", "verdict", change("status", u32(99)), "EACCES|not let in", refused),
        login("no process", "process", change("status", u32(1)), "EPERM|failed", cannot),
        login("random bytes for a process", "process", instead(b"\xa5" * 40), "EIO|failed", cannot),
        login("a root that is a file", "attributes", change("mode", u32(0o100644)), "Input/output|EIO|failed|rror"),
        login("a root without a number", "attributes", change("inum", OK + OK), "Input/output|EIO|failed|rror",
              "inum has"),
        login("a login that never ends", "verdict", instead(SILENT), "ETIMEDOUT|connect_timeout", f"{cannot}no answer"),
        login("a slow challenge", "challenge", drip(0.2), "ETIMEDOUT|connect_timeout", f"{cannot}no answer"),
    ]
    for spot in ("methods", "method", "challenge", "verdict", "process"):
        cases.append(login(f"the end at {spot}", spot, instead(CLOSE), "ECONNRESET|EIO|ended|failed", cannot))
        cases.append(login(f"the end in {spot}", spot, cut(0, 3), "ECONNRESET|EIO|ended|failed", cannot))
    return cases


GROUPS: dict[str, tuple[Callable[[], list[Case]], str]] = {
    "names": (names, "connect_timeout=8,receive_timeout=8,reconnect_timeout=2"),
    "opening": (opening, "connect_timeout=8,receive_timeout=8,reconnect_timeout=1"),
    "content": (content, "connect_timeout=8,receive_timeout=8,reconnect_timeout=1"),
    "replicas": (replicas, "connect_timeout=8,receive_timeout=8,reconnect_timeout=30"),
    "silence": (silence, "connect_timeout=2,receive_timeout=1,reconnect_timeout=1"),
    "logins": (logins, "connect_timeout=2"),
}
