# SPDX-License-Identifier: GPL-2.0
"""Keeps virtual machines from using all processors while other stages run."""
import fcntl
import tempfile


class Hold:
    """A file that is locked while others use the processors; virtual machines are told of it (`vmlab run --hold`)."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="ferrofabric-hold-")     # noqa: SIM115 -- as long as this
        self.name = self._file.name
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """The processors are free."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
