# SPDX-License-Identifier: GPL-2.0
"""Unit tests of kdir; none of them makes or needs a root."""
