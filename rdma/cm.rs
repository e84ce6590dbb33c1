// SPDX-License-Identifier: GPL-2.0

//! The connection manager: reliable connections between IP or GID addresses.
//!
//! A connection has an identifier ([`CmId`]) and a [`Qp`](crate::Qp) that is made on it.
//!
//! | active side | passive side |
//! |---|---|
//! | [`CmId::new`], [`Id::resolve_address`] | [`Listener::new`] |
//! | on [`Event::AddressResolved`]: [`Id::create_qp`], [`Id::resolve_route`] | [`ListenHandler::request`] gets a [`ConnectRequest`] |
//! | on [`Event::RouteResolved`]: [`Id::connect`] | [`ConnectRequest::prepare`], [`Id::create_qp`], [`Pending::accept`] |
//! | [`Event::Established`] | [`Event::Established`] |
//! | [`Id::disconnect`] by either side, [`Event::Disconnected`] on both | |
//!
//! The steps may be taken in the event handler or in any other process context: locking is done
//! inside. Private data is what one side tells the other in the messages of the handshake. It is
//! padded by the connection manager, so that what arrives is longer than what was sent: a length or
//! a magic number belongs inside.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod address;
mod core_id;
mod event;
mod id;
mod listener;
mod param;

pub use self::{
    address::{Address, PortSpace, SocketAddress},
    event::{CmHandler, Event, RejectReason},
    id::{CmId, Id},
    listener::{ConnectRequest, ListenHandler, Listener, Pending},
    param::ConnectParam,
};

pub(crate) use self::core_id::IdCore;
