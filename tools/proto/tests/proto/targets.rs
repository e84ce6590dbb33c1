// SPDX-License-Identifier: GPL-2.0

//! Targets for any bytes at all, one for each parser, with what must hold for them. Run for a
//! moment by `fuzz.rs` and for as long as one likes by `tools/fuzz`, which includes this file.

use proto::{
    common::text,
    rnbd::{
        control,
        device::{
            self,
            Device,
            Server, //
        },
        map::{
            link_name,
            Cpus,
            MapRequest, //
        },
        message::{
            Direction,
            IoRequest,
            Message, //
        },
        path_name, pi,
    },
    rtrs::{
        addr::{
            Addr,
            PathAddrs, //
        },
        geometry::Geometry,
        handshake::{
            self,
            Connect, //
        },
        imm::Imm,
        info::Chunks,
        policy::Policy,
        request::{
            self,
            head_len,
            Request, //
        },
        settings::Setting,
        wire::InfoRequest, //
    }, //
};
use zerocopy::IntoBytes;

#[path = "gfarm_targets.rs"]
mod gfarm_targets;
#[path = "sidecar_targets.rs"]
mod sidecar_targets;

#[path = "chunk_targets.rs"]
mod chunk_targets;

pub(crate) use chunk_targets::*;
pub(crate) use gfarm_targets::*;
pub(crate) use sidecar_targets::*;

/// A target: panics if the parser breaks its promise.
pub(crate) type Target = fn(&[u8]);

/// All targets, by the names that `tools/fuzz` knows them by.
pub(crate) const TARGETS: [(&str, Target); 17] = [
    ("connect", connect),
    ("info", info),
    ("chunks", chunks),
    ("imm", imm),
    ("request", request),
    ("message", message),
    ("device", answers),
    ("map", map),
    ("sysfs", sysfs),
    ("gfarm_reply", gfarm_reply),
    ("gfarm_auth", gfarm_auth),
    ("gfarm_options", gfarm_options),
    ("gfarm_cache", gfarm_cache),
    ("gfarm_fragments", gfarm_fragments),
    ("chunk4k", chunk4k),
    ("crc32_umr", crc32_umr),
    ("sidecar", sidecar),
];

/// Takes a number off the front.
pub(crate) fn number<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    match bytes.split_first_chunk::<N>() {
        Some((number, rest)) => (*number, rest),
        None => ([0; N], bytes),
    }
}

/// A server reads a connect request, a client its answers.
pub(crate) fn connect(bytes: &[u8]) {
    if let Ok(c) = Connect::parse(bytes) {
        assert!(c.cid < c.cid_num && c.cid_num <= 4096);
        assert_eq!(Connect::parse(c.to_wire().as_bytes()), Ok(c));
    }
    let (depth, rest) = number(bytes);
    let depth = u16::from_le_bytes(depth);
    if let Ok(a) = handshake::accepted(rest, Some(depth)) {
        assert_eq!(a.geometry.queue_depth(), depth);
        let size = u64::from(a.geometry.chunk_size());
        assert_eq!(size, u64::from(a.max_io_size) + u64::from(a.max_hdr_size));
        assert!(u64::from(depth) * size <= 1 << 28);
    }
    let _ = handshake::rejected(bytes).to_string();
}

