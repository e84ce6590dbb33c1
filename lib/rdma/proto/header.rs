// SPDX-License-Identifier: GPL-2.0

//! The header before a datagram in the memory of its receive.

/// The bytes before a datagram: the global routing header, or room for it.
pub const HEADER_LEN: usize = 40;

/// The kind of header in those bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    /// No header was written: a packet of InfiniBand without a global header.
    None,
    /// A global routing header, or an IPv6 header, which has its addresses at the same places.
    Global,
    /// An IPv4 header in the last 20 bytes.
    Ipv4,
    /// The device has not told: one of the latter two, by its version.
    Unknown,
}

const IPV4_AT: usize = 20;
const IPV4_SOURCE_AT: usize = 32;
const GLOBAL_SOURCE_AT: usize = 8;

/// Returns the global identifier of the sender, an IPv4 address as `::ffff:a.b.c.d`; [`None`] if
/// the header has none.
pub fn source_gid(header: &[u8; HEADER_LEN], kind: HeaderKind) -> Option<[u8; 16]> {
    match kind {
        HeaderKind::None => None,
        HeaderKind::Global => global(header),
        HeaderKind::Ipv4 => ipv4(header),
        HeaderKind::Unknown => {
            // The first bytes of one are garbage if it is the other.
            let is_global = version(header, 0) == 6;
            let is_ipv4 = version(header, IPV4_AT) == 4;
            match (is_global, is_ipv4) {
                (true, false) => global(header),
                (false, true) => ipv4(header),
                _ => None,
            }
        }
    }
}

fn version(header: &[u8; HEADER_LEN], at: usize) -> u8 {
    header.get(at).map_or(0, |byte| byte >> 4)
}

fn global(header: &[u8; HEADER_LEN]) -> Option<[u8; 16]> {
    let source = header.get(GLOBAL_SOURCE_AT..GLOBAL_SOURCE_AT.wrapping_add(16))?;
    source.try_into().ok()
}

fn ipv4(header: &[u8; HEADER_LEN]) -> Option<[u8; 16]> {
    let source = header.get(IPV4_SOURCE_AT..IPV4_SOURCE_AT.wrapping_add(4))?;
    let source: [u8; 4] = source.try_into().ok()?;
    Some(core::net::Ipv4Addr::from(source).to_ipv6_mapped().octets())
}
