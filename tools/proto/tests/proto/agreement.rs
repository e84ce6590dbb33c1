// SPDX-License-Identifier: GPL-2.0

//! The agreement of a session, by which each of its servers can serve the requests that it makes.

use proto::rtrs::{
    agreement::{
        Agreement,
        Grant, //
    },
    handshake::ConnectError, //
};

const USUAL: Grant = Grant {
    queue_depth: 512,
    max_io_size: 126_976,
    max_segments: 128,
};

fn sized(max_io_size: u32) -> Grant {
    Grant {
        max_io_size,
        ..USUAL
    }
}

#[test]
fn a_session_takes_the_least_while_it_is_opened() {
    assert_eq!(Agreement::Nothing.grant(), None);
    assert_eq!(Agreement::Nothing.settled(), Agreement::Nothing);
    let first = Agreement::Nothing.with(USUAL).unwrap();
    let both = first.with(sized(61_440)).unwrap();
    assert_eq!(both.grant(), Some(sized(61_440)));
    let few = Grant {
        max_segments: 8,
        ..USUAL
    };
    let all = both.with(few).unwrap().settled().grant().unwrap();
    assert_eq!((all.max_io_size, all.max_segments), (61_440, 8));
}

#[test]
fn a_request_is_as_long_as_chunk_and_registration_are() {
    let sizes = |pages, keeps_page_offsets| {
        let grant = Grant::new(512, 126_976, pages, keeps_page_offsets);
        (grant.max_io_size, grant.max_segments)
    };
    // Two pages are for what begins inside another one, and for tuples.
    assert_eq!(sizes(130, true), (126_976, 128));
    assert_eq!(sizes(33, true), (126_976, 31));
    assert_eq!(sizes(32, true), (30 * 4096, 30));
    assert_eq!(sizes(2, true), (0, 0));
    assert_eq!(sizes(0, true), (0, 0));
    // Where segments may come to lie anywhere, each is registered alone.
    assert_eq!(sizes(130, false), (126_976, 1));
    assert_eq!(sizes(10, false), (8 * 4096, 1));
    assert_eq!(sizes(0, false), (0, 0));
}

#[test]
fn an_open_session_takes_no_less_and_keeps_what_it_has() {
    let settled = Agreement::Nothing.with(USUAL).unwrap().settled();
    let smaller = ConnectError::SmallerRequests {
        granted: 61_440,
        needed: 126_976,
    };
    assert_eq!(settled.with(sized(61_440)), Err(smaller));
    assert!(smaller
        .to_string()
        .contains("61440 bytes instead of 126976"));
    // Nothing of that sticks, and more does not either.
    for granted in [126_976, 126_977, 1 << 20] {
        assert_eq!(settled.with(sized(granted)), Ok(settled));
    }
    assert_eq!(settled.settled(), settled);
}

#[test]
fn every_grant_is_enough_or_refused() {
    let sizes = [1, 4096, 8192, 61_440, 126_976, 1 << 20, u32::MAX];
    for known_io in sizes {
        for known_segments in [1, 2, 32, 128] {
            let known = Grant {
                queue_depth: 512,
                max_io_size: known_io,
                max_segments: known_segments,
            };
            let settled = Agreement::Nothing.with(known).unwrap().settled();
            for new_io in sizes {
                for max_segments in [1, 2, 32, 128] {
                    let new = Grant {
                        queue_depth: 512,
                        max_io_size: new_io,
                        max_segments,
                    };
                    let fits = new_io >= known_io && max_segments >= known_segments;
                    let agreed = settled.with(new);
                    assert_eq!(agreed.is_ok(), fits, "{known:?} {new:?}");
                    assert_eq!(agreed.unwrap_or(settled), settled);
                }
            }
        }
    }
}

#[test]
fn the_queue_depth_never_changes() {
    let other = Grant {
        queue_depth: 511,
        ..USUAL
    };
    let opening = Agreement::Nothing.with(USUAL).unwrap();
    for agreement in [opening, opening.settled()] {
        let refused = ConnectError::QueueDepthChanged(511);
        assert_eq!(agreement.with(other), Err(refused));
    }
}
