// SPDX-License-Identifier: GPL-2.0

//! The limits at which a read goes to the file server although nodes might have its pages.

/// The time after which a read goes to the file server, in microseconds: since its start, and since
/// a holder has last told that it waits for the pages itself.
pub const QUIET_US_MAX: u64 = 2_000_000;

/// The time after which it does so in any case, in microseconds, unless another one is set: a file
/// server that has to read for all nodes needs less for a piece, and a holder that takes longer
/// keeps who waits for it from a file server that may be faster. See `gfarm-cache-scale.md`.
pub const READ_US: u64 = 5_000_000;

/// The longest such time that may be set, in microseconds: no holder keeps a request for longer.
pub const READ_US_MAX: u64 = 30_000_000;

/// The number of requests of one read.
pub const ASKS_MAX: u8 = 12;

/// The number of requests in a row that bring nothing, after which a read goes to the file server:
/// where 5 % of datagrams are lost, fewer are reached by chance.
pub const FRUITLESS_MAX: u8 = 5;
