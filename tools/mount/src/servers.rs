// SPDX-License-Identifier: GPL-2.0

//! Turns the names of metadata servers into the addresses that the kernel gets.

use std::net::{
    SocketAddr,
    ToSocketAddrs, //
};

use proto::gfarm::hosts;

use crate::{
    config::Config,
    Failure, //
};

/// The source that stands for the servers of gfarm2.conf.
pub const FROM_CONFIG: &str = "none";

/// The longest source that the kernel takes, in bytes.
pub const SOURCE_LEN_MAX: usize = 255;

/// Returns the servers of a source, `HOST[:PORT]` each.
///
/// # Errors
///
/// Returns [`Failure::Usage`] if gfarm2.conf is asked for and names no server.
pub fn named(source: &str, config: &Config) -> Result<Vec<String>, Failure> {
    if source != FROM_CONFIG {
        return Ok(source.split(',').map(str::to_owned).collect());
    }
    let servers = config.servers();
    if servers.is_empty() {
        return Err(Failure::Usage(
            "the source is 'none', and no gfarm2.conf has metadb_server_host or \
             metadb_server_list: name the metadata server, as in gfmd.example.org:601"
                .to_owned(),
        ));
    }
    Ok(servers)
}

/// Resolves servers and returns the source for the kernel, `ADDRESS:PORT` with commas.
///
/// All addresses of all servers are in it, as far as it is not too long: gfmds that are not the
/// master, or do not answer, are passed over. A server that is left out gives a warning.
///
/// # Errors
///
/// Returns [`Failure::Usage`] for what is no server, or [`Failure::Mount`] if no name is known.
pub fn resolve(
    servers: &[String],
    look_up: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>>,
    warnings: &mut Vec<String>,
) -> Result<String, Failure> {
    let mut source = String::new();
    let mut trouble = Vec::new();
    for server in servers {
        let parsed = hosts::Server::parse(server.as_bytes())
            .and_then(|parsed| Some((std::str::from_utf8(parsed.host).ok()?, parsed.port)));
        let Some((host, port)) = parsed else {
            let text = format!("'{server}' is no HOST[:PORT], [IPV6] or [IPV6]:PORT");
            return Err(Failure::Usage(text));
        };
        match look_up(host, port) {
            Ok(found) => {
                let has_room = found.iter().map(|address| add(&mut source, *address));
                // Each of them: one that fits may follow one that does not.
                if has_room.filter(|has_room| !has_room).count() != 0 {
                    let why = format!("the kernel takes {SOURCE_LEN_MAX} bytes of addresses");
                    trouble.push(format!("{host}: {why}"));
                }
            }
            Err(why) => trouble.push(format!("{host}: {why}")),
        }
    }
    if source.is_empty() {
        let text = format!(
            "no metadata server has an address ({}): check the name, /etc/hosts and the name server",
            trouble.join("; ")
        );
        return Err(Failure::Mount(text));
    }
    let left_out = |why| format!("a metadata server, or an address of it, is left out: {why}");
    warnings.extend(trouble.into_iter().map(left_out));
    Ok(source)
}

/// Asks the resolver of the system.
///
/// # Errors
///
/// Returns that of the resolver.
pub fn look_up(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Adds an address, if it is new; returns whether there is room.
fn add(source: &mut String, address: SocketAddr) -> bool {
    let text = address.to_string();
    let is_known = source.split(',').any(|known| known == text);
    if is_known {
        return true;
    }
    if source.len() + 1 + text.len() > SOURCE_LEN_MAX {
        return false;
    }
    if !source.is_empty() {
        source.push(',');
    }
    source.push_str(&text);
    true
}