/// A server reads an info request.
pub(crate) fn info(bytes: &[u8]) {
    if let Ok(request) = InfoRequest::parse(bytes) {
        match request.name() {
            Ok(name) => {
                assert!((1..255).contains(&name.len()));
                assert!(!name.iter().any(|c| matches!(c, b'/' | 0..=31 | 127)));
                assert!(!name.starts_with(b".") && !name.windows(2).any(|w| w == b".."));
            }
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}

/// A client reads an info response.
pub(crate) fn chunks(bytes: &[u8]) {
    let ([depth, size_bits], rest) = number(bytes);
    let depth = u32::from(depth % 16) + 1;
    let size = 1 << (9 + size_bits % 16);
    let Ok(geometry) = Geometry::new(depth, size) else {
        return;
    };
    match Chunks::parse(rest, &geometry) {
        Ok(chunks) => {
            assert_eq!(chunks.iter().count(), depth as usize);
            for c in chunks.iter() {
                assert!(c.addr.checked_add(size.into()).is_some());
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// Either side reads an immediate.
pub(crate) fn imm(bytes: &[u8]) {
    let (raw, rest) = number(bytes);
    let raw = u32::from_le_bytes(raw);
    let ([depth, size, high], _) = number(rest);
    let Ok(imm) = Imm::decode(raw) else {
        assert!(matches!(raw >> 28, 3..=7 | 10..));
        return;
    };
    match imm {
        Imm::Request { payload } => {
            assert_eq!(imm.encode(), raw);
            let depth = (u32::from(high) << 8) | u32::from(depth);
            if let Ok(geometry) = Geometry::new(depth, 1 << (size % 32)) {
                if let Ok((id, offset)) = geometry.split(payload) {
                    assert!(u32::from(id) < depth && offset < geometry.chunk_size());
                    assert_eq!(geometry.join(id, offset), Some(payload));
                }
            }
        }
        Imm::Response(r) => {
            assert_eq!(imm.encode(), raw);
            assert!(r.errno < 512 && r.msg_id < 1 << 19);
        }
        Imm::Heartbeat | Imm::HeartbeatAck => assert!(raw >> 28 >= 8),
        Imm::Fence(_) | Imm::Fenced(_) => assert_eq!(imm.encode(), raw),
    }
}

/// A server finds a request in a chunk, and in it a message.
pub(crate) fn request(bytes: &[u8]) {
    let (offset, chunk) = number(bytes);
    let offset = u32::from(u16::from_le_bytes(offset)) % (chunk.len() as u32 + 2);
    let len = head_len(offset, chunk.len() as u32);
    let Some(head) = chunk.get(offset as usize..).and_then(|c| c.get(..len)) else {
        assert_eq!(len, 0);
        return;
    };
    let parsed = request::parse(head, offset);
    if let Some(usual) = head
        .try_into()
        .ok()
        .and_then(|head| request::parse_usual(head, offset))
    {
        assert_eq!(parsed, Ok(usual));
    }
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    let data = chunk.get(..parsed.data_len() as usize);
    let user = chunk.get(parsed.user());
    let (Some(data), Some(user)) = (data, user) else {
        panic!("{parsed:?} reaches past the chunk");
    };
    assert_eq!(data.len() + user.len(), offset as usize);
    let direction = match parsed {
        Request::Read(r) => {
            assert_eq!(r.reply.is_some(), r.data_len > 0);
            Direction::Read
        }
        Request::Write(_) => Direction::Write,
    };
    let _ = Message::parse(user, parsed.data_len(), direction, 2);
    let _ = request::parse_rkey(chunk, offset as u16);
}

/// A server reads a message.
pub(crate) fn message(bytes: &[u8]) {
    let ([version, way, low, high], user) = number(bytes);
    let data_len = (u32::from(high) << 8) | u32::from(low);
    let direction = if way % 2 == 0 {
        Direction::Read
    } else {
        Direction::Write
    };
    match Message::parse(user, data_len, direction, version) {
        Ok(Message::SessInfo { version, .. }) => {
            assert!(version <= 2 && data_len >= 36);
        }
        Ok(Message::Open { name, .. }) => {
            assert!((1..255).contains(&name.len()) && !name.contains(&0));
            assert!(data_len >= 56);
            let mut out = [0; 300];
            let _ = path_name::join(b"/x/%SESSNAME%", b"s", name, &mut out);
            let _ = link_name(name, b"s", &mut out);
        }
        Ok(Message::Close { .. }) => assert_eq!(data_len, 0),
        Ok(Message::Io(io)) => {
            assert_eq!(io.size % 512, 0);
            assert!(io.sector.checked_add(u64::from(io.size / 512)).is_some());
            assert_eq!(data_len, if io.rw.op.has_data() { io.size } else { 0 });
            assert!(io.prio == 0 || version >= 2);
        }
        Err(e) => assert!(!e.to_string().is_empty() && e.errno().get() != 0),
    }
    for raw in [[0x11, 12], [0x22, 9], [0x21, 12]] {
        let Ok(Some(geometry)) = pi::Geometry::from_wire(raw) else {
            panic!("{raw:?} is a geometry");
        };
        let parsed = IoRequest::parse_protected(user, data_len, direction, version, geometry);
        if let Ok((io, seal)) = parsed {
            let tuples_len = u32::from(seal.tuples_len);
            let data = if io.rw.op.has_data() { io.size } else { 0 };
            assert_eq!(data_len, data + tuples_len);
            assert_eq!(tuples_len == 0, !io.rw.op.has_data());
            assert!(tuples_len <= 2048 && data % geometry.interval_bytes() == 0);
            let len = geometry.format().tuple_bytes();
            assert_eq!(tuples_len, data / geometry.interval_bytes() * len);
        }
        let (guard, address) = number(user);
        let format = geometry.format();
        let packed = pi::tuple::Packed::load(format, |target| {
            target.copy_from_slice(user.get(..target.len()).ok_or(())?);
            Ok::<(), ()>(())
        });
        if let Ok(packed) = packed {
            let (guard, address) = (u64::from_le_bytes(guard), address.len() as u64);
            let _ = pi::Series::new(format, address).verify(guard, packed);
            assert_eq!(packed.unpack(format).pack(format), packed);
            packed.store(format, |again| assert!(user.starts_with(again)));
        }
    }
}

/// A client reads a server's answers.
pub(crate) fn answers(bytes: &[u8]) {
    let server = Server {
        version: 2,
        boot: None,
        is_extended: true,
    };
    if let Ok(d) = Device::parse(bytes, &server) {
        assert!(d.identity.is_none_or(|i| i.get() >> 60 == 3));
        assert!(d.logical_block_size >= 512 && d.logical_block_size <= d.physical_block_size);
        assert!(d
            .nsectors
            .checked_mul(512)
            .is_some_and(|n| i64::try_from(n).is_ok()));
        assert_eq!(Device::parse(d.to_wire().as_bytes(), &server), Ok(d));
    }
    if let Ok(server) = device::parse_sess_info_response(bytes, 7) {
        assert!(server.version <= 2);
        assert!(server.is_extended || server.boot.is_none());
    }
}

/// A client reads a line written to `map_device`.
pub(crate) fn map(bytes: &[u8]) {
    let cpus = Cpus {
        online: 8,
        possible: 16,
    };
    match MapRequest::parse(bytes, cpus) {
        Ok(m) => {
            assert_eq!(m.paths().count(), m.path_count);
            assert!(m.path_count <= 128 && m.nr_poll_queues <= 16);
            assert!(m.nr_io_queues.is_none_or(|n| (1..=16).contains(&n)));
            assert!((1..255).contains(&m.sess_name.len()));
            assert!((1..255).contains(&m.device_path.len()));
            let mut out = [0; 256];
            let link = link_name(m.device_path, m.sess_name, &mut out);
            let nul = m.device_path.contains(&0);
            assert_eq!(link.is_some(), !nul);
            assert!(link.is_none_or(|l| !l.to_bytes().contains(&b'/')));
        }
        Err(e) => {
            let shown = e.to_string();
            assert!(!shown.is_empty() && shown.len() < 400 && !shown.contains('\n'));
            assert_ne!(e.errno().get(), 0);
        }
    }
}

/// Either side reads what was written to a small file of sysfs.
pub(crate) fn sysfs(bytes: &[u8]) {
    if let Ok(addr) = Addr::parse(bytes) {
        assert_eq!(Addr::parse(addr.to_string().as_bytes()), Ok(addr));
    }
    if let Ok(path) = PathAddrs::parse(bytes, 1234) {
        assert!(path.src.is_none() || bytes.contains(&b'@') || bytes.contains(&b','));
    }
    if let Ok(policy) = Policy::parse(bytes) {
        assert_eq!(Policy::parse(policy.to_string().as_bytes()), Ok(policy));
    }
    for base in [0, 8, 10, 16] {
        if let (Ok(n), Ok(m)) = (text::parse_i32(bytes, base), text::parse_u64(bytes, base)) {
            assert_eq!(Ok(m), u64::try_from(n));
        }
    }
    for setting in Setting::ALL {
        if let Ok(value) = setting.parse(bytes) {
            assert!(setting.range().contains(&value));
        }
    }
    let _ = control::Unmap::parse(bytes);
    let _ = control::Remap::parse(bytes);
    let _ = control::parse_one(bytes);
    let _ = control::parse_resize(bytes);
    let _ = path_name::common_folder(bytes);
    let _ = path_name::join(bytes, b"s", bytes, &mut [0; 64]);
}
