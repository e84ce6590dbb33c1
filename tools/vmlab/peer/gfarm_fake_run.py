# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: fake servers, a mount of them, and what a user does while they lie.

    gfarm_fake_run.py GROUP SEED        prints a line of JSON for each case: its name, and what is wrong with it ("")

The key is in the environment variable KEY, and in the session's keyring.
"""
from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import errorcode

import gfarm_fake as fake
import gfarm_fake_lies as lies
import gfarm_fake_wire as wire
from gfarm_fake_lies import GETS_OLD, Case

AT = "/mnt/gfarm_fake"
HOSTS = "hosts=" + "+".join(f"{name}/{address}" for name, address in fake.GFSDS.items())
# The kernel prints so many lines of the module in so many seconds: no case may find that they are used up.
LINES, WINDOW_SECONDS = 11, 5.3
WORKS_SECONDS, LOG_SECONDS = 25.0, 3.0
ENTRIES_MAX, DOTS = 1 << 28, 2
GFSDS = tuple(fake.GFSDS)
FILES_AT_ONCE, ROUNDS = 160, 40


class Log:
    """The kernel's log."""

    def __init__(self) -> None:
        self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self._times: list[float] = []
        # Those of the test before may count still.
        self.lines(time.clock_gettime(time.CLOCK_BOOTTIME) - WINDOW_SECONDS)

    def lines(self, after: float = 0.0) -> list[str]:
        """What the module has said since the last call, and after a time."""
        found = []
        while True:
            try:
                head, _, said = os.read(self._file, 8192).decode(errors="replace").partition(";")
            except BlockingIOError:
                self._times += [time.monotonic()] * len(found)
                return found
            except BrokenPipeError:
                continue
            priority, _sequence, microseconds = head.split(",")[:3]
            if "gfarm" in said and int(priority) & 7 <= 4 and int(microseconds) / 1e6 >= after:
                found.append(said.splitlines()[0])

    def has_room(self) -> None:
        """Waits until the kernel prints the next lines, too."""
        while len(self._times) > LINES:
            if self._times[0] < time.monotonic() - WINDOW_SECONDS:
                del self._times[0]
            else:
                time.sleep(0.1)


