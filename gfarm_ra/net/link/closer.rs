// SPDX-License-Identifier: GPL-2.0

//! Closes descriptors, several by one question.

use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};

use super::Link;
use crate::{
    net::call::Call,
    proto::{
        closing::{
            Fds,
            DELAY_MS,
            FDS_MAX, //
        },
        gfm::Fd,
        question::Kind, //
    }, //
};

/// The number of the work item.
pub(super) const ID: u64 = 1;

/// Prepares the question, with room for the maximum of descriptors.
pub(super) fn call() -> Result<Arc<Call>> {
    let mut fds = Fds::NONE;
    while fds.push(Fd::new(0).ok_or(EINVAL)?) {}
    Call::new(Kind::Close(fds), KVec::new())
}

impl WorkItem<ID> for Link {
    type Pointer = Arc<Link>;

    /// Runs in a worker of files, which may wait.
    fn run(this: Arc<Link>) {
        while !this.state.lock().closes.is_empty() {
            let interrupts = this.setup.interrupts();
            if this.state.lock().closes.len() < FDS_MAX {
                // An interruption ends the pause only: the descriptors are closed all the same.
                let _ = this.setup.pause(DELAY_MS, interrupts);
            }
            let fds = this.take_closes();
            if this.setup.is_closed() {
                // The end of the connection closes all.
                return;
            }
            if !fds.is_empty() && this.close(fds).is_ok() {
                // The question is used again. A worker is not killed.
                let _ = this.closing.wait();
            }
        }
    }
}

/// What closes descriptors.
impl Link {
    /// Has a descriptor of the process `epoch` closed, if that is still there, and does not wait
    /// for it. If too many wait, it stays open as long as the process.
    pub(in crate::net) fn close_fd(self: &Arc<Self>, fd: Fd, epoch: u32) {
        let mut state = self.state.lock();
        if state.machine.ready() != Some(epoch) || state.closes.push((fd, epoch)).is_err() {
            return;
        }
        drop(state);
        if let Some(queue) = self.setup.queue() {
            // It may be queued already.
            let _ = queue.enqueue::<_, ID>(self.clone());
        }
    }

    /// Takes descriptors of the process that is there; those of others are closed.
    fn take_closes(&self) -> Fds {
        let mut fds = Fds::NONE;
        let mut state = self.state.lock();
        let now = state.machine.ready();
        while fds.len() < FDS_MAX {
            match state.closes.pop() {
                Some((fd, epoch)) if now == Some(epoch) => {
                    // There is room.
                    let _ = fds.push(fd);
                }
                Some(_) => {}
                None => break,
            }
        }
        fds
    }

    /// Asks for descriptors to be closed. Without room in the queue they stay open as long as the
    /// process.
    fn close(self: &Arc<Self>, fds: Fds) -> Result {
        let call = &self.closing;
        call.begin(Kind::Close(fds), self.setup.now_us())?;
        call.abandon();
        let pushed = self.state.lock().queue.push(call.clone());
        if pushed.is_err() {
            call.finish(Ok(()), 0);
            return Err(EAGAIN);
        }
        self.send_waiting();
        self.kick();
        Ok(())
    }
}
