# SPDX-License-Identifier: GPL-2.0
"""The unit tests of the tools: the program that runs those of one folder, and what it has said."""
import pathlib
import re


def command(python: list[str], folder: pathlib.Path) -> list[str]:
    """Runs all in the folder. What they leave among temporary files fills the disk of who runs them often, so that the
    stage gives them a folder of its own for these, and looks into it afterwards."""
    return [*python, "-m", "unittest", "discover", "-s", str(folder), "-p", "*.py", "-t", str(folder.parent.parent)]


def counts(status: int, lines: list[str]) -> tuple[int, int, int]:
    """Reads the last lines of unittest: how many have passed, failed and been skipped; what it counts as run includes
    what was skipped."""
    ran = next((int(m[1]) for line in lines if (m := re.match(r"Ran (\d+) test", line))), 0)
    numbers = {word: int(n) for line in lines[-1:] for word, n in re.findall(r"(failures|errors|skipped)=(\d+)", line)}
    bad, skipped = numbers.get("failures", 0) + numbers.get("errors", 0), numbers.get("skipped", 0)
    if (status and not bad) or not ran:
        bad = max(bad, 1)
    return max(ran - bad - skipped, 0), bad, skipped
