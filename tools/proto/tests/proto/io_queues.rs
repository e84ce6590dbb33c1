// SPDX-License-Identifier: GPL-2.0

//! The number of connections of a path, and the memory of their queues.

use proto::{
    rtrs::{
        io_queues::{
            io_queues,
            TooManyQueues,
            IO_QUEUES_DEFAULT_MAX, //
        },
        signal::{
            QueueLimits,
            QueueSizes, //
        },
    },
    test_device::send_queue::blocks,
};

/// The limits that an mlx5 adapter has told (ConnectX-4 to 6).
const MLX5: QueueLimits = QueueLimits {
    work_requests: 32768,
    completions: 1 << 22,
};

/// The segments of a client's work request.
const SEGMENTS: u32 = 17;
/// The bytes of a block of a send queue, of a receive's descriptor with one segment, and of an
/// entry of a completion queue, by mlx5's driver (`calc_sq_size()`, `set_rq_size()`,
/// `create_cq_kernel()` of 7.2).
const BLOCK: u64 = 64;
const RECEIVE: u64 = 16;
const COMPLETION: u64 = 64;

/// The bytes of a connection's queues in an mlx5 adapter, with the entries for draining.
fn bytes(sizes: QueueSizes) -> u64 {
    let send = blocks(sizes.send + 1, SEGMENTS) * BLOCK;
    let receives = u64::from((sizes.recv + 1).next_power_of_two()) * RECEIVE;
    // One completion queue for the sends, and one for the receives.
    let completions = [sizes.send, sizes.recv].map(|n| u64::from((n + 3).next_power_of_two()));
    send + receives + completions.iter().sum::<u64>() * COMPLETION
}

/// The bytes of a path's queues with so many IO connections, at the default depth.
fn path_bytes(io: u32) -> u64 {
    let admin = QueueSizes::admin(16, MLX5).unwrap();
    let each = QueueSizes::client_io(512, MLX5).unwrap();
    bytes(admin) + u64::from(io) * bytes(each)
}

#[test]
fn a_path_has_a_connection_for_each_cpu_that_is_online() {
    for cpus in 1..=IO_QUEUES_DEFAULT_MAX {
        assert_eq!(io_queues(None, 0, cpus), Ok(cpus));
    }
    // Of a machine that has only begun to boot.
    assert_eq!(io_queues(None, 0, 0), Ok(1));
}

#[test]
fn a_machine_of_64_cpus_has_less_than_16_mib_of_queues_a_path() {
    let limit = 16 << 20;
    let queues = io_queues(None, 0, 64).unwrap();
    assert!(path_bytes(queues) < limit, "{}", path_bytes(queues));
    // A connection for each CPU is five times as much.
    assert!(path_bytes(64) > 5 * limit);
    for cpus in [65, 240, 8192, u32::MAX] {
        assert_eq!(io_queues(None, 0, cpus), Ok(queues));
    }
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
