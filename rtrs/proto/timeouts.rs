// SPDX-License-Identifier: GPL-2.0

//! The time that an attempt to connect a path may take, and the other times that both sides wait.

use super::CONNECT_TIMEOUT_MS;

/// Longest time for the answer to an admin message on a path that is being connected, in
/// milliseconds.
pub const ONE_PATH_ANSWER_MS: u32 = 5000;

/// The time after which a device that has not flushed a connection is tried again, in
/// milliseconds.
pub const UNDRAINED_MS: u32 = 5_000;

/// The time for the whole set-up of a path at a server, in milliseconds: four times that between
/// two of its connections.
pub const SET_UP_MS: u32 = 4 * CONNECT_TIMEOUT_MS;

/// Returns how many milliseconds a client has left for its next connection, or for its info
/// request, `idle_ms` after its last one and `age_ms` after its first.
///
/// # Errors
///
/// Returns the time that has passed, as the error of the path.
pub const fn set_up_left_ms(idle_ms: u32, age_ms: u32) -> Result<u32, u32> {
    if idle_ms >= CONNECT_TIMEOUT_MS {
        return Err(CONNECT_TIMEOUT_MS);
    }
    if age_ms >= SET_UP_MS {
        return Err(SET_UP_MS);
    }
    let (next_ms, all_ms) = (
        CONNECT_TIMEOUT_MS.saturating_sub(idle_ms),
        SET_UP_MS.saturating_sub(age_ms),
    );
    Ok(if next_ms < all_ms { next_ms } else { all_ms })
}

/// Time for a step of most attempts to connect a path again, in milliseconds.
const AGAIN_MS: u32 = 1500;

/// One attempt in so many has more time, for a slow peer.
const AGAIN_ROUND: u32 = 4;

/// The timeouts of the steps of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectTimeouts {
    /// Resolving the peer's address, in milliseconds.
    pub address_ms: u32,
    /// Resolving the route and being accepted, in milliseconds each.
    pub step_ms: u32,
}

impl ConnectTimeouts {
    /// The timeouts for a path that a task waits for.
    pub const FIRST: Self = Self {
        address_ms: CONNECT_TIMEOUT_MS,
        step_ms: CONNECT_TIMEOUT_MS,
    };

    /// Returns the timeouts for a path that is to reconnect soon after its link is up, when
    /// `silent` attempts in a row were not answered by a peer whose address is known.
    ///
    /// A new attempt asks the peer at once, an old one may be between two of its requests: the
    /// connection manager repeats its own after 4 s, and a neighbour is asked at most three times.
    /// A slow peer gets more time in the last attempt of each round, and twice as much in the next
    /// round.
    pub const fn again(silent: u32) -> Self {
        let round = silent / AGAIN_ROUND;
        let step_ms = if silent % AGAIN_ROUND != AGAIN_ROUND - 1 {
            AGAIN_MS
        } else if round < 4 {
            (2 * AGAIN_MS).wrapping_shl(round)
        } else {
            CONNECT_TIMEOUT_MS
        };
        Self {
            address_ms: AGAIN_MS,
            step_ms,
        }
    }
}
