// SPDX-License-Identifier: GPL-2.0

//! How many connections a path has.

use proto::rtrs::io_queues::{
    io_queues,
    TooManyQueues, //
};

#[test]
fn a_path_has_a_connection_for_each_cpu_that_is_online() {
    for cpus in [1, 2, 8, 64, 4095] {
        assert_eq!(io_queues(None, 0, cpus), Ok(cpus));
    }
    // Of a machine that has only begun to boot.
    assert_eq!(io_queues(None, 0, 0), Ok(1));
}

#[test]
fn who_asks_for_a_number_gets_it() {
    for (asked, cpus) in [(1, 64), (64, 64), (64, 1), (4095, 2)] {
        assert_eq!(io_queues(Some(asked), 0, cpus), Ok(asked));
    }
    assert_eq!(io_queues(Some(4000), 95, 2), Ok(4000));
}

#[test]
fn servers_accept_so_many_connections_and_no_more() {
    let refused = |io, poll| Err(TooManyQueues { io, poll });
    assert_eq!(io_queues(Some(4096), 0, 2), refused(4096, 0));
    assert_eq!(io_queues(Some(4000), 96, 2), refused(4000, 96));
    assert_eq!(io_queues(None, u32::MAX, 2), refused(2, u32::MAX));
    let text = TooManyQueues { io: 4000, poll: 96 }.to_string();
    let expected = "4000 IO queues and 96 poll queues are more than 4095: ask for fewer";
    assert_eq!(text, expected);
}
