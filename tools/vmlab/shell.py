# SPDX-License-Identifier: GPL-2.0
"""`make shell`: the two machines with everything loaded, and a prompt on the client."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    import readline  # noqa: F401  (line editing for input())
except ImportError:
    pass

from vmlab import rnbd
from vmlab.channel import AgentError, MachineGone
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

COMMAND_SECONDS = 24 * 3600.0
HELP = """
A line is run by the shell of the client; each line is a shell of its own (use `cd X && ...`).
    @server COMMAND    runs COMMAND on the server instead         @client COMMAND    the same for the client
    !cut [WIRE]        cuts a wire at both ends                   !mend [WIRE]       joins it again
    !kill server       power failure                              !boot server       and its return
    !push FILE [PATH]  copies a host file to the client           !help              this text
    exit               powers both off (so does the end of input)
Ctrl-C ends the running command."""


def _part(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _execute(machine: Machine, command: str) -> None:
    """Runs one line and shows its output as it comes."""
    job = machine.start_job(command, COMMAND_SECONDS, _part)
    try:
        while job.running:
            try:
                result = job.wait(3600)
            except KeyboardInterrupt:
                job.kill()
                continue
            break
        else:
            result = job.wait(1)
    except MachineGone as why:
        print(why)
        return
    _part(result.out)
    if result.code:
        print(f"[code {result.code}]")


def _lab_command(lab: Lab, words: list[str]) -> None:
    """Does what is done to the machines rather than in them."""
    machines = {machine.name: machine for machine in lab.machines}
    match words:
        case ["cut" | "mend" as deed, *rest]:
            (lab.cut if deed == "cut" else lab.mend)(int(rest[0]) if rest else 0)
        case ["kill", name] if name in machines:
            machines[name].kill()
        case ["boot", name] if name in machines:
            lab.reboot(machines[name])
        case ["push", source, *rest]:
            lab.client.push(Path(source), rest[0] if rest else f"/tmp/{Path(source).name}")
        case _:
            print(HELP)


def converse(lab: Lab) -> None:
    """The prompt; returns when the user has had enough."""
    print(HELP)
    machines = {machine.name: machine for machine in lab.machines}
    while True:
        try:
            line = input("client# ").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if line in ("exit", "quit", "logout"):
            return
        try:
            if line.startswith("!"):
                _lab_command(lab, line[1:].split())
            elif line.startswith("@"):
                name, _, command = line[1:].partition(" ")
                if name in machines:
                    _execute(machines[name], command)
                else:
                    print(f"no machine {name}; there are {', '.join(machines)}")
            elif line:
                _execute(lab.client, line)
        except (MachineGone, AgentError, OSError, ValueError) as why:
            print(why)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `shell`."""
    parser.add_argument("--modules", choices=("ours", "c"), default="ours", help="whose modules (default: %(default)s)")
    parser.add_argument("--wires", type=int, choices=(1, 2), default=2)
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def run(options: argparse.Namespace) -> int:
    """Boots, loads, maps a disk if that works, and gives the prompt."""
    print("Booting two machines...", flush=True)
    with Lab(Spec(wires=options.wires, accel=options.accel)) as lab:
        lab.modules = options.modules
        receive(lab)
    return 0


def receive(lab: Lab) -> None:
    """Loads the modules, maps a disk if that works, and gives the prompt."""
    rnbd.start(lab)
    print(f"The server exports its /dev/ram0 (64 MiB). Addresses: client 10.0.0.1, server 10.0.0.2"
          f"{' (second wire: 10.0.1.1, 10.0.1.2)' if lab.spec.wires == 2 else ''}. Logs: {lab.folder}")
    try:
        disk = rnbd.map_disk(lab)
        print(f"It is mapped here as {disk.path}.")
    except rnbd.MapRefused as why:
        print(f"It could not be mapped: {why}")
    print(f"Map it yourself: echo '{rnbd.request(lab)}' > /sys/class/rnbd-client/ctl/map_device")
    converse(lab)
