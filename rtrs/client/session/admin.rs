// SPDX-License-Identifier: GPL-2.0

//! Admin messages: sent on the admin connection, with an answer that a task waits for.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use kernel_ext::{
    errno, new_irq_lock,
    pages::PageBlock,
    scatterlist::{
        SgList,
        SgTable, //
    },
    sync::{
        Completion,
        IrqLock, //
    },
};
use rtrs_core::proto::{
    quarantine::Ticket,
    timeouts::ONE_PATH_ANSWER_MS, //
};

use crate::client::{
    io::{
        request::Attempt,
        send::{
            READ,
            WRITE, //
        },
        transfer::{
            AnyTransfer,
            Direction,
            Rejected,
            Transfer, //
        }, //
    },
    path::connections::Connections, //
    session::{
        permit::AdminPermit,
        Session, //
    },
};

/// Most bytes of an answer.
const REPLY_MAX: usize = kernel::page::PAGE_SIZE;

/// Pause between two tries where IO and messages share the only chunk.
const RETRY_MS: i64 = 1;

/// The answer of a message, which the sender waits for.
#[pin_data]
struct Answer {
    #[pin]
    arrived: Completion,
    #[pin]
    result: IrqLock<Option<Result>>,
}

/// A message in flight. It owns its memory and its id until it ends, whether the sender still waits
/// or not.
struct Message {
    table: SgTable,
    answer: Arc<Answer>,
    permit: AdminPermit,
}

impl Transfer for KBox<Message> {
    fn sg(&mut self) -> &mut SgList {
        &mut self.table
    }

    fn done(self, result: Result) {
        let answer = self.answer.clone();
        // The id is free before the waiter continues.
        drop(self);
        *answer.result.lock() = Some(result);
        answer.arrived.complete_all();
    }

    fn requeue(self, _ticket: Ticket) {
        self.done(Err(errno::ECONNABORTED));
    }

    fn is_valid(&self, _message: &[u8]) -> bool {
        true
    }
}

/// Carries messages to the server and answers back.
pub trait AdminChannel {
    /// Returns the session of the messages.
    fn session(&self) -> &Session;

    /// Returns the longest time for an answer, in milliseconds; it limits what the sender asks for.
    fn timeout_max_ms(&self) -> u32 {
        u32::MAX
    }

    /// Sends a message: `transfer` is taken, or comes back in [`Rejected`].
    #[doc(hidden)]
    fn send_admin(
        &self,
        direction: Direction,
        id: u16,
        message: &[u8],
        transfer: AnyTransfer,
    ) -> Result<(), Rejected<AnyTransfer>>;

    /// Sends a message and waits for its answer, at most `timeout_ms`; sleeps, and can be killed.
    ///
    /// For [`Direction::Read`] the answer is `reply.len()` bytes, 1 to 4096. Returns their number.
    ///
    /// # Errors
    ///
    /// The server's error, `ECONNABORTED` if no path is connected or the path was lost,
    /// `ETIMEDOUT` or `ERESTARTSYS`; then the message may still have its effect on the server.
    fn send_message(
        &self,
        direction: Direction,
        message: &[u8],
        reply: &mut [u8],
        timeout_ms: u32,
    ) -> Result<usize> {
        let timeout_ms = timeout_ms.min(self.timeout_max_ms());
        if reply.len() > REPLY_MAX || (direction == Direction::Write && !reply.is_empty()) {
            return Err(EINVAL);
        }
        let answer = Arc::pin_init(
            pin_init!(Answer {
                arrived <- Completion::new(),
                result <- new_irq_lock!(None),
            }),
            GFP_KERNEL,
        )?;
        let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
        let mut table = SgTable::new(1)?;
        if !reply.is_empty() {
            // CAST: at most a page.
            table.push(pages.clone(), 0, reply.len() as u32)?;
        }
        let session = self.session();
        let ids = session.partition().admin_ids().end;
        let permit = session.take_admin_id(ids, timeout_ms)?;
        let under_way = KBox::new(
            Message {
                table,
                answer: answer.clone(),
                permit,
            },
            GFP_KERNEL,
        )?;
        send_with_retries(self, under_way, direction, message, timeout_ms)?;

        answer.arrived.wait_killable_timeout_ms(timeout_ms)?;
        let result = *answer.result.lock();
        result.unwrap_or(Err(EIO))?;
        pages.copy_out(0, reply)?;
        Ok(reply.len())
    }
}

/// Sends a message; where IO and messages share the only chunk, waits for it.
fn send_with_retries<M: AdminChannel + ?Sized>(
    admin: &M,
    under_way: KBox<Message>,
    direction: Direction,
    message: &[u8],
    timeout_ms: u32,
) -> Result {
    let id = under_way.permit.id();
    let mut transfer = AnyTransfer::new(under_way);
    for _ in 0..timeout_ms {
        match admin.send_admin(direction, id, message, transfer) {
            Err(back) if back.error == EBUSY => transfer = back.transfer,
            done => return done.map_err(|back| back.error),
        }
        fsleep(Delta::from_millis(RETRY_MS));
    }
    Err(ETIMEDOUT)
}

/// Sends on the path that the policy chooses.
impl AdminChannel for Session {
    fn session(&self) -> &Session {
        self
    }

    fn send_admin(
        &self,
        direction: Direction,
        id: u16,
        message: &[u8],
        transfer: AnyTransfer,
    ) -> Result<(), Rejected<AnyTransfer>> {
        self.send_admin_on_any_path(direction, id, message, transfer)
    }
}

/// One path of a session, for messages only: it carries no IO yet.
pub struct OnePath<'a> {
    pub(crate) session: &'a Session,
    pub(crate) connections: &'a Connections,
}

impl AdminChannel for OnePath<'_> {
    fn session(&self) -> &Session {
        self.session
    }

    /// The path is tried again, and a task that closes it waits for this.
    fn timeout_max_ms(&self) -> u32 {
        ONE_PATH_ANSWER_MS
    }

    fn send_admin(
        &self,
        direction: Direction,
        id: u16,
        message: &[u8],
        transfer: AnyTransfer,
    ) -> Result<(), Rejected<AnyTransfer>> {
        let Some(admin) = self.connections.admin() else {
            return Err(Rejected::new(errno::ECONNABORTED, transfer));
        };
        let guard = rcu::read_lock();
        let requests = (&*self.connections.requests, &guard);
        match direction {
            Direction::Read => {
                admin.send::<READ, _>(requests, id, message, Attempt::FIRST, transfer)
            }
            Direction::Write => {
                admin.send::<WRITE, _>(requests, id, message, Attempt::FIRST, transfer)
            }
        }
    }
}
