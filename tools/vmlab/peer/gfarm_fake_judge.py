# SPDX-License-Identifier: GPL-2.0
"""A mount of fake servers, what a user does in it while they lie, and what is wrong with that."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
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
# On a host that is busy all takes longer.
PATIENCE = float(os.environ.get("PATIENCE", "1"))
WORKS_SECONDS, LOG_SECONDS = 25.0 * PATIENCE, 3.0
ATTEMPTS = 3
ENTRIES_MAX, DOTS = 1 << 28, 2
GFSDS = tuple(fake.GFSDS)


class Log:
    """The kernel's log."""

    def __init__(self) -> None:
        self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self._times: list[float] = []
        # Those of the test before may count still.
        self.lines(time.clock_gettime(time.CLOCK_BOOTTIME) - WINDOW_SECONDS)

    def lines(self, after: float = 0.0) -> list[str]:
        """Lines of the module since the last call, and after a time."""
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
    """A user in the mount, who takes a name each time that was not used before."""

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
            found, length = bytearray(node.size), 0
            # An error behind some of the bytes is told to who reads on.
            while part := os.preadv(file, [memoryview(found)[length:]], length):
                length += part
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
        """Checks that without lies everything works, or that no lie needs to be told."""
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

    def case(self, case: Case, attempts: int = ATTEMPTS) -> None:
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
        if not told and not found and case.does == "bulk" and attempts > 1:
            # Each part of the read was found alone by a worker, which does not ask for one in bulk.
            self.case(case, attempts - 1)
            return
        lines: list[str] = []
        wrong = []
        if not told:
            wrong.append("the lie was not told")
        if found not in case.errors:
            wrong.append(f"{found or 'success'}, not {' or '.join(error or 'success' for error in case.errors)}")
        if took > case.seconds * PATIENCE:
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
        if took > case.seconds * PATIENCE:
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
