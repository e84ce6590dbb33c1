// SPDX-License-Identifier: GPL-2.0

//! The session of a server: programs of iocatcher name servers by address.

use std::{
    fmt,
    fs,
    net::{
        IpAddr,
        ToSocketAddrs, //
    },
    path::Path, //
};

/// The reason why no session is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// The module is not loaded.
    NoModule,
    /// No session has a path to the server.
    None(String),
    /// Several have one.
    Several(Vec<String>),
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModule => f.write_str("load the module: modprobe rioc_client"),
            Self::None(server) => write!(
                f,
                "no session has a path to {server}: echo \"sessname=NAME path=ip:{server}\" > \
                 /sys/class/rioc-client/ctl/connect"
            ),
            Self::Several(names) => write!(
                f,
                "sessions {} have a path to this server: choose one by the variable RIOC_SESSION",
                names.join(", ")
            ),
        }
    }
}

/// Returns the names in a folder, in their order.
fn names(folder: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Some(names)
}

/// Returns the address of the server of a path, of which the folder is named
/// `SOURCE@ip:ADDRESS`.
fn address(path: &str) -> Option<IpAddr> {
    let (_, destination) = path.rsplit_once('@')?;
    let address = destination.strip_prefix("ip:")?;
    // One of a link has its interface behind it.
    address.split('%').next()?.parse().ok()
}

/// Finds the session of a server, which is an address, a host's name, or the name of a session;
/// `class` is `/sys/class`.
///
/// # Errors
///
/// Returns why there is none, or no only one.
pub fn of_server(class: &Path, server: &str) -> Result<String, NotFound> {
    let sessions = names(&class.join("rioc-client/ctl/sessions")).ok_or(NotFound::NoModule)?;
    if sessions.iter().any(|name| name == server) {
        return Ok(server.to_owned());
    }
    let found = (server, 0u16).to_socket_addrs();
    let wanted: Vec<IpAddr> = found
        .into_iter()
        .flatten()
        .map(|found| found.ip())
        .collect();
    let leads_there = |session: &String| {
        let paths = names(&class.join("rtrs-client").join(session).join("paths"));
        let mut addresses = paths.iter().flatten().filter_map(|path| address(path));
        addresses.any(|address| wanted.contains(&address))
    };
    let mut found: Vec<String> = sessions.into_iter().filter(leads_there).collect();
    match found.pop() {
        None => Err(NotFound::None(server.to_owned())),
        Some(only) if found.is_empty() => Ok(only),
        Some(last) => {
            found.push(last);
            Err(NotFound::Several(found))
        }
    }
}
