# SPDX-License-Identifier: GPL-2.0
"""Rules for Rust files: where unsafe may stand, how it is argued, and how long a function is."""
import pathlib
import re
from collections import Counter

from rules import FUNCTION_LINES_MAX, Source, crate

# The abstractions; everything else is a driver, a sample or host code, and has no unsafe.
UNSAFE_FOLDERS = ("lib/kernel_ext", "lib/block", "lib/net", "lib/vfs", "lib/rdma", "lib/transfer",
                  "test/verbs_provider")
# Takes the place of the kernel for its lock-free types; takes a program's memory to the kernel; gets it from C.
UNSAFE_TOOLS = ("tools/libioc", "tools/loom", "tools/rioc-device")
# What drivers may promise to an abstraction: one line each.
UNSAFE_PROMISES = {
    ("rtrs/client/io/table.rs", "unsafe impl Unmapper for RequestTable {"),
    ("test/selftest/rdma/region.rs", "unsafe impl Unmapper for Unregistered<'_> {"),
    ("test/test_device/device/provider.rs", "unsafe impl Provider for TestDevice {"),
}
KERNEL_FOLDERS = ("gfarm_ra", "lib", "rioc", "rnbd", "rnbd_ec", "rtrs", "samples", "test")
_LAZY = re.compile(r"SAFETY: *(ffi|valid pointer|trivial|obvious|safe|ok|fine)\b[ .,]*$", re.I)


def _rust(sources: list[Source]) -> list[Source]:
    return [s for s in sources if s.path.suffix == ".rs"]


def _code_of(line: str) -> str:
    """The line without its comment and its strings: enough for counting braces and words."""
    line = re.sub(r"'(\\.|[^'\\])'", "' '", line)
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return line.split("//")[0]


