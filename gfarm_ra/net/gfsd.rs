// SPDX-License-Identifier: GPL-2.0

//! A connection to a gfsd. It carries one request at a time; several open files may share it, and
//! take turns.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use kernel_ext::{
    errno::ENOTCONN,
    new_turns,
    sync::{
        self,
        Turns, //
    }, //
};
use net_ext::TcpStream;

use super::{
    login,
    page_source::{
        Filled,
        PageSource,
        Pages, //
    },
    setup::{
        Setup,
        Trouble, //
    }, //
};
use crate::proto::{
    attr::FileId,
    error::GfarmError,
    gfm::{
        Fd,
        Process, //
    },
    gfs::{
        self,
        BulkPart,
        BulkReply, //
    },
    gfsd::{
        Gfsd,
        State as Phase,
        Use, //
    },
    operation::{
        Operation,
        ReplyError, //
    },
    request::{
        Request,
        Server, //
    },
    retry::Fault,
    xdr::{
        Decoder,
        Encoder, //
    },
    READ_LEN_MAX, //
};

/// The size of a buffer that each request, and each answer without bytes of a file, fits.
const MESSAGE_LEN: usize = 96;

/// A connection to a gfsd.
#[pin_data]
pub(super) struct Connection {
    setup: Arc<Setup>,
    socket: Arc<TcpStream>,
    #[pin]
    machine: SpinLock<Gfsd>,
    #[pin]
    turns: Turns,
}

impl Connection {
    /// Connects a new socket, and joins a process of gfmd. Sleeps.
    pub(super) fn new(
        setup: &Arc<Setup>,
        socket: Arc<TcpStream>,
        process: &Process,
        epoch: u32,
    ) -> Result<Arc<Self>, Trouble> {
        let this = Arc::pin_init(
            pin_init!(Self {
                setup: setup.clone(),
                socket,
                machine <- new_spinlock!(Gfsd::new(epoch), "Connection::machine"),
                turns <- new_turns!("Connection::turns"),
            }),
            GFP_KERNEL,
        )?;
        login::login(setup, &this.socket, setup.connect_timeout_ms())?;
        this.machine.lock().authenticated();
        this.exchange(&gfs::ProcessSet(process))?;
        this.machine.lock().joined();
        setup.stats.connected(Server::Gfsd);
        Ok(this)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.machine.lock().state() == Phase::Broken
    }

    /// The connection is of no use any more. Its users see that.
    pub(super) fn abandon(&self) {
        self.machine.lock().abandon();
        self.socket.shutdown();
    }

