// SPDX-License-Identifier: GPL-2.0

//! Sends that ask for a completion, and the lengths of the queues.

use proto::rtrs::signal::{
    client_mask,
    interval,
    interval_mask,
    QueueError,
    QueueLimits,
    QueueSizes,
    TooShort, //
};

/// A device without limits.
const ANY: QueueLimits = QueueLimits {
    work_requests: u32::MAX,
    completions: u32::MAX,
};

/// Devices of whom something is known: rxe, mlx5, irdma, i40iw, and short ones.
fn devices() -> impl Iterator<Item = QueueLimits> {
    [
        (1 << 20, (1 << 20) - 1),
        (32768, 4_194_303),
        (8192, 65535),
        (4063, 8191),
        (895, 1023),
        (600, 700),
        (128, 256),
        (0, 0),
    ]
    .into_iter()
    .map(|(work_requests, completions)| QueueLimits {
        work_requests,
        completions,
    })
}

#[test]
fn the_interval_is_the_queue_depth_and_at_most_512() {
    for (depth, sends) in [
        (1, 1),
        (2, 2),
        (511, 511),
        (512, 512),
        (513, 512),
        (65535, 512),
    ] {
        assert_eq!(interval(depth), sends);
    }
    assert_eq!(interval(0), 512);
}

#[test]
fn queues_have_room_for_all_requests_and_the_batches_of_receives() {
    let sizes = |q: Result<QueueSizes, QueueError>| q.map(|q| (q.send, q.recv));
    assert_eq!(sizes(QueueSizes::admin(16, ANY)), Ok((241, 160)));
    assert_eq!(sizes(QueueSizes::client_io(512, ANY)), Ok((1793, 1537)));
    let server = QueueSizes::server_io(512, true, 16, ANY);
    assert_eq!(sizes(server), Ok((2561, 545)));
}

#[test]
fn a_device_has_the_queues_and_their_draining_or_is_refused() {
    for limits in devices() {
        let fits = |q: QueueSizes| {
            q.send < limits.work_requests
                && q.recv < limits.work_requests
                && q.send + q.recv + 2 <= limits.completions
        };
        assert!(QueueSizes::admin(16, limits).is_ok_and(fits) || limits.work_requests < 256);
        for depth in (1..=600).chain([1024, 2048, 4096, u16::MAX]) {
            if let Ok(sizes) = QueueSizes::client_io(depth, limits) {
                assert!(fits(sizes), "{depth} {limits:?}");
            }
            for always_invalidate in [false, true] {
                let sizes = QueueSizes::server_io(depth, always_invalidate, 16, limits);
                let Ok(sizes) = sizes else { continue };
                assert!(fits(sizes), "{depth} {limits:?}");
                // All requests may have an invalidation posted, beside as many answers as there is
                // credit for: of three work requests at most.
                let revocations = if always_invalidate { depth.into() } else { 0 };
                let answers = sizes.answers(depth, always_invalidate);
                assert!(
                    answers * 3 + revocations <= sizes.send,
                    "{depth} {limits:?}"
                );
                assert!(answers >= 2);
            }
        }
    }
}

#[test]
fn the_line_says_which_queue_is_too_short() {
    let limits = |work_requests, completions| QueueLimits {
        work_requests,
        completions,
    };
    let lengths = |needed, most| TooShort { needed, most };
    assert_eq!(
        QueueSizes::client_io(512, limits(1024, 1 << 20)),
        Err(QueueError::Receive(lengths(1538, 1024)))
    );
    assert_eq!(
        QueueSizes::client_io(512, limits(1600, 1 << 20)),
        Err(QueueError::Send(lengths(1726, 1600)))
    );
    assert_eq!(
        QueueSizes::server_io(512, true, 16, limits(1 << 20, 1000)),
        Err(QueueError::Completion(lengths(518 + 545 + 2, 1000)))
    );
    let text = QueueError::Send(lengths(1726, 1600)).to_string();
    let expected = "device's send queues have 1600 entries, the queue depth needs 1726";
    assert_eq!(text, expected);
    // i40iw: answers wait for room, invalidations do not.
    let short = QueueSizes::server_io(512, true, 16, limits(895, 1 << 20)).unwrap();
    assert_eq!((short.send, short.answers(512, true)), (894, 127));
}

#[test]
fn a_few_answers_wait_where_that_halves_the_completion_queue() {
    let sizes = QueueSizes::server_io(512, false, 16, ANY).unwrap();
    assert_eq!((sizes.send, sizes.recv), (1500, 545));
    for (depth, batch) in (1..=u16::MAX).zip((0..5).cycle()) {
        for always_invalidate in [false, true] {
            let per_response = if always_invalidate { 5 } else { 3 };
            let all = u32::from(depth) * per_response + 1;
            let batch = 1 << batch;
            let sizes = QueueSizes::server_io(depth, always_invalidate, batch, ANY).unwrap();
            let entries = |send: u32| (send + sizes.recv + 3).next_power_of_two();
            assert_eq!(sizes.recv, u32::from(depth) + 1 + batch * 2);
            // An answer and a heartbeat fit in any case.
            let all = all.max(u32::from(always_invalidate) * u32::from(depth) + 6);
            assert!(sizes.send == all || entries(sizes.send) * 2 == entries(all));
            assert!(sizes.send <= all && sizes.send >= all - all / 16);
            assert!(sizes.send > per_response);
        }
    }
}

#[test]
fn a_client_s_send_queue_holds_what_is_done_without_anybody_knowing() {
    for depth in 1..=u16::MAX {
        let unknown = client_mask(depth);
        let send = QueueSizes::client_io(depth, ANY).unwrap().send;
        assert!((u32::from(depth) + unknown) * 3 < send, "{depth}");
    }
}

#[test]
fn the_mask_stands_for_the_largest_power_of_two_in_the_interval() {
    for depth in 0..=u16::MAX {
        let sends = interval_mask(depth) + 1;
        assert!(sends.is_power_of_two());
        assert!(sends <= interval(depth) && sends * 2 > interval(depth));
    }
}
