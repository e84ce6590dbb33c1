# SPDX-License-Identifier: GPL-2.0
"""`make demo-rioc`: objects of a server for two clients, whose machine dies and comes back, told as a story."""
from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kdir import programs
from vmlab import needs, oracle, story
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.story import Story

LOG = "/dev/vda"
# A server knows a client by the name of its session.
NAMES = ("one", "two")
STORES = "/sys/class/rioc-server/ctl"
SESSIONS = "/sys/class/rioc-client/ctl"
# A put is in the list once it has been acknowledged: what is in it must be there afterwards.
LOAD = """
: > /run/acknowledged
for number in $(seq 1 100000); do
	[ -e /run/enough ] && exit
	head -c $((number % 7 * 20000 + 1)) /dev/urandom > /run/load
	rioc put one 50:$number /run/load || exit
	echo "$number $(md5sum < /run/load)" >> /run/acknowledged
done
"""
VERIFY = """
while read number sum dash; do
	[ "$(rioc get one 50:$number | md5sum)" = "$sum  -" ] || echo "50:$number is another one"
done < /run/acknowledged
"""


@dataclass
class Demo:
    """The state that the chapters share."""

    lab: Lab
    story: Story

    @property
    def clients(self) -> list[Machine]:
        """The machines that use objects."""
        return [self.lab.client, *self.lab.servers[1:]]

    def load(self, machine: Machine) -> None:
        """The modules of the server, or of a client, and the program."""
        machine.push(programs.RIOC.build(), "/usr/bin/rioc")
        side = "server" if machine is self.lab.server else "client"
        machine.run(f"chmod 755 /usr/bin/rioc; mods ours rioc-{side}", 120)

    def add_store(self, options: str = "") -> None:
        """The store on the server's disk."""
        line = f"name=bb log={LOG} {options}".strip()
        self.story.do(self.lab.server, f"echo '{line}' > {STORES}/add_store")

    def begin(self) -> None:
        """Modules everywhere, the store, and a session of each client."""
        with ThreadPoolExecutor(len(self.lab.machines)) as pool:
            list(pool.map(self.load, self.lab.machines))
        self.add_store("mode=create force=1")
        for client, name in zip(self.clients, NAMES, strict=True):
            line = f"sessname={name} store=bb path=ip:{self.lab.server_address} fast_io_fail_tmo=off"
            self.story.do(client, f"echo '{line}' > {SESSIONS}/connect", timeout=120)
        self.story.do(self.lab.client, "rioc info one")

    def copy(self) -> None:
        """An object, and a copy that takes no room."""
        one, other = self.clients
        one.run("head -c 3000000 /dev/urandom > /run/file; cp /run/file /run/kept")
        self.story.do(one, "rioc put one 10:20 /run/file")
        before = self.blocks()
        self.story.do(one, "rioc cow one 10:20 11:20")
        added = self.blocks() - before
        ok(added <= 1, f"a copy takes {added} blocks")
        self.story.tell("3 MB are in two objects, and stored once.")
        self.story.do(one, "echo changed | rioc put one 10:20 --offset 1000000")
        eq(self.story.do(other, "rioc get two 11:20 | md5sum").split()[0], self.sum(one, "/run/kept"))
        self.story.tell("The copy is what the object was before, read by the other client.")
        self.story.do(other, "rioc ls two; rioc stat two 10:20")

    def blocks(self) -> int:
        """The blocks that the store has."""
        lines = self.lab.server.read(f"{STORES}/stores/bb/stats").splitlines()
        return int(dict(line.split() for line in lines)["blocks"])

    @staticmethod
    def sum(machine: Machine, file: str) -> str:
        """The checksum of a file."""
        return machine.run(f"md5sum {file}").split()[0]

    def lease(self) -> None:
        """One client has a lease, and the other one is kept away from its bytes."""
        one, other = self.clients
        command = "rioc lease one 10:20 --writer -- sh -c 'touch /run/held; until [ -e /run/go ]; do sleep 0.1; " \
                  "done; echo mine | rioc put one 10:20'"
        self.story.command(one.name, command)
        holder = one.start_job(command)
        until(lambda: one.exists("/run/held"), 30, "the lease is taken")
        said = self.story.do(other, "echo theirs | rioc put two 10:20 2>&1; true")
        ok("a lease excludes it" in said, said)
        said = self.story.do(other, "rioc get two 10:20 2>&1 >/dev/null; true")
        ok("a lease excludes it" in said, said)
        one.run("touch /run/go")
        holder.ok(60)
        eq(self.story.do(other, "rioc get two 10:20"), "mine\n")
        self.story.tell("The lease has ended with its command, and what was written under it is there.")

    def acknowledged(self) -> int:
        """How many puts of the load were acknowledged."""
        return int(self.lab.client.run("wc -l < /run/acknowledged"))

    def die(self) -> None:
        """The server's machine loses its power under load, and comes back with its disk."""
        one, other = self.clients
        load = one.start_job(LOAD)
        until(lambda: one.exists("/run/acknowledged") and self.acknowledged() > 8, 60, "puts are acknowledged")
        self.story.tell("A client puts objects and notes each that was acknowledged. The server loses its power.")
        self.lab.server.kill()
        until(lambda: other.read(f"{SESSIONS}/sessions/two/state") == "waiting", 90, "the clients know")
        before = self.acknowledged()
        self.story.do(other, f"cat {SESSIONS}/sessions/two/state")
        self.lab.reboot(self.lab.server)
        self.load(self.lab.server)
        self.add_store()
        self.story.answer("\n".join(self.lab.server.log_matches("of its log were followed", -1)))
        until(lambda: self.acknowledged() > before + 3, 120, "puts go on")
        one.run("touch /run/enough")
        load.ok(60)
        self.story.tell("The put that had waited has gone on, as have others: no program has seen an error.")

    def verify(self) -> None:
        """All that was acknowledged is there, and the log is as it was written."""
        one, other = self.clients
        eq(one.run(VERIFY, 300), "", "objects that came back different")
        eq(self.story.do(other, "rioc get two 10:20"), "mine\n")
        eq(self.story.do(other, "rioc get two 11:20 | md5sum").split()[0], self.sum(one, "/run/kept"))
        self.story.tell(f"{self.acknowledged()} objects that were acknowledged were read again, all equal: nothing is "
                        "lost.")
        self.story.do(self.lab.server, "rioc top -1")
        for client, name in zip(self.clients, NAMES, strict=True):
            self.story.do(client, f"echo sessname={name} > {SESSIONS}/disconnect")
        self.story.do(self.lab.server, f"echo bb > {STORES}/del_store")
        until(lambda: "in use" not in self.lab.server.run(f"rioc check {LOG} 2>&1; true"), 20, "the disk is free")
        self.story.do(self.lab.server, f"rioc check {LOG}")
        eq(json.loads(self.lab.server.run(f"rioc -o json check {LOG}"))["verdict"], "clean")