    /// Waits for a turn. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when the task is killed.
    pub(super) fn turn(&self) -> Result<Turn<'_>> {
        Ok(Turn {
            connection: self,
            _turn: self.turns.take()?,
        })
    }

    /// Returns whether the server has not closed the connection, as one does that was restarted.
    fn is_alive(&self) -> bool {
        let nothing = self.socket.receive(&mut [0], 0);
        nothing == Err(ETIMEDOUT)
    }

    /// Returns for how long the next bytes are waited for: as long as a server may be silent, but
    /// not past `end_ms`.
    fn left_ms(&self, end_ms: u64) -> Result<u32> {
        let left_ms = self.setup.left_ms(end_ms)?;
        Ok(left_ms.min(self.setup.receive_timeout_ms()))
    }

    /// Receives bytes of a file, before `end_ms`.
    fn receive_pages<P: Pages>(
        &self,
        pages: &mut P,
        bytes: usize,
        end_ms: u64,
    ) -> Result<(), Trouble> {
        let position = pages.position();
        let timeout_ms = self.left_ms(end_ms)?;
        let received = {
            let mut to = pages.destination();
            self.socket.receive_into(&mut to, bytes, timeout_ms)?
        };
        if received != bytes {
            return Err(Trouble::of(Fault::Disconnected));
        }
        self.setup.stats.received(position, bytes);
        Ok(())
    }

    /// Receives what stands before the next bytes of a file, or behind the last ones.
    fn receive_chunk(&self, reply: &mut BulkReply, end_ms: u64) -> Result<BulkPart, Trouble> {
        self.receive_answer(&mut [0; MESSAGE_LEN], end_ms, |from| reply.decode(from))
    }

    /// Sends a request and receives the answer, up to the bytes of a file.
    fn exchange<R, O>(&self, operation: &O) -> Result<R, Trouble>
    where
        O: for<'a> Operation<Reply<'a> = R>,
    {
        let mut message = [0; MESSAGE_LEN];
        let mut to = Encoder::new(&mut message);
        operation.encode(&mut to);
        let len = to.finish().map_err(|_| EINVAL)?;
        let timeout_ms = self.setup.receive_timeout_ms();
        self.socket
            .send(message.get(..len).unwrap_or_default(), timeout_ms)?;
        let end_ms = self.setup.end_ms(timeout_ms);
        self.receive_answer(&mut message, end_ms, |from| operation.decode(from))
    }

    /// Receives as much as `decode` needs, and no byte behind it: those of a file go elsewhere.
    fn receive_answer<R>(
        &self,
        message: &mut [u8; MESSAGE_LEN],
        end_ms: u64,
        mut decode: impl FnMut(&mut Decoder<'_>) -> Result<R, ReplyError>,
    ) -> Result<R, Trouble> {
        let mut have = 0;
        loop {
            let mut from = Decoder::new(message.get(..have).unwrap_or_default());
            let more = match decode(&mut from) {
                Ok(reply) => return Ok(reply),
                Err(ReplyError::NeedMore(more)) => more,
                Err(ReplyError::Malformed(why)) => return Err(Trouble::of(Fault::Malformed(why))),
                Err(ReplyError::Server(error)) => return Err(Trouble::of(Fault::Server(error))),
            };
            let end = have.saturating_add(more);
            let place = message.get_mut(have..end);
            let too_long = || Trouble::of(Fault::malformed("length of an answer"));
            let place = place.ok_or_else(too_long)?;
            self.socket.receive_exact(place, self.left_ms(end_ms)?)?;
            have = end;
        }
    }
}

/// The turn of a user of a connection.
pub(super) struct Turn<'c> {
    connection: &'c Connection,
    _turn: sync::Turn<'c>,
}

impl Turn<'_> {
    /// Joins the process `epoch` of gfmd, if the connection belongs to an earlier one; what was
    /// open is closed then. Fails with
    /// `ENOTCONN` if the server has ended the connection while no file used it.
    pub(super) fn join(&self, process: &Process, epoch: u32) -> Result<(), Trouble> {
        let connection = self.connection;
        if !connection.is_alive() {
            return self.judge(Err(ENOTCONN.into()));
        }
        let used = connection.machine.lock().take(epoch);
        let result = match used {
            Use::Send => Ok(()),
            Use::Reset => {
                let reset = gfs::ProcessReset {
                    process,
                    failover_count: epoch,
                };
                let result = connection.exchange(&reset);
                if result.is_ok() {
                    connection.machine.lock().joined();
                } else {
                    // It belongs to no process.
                    connection.abandon();
                }
                result
            }
            Use::Unusable => Err(Trouble::of(Fault::Disconnected)),
        };
        connection.machine.lock().answered();
        self.judge(result)
    }

    /// Sends a request about a descriptor of the process `epoch`, and receives the answer.
    pub(super) fn request<R, O>(
        &self,
        epoch: u32,
        kind: Request,
        operation: &O,
    ) -> Result<R, Trouble>
    where
        O: for<'a> Operation<Reply<'a> = R>,
    {
        self.within(epoch, kind, || self.connection.exchange(operation))
    }

    /// Runs `work`, which sends requests of the process `epoch`; they count as one of `kind`.
    pub(super) fn within<R>(
        &self,
        epoch: u32,
        kind: Request,
        work: impl FnOnce() -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let connection = self.connection;
        let mut machine = connection.machine.lock();
        // Another user has joined a newer process, where the number may be that of another file.
        if machine.state() == Phase::Idle && machine.epoch() != epoch {
            drop(machine);
            return Err(Trouble::of(Fault::Server(GfarmError::BAD_FILE_DESCRIPTOR)));
        }
        let used = machine.take(epoch);
        drop(machine);
        if used != Use::Send {
            return Err(Trouble::of(Fault::Disconnected));
        }
        let begun_us = connection.setup.now_us();
        let result = self.judge(work());
        connection.machine.lock().answered();
        let us = connection.setup.now_us().saturating_sub(begun_us);
        let error = result.as_ref().err().map(|trouble| trouble.error);
        let stats = &connection.setup.stats;
        stats.answered(kind, us, error.map_or(Ok(()), Err));
        result
    }

    /// Gives the connection up: what it has answered cannot be.
    pub(super) fn reject<R>(&self, trouble: Trouble) -> Result<R, Trouble> {
        self.judge(Err(trouble))
    }

    /// A connection that has failed is not used any more.
    fn judge<R>(&self, result: Result<R, Trouble>) -> Result<R, Trouble> {
        result.inspect_err(|trouble| {
            if trouble.fault.ends_connection() {
                self.connection.abandon();
            }
        })
    }

    /// Returns the source of the bytes of a descriptor.
    pub(super) fn source(&self, fd: Fd) -> GfsdSource<'_> {
        GfsdSource {
            connection: self.connection,
            fd,
        }
    }
}

