# SPDX-License-Identifier: GPL-2.0
"""The seed of a test that does things at random: a new one in each run, or the one that is given."""
from __future__ import annotations

import os
import random

VARIABLE = "VMLAB_SEED"


def fresh() -> random.Random:
    """A source of random numbers; its seed is printed with the variable that gives it again."""
    given = os.environ.get(VARIABLE)
    seed = int(given) if given else random.SystemRandom().randrange(1 << 32)
    print(f"# {VARIABLE}={seed}", flush=True)
    return random.Random(seed)
