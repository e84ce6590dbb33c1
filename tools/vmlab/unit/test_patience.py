# SPDX-License-Identifier: GPL-2.0
"""Limits of time on a host that is slow or busy."""
from __future__ import annotations

import os
import time
import unittest
from contextlib import nullcontext
from unittest import mock

from vmlab import checks, keeper, patience


class PatienceTest(unittest.TestCase):
    """Limits follow the host."""

    def test_limits_grow_with_the_load_and_with_the_pace_of_the_host(self) -> None:
        """Whichever is more, also when it is learned after a wait has begun."""
        with mock.patch.dict(os.environ), mock.patch.object(patience.Pace, "now", 1.0):
            os.environ.pop("VMLAB_PATIENCE", None)
            with mock.patch("os.getloadavg", lambda: (0.0, 0.0, 0.0)):
                patience.Pace.learn([2 * patience.WAKE_SECONDS])
                self.assertAlmostEqual(patience.scaled(10), 20)
                patience.Pace.learn([0.5 * patience.WAKE_SECONDS])
                self.assertAlmostEqual(patience.scaled(10), 10)
                now = iter([0.0, 0.5, 1.5, 3.5])    # the beginning, and before each deed
                values = iter([False, False, "late"])

                def slower() -> object:
                    patience.Pace.learn([3 * patience.WAKE_SECONDS])
                    return next(values)
                with mock.patch("time.monotonic", lambda: next(now)):
                    self.assertEqual(checks.until(slower, 1, "it", pause=0), "late")
            with mock.patch("os.getloadavg", lambda: (4.0 * (os.cpu_count() or 1), 0.0, 0.0)):
                self.assertAlmostEqual(patience.scaled(10), 40)

    def test_a_deadline_is_put_off_on_a_host_that_became_busy(self) -> None:
        """The deadline moves by what the limit has grown, and no further."""
        for factors, ends in ((iter([1.0, 30.0]), False), (iter([1.0, 1.0]), True)):
            grown = mock.patch.object(keeper, "scaled", lambda seconds, factors=factors: seconds * next(factors, 30.0))
            with grown, self.assertRaises(keeper.TimedOut) if ends else nullcontext(), keeper.Deadline(0.05):
                time.sleep(0.2)


if __name__ == "__main__":
    unittest.main()
