# SPDX-License-Identifier: GPL-2.0
"""`exec`: one script in fresh machines, its output as it comes, and the kernel's opinion afterwards."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vmlab import oracle
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `exec`."""
    parser.add_argument("commands", nargs="?", default="", help="shell commands for the client")
    parser.add_argument("--script", type=Path, help="a file of shell commands instead")
    parser.add_argument("--server", default="", metavar="COMMANDS",
                        help="with two machines: run these on the server first")
    parser.add_argument("--ko", type=Path, action="append", default=[], metavar="FILE",
                        help="a module to put into /ko (the working folder of the commands); repeatable")
    parser.add_argument("--machines", type=int, choices=(1, 2), default=1)
    parser.add_argument("--wires", type=int, choices=(1, 2), default=1)
    parser.add_argument("--smp", type=int, default=2)
    parser.add_argument("--memory", type=int, default=Spec.memory_mib, metavar="MIB")
    parser.add_argument("--icount", default="", metavar="ARG", help="QEMU's -icount, e.g. shift=3,sleep=off")
    parser.add_argument("--append", default="", help="more kernel arguments")
    parser.add_argument("--qemu-arg", action="append", default=[], metavar="ARG",
                        help="one more argument for every QEMU; {name} becomes the machine's name; repeatable")
    parser.add_argument("--sets", default="ours,c", help="module sets in the image, default %(default)s")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--dmesg", action="store_true", help="print the kernel log of the commands too")
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def _part(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _report(machine: Machine, mark: int, dmesg: bool) -> bool:
    """Prints what the kernel said; whether it complained."""
    if not machine.alive:
        print(f"# {machine.name} is gone; console:\n{machine.console_tail()}")
        return True
    if dmesg:
        for _sequence, text in machine.kernel_log(mark):
            print(f"# {machine.name}: {text}")
    complaints = oracle.complaints(machine, mark)
    for text in complaints:
        print(f"# {machine.name} COMPLAINS: {text}")
    return bool(complaints)


def run(options: argparse.Namespace) -> int:
    """Returns the script's exit code; 1 if that was 0 but a kernel complained."""
    commands = options.script.read_text() if options.script else options.commands
    spec = Spec(machines=options.machines, wires=options.wires, smp=options.smp, memory_mib=options.memory,
                icount=options.icount, append=options.append, qemu_args=tuple(options.qemu_arg),
                sets=tuple(name for name in options.sets.split(",") if name),
                extra_modules=tuple(options.ko), accel=options.accel)
    with Lab(spec) as lab:
        marks = [machine.log_mark() for machine in lab.machines]
        code = 0
        try:
            for machine, text in ((lab.server, options.server), (lab.client, commands)):
                if text and code == 0:
                    result = machine.start_job(f"cd /ko\n{text}", options.timeout, _part).wait()
                    _part(result.out)
                    code = result.code
        finally:
            bad = [_report(machine, mark, options.dmesg)
                   for machine, mark in zip(lab.machines, marks, strict=True)]
    return code or int(any(bad))
