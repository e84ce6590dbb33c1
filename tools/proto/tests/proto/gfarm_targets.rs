// SPDX-License-Identifier: GPL-2.0

//! Targets for any bytes at all that a client of Gfarm reads, and a node of its cache, with what
//! must hold for them.

use proto::gfarm::{
    auth::{
        Auth,
        AuthStep,
        MESSAGE_LEN_MAX, //
    },
    cache::{
        address::NodeId,
        fragment::FragmentLen,
        have::Have,
        pages::PageSet,
        reassembly::{
            Move,
            Place,
            Reassembly, //
        },
        reply::{
            Answer as CacheAnswer,
            Reply,
            REPLY_LEN_MAX, //
        },
        request::{
            Request,
            Role, //
        },
        wire::{
            self,
            Key, //
        }, //
    },
    closing::{
        Fds,
        FDS_MAX, //
    },
    gfm,
    gfs::{
        self,
        BulkPart, //
    },
    hosts,
    key::SharedKey,
    name::Path,
    operation::{
        Operation,
        ReplyError, //
    },
    options::Options,
    question::{
        Answer,
        Kind,
        Part,
        Question, //
    },
    xdr::{
        Decoder,
        Encoder, //
    }, //
};

use super::number;

/// Decodes a reply to `operation`; what was asked for more must be missing.
fn reply(operation: &impl Operation, bytes: &[u8]) {
    let mut from = Decoder::new(bytes);
    match operation.decode(&mut from) {
        Ok(_) => assert!(from.consumed() <= bytes.len()),
        Err(ReplyError::NeedMore(more)) => assert_ne!(more, 0),
        Err(error) => assert!(!error.to_string().is_empty() && error.errno().get() != 0),
    }
}

/// Reads the answer to a question, as far as it goes.
fn answer(kind: Kind, path: &[u8], bytes: &[u8]) {
    let question = Question::new(kind, Path::new(path).unwrap());
    let (mut answer, mut from) = (Answer::new(&question), Decoder::new(bytes));
    let (mut announced, mut items) = (0, 0);
    while !answer.is_over() {
        match answer.part(&question, &mut from) {
            Ok(Part::Count(count)) => announced = count,
            Ok(Part::Entry(_) | Part::Host(_)) => items += 1,
            Ok(Part::Exported(_)) => assert_eq!(items, announced),
            Ok(_) => {}
            Err(ReplyError::NeedMore(more)) => {
                assert_ne!(more, 0);
                break;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty() && error.errno().get() != 0);
                break;
            }
        }
    }
    assert!(items <= announced && from.consumed() <= bytes.len());
    if let Kind::List { max, .. } = kind {
        assert!(announced <= max);
    }
}

/// A client of Gfarm reads the replies of gfmd and gfsd.
pub(crate) fn gfarm_reply(bytes: &[u8]) {
    let ([which, len], rest) = number(bytes);
    let fd = gfm::Fd::new(3).unwrap();
    let range = gfs::Range::new(9, u64::from(len) << 13).unwrap();
    match which % 8 {
        0 => answer(Kind::Link, b"d1/link", rest),
        1 => answer(Kind::Open, b"name", rest),
        2 => {
            let max = len.into();
            answer(Kind::List { at: 0, max }, b"d1", rest);
        }
        3 => answer(Kind::Attributes, b"d1/d2/deep", rest),
        4 => reply(&gfm::Statfs, rest),
        5 => {
            let read = gfs::Pread { fd, range };
            reply(&read, rest);
            if let Ok(header) = read.decode(&mut Decoder::new(rest)) {
                assert!(header.len <= read.len() && header.is_eof == (header.len < read.len()));
            }
        }
        6 => bulk(&gfs::BulkRead { fd, range }, rest),
        _ => {
            let mut fds = Fds::NONE;
            (0..len % 17).for_each(|_| assert!(fds.push(fd) || fds.len() == FDS_MAX));
            answer(Kind::Close(fds), b"", rest);
        }
    }
}

/// The chunks of a bulk read are never more than the range.
fn bulk(read: &gfs::BulkRead, bytes: &[u8]) {
    let mut from = Decoder::new(bytes);
    let Ok(mut state) = read.decode(&mut from) else {
        return;
    };
    let mut sum = 0;
    while let Ok(BulkPart::Chunk(len)) = state.decode(&mut from) {
        assert!((1..=1 << 20).contains(&len));
        sum += u64::from(len);
        if from.raw(len as usize).is_err() {
            break;
        }
    }
    assert!(sum <= read.range.len());
}

/// A client of Gfarm authenticates.
pub(crate) fn gfarm_auth(bytes: &[u8]) {
    let ([pieces], mut rest) = number(bytes);
    let mut auth = Auth::new(b"user");
    let mut digests = 0;
    for turn in 0..64 {
        let mut out = [0; MESSAGE_LEN_MAX];
        let mut to = Encoder::new(&mut out);
        let have = rest.len().min(usize::from(pieces) + turn);
        let mut from = Decoder::new(rest.get(..have).unwrap_or(rest));
        let step = auth.receive(&mut from, &mut to);
        rest = rest.get(from.consumed()..).unwrap_or(&[]);
        let step = match step {
            Ok(AuthStep::Digest(_)) => {
                digests += 1;
                Ok(auth.answer(1, &[0; 16], &mut to))
            }
            Ok(AuthStep::Renew) => Ok(auth.renew(&mut to)),
            step => step,
        };
        assert!(to.finish().is_ok(), "every message fits");
        match step {
            Ok(AuthStep::Done) => {
                assert!((1..=2).contains(&digests), "nothing was proved");
                return;
            }
            Ok(AuthStep::Receive(more)) => assert_ne!(more, 0),
            Ok(_) => {}
            Err(failure) => {
                assert!(!failure.to_string().is_empty() && failure.errno().get() != 0);
                return;
            }
        }
    }
}

