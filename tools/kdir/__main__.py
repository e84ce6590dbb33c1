# SPDX-License-Identifier: GPL-2.0
"""kdir: makes the build tree of the stock kernel and builds modules against it.

    python3 tools/kdir tree                 make everything up to the build tree, print its path
    python3 tools/kdir build [ARGUMENT..]   build this checkout's modules, one line of progress each
    python3 tools/kdir modules [ARGUMENT..] the same with make's own output (make arguments may follow)
    python3 tools/kdir install              install the modules for the running kernel (as root)
    python3 tools/kdir programs             build mount.gfarm, pi-sidecar, rnbd-ec, rioc and libioc, print where they
                                            are
    python3 tools/kdir doc                  rustdoc of the library crates
    python3 tools/kdir clean [--all]        remove what was built of this checkout, or all that is in the cache
    python3 tools/kdir cmodules             build the C rtrs and rnbd of the same kernel
    python3 tools/kdir run COMMAND..        run a command inside the Debian root
    python3 tools/kdir paths [--json]       where everything is
    python3 tools/kdir debug [COMMAND..]    make a kernel with KASAN, lockdep and kmemleak and this checkout's modules
                                            for it, and run COMMAND so that the lab uses them
    python3 tools/kdir update               look for a newer point release of the series
    python3 tools/kdir guests               make the root that the guests' programs come from, print its path, and
                                            fetch their kernel
    python3 tools/kdir guests-run COMMAND.. run a command inside that root
    python3 tools/kdir native [--guests]    status 0 if this host builds without a root (has the guests' programs)
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from kdir import cache, config, debug, install, modules, native, packages, programs, root, tree


def paths() -> dict[str, str]:
    """Places of everything; things that do not exist yet are named all the same."""
    return {"root": str(root.guests_path()), "kernel_version": packages.full_version(),
            "packages": str(packages.folder() / "pkgs"), "tree": str(tree.path()),
            "modules": str(modules.output()), "cmodules": str(modules.c_output()),
            "guest_packages": " ".join(config.GUEST_PACKAGES)}


def in_debug_kernel(command: list[str]) -> int:
    """Runs a command whose virtual machines have the debug kernel."""
    if not command:
        return 0
    return subprocess.run(command, env=os.environ | debug.environment(), check=False).returncode


def main() -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="kdir", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("tree", "install", "programs", "doc", "cmodules", "update", "guests"):
        commands.add_parser(name)
    commands.add_parser("clean").add_argument("--all", action="store_true")
    commands.add_parser("native").add_argument("--guests", action="store_true")
    commands.add_parser("paths").add_argument("--json", action="store_true")
    for name in ("build", "modules", "run", "guests-run", "debug"):
        commands.add_parser(name).add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command == "tree":
        print(tree.ensure())
    elif options.command == "modules":
        return modules.build(options.arguments)
    elif options.command == "build":
        native.hint()
        return modules.build_quietly(arguments=options.arguments)
    elif options.command == "install":
        return install.install()
    elif options.command == "programs":
        for program in programs.INSTALLED:
            print(program.build())
    elif options.command == "doc":
        return modules.build_quietly("rustdoc", ["RDOC=1", "modules"])
    elif options.command == "clean":
        cache.remove(config.cache_dir() if options.all else modules.output())
    elif options.command == "cmodules":
        print(modules.ensure_c())
    elif options.command == "guests":
        print(root.ensure_for_guests())
        packages.ensure()
    elif options.command == "native":
        native.hint()
        return 0 if native.usable() and (native.guests_usable() or not options.guests) else 1
    elif options.command == "run":
        return root.run(options.arguments, workdir=pathlib.Path.cwd(), check=False).returncode
    elif options.command == "guests-run":
        return root.run(options.arguments, root=root.ensure_for_guests(), check=False).returncode
    elif options.command == "debug":
        return debug.build() or in_debug_kernel(options.arguments)
    elif options.command == "update":
        packages.forget()
        cache.say(f"the archive has {packages.full_version()}")
    elif options.json:
        print(json.dumps(paths()))
    else:
        for name, value in paths().items():
            print(f"{name:16}{value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
