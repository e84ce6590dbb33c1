# SPDX-License-Identifier: GPL-2.0
"""The kernel's NFS server and client in one guest: an exported folder, and mounts that share no page cache.

No program of NFS takes part: a script tells the server's caches what rpc.mountd would, and mount(2) gets the address.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vmlab.checks import ok
from vmlab.machine import Machine

TCP, RDMA = "tcp", "rdma"
PORTS = {TCP: 2049, RDMA: 20049}
FOLDER, STATE, CACHES = "/run/nfs", "/proc/fs/nfsd", "/proc/net/rpc"
# Flags of an export: read only, no other user in the place of root, no check of subtrees, a number instead of the file
# system's, which a tmpfs does not have. The number 0 makes it the root of NFSv4.
FLAGS = 0x0001 | 0x0400 | 0x2000
NEVER = 2**31 - 1
THREADS = 8
# After its start the server grants nothing for so long, since clients of the one before might claim theirs; the
# shortest it takes.
GRACE_SECONDS = 10
START = f"""set -e
for module in nfsd nfsv4 rpcrdma; do modprobe $module; done
mkdir -p {FOLDER}; mount -t tmpfs nfs {FOLDER}; mount -t nfsd nfsd {STATE}
echo 'nfsd ADDRESS {NEVER} bench' > {CACHES}/auth.unix.ip/channel
echo 'bench {FOLDER} {NEVER} {FLAGS} 65534 65534 0' > {CACHES}/nfsd.export/channel
printf 'bench 1 \\\\x00000000 {NEVER} {FOLDER}\\n' > {CACHES}/nfsd.fh/channel
echo {GRACE_SECONDS} > {STATE}/nfsv4gracetime
echo -3 > {STATE}/versions      # that one asks for rpcbind
echo '{TCP} {PORTS[TCP]}' > {STATE}/portlist
echo {THREADS} > {STATE}/threads
echo '{RDMA} {PORTS[RDMA]}' > {STATE}/portlist
"""
MOUNT_SECONDS = 60.0


class Nfs:
    """The server, and mounts of it in the same machine."""

    def __init__(self, machine: Machine, address: str) -> None:
        self.machine, self.address = machine, address

    def start(self) -> None:
        """Starts the server, and waits until files can be opened. It ends with the machine."""
        self.machine.run(START.replace("ADDRESS", self.address), MOUNT_SECONDS)
        self.machine.run(f"echo > {FOLDER}/first")
        with self.mounted("/mnt/nfs", TCP) as folder:
            self.machine.run(f"cat {folder}/first", MOUNT_SECONDS)

    def put(self, local: str, name: str) -> None:
        """Exports a copy of a file."""
        self.machine.run(f"cp {local} {FOLDER}/{name}")

    def sent(self) -> int:
        """Bytes of files that the server has read for its clients."""
        rows = (line.split() for line in self.machine.read(f"{CACHES}/nfsd").splitlines())
        return next(int(row[1]) for row in rows if row[0] == "io")

    @contextmanager
    def mounted(self, at: str, transport: str) -> Iterator[str]:
        """A mount with a page cache of its own, for the body. Mounts that are there at once have the transport of the
        first one, whatever they ask for: the kernel takes their server for one."""
        self.machine.run(f"mkdir -p {at}; exec mount -i -t nfs4 {self.address}:/ {at} -o ro,vers=4.2,nosharecache,"
                         f"sec=sys,proto={transport},port={PORTS[transport]},addr={self.address},clientaddr={self.address}",
                         MOUNT_SECONDS)
        try:
            rows = (line.split() for line in self.machine.read("/proc/mounts").splitlines())
            options = next(row[3] for row in rows if row[1] == at)
            ok(f"proto={transport}," in options, f"{at} has {options}")
            yield at
        finally:
            self.machine.run(f"umount {at}")
