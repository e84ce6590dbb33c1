# SPDX-License-Identifier: GPL-2.0
"""The story that `make demo-ec` tells."""
from __future__ import annotations

import contextlib
import io

from vmlab import demo_ec, tier
from vmlab.checks import ok
from vmlab.demo_ec import Demo
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.story import Story

TIER = tier.ALL


@needs(machines=4, own_modules=True, disruptive=True, timeout=400)
def test_the_demo_loses_two_servers_and_nothing_else(lab: Lab) -> None:
    """The whole story in these machines: figures, a server that is replaced under load, and another one that dies."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        demo = Demo(lab, Story())
        demo_ec.chapters(demo, lambda: demo.story.begin(lab.client))
    for words in ("times.", "degraded: member 1 is missing", "checksums compared, all equal"):
        ok(words in said.getvalue(), said.getvalue()[-3000:])
