// SPDX-License-Identifier: GPL-2.0

//! Conversion of the protocol's addresses for the connection manager.

use rdma::cm::{
    Address,
    SocketAddress, //
};

use crate::proto::addr::Addr;

/// Converts `addr` and `port` for the connection manager, which chooses the port if it is 0.
pub fn to_cm(addr: &Addr, port: u16) -> SocketAddress {
    let address = match *addr {
        Addr::V4(bytes) => Address::V4(bytes.into()),
        Addr::V6(bytes) => Address::V6(bytes.into(), 0),
        Addr::Gid(gid) => Address::Gid(gid),
    };
    SocketAddress { address, port }
}

/// Converts an address of the connection manager. An IPv4-mapped IPv6 address becomes an IPv4
/// address, as both mean the same peer.
pub fn from_cm(address: &Address) -> Addr {
    match *address {
        Address::V4(ip) => Addr::V4(ip.octets()),
        Address::V6(ip, _) => match ip.to_ipv4_mapped() {
            Some(ip) => Addr::V4(ip.octets()),
            None => Addr::V6(ip.octets()),
        },
        Address::Gid(gid) => Addr::Gid(gid),
    }
}
