# SPDX-License-Identifier: GPL-2.0
"""The layers of each driver, and what one of them may know of a higher one."""

Layers = tuple[str, ...]

# By folder, from the lowest layer to the highest: a file imports from its own layer and those before it.
DRIVERS: dict[str, Layers] = {
    "rtrs/client": ("trace", "io", "path", "session", "sysfs", "module"),
    "rtrs/server": ("quota trace", "io", "path", "session", "sysfs", "listener module"),
    "rnbd/client": ("trace", "admin cache io_state limits", "protection queue retry", "session",
                    "device disk mapped_disk", "map sysfs"),
    "rnbd/server": ("identity log_limit", "store", "io protection", "export mapping removal",
                    "admin message_queue refusal session", "sysfs"),
    "rnbd/server/store": ("lease pages", "disk sector", "claim job", "blocks ended engine volume writes",
                          "files growth scrub", "client_queue"),
    "rnbd/sidecar": ("command inline_submit tuple", "group", "layout", "record", "superblock", "claim",
                     "ring sectors tickets", "pi_cache queue", "growth replay scrub", "online_scrub recovery store",
                     "idle"),
    "rioc/proto": ("span ticket", "wire", "answer message", "slot", "entry tree", "index", "body claim limits",
                   "medium", "log", "store"),
    "rnbd_ec": ("proto shown", "arrays device sysfs", "rnbd_ec"),
    "gfarm_ra": ("proto vfs", "cache net", "fs", "gfarm_ra"),
    "gfarm_ra/cache": ("admission counters handles in_flight inbox peer_timing peers place secret sums workers",
                       "endpoint message_pool owner resolvers", "data_qps membership responder", "chunk_read requester",
                       "attached", "node", "view"),
    "gfarm_ra/net": ("content page_source place ring stats user_key", "setup", "call descriptors login", "gfsd",
                     "batch hosts link naming", "reader stream", "client"),
    "gfarm_ra/fs": ("attributes cached options state", "file inode", "name", "directory", "mount"),
}
REPORTS: dict[str, set[str]] = {
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
    "rtrs/server/path/heartbeat.rs": {"module"},
    "rtrs/server/path/info.rs": {"module"},
    "rtrs/server/path/connections.rs": {"session::Session", "listener::refuse_pending"},
    # A session is in the module's list, owns its files, and refuses connections that came too early or too late.
    "rtrs/server/session.rs": {"sysfs::PathFiles", "sysfs::SessionFiles"},
    "rtrs/server/session/connect_backlog.rs": {"listener::refuse_pending"},
    "rtrs/server/session/table.rs": {"module::ModuleState"},
    # The sum over all sessions is the module's, and so is its limit.
    "rtrs/server/quota.rs": {"module::MAX_MEMORY_MIB", "module::ModuleState"},
    # A request belongs to a device, which it fails; its tuples are in a buffer of the session.
    "rnbd/client/protection.rs": {"device::Device", "session::TupleBuffers"},
    "rnbd/client/queue.rs": {"device::Device"},
    "rnbd/client/retry.rs": {"device::Device"},
    # A session tells its devices that it is lost and up, and asks the server about them.
    "rnbd/client/session.rs": {"device::Device"},
    "rnbd/client/session/watcher.rs": {"device::Asked", "device::Device"},
    # The port of a client's requests checks their tuples as the client's target does.
    "rnbd/server/store.rs": {"protection::Protection"},
    "rnbd/server/store/client_queue.rs": {"io::direction_of", "protection::Protection"},
    # An open device owns its mark of use, growth and scrub, and the ports whose requests wait for it.
    "rnbd/server/store/claim.rs": {"volume::Volume"},
    "rnbd/server/store/job.rs": {"client_queue::ClientQueue"},
    "rnbd/server/store/volume.rs": {"growth::Growing", "client_queue::ClientQueue", "scrub::Scrub"},
    # A log line names the session.
    "rnbd/server/protection.rs": {"session::Session"},
    # A mapping belongs to a session, and owns its files, as an export does.
    "rnbd/server/export.rs": {"sysfs"},
    "rnbd/server/mapping.rs": {"session::Session", "sysfs"},
    # The state of a node belongs to the node.
    "gfarm_ra/cache/attached.rs": {"node::Shared"},
    "gfarm_ra/cache/requester.rs": {"node::Limits"},
    # A file that is read belongs to the client of its mount.
    "gfarm_ra/net/reader.rs": {"client::Client"},
    "gfarm_ra/net/stream.rs": {"client::Client"},
}
