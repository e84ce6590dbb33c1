# SPDX-License-Identifier: GPL-2.0
"""The commands of Documentation/gfarm.md, in a machine that has Gfarm's packages and mount.gfarm."""
from __future__ import annotations

from kdir import programs
from vmlab import docs, tier
from vmlab.checks import Failed, ge
from vmlab.gfarm import LITTLE_SPACE
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

BLOCKS = 6
# What the packages' installation makes of accounts. A machine of the lab has less space than gfsd wants by default.
ACCOUNTS = r"""
cp -a /etc/passwd /etc/group /etc/hosts /run/ 2> /dev/null
printf '_gfarmfs:x:901:901::/var/lib/gfarmfs:/bin/sh\n_gfarmmd:x:902:902::/var/lib/gfarmmd:/bin/sh\n' >> /etc/passwd
printf '_gfarmfs:x:901:\n_gfarmmd:x:902:\n' >> /etc/group
printf '127.0.0.1 localhost %s\n' "$(hostname)" >> /etc/hosts
"""
UNDO = """
pkill gfsd; pkill gfmd; cd; rm -f /etc/gfarm2.conf /etc/gfmd.conf ~/.gfarm_shared_key /etc/hosts; rm -rf /var/lib/gfarm*
cp -a /run/passwd /run/group /etc/; [ ! -e /run/hosts ] || cp -a /run/hosts /etc/
"""


@needs(machines=1, timeout=240, own_modules=True)
def test_the_chapter_for_administrators_is_true(vm: Lab) -> None:
    """Servers from Debian's packages, a mount by mount.gfarm, its figures."""
    machine = vm.server
    machine.push(programs.MOUNT_GFARM.build(), "/usr/sbin/mount.gfarm")
    machine.run(f"chmod 755 /usr/sbin/mount.gfarm; {ACCOUNTS}")
    vm.defer(machine.run, UNDO)
    vm.defer(machine.try_run, "umount /mnt/gfarm; mods -r; rm /usr/sbin/mount.gfarm")
    blocks = [block for block in docs.blocks("Documentation/gfarm.md") if block.place == "server"]
    ge(len(blocks), BLOCKS, "blocks of commands")
    for block in blocks:
        script = "\n".join(block.commands).replace("modprobe gfarm_ra", "mods ours gfarm_ra")
        script = script.replace("'admin_user root'", f"'admin_user root' '{LITTLE_SPACE}'")
        done = machine.try_run(f"set -ex; export HOME=/root\n{script}", 120)
        if done.code:
            raise Failed(f"{block.where}, code {done.code}:\n{done.out[-1500:]}")
