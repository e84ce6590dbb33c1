// SPDX-License-Identifier: GPL-2.0

//! The protocol's types in log lines.
//!
//! `pr_err!` and its sisters ask for the kernel's own `Display`, which pure code does not know.

use kernel::fmt;

use crate::proto::{
    addr::{
        Addr,
        AddrError,
        PathName, //
    },
    errno::Errno,
    handshake::{
        ConnectError,
        Refusal, //
    },
    info::{
        InfoError,
        NameError, //
    },
    params::ParamError,
    path::ClientState,
    policy::{
        Policy,
        UnknownPolicy, //
    },
    request::Malformed,
    settings::{
        SettingError,
        Shown, //
    },
    stats::{
        ClientRdma,
        IoCounts,
        Latency,
        Reconnects, //
    },
    text::NumberError, //
};

macro_rules! forward {
    ($($name:ty,)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

forward! {
    Addr,
    AddrError,
    ClientRdma,
    ClientState,
    ConnectError,
    Errno,
    InfoError,
    IoCounts,
    Latency,
    Malformed,
    NameError,
    NumberError,
    ParamError,
    PathName,
    Policy,
    Reconnects,
    Refusal,
    SettingError,
    Shown,
    UnknownPolicy,
}