/// A mount of Gfarm reads its options, its source and its key.
pub(crate) fn gfarm_options(bytes: &[u8]) {
    match Options::parse(bytes) {
        Ok(options) => {
            let shown = options.to_string();
            assert!(shown.starts_with(",username=") && shown.len() < 4096);
            let again = Options::parse(shown.as_bytes());
            assert!(again.is_ok_and(|again| again.to_string() == shown));
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.is_empty() && shown.len() < 200 && !shown.contains('\n'));
            assert_eq!(error.errno().get(), 22);
        }
    }
    for server in hosts::servers(bytes).flatten() {
        assert!(server.port != 0 && (1..=255).contains(&server.host.len()));
    }
    let mut key = SharedKey::empty();
    if key.read(bytes).is_err() {
        assert_eq!(key.secret, [0; 32], "a part of a secret");
    }
    let _ = Path::new(bytes).map(|path| path.names().count());
}

/// A node reads a datagram of another one. The fuzzer cannot guess codes: bodies are read without
/// one as well.
pub(crate) fn gfarm_cache(bytes: &[u8]) {
    let key = Key::new(&[0; 16]);
    if let Err(rejected) = wire::open(bytes, &key) {
        assert!(!rejected.to_string().is_empty());
    }
    let end = bytes.len().saturating_sub(wire::CODE_LEN);
    let body = bytes.get(wire::HEAD_LEN..end).unwrap_or(bytes);
    let to = wire::open(bytes, &key).map_or(1, |d| d.head.from.get());
    let node = NodeId::new(to).unwrap();
    match Request::parse(body) {
        Ok(request) => {
            let wanted = request.wanted();
            let last = wanted.pages().iter().last().unwrap();
            let offset = (wanted.chunk() << 20) + (u64::from(last) << 12);
            assert!(offset < wanted.size_bytes());
            let landing = request.landing();
            assert_eq!(landing.is_some(), request.ask().role == Role::Holder);
            assert!(landing.is_none_or(|l| l.fragment_len().count(wanted.pages()).is_some()));
            let again = request.seal(node, node, 1, &key).unwrap();
            let end = again.len() - wire::CODE_LEN;
            assert_eq!(again.get(wire::HEAD_LEN..end), Some(body));
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
    if let Ok((reply, sums)) = Reply::parse(body) {
        let mut again = [0; REPLY_LEN_MAX];
        let len = match reply.answer {
            CacheAnswer::Data { pages } if !sums.is_empty() => {
                assert_eq!(sums.iter().count(), pages.len());
                let sum = |page| sums.iter().nth(pages.rank(page)).unwrap();
                reply.seal_with_sums(node, node, &key, &mut again, sum)
            }
            _ => {
                assert!(sums.is_empty());
                let sealed = reply.seal(node, node, &key).unwrap();
                again[..sealed.len()].copy_from_slice(&sealed);
                Some(sealed.len())
            }
        };
        let end = len.unwrap() - wire::CODE_LEN;
        assert_eq!(again.get(wire::HEAD_LEN..end), Some(body));
    }
    if let Ok(have) = Have::parse(body) {
        assert_eq!(have.to_bytes()[..], *body);
    }
}

/// Fragments arrive in any order, and come to their places.
pub(crate) fn gfarm_fragments(bytes: &[u8]) {
    let ([pages, log, tag, sent], mut rest) = number(bytes);
    let len = FragmentLen::new(1 << (8 + log % 5)).unwrap();
    let pages = PageSet::range(tag, usize::from(pages) % (len.pages_max() + 1));
    let mut reassembly = Reassembly::new(tag.into(), len, pages).unwrap();
    // What is in memory, by place; 256 is no fragment.
    let (mut cells, mut spare) = ([256u16; 256], 256u16);
    for slot in 0..=255u8 {
        let ([low, high], next) = number(rest);
        rest = next;
        let (imm, is_ours) = (u32::from(tag) << 16 | u32::from(low), high % 8 != 0);
        let len_bytes = len.bytes() - u32::from(!is_ours);
        if usize::from(slot) < reassembly.count() && high % 32 != 1 {
            let is_one = is_ours && usize::from(low) < reassembly.count();
            *cells.get_mut(usize::from(slot)).unwrap() = if is_one { low.into() } else { 256 };
        } else if usize::from(slot) < reassembly.count() {
            continue;
        }
        reassembly.received(slot, Some(imm), len_bytes);
    }
    reassembly.stopped();
    let complete = reassembly.settle(PageSet::range(sent, 100)).unwrap();
    while let Some(Move { from, to }) = reassembly.next_move() {
        let cell = match from {
            Place::Slot(slot) => *cells.get(usize::from(slot)).unwrap(),
            Place::Spare => spare,
        };
        match to {
            Place::Slot(slot) => *cells.get_mut(usize::from(slot)).unwrap() = cell,
            Place::Spare => spare = cell,
        }
    }
    assert!(complete.is_subset(pages));
    for page in complete.iter() {
        for fragment in len.of_page(pages.rank(page)) {
            assert_eq!(
                cells.get(fragment).copied().map(usize::from),
                Some(fragment)
            );
        }
    }
}
