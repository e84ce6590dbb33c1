# SPDX-License-Identifier: GPL-2.0
"""The checkouts that have built: each has folders in the cache by its name, which go when it has gone."""
import hashlib
import os
import pathlib
import time

from . import cache, config

# A checkout that is not seen may be so for this process only, in a container that shares the cache.
KEPT_SECONDS = 2 * 24 * 3600


def name(path: pathlib.Path = config.REPOSITORY) -> str:
    """Names a checkout by its path."""
    return hashlib.sha256(str(path).encode()).hexdigest()[:8]


def use(folders: list[pathlib.Path], now: float | None = None) -> None:
    """Notes that this checkout builds, and removes what belongs to checkouts that are gone, from these folders."""
    noted = config.cache_dir() / "checkouts"
    noted.mkdir(parents=True, exist_ok=True)
    (noted / name()).write_text(f"{config.REPOSITORY}\n", encoding="utf-8")
    for note in noted.iterdir():
        path = pathlib.Path(note.read_text(encoding="utf-8").strip())
        age = (time.time() if now is None else now) - note.stat().st_mtime
        if age < KEPT_SECONDS or path.exists() or note.name != name(path):
            continue
        for found in [found for folder in folders for found in folder.glob(f"*-{note.name}*")]:
            cache.say(f"removing {found}: its checkout {path} is gone")
            os.unlink(found) if found.is_file() else cache.remove(found)
        note.unlink(missing_ok=True)
