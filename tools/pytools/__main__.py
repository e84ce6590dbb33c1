# SPDX-License-Identifier: GPL-2.0
"""`python3 tools/pytools` makes the environment if it is not there, and prints its interpreter.

`python3 tools/pytools MODULE ARGUMENT..` runs `python -m MODULE` in it: `python3 tools/pytools mypy`.
"""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytools  # noqa: E402

if sys.argv[1:]:
    python = str(pytools.ensure())
    os.execv(python, [python, "-B", "-m", *sys.argv[1:]])
print(pytools.ensure())
