// SPDX-License-Identifier: GPL-2.0

//! The limits on how often the server logs, over all sessions and devices.

use kernel_ext::ratelimit::RateLimit;

/// The rate limit of log lines about rejected requests and messages.
pub(super) static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);

/// The rate limit of log lines about sessions and devices that come and go: a client with many
/// devices gets a line for each, but a client that only opens and closes does not flood the log.
pub(super) static CHANGES_LIMIT: RateLimit = RateLimit::new(5000, 100);
