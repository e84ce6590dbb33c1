// SPDX-License-Identifier: GPL-2.0

//! Bytes that the in-tree C client and server of Linux 7.2.12 put on a wire (always_invalidate=Y,
//! queue depth 512, chunks of 128 KiB): we make the same bytes and read them the same way.

use proto::{
    rnbd::{
        access::AccessMode,
        boot::Boot,
        device::{
            parse_sess_info_response,
            Device,
            Server, //
        },
        flags::{
            Op,
            Rw,
            RwFlags, //
        },
        identity::Identity,
        message::{
            Direction,
            IoRequest,
            Message, //
        },
        wire as rnbd_wire,
    },
    rtrs::{
        geometry::Geometry,
        handshake::{
            accepted,
            Connect, //
        },
        imm::{
            Imm,
            Response, //
        },
        info::{
            response_len,
            Chunks, //
        },
        request::{
            head_len,
            head_offset,
            parse,
            parse_rkey,
            ReadRequest,
            Reply,
            Request,
            Then,
            WriteRequest, //
        },
        wire,
    },
};
use zerocopy::IntoBytes;

/// Reads bytes from hexadecimal digits; white space is let be.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| char::from(c).to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|d| (d[0] << 4) | d[1]).collect()
}

/// `text`, followed by zeros up to `len` bytes.
fn padded(text: &str, len: usize) -> Vec<u8> {
    let mut bytes = hex(text);
    bytes.resize(len, 0);
    bytes
}

fn geometry() -> Geometry {
    Geometry::new(512, 128 << 10).unwrap()
}

/// Puts a message into a chunk where the recorded immediate says that its head is, and parses it.
fn arrive(imm: u32, message: &[u8], data_in_front: usize) -> (u16, Request, Vec<u8>) {
    let Ok(Imm::Request { payload }) = Imm::decode(imm) else {
        panic!("{imm:#x} is no request");
    };
    let (chunk_id, offset) = geometry().split(payload).unwrap();
    let size = geometry().chunk_size() as usize;
    let mut chunk = vec![0xee; size];
    chunk[data_in_front..data_in_front + message.len()].copy_from_slice(message);
    let at = offset as usize;
    let head = &chunk[at..at + head_len(offset, size as u32)];
    let request = parse(head, offset).unwrap();
    let user = chunk[request.user()].to_vec();
    (chunk_id, request, user)
}

const V1: &str = "
    0000bd1b 00020000 03000100
    663c55f8 22f64bda bdfba991 027a15f5
    b36f9532 04554193 a9e51342 c771ebd9
    01000000 00000000 00000000";

#[test]
fn v1_a_connect_request() {
    let connect = Connect {
        cid: 0,
        cid_num: 3,
        recon_cnt: 1,
        sess_uuid: hex("663c55f8 22f64bda bdfba991 027a15f5")
            .try_into()
            .unwrap(),
        paths_uuid: hex("b36f9532 04554193 a9e51342 c771ebd9")
            .try_into()
            .unwrap(),
        first_conn: true,
        fences: false,
    };
    assert_eq!(connect.to_wire().as_bytes(), hex(V1));
    assert_eq!(Connect::parse(&hex(V1)), Ok(connect));
}

#[test]
fn v2_an_accept() {
    let bytes = padded("bd1b0002 00000002 00f00100 00100000 02000000", 56);
    assert_eq!(
        wire::ConnectResponse::accept(&geometry(), true, None).as_bytes(),
        bytes
    );
    let accepted = accepted(&bytes, None).unwrap();
    assert_eq!(accepted.geometry, geometry());
    assert_eq!(accepted.max_io_size, 126_976);
    assert_eq!(accepted.max_hdr_size, 4096);
    assert!(accepted.new_rkey);
}

#[test]
fn v3_an_info_request() {
    let bytes = padded("00007769 72657465 73740000", 272);
    let request = wire::InfoRequest::new(b"wiretest").unwrap();
    assert_eq!(request.as_bytes(), bytes);
    assert_eq!(
        wire::InfoRequest::parse(&bytes).unwrap().name(),
        Ok(&b"wiretest"[..])
    );
}

