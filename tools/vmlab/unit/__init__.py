# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the lab's own code: `python3 -m unittest discover -s tools/vmlab/unit -t tools`."""
