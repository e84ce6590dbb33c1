// SPDX-License-Identifier: GPL-2.0

//! The mount options that are numbers: names, ranges and defaults.

use core::ops::RangeInclusive;

/// A number that an option sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Setting {
    /// The pages that are read ahead.
    Readahead = 0,
    /// Whether a read ahead of a reader returns before its pages are there: 0 or 1.
    RaAsync = 1,
    /// The seconds for which attributes are valid.
    Actimeo = 2,
    /// The seconds that connecting to a server and authentication may take.
    ConnectTimeout = 3,
    /// The seconds for which a server may be silent that owes an answer.
    ReceiveTimeout = 4,
    /// The seconds for which a request waits while no server can answer it; 0 fails it at once.
    ReconnectTimeout = 5,
    /// The maximum number of connections to one gfsd.
    Connections = 6,
    /// The seconds for which a connection to a gfsd is kept that no open file uses; the last one of
    /// each gfsd ten times as long.
    IdleTimeout = 7,
    /// The descriptors that a mount has at gfmd at a time.
    OpenFiles = 8,
    /// The receives that are posted for requests of other nodes.
    IbNumRrpc = 9,
    /// The maximum number of requests to other nodes at a time.
    IbNumSrpc = 10,
    /// The size of a datagram in bytes; 0 for that of the port.
    IbMtu = 11,
    /// The index of the GID.
    IbGid = 12,
    /// The port of the device.
    IbPort = 13,
    /// The service level.
    IbSl = 14,
    /// The key of the queue pair for messages; 0 for a random one.
    IbQkey = 15,
    /// The longest time for which a node that owes an answer is waited for, in milliseconds.
    CcTimeoutMs = 16,
    /// The MiB that are sent to other nodes in a second; 0 is no limit.
    CcShare = 17,
    /// The longest time for which a node that waits for the pages itself is waited for, in
    /// milliseconds.
    CcWaitMs = 18,
    /// The part of the network that the node is in; 0 for that of its address.
    CcGroup = 19,
    /// The partition key; 0 for the first one of the port's table.
    IbPkey = 20,
    /// The traffic class.
    IbTclass = 21,
    /// Whether pages are compared with their sums: 0, 1 or 2, see
    /// [`Verify`](super::cache::sums::Verify).
    CcVerify = 22,
    /// The MiB of memory in which a node keeps who has what; 0 for a share of its memory.
    CcDirectory = 23,
}

/// The number of settings.
pub const COUNT: usize = 24;

impl Setting {
    /// The settings in the order of their numbers.
    pub const ALL: [Self; COUNT] = [
        Self::Readahead,
        Self::RaAsync,
        Self::Actimeo,
        Self::ConnectTimeout,
        Self::ReceiveTimeout,
        Self::ReconnectTimeout,
        Self::Connections,
        Self::IdleTimeout,
        Self::OpenFiles,
        Self::IbNumRrpc,
        Self::IbNumSrpc,
        Self::IbMtu,
        Self::IbGid,
        Self::IbPort,
        Self::IbSl,
        Self::IbQkey,
        Self::CcTimeoutMs,
        Self::CcShare,
        Self::CcWaitMs,
        Self::CcGroup,
        Self::IbPkey,
        Self::IbTclass,
        Self::CcVerify,
        Self::CcDirectory,
    ];

    /// The descriptors of a mount: a process of gfmd has 1024, the rest of which is
    /// [`SPARE`](super::closing::SPARE).
    const OPEN_FILES_MAX: u32 = 720;

