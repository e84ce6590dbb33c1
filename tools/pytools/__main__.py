# SPDX-License-Identifier: GPL-2.0
"""`python3 tools/pytools` makes the environment if it is not there, and prints its interpreter.

`python3 tools/pytools TOOL ARGUMENT..` runs one of its tools: `python3 tools/pytools ruff check tools`.
"""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytools

python = pytools.ensure()
if sys.argv[1:]:
    tool, *arguments = sys.argv[1:]
    # The scripts beside the interpreter name the folder in which they were made; only shellcheck is a program.
    line = [str(python.with_name(tool))] if tool == "shellcheck" else [str(python), "-B", "-m", tool]
    os.execv(line[0], [*line, *arguments])
print(python)
