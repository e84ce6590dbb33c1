// SPDX-License-Identifier: GPL-2.0

use crate::access::OPS;
use proto::rnbd::{
    access::AccessMode,
    flags::{Op, Ops},
    submission::Submission,
};

#[test]
fn a_handler_submits_only_what_the_disk_may_refuse_and_nothing_past_those_that_wait() {
    for (can_refuse, has_waiting) in [(false, false), (false, true), (true, false), (true, true)] {
        for access in [AccessMode::ReadOnly, AccessMode::ReadWrite] {
            let submission = Submission::new(can_refuse, access.permitted());
            let ops = submission.at_once(has_waiting);
            assert_eq!(submission.may_refuse(), can_refuse);
            for op in OPS {
                let is_expected = !(has_waiting || can_refuse && op == Op::Discard);
                assert_eq!(submission.is_at_once(op, has_waiting), is_expected);
                let may = access.permitted().contains(op);
                assert_eq!(ops.contains(op), is_expected && may, "{op:?} as {access}");
            }
            assert_eq!(Ops::from_raw(ops.into_raw()), ops);
        }
    }
}