/// A descriptor that is open at a gfsd: the source that has all bytes.
pub(super) struct GfsdSource<'c> {
    connection: &'c Connection,
    fd: Fd,
}

impl GfsdSource<'_> {
    /// Asks for the size and the times as they are now.
    pub(super) fn stat(&self) -> Result<gfs::LiveAttr, Trouble> {
        self.connection.exchange(&gfs::Fstat(self.fd))
    }

    /// Returns when `bytes` bytes of the file have to be there: the time in which a server may be
    /// silent, for each megabyte. One that sends a few bytes now and then is not silent.
    fn end_ms(&self, bytes: u64) -> u64 {
        let megabytes = bytes.div_ceil(READ_LEN_MAX.into()).max(1);
        let timeout_ms = u64::from(self.connection.setup.receive_timeout_ms());
        let now_ms = self.connection.setup.now_ms();
        now_ms.saturating_add(timeout_ms.saturating_mul(megabytes))
    }

    /// Fills parts that follow one another, by one request: the bytes come in chunks, without a
    /// round trip for each part. Returns the number of parts that are full, all but those behind
    /// the end of the file.
    pub(super) fn fill_row<P: Pages>(&mut self, row: &mut [P]) -> Result<usize, Trouble> {
        let (Some(first), Some(last)) = (row.first(), row.last()) else {
            return Ok(0);
        };
        // CAST: From 64 bits to 64.
        let end = last.position().saturating_add(last.len() as u64);
        let len = end.saturating_sub(first.position());
        let range = gfs::Range::new(first.position(), len);
        let range = range.ok_or(Trouble::of(Fault::malformed("position")))?;
        let connection = self.connection;
        let mut reply = connection.exchange(&gfs::BulkRead { fd: self.fd, range })?;
        let end_ms = self.end_ms(len);
        let mut full = 0;
        loop {
            let mut left = match connection.receive_chunk(&mut reply, end_ms)? {
                BulkPart::Chunk(bytes) => bytes as usize,
                BulkPart::End { .. } => return Ok(full),
            };
            while left != 0 {
                let pages = row.get_mut(full);
                let pages = pages.ok_or(Trouble::of(Fault::malformed("chunk")))?;
                let bytes = left.min(pages.len());
                connection.receive_pages(pages, bytes, end_ms)?;
                left = left.saturating_sub(bytes);
                if pages.len() == 0 {
                    full = full.saturating_add(1);
                }
            }
        }
    }
}

impl PageSource for GfsdSource<'_> {
    type Fault = Trouble;

    fn fill<P: Pages>(&mut self, _id: FileId, pages: &mut P) -> Result<Filled, Trouble> {
        let connection = self.connection;
        while pages.len() != 0 {
            // CAST: From 64 bits to 64.
            let missing = (pages.len() as u64).min(READ_LEN_MAX.into());
            let Some(range) = gfs::Range::new(pages.position(), missing) else {
                // No file is that long.
                return Ok(Filled::UpToEnd);
            };
            let header = connection.exchange(&gfs::Pread { fd: self.fd, range })?;
            let end_ms = self.end_ms(header.len.into());
            // CAST: From 32 bits to 64.
            connection.receive_pages(pages, header.len as usize, end_ms)?;
            if header.is_eof {
                return Ok(Filled::UpToEnd);
            }
        }
        Ok(Filled::All)
    }
}