#[test]
fn v4_an_info_response() {
    let recorded = hex("
        01000002 00000000 0000cc08 000011ff 72030000 00000200 0000ce08 000011ff
        e3040000 00000200 0000d008 000011ff df050000 00000200");
    let descriptor =
        |i: u64, key| wire::Descriptor::new(0xff11_0000_08cc_0000 + (i << 17), key, 0x20000);
    let keys = [0x372, 0x4e3, 0x5df].into_iter().chain(0x1000..);
    let descriptors: Vec<_> = (0..512)
        .zip(keys)
        .map(|(i, key)| descriptor(i, key))
        .collect();
    let mut bytes = vec![0xee; response_len(512)];
    assert_eq!(bytes.len(), 8200);
    let len = proto::rtrs::info::encode(&mut bytes, descriptors.into_iter()).unwrap();
    assert_eq!(len, 8200);
    assert_eq!(bytes[..56], recorded);

    let chunks: Vec<_> = Chunks::parse(&bytes, &geometry()).unwrap().iter().collect();
    assert_eq!(chunks.len(), 512);
    assert_eq!(
        (chunks[0].addr, chunks[0].rkey),
        (0xff11_0000_08cc_0000, 0x372)
    );
    assert_eq!(
        (chunks[2].addr, chunks[2].rkey),
        (0xff11_0000_08d0_0000, 0x5df)
    );
}

#[test]
fn v5_a_sess_info_request() {
    let recorded = hex("
        00000000 02000000 00000000 00000000 00000000 00000000 00000000 00000000
        00000000 03002400 01000100 00434408 000011ff db030000 24000000");
    let reply = wire::Descriptor::new(0xff11_0000_0844_4300, 0x3db, 36);
    // The C driver's. Ours also fills bytes that are reserved: a magic number and a nonce.
    let mut info = rnbd_wire::SessInfo::request(0x0123_4567_89ab_cdef);
    let filled = padded("00000000 02000000 46464231 efcdab89 67452301", 36);
    assert_eq!(info.as_bytes(), filled);
    info.magic = 0.into();
    info.nonce = 0.into();
    let ours = [
        info.as_bytes(),
        wire::ReadMessage::new(36, reply).as_bytes(),
    ]
    .concat();
    assert_eq!(ours, recorded);
    assert_eq!(head_offset(36, 36, 24, 4096, 128 << 10), Ok(0x48));

    let (chunk, request, user) = arrive(0x48, &recorded, 0x24);
    assert_eq!(chunk, 0);
    let reply = Some(Reply {
        addr: 0xff11_0000_0844_4300,
        rkey: 0x3db,
        then: Then::Invalidation,
    });
    let (data_len, usr_len) = (36, 36);
    assert_eq!(
        request,
        Request::Read(ReadRequest {
            data_len,
            usr_len,
            reply
        })
    );
    let message = Message::parse(&user, request.data_len(), Direction::Read, 0);
    let (version, nonce) = (2, None);
    assert_eq!(message, Ok(Message::SessInfo { version, nonce }));
}

#[test]
fn v6_a_sess_info_answer() {
    let recorded = padded("01000000 02000000", 36);
    assert_eq!(rnbd_wire::SessInfo::response(2).as_bytes(), recorded);
    let server = parse_sess_info_response(&recorded, 0);
    assert_eq!(
        server,
        Ok(Server {
            version: 2,
            boot: None,
            is_extended: false
        })
    );
    let boot = Boot::from_number(0x1122_3344_5566_7788);
    let ours = rnbd_wire::SessInfo::response_to(2, 0x0123_4567_89ab_cdef, boot);
    let filled = padded(
        "01000000 02000000 46464231 efcdab89 67452301 88776655 44332211",
        36,
    );
    assert_eq!(ours.as_bytes(), filled);
}

#[test]
fn v7_a_response_with_a_new_key() {
    let response = Response::new(0, None, true);
    assert_eq!(Imm::Response(response).encode(), 0x2000_0000);
    assert_eq!(Imm::decode(0x2000_0000), Ok(Imm::Response(response)));
    let recorded = hex("04000000 73030000");
    assert_eq!(wire::RkeyResponse::new(0, 0x373).as_bytes(), recorded);
    assert_eq!(parse_rkey(&recorded, 0), Ok(0x373));
}

#[test]
fn a_read_with_a_tail() {
    // Not the C driver's: 4096 bytes go to the descriptor, and 16 come with the response.
    let reply = wire::Descriptor::new(0xff11_0000_0844_4300, 0x3db, 4096);
    let ours = wire::ReadMessage::new(32, reply).with_tail();
    let bytes = hex("03002000 03000100 00434408 000011ff db030000 00100000");
    assert_eq!(ours.as_bytes(), bytes);
    assert_eq!(
        parse(&bytes, 4096 + 16 + 32),
        Ok(Request::Read(ReadRequest {
            data_len: 4096 + 16,
            usr_len: 32,
            reply: Some(Reply {
                addr: 0xff11_0000_0844_4300,
                rkey: 0x3db,
                then: Then::Tail {
                    len: 16,
                    invalidate: true
                },
            })
        }))
    );
}

#[test]
fn a_read_that_is_answered_by_the_write_of_its_data() {
    // Not the C driver's: flag 4, of which a C server knows nothing.
    let reply = wire::Descriptor::new(0x4000_1040, 0x3db, 4096);
    let ours = wire::ReadMessage::new(32, reply).into_registered();
    let bytes = hex("03002000 04000100 40100040 00000000 db030000 00100000");
    assert_eq!(ours.as_bytes(), bytes);
    assert_eq!(
        parse(&bytes, 4096 + 32),
        Ok(Request::Read(ReadRequest {
            data_len: 4096,
            usr_len: 32,
            reply: Some(Reply {
                addr: 0x4000_1040,
                rkey: 0x3db,
                then: Then::Nothing,
            })
        }))
    );
}

#[test]
fn v8_an_open() {
    let mut recorded = padded("02000000 01007261 6d300000", 264);
    recorded.extend(hex("03000801 01000100 00494408 000011ff dc030000 38000000"));
    let reply = wire::Descriptor::new(0xff11_0000_0844_4900, 0x3dc, 56);
    let ours = [
        rnbd_wire::Open::new(b"ram0", AccessMode::ReadWrite, None)
            .unwrap()
            .as_bytes(),
        wire::ReadMessage::new(264, reply).as_bytes(),
    ]
    .concat();
    assert_eq!(ours, recorded);

    let (_, request, user) = arrive(0x140, &recorded, 0x38);
    assert_eq!(request.data_len(), 56);
    assert_eq!(
        Message::parse(&user, 56, Direction::Read, 2),
        Ok(Message::Open {
            name: b"ram0",
            access_mode: AccessMode::ReadWrite,
            pi: 0,
            answer_time: 0,
        })
    );
}

#[test]
fn v9_what_a_device_is_like() {
    let recorded = padded(
        "03000000 00000000 00001000 00000000 ff000000 00000000 ffffffff 00100000
         00000000 00100002 80000000 00000000",
        56,
    );
    let device = Device {
        device_id: 0,
        nsectors: 0x10_0000,
        max_hw_sectors: 255,
        max_write_zeroes_sectors: 0,
        max_discard_sectors: u32::MAX,
        discard_granularity: 4096,
        discard_alignment: 0,
        physical_block_size: 4096,
        logical_block_size: 512,
        max_segments: 128,
        secure_discard: false,
        fua: false,
        writeback: false,
        identity: None,
        pi: None,
    };
    assert_eq!(device.to_wire().as_bytes(), recorded);
    let mut server = Server {
        version: 2,
        boot: None,
        is_extended: false,
    };
    assert_eq!(Device::parse(&recorded, &server), Ok(device));
    // Ours to a client of ours.
    let told = Device {
        identity: Identity::from_wire(0x3123_4567_89ab_cdef),
        ..device
    };
    let mut filled = recorded.clone();
    filled[48..].copy_from_slice(&hex("efcdab89 67452331"));
    assert_eq!(told.to_wire().as_bytes(), filled);
    assert_eq!(Device::parse(&filled, &server), Ok(device));
    server.is_extended = true;
    assert_eq!(Device::parse(&filled, &server), Ok(told));
}

#[test]
fn v10_a_read_of_4_kib() {
    let recorded = hex("
        04000000 00000000 00000000 00000000 00010000 00100000 04400000 00000000
        03002000 01000100 00b04308 000011ff 4d040000 00100000");
    let rw = Rw {
        op: Op::Read,
        flags: RwFlags::SYNC,
    };
    let reply = wire::Descriptor::new(0xff11_0000_0843_b000, 0x44d, 4096);
    let ours = [
        rnbd_wire::Io::new(0, 0, rw.to_wire(), 4096, 0x4004).as_bytes(),
        wire::ReadMessage::new(32, reply).as_bytes(),
    ]
    .concat();
    assert_eq!(ours, recorded);
    let offset = head_offset(4096, 32, 24, 4096, 128 << 10).unwrap();
    let payload = geometry().join(1, offset).unwrap();
    assert_eq!(Imm::Request { payload }.encode(), 0x0008_1020);

    let (chunk, request, user) = arrive(0x0008_1020, &recorded, 0x1000);
    assert_eq!(chunk, 1);
    assert_eq!(
        Message::parse(&user, request.data_len(), Direction::Read, 2),
        Ok(Message::Io(IoRequest {
            device_id: 0,
            sector: 0,
            rw,
            size: 4096,
            prio: 0x4004,
        }))
    );
}

#[test]
fn v11_a_write_of_4_kib() {
    let recorded = hex("
        04000000 00000000 10000000 00000000 01010000 00100000 04400000 00000000
        02002000");
    let rw = Rw {
        op: Op::Write,
        flags: RwFlags::SYNC,
    };
    let ours = [
        rnbd_wire::Io::new(0, 16, rw.to_wire(), 4096, 0x4004).as_bytes(),
        wire::WriteHead::new(32).as_bytes(),
    ]
    .concat();
    assert_eq!(ours, recorded);
    let offset = head_offset(4096, 32, 4, 4096, 128 << 10).unwrap();
    let payload = geometry().join(0, offset).unwrap();
    assert_eq!(Imm::Request { payload }.encode(), 0x1020);

    let (_, request, user) = arrive(0x1020, &recorded, 0x1000);
    let (data_len, usr_len) = (4096, 32);
    assert_eq!(request, Request::Write(WriteRequest { data_len, usr_len }));
    let Ok(Message::Io(io)) = Message::parse(&user, 4096, Direction::Write, 2) else {
        panic!("no IO");
    };
    assert_eq!((io.sector, io.rw, io.size), (16, rw, 4096));
}

#[test]
fn v12_the_answer_to_a_write() {
    let response = Response::new(0, None, false);
    assert_eq!(Imm::Response(response).encode(), 0x1000_0000);
    assert_eq!(
        wire::RkeyResponse::new(0, 0x375).as_bytes(),
        hex("04000000 75030000")
    );
}

#[test]
fn v13_a_discard() {
    let recorded = hex("
        04000000 00000000 80000000 00000000 03010000 00000100 04400000 00000000
        02002000");
    let rw = Rw {
        op: Op::Discard,
        flags: RwFlags::SYNC,
    };
    let ours = [
        rnbd_wire::Io::new(0, 128, rw.to_wire(), 0x10000, 0x4004).as_bytes(),
        wire::WriteHead::new(32).as_bytes(),
    ]
    .concat();
    assert_eq!(ours, recorded);
    let (_, request, user) = arrive(0x20, &recorded, 0);
    assert_eq!(request.data_len(), 0);
    let Ok(Message::Io(io)) = Message::parse(&user, 0, Direction::Write, 2) else {
        panic!("no IO");
    };
    assert_eq!((io.sector, io.rw, io.size), (128, rw, 0x10000));
}

#[test]
fn v14_a_close() {
    let recorded = hex("05000000 00000000 02000800");
    let ours = [
        rnbd_wire::Close::new(0).as_bytes(),
        wire::WriteHead::new(8).as_bytes(),
    ]
    .concat();
    assert_eq!(ours, recorded);
    let (_, request, user) = arrive(8, &recorded, 0);
    let message = Message::parse(&user, request.data_len(), Direction::Write, 2);
    assert_eq!(message, Ok(Message::Close { device_id: 0 }));
}

#[test]
fn v15_a_heartbeat_and_its_answer() {
    assert_eq!(Imm::Heartbeat.encode(), 0x8000_0000);
    assert_eq!(Imm::HeartbeatAck.encode(), 0x9000_0000);
    assert_eq!(Imm::decode(0x8000_0000), Ok(Imm::Heartbeat));
    assert_eq!(Imm::decode(0x9000_0000), Ok(Imm::HeartbeatAck));
}
