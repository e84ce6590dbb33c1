# SPDX-License-Identifier: GPL-2.0
"""The laboratory: one to four machines, and one or two wires between them.

    client  eth0 == wire 0 == eth0  server        10.0.0.1 / fd00::1   rxe0   10.0.0.2 / fd00::2
            eth1 == wire 1 == eth1                10.0.1.1             rxe1   10.0.1.2

With one machine and no wire, `client` and `server` are the same machine, and rxe0 sits on a dummy
interface with 10.0.0.1. A wire is a stream over a unix socket on which the client's QEMU listens, so the
server may die and come back; when the client has to be booted again, so has the server. (Datagram sockets
would not care, but carry half as much: their queue holds ten frames, and QEMU spins when it is full.)
With more machines, `server2` 10.0.0.3 and `server3` 10.0.0.4, there is such a stream for each of them, and a hub
in the client's QEMU makes one wire of all: each machine reaches each other one.
"""
from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vmlab import accel, assets, image, modsets, snapshot
from vmlab.channel import MachineGone
from vmlab.machine import MEMORY_MIB, CommandFailed, Hardware, Machine, disk_args, unique_folder

MTU = 9000      # makes rxe choose an RDMA MTU of 4096
# With merged buffers virtio-net takes its pages from a page pool, and rxe gives pages of a pool back in a way that can
# stop the processor: Documentation/failover.md, "With rxe".
NIC = f"virtio-net-pci,host_mtu={MTU},mrg_rxbuf=off"
SETUP_SECONDS = 120.0
BOOT_TRIES = 3
NAMES = ("client", "server", "server2", "server3")


@dataclass(frozen=True)
class Spec:
    """The parts that a lab is to be made of; labs of equal spec can stand in for each other.

    `disk_mib` gives each machine a disk /dev/vda that survives its power failures. `nvme` are namespaces of an NVMe
    disk of as many MiB, as the arguments of QEMU's nvme-ns: such machines boot every time.
    `icount` is the argument of QEMU's -icount (which needs single-threaded emulation). `qemu_args` go to every
    machine; "{name}" in them becomes the machine's name. `extra_modules` appear under /ko in the guest.
    """

    machines: int = 2
    wires: int = 1
    smp: int = 2
    memory_mib: int = MEMORY_MIB
    disk_mib: int = 64
    nvme: tuple[str, ...] = ()
    icount: str = ""
    append: str = ""
    qemu_args: tuple[str, ...] = ()
    sets: tuple[str, ...] = ("ours", "c")
    extra_modules: tuple[Path, ...] = field(default=())
    accel: str | None = None

    @property
    def title(self) -> str:
        """A few words for people."""
        shape = f"{self.machines} machine{'s' * (self.machines > 1)}"
        if self.machines > 1:
            shape += f", {self.wires} wire{'s' * (self.wires > 1)}"
        return f"{shape}, {self.smp} cpus"


