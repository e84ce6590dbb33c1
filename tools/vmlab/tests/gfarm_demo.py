# SPDX-License-Identifier: GPL-2.0
"""`make demo-gfarm` prints what Documentation/gfarm.md shows of it."""
from __future__ import annotations

import contextlib
import io
import time

from kdir import programs
from vmlab import demo_gfarm, docs, tier
from vmlab.checks import eq
from vmlab.demo_gfarm import Demo
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.story import Story

TIER = tier.ALL

PAGE = "Documentation/gfarm.md"


@needs(machines=1, timeout=240, own_modules=True)
def test_the_demo_prints_what_the_document_shows(vm: Lab) -> None:
    """The whole story in this machine; every piece of the transcript is in what it prints, but for the figures."""
    began, said = time.monotonic(), io.StringIO()
    with contextlib.redirect_stdout(said):
        demo = Demo(vm, Story(), programs.MOUNT_GFARM.build())
        # The machine is up, and may have been that of other tests.
        demo_gfarm.chapters(demo, lambda: demo.story.begin(vm.server))
        print(demo_gfarm.closing(time.monotonic() - began))
    shown = [block for block in docs.blocks(PAGE) if block.place == "printed"]
    eq(len(shown), 1, f"transcripts in {PAGE}")
    eq(docs.transcript_errors("\n".join(shown[0].lines), said.getvalue()), [], f"{PAGE} shows, and nothing prints")