def chapters(demo: Demo, boot: Callable[[], object]) -> None:
    """The whole story in machines that `boot` brings up; raises at the first thing that is not as it should be."""
    told, lab = demo.story, demo.lab
    with told.chapter("A server and two clients, one wire"):
        told.tell(f"Booting three machines: modules written in Rust, kernel {lab.assets.kernel_version} as the "
                  "distribution ships it. The second client is the machine server2.")
        boot()
        baselines = [oracle.Baseline.take(client) for client in demo.clients]
        demo.begin()
    with told.chapter("An object, and a copy on write"):
        demo.copy()
    with told.chapter("Two clients and a lease"):
        demo.lease()
    with told.chapter("The server's machine dies, and comes back"):
        demo.die()
    with told.chapter("Is everything still there?"):
        demo.verify()
    with told.chapter("Taking everything down"):
        for machine in lab.machines:
            machine.run("mods -r", 120)
        told.part(baselines)
        told.tell("The clients' kernel logs are clean (no warning, no bug), and no module stayed.")


def tell(options: argparse.Namespace) -> None:
    """The story in machines of its own."""
    lab = Lab(needs.shape(machines=3, smp=1, accel=options.accel))
    story.tell(lab, lambda told: chapters(Demo(lab, told), lab.boot))


def closing(seconds: float) -> str:
    """The last line of a story that ended well."""
    return (f"\nDone in {seconds:.0f} s: objects of two clients, whose server lost its power and nothing else.\n"
            "Your own store: Documentation/rioc.md. Speed in figures: make bench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `demo-rioc`."""
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if the story ended well."""
    return story.perform(lambda: tell(options), closing)