class Lab:
    """The machines of one spec. Use as a context manager, or call `boot` and `close`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.modules = "ours"       # the set that tests of the product load
        self.assets = assets.find()
        self.image = image.build(self.assets)
        self._modules_disk = modsets.archive(self.assets, self.image, spec.sets)
        extra: tuple[str, ...]
        if spec.icount:
            accelerator, extra = "tcg,thread=single", ("-icount", spec.icount)
        else:
            accelerator, extra = accel.choose(self.image, spec.accel), ()
        self.accel = accelerator
        self.woken = False      # all machines, when they were powered on last
        self.folder = unique_folder(run_base())
        self.machines: list[Machine] = []
        self._cleanups: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._shared_cleanups: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        for index, name in enumerate(NAMES[:spec.machines]):
            args = tuple(arg.replace("{name}", name) for arg in (*extra, *spec.qemu_args))
            args += self._disk_args(name)
            hardware = Hardware(spec.smp, spec.memory_mib, accelerator, f"vmlab.name={name} {spec.append}", args)
            self.machines.append(Machine(name, self.folder / name, self.image, hardware, self._net_args(index)))

    def _wires(self) -> range:
        return range(self.spec.wires if self.spec.machines > 1 else 0)

    def _wire_path(self, wire: int, server: int) -> Path:
        """The socket of a server's end of a wire; `server` counts from 1."""
        return self.folder / f"wire{wire}.{server}"

    def _wire_paths(self) -> list[Path]:
        return [self._wire_path(wire, server) for wire in self._wires() for server in range(1, self.spec.machines)]

    def _net_args(self, index: int) -> list[str]:
        args: list[str] = []
        for wire in self._wires():
            args += self._wire_args(wire, index)
            args += ["-device", f"{NIC},netdev=wire{wire},id=nic{wire},mac=52:54:00:00:0{wire}:0{index + 1}"]
        return args

    def _wire_args(self, wire: int, index: int) -> list[str]:
        """A machine's end of a wire: the stream, or in the client the hub of all of them."""
        def stream(name: str, server: int) -> list[str]:
            listens = "off" if index else "on"
            path = self._wire_path(wire, server)
            return ["-netdev", f"stream,id={name},server={listens},addr.type=unix,addr.path={path}"]
        if index or self.spec.machines == 2:
            return stream(f"wire{wire}", index or 1)
        args = ["-netdev", f"hubport,id=wire{wire},hubid={wire}"]
        for server in range(1, self.spec.machines):
            name = f"wire{wire}.{server}"
            args += [*stream(name, server), "-netdev", f"hubport,id=port{wire}.{server},hubid={wire},netdev={name}"]
        return args

    def _disk_args(self, name: str) -> tuple[str, ...]:
        """The machine's own disk is the first, so it is /dev/vda."""
        path = self.folder / f"{name}.disk"
        with open(path, "wb") as disk:
            disk.truncate(self.spec.disk_mib << 20)
        return (*disk_args("disk", path, read_only=False), *disk_args("modules", self._modules_disk, read_only=True),
                *self._nvme_args(name))

    def _nvme_args(self, name: str) -> tuple[str, ...]:
        args = ["-device", "nvme,id=nvme,serial=lab"] if self.spec.nvme else []
        for number, namespace in enumerate(self.spec.nvme):
            path = self.folder / f"{name}.nvme{number}"
            with open(path, "wb") as disk:
                disk.truncate(self.spec.disk_mib << 20)
            args += ["-blockdev", f"driver=file,node-name=nvme{number},filename={path}",
                     "-device", f"nvme-ns,bus=nvme,drive=nvme{number},{namespace}"]
        return tuple(args)

    # -- life ----------------------------------------------------------------------------------------------

    @property
    def client(self) -> Machine:
        """The machine that maps disks."""
        return self.machines[0]

    @property
    def server(self) -> Machine:
        """The machine that exports disks, or the first one that does; the client itself in a lab of one."""
        return self.machines[min(1, len(self.machines) - 1)]

    @property
    def servers(self) -> list[Machine]:
        """All machines that export disks."""
        return self.machines[1:] or self.machines

    @property
    def server_address(self) -> str:
        """The server's address on wire 0."""
        return self.address(self.server, 0)

    def address(self, machine: Machine, wire: int, family: int = 4) -> str:
        """A machine's address on a wire."""
        number = self.machines.index(machine) + 1
        return f"10.0.{wire}.{number}" if family == 4 else f"fd00:0:0:{wire}::{number}"

    @property
    def saved(self) -> bool:
        """Whether every machine can wake instead of booting."""
        return all(snapshot.State.of(machine, self._set_up_script(machine)).ready for machine in self.machines)

    def boot(self) -> float:
        """Boots every machine and brings the wires up; returns the seconds it took."""
        began = time.monotonic()
        self._power_on(self.machines)
        return time.monotonic() - began

    def _power_on(self, machines: list[Machine]) -> None:
        """Boots these machines; emulation fails now and then, so a boot that hangs or dies is tried again."""
        for attempt in range(1, BOOT_TRIES + 1):
            if self.client in machines:
                for path in self._wire_paths():
                    path.unlink(missing_ok=True)
            try:
                self._try_power_on(machines)
                return
            except (MachineGone, CommandFailed) as why:
                print(f"# boot {attempt} of {BOOT_TRIES} failed: {why}", flush=True)
                for machine in machines:
                    print(f"# console of {machine.name}:\n{machine.console_tail(8)}", flush=True)
                    machine.power_off()
        raise MachineGone(f"no lab after {BOOT_TRIES} boots, see {self.folder}")

    def _try_power_on(self, machines: list[Machine]) -> None:
        """Wakes each machine from its saved state, or boots and saves it."""
        states = {machine.name: snapshot.State.of(machine, self._set_up_script(machine)) for machine in machines}
        for machine in machines:
            states[machine.name].start(machine)
            self._await_wires(machine)
        for machine in machines:
            self._make_ready(machine, states[machine.name])
        self.woken = all(state.woken for state in states.values())
        for machine in machines:
            machine.run("tar -C / -xf /dev/lab-modules", SETUP_SECONDS)
            for module in self.spec.extra_modules:
                machine.push(module, f"/ko/{module.name}")
        self.greet()

    def _make_ready(self, machine: Machine, state: snapshot.State) -> None:
        """Waits for the agent; a machine that was booted is set up and saved."""
        if state.woken:
            state.wait_awake(machine)
            return
        machine.wait_ready()
        machine.set_up(self._set_up_script(machine), SETUP_SECONDS)
        state.save(machine)

    def _await_wires(self, machine: Machine) -> None:
        """Waits until the listening ends are there, for the other end tries only once."""
        deadline = time.monotonic() + 20
        while machine is self.client and not all(path.exists() for path in self._wire_paths()):
            if time.monotonic() > deadline or not machine.alive:
                raise MachineGone(f"{machine.name}: QEMU does not listen, see {machine.folder}/qemu.log")
            time.sleep(0.02)

    def _set_up_script(self, machine: Machine) -> str:
        """Gives a freshly booted machine its addresses and RDMA links."""
        lines = ["set -e", f"hostname {machine.name}", "modprobe rdma_rxe", "modprobe rdma_cm"]
        if self.spec.machines == 1:
            lines += ["modprobe dummy numdummies=0", "ip link add eth0 type dummy"]
        else:
            lines += ["modprobe virtio_net"]
        for wire in range(max(1, self.spec.wires) if self.spec.machines > 1 else 1):
            four, six = (self.address(machine, wire, family) for family in (4, 6))
            lines += [f"ip link set eth{wire} mtu {MTU}", f"ip addr add {four}/24 dev eth{wire}",
                      f"ip -6 addr add {six}/64 dev eth{wire} nodad", f"ip link set eth{wire} up",
                      f"rdma link add rxe{wire} type rxe netdev eth{wire}"]
        return "\n".join(lines)

    def greet(self) -> None:
        """Resolves the addresses once, so that no test's first connection pays for it."""
        for wire in self._wires():
            for server in filter(lambda server: server.alive, self.servers):
                address = self.address(server, wire)
                self.client.run(f"ping -c 1 -W 10 {address} || ping -c 3 -W 5 {address}", SETUP_SECONDS)

    def reboot(self, machine: Machine) -> None:
        """Power failure and return of one machine; with the client the server goes too."""
        machines = self.machines if machine is self.client else [machine]
        for each in machines:
            each.kill()
            each.reboots += 1
        self._power_on(machines)

    def close(self) -> None:
        """Powers everything off. The folder stays for its console logs; `forget` removes it."""
        for machine in self.machines:
            machine.power_off()

    def forget(self) -> None:
        """Removes the lab's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Lab:
        try:
            self.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()
        self.forget()

    # -- for tests -----------------------------------------------------------------------------------------

    def cut(self, wire: int = 0) -> None:
        """Cuts a wire at both ends; both guests see the carrier go."""
        for machine in self.machines:
            machine.set_link(wire, False)

    def silence(self, wire: int = 0) -> None:
        """Cuts a wire at the server's end: the client sees nothing, and nothing answers."""
        self.server.set_link(wire, False)

    def mend(self, wire: int = 0) -> None:
        """Joins a cut wire again."""
        for machine in self.machines:
            machine.set_link(wire, True)

    def defer(self, deed: Callable[..., Any], *arguments: Any) -> None:
        """Registers clean-up for the end of the test; the last one registered runs first."""
        self._cleanups.append((deed, arguments))

    def take_cleanups(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Hands the registered clean-ups to the runner, in the order to run them."""
        cleanups, self._cleanups = self._cleanups[::-1], []
        return cleanups

    def defer_to_unload(self, deed: Callable[..., Any], *arguments: Any) -> None:
        """Registers clean-up of what tests share with each other: for when the modules that they share are unloaded."""
        self._shared_cleanups.append((deed, arguments))

    def take_shared_cleanups(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The same as `take_cleanups` for those."""
        cleanups, self._shared_cleanups = self._shared_cleanups[::-1], []
        return cleanups


def run_base() -> Path:
    """The folder of sockets and logs of labs: short, because socket paths are limited."""
    base = os.environ.get("VMLAB_RUN") or f"{tempfile.gettempdir()}/vmlab-{os.getuid()}"
    Path(base).mkdir(parents=True, exist_ok=True)
    return Path(base)
