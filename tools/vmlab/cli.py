# SPDX-License-Identifier: GPL-2.0
"""The command line: `python3 tools/vmlab COMMAND`."""
from __future__ import annotations

import argparse
import sys

from vmlab import budgets, demo, demo_ec, demo_gfarm, demo_rioc, experiment, prepare, runner, shell
from vmlab.assets import AssetError
from vmlab.channel import MachineGone


def main() -> int:
    """Parses the arguments and runs one command; the exit status is the command's."""
    if sys.argv[1:2] == ["worker"]:     # a process of `run`, in the environment of tools/pytools
        from vmlab import worker
        return worker.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="vmlab", description="throw-away machines on private wires")
    commands = parser.add_subparsers(dest="command", required=True)
    exec_parser = commands.add_parser("exec", help="run shell commands in fresh machines")
    experiment.add_arguments(exec_parser)
    exec_parser.set_defaults(run=experiment.run)
    run_parser = commands.add_parser("run", help="run tests")
    runner.add_arguments(run_parser)
    run_parser.set_defaults(run=runner.run)
    demo_parser = commands.add_parser("demo", help="a disk over RDMA, told as a story")
    demo.add_arguments(demo_parser)
    demo_parser.set_defaults(run=demo.run)
    gfarm_parser = commands.add_parser("demo-gfarm", help="a Gfarm that the kernel mounts and reads, told as a story")
    demo_gfarm.add_arguments(gfarm_parser)
    gfarm_parser.set_defaults(run=demo_gfarm.run)
    ec_parser = commands.add_parser("demo-ec", help="a disk over three servers, of which one dies, told as a story")
    demo_ec.add_arguments(ec_parser)
    ec_parser.set_defaults(run=demo_ec.run)
    rioc_parser = commands.add_parser("demo-rioc", help="objects of a server that dies and comes back, told as a story")
    demo_rioc.add_arguments(rioc_parser)
    rioc_parser.set_defaults(run=demo_rioc.run)
    shell_parser = commands.add_parser("shell", help="a prompt on the client of a pair with everything loaded")
    shell.add_arguments(shell_parser)
    shell_parser.set_defaults(run=shell.run)
    prepare_parser = commands.add_parser("prepare", help="make the guests' image and save the usual machines")
    prepare.add_arguments(prepare_parser)
    prepare_parser.set_defaults(run=prepare.run)
    budgets_parser = commands.add_parser("budgets", help="what the kept complete runs have used, for budgets.py")
    budgets_parser.set_defaults(run=budgets.run)
    options = parser.parse_args()
    try:
        status: int = options.run(options)
        return status
    except (AssetError, MachineGone) as why:
        print(f"vmlab: {why}", file=sys.stderr)
        return 1
