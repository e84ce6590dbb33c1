# SPDX-License-Identifier: GPL-2.0
"""More open files of one mount than a process of gfmd has descriptors for."""
from __future__ import annotations

import json

from vmlab import gfarm_mount, gfarm_rows, tier
from vmlab.checks import eq, in_time
from vmlab.gfarm import FOLDER, Gfarm
from vmlab.gfarm_mount import Mount, mounted
from vmlab.gfarm_rows import FIRST
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.paths import figure

TIER = tier.ALL

# 5,000 in a long run.
FILES, DIGITS = tier.of(2000, 5000), 4
FEW_FILES, FEW_MAX = tier.of(250, 400), tier.of(90, 150)
# Far below each timeout: that of an open, or a read of a file whose descriptor was given back.
SECONDS = 5.0
# Opens files that stay open, reads every so many-th one at once, and then some of them again from the first on. Prints
# the errors by name, and the longest times of an open and of a read. Names that were listed are not looked up.
OPEN = """
import errno, json, os, resource, sys, time
folder, first, count, every, lists = sys.argv[1], *map(int, sys.argv[2:6])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
files, errors, wrong = {}, {}, []
slowest = [0.0, 0.0]
def timed(kind, work):
    began = time.monotonic()
    try:
        return work()
    except OSError as error:
        name = errno.errorcode[error.errno]
        errors[name] = errors.get(name, 0) + 1
    finally:
        slowest[kind] = max(slowest[kind], time.monotonic() - began)
def read(number):
    os.posix_fadvise(files[number], 0, 0, os.POSIX_FADV_DONTNEED)
    if timed(1, lambda: os.pread(files[number], 100, 0)) not in (None, b"%d" % number):
        wrong.append(number)
began = time.monotonic()
if lists:
    os.listdir(folder)
for number in range(first, first + count):
    file = timed(0, lambda: os.open(f"{folder}/{number}", os.O_RDONLY))
    if file is not None:
        files[number] = file
        if number % every == 0:
            read(number)
for number in list(files)[::count // 50]:
    read(number)
print(json.dumps([len(files), errors, wrong, *slowest, time.monotonic() - began]))
"""


def open_all(gfarm: Gfarm, mount: Mount, count: int, every: int, *, lists: bool) -> None:
    """Opens so many files, which stay open, and reads some of them: none fails, or waits for long."""
    gfarm.machine.push_bytes(OPEN.encode(), f"{FOLDER}/open.py")
    line = gfarm.run(f"exec python3 -I -S {FOLDER}/open.py {mount.at}/many {FIRST} {count} {every} {lists:d}", 240)
    opened, errors, wrong, *seconds = json.loads(line)
    stats = mount.stats()
    figure(f"{opened} open files, {errors}: an open took {seconds[0]:.2f} s at most, a read {seconds[1]:.2f} s, all "
           f"{seconds[2]:.0f} s; {stats['gfmd_close']} questions to close")
    eq((opened, errors, wrong), (count, {}, []), "open, errors, wrong contents")
    in_time(max(seconds[:2]) < SECONDS, f"an open, a read and all took {seconds} s")


@needs(machines=1, timeout=300, own_modules=True)
def test_thousands_of_files_are_open(vm: Lab) -> None:
    """More than have a descriptor at gfmd: each opens, and is read when it is."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    gfarm_rows.make_inodes(vm, gfarm, FILES, DIGITS)
    with mounted(gfarm, "actimeo=600") as mount:
        open_all(gfarm, mount, FILES, 100, lists=True)


@needs(machines=1, timeout=300, own_modules=True)
def test_a_gfmd_with_room_for_few_files(vm: Lab) -> None:
    """More files are open than max_open_files of gfmd.conf: each opens, and the log says once what to change."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    gfarm_rows.make_inodes(vm, gfarm, FEW_FILES, DIGITS, f"max_open_files {FEW_MAX}")
    mark = vm.server.log_mark()
    with mounted(gfarm) as mount:
        open_all(gfarm, mount, FEW_FILES, 10, lists=False)
    eq(len(vm.server.log_matches("raise max_open_files in gfmd.conf", mark)), 1, "lines that say so")
