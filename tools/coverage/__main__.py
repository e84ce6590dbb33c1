# SPDX-License-Identifier: GPL-2.0
"""Shows the lines and functions of the modules that the tests reach.

    python3 tools/coverage                      all tests in virtual machines, and those of proto on the host
    python3 tools/coverage 'io.*' 'paths.*'     some of the tests in virtual machines, and those of proto
    python3 tools/coverage --no-host 'io.*'     only in virtual machines
    python3 tools/coverage --no-machines        only proto on the host

In virtual machines a plugin of QEMU writes down which code of the modules is executed; they are those of the stock
kernel, as built. On the host, cargo instruments `proto`. A line counts for a file if it was reached either way. The
functions of which nothing was reached are listed, by file; the list is kept in the cache, and its place printed.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import blocks
import lines

from kdir import cargo, config
from vmlab import plugin
from vmlab.machine import QEMU

PYTHON = [sys.executable, "-B"]
KDIR = [*PYTHON, "tools/kdir"]
# Modules that test others are not what is measured.
TESTS_OF_OTHERS = ("kernel_ext_test", "net_test", "vfs_test", "rdma_test", "rdma_test_device", "rust_rdma_ping",
                   "rust_rdma_datagram")
PACKAGES = ("ferrofabric-proto", "ferrofabric-replay")
MEASURED = re.compile(r"(?:(?:rtrs|rnbd|gfarm_ra|lib/rdma|lib/transfer|test/test_device)/proto|lib/common)/")
RUSTFLAGS = "-C instrument-coverage"


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def in_machines(patterns: list[str], labs: int, folder: pathlib.Path) -> lines.Reached:
    """Runs tests in virtual machines under the plugin, in so many labs at once. That some fail does not matter here; it
    is printed."""
    traces = folder / "traces"
    traces.mkdir()
    plugin.build(HERE / "translated.c", folder / "translated.so")
    qemu = folder / "qemu"
    plugged = f"file={folder}/translated.so,out={traces}"
    qemu.write_text(f'#!/bin/sh\nexec {QEMU} "$@" -plugin {plugged}\n', encoding="ascii")
    qemu.chmod(0o755)
    command = [*PYTHON, "tools/vmlab", "run", "--labs", str(labs), "--accel", "tcg,thread=multi", *patterns]
    subprocess.run(command, cwd=REPOSITORY, env=os.environ | {"VMLAB_QEMU": str(qemu)}, check=False)
    built = json.loads(_output(*KDIR, "paths", "--json"))["modules"]
    modules = [blocks.Module.read(path) for path in sorted(pathlib.Path(built).glob("*.ko"))
               if path.stem not in TESTS_OF_OTHERS]
    index = blocks.Index(modules)
    for trace in sorted(traces.iterdir()):
        index.mark(list(blocks.read(trace)))
    return lines.reached(modules, REPOSITORY)


def on_host(folder: pathlib.Path) -> lines.Reached:
    """Runs the tests of proto, instrumented, with the Debian root's cargo: its llvm fits its rustc."""
    profiles, target = folder / "profiles", folder / "target"
    environment = [f"RUSTFLAGS={RUSTFLAGS}", f"LLVM_PROFILE_FILE={profiles}/%p-%m.profraw",
                   f"CARGO_TARGET_DIR={target}"]
    # The crates that they need come by the host's cargo if there is one, with its settings.
    crates = folder / "crates"
    _output(*cargo.command(), "vendor", "--locked", "--manifest-path", "tools/Cargo.toml", str(crates))
    tests = ["cargo", "test", "--offline", "--locked", "--manifest-path", "tools/Cargo.toml",
             "--config", 'source.crates-io.replace-with="crates"', "--config", f'source.crates.directory="{crates}"',
             *(word for name in PACKAGES for word in ("-p", name))]
    # Kept outside: what cargo prints on standard output are messages, of which the programs' names are wanted.
    said = _output(*KDIR, "run", "env", *environment, *tests, "--no-run", "--message-format", "json")
    messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    programs = [message["executable"] for message in messages if message.get("executable")]
    subprocess.run([*KDIR, "run", "env", *environment, *tests], cwd=REPOSITORY, check=False)
    tool = _llvm_suffix()
    data = folder / "all.profdata"
    _output(*KDIR, "run", f"llvm-profdata{tool}", "merge", "-sparse", "-o", str(data),
            *(str(path) for path in profiles.glob("*.profraw")))
    report = _output(*KDIR, "run", f"llvm-cov{tool}", "export", "-format=lcov", f"-instr-profile={data}", programs[0],
                     *(word for program in programs[1:] for word in ("-object", program)))
    found = lines.lcov(report, REPOSITORY)
    return {file: rows for file, rows in found.items() if MEASURED.match(file)}


def _llvm_suffix() -> str:
    """The version that the names of llvm's programs end in."""
    names = _output(*KDIR, "run", "sh", "-c", "ls /usr/bin/llvm-cov-*").split()
    return "-" + names[-1].rpartition("-")[2]


def show(found: lines.Reached, report: pathlib.Path) -> None:
    """A line for each folder, and all functions that were not reached; both are kept in `report`."""
    folders: dict[str, list[int]] = {}
    missed: list[str] = []
    for file, rows in sorted(found.items()):
        counts = folders.setdefault(file.rpartition("/")[0], [0, 0])
        counts[0] += sum(rows.values())
        counts[1] += len(rows)
        missed += lines.unreached(file, rows, REPOSITORY)
    table = [f"{hit:6d} of {of:6d} lines {100 * hit / of:5.1f} %  {name}" for name, (hit, of) in folders.items()]
    hit, of = (sum(counts[part] for counts in folders.values()) for part in (0, 1))
    table.append(f"{hit:6d} of {of:6d} lines {100 * hit / max(of, 1):5.1f} %  in all")
    text = "\n".join([*table, f"{len(missed)} functions that nothing has reached:", *(f"  {name}" for name in missed)])
    report.write_text(f"{text}\n", encoding="utf-8")
    report.with_suffix(".json").write_text(json.dumps(found), encoding="utf-8")
    print(text)
    print(f"kept: {report}")


def main() -> int:
    """Runs what is asked for and prints what was reached."""
    parser = argparse.ArgumentParser(prog="coverage", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-host", action="store_true", help="without the tests of proto on the host")
    parser.add_argument("--no-machines", action="store_true", help="without virtual machines")
    parser.add_argument("-j", "--labs", type=int, default=2, metavar="N",
                        help="labs side by side (default: %(default)s)")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="tests in virtual machines; all")
    options = parser.parse_args()
    found: lines.Reached = {}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="coverage-", dir=config.cache_dir()))
    try:
        if not options.no_machines:
            found = in_machines(options.patterns, options.labs, folder)
        if not options.no_host:
            found = lines.merged(found, on_host(folder))
    finally:
        shutil.rmtree(folder)
    show(found, config.cache_dir() / "coverage.txt")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
