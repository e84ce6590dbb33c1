# SPDX-License-Identifier: GPL-2.0
"""Rule for the imports of the two RTRS drivers: from the module down to the requests, and upwards only by name."""
import re
from collections.abc import Iterator

from rules import Source

# From the lowest layer to the highest: a file of one imports from its own and those before it.
LAYERS = ("io", "path", "session", "sysfs", "module")
# What a lower layer may know of a higher one: its owner, to which it reports, and settings of the module.
REPORTS = {
    # A completion belongs to a path, which it fails; `Connection::send` is the journey of a request.
    "rtrs/client/io/completion.rs": {"path::error::PathError"},
    "rtrs/client/io/connection.rs": {"path::error::PathError", "path::Path"},
    "rtrs/client/io/send.rs": {"path::connections::Connection", "path::error::PathError"},
    # A path tells its session that it is up, lost and free of requests; a module parameter.
    "rtrs/client/path.rs": {"session::Session", "session::quarantine::Number"},
    "rtrs/client/path/connect.rs": {"module"},
    # A session is in the module's list, and owns its files.
    "rtrs/client/session.rs": {"module::ModuleState", "sysfs::session::SessionFiles"},
    # A request belongs to the connection on which it came.
    "rtrs/server/io/receiver.rs": {"path::connections::Receiver", "path::error::PathError", "path::error::RequestError",
                                   "path::fence", "path::fence_message", "path::heartbeat"},
    "rtrs/server/io/reply.rs": {"path::connections::Receiver", "path::connections::KEY_MESSAGE_LEN",
                                "path::error::PathError"},
    "rtrs/server/io/request.rs": {"path::connections::Connections"},
    # A path belongs to a session, whose service gets its requests, and owns its files; a module parameter.
    "rtrs/server/path.rs": {"session::Session", "session::SessionService", "sysfs::PathFiles"},
    "rtrs/server/path/chunks.rs": {"session::Session"},
    "rtrs/server/path/connections.rs": {"session::Session"},
    "rtrs/server/path/heartbeat.rs": {"module"},
    "rtrs/server/path/info.rs": {"module"},
    # A session is in the module's list, and owns its files.
    "rtrs/server/session.rs": {"sysfs::PathFiles", "sysfs::SessionFiles"},
    "rtrs/server/session/table.rs": {"module::ModuleState"},
}
_USE = re.compile(r"^(?:pub(?:\([a-z ]*\))? )?use ([^;]+);", re.M)


def _items(tree: str) -> Iterator[str]:
    """The paths of a use tree without white space."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree
        return
    depth, item = 0, ""
    for letter in rest[:-1] + ",":
        if letter == "," and depth == 0:
            if item:
                yield from (head + path for path in _items(item))
            item = ""
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        item += letter


def _layer(path: str) -> int | None:
    name = path.split("::", maxsplit=1)[0]
    return LAYERS.index(name) if name in LAYERS else None


def upward(source: Source) -> Iterator[str]:
    """What a file of a driver imports from a higher layer of its driver, from there on."""
    side = "::".join(source.path.parts[1:2])
    own = _layer(source.path.with_suffix("").parts[2])
    code = re.sub(r"//.*", "", source.text)
    for match in _USE.finditer(code):
        for item in _items(re.sub(r"\s+", "", match.group(1))):
            prefix = f"crate::{side}::"
            layer = _layer(item[len(prefix):]) if item.startswith(prefix) else None
            if own is not None and layer is not None and layer > own:
                yield item[len(prefix):].removesuffix("::self")


def imports_run_one_way(sources: list[Source]) -> list[str]:
    """A lower layer knows a higher one only by the reports above; none of them is there without need."""
    found = {str(s.path): set(upward(s)) for s in sources
             if s.path.suffix == ".rs" and s.path.parts[0] == "rtrs" and s.path.parts[1] in ("client", "server")
             and len(s.path.parts) > 2}
    extra = [f"{path}: imports {item}" for path, items in found.items()
             for item in sorted(items - REPORTS.get(path, set()))]
    stale = [f"{path}: {item} is listed and not imported" for path, items in REPORTS.items()
             for item in sorted(items - found.get(path, set()))]
    return extra + stale


RULES = [imports_run_one_way]
