// SPDX-License-Identifier: GPL-2.0

//! Takes note of gfsds that have not done what they were asked for.

use super::Reader;
use crate::{
    net::setup::Trouble,
    proto::{
        error::GfarmError,
        open_file::{
            Descriptor,
            Event, //
        },
        replica::Choice,
        request::Server,
        retry::{
            Fault,
            GfsdRequest, //
        }, //
    }, //
};

impl Reader {
    /// Returns what the machine is told of the gfsds that gfmd has named with a descriptor.
    pub(super) fn chosen(&mut self, descriptor: Descriptor, choice: Choice) -> Event {
        let Some(refusal) = choice.refusal() else {
            self.reason = None;
            return Event::Opened(descriptor, choice.get());
        };
        let down = Fault::Server(GfarmError::NO_FILESYSTEM_NODE);
        Event::AllRefuse(descriptor, refusal, self.client.setup().failure(down))
    }

    /// Returns what the machine is told of a request to the gfsd that has failed.
    pub(super) fn gfsd_failed(&mut self, request: GfsdRequest, trouble: Trouble) -> Event {
        let setup = self.client.setup();
        let gone = Fault::Server(GfarmError::GFMD_FAILED_OVER);
        let link = self.client.link();
        let is_wrong = trouble.fault == gone
            && self
                .machine
                .epoch()
                .is_some_and(|epoch| !link.is_gone(epoch));
        if is_wrong || trouble.fault.ends_connection() {
            if let Some(taken) = &self.taken {
                taken.host.failed(setup, trouble);
            }
        }
        self.reason = Some(trouble.fault);
        setup.stats.again(Server::Gfsd, 1, trouble.error);
        let failure = setup.failure(trouble.fault);
        match is_wrong {
            true => Event::GfsdWrong(failure),
            false => Event::GfsdFailed(request, failure),
        }
    }
}
