// SPDX-License-Identifier: GPL-2.0

//! Connect requests that a server refuses, and answers that a client does not believe.

use proptest::prelude::*;
use proto::common::errno::Errno;
use proto::rtrs::{
    fence::Life,
    geometry::Geometry,
    handshake::{
        accepted,
        rejected,
        Connect,
        ConnectError,
        Refusal, //
    },
    wire::{
        ConnectRequest,
        ConnectResponse, //
    }, //
};
use zerocopy::IntoBytes;

fn connect() -> Connect {
    Connect {
        cid: 1,
        cid_num: 3,
        recon_cnt: 1,
        sess_uuid: [1; 16],
        paths_uuid: [2; 16],
        first_conn: true,
        fences: false,
    }
}

fn parse_with(change: impl FnOnce(&mut ConnectRequest)) -> Result<Connect, Refusal> {
    let mut request = connect().to_wire();
    change(&mut request);
    Connect::parse(request.as_bytes())
}

#[test]
fn a_request_of_any_length_below_56_bytes_is_refused() {
    let bytes = connect().to_wire();
    for len in 0..56 {
        let short = &bytes.as_bytes()[..len];
        assert_eq!(Connect::parse(short), Err(Refusal::Truncated));
    }
    let padded = [bytes.as_bytes(), &[0xee; 200]].concat();
    assert_eq!(Connect::parse(&padded), Ok(connect()));
}

#[test]
fn a_wrong_magic_number_or_major_version_is_refused() {
    assert_eq!(
        parse_with(|r| r.magic = 0xbd1b.into()),
        Err(Refusal::Magic(0xbd1b))
    );
    assert_eq!(
        parse_with(|r| r.version = 0x0100.into()),
        Err(Refusal::Version(0x0100))
    );
    assert_eq!(
        parse_with(|r| r.version = 0x0300.into()),
        Err(Refusal::Version(0x0300))
    );
    // Any minor version will do.
    assert_eq!(parse_with(|r| r.version = 0x02ff.into()), Ok(connect()));
}

#[test]
fn a_connection_beyond_those_announced_is_refused() {
    assert_eq!(
        parse_with(|r| r.cid = 3.into()),
        Err(Refusal::ConnectionId(3))
    );
    assert_eq!(
        parse_with(|r| r.cid_num = 0.into()),
        Err(Refusal::ConnectionId(1))
    );
    assert_eq!(
        parse_with(|r| r.cid_num = 4097.into()),
        Err(Refusal::ConnectionCount(4097))
    );
    assert!(parse_with(|r| r.cid_num = 4096.into()).is_ok());
}

#[test]
fn the_first_two_bytes_belong_to_rdma_cm() {
    let parsed = parse_with(|r| (r.cma_version, r.ip_version) = (0xaa, 0x40));
    assert_eq!(parsed, Ok(connect()));
}

#[test]
fn bits_that_mean_nothing_yet_are_let_be() {
    let parsed = parse_with(|r| (r.first_conn, r.reserved) = (0xff, [0xff; 7]));
    assert_eq!(parsed, Ok(connect()));
    let parsed = parse_with(|r| r.first_conn = 0xfe);
    assert!(!parsed.unwrap().first_conn);
}

#[test]
fn a_path_that_does_not_begin_with_its_admin_connection_is_refused() {
    assert_eq!(connect().check_new_path(), Err(Refusal::NotAdminFirst(1)));
    let admin = Connect {
        cid: 0,
        ..connect()
    };
    assert_eq!(admin.check_new_path(), Ok(()));
}

#[test]
fn a_known_path_takes_each_connection_once_and_only_while_connecting() {
    let c = connect();
    assert_eq!(c.check_known_path(true, 3, false), Ok(()));
    assert_eq!(c.check_known_path(false, 3, false), Err(Refusal::PathState));
    assert_eq!(
        c.check_known_path(true, 4, false),
        Err(Refusal::ConnectionCountChanged(3))
    );
    assert_eq!(
        c.check_known_path(true, 3, true),
        Err(Refusal::ConnectionTaken(1))
    );
}

