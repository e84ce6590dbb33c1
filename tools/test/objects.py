# SPDX-License-Identifier: GPL-2.0
"""Checks on the built modules: what a peer's bytes can reach must not be able to panic."""
import json
import pathlib
import re
import subprocess

# The folders of the modules' sources.
SOURCES = ("kernel_ext", "block", "rdma", "rtrs", "rnbd", "samples", "selftest")


def _functions_with_panics(disassembly: str, wanted: re.Pattern[str]) -> list[str]:
    """Names of the functions matching `wanted` whose relocations refer to core::panicking."""
    found, current = [], None
    for line in disassembly.splitlines():
        if match := re.match(r"[0-9a-f]+ <(\S+)>:$", line):
            current = match[1]
        elif current and "R_X86_64" in line and "9panicking" in line and wanted.search(current):
            found.append(current)
            current = None
    return found


def _run(kdir: list[str], repository: pathlib.Path, *command: str) -> str:
    return subprocess.run([*kdir, "run", *command], cwd=repository, capture_output=True, text=True,
                          check=True).stdout


def check(repository: pathlib.Path, kdir: list[str]) -> list[tuple[str, list[str]]]:
    """(name of the check, its complaints) for each object check."""
    paths = json.loads(subprocess.run([*kdir, "paths", "--json"], cwd=repository, capture_output=True, text=True,
                                      check=True).stdout)
    modules = sorted(pathlib.Path(paths["modules"]).glob("*.ko"))
    results = []
    names = {module.stem for module in modules}
    wanted = {"kernel_ext", "block_ext", "rdma_rust", "rtrs-core", "rtrs-client", "rtrs-server", "rnbd-client",
              "rnbd-server", "kernel_ext_test", "rdma_test"}
    results.append(("every-module-is-built", sorted(f"{name}.ko is missing" for name in wanted - names)))
    for module in modules:
        if not module.stem.startswith(("kernel_ext", "rtrs", "rnbd")):
            continue
        text = _run(kdir, repository, "objdump", "-dr", "--no-show-raw-insn", str(module))
        panics = _functions_with_panics(text, re.compile(r"^(?!.*6kernel5alloc).*(5proto|11ferro_proto)"))
        # The kernel's own containers of protocol types are not protocol code.
        results.append((f"proto-in-{module.stem}-cannot-panic", [f"{name} can panic" for name in panics]))
    for module in modules:
        info = _run(kdir, repository, "modinfo", str(module))
        lacks = [field for field in ("license:", "description:", "author:") if field not in info]
        results.append((f"{module.stem}-describes-itself", [f"modinfo has no {field}" for field in lacks]))
    return results
