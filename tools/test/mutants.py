# SPDX-License-Identifier: GPL-2.0
"""Mutants of the protocol code: cargo-mutants changes one place at a time, and a test must fail.

    make mutants                                    those of the files that are examined
    make mutants ONLY='rtrs/proto/addr.rs'          those of any files

cargo-mutants copies the workspace that it mutates, and the workspace of tools/ includes sources from outside it. Hence
a copy in the cache has the same folders below a root of its own. The tests of tools/proto judge.

A mutant that no test can kill is listed in mutants.toml, with the reason.
"""
import dataclasses
import os
import pathlib
import re
import shutil
import tomllib

VERSION = "25.3.1"
EXCEPTIONS = pathlib.Path(__file__).with_name("mutants.toml")
# What the workspace of tools/ is made of.
FOLDERS = ("Documentation", "lib/chunk4k", "lib/common", "lib/kernel_ext/sync", "lib/rdma/proto", "lib/transfer/proto",
           "rtrs/proto", "rnbd/proto", "rnbd/sidecar", "gfarm_ra/proto", "samples/crc32_umr/proto",
           "samples/gga_halfblock", "test/test_device/proto",
           "tools/chunk4kfsck", "tools/ec", "tools/fuzz", "tools/gga-halfblock", "tools/history", "tools/libioc",
           "tools/loom", "tools/mount", "tools/pi-sidecar", "tools/proto", "rioc/proto", "rnbd_ec/proto", "lib/seglog",
           "tools/replay", "tools/rioc", "tools/rioc-device", "tools/rioc-server", "tools/rioc-tool", "tools/rnbd-ec",
           "tools/seglog", "tools/sim", "tools/sim-cache", "rioc/server")
FILES = ("lib/rdma/proto.rs", "lib/transfer/proto.rs", "rtrs/proto.rs", "rnbd/proto.rs", "rnbd/sidecar.rs",
         "gfarm_ra/proto.rs", "rioc/proto.rs", "rnbd_ec/proto.rs", "samples/crc32_umr/proto.rs",
         "test/test_device/proto.rs")
# Files of which each survivor was judged; the others may have survivors that were not.
EXAMINED = ("rnbd/proto/cache.rs", "rnbd/proto/io_state.rs", "rnbd/proto/admin_lock.rs", "rtrs/proto/availability.rs",
            "rtrs/proto/failover.rs", "rtrs/proto/invalidation.rs", "rtrs/proto/recovery.rs", "rtrs/proto/timeouts.rs")
# Tests that hang on a mutant have found it.
KILLED, SURVIVED, HUNG = 0, 2, 3
MEMBERS = re.compile(r"^(members|exclude) = \[([^]]*)]$", re.M)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change: the file, the source line before the change, and what the change is."""

    file: str
    line: str
    change: str

    def __str__(self) -> str:
        return f"{self.file}: {self.change}: `{self.line}`"


def install(cache: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    """The place of the program of our version, and the arguments of cargo that put it there."""
    root = cache / f"cargo-mutants-{VERSION}"
    return (root / "bin/cargo-mutants",
            ["install", "cargo-mutants", "--version", VERSION, "--locked", "--quiet", "--root", str(root)])


def _root_manifest(text: str) -> str:
    """The manifest of tools/ as that of the folder above."""
    def moved(match: re.Match[str]) -> str:
        folders = re.sub(r'"([^"]+)"', r'"tools/\1"', match[2])
        return f"{match[1]} = [{folders}]"
    return MEMBERS.sub(moved, text)


def copy(repository: pathlib.Path, target: pathlib.Path) -> None:
    """Makes the workspace anew in `target`."""
    shutil.rmtree(target, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(repository / folder, target / folder, ignore=shutil.ignore_patterns("target", "__pycache__"))
    for file in FILES:
        shutil.copy(repository / file, target / file)
    manifest = (repository / "tools/Cargo.toml").read_text(encoding="utf-8")
    (target / "Cargo.toml").write_text(_root_manifest(manifest), encoding="utf-8")
    shutil.copy(repository / "tools/Cargo.lock", target / "Cargo.lock")


def command(program: pathlib.Path, workspace: pathlib.Path, only: list[str]) -> list[str]:
    """The run over the files `only`, or over EXAMINED. The tests of tools/proto judge mutants of its crates as well."""
    # One folder of builds would be shared by copies that differ. What is built and run once is not optimised.
    words = ["env", "--unset=CARGO_TARGET_DIR", "CARGO_PROFILE_TEST_OPT_LEVEL=0", "CARGO_PROFILE_TEST_DEBUG=0",
             str(program), "mutants", "--dir", str(workspace), "--output", str(workspace), "--no-config",
             "--jobs", str(min(2, os.cpu_count() or 1)), "--no-times", "--cargo-arg=--locked",
             "--minimum-test-timeout", "120", "--test-package", "ferrofabric-proto"]
    for package in ("ferrofabric-proto", "lib/chunk4k", "ferro_proto", "rtrs_core"):
        words += ["--package", package]
    for file in only or EXAMINED:
        words += ["--file", f"**/{file}"]
    return words


def read(lines: str, workspace: pathlib.Path) -> list[Mutant]:
    """The mutants that a file of results lists."""
    found = []
    for text in lines.splitlines():
        if match := re.fullmatch(r"([^:]+):(\d+):\d+: (.*)", text):
            path = (workspace / match[1]).resolve()
            line = path.read_text(encoding="utf-8").splitlines()[int(match[2]) - 1]
            found.append(Mutant(str(path.relative_to(workspace.resolve())), line.strip(), match[3]))
    return found


def exceptions(text: str) -> dict[Mutant, str]:
    """The list of mutants that may survive, with reasons."""
    return {Mutant(entry["file"], entry["line"], entry["change"]): entry["why"]
            for entry in tomllib.loads(text).get("mutant", [])}


def judge(survivors: list[Mutant], excepted: dict[Mutant, str], files: set[str]) -> list[str]:
    """Complaints: survivors without a reason, and reasons, in the mutated `files`, for mutants that are killed."""
    wrong = [f"survives: {mutant}" for mutant in survivors if mutant not in excepted]
    stale = [mutant for mutant in excepted if mutant.file in files and mutant not in survivors]
    return wrong + [f"is killed, or not made any more; mutants.toml excepts it: {mutant}" for mutant in stale]


def results(workspace: pathlib.Path, status: int) -> tuple[int, list[str]]:
    """The number of mutants that were tested, and what is wrong."""
    if status not in (KILLED, SURVIVED, HUNG):
        return 0, [f"cargo-mutants has failed with status {status}: see {workspace}/mutants.out"]
    lists = {name: read((workspace / f"mutants.out/{name}.txt").read_text(encoding="utf-8"), workspace)
             for name in ("caught", "missed", "timeout")}
    tested = [mutant for mutants in lists.values() for mutant in mutants]
    if not tested:
        return 0, ["no mutant was made: is there such a file?"]
    excepted = exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
    return len(tested), judge(lists["missed"], excepted, {mutant.file for mutant in tested})
