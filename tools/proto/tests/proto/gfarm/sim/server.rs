// SPDX-License-Identifier: GPL-2.0

//! Models of gfmd and gfsd, which parse requests and make replies of bytes.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use proto::gfarm::{
    attr::FileType,
    command::*,
    xdr::{
        DecodeError,
        Decoder,
        Encoder, //
    },
};

use super::files::{
    size,
    Files,
    HOSTS, //
};

type Parsed<T> = Result<T, DecodeError>;

/// The number of descriptors of a process of gfmd.
const FDS_MAX: usize = 64;

/// A process of gfmd.
#[derive(Debug, Default)]
struct Process {
    key: Vec<u8>,
    /// File, and the connection to a gfsd that has it open.
    fds: BTreeMap<u32, (usize, Option<usize>)>,
}

/// The server's side of a connection.
#[derive(Debug, Default)]
pub(crate) struct ServerConn {
    /// 0 is gfmd.
    pub(crate) server: usize,
    pub(crate) received: Vec<u8>,
    /// The messages of the authentication so far.
    greeted: u32,
    pid: Option<u64>,
    /// The start of gfmd that the process is of.
    boot: u32,
    current: Option<usize>,
    fd: Option<u32>,
    /// A request of the compound has failed.
    skips: bool,
    /// The object of each open descriptor of a gfsd.
    open: BTreeMap<u32, (usize, usize)>,
}

/// The state that all servers share.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) files: Files,
    /// Up or not, 0 is gfmd.
    pub(crate) up: [bool; HOSTS + 1],
    /// The number of times that gfmd was started.
    pub(crate) boot: u32,
    /// The connections to gfsds whose processes have stopped: gfmd keeps what they have open.
    pub(crate) silent: BTreeSet<usize>,
    processes: BTreeMap<u64, Process>,
    next_pid: u64,
}

/// Makes a reply: an error, and what follows it.
fn reply(error: u32, fields: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = [0; 1024];
    let mut to = Encoder::new(&mut out);
    to.u32(error);
    if error == 0 {
        fields(&mut to);
    }
    let len = to.finish().unwrap();
    out[..len].to_vec()
}

fn file_of(name: &[u8]) -> Option<usize> {
    (0..super::files::FILES).find(|file| name == format!("f{file}").as_bytes())
}

impl Servers {
    pub(crate) fn new(files: Files) -> Self {
        let up = [true; HOSTS + 1];
        let processes = BTreeMap::new();
        Self {
            files,
            up,
            boot: 1,
            silent: BTreeSet::new(),
            processes,
            next_pid: 1,
        }
    }

    /// Returns how many processes gfmd has made.
    pub(crate) fn processes(&self) -> u64 {
        self.next_pid - 1
    }

    /// gfmd stops: its processes and descriptors are gone.
    pub(crate) fn forget_processes(&mut self) {
        self.processes.clear();
        self.boot += 1;
    }

    /// A connection of gfmd or to a gfsd ends.
    pub(crate) fn disconnected(&mut self, conn: &ServerConn) {
        if conn.server == 0 {
            self.processes.retain(|pid, _| Some(*pid) != conn.pid);
        }
    }

    /// Answers the next request that is complete; `None` if none is.
    pub(crate) fn answer(&mut self, id: usize, conn: &mut ServerConn) -> Option<Vec<u8>> {
        let received = std::mem::take(&mut conn.received);
        let mut from = Decoder::new(&received);
        let answer = if conn.greeted < 4 {
            authenticate(conn, &mut from)
        } else if conn.server == 0 {
            self.gfmd(conn, &mut from)
        } else {
            self.gfsd(id, conn, &mut from)
        };
        let consumed = match &answer {
            Ok(_) => from.consumed(),
            Err(DecodeError::NeedMore(_)) => 0,
            Err(error) => panic!("the client has sent {error:?}"),
        };
        conn.received = received[consumed..].to_vec();
        answer.ok()
    }

