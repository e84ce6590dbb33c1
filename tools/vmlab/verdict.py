# SPDX-License-Identifier: GPL-2.0
"""The verdict of a worker on a test, and the reasons for a second attempt."""
from __future__ import annotations

OK, NOT_OK, SKIP = "ok", "not ok", "skip"
LATER = "later"     # it was too slow beside other labs, and runs again when they have ended

TIME, CHANCE, EMULATION = "a limit of time was missed", "a chance that is documented", "the emulation broke"

AGAIN = "again"     # the folder of the second attempt's logs, in that of the first