def _in_folder(path: pathlib.Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def unsafe_lines(source: Source) -> list[int]:
    """Numbers of the lines that open an unsafe block, function, impl or trait."""
    return [n for n, line in enumerate(source.lines, 1)
            if re.search(r"\bunsafe\b(?!_)", _code_of(line)) and "unsafe_code" not in line
            and "unsafe_op_in_unsafe_fn" not in line and not re.search(r"\bunsafe extern \"C\" fn\(", line)]


def unsafe_only_in_abstractions(sources: list[Source]) -> list[str]:
    """Drivers carry out what proto decides, through safe abstractions."""
    return [f"{s.path}:{n}: {s.lines[n - 1].strip()[:80]}" for s in _rust(sources)
            if not _in_folder(s.path, (*UNSAFE_FOLDERS, *UNSAFE_TOOLS)) for n in unsafe_lines(s)
            if (str(s.path), s.lines[n - 1]) not in UNSAFE_PROMISES]


def drivers_see_no_bindings(sources: list[Source]) -> list[str]:
    """Raw bindings are visible to the abstractions only."""
    crates = "kernel_ext|block_ext|net_ext|vfs_ext|rdma|verbs_provider"
    pattern = re.compile(rf"\b(bindings::|use kernel::bindings|({crates})_sys)\b")
    return [f"{s.path}:{n}: {line.strip()[:80]}" for s in _rust(sources)
            if _in_folder(s.path, KERNEL_FOLDERS) and not _in_folder(s.path, UNSAFE_FOLDERS)
            for n, line in enumerate(s.lines, 1) if pattern.search(_code_of(line))]


def one_atomic(sources: list[Source]) -> list[str]:
    """Atomics of core and of the kernel crate have one door, which says which is for what (decision 0008)."""
    named = re.compile(r"\b(core|std|kernel)::(sync::atomic|intrinsics::atomic)\b")
    # A tree: `use core::{ ..., sync::atomic::..., }`, `use kernel::{ sync::{ atomic::..., } }`.
    tree = re.compile(r"^use (?:core|kernel)::\{[^;]*?\batomic\b[^;]*;", re.M)
    complaints = []
    for source in _rust(sources):
        if not _in_folder(source.path, KERNEL_FOLDERS) or source.path == pathlib.Path("lib/kernel_ext/sync/atomic.rs"):
            continue
        numbers = [n for n, line in enumerate(source.lines, 1) if named.search(_code_of(line))]
        numbers += [source.text.count("\n", 0, match.start()) + 1 for match in tree.finditer(source.text)]
        complaints += [f"{source.path}:{n}: {source.lines[n - 1].strip()[:80]}" for n in numbers]
    return complaints


def safety_comments_argue(sources: list[Source]) -> list[str]:
    """A SAFETY comment says why; the word 'valid pointer' alone is no reason."""
    return [f"{s.path}:{n}: {line.strip()[:80]}" for s in _rust(sources)
            for n, line in enumerate(s.lines, 1) if _LAZY.search(line)]


def proto_forbids_unsafe(sources: list[Source]) -> list[str]:
    """Every pure folder says so itself, in the file that wires it."""
    roots = [s for s in _rust(sources) if s.path.parts[0] != "tools"
             and (s.path.name == "proto.rs"
                  or str(s.path) in ("lib/chunk4k/chunk4k.rs", "lib/common/ferro_proto.rs", "rnbd/sidecar.rs",
                                     "lib/seglog/seglog.rs"))]
    return [f"{s.path}: no #![forbid(unsafe_code)]" for s in roots if "#![forbid(unsafe_code)]" not in s.text]


def _is_pure(path: pathlib.Path) -> bool:
    """The pure folders. What implements the kernel's traits for their types is left out of the host's build."""
    if _in_folder(path, ("lib/chunk4k", "lib/common", "lib/seglog")):
        return path.stem != "kernel_traits"
    return path.parts[0] != "tools" and ("proto" in path.parts or path.is_relative_to("rnbd/sidecar"))


def proto_is_pure(sources: list[Source]) -> list[str]:
    """No kernel, allocator, clock, lock or log in what decides."""
    pattern = re.compile(r"\b(kernel::|alloc::|std::|pr_(info|warn|err)!|static mut)")
    complaints = []
    for source in _rust(sources):
        if not _is_pure(source.path):
            continue
        for number, line in enumerate(source.lines, 1):
            if "#[cfg(test)]" in line:
                break
            if pattern.search(_code_of(line)):
                complaints.append(f"{source.path}:{number}: {line.strip()[:80]}")
    return complaints


COLUMNS_MAX = 100
# What cannot be broken: a row of a table, and a message that people search for.
_LONG_ANYWAY = re.compile(r'\s*(//[/!]? *\||"[^"]*"[,;)]*$)')


def line_length(sources: list[Source]) -> list[str]:
    """A line ends at column 100, as rustfmt has it; rustfmt lets comments, macros and strings be."""
    return [f"{s.path}:{n}: {len(line)} columns" for s in _rust(sources)
            for n, line in enumerate(s.lines, 1) if len(line) > COLUMNS_MAX and not _LONG_ANYWAY.match(line)]


def no_path_attributes(sources: list[Source]) -> list[str]:
    """A module's file is where its name says: `x.rs` and `x/`. Only host code names files of the kernel's crates."""
    return [f"{s.path}:{n}: {line.strip()}" for s in _rust(sources) if s.path.parts[0] != "tools"
            for n, line in enumerate(s.lines, 1) if re.search(r"#!?\[path\b", _code_of(line))]


def guards_are_made_lazily(sources: list[Source]) -> list[str]:
    """`then_some(X { .. })` makes its value in each case and ends it where it is not wanted: the guard of a lock
    unlocks what it has not locked. `then(|| ..)` is right for all types that do something at their end."""
    rust = [s for s in _rust(sources) if _in_folder(s.path, KERNEL_FOLDERS)]
    ends = {(crate(s.path), name) for s in rust for name in re.findall(r"^impl\b.* Drop for (\w+)", s.text, re.M)}
    found = []
    for source in rust:
        for made in re.finditer(r"\.then_some\(\s*([A-Z]\w*)", source.text):
            before = source.text[:made.start()]
            owners = re.findall(r"^ *impl\b(?:<[^{]*?>)? (?:[^{]* for )?(\w+)", before, re.M)
            name = owners[-1] if made[1] == "Self" and owners else made[1]
            if (crate(source.path), name) in ends:
                found.append(f"{source.path}:{before.count(chr(10)) + 1}: {made[0].strip()}")
    return found


# Programs whose work is what a pure folder offers, and what stands for the modules that rioc does not have yet.
_PROGRAMS = ("tools/chunk4kfsck/src", "tools/pi-sidecar/src", "tools/rioc/tests", "tools/rioc-device/src",
             "tools/rnbd-ec/src", "tools/seglog/tests/crash")
# Public for tests and the simulation, which look at a decision's parts.
_LOOKED_AT = {"io_ids"}


def proto_is_used(sources: list[Source]) -> list[str]:
    """What a pure folder offers a module or a program uses: what is only tested is not what runs."""
    files = {s.path: "\n".join(map(_code_of, s.lines)) for s in _rust(sources)
             if _in_folder(s.path, (*KERNEL_FOLDERS, *_PROGRAMS))}
    offers = re.compile(r"^ *pub (?:const )?(fn|const|static|struct|enum|trait|type) (\w+)", re.M)
    files_with = Counter(word for code in files.values() for word in set(re.findall(r"\w+", code)))
    found = []
    for path, code in files.items():
        if not _is_pure(path) and path.name != "proto.rs":
            continue
        # A type's own methods are no use of it; that a function here takes or gives it is one.
        here = Counter(re.findall(r"\w+", re.sub(r"\bimpl\b.*", "", code)))
        for match in offers.finditer(code):
            if here[match[2]] <= 1 and files_with[match[2]] <= 1 and match[2] not in _LOOKED_AT:
                number = code.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{number}: no module uses {match[1]} {match[2]}")
    return found


def function_length(sources: list[Source]) -> list[str]:
    """A function is read at one glance: at most 70 lines."""
    complaints = []
    for source in _rust(sources):
        for start, length, name in _functions(source):
            if length > FUNCTION_LINES_MAX:
                complaints.append(f"{source.path}:{start}: {name} has {length} lines")
    return complaints


def _functions(source: Source) -> list[tuple[int, int, str]]:
    """(first line, number of lines, name) of each function with a body, by counting braces."""
    found, stack, depth, waiting = [], [], 0, None
    for number, line in enumerate(source.lines, 1):
        code = _code_of(line)
        if waiting is None and (match := re.search(r"\bfn (\w+)", code)):
            waiting = (number, match[1])
        for char in code:
            if char == "{":
                if waiting:
                    stack.append((*waiting, depth))
                    waiting = None
                depth += 1
            elif char == "}":
                depth -= 1
                if stack and stack[-1][2] == depth:
                    first, name, _ = stack.pop()
                    found.append((first, number - first + 1, name))
            elif char == ";" and waiting and depth == (stack[-1][2] + 1 if stack else depth):
                waiting = None
    return found


def no_panicking_shortcuts(sources: list[Source]) -> list[str]:
    """Kernel code answers an error; it does not unwrap, assert at run time or leave stubs."""
    pattern = re.compile(r"(\.unwrap\(\)|\.expect\([^)]|\bpanic!|\btodo!|\bunimplemented!|\bunreachable!|\bdbg!)")
    complaints = []
    for source in _rust(sources):
        if not _in_folder(source.path, KERNEL_FOLDERS) or source.path.stem == "tests":
            continue
        for number, line in enumerate(source.lines, 1):
            if "#[cfg(test)]" in line:
                break
            if pattern.search(_code_of(line)) and "const" not in line:
                complaints.append(f"{source.path}:{number}: {line.strip()[:80]}")
    return complaints


def no_dead_files(sources: list[Source]) -> list[str]:
    """A Rust file that neither a `mod` nor the Kbuild names is not compiled, whatever it promises."""
    built = {word for s in sources if str(s.path) == "Kbuild" for word in re.findall(r"[\w/]+", s.text)}
    # A crate that no module of the kernel has yet is in a manifest of the host.
    modules = {word for s in sources if s.path.name == "Cargo.toml"
               for word in re.findall(r'^path = "[^"]*/(\w+)\.rs"', s.text, re.M)}
    for source in _rust(sources):
        for match in re.finditer(r"\bmod (\w+);", source.text):
            modules.add(match[1])
        for match in re.finditer(r'#\[path = "([^"]+)"\]', source.text):
            modules.add(pathlib.Path(match[1]).stem)
            modules.add(pathlib.Path(match[1]).parent.name)
    complaints = []
    for source in _rust(sources):
        if not _in_folder(source.path, KERNEL_FOLDERS):
            continue
        name = source.path.parent.name if source.path.name == "mod.rs" else source.path.stem
        if name not in modules and str(source.path.with_suffix("")) not in built:
            complaints.append(f"{source.path}: no `mod {name};` anywhere")
    return complaints


RULES = [unsafe_only_in_abstractions, drivers_see_no_bindings, one_atomic, guards_are_made_lazily,
         safety_comments_argue, proto_forbids_unsafe, proto_is_pure, proto_is_used, line_length, no_path_attributes,
         function_length, no_panicking_shortcuts, no_dead_files]
