// SPDX-License-Identifier: GPL-2.0

//! The Gfarm protocol.

mod auth;
mod cache;
mod compound;
mod conversation;
mod descriptors;
mod errors;
mod freshness;
mod golden;
mod id_map;
mod identity;
mod idle;
mod key;
mod listing;
mod md5;
mod name;
mod objects;
mod options;
mod outdated;
mod question;
mod reclaim;
mod recovery;
mod sim;
mod stream;
mod trace;
mod xdr;

/// Replies of real servers, behind what a fuzz target takes off the front for itself.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let of = |kind: &[u8], name: &str| -> Vec<u8> {
        let server = trace::trace(name)
            .into_iter()
            .filter(|turn| !turn.is_client);
        let streams = server.map(|turn| turn.bytes());
        kind.iter().copied().chain(streams.flatten()).collect()
    };
    vec![
        of(&[0, 0], "lstat-readlink"),
        of(&[2, 4], "readdir"),
        of(&[3, 0], "open-read-small"),
        of(&[4, 0], "statfs"),
        of(&[5, 9], "pread-edges"),
        of(&[6, 99], "bulkread"),
        of(&[7, 0], "symlink"),
        of(&[5], "gfmd-auth"),
        of(&[5], "auth-bad-expire"),
    ]
    .into_iter()
    .chain(cache::seeds())
    .collect()
}
