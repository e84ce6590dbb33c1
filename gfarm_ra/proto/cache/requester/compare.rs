// SPDX-License-Identifier: GPL-2.0

//! Compares pages of a holder with what a file server has sent.

use super::{
    super::{
        excluded::Reason,
        pages::PageSet,
        reply::Sums, //
    },
    attempt::Attempt,
    Requester, //
};

impl Requester {
    /// Has all reads from now on ask for the sums of pages: the driver compares them.
    pub fn compare(&mut self) {
        self.compares = true;
    }

    /// Returns the sum that a page is to have, after [`Effect::Settle`]; `None` if it is not to be
    /// compared.
    pub fn sum(&self, page: u8) -> Option<u32> {
        let sum = self.sums.get(usize::from(page)).copied();
        sum.filter(|_| self.compares)
    }

    /// Notes the sums of the pages that the holder has sent.
    pub(super) fn take_sums(&mut self, sums: Sums<'_>) {
        let sent = self.attempt.as_ref().map_or(PageSet::EMPTY, Attempt::sent);
        for (page, sum) in sent.iter().zip(sums.iter()) {
            if let Some(place) = self.sums.get_mut(usize::from(page)) {
                *place = sum;
            }
        }
    }

    /// The holder's pages are not what a file server has sent: who else has them may have them from
    /// it. So these are read from the file server, and the others elsewhere.
    pub(super) fn distrust(&mut self, damaged: PageSet) {
        if let Some(attempt) = self.attempt.as_ref().filter(|_| !damaged.is_empty()) {
            self.fetch = self.fetch.union(damaged);
            self.excluded.add(attempt.node(), Reason::NotHere);
        }
    }
}
