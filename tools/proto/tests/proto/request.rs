// SPDX-License-Identifier: GPL-2.0

//! Requests as a server finds them in a chunk, honest ones and others.

use proptest::prelude::*;
use proto::rtrs::{
    request::{
        head_len,
        head_offset,
        parse,
        parse_rkey,
        parse_usual,
        Malformed,
        Request,
        RkeyError,
        Then,
        TooLarge,
        HEAD_MAX,
        USER_USUAL, //
    },
    wire::{
        Descriptor,
        ReadHead,
        ReadMessage,
        RkeyResponse,
        WriteHead,
        NEED_INVAL,
        TAIL,
        TAIL_LEN_MAX, //
    },
};
use zerocopy::{
    little_endian::U16,
    FromBytes,
    Immutable,
    IntoBytes, //
};

const CHUNK: u32 = 8192;

fn read(usr_len: u16, len: u32) -> ReadMessage {
    ReadMessage::new(usr_len, Descriptor::new(0x1000, 7, len))
}

#[test]
fn d5_a_head_across_the_chunk_s_end_is_refused() {
    // The head's bytes are all there, but the chunk ends before them.
    for missing in 1..=24u32 {
        let offset = CHUNK - 24 + missing;
        let message = read(8, offset - 8);
        let head = &message.as_bytes()[..head_len(offset, CHUNK)];
        assert_eq!(
            parse(head, offset),
            Err(Malformed::Truncated),
            "{missing} missing"
        );
    }
    let offset = CHUNK - 24;
    let message = read(8, offset - 8);
    assert!(parse(&message.as_bytes()[..head_len(offset, CHUNK)], offset).is_ok());
}

#[test]
fn d5_a_write_s_head_may_end_with_the_chunk_and_not_after_it() {
    let message = WriteHead::new(0);
    for (offset, fits) in [(CHUNK - 4, true), (CHUNK - 3, false), (CHUNK - 1, false)] {
        let head = &[message.as_bytes(), &[0; 24]].concat()[..head_len(offset, CHUNK)];
        assert_eq!(parse(head, offset).is_ok(), fits);
    }
}

#[test]
fn the_head_to_copy_never_leaves_the_chunk() {
    for chunk in [0, 1, 4, 23, 24, 25, 8192, u32::MAX] {
        for offset in [0, 1, 23, 24, 25, 8168, 8169, 8191, 8192, 8193, u32::MAX] {
            let len = head_len(offset, chunk);
            assert!(len <= HEAD_MAX);
            assert!(len == 0 || u64::from(offset) + len as u64 <= u64::from(chunk));
            if u64::from(offset) + HEAD_MAX as u64 <= u64::from(chunk) {
                assert_eq!(len, HEAD_MAX);
            }
        }
    }
}

#[test]
fn d6_a_read_longer_or_shorter_than_its_descriptor_is_refused() {
    let offset = 4096 + 32;
    for len in [0, 1, 4095, 4097, CHUNK, 128 << 10, u32::MAX] {
        let refused = parse(read(32, len).as_bytes(), offset);
        assert_eq!(refused, Err(Malformed::DescriptorLength(len)));
    }
    let Ok(Request::Read(r)) = parse(read(32, 4096).as_bytes(), offset) else {
        panic!("an honest read is refused");
    };
    assert_eq!(
        (r.data_len, r.reply.map(|d| d.then)),
        (4096, Some(Then::Invalidation))
    );
}

#[test]
fn d11_a_user_length_past_the_offset_is_refused() {
    // CVE-2026-97413: the difference went below zero.
    for kind in [WriteHead::new(33).as_bytes(), read(33, 0).as_bytes()] {
        assert_eq!(parse(kind, 32), Err(Malformed::UserLength(33)));
    }
    assert_eq!(
        parse(WriteHead::new(u16::MAX).as_bytes(), 0),
        Err(Malformed::UserLength(u16::MAX))
    );
}