    /// Returns the name of the option.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Readahead => "readahead",
            Self::RaAsync => "ra_async",
            Self::Actimeo => "actimeo",
            Self::ConnectTimeout => "connect_timeout",
            Self::ReceiveTimeout => "receive_timeout",
            Self::ReconnectTimeout => "reconnect_timeout",
            Self::Connections => "connections",
            Self::IdleTimeout => "idle_timeout",
            Self::OpenFiles => "open_files",
            Self::IbNumRrpc => "ib_num_rrpc",
            Self::IbNumSrpc => "ib_num_srpc",
            Self::IbMtu => "ib_mtu",
            Self::IbGid => "ib_gid",
            Self::IbPort => "ib_port",
            Self::IbSl => "ib_sl",
            Self::IbQkey => "ib_qkey",
            Self::CcTimeoutMs => "cc_timeout_ms",
            Self::CcShare => "cc_share",
            Self::CcWaitMs => "cc_wait_ms",
            Self::CcGroup => "cc_group",
            Self::IbPkey => "ib_pkey",
            Self::IbTclass => "ib_tclass",
            Self::CcVerify => "cc_verify",
            Self::CcDirectory => "cc_directory",
        }
    }

    /// Finds a setting by its name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name().as_bytes() == name)
    }

    /// Returns the range of values; see [`Self::parse`] for one more.
    pub const fn range(self) -> RangeInclusive<u32> {
        match self {
            // 64 MiB.
            Self::Readahead => 1..=16_384,
            Self::RaAsync => 0..=1,
            Self::Actimeo => 0..=3600,
            Self::ConnectTimeout | Self::ReceiveTimeout => 1..=600,
            Self::ReconnectTimeout => 0..=86_400,
            Self::Connections => 1..=64,
            Self::IdleTimeout => 1..=86_400,
            Self::OpenFiles => 1..=Self::OPEN_FILES_MAX,
            Self::IbNumRrpc | Self::IbNumSrpc => 1..=4096,
            // What InfiniBand and RoCE have.
            Self::IbMtu => 256..=4096,
            Self::IbGid | Self::IbSl | Self::IbTclass => 0..=self.byte_max(),
            Self::IbPort => 1..=self.byte_max(),
            // Only privileged programs may use keys with the highest bit.
            Self::IbQkey => 1..=i32::MAX as u32,
            // After 2 s the file servers have what no node has sent.
            Self::CcTimeoutMs => 50..=2000,
            // 1 TiB.
            Self::CcShare => 0..=1 << 20,
            // No holder keeps a request for longer than 30 s.
            Self::CcWaitMs => 100..=30_000,
            Self::CcGroup => 1..=64,
            Self::IbPkey => 1..=0xffff,
            Self::CcVerify => 0..=2,
            // 1 GiB knows at least 15 million chunks.
            Self::CcDirectory => 1..=1024,
        }
    }

    /// Returns the maximum of a field of the address of a peer.
    const fn byte_max(self) -> u32 {
        match self {
            Self::IbSl => 15,
            _ => 255,
        }
    }

    /// Returns the default value: that of libgfarm, or of the driver of 2014, where they have one.
    pub const fn default(self) -> u32 {
        match self {
            // 4 MiB: with the kernel's 128 KiB, which are read in small parts, gfarm2fs is faster.
            Self::Readahead => 1024,
            Self::RaAsync | Self::Actimeo | Self::IbPort | Self::CcVerify => 1,
            Self::ConnectTimeout => 35,
            Self::ReceiveTimeout | Self::IdleTimeout => 60,
            Self::ReconnectTimeout => 30,
            Self::Connections => 8,
            Self::OpenFiles => Self::OPEN_FILES_MAX,
            Self::IbNumRrpc => 128,
            Self::IbNumSrpc => 64,
            Self::IbMtu
            | Self::IbGid
            | Self::IbSl
            | Self::IbQkey
            | Self::CcShare
            | Self::CcGroup
            | Self::IbPkey
            | Self::IbTclass
            | Self::CcDirectory => 0,
            Self::CcTimeoutMs => 200,
            Self::CcWaitMs => 5000,
        }
    }

    /// Returns whether the option is for the cooperative cache: shown only if it was given.
    pub const fn is_of_cache(self) -> bool {
        self as u8 >= Self::IbNumRrpc as u8
    }

    /// Returns what 0 means besides the range, if it may be given.
    pub const fn zero(self) -> Option<&'static str> {
        match self {
            Self::IbMtu => Some("that of the port"),
            Self::IbQkey => Some("a random one that each mount draws"),
            Self::CcGroup => Some("that of its address"),
            Self::IbPkey => Some("the first one of the port"),
            Self::CcDirectory => Some("a share of the memory"),
            _ => None,
        }
    }

    /// Parses a written value: decimal digits, or those of a partition key, in the range or what
    /// [`zero`](Self::zero) allows.
    pub fn parse(self, written: &[u8]) -> Option<u32> {
        let is_valid =
            |value: &u32| self.range().contains(value) || (*value == 0 && self.zero().is_some());
        let hex = written.strip_prefix(b"0x").filter(|_| self.is_hex());
        let value = hex.map_or_else(|| number(written), |digits| in_base(digits, 16));
        value.filter(is_valid)
    }

    /// Returns whether it is shown as `0x` and hexadecimal digits, as its tools do.
    pub const fn is_hex(self) -> bool {
        matches!(self, Self::IbPkey)
    }
}

/// Converts decimal digits, and nothing else.
pub(super) fn number(written: &[u8]) -> Option<u32> {
    in_base(written, 10)
}

fn in_base(written: &[u8], base: u32) -> Option<u32> {
    if written.is_empty() {
        return None;
    }
    written.iter().try_fold(0u32, |value, c| {
        let digit = char::from(*c).to_digit(base)?;
        value.checked_mul(base)?.checked_add(digit)
    })
}

/// A value for each setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    values: [u32; COUNT],
    /// A bit for each setting of the cooperative cache that was given.
    given: u32,
}

const _: () = assert!(COUNT <= u32::BITS as usize);

impl Settings {
    /// Returns the value of a setting.
    pub fn get(&self, setting: Setting) -> u32 {
        self.values
            .get(setting as usize)
            .copied()
            .unwrap_or(setting.default())
    }

    /// Returns the value of a setting of the cooperative cache, if it was given.
    pub fn given(&self, setting: Setting) -> Option<u32> {
        (self.given & bit(setting) != 0).then(|| self.get(setting))
    }

    /// Changes a setting; the value was read by [`Setting::parse`].
    pub fn set(&mut self, setting: Setting, value: u32) {
        if let Some(old) = self.values.get_mut(setting as usize) {
            *old = value;
        }
        if setting.is_of_cache() {
            self.given |= bit(setting);
        }
    }
}

/// Returns the bit of a setting in [`Settings::given`].
const fn bit(setting: Setting) -> u32 {
    1u32.wrapping_shl(setting as u32)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            values: Setting::ALL.map(Setting::default),
            given: 0,
        }
    }
}
