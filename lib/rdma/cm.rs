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
//! All steps work in the event handler and in any other process context; the methods take the
//! locks. Private data is the consumer's part of the handshake messages. The connection manager
//! pads it, so the peer receives more bytes than were sent, and the data needs a length or a magic
//! number.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod address;
mod core_id;
mod event;
mod id;
mod listener;
mod param;

pub use self::{
    address::{interface_index, Address, PortSpace, SocketAddress},
    event::{CmHandler, Event, RejectReason},
    id::{CmId, Id},
    listener::{ConnectRequest, ListenHandler, Listener, Pending},
    param::ConnectParam,
};

pub(crate) use self::core_id::IdCore;