    fn gfmd(&mut self, conn: &mut ServerConn, from: &mut Decoder<'_>) -> Parsed<Vec<u8>> {
        let command = from.u32()?;
        let (error, answer) = match command {
            GFM_PROTO_COMPOUND_BEGIN => {
                (conn.current, conn.fd, conn.skips) = (None, None, false);
                (0, Vec::new())
            }
            GFM_PROTO_COMPOUND_END => {
                let skips = std::mem::take(&mut conn.skips);
                return Ok(if skips { Vec::new() } else { reply(0, |_| {}) });
            }
            GFM_PROTO_PROCESS_ALLOC => return self.process_alloc(conn, from),
            GFM_PROTO_PUT_FD => {
                let fd = from.u32()?;
                conn.fd = Some(fd);
                conn.current = self.fds(conn).get(&fd).map(|(file, _)| *file);
                (if conn.current.is_some() { 0 } else { 9 }, Vec::new())
            }
            GFM_PROTO_OPEN_ROOT => (from.u32()? - GFARM_FILE_LOOKUP, Vec::new()),
            GFM_PROTO_OPEN => {
                let file = file_of(from.bytes("name", 255)?);
                assert_eq!(from.u32()?, GFARM_FILE_RDONLY);
                conn.current = file;
                let gen = file.map_or(0, |file| self.files.files[file].gen);
                let fields = reply(0, |to| {
                    to.u64(10 + file.unwrap_or(0) as u64);
                    to.u64(gen);
                    to.u32(0o100_644);
                });
                (if file.is_some() { 0 } else { 2 }, fields[4..].to_vec())
            }
            GFM_PROTO_VERIFY_TYPE => (from.u32()? - FileType::Regular.to_wire(), Vec::new()),
            GFM_PROTO_FSTAT => (0, self.stat(conn.current.unwrap_or(0))),
            GFM_PROTO_SCHEDULE_FILE => {
                from.bytes("domain", 255)?;
                (0, self.schedule(conn.current.unwrap_or(0)))
            }
            GFM_PROTO_GET_FD if self.fds(conn).len() >= FDS_MAX => (24, Vec::new()),
            GFM_PROTO_GET_FD => {
                let file = conn.current.unwrap_or(0);
                (
                    0,
                    if conn.skips {
                        Vec::new()
                    } else {
                        self.export(conn, file)
                    },
                )
            }
            GFM_PROTO_CLOSE => {
                let fd = conn.fd.take();
                if let (Some(fd), false) = (fd, conn.skips) {
                    let is_kept = |(_, gfsd): &(usize, Option<usize>)| {
                        gfsd.is_some_and(|gfsd| self.silent.contains(&gfsd))
                    };
                    let fds = self.processes.entry(conn.pid.unwrap()).or_default();
                    if fds.fds.get(&fd).is_some_and(|known| !is_kept(known)) {
                        fds.fds.remove(&fd);
                    }
                }
                (0, Vec::new())
            }
            command => panic!("request {command} to gfmd"),
        };
        if conn.skips {
            return Ok(Vec::new());
        }
        conn.skips = error != 0;
        Ok(reply(error, |to| to.raw(&answer)))
    }

    fn fds(&mut self, conn: &ServerConn) -> &mut BTreeMap<u32, (usize, Option<usize>)> {
        &mut self.processes.entry(conn.pid.unwrap()).or_default().fds
    }

    fn process_alloc(&mut self, conn: &mut ServerConn, from: &mut Decoder<'_>) -> Parsed<Vec<u8>> {
        assert_eq!(from.u32()?, GFM_PROTO_PROCESS_KEY_TYPE_SHAREDSECRET);
        let key = from.bytes("key", 32)?.to_vec();
        let pid = self.next_pid;
        self.next_pid += 1;
        self.processes.insert(
            pid,
            Process {
                key,
                ..Process::default()
            },
        );
        conn.pid = Some(pid);
        Ok(reply(0, |to| to.u64(pid)))
    }

    fn stat(&self, file: usize) -> Vec<u8> {
        let known = &self.files.files[file];
        let len = size(known.closed.len(), file);
        let fields = reply(0, |to| {
            to.u64(10 + file as u64);
            to.u64(known.gen);
            to.u32(0o100_644);
            to.u64(1);
            to.bytes(b"user");
            to.bytes(b"group");
            to.u64(len as u64);
            to.u64(2);
            to.raw(&[0; 12]);
            to.u64(known.mtime);
            to.raw(&[0; 4 + 12]);
        });
        fields[4..].to_vec()
    }

    fn schedule(&self, file: usize) -> Vec<u8> {
        let hosts = self.files.hosts(file);
        let fields = reply(0, |to| {
            to.u32(hosts.len() as u32);
            for host in hosts {
                to.bytes(format!("h{host}").as_bytes());
                [600, 1, 0].into_iter().for_each(|number| to.u32(number));
                to.raw(&[0; 36]);
                to.u32(3);
            }
        });
        fields[4..].to_vec()
    }

    fn export(&mut self, conn: &ServerConn, file: usize) -> Vec<u8> {
        let fds = self.fds(conn);
        let fd = (0..).find(|fd| !fds.contains_key(fd)).unwrap();
        fds.insert(fd, (file, None));
        fd.to_be_bytes().to_vec()
    }

