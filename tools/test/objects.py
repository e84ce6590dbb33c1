# SPDX-License-Identifier: GPL-2.0
"""Checks on the built modules: protocol code must not be able to panic, wherever it was inlined; no function takes
much of the kernel's stack; the kernel can unwind its stack through each of them.

Drivers and the kernel's crate are not checked: they have additions and indexes whose checks the compiler leaves in.
"""
import json
import pathlib
import re
import subprocess
import tempfile

# The folders of the modules' sources.
SOURCES = ("gfarm_ra", "lib/block", "lib/chunk4k", "lib/common", "lib/kernel_ext", "lib/net", "lib/rdma", "lib/seglog",
           "lib/transfer", "lib/vfs", "rioc", "rnbd", "rnbd_ec", "rtrs", "samples", "samples/crc32_umr",
           "test/selftest", "test/test_device", "test/verbs_provider")


# What Kbuild says of a module: its name is the first word.
MODULE = re.compile(r"^\$\(eval \$\(call module,([\w-]+),", flags=re.MULTILINE)
# Functions of core that end in a panic, as relocations name them.
PANIC = re.compile(r"9panicking|unwrap_failed|expect_failed|len_mismatch|slice\w*_fail|panic_already")
# Says that what a file wires is pure; tidy asks for it.
PURE = "#![forbid(unsafe_code)]"


# Of the 16 KiB of a stack, which those share that call each other: `vmlab/tests/stack.py` measures them together.
FRAME_BYTES_MAX = 3072


def frames(disassembly: str) -> list[str]:
    """The functions that take more of the stack than one may."""
    wrong = []
    function = ""
    for line in disassembly.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = match[1]
        elif (match := re.search(r"\bsub\s+\$0x([0-9a-f]+),%rsp", line)) and int(match[1], 16) > FRAME_BYTES_MAX:
            wrong.append(f"{function} takes {int(match[1], 16)} bytes of the stack")
    return wrong


# A sort of core ends in a function that does not return, and that the kernel's objtool does not have on its list; how
# objtool was built is no fault of a module's.
KNOWN_LOST = re.compile(r"^\w+4core5slice4sort6shared9smallsort\w+\(\) falls through|^Rebuild with libopcodes")


def panics(disassembly: str) -> dict[str, list[str]]:
    """The addresses that refer to a function that panics, for each section."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in disassembly.splitlines():
        if match := re.match(r"Disassembly of section (\S+):$", line):
            section = match[1]
        elif "R_X86_64" in line and PANIC.search(line):
            found.setdefault(section, []).append(line.split(":")[0].strip())
    return found


def unwinds(warnings: str) -> list[str]:
    """Complaints of objtool about a module: mostly functions that it has not followed to their ends. The kernel cannot
    unwind a stack through the rest of such a function: whoever called it is missing in every trace."""
    return [line for line in re.findall(r"(?:warning|error): objtool: (\S.*)", warnings)
            if not KNOWN_LOST.search(line)]


def pure(repository: pathlib.Path) -> re.Pattern[str]:
    """Sources of pure code: each file that says so, with the folder that it wires, which is its own for a crate. The
    kernel's own containers are not among them."""
    folders = []
    for root in sorted(path for folder in SOURCES for path in (repository / folder).glob("*.rs")):
        if PURE in root.read_text(encoding="utf-8"):
            wired = root.with_suffix("")
            place = (wired if wired.is_dir() else root.parent).relative_to(repository)
            folders += [f"{place}/", str(root.relative_to(repository))]
    return re.compile("|".join(re.escape(folder) for folder in folders))


def blamed(lines: str, repository: str, protocol: re.Pattern[str]) -> list[str]:
    """Chains of inlined functions, innermost first, for each address at which protocol code may panic, by what
    `addr2line -a -i` has printed; and addresses that have no source."""
    wrong = []
    for block in re.split(r"^0x", lines, flags=re.MULTILINE)[1:]:
        places = [line.removeprefix(f"{repository}/") for line in block.splitlines()[1:]]
        ours = [place for place in places if not place.startswith("/")]
        if not places or places[0].startswith("??"):
            wrong.append(f"0x{block.split()[0]} has no source")
        elif any(protocol.match(place) for place in ours):
            wrong.append(f"{' in '.join(places)} can panic")
    return wrong


def _run(kdir: list[str], repository: pathlib.Path, *command: str) -> str:
    return subprocess.run([*kdir, "run", *command], cwd=repository, capture_output=True, text=True,
                          check=True).stdout


def _objtool(kdir: list[str], repository: pathlib.Path, module: pathlib.Path) -> str:
    """The words of objtool about a module, which is linked again as its build did: a build prints them only once."""
    name, folder = module.stem, module.parent
    command = (folder / f".{name}.o.cmd").read_text(encoding="utf-8")
    again = re.search(rf"(\S+/objtool/objtool .+) {re.escape(name)}\.o$", command, flags=re.MULTILINE)
    if not again:
        return f"warning: objtool: {name}() is not linked by a command of this shape"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        copy = f"{scratch}/{name}.o"
        script = f"cd {folder} && ld -r -z noexecstack -o {copy} @{name}.mod && SRCARCH=x86 {again[1]} {copy} 2>&1"
        return _run(kdir, repository, "sh", "-c", script)


def check(repository: pathlib.Path, kdir: list[str]) -> list[tuple[str, list[str]]]:
    """(name of the check, its complaints) for each object check."""
    paths = json.loads(subprocess.run([*kdir, "paths", "--json"], cwd=repository, capture_output=True, text=True,
                                      check=True).stdout)
    modules = sorted(pathlib.Path(paths["modules"]).glob("*.ko"))
    results = []
    names = {module.stem for module in modules}
    wanted = set(MODULE.findall((repository / "Kbuild").read_text(encoding="utf-8")))
    missing = sorted(f"{name}.ko is missing" for name in wanted - names)
    results.append(("every-module-is-built", missing if wanted else ["Kbuild names no module"]))
    protocol = pure(repository)
    for module in modules:
        disassembly = _run(kdir, repository, "objdump", "-dr", "--no-show-raw-insn", str(module))
        results.append((f"frames-of-{module.stem}-are-small", frames(disassembly)))
        sites = panics(disassembly)
        wrong = []
        for section, addresses in sites.items():
            lines = _run(kdir, repository, "addr2line", "-a", "-i", "-j", section, "-e", str(module), *addresses)
            wrong += blamed(lines, str(repository), protocol)
        results.append((f"proto-in-{module.stem}-cannot-panic", wrong))
        results.append((f"stacks-in-{module.stem}-unwind", unwinds(_objtool(kdir, repository, module))))
    for module in modules:
        info = _run(kdir, repository, "modinfo", str(module))
        lacks = [field for field in ("license:", "description:", "author:") if field not in info]
        results.append((f"{module.stem}-describes-itself", [f"modinfo has no {field}" for field in lacks]))
    return results
