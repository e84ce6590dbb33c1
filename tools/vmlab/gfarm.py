# SPDX-License-Identifier: GPL-2.0
"""A real Gfarm in a guest, from Debian's packages: gfmd and two gfsds on addresses of the loopback interface.

    meta  127.0.1.100:601   gfmd; its metadata are in its memory, or in PostgreSQL too (`persistent`)
    fs1   127.0.1.1:600     gfsd
    fs2   127.0.1.2:600     gfsd

    gfarm = rig.start(vm)               # the servers go on until the modules of the file's tests are unloaded
    gfarm.run("gfreg -h fs1 /etc/passwd /file")
    with gfarm.fuse() as folder:        # gfarm2fs, what the kernel's mount is compared with
        ...
    gfarm.kill("fs1")                   # it is started again after the test

Each server is in a control group of its own: a gfsd has a process for each connection, and all of them are frozen or
killed together.
"""
from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from vmlab import loaded
from vmlab.checks import until
from vmlab.lab import Lab
from vmlab.machine import Machine, Result

GFMD, GFSDS = "meta", ("fs1", "fs2")
SERVERS = (GFMD, *GFSDS)
ADDRESSES = {GFMD: "127.0.1.100", "fs1": "127.0.1.1", "fs2": "127.0.1.2"}
GFMD_PORT, GFSD_PORT = 601, 600
FOLDER, FUSE, GROUPS = "/run/gfarm", "/mnt/gfarm2fs", "/sys/fs/cgroup"
# The administrator, the accounts of the servers, and two users, of whom Gfarm knows alice only.
ACCOUNTS = {"root": 0, "_gfarmfs": 901, "_gfarmmd": 902, "postgres": 903, "alice": 1001, "bob": 1002}
KEYED = ("root", "_gfarmfs", "_gfarmmd", "alice", "bob")
DATABASE = "database"
KEY_SECONDS = 365 * 24 * 3600
START_SECONDS, STOP_SECONDS = 90.0, 30.0
PROGRAMS = Path(__file__).with_name("peer")
# A gfsd without 512 MiB of free space is not written to, by default.
LITTLE_SPACE = "minimum_free_disk_space 1M"
CLIENT_CONF = f"""metadb_server_host {GFMD}
metadb_server_port {GFMD_PORT}
auth enable sharedsecret *
network_receive_timeout 60
{LITTLE_SPACE}
"""
SERVER_CONF = f"""metadb_server_host {GFMD}
metadb_server_port {GFMD_PORT}
admin_user root
auth enable sharedsecret *
metadb_replication disable
{LITTLE_SPACE}
"""
DATABASE_CONF = f"""postgresql_server_host {FOLDER}/{DATABASE}
postgresql_server_port 5432
postgresql_dbname gfarm
postgresql_user gfarm
postgresql_password gfarm
"""
# What a database needs to be made; nothing of it has to survive a power failure. An emulated machine takes a quarter of
# a minute of its host's processors for that, so the tests that follow in the machine begin with a copy.
MADE_DATABASE = "/run/gfarm-database"
MAKE_DATABASE = f"""
as() {{ setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }}
bin=$(echo /usr/lib/postgresql/*/bin)
options="-c listen_addresses='' -c unix_socket_directories={FOLDER}/{DATABASE} -c fsync=off -c jit=off"
serve() {{ (enter {DATABASE}; as $bin/pg_ctl -D data -w -l log -o "$options" start > /dev/null) }}
mkdir -p {FOLDER}/{DATABASE}; chown postgres: {FOLDER}/{DATABASE}; cd {FOLDER}/{DATABASE}
if [ -d {MADE_DATABASE} ]; then
	cp -a {MADE_DATABASE} data
else
	as $bin/initdb -D data -A trust -E UTF8 --locale=C --wal-segsize=1 --no-instructions --no-sync > /dev/null
	serve
	as $bin/psql -q -h {FOLDER}/{DATABASE} -d postgres -c "create role gfarm login password 'gfarm'"
	as $bin/createdb -h {FOLDER}/{DATABASE} -O gfarm -E UTF8 -T template0 gfarm
	as $bin/psql -q -h {FOLDER}/{DATABASE} -U gfarm gfarm < /usr/share/gfarm/config/gfarm.sql
	as $bin/pg_ctl -D data -w stop > /dev/null
	cp -a data {MADE_DATABASE}
fi
serve
"""
ENTER = f"""set -e
enter() {{ mkdir -p {GROUPS}/gfarm-$1; echo $BASHPID > {GROUPS}/gfarm-$1/cgroup.procs; }}
"""


def home(user: str) -> str:
    """The folder of an account's key."""
    return "/root" if user == "root" else f"{FOLDER}/home/{user}"


def new_key(seconds: float = KEY_SECONDS) -> str:
    """A shared key that expires so many seconds from now, as ~/.gfarm_shared_key has it. The clock of a guest is the
    host's."""
    return f"{int(time.time() + seconds):08x} {os.urandom(32).hex()}\n"