    fn gfsd(
        &mut self,
        id: usize,
        conn: &mut ServerConn,
        from: &mut Decoder<'_>,
    ) -> Parsed<Vec<u8>> {
        let is_over = self.up[0] && conn.pid.is_some() && conn.boot != self.boot;
        let status = |error: u32| Ok(reply(error, |_| {}));
        match from.u32()? {
            command @ (GFS_PROTO_PROCESS_SET | GFS_PROTO_PROCESS_RESET) => {
                status(self.join(conn, command, from)?)
            }
            GFS_PROTO_OPEN => {
                let fd = from.u32()?;
                let error = match self.up[0] {
                    false => 60,
                    true if is_over => 98,
                    true => self.open_at(id, conn, fd),
                };
                status(error)
            }
            GFS_PROTO_CLOSE => {
                let fd = from.u32()?;
                let is_open = conn.open.remove(&fd).is_some();
                status(if is_open { 0 } else { 9 })
            }
            GFS_PROTO_FSTAT => {
                let fd = from.u32()?;
                let Some((file, object)) = conn.open.get(&fd).filter(|_| !is_over) else {
                    return status(if is_over { 98 } else { 9 });
                };
                let known = &self.files.objects[*object];
                let len = size(known.pages.len(), *file);
                Ok(reply(0, |to| {
                    to.u64(len as u64);
                    to.raw(&[0; 12]);
                    to.u64(known.mtime);
                    to.u32(0);
                }))
            }
            GFS_PROTO_PREAD => {
                let (fd, len, offset) = (from.u32()?, from.u32()? as usize, from.u64()? as usize);
                let Some((file, object)) = conn.open.get(&fd).filter(|_| !is_over) else {
                    return status(if is_over { 98 } else { 9 });
                };
                let bytes = self.files.bytes(*file, *object);
                let end = bytes.len().min(offset + len);
                let bytes = bytes.get(offset..end).unwrap_or(&[]);
                Ok(reply(0, |to| to.bytes(bytes)))
            }
            command => panic!("request {command} to a gfsd"),
        }
    }

    /// A connection of a gfsd joins a process.
    fn join(&self, conn: &mut ServerConn, command: u32, from: &mut Decoder<'_>) -> Parsed<u32> {
        from.u32()?;
        let key = from.bytes("key", 32)?.to_vec();
        let pid = from.u64()?;
        if command == GFS_PROTO_PROCESS_RESET {
            from.u32()?;
        }
        if !self.up[0] {
            return Ok(56);
        }
        if self
            .processes
            .get(&pid)
            .is_none_or(|known| known.key != key)
        {
            return Ok(3);
        }
        (conn.pid, conn.boot) = (Some(pid), self.boot);
        conn.open.clear();
        Ok(0)
    }

    /// A gfsd asks gfmd about a descriptor.
    fn open_at(&mut self, id: usize, conn: &mut ServerConn, fd: u32) -> u32 {
        let Some(process) = conn.pid.and_then(|pid| self.processes.get_mut(&pid)) else {
            return 3;
        };
        match process.fds.get_mut(&fd) {
            None => 9,
            Some((_, Some(other))) if *other != id => 1,
            Some((file, bound)) => {
                let Some(object) = self.files.replicas[conn.server - 1].get(file) else {
                    return 79;
                };
                *bound = Some(id);
                conn.open.insert(fd, (*file, *object));
                0
            }
        }
    }
}

/// The messages of the authentication, after the greeting.
fn authenticate(conn: &mut ServerConn, from: &mut Decoder<'_>) -> Parsed<Vec<u8>> {
    let answer = match conn.greeted {
        1 => {
            from.u32()?;
            reply(0, |_| {})
        }
        2 => {
            from.bytes("user", 64)?;
            from.u32()?;
            reply(0, |to| to.bytes(&[7; 32]))
        }
        _ => {
            from.u32()?;
            let is_right = from.bytes("digest", 16)? == [9; 16];
            reply(if is_right { 0 } else { 3 }, |_| {})
        }
    };
    conn.greeted += 1;
    Ok(answer)
}

impl ServerConn {
    /// Returns whether a gfsd has something open for it.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A connection that was accepted; and the greeting.
    pub(crate) fn accept(server: usize) -> (Self, Vec<u8>) {
        let conn = Self {
            server,
            greeted: 1,
            ..Self::default()
        };
        (conn, b"\0\0\0\x01\x01".to_vec())
    }
}
