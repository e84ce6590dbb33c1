// SPDX-License-Identifier: GPL-2.0

//! Members that fail, and return.

use seglog::members::Members;

use super::{
    Crc,
    Life, //
};

impl Life {
    pub(super) fn fail_one(&mut self) {
        let live = self.array.live();
        if self.members.iter().any(|member| member.is_dead) {
            return;
        }
        // A second one that is missing is one too many.
        let member = if live == Members::ALL {
            self.random.below(3) as usize
        } else {
            match self.array.returning().iter().next() {
                Some(member) => member,
                None => return,
            }
        };
        if self.random.below(2) == 0 {
            self.members[member].lose_cache();
        }
        if self.random.below(2) == 0 {
            self.members[member].is_dead = true;
        } else {
            self.array.fail(member);
        }
    }

    /// A member that has failed is there again, or another device in its place.
    pub(super) fn return_one(&mut self) {
        let missing = Members::ALL.minus(self.array.live().or(self.array.returning()));
        let Some(member) = missing.iter().next() else {
            return;
        };
        self.members[member].is_dead = false;
        if self.array.check_return(member, 0).is_err() {
            return;
        }
        let is_new = self.random.below(4) == 0;
        self.prepare_return(member, is_new);
        let own = self.superblock(member);
        let taken = self.act(|array, acting| array.take_back((own, 0), acting, &Crc));
        assert_eq!(taken, Ok(()), "{}", self.label());
    }
}
