# SPDX-License-Identifier: GPL-2.0
"""Makes and uses the kernel build tree; see __main__.py."""
