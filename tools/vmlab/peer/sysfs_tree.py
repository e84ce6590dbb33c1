# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest: prints as JSON what is below folders of sysfs: kind, mode, text of a file or target of a link.

    python3 sysfs_tree.py NAME=FOLDER...
"""
from __future__ import annotations

import json
import os
import sys


def entry(path: str) -> list[str]:
    """Kind, mode, and text or target."""
    if os.path.islink(path):
        return ["link", "", os.readlink(path)]
    mode = f"{os.stat(path).st_mode & 0o7777:o}"
    if os.path.isdir(path):
        return ["folder", mode, ""]
    try:
        with open(path, "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError as why:
        text = f"<{why.strerror}>"
    return ["file", mode, text]


def tree(name: str, folder: str) -> dict[str, list[str]]:
    """All entries, by their names below the folder."""
    found = {name: entry(folder)}
    for where, folders, files in os.walk(folder):
        for each in (*folders, *files):
            path = f"{where}/{each}"
            found[name + path[len(folder):]] = entry(path)
    return found


if __name__ == "__main__":
    entries: dict[str, list[str]] = {}
    for word in sys.argv[1:]:
        title, place = word.split("=", 1)
        entries.update(tree(title, place))
    print(json.dumps(entries))
