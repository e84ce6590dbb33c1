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
    errno,
    pages::PageBlock,
    scatterlist::{
        SgList,
        SgTable, //
    },
};
use rtrs_core::proto::{
    permit::AnswerWaits,
    quarantine::Ticket,
    timeouts::ONE_PATH_ANSWER_MS, //
};

use crate::client::{
    io::{
        prepare::{
            READ,
            WRITE, //
        },
        request::Attempt,
        transfer::{
            AnyTransfer,
            Direction,
            Rejected,
            Transfer, //
        }, //
    },
    path::connections::{
        Connections,
        ADMIN, //
    },
    session::{
        answer::{
            Answer,
            NotAnswered, //
        },
        permit::AdminPermit,
        Session, //
    },
};

/// Most bytes of an answer.
const REPLY_MAX: usize = kernel::page::PAGE_SIZE;

/// Pause between two tries where IO and messages share the only chunk.
const RETRY_MS: i64 = 1;

/// A message in flight. It owns its memory and its id until it ends, whether the sender still waits
/// or not.
struct Message {
    table: SgTable,
    answer: Arc<Answer>,
    permit: AdminPermit,
}

impl Transfer for KBox<Message> {
    fn data_len(&self) -> u32 {
        self.table.len_bytes()
    }

    fn sg(&mut self) -> &mut SgList {
        &mut self.table
    }

    fn done(self, result: Result) {
        let answer = self.answer.clone();
        // The id is free before the waiter continues.
        drop(self);
        answer.end(result);
    }

    fn requeue(self, _ticket: Ticket) {
        self.done(Err(errno::ECONNABORTED));
    }

    /// A sender that has given up has been told so, and may have asked for something else since.
    fn is_valid(&self, _message: &[u8]) -> bool {
        !self.answer.is_given_up()
    }
}

/// A message to be sent, and how it is answered.
pub struct UserMessage<'a> {
    /// [`Direction::Read`] if the answer has data.
    pub direction: Direction,
    /// The bytes for the server.
    pub bytes: &'a [u8],
    /// The thing of the server that it is about, as bytes that messages about others do not have:
    /// it is sent when those about the same have ended whose senders have given up.
    pub subject: &'a [u8],
}

/// Carries messages to the server and answers back.
pub trait AdminChannel {
    /// Returns the session of the messages.
    fn session(&self) -> &Session;

    /// Returns the longest time for a message and its answer, in milliseconds; it limits what the
    /// sender asks for.
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

    /// Waits until no message about `subject` is under way whose sender has given up.
    #[doc(hidden)]
    fn wait_for_same(&self, subject: &[u8], timeout_ms: u32) -> Result {
        self.session().given_up.wait_for(subject, timeout_ms)
    }

    /// Sends a message and waits for its answer, at most `timeout_ms` each; sleeps, and can be
    /// killed. `waits` is what the answer may wait for: it limits how many ids such messages take.
    ///
    /// For [`Direction::Read`] the answer is `reply.len()` bytes, 1 to 4096. Returns their number.
    ///
    /// # Errors
    ///
    /// The server's error, `ECONNABORTED` if no path is connected, the path was lost or the session
    /// is being closed, `ETIMEDOUT` or `ERESTARTSYS`. [`NotAnswered::fate`] says whether the
    /// message may still have its effect on the server.
    fn send_message(
        &self,
        waits: AnswerWaits,
        message: &UserMessage<'_>,
        reply: &mut [u8],
        timeout_ms: u32,
    ) -> Result<usize, NotAnswered> {
        let session = self.session();
        let timeout_ms = timeout_ms.min(self.timeout_max_ms());
        let began_ms = session.now_ms();
        let left_ms = |of_ms: u32| {
            let until_ms = began_ms.saturating_add(of_ms.into());
            // CAST: at most `of_ms`.
            until_ms.saturating_sub(session.now_ms()) as u32
        };
        if reply.len() > REPLY_MAX || (message.direction == Direction::Write && !reply.is_empty()) {
            return Err(EINVAL.into());
        }
        self.wait_for_same(message.subject, timeout_ms)?;
        let answer = Answer::new()?;
        let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
        let mut table = SgTable::new(1)?;
        if !reply.is_empty() {
            // CAST: at most a page.
            table.push(pages.clone(), 0, reply.len() as u32)?;
        }
        let permit = session.take_admin_id(waits, left_ms(timeout_ms))?;
        let under_way = KBox::new(
            Message {
                table,
                answer: answer.clone(),
                permit,
            },
            GFP_KERNEL,
        )?;
        send_with_retries(self, under_way, message, left_ms(timeout_ms))?;
        // Not less because it was sent late: the server may go by what the message says of it.
        let answered = answer.wait(timeout_ms.min(left_ms(self.timeout_max_ms())));
        let answered = answered.and_then(|()| pages.copy_out(0, reply));
        answered.map_err(|error| {
            session.given_up.add(message.subject, &answer);
            NotAnswered::after_send(error, answer)
        })?;
        Ok(reply.len())
    }
}

/// Sends a message; where IO and messages share the only chunk, waits for it.
fn send_with_retries<M: AdminChannel + ?Sized>(
    admin: &M,
    under_way: KBox<Message>,
    message: &UserMessage<'_>,
    timeout_ms: u32,
) -> Result {
    let id = under_way.permit.id();
    let mut transfer = AnyTransfer::new(under_way);
    for _ in 0..timeout_ms {
        match admin.send_admin(message.direction, id, message.bytes, transfer) {
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

    /// A message that is under way on another path may be answered by another server.
    fn wait_for_same(&self, _subject: &[u8], _timeout_ms: u32) -> Result {
        Ok(())
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
                admin.send::<READ, _>(requests, (ADMIN, id), message, Attempt::FIRST, transfer)
            }
            Direction::Write => {
                admin.send::<WRITE, _>(requests, (ADMIN, id), message, Attempt::FIRST, transfer)
            }
        }
    }
}
