// SPDX-License-Identifier: GPL-2.0

//! Addresses of the connection manager.
//!
//! C headers: [`include/linux/socket.h`](srctree/include/linux/socket.h),
//! [`include/rdma/ib.h`](srctree/include/rdma/ib.h)

use crate::sys;
use core::{
    mem::size_of,
    net::{Ipv4Addr, Ipv6Addr}, //
};
use kernel::{
    fmt::{self, Write},
    str::{CStr, CStrExt}, //
};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_IB: u16 = 27;

/// The service identifiers of TCP-like ports (`RDMA_IB_IP_PS_IB` in `rdma/ib.h`).
const SERVICE_IP_PS_IB: u64 = 0x0000_0000_013f_0000;

/// Size of `struct sockaddr_storage`.
const STORAGE: usize = 128;

const _: () = assert!(size_of::<kernel::bindings::__kernel_sockaddr_storage>() == STORAGE);

/// The address of a node.
///
/// [`Display`](fmt::Display) writes `ip:10.0.0.1`, `ip:fe80::1` or
/// `gid:fe80:0000:0000:0000:0000:0000:0000:0001`. An IPv4 address inside an IPv6 one is written as
/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address and, for a link-local one, the index of its interface.
    V6(Ipv6Addr, u32),
    /// An InfiniBand GID.
    Gid([u8; 16]),
}

/// Returns the index of the interface with this name in the initial network namespace, which is the
/// scope of a link-local address on it; [`None`] if there is none now. Any context.
pub fn interface_index(name: &CStr) -> Option<u32> {
    // SAFETY: The name is a string that ends with a zero.
    let index = unsafe { sys::rdma_helper_interface_index(name.as_char_ptr()) };
    u32::try_from(index).ok().filter(|index| *index != 0)
}

/// A node's address and a port on it. For a GID the port is a part of the service identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAddress {
    /// The node.
    pub address: Address,
    /// The port in host order; 0 leaves the choice to the kernel.
    pub port: u16,
}

/// The port space of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// Reliable connections of IP addresses (`RDMA_PS_TCP`).
    Tcp,
    /// Service identifiers, for GID addresses (`RDMA_PS_IB`).
    Ib,
}

impl PortSpace {
    pub(crate) fn as_raw(self) -> sys::rdma_ucm_port_space {
        match self {
            Self::Tcp => sys::rdma_ucm_port_space_RDMA_PS_TCP,
            Self::Ib => sys::rdma_ucm_port_space_RDMA_PS_IB,
        }
    }
}

impl Address {
    /// Returns the port space of this kind of address.
    pub fn port_space(&self) -> PortSpace {
        match self {
            Self::V4(_) | Self::V6(..) => PortSpace::Tcp,
            Self::Gid(_) => PortSpace::Ib,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => {
                f.write_str("ip:")?;
                core::fmt::Display::fmt(ip, f)
            }
            Self::V6(ip, _) => {
                f.write_str("ip:")?;
                match ip.to_ipv4_mapped() {
                    Some(ip) => core::fmt::Display::fmt(&ip, f),
                    None => core::fmt::Display::fmt(ip, f),
                }
            }
            Self::Gid(gid) => {
                f.write_str("gid")?;
                for pair in gid.chunks_exact(2) {
                    f.write_char(':')?;
                    for byte in pair {
                        f.write_fmt(format_args!("{byte:02x}"))?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl SocketAddress {
    /// Creates an IPv4 address and a port.
    pub const fn v4(ip: Ipv4Addr, port: u16) -> Self {
        Self {
            address: Address::V4(ip),
            port,
        }
    }

    /// Returns the unspecified IPv6 address, which includes all IPv4 addresses, for a
    /// [`Listener`](super::Listener).
    pub const fn any_ip(port: u16) -> Self {
        Self {
            address: Address::V6(Ipv6Addr::UNSPECIFIED, 0),
            port,
        }
    }

    /// Returns the unspecified GID, for a [`Listener`](super::Listener).
    pub const fn any_gid(port: u16) -> Self {
        Self {
            address: Address::Gid([0; 16]),
            port,
        }
    }

    /// Converts the address to the C structure.
    pub(crate) fn to_storage(self) -> Storage {
        let mut s = Storage([0; STORAGE]);
        match self.address {
            Address::V4(ip) => {
                s.put(0, &AF_INET.to_ne_bytes());
                s.put(2, &self.port.to_be_bytes());
                s.put(4, &ip.octets());
            }
            Address::V6(ip, scope) => {
                s.put(0, &AF_INET6.to_ne_bytes());
                s.put(2, &self.port.to_be_bytes());
                s.put(8, &ip.octets());
                s.put(24, &scope.to_ne_bytes());
            }
            Address::Gid(gid) => {
                let service = SERVICE_IP_PS_IB | u64::from(self.port);
                s.put(0, &AF_IB.to_ne_bytes());
                s.put(2, &0xffff_u16.to_be_bytes());
                s.put(8, &gid);
                s.put(24, &service.to_be_bytes());
                s.put(32, &u64::MAX.to_be_bytes());
            }
        }
        s
    }
}

/// A `struct sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Storage([u8; STORAGE]);

impl Storage {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in core::iter::zip(self.0.iter_mut().skip(at), bytes) {
            *to = *from;
        }
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (to, from) in core::iter::zip(bytes.iter_mut(), self.0.iter().skip(at)) {
            *to = *from;
        }
        bytes
    }

    /// # Safety
    ///
    /// The caller must ensure that `raw` points to a readable storage.
    pub(crate) unsafe fn read(raw: *const kernel::bindings::__kernel_sockaddr_storage) -> Self {
        // SAFETY: By the function requirements; the sizes are the same, any bytes are valid.
        unsafe { raw.cast::<Self>().read() }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut kernel::bindings::sockaddr {
        core::ptr::from_mut(self).cast()
    }

    /// Returns the address if its family is supported. An unset address has family 0.
    pub(crate) fn to_address(self) -> Option<SocketAddress> {
        let port = u16::from_be_bytes(self.get(2));
        match u16::from_ne_bytes(self.get(0)) {
            AF_INET => Some(SocketAddress::v4(self.get::<4>(4).into(), port)),
            AF_INET6 => Some(SocketAddress {
                address: Address::V6(self.get::<16>(8).into(), u32::from_ne_bytes(self.get(24))),
                port,
            }),
            AF_IB => Some(SocketAddress {
                address: Address::Gid(self.get(8)),
                // The port is the last two bytes of the service identifier.
                port: u16::from_be_bytes(self.get(30)),
            }),
            _ => None,
        }
    }
}
