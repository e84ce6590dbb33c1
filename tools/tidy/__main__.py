# SPDX-License-Identifier: GPL-2.0
"""tidy: the house rules that a program can check, each under the name that a review cites.

    python3 tools/tidy              every rule over every tracked file; last line 'N passed, N failed'
    python3 tools/tidy --unsafe     the inventory of unsafe blocks by folder
"""
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import documents
import imports
import language
import rules
import rust
import users

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def tracked() -> list[pathlib.Path]:
    """Text files of the checkout that git tracks or would track, as paths relative to it."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split("\n")
    return [pathlib.Path(name) for name in sorted(set(listed)) if name and (REPOSITORY / name).is_file()]


def load(files: list[pathlib.Path]) -> list[rules.Source]:
    """Reads the files; what is not text has no place in the tree and fails a rule of its own."""
    return [rules.Source(file, (REPOSITORY / file).read_bytes()) for file in files]


def inventory(sources: list[rules.Source]) -> None:
    """Prints how many unsafe blocks, functions and impls each folder has."""
    counts: dict[str, int] = {}
    for source in sources:
        if source.path.suffix == ".rs":
            found = len(rust.unsafe_lines(source))
            folder = str(source.path.parent)
            counts[folder] = counts.get(folder, 0) + found
    for folder, count in sorted(counts.items()):
        print(f"{count:5}  {folder}")
    print(f"{sum(counts.values()):5}  in all")


def main() -> int:
    """Runs the rules and prints one line each; returns 0 only when all hold."""
    sources = load(tracked())
    if "--unsafe" in sys.argv[1:]:
        inventory(sources)
        return 0
    failed = 0
    every = rules.RULES + rust.RULES + imports.RULES + documents.RULES + language.RULES + users.RULES
    for rule in every:
        complaints = rule(sources)
        name = rule.__name__.replace("_", "-")
        for complaint in complaints[:20]:
            print(f"#   {complaint}")
        if len(complaints) > 20:
            print(f"#   ... and {len(complaints) - 20} more")
        failed += bool(complaints)
        print(f"{'not ok' if complaints else 'ok'} tidy.{name}")
    print(f"{len(every) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