class User:
    """What a user does in the mount; each time with a name that was not used before."""

    def __init__(self, world: fake.World) -> None:
        self._world = world
        self._number = 0

    def _path(self, letter: str) -> tuple[str, wire.Node]:
        self._number += 1
        name = f"{letter}{self._number}"
        node = wire.find(name)
        assert node
        return f"{AT}/{name}", node

    def path(self, letter: str) -> str:
        """The path of an object of this kind."""
        return self._path(letter)[0]

    def does(self, what: str, letter: str = "f") -> str:
        """Does something; answers the error's name, "" for a right result."""
        try:
            wrong: bool | None = {"stat": self._stat, "stat again": self._stat_again, "stat anew": self._stat_anew,
                                  "list": self._list, "list the root": self._list_root, "list far": self._list_far,
                                  "read": self._read, "bulk": self._bulk, "link": self._link,
                                  "usage": self._usage}[what](letter)
        except OSError as error:
            return errorcode.get(error.errno or 0, str(error))
        return "a wrong result" if wrong else ""

    def _stat(self, letter: str) -> bool:
        os.stat(self._path(letter)[0])
        return False

    def _stat_again(self, letter: str) -> bool:
        path, _node = self._path(letter)
        os.stat(path)
        time.sleep(GETS_OLD)
        os.stat(path)
        return False

    def _stat_anew(self, letter: str) -> bool:
        self._world.gfmd.drop()
        try:
            return self._stat(letter)
        except OSError:
            # The time to wait for gfmd may be over already, after a loss shortly before. Then it begins again now.
            if self._world.script.told:
                raise
            return self._stat(letter)

    def _list(self, _letter: str) -> bool:
        path, node = self._path("d")
        return sorted(os.listdir(path)) != sorted(entry.name for entry in wire.entries_of(node)[2:])

    @staticmethod
    def _list_root(_letter: str) -> bool:
        return sorted(os.listdir(AT)) != sorted(entry.name for entry in wire.entries_of(wire.ROOT)[2:])

    def _list_far(self, _letter: str) -> bool:
        folder = os.open(self._path("d")[0], os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.lseek(folder, ENTRIES_MAX - 5 + DOTS, os.SEEK_SET)
            return bool(os.listdir(folder))
        finally:
            os.close(folder)

    def _read(self, letter: str) -> bool:
        path, node = self._path(letter)
        with open(path, "rb", buffering=0) as file:
            found = b""
            while part := file.read(wire.READ_MAX):
                found += part
        return found != wire.content(node.inum, node.size)

    def _bulk(self, _letter: str) -> bool:
        path, node = self._path("b")
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            found = bytearray(node.size)
            length = os.preadv(file, [found], 0)
        finally:
            os.close(file)
        return length != node.size or found != wire.content(node.inum, node.size)

    def _link(self, _letter: str) -> bool:
        return os.readlink(self._path("l")[0]) != wire.TARGET.decode()

    @staticmethod
    def _usage(_letter: str) -> bool:
        return os.statvfs(AT).f_bsize == 0


def mount(options: str) -> str:
    """Mounts the fake servers; answers what is said if that fails."""
    os.makedirs(AT, exist_ok=True)
    done = subprocess.run(["mount", "-i", "-t", "gfarm", f"{fake.GFMD}:{fake.PORT}", AT, "-o",
                           f"username=root,{HOSTS},{options}"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr + f"status {done.returncode}" if done.returncode else ""


def unmount() -> None:
    """A mount that is busy is an error."""
    subprocess.run(["umount", AT], check=True)


class Judge:
    """Carries cases out, and says what is wrong."""

    def __init__(self, world: fake.World) -> None:
        self.world, self.user, self.log = world, User(world), Log()

    def report(self, name: str, wrong: str, seconds: float, lines: list[str]) -> None:
        """A line for the test."""
        print(json.dumps({"name": name, "wrong": wrong, "seconds": round(seconds, 2), "lines": lines[:6]}), flush=True)

    def works(self) -> str:
        """Waits until names and files are right, as without lies; what is wrong if they never are."""
        deadline = time.monotonic() + WORKS_SECONDS
        while True:
            found = {what: self.user.does(what, "h") for what in ("stat", "list", "read")}
            if not any(found.values()):
                return ""
            if time.monotonic() > deadline:
                return f"afterwards: {found}"
            time.sleep(0.1)

    def honest(self, name: str) -> None:
        """Without lies everything works, or no lie needs to be told."""
        wrong = self.works()
        self.report(name, wrong, 0, self.log.lines())
        if wrong:
            sys.exit(f"{name}: {wrong}")

    def said(self, words: str, lines: list[str]) -> bool:
        """Whether the log has these words, or gets them soon; adds to `lines`."""
        deadline = time.monotonic() + LOG_SECONDS
        while not any(re.search(words, line) for line in lines):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
            lines += self.log.lines()
        return True

    def case(self, case: Case) -> None:
        """One lie to a mount."""
        if case.words:
            self.log.has_room()
        time.sleep(case.after)
        self.log.lines()
        who, what = case.spot.split(".")
        servers = GFSDS if who == "gfsd" else (who,)
        for server in servers:
            if server != "gfmd" and what in ("methods", "method", "challenge", "verdict", "join"):
                self.world.gfsds[server].drop()
        for server in servers:
            self.world.script.arm(f"{server}.{what}", case.lie, case.times)
        began = time.monotonic()
        found = self.user.does(case.does)
        took = time.monotonic() - began
        told = self.world.script.disarm()
        lines: list[str] = []
        wrong = []
        if not told:
            wrong.append("the lie was not told")
        if found not in case.errors:
            wrong.append(f"{found or 'success'}, not {' or '.join(error or 'success' for error in case.errors)}")
        if took > case.seconds:
            wrong.append(f"it took {took:.1f} s")
        if case.words and not self.said(case.words, lines):
            wrong.append(f"no line says '{case.words}'")
        wrong.append(self.works())
        lines += self.log.lines()
        if len(lines) > case.lines:
            wrong.append(f"{len(lines)} lines in the log")
        self.report(case.name, "; ".join(text for text in wrong if text), took, lines)

    def login(self, case: Case) -> None:
        """One lie to who mounts."""
        self.log.has_room()
        self.log.lines()
        self.world.script.arm(case.spot, case.lie)
        began = time.monotonic()
        said = mount(lies.GROUPS["logins"][1])
        took = time.monotonic() - began
        told = self.world.script.disarm()
        lines = self.log.lines()
        wrong = [] if told else ["the lie was not told"]
        if not said:
            wrong.append("mounted")
            unmount()
        elif not re.search(case.errors[0], "\n".join([said, *lines])):
            wrong.append(f"'{said}' does not say '{case.errors[0]}'")
        if case.words and not self.said(case.words, lines):
            wrong.append(f"no line says '{case.words}'")
        if took > case.seconds:
            wrong.append(f"it took {took:.1f} s")
        self.report(case.name, "; ".join(wrong), took, lines)


@contextmanager
def mounted(options: str) -> Iterator[None]:
    """A mount for the body."""
    said = mount(options)
    if said:
        sys.exit(f"the honest servers were not mounted: {said}")
    try:
        yield
    finally:
        unmount()


def group(name: str, judge: Judge) -> None:
    """The cases of a table."""
    cases, options = lies.GROUPS[name]
    if name == "logins":
        for case in cases():
            judge.login(case)
        with mounted(options):
            judge.honest("an honest gfmd")
        return
    with mounted(options):
        judge.honest("honest servers")
        for case in cases():
            judge.case(case)


QUESTIONS = {"gfmd.attributes": "stat", "gfmd.list": "list", "gfmd.open": "read", "gfmd.link": "link",
             "gfmd.usage": "usage", "gfmd.process": "stat anew", "gfmd.challenge": "stat anew", "gfsd.join": "read",
             "gfsd.challenge": "read", "gfsd.open": "read", "gfsd.stat": "read", "gfsd.read": "read",
             "gfsd.bulk": "bulk"}
BOUNDARIES = 14


def boundaries(judge: Judge, _seed: int) -> None:
    """Each answer ends at a boundary, and a byte behind it; what was asked is asked again, or fails."""
    with mounted("connect_timeout=8,receive_timeout=8,reconnect_timeout=2"):
        for spot, does in QUESTIONS.items():
            fields: list[int] = []

            def measure(answer: wire.Fields, fields: list[int] = fields) -> list[wire.Turn]:
                fields.append(len(answer))
                return [lies.joined(answer)]
            judge.case(Case(f"{spot} is whole", spot, measure, does, lies.DONE))
            count = max(fields, default=0)
            for field in sorted({round(n * count / BOUNDARIES) for n in range(BOUNDARIES)} - {count}):
                judge.case(Case(f"{spot} ends after {field} fields", spot, lies.cut(field, field % 3), does, lies.ANY,
                                times=1, seconds=15))


def mutation(answer: bytes, source: random.Random) -> list[wire.Turn]:
    """An answer with something wrong, or right by chance."""
    at = source.randrange(len(answer) + 1)
    end = min(len(answer), at + source.choice((1, 4, 8, 100)))
    junk = source.choice((source.randbytes(end - at), b"\xff" * (end - at), bytes(end - at)))
    changed = answer[:at] + junk + answer[end:]
    return source.choice((
        lambda: [changed], lambda: [changed], lambda: [changed], lambda: [answer[:at] + answer[end:]],
        lambda: [answer[:at] + junk + answer[at:]], lambda: [answer[:at], wire.CLOSE],
        lambda: [source.randbytes(source.choice((4, 40, 4000)))], lambda: [answer, answer],
        lambda: [answer[:at], 0.3, answer[at:]]))()


def at_random(judge: Judge, seed: int) -> None:
    """Answers that are changed at random."""
    source = random.Random(seed)
    with mounted("connect_timeout=2,receive_timeout=2,reconnect_timeout=1"):
        for number in range(ROUNDS):
            spot = source.choice(tuple(QUESTIONS))
            state = source.getrandbits(64)

            def lie(fields: wire.Fields, state: int = state) -> list[wire.Turn]:
                return mutation(lies.joined(fields), random.Random(state))
            does = QUESTIONS[spot]
            case = Case(f"{number}: {spot}", spot, lie, does, tuple(errorcode.values()) + ("", "a wrong result"),
                        times=source.choice((1, 1, None)), seconds=25, lines=40)
            judge.case(case)


def many(judge: Judge, _seed: int) -> None:
    """More files than there are workers are read when all servers stop; they go on when those are back."""
    nodes = [node for n in range(FILES_AT_ONCE) if (node := wire.find(f"f{0x700000 + n}"))]
    world = judge.world
    with mounted("connect_timeout=20,receive_timeout=60,reconnect_timeout=120"):
        files = [os.open(f"{AT}/{node.name}", os.O_RDONLY) for node in nodes]
        for server in world.gfsds.values():
            server.freeze()
        results: list[bool] = []

        def read(file: int, node: wire.Node) -> None:
            results.append(os.pread(file, node.size, 0) == wire.content(node.inum, node.size))
        threads = [threading.Thread(target=read, args=pair) for pair in zip(files, nodes, strict=True)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        early = len(results)
        # The workers of all files wait for gfsds; now they all ask gfmd, which is gone as well.
        world.gfmd.freeze()
        world.end_processes()
        for server in world.gfsds.values():
            server.drop()
        time.sleep(1)
        began = time.monotonic()
        for server in (world.gfmd, *world.gfsds.values()):
            server.thaw()
        for thread in threads:
            thread.join(max(0.0, began + 90 - time.monotonic()))
        took = time.monotonic() - began
        wrong = ["" if not early else f"{early} files were read from frozen gfsds",
                 "" if results.count(True) == len(nodes) else f"{results.count(True)} of {len(nodes)} files were read"]
        judge.report("many files", "; ".join(text for text in wrong if text), took, judge.log.lines())
        if any(thread.is_alive() for thread in threads):
            subprocess.run(["umount", "-f", AT], check=False)
        for thread in threads:
            thread.join()
        for file in files:
            os.close(file)


HELD_FILES, HELD_KIB, HELD_GFSDS = 32, 64, 3000
STRANGERS = 5000


def held_kib() -> int:
    """The kernel's own memory."""
    with open("/proc/meminfo", encoding="ascii") as file:
        rows = dict(line.split(":") for line in file)
    return sum(int(rows[name].split()[0]) for name in ("Slab", "VmallocUsed"))


def long(judge: Judge, _seed: int) -> None:
    """Thousands of gfsds that nobody knows, in the first answer of all: the mount finds those later that are there.
    Files that are open do not keep the long answers."""
    world = judge.world
    with mounted("connect_timeout=8,receive_timeout=8,reconnect_timeout=2"):
        world.script.arm("gfmd.open", lies.strangers(STRANGERS))
        found = judge.user.does("read")
        world.script.disarm()
        wrong = ["" if found == "EIO" else f"{found or 'success'}, not EIO", judge.works()]
        judge.report("strangers only", "; ".join(text for text in wrong if text), 0, judge.log.lines())
        world.script.arm("gfmd.open", lies.many_hosts(HELD_GFSDS))
        files = [os.open(judge.user.path("f"), os.O_RDONLY)]
        before = held_kib()
        files += [os.open(judge.user.path("f"), os.O_RDONLY) for _file in range(HELD_FILES)]
        each = (held_kib() - before) / HELD_FILES
        world.script.disarm()
        for file in files:
            os.close(file)
        judge.report("long answers", "" if each < HELD_KIB else f"{each:.0f} KiB for each open file", 0,
                     judge.log.lines())


HALVES_SECONDS, TOLD_SECONDS = 3.0, 20.0


def killed(judge: Judge, _seed: int) -> None:
    """A task is killed while a part of its answer is there: the rest is received, and the connection stays."""
    world = judge.world
    with mounted("connect_timeout=20,receive_timeout=20,reconnect_timeout=20"):
        judge.honest("honest servers")
        logins = world.processes
        for spot, program in (("gfmd.attributes", "stat"), ("gfmd.open", "cat"), ("gfmd.list", "ls")):
            for part in (0.0, 0.5, 0.9):
                def lie(fields: wire.Fields, part: float = part) -> list[wire.Turn]:
                    whole = lies.joined(fields)
                    at = int(len(whole) * part)
                    return [whole[:at], HALVES_SECONDS, whole[at:]]
                world.script.arm(spot, lie, 1)
                # What is asked before that is told without a pause.
                task = subprocess.Popen([program, judge.user.path("d" if program == "ls" else "f")],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                deadline = time.monotonic() + TOLD_SECONDS
                while not world.script.told and time.monotonic() < deadline:
                    time.sleep(0.02)
                time.sleep(HALVES_SECONDS / 6)      # for the first part to arrive
                began = time.monotonic()
                task.kill()
                task.wait()
                took = time.monotonic() - began
                told = world.script.disarm()
                found = judge.user.does("stat")
                lines = judge.log.lines()
                wrong = ["" if told else "the lie was not told",
                         "" if took < HALVES_SECONDS / 2 else f"it was killed after {took:.1f} s only",
                         found and f"then: {found}", "; ".join(lines),
                         "" if world.processes == logins else "gfmd was connected again"]
                judge.report(f"{program}, {part} of the answer to {spot}", "; ".join(text for text in wrong if text),
                             took, lines)


PROGRAMS: dict[str, Callable[[Judge, int], None]] = {"boundaries": boundaries, "random": at_random, "many": many,
                                                     "long": long,
                                                     "killed": killed}


def main() -> None:
    """One group."""
    name, seed = sys.argv[1], int(sys.argv[2])
    judge = Judge(fake.World(os.environ["KEY"]))
    if name in PROGRAMS:
        PROGRAMS[name](judge, seed)
    else:
        group(name, judge)
    sys.stdout.flush()
    os._exit(0)     # threads that serve a connection do not end


if __name__ == "__main__":
    main()
