# SPDX-License-Identifier: GPL-2.0
"""The layers of each driver, and what one of them may know of a higher one."""

Layers = tuple[str, ...]

# By folder, from the lowest layer to the highest: a file imports from its own layer and those before it.
DRIVERS: dict[str, Layers] = {
    "rtrs/client": ("trace", "io", "path", "session", "sysfs", "module"),
    "rtrs/server": ("quota trace", "io", "path", "session", "sysfs", "listener module"),
    "rnbd/client": ("trace", "admin cache io_state limits", "protection queue retry", "session",
                    "device disk mapped_disk", "map sysfs"),
    "rnbd/server": ("log_limit", "io", "store", "device", "sysfs", "session"),
    "rnbd/server/io": ("client", "backlog plain protection target", "requests"),
    "rnbd/server/device": ("export identity", "mapping removal"),
    "rnbd/server/session": ("admin", "message_queue", "look"),
    "rnbd/server/store": ("lease pages", "disk sector", "claim job", "blocks ended engine mend volume writes",
                          "files growth scrub", "client_queue"),
    "rnbd/sidecar": ("command inline_submit tuple", "group", "layout", "record", "superblock", "claim",
                     "ring sectors tickets", "pi_cache queue", "growth replay scrub", "online_scrub recovery store",
                     "idle"),
    "rioc/proto": ("span ticket", "wire", "answer command message", "connect ioctl retry split", "slot",
                   "entry pages tree turns", "index", "body claim file_name limits", "medium", "log", "format store"),
    "rioc/client": ("lane", "session", "call", "device", "sysfs"),
    "rioc/server": ("files folders log_io memory message one_device", "medium", "log reading", "engine", "upkeep",
                    "store", "stores sysfs", "session"),
    "rnbd_ec": ("proto shown", "arrays device sysfs", "rnbd_ec"),
    "gfarm_ra": ("proto", "cache net", "fs", "gfarm_ra"),
    "gfarm_ra/cache": ("admission counters handles in_flight inbox message_qp peer_timing peers place secret sums "
                       "workers",
                       "endpoint message_pool owner resolvers", "data_qps membership responder", "chunk_read requester",
                       "attached", "node", "view"),
    "gfarm_ra/net": ("content page_source place ring stats user_key", "setup", "call descriptors login", "gfsd",
                     "batch hosts link naming waiting", "reader stream", "client"),
    "gfarm_ra/fs": ("attributes cached options state", "file inode", "name", "directory", "mount"),
    "rtrs/proto": ("addr connect_retry failover fence geometry heartbeat imm invalidation io_queues outage path "
                   "permit policy quarantine signal stats timeouts", "credit params recovery settings shortage wire",
                   "agreement availability device handshake info request",
                   "admission chunk_policy connect_backlog read_buffers", "budget"),
    "rnbd/proto": ("admin_lock answer_time boot flags io_state memory message_queue path_name path_validation "
                   "refusal retry slot told", "access cache control identity occasion submission", "doubt pi wire",
                   "device map", "known_disk message"),
    "gfarm_ra/proto": ("command conversation descriptors freshness gfsd idle key name outdated request setting xdr",
                       "error hosts operation", "attr auth id_map options", "gfm listing replica retry",
                       "closing gfmd gfs reclaim", "identity open_file question", "cache"),
    "gfarm_ra/proto/cache": ("address breaker excluded gap invalid owner pages series tags waiting "
                             "window",
                             "content fragment ibaddr peer read_table", "gossip have reassembly reply request wire",
                             "admission place requester rtt sums", "directory keep responder", "members",
                             "counter timings"),
    "lib/seglog": ("devices members seglog", "epoch",
                   "batch collect cursor identity layout log record superblock table", "fault segments source",
                   "chain free reading resync slots", "recovery",
                   "ending standing"),
    "rnbd_ec/device": ("memory stats tags work_queues", "one_by_one",
                       "acting core engine prepare queue reads rewrite submit upkeep writes", "announcing assembly"),
    "rnbd_ec/proto": ("asking budget group_commit progress", "array collector geometry packing", "codec", "command"),
    "lib/rdma": ("port_events proto rdma rdma_sys", "address_handle cm cq device memory qp"),
    "lib/rdma/qp": ("config drain origin owned recv_ring reserved status transport", "batch completion datagram",
                "callback restart"),
    "lib/transfer": ("proto rdma_transfer", "segments", "active", "received receiving sending"),
    "lib/block": ("block_ext block_ext_sys integrity major mq op", "bdev limits", "bio disk", "blocking"),
    "lib/kernel_ext": ("cpu erased errno file ida kernel_ext kernel_ext_sys lz4 memory miscdevice module pages percpu "
                       "random sync text workqueue xor", "ratelimit scatterlist sysfs", "crc param"),
    "lib/net": ("destination digest dns net_ext net_ext_sys tcp", "namespace"),
    "lib/vfs": ("active_refs attributes direct_read directory folios keyring mounted proc trace vfs_ext "
                     "vfs_ext_sys", "rcu_walk read", "namei", "opened_name", "file", "inode",
                     "context file_system super_block"),
    "test/test_device/device": ("cq execute mr network provider qp send_work step tables", "sysfs"),
    "test/test_device/proto": ("counts fabric fault gather key qp_state ring send_queue", "message", "engine"),
    "test/verbs_provider": ("dma_device memory netdev verbs_provider verbs_provider_sys", "request",
                       "callbacks handle registration"),
    "rtrs/client/path": ("connections error setup stale_connection stats",
                         "admission drain fence heartbeat registration resources", "connect queue_pair", "recovery"),
    "rtrs/client/io": ("invalidations postponed", "read_buffers request table transfer", "connection",
                       "completion prepare", "send", "submit"),
    "rtrs/client/session": ("answer paths routes settings", "multipath quarantine", "failover permit together", "admin",
                            "outage"),
    "rtrs/server/path": ("error state stats", "connections fence", "chunks heartbeat", "fence_message info",
                         "teardown", "work"),
    "rtrs/server/io": ("carriers tag", "request", "reply send_queue", "operation", "operation_queue receiver"),
    "rioc/proto/index": ("moving ranges restoring tickets unfiled", "data", "backing size", "copying"),
    "rioc/proto/log": ("assembly collecting filling room", "dumping"),
    "rioc/proto/store": ("changing claiming filing room", "copying"),
}
# The files of one folder that may all reach each other by their imports; and the folders that have more.
CIRCLE_MAX = 6
CIRCLES: dict[str, int] = {"rnbd/server/store": 10, "rnbd_ec/device": 10, "lib/seglog": 9,
                           "test/test_device/device": 9}
