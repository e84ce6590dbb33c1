# SPDX-License-Identifier: GPL-2.0
"""The story that `make demo-rioc` tells."""
from __future__ import annotations

import contextlib
import io

from vmlab import demo_rioc, tier
from vmlab.checks import ok
from vmlab.demo_rioc import Demo
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.story import Story

TIER = tier.ALL


@needs(machines=3, own_modules=True, disruptive=True, timeout=400)
def test_the_demo_loses_a_server_and_nothing_else(lab: Lab) -> None:
    """The whole story in these machines: a copy on write, a lease of one of two clients, and a power failure."""
    said, demo = io.StringIO(), Demo(lab, Story())

    def begin() -> None:
        for client in demo.clients:
            demo.story.begin(client)
    with contextlib.redirect_stdout(said):
        demo_rioc.chapters(demo, begin)
    for words in ("is durable", "a lease excludes it", "all equal: nothing is lost", "clean"):
        ok(words in said.getvalue(), said.getvalue()[-3000:])
