# SPDX-License-Identifier: GPL-2.0
"""hog.py MIB OVER: touches so much memory, each page with bytes of its own, and goes through it until the file OVER is
there, and once more. Prints how often; fails if a page is not what it was."""
import mmap
import os
import sys
import time

PAGE = 4096
SHIFTS = 511        # a page has 512 words of 8 bytes, and two are compared

pages, over_file = int(sys.argv[1]) * 256, sys.argv[2]
memory = mmap.mmap(-1, pages * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for n in range(pages):
    memory[n * PAGE:(n + 1) * PAGE] = (b"%8d" % n) * 512
rounds, over = 0, False
while not over:
    over = os.path.exists(over_file)
    for n in range(pages):
        at = n * PAGE + 8 * (rounds % SHIFTS)
        if memory[at:at + 16] != (b"%8d" % n) * 2:
            sys.exit(f"page {n} is not what it was")
        memory[at] = memory[at]
    rounds += 1
    time.sleep(0.0 if over else 0.5)        # it is not alone on the machine
print(rounds)