#[test]
fn d11_every_refusal_has_an_error_and_a_reason() {
    for refusal in [
        Malformed::Truncated,
        Malformed::Kind(9),
        Malformed::UserLength(1),
        Malformed::DescriptorCount(2),
        Malformed::DescriptorLength(0),
    ] {
        assert_eq!(refusal.errno().get(), 22);
        assert!(!refusal.to_string().is_empty());
    }
}

#[test]
fn d12_the_descriptor_count_is_read_as_little_endian() {
    let mut message = read(32, 4096);
    assert_eq!(message.head.sg_cnt.as_bytes(), [1, 0]);
    // 256 is what a host of the other order would take for 1.
    message.head.sg_cnt = U16::from_bytes([0, 1]);
    assert_eq!(
        parse(message.as_bytes(), 4128),
        Err(Malformed::DescriptorCount(256))
    );
}

#[test]
fn descriptor_counts_other_than_none_and_one_are_refused() {
    for sg_cnt in 2..=u16::MAX {
        let mut message = read(32, 4096);
        message.head.sg_cnt = sg_cnt.into();
        assert_eq!(
            parse(message.as_bytes(), 4128),
            Err(Malformed::DescriptorCount(sg_cnt))
        );
    }
}

#[test]
fn a_c_client_s_flush_is_a_read_of_nothing() {
    // rq_data_dir() calls a flush a read; with no segments, C sends no descriptor and no flag.
    let head = ReadHead::without_reply(32);
    let Ok(Request::Read(r)) = parse(head.as_bytes(), 32) else {
        panic!("a flush is refused");
    };
    assert_eq!((r.data_len, r.reply), (0, None));
    assert_eq!(Request::Read(r).user(), 0..32);
    // But data without a place to put it is not read.
    assert_eq!(
        parse(head.as_bytes(), 33),
        Err(Malformed::DescriptorCount(0))
    );
}

#[test]
fn the_flag_for_invalidation_is_heard() {
    let mut message = read(32, 4096);
    // A driver in C may set any other.
    let (no, yes, nothing) = (Then::Response, Then::Invalidation, Then::Nothing);
    let with_imm = [(4, nothing), (5, yes), (6, nothing), (7, yes)];
    let others = [
        (0u16, no),
        (1, yes),
        (2, no),
        (3, yes),
        (8, no),
        (0xffff, yes),
    ];
    for (flags, wanted) in others.into_iter().chain(with_imm) {
        message.head.flags = flags.into();
        let Ok(Request::Read(r)) = parse(message.as_bytes(), 4128) else {
            panic!("refused");
        };
        assert_eq!(r.reply.unwrap().then, wanted);
    }
}

#[test]
fn a_tail_is_what_the_descriptor_has_no_room_for() {
    let data_len = 4096 + TAIL_LEN_MAX + 8;
    for flags in [0, NEED_INVAL, TAIL, NEED_INVAL | TAIL] {
        let (permitted, invalidate) = (flags & TAIL != 0, flags & NEED_INVAL != 0);
        for len in 0..=data_len + TAIL_LEN_MAX {
            let mut message = read(32, len);
            message.head.flags = flags.into();
            let parsed = parse(message.as_bytes(), data_len + 32);
            let tail_len = data_len.checked_sub(len);
            let expected = match tail_len {
                Some(0) if invalidate => Some(Then::Invalidation),
                Some(0) => Some(Then::Response),
                Some(n) if permitted && n <= TAIL_LEN_MAX => Some(Then::Tail {
                    len: n as u8,
                    invalidate,
                }),
                _ => None,
            };
            let Some(then) = expected else {
                assert_eq!(parsed, Err(Malformed::DescriptorLength(len)));
                continue;
            };
            let Ok(Request::Read(r)) = parsed else {
                panic!("a tail of {tail_len:?} bytes is refused");
            };
            assert_eq!(
                (r.data_len, r.reply.map(|d| d.then)),
                (data_len, Some(then))
            );
        }
    }
}

#[test]
fn a_read_is_not_all_tail() {
    for data_len in 1..=TAIL_LEN_MAX {
        let message = read(32, 0).with_tail();
        let parsed = parse(message.as_bytes(), data_len + 32);
        assert_eq!(parsed, Err(Malformed::DescriptorLength(0)));
    }
}

