// SPDX-License-Identifier: GPL-2.0

//! Members that fail, and return.

use rnbd_ec::proto::array::NotNow;
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
        let loses_cache = self.random.below(2) == 0;
        match self.random.below(3) {
            0 => self.members[member].is_dead = true,
            1 => self.array.fail(member),
            _ => {
                let owed_ms = [(); 3].map(|()| self.random.below(1200));
                if self.array.take_away(member, owed_ms).is_err() {
                    return;
                }
                assert_eq!(self.array.kept_out(), Some(member), "{}", self.label());
            }
        }
        if loses_cache {
            self.members[member].lose_cache();
        }
    }

    /// Members fail until too few are left: nothing is acknowledged any more. After the assembly
    /// that follows, of all of them, what was flushed is there.
    pub(super) fn fail_two(&mut self) {
        let survivor = self.random.below(3) as usize;
        let fails = |member: &usize| *member != survivor;
        for member in (0..3).filter(fails) {
            self.array.fail(member);
            self.members[member].is_dead = self.random.below(2) == 0;
            if self.random.below(2) == 0 {
                // The first one may be known to have failed when the second one does.
                self.end_any();
                self.settle();
            }
        }
        self.settle();
        assert!(self.array.is_stopped(), "{}", self.label());
        let acknowledged = self.acknowledged;
        for _ in 0..20 {
            self.write();
            self.flush();
            self.end_any();
            self.settle();
        }
        assert_eq!(self.acknowledged, acknowledged, "{}", self.label());
        self.check_power_failure();
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
        if self.array.kept_out() == Some(member) && !is_new {
            if self.random.below(2) == 0 {
                let own = self.superblock(member);
                let taken = self.act(|array, acting| array.take_back((own, 0), acting, &Crc));
                assert_eq!(taken, Err(NotNow::KeptOut), "{}", self.label());
                return;
            }
            self.array.release();
        }
        self.prepare_return(member, is_new);
        let own = self.superblock(member);
        let taken = self.act(|array, acting| {
            if is_new {
                array.take_new((own, 0), acting, &Crc)
            } else {
                array.take_back((own, 0), acting, &Crc)
            }
        });
        assert_eq!(taken, Ok(()), "{}", self.label());
        assert_eq!(self.array.kept_out(), None, "{}", self.label());
    }
}