class Gfarm:
    """The servers in one machine."""

    def __init__(self, machine: Machine, persistent: bool) -> None:
        self.machine, self.persistent = machine, persistent
        self.keys = {user: new_key() for user in KEYED}
        self.ended = False
        self._boot = machine.reboots
        self._before: dict[str, str | None] = {}

    @property
    def gone(self) -> bool:
        """Whether the servers were stopped, or the machine was powered off since."""
        return self.ended or self._boot != self.machine.reboots

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Sets the machine up, and starts all servers."""
        for path, text in self._files():
            self._before[path] = self.machine.read(path) + "\n" if self.machine.exists(path) else None
            self.machine.push_bytes(((self._before[path] or "") + text).encode(), path)
        database = MAKE_DATABASE if self.persistent else ""
        self.machine.run("\n".join([ENTER, *self._homes(), database, self._start_line(GFMD)]), START_SECONDS)
        self._await_gfmd()
        known = [f"gfhost -c -a x86_64-linux -p {GFSD_PORT} -n 1 {name}" for name in GFSDS]
        lines = [self._start_line(name) for name in GFSDS]
        users = ["gfuser -c alice Alice /people/alice ''", "gfgroup -a -m gfarmroot root"]
        self.machine.run("\n".join([ENTER, *known, *lines, *users]), START_SECONDS)
        self._await_gfsds()

    def _files(self) -> Iterator[tuple[str, str]]:
        """Lines that are appended to files of the machine."""
        names = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
        yield "/etc/hosts", f"127.0.0.1 localhost {self.machine.name}\n{names}"
        added = {name: number for name, number in ACCOUNTS.items() if number}
        yield "/etc/passwd", "".join(f"{n}:x:{i}:{i}::{home(n)}:/bin/bash\n" for n, i in added.items())
        yield "/etc/group", "".join(f"{name}:x:{number}:\n" for name, number in added.items())
        yield "/etc/gfarm2.conf", CLIENT_CONF
        yield "/etc/gfmd.conf", SERVER_CONF + (DATABASE_CONF if self.persistent else "")

    def _homes(self) -> Iterator[str]:
        """The keys, and folders that the servers write to after they have become _gfarmfs."""
        yield f"mkdir -p {FOLDER}/{{run,log,spool,home}}; chmod 1777 {FOLDER}/{{run,log}}"
        for name in GFSDS:
            yield f"mkdir -p {FOLDER}/spool/{name}"
        yield f"chown _gfarmfs {FOLDER}/spool/*; chmod 700 {FOLDER}/spool/*"
        for user, key in self.keys.items():
            yield (f"mkdir -p {home(user)}; echo '{key.strip()}' > {home(user)}/.gfarm_shared_key; "
                   f"chmod 600 {home(user)}/.gfarm_shared_key; chown -R {user}: {home(user)}")

    @staticmethod
    def _start_line(name: str) -> str:
        common = f"-P {FOLDER}/run/{name}.pid -F {FOLDER}/log/{name}.log"
        if name == GFMD:
            return f"(enter {name}; exec gfmd -f /etc/gfmd.conf -p {GFMD_PORT} {common})"
        return f"(enter {name}; exec gfsd -f /etc/gfarm2.conf -r {FOLDER}/spool/{name} -h {name} -l {name} {common})"

    def _await_gfmd(self) -> None:
        """Programs of Gfarm that find no gfmd wait for seconds before they try again."""
        listens = f":{GFMD_PORT:04X} 00000000:0000 0A"
        until(lambda: listens in self.machine.read("/proc/net/tcp"), START_SECONDS, "gfmd listens", pause=0.05)

    def _await_gfsds(self) -> None:
        """Waits until gfmd says that each gfsd that runs is up: one that is not has no load."""
        running = [name for name in GFSDS if self.is_up(name)]

        def up() -> bool:
            # LOAD AUTHENTICATION ARCHITECTURE PROCESSORS NAME PORT FLAGS
            rows = [line.split() for line in self.machine.try_run("gfhost -l").out.splitlines()]
            loads = {row[4]: row[0] for row in rows if len(row) > 4}
            return all(loads.get(name, "-")[0].isdigit() for name in running)

        until(up, START_SECONDS, "gfmd knows the gfsds")

    def stop(self) -> None:
        """Ends all servers, and gives the machine its files back."""
        if self.gone or not self.machine.alive:
            return
        self.ended = True
        for name in (*GFSDS, GFMD, *([DATABASE] if self.persistent else [])):
            self._kill(name)
            self.machine.run(f"rmdir {GROUPS}/gfarm-{name}")
        for path, text in self._before.items():
            if text is not None:
                self.machine.push_bytes(text.encode(), path)
        gone = " ".join(path for path, text in self._before.items() if text is None)
        self.machine.run(f"rm -rf {FOLDER} {home('root')}/.gfarm_shared_key {gone}", STOP_SECONDS)

    # -- faults --------------------------------------------------------------------------------------------

    def _group(self, name: str, file: str, text: str) -> None:
        wrong = self.machine.write(f"{GROUPS}/gfarm-{name}/{file}", text)
        if wrong:
            raise OSError(f"{file} of {name}: {wrong}")

    def is_up(self, name: str) -> bool:
        """Whether the server has processes."""
        group = f"{GROUPS}/gfarm-{name}"
        return self.machine.exists(group) and bool(self.machine.read(f"{group}/cgroup.procs"))

    def _kill(self, name: str) -> None:
        if self.is_up(name):
            self._group(name, "cgroup.freeze", "0")
            self._group(name, "cgroup.kill", "1")
            until(lambda: not self.is_up(name), STOP_SECONDS, f"{name} has ended", pause=0.02)

    def kill(self, lab: Lab, *names: str) -> None:
        """Kills servers with all their processes; what is dead after the test is started again."""
        for name in names:
            self._kill(name)
            lab.defer(self.bring_up, name)

    def bring_up(self, name: str) -> None:
        """Starts a server that was killed, and waits for it, unless all were stopped since. A gfmd without a database
        has lost its metadata."""
        if self.gone or self.is_up(name):
            return
        self.machine.run(f"{ENTER}\n{self._start_line(name)}", START_SECONDS)
        if name == GFMD:
            self._await_gfmd()
        self._await_gfsds()

    def freeze(self, lab: Lab, *names: str) -> None:
        """Stops the processes of servers: their connections stay, and nothing is answered. Undone after the test."""
        for name in names:
            lab.defer(self.thaw, name)
            self._group(name, "cgroup.freeze", "1")
            until(partial(self._is_frozen, name), 10, f"{name} is frozen", pause=0.02)

    def _is_frozen(self, name: str) -> bool:
        return "frozen 1" in self.machine.read(f"{GROUPS}/gfarm-{name}/cgroup.events")

    def thaw(self, *names: str) -> None:
        """Lets them go on."""
        for name in names:
            if self.is_up(name):
                self._group(name, "cgroup.freeze", "0")

    def cut(self, lab: Lab) -> None:
        """The loopback interface loses every packet, until `mend` or the end of the test."""
        lab.defer(self.mend)
        self.machine.run("tc qdisc add dev lo root netem loss 100%")

    def mend(self) -> None:
        """Ends a cut: the loopback interface loses no packet."""
        self.machine.run("tc qdisc del dev lo root 2>/dev/null || [ -z \"$(tc qdisc show dev lo | grep netem)\" ]")

    def log(self, name: str) -> str:
        """The log of a server."""
        return self.machine.read(f"{FOLDER}/log/{name}.log")

    # -- files ---------------------------------------------------------------------------------------------

    def try_run(self, command: str, user: str = "root", timeout: float = 60.0) -> Result:
        """Runs shell commands as a user of Gfarm."""
        if user == "root":
            return self.machine.try_run(command, timeout)
        return self.machine.try_run(f"{self.become(user)} bash -c {shlex.quote(command)}", timeout)

    def run(self, command: str, timeout: float = 60.0) -> str:
        """Runs Gfarm's own programs, as its administrator."""
        return self.machine.run(command, timeout)

    @staticmethod
    def become(user: str) -> str:
        """The beginning of a command of another user."""
        return f"setpriv --reuid={user} --regid={user} --clear-groups env HOME={home(user)} USER={user}"

    def push(self, program: str) -> str:
        """Copies a program of the folder `peer` into the machine; answers where it is."""
        path = f"{FOLDER}/{program}"
        if not self.machine.exists(path):
            self.machine.push(PROGRAMS / program, path)
        return path

    def put(self, text: bytes, path: str, host: str = "fs1", copies: int = 1) -> None:
        """Makes a file of these bytes with a replica at a gfsd, or at both."""
        self.machine.push_bytes(text, f"{FOLDER}/put")
        more = f" && gfrep -q -D {next(name for name in GFSDS if name != host)} {path}" if copies > 1 else ""
        self.run(f"gfreg -h {host} {FOLDER}/put {path}{more}; code=$?; rm {FOLDER}/put; exit $code", 120)

    def replicas(self, path: str) -> list[str]:
        """The gfsds that have a file."""
        return sorted(self.run(f"gfwhere {shlex.quote(path)}").split())

    @contextmanager
    def fuse(self, at: str = FUSE, options: str = "") -> Iterator[str]:
        """A mount of gfarm2fs for the body."""
        # Debian's kernel has FUSE built in, the debug kernel has not.
        self.machine.run(f"grep -qw fuse /proc/filesystems || modprobe fuse; mkdir -p {at}; gfarm2fs {at} {options}")
        try:
            yield at
        finally:
            self.machine.run(f"umount {at}")


_OF: WeakKeyDictionary[Lab, Gfarm] = WeakKeyDictionary()


def start(lab: Lab, persistent: bool = False) -> Gfarm:
    """The servers in the lab's machine: those of the test before if they will do. They end when the modules are
    unloaded that the file's tests share; `persistent` ones, and those of a test that shares nothing, end with it."""
    running = _OF.pop(lab, None)
    lasts = loaded.of(lab).shared and not persistent
    if running and not running.gone:
        if lasts:
            _OF[lab] = running
            return running
        running.stop()
    fresh = Gfarm(lab.server, persistent)
    if lasts:
        _OF[lab] = fresh
    (lab.defer_to_unload if lasts else lab.defer)(fresh.stop)
    fresh.start()
    return fresh
