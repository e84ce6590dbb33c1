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
            Some(_) => Ok(Route {
                lid: 0,
                is_global: true,
            }),
        },
        LinkLayer::InfiniBand => {
            if lid == 0 || lid >= MULTICAST_LID {
                return Err(RouteError::BadLid);
            }
            let prefix = |gid: &[u8; 16]| gid.first_chunk::<PREFIX_LEN>().copied();
            let is_global = gid.is_some_and(|gid| prefix(gid) != prefix(own_gid));
            Ok(Route { lid, is_global })
        }
    }
}
