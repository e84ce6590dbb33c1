# SPDX-License-Identifier: GPL-2.0
"""Many files of a Gfarm at once, by rows of gfmd's database and files of a gfsd's spool: by requests each would take
milliseconds.

    FOLDER/spool/fs1/data/00000000/00/00/03/E80000000000000000     inode 1000 of generation 0
"""
from __future__ import annotations

from vmlab.checks import until
from vmlab.gfarm import DATABASE, FOLDER, GFMD, Gfarm
from vmlab.lab import Lab

FIRST = 1000        # the number of the first inode, behind those of Gfarm itself
PSQL = f"$(echo /usr/lib/postgresql/*/bin)/psql -qAt -v ON_ERROR_STOP=1 -h {FOLDER}/{DATABASE} -U gfarm"
# gfmd reads them when it starts. Files without a byte need no replica.
ROWS = """
insert into INode select n, 0, 1, {size}, 33188, 'root', 'gfarmadm', 0, 0, 0, 0, 0, 0 from generate_series({0}, {1}) n;
insert into DirEntry select (select entryINumber from DirEntry where entryName = 'many'), '' || n, n
    from generate_series({0}, {1}) n;
"""
REPLICAS = "insert into FileCopy select n, 'fs1' from generate_series({0}, {1}) n;\n"
# Writes the number of each inode, as the spool has it.
SPOOL = """
import os, sys
folder, first, last, size = sys.argv[1], *map(int, sys.argv[2:5])
for number in range(first, last + 1):
    path = f"{folder}/data/{number >> 32:08X}/{number >> 24 & 255:02X}/{number >> 16 & 255:02X}/{number >> 8 & 255:02X}"
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/{number & 255:02X}{0:016X}", "w") as file:
        file.write(f"{number:0{size}}")
"""


def make_inodes(lab: Lab, gfarm: Gfarm, count: int, size: int = 0, conf: str = "") -> None:
    """Makes files in the folder `many`, whose names are their numbers from `FIRST` on, and so are their contents of
    `size` digits; gfmd is started again, with a line more in gfmd.conf."""
    last = FIRST + count - 1
    gfarm.run("gfmkdir /many")
    # gfmd writes to the database after it has answered.
    known = f"{PSQL} -c \"select count(*) from DirEntry where entryName = 'many'\" gfarm"
    until(lambda: gfarm.run(known) == "1\n", 20, "the database has the folder")
    gfarm.kill(lab, GFMD)
    rows = (ROWS + REPLICAS * bool(size)).format(FIRST, last, size=size)
    lab.server.push_bytes(rows.encode(), f"{FOLDER}/rows.sql")
    gfarm.run(f"{PSQL} -f {FOLDER}/rows.sql gfarm", 240)
    if size:
        spool = f"{FOLDER}/spool/fs1"
        write = f"python3 -I -S - {spool} {FIRST} {last} {size} <<'END'\n{SPOOL}\nEND"
        gfarm.run(f"{write}\nchown -R _gfarmfs: {spool}", 120)
    if conf:
        gfarm.run(f"echo '{conf}' >> /etc/gfmd.conf")
    gfarm.bring_up(GFMD)
