// SPDX-License-Identifier: GPL-2.0

//! `Display` of the protocol's types, for log lines.
//!
//! `pr_err!` and the other macros require the kernel's own `Display`, which pure code does not
//! implement.

use ferro_proto::forward_display;

use crate::proto::{
    addr::{
        Addr,
        AddrError,
        PathName, //
    },
    device::Unfit,
    fence::BadFence,
    geometry::BadPayload,
    handshake::{
        ConnectError,
        Refusal, //
    },
    info::{
        InfoError,
        NameError, //
    },
    io_queues::TooManyQueues,
    params::ParamError,
    path::ClientState,
    policy::{
        Policy,
        UnknownPolicy, //
    },
    request::Malformed,
    settings::{
        SettingError,
        SettingText, //
    },
    stats::{
        ClientRdma,
        IoCounts,
        Latency,
        Reconnects, //
    }, //
};

forward_display! {
    Addr,
    AddrError,
    BadFence,
    BadPayload,
    ClientRdma,
    ClientState,
    ConnectError,
    InfoError,
    IoCounts,
    Latency,
    Malformed,
    NameError,
    ParamError,
    PathName,
    Policy,
    Reconnects,
    Refusal,
    SettingError,
    SettingText,
    TooManyQueues,
    Unfit,
    UnknownPolicy,
}
