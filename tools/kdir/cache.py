# SPDX-License-Identifier: GPL-2.0
"""Steps that are made once: a lock against a concurrent run, a rename against a broken one."""
import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Holds an exclusive lock on `path`; says so when it has to wait for another run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is at work on {path.stem}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """One line of progress, on standard error: standard output belongs to results."""
    print(f"  kdir: {text}", file=sys.stderr, flush=True)


def namespace() -> list[str]:
    """The beginning of a command that mounts: an ordinary user is root over that user's own and subordinate ids."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user", "--map-auto"]


def remove(path: pathlib.Path) -> None:
    """Removes a folder, also one whose files belong to an ordinary user's subordinate ids."""
    if not path.exists():
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        subprocess.run([*namespace(), "rm", "-rf", "--one-file-system", str(path)], check=True)


def made_once(target: pathlib.Path, what: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Returns `target`, made by `make(temporary folder)` and then renamed if it is not there yet.

    An interrupted run leaves only a `.part` folder, which the next run throws away.
    """
    if target.exists():
        return target
    with locked(target.with_name(f".{target.name}.lock")):
        if target.exists():
            return target
        part = target.with_name(f"{target.name}.part")
        remove(part)
        began = time.monotonic()
        say(f"{what} ...")
        make(part)
        part.rename(target)
        say(f"{what}: done in {time.monotonic() - began:.0f} s")
    return target