#[test]
fn messages_that_are_no_requests_are_refused() {
    for kind in (0..=u16::MAX).filter(|k| !matches!(k, 2 | 3)) {
        let bytes = [&kind.to_le_bytes()[..], &[0; 22]].concat();
        assert_eq!(parse(&bytes, 100), Err(Malformed::Kind(kind)));
    }
}

#[test]
fn a_client_lays_out_no_request_that_its_server_would_refuse() {
    let max_hdr = 4096;
    assert_eq!(
        head_offset(CHUNK - 36, 32, 4, max_hdr, CHUNK),
        Ok(CHUNK - 4)
    );
    assert_eq!(
        head_offset(CHUNK - 35, 32, 4, max_hdr, CHUNK),
        Err(TooLarge)
    );
    assert_eq!(head_offset(0, 4072, 24, max_hdr, CHUNK), Ok(4072));
    assert_eq!(head_offset(0, 4073, 24, max_hdr, CHUNK), Err(TooLarge));
    assert_eq!(
        head_offset(u32::MAX, 32, 4, max_hdr, u32::MAX),
        Err(TooLarge)
    );
    assert_eq!(
        head_offset(0, 1, u32::MAX, u32::MAX - 1, u32::MAX),
        Err(TooLarge)
    );
}

#[test]
fn a_new_key_for_another_chunk_is_not_taken() {
    let bytes = *RkeyResponse::new(7, 0x373)
        .as_bytes()
        .first_chunk::<8>()
        .unwrap();
    assert_eq!(parse_rkey(&bytes, 7), Ok(0x373));
    assert_eq!(parse_rkey(&bytes, 8), Err(RkeyError::ForeignChunk(7)));
    for len in 0..8 {
        assert_eq!(parse_rkey(&bytes[..len], 7), Err(RkeyError::Truncated));
    }
    let write = [WriteHead::new(0).as_bytes(), &[0; 4]].concat();
    assert_eq!(parse_rkey(&write, 0), Err(RkeyError::Kind(2)));
}

proptest! {
    #[test]
    fn what_a_client_lays_out_the_server_finds(
        data_len in 0..=CHUNK,
        usr_len in 0..=4096u16,
        writes in any::<bool>(),
        key in any::<u32>(),
    ) {
        let hdr_len = match (writes, data_len) { (true, _) => 4, (_, 0) => 8, _ => 24 };
        // What has no room is refused: another test.
        let data_len = data_len.min(CHUNK - hdr_len);
        let usr_len = usr_len.min((CHUNK - hdr_len - data_len).min(4096 - hdr_len) as u16);
        let offset = head_offset(data_len, usr_len, hdr_len, 4096, CHUNK).unwrap();
        let message = ReadMessage::new(usr_len, Descriptor::new(0x1000, key, data_len));
        let (write, flush) = (WriteHead::new(usr_len), ReadHead::without_reply(usr_len));
        let sent = match hdr_len {
            4 => write.as_bytes(),
            8 => flush.as_bytes(),
            _ => message.as_bytes(),
        };
        let mut chunk = vec![0xee; CHUNK as usize];
        let at = offset as usize;
        chunk[at..at + sent.len()].copy_from_slice(sent);
        let request = parse(&chunk[at..at + head_len(offset, CHUNK)], offset).unwrap();
        prop_assert_eq!(request.data_len(), data_len);
        prop_assert_eq!(request.user(), data_len as usize..at);
        prop_assert_eq!(matches!(request, Request::Write(_)), writes);
        if let Request::Read(r) = request {
            prop_assert_eq!(r.reply.map(|d| d.rkey), (data_len > 0).then_some(key));
        }
    }

    #[test]
    fn the_parser_agrees_with_the_rule_in_plain_words(
        kind in 0..6u16,
        usr_len in 0..64u16,
        flags in any::<u16>(),
        sg_cnt in 0..4u16,
        len in 0..64u32,
        len_given in 0..=24usize,
        offset in 0..128u32,
    ) {
        let mut message = ReadMessage::new(usr_len, Descriptor::new(1, 2, len));
        message.head.kind = kind.into();
        message.head.flags = flags.into();
        message.head.sg_cnt = sg_cnt.into();
        let head = &message.as_bytes()[..len_given];
        let inside = u32::from(usr_len) <= offset;
        let data_len = offset.wrapping_sub(u32::from(usr_len));
        let tail = i64::from(data_len) - i64::from(len);
        let has_tail = flags & 2 != 0 && (1..=64).contains(&tail);
        let legal = match kind {
            2 => len_given >= 4 && inside,
            3 => len_given >= 8 && inside && match sg_cnt {
                0 => data_len == 0,
                1 => len_given >= 24 && len > 0 && (len == data_len || has_tail),
                _ => false,
            },
            _ => false,
        };
        let parsed = parse(head, offset);
        prop_assert_eq!(parsed.is_ok(), legal);
        if let Ok(request) = parsed {
            prop_assert_eq!(request.user().end, offset as usize);
        }
    }

    #[test]
    fn every_message_of_the_right_size_survives_the_wire(bytes in any::<[u8; 24]>()) {
        let message = ReadMessage::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(message.as_bytes(), &bytes[..]);
    }
}

