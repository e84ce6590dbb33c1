// SPDX-License-Identifier: GPL-2.0

//! The sessions of a client and the stores of a server on this machine, as sysfs has them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::Duration, //
};

use rnbd_ec_tool::show::table;
use serde::Serialize;

const MIB: f64 = (1 << 20) as f64;

/// Counters of a session: of all its paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Requests for data.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests that send data.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Requests that are not answered yet.
    pub in_flight: u64,
    /// Requests that were sent again, over another path.
    pub failed_over: u64,
}

/// A session of the client.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    /// Its name.
    pub session: String,
    /// Whether its operations are sent.
    pub state: String,
    /// The store, and what it promises.
    pub store: Option<String>,
    /// Its paths.
    pub paths: usize,
    /// Paths that are connected.
    pub paths_connected: usize,
    /// Counters of its paths.
    #[serde(flatten)]
    pub counters: Counters,
}

/// A store of the server.
#[derive(Clone, Debug, Serialize)]
pub struct Store {
    /// Its name.
    pub store: String,
    /// Meaning of an acknowledgement there.
    pub state: String,
    /// The clients that have attached.
    pub clients: usize,
    /// Counters of what it has, and has done.
    pub stats: BTreeMap<String, u64>,
}

/// All of it, at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The sessions, by name.
    pub sessions: Vec<Session>,
    /// The stores, by name.
    pub stores: Vec<Store>,
}

/// Returns the names in a folder, in their order; none of one that is not there.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

fn line(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim_end().to_owned())
}

fn session(class: &Path, name: String) -> Option<Session> {
    let control = class.join("rioc-client/ctl/sessions").join(&name);
    let paths = class.join("rtrs-client").join(&name).join("paths");
    let mut session = Session {
        // One that has just been disconnected is left out.
        state: line(&control.join("state"))?,
        store: line(&control.join("store")),
        paths: 0,
        paths_connected: 0,
        counters: Counters::default(),
        session: name,
    };
    for path in names(&paths).iter().map(|path| paths.join(path)) {
        session.paths = session.paths.saturating_add(1);
        if line(&path.join("state")).as_deref() == Some("connected") {
            session.paths_connected = session.paths_connected.saturating_add(1);
        }
        let numbers = line(&path.join("stats/rdma")).unwrap_or_default();
        let mut numbers = numbers
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0u64));
        let all = &mut session.counters;
        for to in [
            &mut all.reads,
            &mut all.read_bytes,
            &mut all.writes,
            &mut all.written_bytes,
            &mut all.in_flight,
            &mut all.failed_over,
        ] {
            *to = to.saturating_add(numbers.next().unwrap_or_default());
        }
    }
    Some(session)
}

fn store(class: &Path, name: String) -> Option<Store> {
    let control = class.join("rioc-server/ctl/stores").join(&name);
    let stats = line(&control.join("stats")).unwrap_or_default();
    let each = stats.lines().filter_map(|line| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    });
    Some(Store {
        state: line(&control.join("state"))?,
        clients: line(&control.join("clients"))
            .unwrap_or_default()
            .lines()
            .count(),
        stats: each.collect(),
        store: name,
    })
}

impl Snapshot {
    /// Looks at all, or at what has one of these names; `class` is `/sys/class`.
    pub fn take(class: &Path, wanted: &[String]) -> Self {
        let is_wanted = |name: &String| wanted.is_empty() || wanted.contains(name);
        let sessions = names(&class.join("rioc-client/ctl/sessions")).into_iter();
        let stores = names(&class.join("rioc-server/ctl/stores")).into_iter();
        let sessions = sessions.filter(is_wanted);
        let stores = stores.filter(is_wanted);
        Self {
            sessions: sessions.filter_map(|name| session(class, name)).collect(),
            stores: stores.filter_map(|name| store(class, name)).collect(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.stores.is_empty()
    }

    /// Returns tables for people: of what was done since another moment, each second, or of all
    /// that was done.
    pub fn tables(&self, before: Option<(&Self, Duration)>) -> String {
        let mut text = String::new();
        if !self.sessions.is_empty() {
            text += &table(&self.session_rows(before));
        }
        if !self.stores.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &table(&self.store_rows(before));
        }
        text
    }

    fn session_rows(&self, before: Option<(&Self, Duration)>) -> Vec<Vec<String>> {
        let per = heads(before.is_some());
        let head = [
            "session",
            "state",
            "paths",
            per[0],
            per[1],
            per[2],
            per[3],
            "in flight",
            "store",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for session in &self.sessions {
            let then = before.and_then(|(before, _)| {
                before
                    .sessions
                    .iter()
                    .find(|s| s.session == session.session)
            });
            let then = then.map(|then| then.counters).unwrap_or_default();
            let now = &session.counters;
            let since = before.map(|(_, time)| time);
            rows.push(vec![
                session.session.clone(),
                session.state.clone(),
                format!("{} of {}", session.paths_connected, session.paths),
                number(rate(now.reads, then.reads, since), 1.0),
                number(rate(now.read_bytes, then.read_bytes, since), MIB),
                number(rate(now.writes, then.writes, since), 1.0),
                number(rate(now.written_bytes, then.written_bytes, since), MIB),
                now.in_flight.to_string(),
                session.store.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        rows
    }

    fn store_rows(&self, before: Option<(&Self, Duration)>) -> Vec<Vec<String>> {
        let per = if before.is_some() {
            ["reads/s", "writes/s", "others/s", "failed/s"]
        } else {
            ["reads", "writes", "others", "failed"]
        };
        let head = [
            "store", "state", "clients", "objects", "used", per[0], per[1], per[2], per[3],
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for store in &self.stores {
            let then = before
                .and_then(|(before, _)| before.stores.iter().find(|s| s.store == store.store));
            let since = before.map(|(_, time)| time);
            let stat = |name: &str| store.stats.get(name).copied().unwrap_or_default();
            let count = |name: &str| {
                let then = then.and_then(|then| then.stats.get(name)).copied();
                number(rate(stat(name), then.unwrap_or_default(), since), 1.0)
            };
            let used = stat("blocks")
                .saturating_mul(100)
                .checked_div(stat("blocks_max"));
            // The file says what it means, too.
            let (state, _) = store.state.split_once(':').unwrap_or((&store.state, ""));
            rows.push(vec![
                store.store.clone(),
                state.to_owned(),
                store.clients.to_string(),
                stat("objects").to_string(),
                format!("{} %", used.unwrap_or_default()),
                count("reads"),
                count("writes"),
                count("others"),
                count("failed"),
            ]);
        }
        rows
    }
}

const fn heads(is_rate: bool) -> [&'static str; 4] {
    if is_rate {
        ["reads/s", "MiB/s", "writes/s", "MiB/s"]
    } else {
        ["reads", "MiB", "writes", "MiB"]
    }
}

/// Returns what was counted since, each second; all of it if there is no time. Counters that were
/// reset meanwhile give none.
fn rate(now: u64, then: u64, since: Option<Duration>) -> f64 {
    match since {
        Some(time) => now.saturating_sub(then) as f64 / time.as_secs_f64().max(0.001),
        None => now as f64,
    }
}

fn number(value: f64, unit: f64) -> String {
    let value = value / unit;
    if unit > 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}
