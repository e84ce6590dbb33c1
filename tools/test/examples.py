# SPDX-License-Identifier: GPL-2.0
"""Examples in the documentation of `rdma` that must not compile: what its types forbid safe code.

An example names the error that refuses it, as in Rust's own documentation: three backticks, `compile_fail,E0061`. It is
compiled as a module that uses the crate, and that error has to be the only one.
"""
import json
import pathlib
import re
import shlex
import subprocess

# A folder with examples, and what make has noted of a module that uses its crate.
USERS = {"lib/rdma": "test/selftest/.rdma_test_main.o.cmd"}
_BEGIN = re.compile(r"\s*//[/!] ```compile_fail,(E\d{4})$")
_LINE = re.compile(r"\s*//[/!] ?(?:# )?(.*)$")
# What the line of make says of its own source and of the files that it makes.
_OWN = re.compile(r"--(emit|out-dir)\b")


def examples(text: str) -> list[tuple[int, str, str]]:
    """(line, error, code) of each example of a source."""
    found = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not (begin := _BEGIN.match(line)):
            continue
        code = []
        for _, inner in lines:
            match = _LINE.match(inner)
            if not match or match[1] == "```":
                break
            code.append(match[1])
        found.append((number, begin[1], "\n".join(code) + "\n"))
    return found


def command(noted: str, folder: str) -> list[str]:
    """The compiler's line for a source from standard input that uses the same crates; `folder` gets what it makes."""
    line = next(line for line in noted.splitlines() if line.startswith("savedcmd_"))
    words = shlex.split(line.partition(":=")[2])
    kept, is_value = [], False
    for word in words[:-1]:
        if is_value or _OWN.match(word):
            is_value = word == "--out-dir"
        else:
            kept.append(word)
    own = ["--emit=metadata", "--out-dir", folder, "--error-format=json", "--crate-name=example", "-"]
    return ["env", "RUSTC_BOOTSTRAP=1", *kept, *own]


def errors(printed: str) -> set[str]:
    """The codes of the errors that the compiler has printed; `?` for one without a code."""
    said = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    wrong = [one for one in said if one["level"] == "error" and not one["message"].startswith("aborting due to")]
    return {(one["code"] or {}).get("code", "?") for one in wrong}


def check(repository: pathlib.Path, kdir: list[str]) -> list[tuple[str, list[str]]]:
    """(name of the check, its complaints) for each folder with examples; the modules are built."""
    paths = json.loads(subprocess.run([*kdir, "paths", "--json"], cwd=repository, capture_output=True, text=True,
                                      check=True).stdout)
    modules = pathlib.Path(paths["modules"])
    made = modules / "examples"
    made.mkdir(exist_ok=True)
    results = []
    for folder, noted in USERS.items():
        compiler = command((modules / noted).read_text(encoding="utf-8"), str(made))
        wrong, count = [], 0
        for source in sorted((repository / folder).rglob("*.rs")):
            for number, error, code in examples(source.read_text(encoding="utf-8")):
                count += 1
                done = subprocess.run([*kdir, "run", *compiler], cwd=repository, input=code, capture_output=True,
                                      text=True, check=False)
                refused = errors(done.stderr)
                if not done.returncode:
                    wrong.append(f"{source.relative_to(repository)}:{number} compiles")
                elif refused != {error}:
                    why = sorted(refused) or done.stderr.splitlines()[:3]
                    wrong.append(f"{source.relative_to(repository)}:{number} is refused with {why}")
        results.append((f"examples-of-{folder}-are-refused", wrong if count else [f"{folder} has no example"]))
    return results