REPORTS: dict[str, set[str]] = {
    # A completion belongs to a path, which it fails; `Connection::send` is the journey of a request.
    "rtrs/client/io/completion.rs": {"path::error::PathError"},
    "rtrs/client/io/connection.rs": {"path::error::PathError", "path::Path"},
    "rtrs/client/io/send.rs": {"path::connections::Connection"},
    "rtrs/client/io/submit.rs": {"path::connections::Connection", "path::error::PathError"},
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
    "rtrs/server/path.rs": {"session::Session", "session::SessionService", "session::SharedService",
                             "sysfs::PathFiles"},
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
    "rnbd/client/queue/together.rs": {"device::Device"},
    "rnbd/client/retry.rs": {"device::Device"},
    # A session tells its devices that it is lost and up, and asks the server about them.
    "rnbd/client/session.rs": {"device::Device"},
    "rnbd/client/session/watcher.rs": {"device::Asked", "device::Device"},
    # An open device owns its mark of use, growth and scrub, and the ports whose requests wait for it.
    "rnbd/server/store/claim.rs": {"volume::Volume"},
    "rnbd/server/store/job.rs": {"client_queue::ClientQueue"},
    "rnbd/server/store/volume.rs": {"growth::Growing", "client_queue::ClientQueue", "scrub::Scrub"},
    # A session owns its files.
    "rioc/client/session.rs": {"sysfs"},
    # The state of a node belongs to the node.
    "gfarm_ra/cache/attached.rs": {"node::Shared"},
    "gfarm_ra/cache/requester.rs": {"node::Limits"},
    # A file that is read belongs to the client of its mount.
    "gfarm_ra/net/reader.rs": {"client::Client"},
    "gfarm_ra/net/stream.rs": {"client::Client"},
}
