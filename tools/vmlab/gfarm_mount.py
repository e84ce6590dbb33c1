# SPDX-License-Identifier: GPL-2.0
"""Mounts of gfarm_ra in a guest where Gfarm's servers run (gfarm.py).

    gfarm = gfarm_mount.start(vm)                       # servers, and the module
    with mounted(gfarm, "readahead=64") as mount:       # unmounted after the body
        mount.sha256("big")
"""
from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import gfarm as rig
from vmlab import loaded
from vmlab.checks import Failed, eq, until
from vmlab.gfarm import ADDRESSES, FOLDER, GFMD, GFMD_PORT, GFSD_PORT, GFSDS, Gfarm
from vmlab.lab import Lab
from vmlab.machine import Job, Machine, Result

AT = "/mnt/gfarm"
SOURCE = f"{ADDRESSES[GFMD]}:{GFMD_PORT}"
# Otherwise each connection to a gfsd has key.dns_resolver look the name up.
HOSTS = "hosts=" + "+".join(f"{name}/{ADDRESSES[name]}" for name in GFSDS)
# For tests that wait for them: the defaults are 35, 60 and 30.
SHORT = "connect_timeout=3,receive_timeout=4,reconnect_timeout=3"
# The same where what is lost has to be found again: a slow host takes seconds for a process and a login.
PATIENT = "connect_timeout=3,receive_timeout=4,reconnect_timeout=20"
DIGEST = r"""
import hashlib, sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        print(hashlib.file_digest(file, "sha256").hexdigest())
"""
# Reads the beginning of a file, and the rest when it is told to; prints the digest of what it has read.
SLOW_READER = r"""
import hashlib, os, sys, time
path, start, go = sys.argv[1:4]
found = hashlib.sha256()
with open(path, "rb", buffering=0) as file:
    found.update(file.read(int(start)))
    open(go + ".reads", "x").close()
    while not os.path.exists(go):
        time.sleep(0.02)
    while part := file.read(65536):
        found.update(part)
print(found.hexdigest())
"""


def start(lab: Lab, persistent: bool = False) -> Gfarm:
    """Servers, and the module; both stay for the next test that wants the same."""
    loaded.of(lab).load(lab.server, "gfarm", "mods ours gfarm_ra")
    return rig.start(lab, persistent)


def try_mount(gfarm: Gfarm, options: str, *, source: str = SOURCE, key: str | None = "", user: str = "root",
              at: str = AT, hosts: str = HOSTS) -> Result:
    """Mounts as an administrator without a helper does, with a key in a session keyring: the user's own (""), another
    one, or none."""
    held = gfarm.keys.get(user) if key == "" else key
    add = f"keyctl padd logon gfarm:{user} @s > /dev/null"
    store = "" if held is None else f"echo {shlex.quote(held.strip())} | {add} && "
    named = f"username={user}{hosts and ','}{hosts}"
    script = f"{store}exec mount -i -t gfarm {source} {at} -o {shlex.quote(named + (',' + options if options else ''))}"
    return gfarm.machine.try_run(f"mkdir -p {at}; keyctl session - bash -c {shlex.quote(script)} 2>&1", 120)


def serving(machine: Machine) -> list[str]:
    """The gfsds that the machine has connections with."""
    rows = [line.split() for line in machine.read("/proc/net/tcp").splitlines()[1:]]
    remote = {row[2] for row in rows if row[3] == "01"}
    return [name for name in GFSDS if in_hex(ADDRESSES[name], GFSD_PORT) in remote]


def connections(machine: Machine) -> int:
    """The number of connections with gfsds."""
    remote = {in_hex(ADDRESSES[name], GFSD_PORT) for name in GFSDS}
    rows = [line.split() for line in machine.read("/proc/net/tcp").splitlines()[1:]]
    return sum(row[2] in remote and row[3] == "01" for row in rows)