#[test]
fn refusals_carry_the_c_driver_s_errors_as_far_as_the_client() {
    for (refusal, errno) in [
        (Refusal::Truncated, Errno::ECONNRESET),
        (Refusal::Magic(0), Errno::ECONNRESET),
        (Refusal::Version(0), Errno::ECONNRESET),
        (Refusal::ConnectionCount(9999), Errno::ECONNRESET),
        (Refusal::ConnectionId(9), Errno::ECONNRESET),
        (Refusal::PathState, Errno::ECONNRESET),
        (Refusal::ConnectionCountChanged(1), Errno::ECONNRESET),
        (Refusal::ConnectionTaken(1), Errno::ECONNRESET),
        (Refusal::NotAdminFirst(1), Errno::ECONNRESET),
        (Refusal::TooManyPaths, Errno::ECONNRESET),
        (Refusal::UnknownSession, Errno::ENXIO),
        (Refusal::AddressTaken, Errno::EEXIST),
        (Refusal::NoMemory, Errno::ENOMEM),
    ] {
        assert_eq!(refusal.errno(), errno);
        assert!(!refusal.to_string().is_empty());
        let reject = ConnectResponse::reject(refusal.errno());
        // Negative, as a number of 16 bits.
        assert_eq!(reject.errno.get() as i16, -(errno.get() as i16));
        let error = rejected(reject.as_bytes());
        assert_eq!(error, ConnectError::Rejected(Some(errno)));
        assert!(error.to_string().contains("refused"));
        assert_eq!(error.errno(), Errno::ECONNRESET);
        // The same bytes in an accept are no grant.
        assert_eq!(accepted(reject.as_bytes(), None), Err(error));
    }
}

#[test]
fn a_reject_without_our_data_is_still_a_reject() {
    assert_eq!(rejected(&[]), ConnectError::Rejected(None));
    assert_eq!(rejected(&[0; 55]), ConnectError::Rejected(None));
    assert_eq!(rejected(&[0; 56]), ConnectError::Magic(0));
}

fn accept_with(
    change: impl FnOnce(&mut ConnectResponse),
    depth: Option<u16>,
) -> Result<u16, ConnectError> {
    let mut response = ConnectResponse::accept(&Geometry::new(512, 131_072).unwrap(), false, None);
    change(&mut response);
    accepted(response.as_bytes(), depth).map(|a| a.geometry.queue_depth())
}

#[test]
fn an_accept_that_makes_no_session_is_not_believed() {
    assert_eq!(accept_with(|_| {}, None), Ok(512));
    assert_eq!(accept_with(|_| {}, Some(512)), Ok(512));
    assert_eq!(
        accept_with(|r| r.queue_depth = 0.into(), None),
        Err(ConnectError::Geometry)
    );
    assert_eq!(
        accept_with(|r| r.max_io_size = 0.into(), None),
        Err(ConnectError::Geometry)
    );
    assert_eq!(
        accept_with(|r| r.max_hdr_size = 0.into(), None),
        Err(ConnectError::Geometry)
    );
    let huge = |r: &mut ConnectResponse| r.max_io_size = u32::MAX.into();
    assert_eq!(accept_with(huge, None), Err(ConnectError::Geometry));
    let deep = |r: &mut ConnectResponse| r.queue_depth = 65535.into();
    assert_eq!(accept_with(deep, None), Err(ConnectError::Geometry));
}

#[test]
fn a_session_whose_queue_depth_changed_is_given_up_for_good() {
    let error = accept_with(|_| {}, Some(256)).unwrap_err();
    assert_eq!(error, ConnectError::QueueDepthChanged(512));
}

#[test]
fn an_accept_from_another_protocol_is_not_believed() {
    assert_eq!(
        accept_with(|r| r.magic = 1.into(), None),
        Err(ConnectError::Magic(1))
    );
    let version = accept_with(|r| r.version = 0x0100.into(), None).unwrap_err();
    assert_eq!(version, ConnectError::Version(0x0100));
    let geometry = Geometry::new(512, 131_072).unwrap();
    let bytes = ConnectResponse::accept(&geometry, true, None);
    for len in 0..56 {
        assert_eq!(
            accepted(&bytes.as_bytes()[..len], None),
            Err(ConnectError::Truncated)
        );
    }
}

proptest! {
    #[test]
    fn connect_requests_survive_the_wire(
        cid_num in 1..=4096u16,
        part in 0..4096u16,
        recon_cnt in any::<u16>(),
        sess_uuid in any::<[u8; 16]>(),
        paths_uuid in any::<[u8; 16]>(),
        first_conn in any::<bool>(),
        fences in any::<bool>(),
    ) {
        let cid = part % cid_num;
        let c = Connect { cid, cid_num, recon_cnt, sess_uuid, paths_uuid, first_conn, fences };
        prop_assert_eq!(Connect::parse(c.to_wire().as_bytes()), Ok(c));
    }

    #[test]
    fn accepts_survive_the_wire(
        depth in 1..=2048u32,
        bits in 13..=17u32,
        new_rkey in any::<bool>(),
        session in any::<u64>(),
        number in any::<u32>(),
    ) {
        let geometry = Geometry::new(depth, 1 << bits).unwrap();
        let life = Life::new(session, number >> 3);
        let response = ConnectResponse::accept(&geometry, new_rkey, life);
        let read = accepted(response.as_bytes(), None).unwrap();
        prop_assert_eq!(read.life, life);
        prop_assert_eq!(read.geometry, geometry);
        prop_assert_eq!(read.new_rkey, new_rkey);
        prop_assert_eq!(read.max_io_size + read.max_hdr_size, geometry.chunk_size());
    }
}
