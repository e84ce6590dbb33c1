// SPDX-License-Identifier: GPL-2.0

//! Conversion of the protocol's addresses for the connection manager.

use kernel::str::CStr;
use rdma::cm::{
    interface_index,
    Address,
    SocketAddress, //
};

use crate::proto::addr::{
    Addr,
    Scope, //
};

/// Converts `addr` and `port` for the connection manager, which chooses the port if it is 0.
/// [`None`] if the interface of a link-local address does not exist now.
pub fn to_cm(addr: &Addr, port: u16) -> Option<SocketAddress> {
    let address = match *addr {
        Addr::V4(bytes) => Address::V4(bytes.into()),
        Addr::V6(bytes) => Address::V6(bytes.into(), 0),
        Addr::LinkLocal(bytes, scope) => Address::V6(bytes.into(), interface(&scope)?),
        Addr::Gid(gid) => Address::Gid(gid),
    };
    Some(SocketAddress { address, port })
}

/// Returns the index of the interface that a scope names, or whose number it is.
fn interface(scope: &Scope) -> Option<u32> {
    let name = CStr::from_bytes_until_nul(scope.name()).ok()?;
    interface_index(name).or(scope.number())
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
