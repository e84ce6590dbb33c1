// SPDX-License-Identifier: GPL-2.0

//! Output of `rioc top` of a folder that stands for `/sys/class`.

use std::{
    fs,
    path::{
        Path,
        PathBuf, //
    },
    time::Duration,
};

use clap::Parser;
use rioc_tool::{
    commands::{
        self,
        CommandLine, //
    },
    top::Snapshot,
};

/// A folder that is removed.
struct Class(PathBuf);

impl Class {
    fn new(name: &str) -> Self {
        let class =
            Self(std::env::temp_dir().join(format!("rioc-top-{name}-{}", std::process::id())));
        fs::create_dir_all(&class.0).unwrap();
        class
    }

    fn write(&self, file: &str, content: &str) {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn machine(name: &str) -> Class {
    let class = Class::new(name);
    class.write("rioc-client/ctl/sessions/bb/state", "connected\n");
    class.write("rioc-client/ctl/sessions/bb/store", "bb (durable)\n");
    class.write("rioc-client/ctl/sessions/away/state", "waiting\n");
    class.write("rtrs-client/bb/paths/a/state", "connected\n");
    class.write(
        "rtrs-client/bb/paths/a/stats/rdma",
        "10 4096 20 1048576 1 0\n",
    );
    class.write("rtrs-client/bb/paths/b/state", "disconnected\n");
    class.write("rtrs-client/bb/paths/b/stats/rdma", "1 0 2 1048576 0 3\n");
    class.write(
        "rioc-server/ctl/stores/m/state",
        "memory: it lasts until the store ends\n",
    );
    class.write(
        "rioc-server/ctl/stores/m/stats",
        "objects 3\nblocks 25\nblocks_max 100\nreads 7\nwrites 100\nothers 1\nfailed 0\n",
    );
    class.write(
        "rioc-server/ctl/stores/m/clients",
        "1 bb 0 0 0\n2 cc 0 0 0\n",
    );
    class
}

/// The cells of the row of a table that begins with a name.
fn row(tables: &str, name: &str) -> Vec<String> {
    let mut rows = tables.lines().filter(|line| line.starts_with(name));
    let cells = rows.next().unwrap().split("  ");
    cells
        .map(|cell| cell.trim().to_owned())
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn sessions_and_stores_are_counted() {
    let class = machine("counted");
    let all = Snapshot::take(&class.0, &[]);
    let tables = all.tables(None);
    let bb = [
        "bb",
        "connected",
        "1 of 2",
        "11",
        "0.0",
        "22",
        "2.0",
        "1",
        "bb (durable)",
    ];
    assert_eq!(row(&tables, "bb "), bb);
    let away = [
        "away", "waiting", "0 of 0", "0", "0.0", "0", "0.0", "0", "-",
    ];
    assert_eq!(row(&tables, "away"), away);
    assert_eq!(
        row(&tables, "m "),
        ["m", "memory", "2", "3", "25 %", "7", "100", "1", "0"]
    );
    let one = Snapshot::take(&class.0, &["m".to_owned()]);
    assert!(one.sessions.is_empty() && one.stores.len() == 1);
    assert!(Snapshot::take(&class.0, &["x".to_owned()]).is_empty());
}

#[test]
fn rates_are_those_since_the_last_look() {
    let class = machine("rates");
    let before = Snapshot::take(&class.0, &[]);
    class.write(
        "rtrs-client/bb/paths/a/stats/rdma",
        "110 4096 20 5242880 1 0\n",
    );
    // Was reset.
    class.write(
        "rioc-server/ctl/stores/m/stats",
        "blocks_max 0\nreads 1\nwrites 300\n",
    );
    let now = Snapshot::take(&class.0, &[]);
    let tables = now.tables(Some((&before, Duration::from_secs(2))));
    assert_eq!(row(&tables, "bb ")[3..7], ["50", "0.0", "0", "2.0"]);
    assert_eq!(row(&tables, "m ")[4..7], ["0 %", "0", "100"]);
    assert!(tables.contains("writes/s"));
}

#[test]
fn nothing_is_told_with_what_to_do() {
    let class = Class::new("nothing");
    let sysfs = class.0.display().to_string();
    for (names, wanted) in [("", "ctl/connect"), ("bb", "no store bb")] {
        let line = format!("rioc top -1 --sysfs {sysfs} {names}");
        let line = CommandLine::parse_from(line.split_whitespace());
        let error = commands::run(&line).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    assert!(Path::new(&sysfs).exists());
}
