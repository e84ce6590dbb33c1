# SPDX-License-Identifier: GPL-2.0
"""The Python tools that the tests need (pytest, ruff, mypy, shellcheck), of one version everywhere.

They live in a virtual environment in the cache, made once for each interpreter from `requirements.txt`, whose hashes
pip checks. Nothing is installed into the machine's own Python.
"""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from kdir import cache, config

REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
PIP = ("install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:")


class VenvError(Exception):
    """The environment cannot be made; the text says how to help."""


def folder() -> Path:
    """The folder of the environment of this interpreter and these requirements."""
    parts = REQUIREMENTS.read_bytes() + f"{sys.version}{os.path.realpath(sys.executable)}".encode()
    return config.cache_dir() / f"venv-{hashlib.sha256(parts).hexdigest()[:12]}"


def _make(part: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "venv", str(part)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise VenvError(f"{sys.executable} makes no virtual environment (apt-get install python3-venv): {made.stdout}")
    # Not by its own name: the folder is renamed when it is whole.
    done = subprocess.run([str(part / "bin/python"), "-B", "-m", "pip", *PIP, "-r", str(REQUIREMENTS)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise VenvError(f"pip: {done.stderr.strip()}")


def ensure() -> Path:
    """The environment's interpreter; the first call makes the environment."""
    try:
        return cache.made_once(folder(), "installing pytest, ruff, mypy and shellcheck", _make) / "bin/python"
    except VenvError as why:
        print(f"pytools: {why}", file=sys.stderr)
        raise SystemExit(1) from None