def in_hex(address: str, port: int) -> str:
    """The address in the form of /proc/net/tcp."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split("."))) + f":{port:04X}"


class Reader:
    """Reads a file slowly: its beginning, and the rest when it is told to."""

    _count = 0

    def __init__(self, machine: Machine, path: str, start_bytes: int, timeout: float = 120) -> None:
        Reader._count += 1
        self.machine, self._go = machine, f"/run/reader{Reader._count}"
        machine.push_bytes(SLOW_READER.encode(), "/run/slow_reader.py")
        machine.run(f"rm -f {self._go} {self._go}.reads")
        self.job: Job = machine.start_job(
            f"exec python3 -I -S /run/slow_reader.py {shlex.quote(path)} {start_bytes} {self._go}", timeout)

    @property
    def reads(self) -> bool:
        """Whether it has read the beginning."""
        return self.machine.exists(f"{self._go}.reads")

    def go_on(self) -> None:
        """Lets it read the rest."""
        self.machine.push_bytes(b"", self._go)

    def digest(self, seconds: float = 60) -> str:
        """Waits for its end: the digest of all that it has read."""
        return self.job.ok(seconds).strip()


@contextmanager
def held_open(mount: Mount, name: str) -> Iterator[None]:
    """A file is open for the body, and nothing of it is read: the mount is in use, whatever happens to readers."""
    reader = mount.reader(name, 0, 600)
    until(lambda: reader.reads or not reader.job.running, 20, "the file is open")
    if not reader.job.running:
        reader.job.ok()
    try:
        yield
    finally:
        reader.job.kill()
        reader.job.wait(60)


class Mount:
    """A mount that is there."""

    def __init__(self, machine: Machine, at: str) -> None:
        self.machine, self.at = machine, at

    @property
    def folder(self) -> str:
        """Its state."""
        return f"/proc/fs/gfarm/{self.machine.run(f'mountpoint -d {self.at}').strip().partition(':')[2]}"

    def stats(self) -> dict[str, int]:
        """Its counters."""
        rows = (line.split() for line in self.machine.read(f"{self.folder}/stats").splitlines())
        return {name: int(count) for name, count in rows}

    def forget(self) -> None:
        """Drops what the kernel has cached."""
        self.machine.write("/proc/sys/vm/drop_caches", "3")

    def sha256(self, name: str, timeout: float = 120) -> str:
        """The digest of a file."""
        script = f"python3 -I -S - {shlex.quote(f'{self.at}/{name}')} <<'END'\n{DIGEST}\nEND"
        return self.machine.run(script, timeout).strip()

    def reader(self, name: str, start_bytes: int, timeout: float = 120) -> Reader:
        """A slow reader of a file, which has the beginning already."""
        return Reader(self.machine, f"{self.at}/{name}", start_bytes, timeout)

    def fails(self, command: str, words: str, timeout: float = 60) -> None:
        """A command in the mount's folder fails with these words."""
        said = self.machine.try_run(f"cd {self.at} && ({command}) 2>&1", timeout)
        if said.code in (0, 124) or words not in said.out:
            raise Failed(f"`{command}` ended with code {said.code}: {said.out.strip()}")

    @property
    def options(self) -> list[str]:
        """The options that /proc/mounts shows."""
        rows = [line.split() for line in self.machine.read("/proc/mounts").splitlines()]
        return next(row[3] for row in rows if row[1] == self.at).split(",")


@contextmanager
def mounted(gfarm: Gfarm, options: str = "", user: str = "root", at: str = AT,
            hosts: str = HOSTS) -> Iterator[Mount]:
    """A mount for the body; its unmount must succeed."""
    said = try_mount(gfarm, options, user=user, at=at, hosts=hosts)
    eq(said.code, 0, f"mount with {options!r}: {said.out}")
    try:
        yield Mount(gfarm.machine, at)
    except BaseException:
        gfarm.machine.try_run(f"umount {at} || umount -f {at} || umount -l {at}")
        raise
    if f" {at} " in gfarm.machine.read("/proc/mounts"):
        gfarm.machine.run(f"umount {at}")


def put_random(gfarm: Gfarm, name: str, size: int, host: str = "fs1", copies: int = 1) -> str:
    """Makes a file of random bytes in the guest, in place of the one of this name; answers its digest."""
    local = f"{FOLDER}/put"
    other = next(gfsd for gfsd in GFSDS if gfsd != host)
    replicate = f" && gfrep -q -D {other} /{name}" if copies > 1 else ""
    gfarm.run(f"! gfls -d /{name} > /dev/null 2>&1 || gfrm /{name}; head -c {size} /dev/urandom > {local}; "
              f"gfreg -h {host} {local} /{name}{replicate}", 180)
    return gfarm.run(f"sha256sum {local}; rm {local}").split()[0]


def as_json(machine: Machine, script: str, timeout: float = 120) -> object:
    """The value that a Python script in the guest prints as JSON."""
    return json.loads(machine.run(f"python3 -I -S - <<'END'\n{script}\nEND", timeout))
