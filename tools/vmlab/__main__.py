# SPDX-License-Identifier: GPL-2.0
"""`python3 tools/vmlab COMMAND`: makes the package importable by its name and hands over."""
import os
import sys

sys.dont_write_bytecode = True      # the checkout may be read-only
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from vmlab.cli import main

sys.exit(main())
