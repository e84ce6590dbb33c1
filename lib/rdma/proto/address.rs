// SPDX-License-Identifier: GPL-2.0

//! The route to a port: the fields that its address has.

/// The network that a port is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// A subnet of InfiniBand: ports have local identifiers, which a subnet manager gives.
    InfiniBand,
    /// Ethernet (RoCE): ports have global identifiers only.
    Ethernet,
}

/// The bytes of a global identifier that name the subnet.
const PREFIX_LEN: usize = 8;

/// The first local identifier of a multicast group, which no port has.
const MULTICAST_LID: u16 = 0xc000;

/// The largest service level.
const SERVICE_LEVEL_MAX: u8 = 15;

/// The route to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local identifier of the port, or of the router on the way to it; 0 on Ethernet.
    pub lid: u16,
    /// Whether packets have a global routing header.
    pub is_global: bool,
    /// The flow label of the global routing header.
    pub flow_label: u32,
}

/// The reason why a port cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// The address has no global identifier, and is on Ethernet or in another subnet.
    NoGid,
    /// The address is on InfiniBand, and its local identifier is not one of a port.
    BadLid,
    /// The service level is above 15.
    BadServiceLevel,
}

/// Returns how to reach the port with `gid` and `lid` from one with `own_gid`.
///
/// On Ethernet the global identifier is all that counts. On InfiniBand the local one is needed in
/// any case, and a global header only between subnets: it would cost 40 bytes of each packet.
///
/// # Errors
///
/// Returns which part of the address is missing or wrong.
pub fn route(
    link: LinkLayer,
    own_gid: &[u8; 16],
    gid: Option<&[u8; 16]>,
    lid: u16,
    service_level: u8,
) -> Result<Route, RouteError> {
    if service_level > SERVICE_LEVEL_MAX {
        return Err(RouteError::BadServiceLevel);
    }
    let gid = gid.filter(|gid| **gid != [0; 16]);
    match link {
        LinkLayer::Ethernet => match gid {
            None => Err(RouteError::NoGid),
            Some(gid) => Ok(Route {
                lid: 0,
                is_global: true,
                flow_label: flow_label(own_gid, gid),
            }),
        },
        LinkLayer::InfiniBand => {
            if lid == 0 || lid >= MULTICAST_LID {
                return Err(RouteError::BadLid);
            }
            let prefix = |gid: &[u8; 16]| gid.first_chunk::<PREFIX_LEN>().copied();
            let is_global = gid.is_some_and(|gid| prefix(gid) != prefix(own_gid));
            Ok(Route {
                lid,
                is_global,
                flow_label: 0,
            })
        }
    }
}

/// The bits of a flow label.
const FLOW_LABEL: u64 = 0xf_ffff;

/// Returns a flow label for all packets from one port of Ethernet to another: 1 to 2^20 - 1.
///
/// Adapters make the UDP source port of RoCE version 2 of it, by which switches choose among paths:
/// with 0 some take one port for all datagrams, and so all go by the same link. Those of a pair of
/// ports stay on one path, and in order.
fn flow_label(own_gid: &[u8; 16], gid: &[u8; 16]) -> u32 {
    // FNV-1a.
    let bytes = own_gid.iter().chain(gid);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let folded = (hash ^ hash.wrapping_shr(20) ^ hash.wrapping_shr(40)) & FLOW_LABEL;
    // CAST: 20 bits.
    (folded as u32).max(1)
}