/// A head in the bytes that a server copies.
fn padded(head: &(impl IntoBytes + Immutable)) -> [u8; HEAD_MAX] {
    let mut bytes = [0xa5; HEAD_MAX];
    let len = size_of_val(head);
    bytes[..len].copy_from_slice(head.as_bytes());
    bytes
}

#[test]
fn what_our_client_sends_most_is_usual() {
    let offset = 4096 + u32::from(USER_USUAL);
    let registered = |len| read(USER_USUAL, len).into_registered();
    for head in [
        padded(&WriteHead::new(USER_USUAL)),
        padded(&registered(4096)),
    ] {
        assert!(parse_usual(&head, offset).is_some());
        assert_eq!(
            parse_usual(&head, offset),
            parse(head.as_slice(), offset).ok()
        );
    }
    // Read of nothing, and heads whose numbers do not go together.
    for (head, offset) in [
        (registered(0), u32::from(USER_USUAL)),
        (registered(4095), offset),
        (registered(4097), offset),
        (registered(4096), u32::from(USER_USUAL) - 1),
        (read(USER_USUAL, 4096), offset),
        (read(USER_USUAL - 1, 4097).into_registered(), offset),
    ] {
        assert_eq!(parse_usual(&padded(&head), offset), None);
    }
    let head = padded(&WriteHead::new(USER_USUAL));
    assert_eq!(parse_usual(&head, u32::from(USER_USUAL) - 1), None);
}

#[test]
fn a_usual_request_is_what_any_request_is() {
    let mut usual = [0; 2];
    let lengths = || (0..3u32).flat_map(|len| (0..3u32).map(move |data_len| (len, data_len)));
    let user_lengths = [0, USER_USUAL - 1, USER_USUAL, USER_USUAL + 1, 0x120];
    for (kind, usr_len) in (0..5u16).flat_map(|kind| user_lengths.map(|usr_len| (kind, usr_len))) {
        for (flags, count) in (0..16u16).flat_map(|f| [0, 1, 2, 0x101].map(|count| (f, count))) {
            for (len, data_len) in lengths() {
                let start = [kind, usr_len, flags, count].map(u16::to_le_bytes);
                let mut head = [0xa5; HEAD_MAX];
                head[..8].copy_from_slice(start.as_flattened());
                head[20..].copy_from_slice(&len.to_le_bytes());
                let offset = data_len + u32::from(USER_USUAL);
                if let Some(request) = parse_usual(&head, offset) {
                    assert_eq!(parse(&head, offset), Ok(request), "{head:?} {offset}");
                    usual[usize::from(matches!(request, Request::Read(_)))] += 1;
                }
            }
        }
    }
    // Of a write flags and count are bytes of its data, and of a read both lengths are one.
    assert_eq!(usual, [16 * 4 * 9, 2], "writes and reads that are usual");
}
