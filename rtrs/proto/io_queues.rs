// SPDX-License-Identifier: GPL-2.0

//! The number of IO queues of a session, and so of connections of each of its paths (decision
//! 0034).

use core::fmt;

use super::CONNECTIONS_MAX;

/// The maximum number of IO queues of a session that was not asked for a number.
///
/// Any of the session's requests may be in any queue, so each connection has room for all of them.
/// At the default depth so many connections and the admin connection have less than 16 MiB of
/// queues a path, with mlx5 and with rxe; a connection for each of 64 CPUs would have 80 MiB, for
/// the same 512 requests.
pub const IO_QUEUES_DEFAULT_MAX: u32 = 8;

/// A number of IO and poll queues that needs more than [`CONNECTIONS_MAX`] connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyQueues {
    /// The number of IO queues.
    pub io: u32,
    /// The number of poll queues.
    pub poll: u32,
}

impl fmt::Display for TooManyQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { io, poll } = self;
        let most = CONNECTIONS_MAX - 1;
        write!(
            f,
            "{io} IO queues and {poll} poll queues are more than {most}: ask for fewer"
        )
    }
}

/// Returns the number of IO queues of a session that was `asked` for a number, or else has one for
/// each online CPU, within [`IO_QUEUES_DEFAULT_MAX`]. CPUs that are possible but not there have
/// none; one that comes later shares one.
pub const fn io_queues(
    asked: Option<u32>,
    poll: u32,
    online_cpus: u32,
) -> Result<u32, TooManyQueues> {
    let io = match asked {
        Some(io) => io,
        None if online_cpus > IO_QUEUES_DEFAULT_MAX => IO_QUEUES_DEFAULT_MAX,
        None => online_cpus,
    };
    let io = if io == 0 { 1 } else { io };
    // One more is the admin connection.
    if io.saturating_add(poll) >= CONNECTIONS_MAX as u32 {
        return Err(TooManyQueues { io, poll });
    }
    Ok(io)
}
