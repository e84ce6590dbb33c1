// SPDX-License-Identifier: GPL-2.0

//! The tables of figures: which runs each has, and how a run is shown.

use std::fmt;

use clap::ValueEnum;

use crate::{
    figures::Outcome,
    membership::membership,
    scenario::{
        Askers,
        Mutation,
        Pattern,
        Scenario,
        Source,
        MS, //
    },
    tree::tree, //
};

/// The numbers of nodes.
pub const SIZES: [usize; 8] = [1, 2, 4, 8, 64, 256, 1000, 2000];

/// The numbers of nodes of [`Table::Members`].
pub const MEMBERS: [usize; 3] = [16, 64, 256];

/// The parts of all datagrams that are lost in it, in percent.
pub const LOSSES: [u32; 3] = [0, 1, 5];

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// All readers start at once
    Storm,
    /// The same without the cache, and in a fixed tree
    Compare,
    /// Staggered starts, random and strided reads, small caches, slow networks
    Pattern,
    /// Loss, dead and slow nodes, churn, a file that is replaced
    Fault,
    /// A worker for each read, and one for all reads of a node
    Askers,
    /// Nodes in several parts of the network
    Group,
    /// More chunks than the directories have entries for
    Directory,
    /// File servers that are slow, and times for which nodes are waited for
    Slow,
    /// A network that is away
    Away,
    /// Times in which nodes find each other and notice a death
    Members,
}

/// A run of a table.
#[derive(Clone, Debug)]
pub struct Run {
    /// The name, which says what is special about it.
    pub name: String,
    /// The scenario that is simulated.
    pub scenario: Scenario,
}

fn named(name: impl Into<String>, scenario: Scenario) -> Run {
    Run {
        name: name.into(),
        scenario,
    }
}

impl Table {
    /// Returns what the table shows.
    pub fn title(self) -> &'static str {
        match self {
            Self::Storm => "All readers of one file start at once",
            Self::Compare => {
                "The same without the cache, and in a fixed tree of whole files and of chunks"
            }
            Self::Pattern => "Other ways to read",
            Self::Fault => "What goes wrong",
            Self::Askers => "A worker for each read, and one for all reads of a node",
            Self::Group => "Pages that leave a group of nodes",
            Self::Directory => "More chunks than entries, read twice, each time in another order",
            Self::Slow => "File servers that are slow",
            Self::Away => "One reader, and nodes that it does not reach",
            Self::Members => "Nodes that find each other through one, and lose one",
        }
    }

    /// Returns the runs of the table.
    pub fn runs(self, sizes: &[usize], size: usize) -> Vec<Run> {
        let storm = Scenario::storm(size);
        match self {
            Self::Storm => sizes
                .iter()
                .map(|n| named("", Scenario::storm(*n)))
                .collect(),
            Self::Compare => {
                let alone = |n: &usize| Scenario {
                    source: Source::FileServer,
                    ..Scenario::storm(*n)
                };
                sizes.iter().map(|n| named("no cache", alone(n))).collect()
            }
            Self::Pattern => pattern(storm),
            Self::Fault => fault(storm),
            Self::Askers => askers(),
            Self::Group => group(),
            Self::Directory => directory(),
            Self::Slow => slow(),
            Self::Away => away(),
            Self::Members => Vec::new(),
        }
    }
}

fn pattern(s: Scenario) -> Vec<Run> {
    let run = |name: &str, change: &dyn Fn(&mut Scenario)| {
        let mut scenario = s;
        change(&mut scenario);
        named(name, scenario)
    };
    vec![
        run("one after the other, 100 us", &|s| s.stagger_ns = 100_000),
        run("one after the other, 10 ms", &|s| s.stagger_ns = 10 * MS),
        run("random 64 KiB, 200 each", &|s| {
            s.pattern = Pattern::Random(200)
        }),
        run("every 4th 128 KiB", &|s| s.pattern = Pattern::Strided(4)),
        run("every 64th 128 KiB", &|s| s.pattern = Pattern::Strided(64)),
        run("fragments of 1024", &|s| s.fragment_len = 1024),
        run("fragments of 1024, reads of 256 KiB", &|s| {
            (s.fragment_len, s.read_pages) = (1024, 64);
        }),
        run("room for a quarter of the file", &|s| s.cache_chunks = 16),
        run("the same, random 64 KiB, 2000 each", &|s| {
            (s.cache_chunks, s.pattern) = (16, Pattern::Random(2000));
        }),
        run("room for a quarter, 10 ms apart", &|s| {
            (s.cache_chunks, s.stagger_ns) = (16, 10 * MS);
        }),
        run("nodes with 10 Gbit/s", &|s| s.node_bytes_per_us = 1250),
        run("file servers with 1 Gbit/s", &|s| s.gfsd_bytes_per_us = 125),
    ]
}

fn fault(s: Scenario) -> Vec<Run> {
    let run = |name: &str, change: &dyn Fn(&mut Scenario)| {
        let mut scenario = s;
        change(&mut scenario);
        named(name, scenario)
    };
    vec![
        run("1 % of datagrams lost", &|s| s.loss = 0.01),
        run("5 % of datagrams lost", &|s| s.loss = 0.05),
        run("1 % lost, fragments of 1024", &|s| {
            (s.loss, s.fragment_len) = (0.01, 1024);
        }),
        run("the same, reads of 256 KiB", &|s| {
            (s.loss, s.fragment_len, s.read_pages) = (0.01, 1024, 64);
        }),
        run("1 % come late, 1 % twice", &|s| {
            (s.reorder, s.duplicate) = (0.01, 0.01);
        }),
        run("1 % lost, 1 % late, 1 % twice", &|s| {
            (s.loss, s.reorder, s.duplicate) = (0.01, 0.01, 0.01);
        }),
        run("1 % of requests and replies changed", &|s| s.corrupt = 0.01),
        run("a tenth of the nodes slow", &|s| s.slow = 0.1),
        run("one dead node, not noticed", &|s| {
            (s.dead, s.has_gossip) = (1, true);
        }),
        run("one node answers no request", &|s| {
            (s.silent, s.has_gossip) = (1, true);
        }),
        run("a tenth dead, not noticed", &|s| {
            (s.dead, s.has_gossip) = (s.nodes / 10, true);
        }),
        run("one dies and one joins each 100 ms", &|s| {
            (s.churn_ns, s.stagger_ns, s.has_gossip) = (100 * MS, MS, true);
        }),
        run("one dies and one joins, 1 % lost", &|s| {
            (s.churn_ns, s.stagger_ns, s.has_gossip) = (100 * MS, MS, true);
            s.loss = 0.01;
        }),
        run("the file is replaced", &|s| s.rewrite_ns = 15 * MS),
        run("owners are not told who is done", &|s| {
            s.has_notices = false
        }),
        run("not told, 1 % lost", &|s| {
            (s.has_notices, s.loss) = (false, 0.01);
        }),
        run("room for half of the peers", &|s| {
            (s.has_gossip, s.peers_max) = (true, s.nodes / 2);
        }),
        run("room for nine in ten peers", &|s| {
            (s.has_gossip, s.peers_max) = (true, s.nodes * 9 / 10);
        }),
        run("not told, the file is replaced", &|s| {
            (s.has_notices, s.rewrite_ns) = (false, 15 * MS);
        }),
    ]
}

fn askers() -> Vec<Run> {
    let mut runs = Vec::new();
    let mut add = |what: &str, scenario: Scenario| {
        for (name, askers) in [("one for all", Askers::One), ("one each", Askers::Each)] {
            let scenario = Scenario { askers, ..scenario };
            runs.push(named(format!("{name}{what}"), scenario));
        }
    };
    for nodes in [8, 64, 256, 1000] {
        add("", Scenario::storm(nodes));
    }
    let storm = Scenario::storm(64);
    let run = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = storm;
        change(&mut scenario);
        scenario
    };
    add(", 1 % lost", run(&|s| s.loss = 0.01));
    add(", 5 % lost", run(&|s| s.loss = 0.05));
    add(
        ", fragments of 1024, 1 % lost",
        run(&|s| (s.fragment_len, s.loss) = (1024, 0.01)),
    );
    add(", a tenth slow", run(&|s| s.slow = 0.1));
    let dead = run(&|s| (s.dead, s.has_gossip) = (s.nodes / 10, true));
    add(", a tenth dead", dead);
    runs
}

fn slow() -> Vec<Run> {
    let mut runs = Vec::new();
    // With less time for the last one no run ends.
    for (name, gfsd_ms, gfsd_bytes_per_us, chunks, times_ms) in [
        (
            "10 MB/s together",
            0,
            10,
            64,
            &[500, 2_000, 5_000, 30_000][..],
        ),
        (
            "2 s for each read, 16 MiB",
            2_000,
            2_500,
            16,
            &[500, 2_000, 5_000, 30_000],
        ),
        (
            "3 s for each read, 16 MiB",
            3_000,
            2_500,
            16,
            &[500, 2_000, 5_000, 30_000],
        ),
        ("1 MB/s together, 16 MiB", 0, 1, 16, &[5_000, 30_000]),
    ] {
        for read_ms in times_ms {
            let scenario = Scenario {
                gfsd_ns: gfsd_ms * MS,
                gfsd_bytes_per_us,
                chunks,
                read_us: read_ms * 1000,
                ..Scenario::storm(64)
            };
            runs.push(named(format!("{name}, after {read_ms} ms"), scenario));
        }
    }
    runs
}

fn away() -> Vec<Run> {
    let mut runs = Vec::new();
    for (peers, depth) in [0, 2, 7, 63, 255].map(|n| [(n, 1), (n, 4)]).concat() {
        let scenario = Scenario {
            dead: peers,
            has_gossip: true,
            pattern: Pattern::Sequential(depth),
            ..Scenario::storm(peers + 1)
        };
        let name = format!("{peers} nodes, {depth} reads in flight");
        let without = Scenario {
            mutation: Some(Mutation::AsksWhoIsSilent),
            ..scenario
        };
        runs.push(named(name.clone(), scenario));
        runs.push(named(
            format!("{name}, which are asked all the time"),
            without,
        ));
    }
    runs
}

fn directory() -> Vec<Run> {
    let run = |nodes, directory_groups, epochs| {
        let entries = nodes * directory_groups * 8;
        let name = format!("{entries} entries for 2048 chunks, {epochs} times");
        let scenario = Scenario {
            chunks: 2048,
            pattern: Pattern::Epochs(epochs),
            directory_groups,
            ..Scenario::storm(nodes)
        };
        named(name, scenario)
    };
    let mut dropped = run(8, 8, 2);
    dropped
        .name
        .push_str(", page caches with room for a quarter of a share");
    dropped.scenario.cache_chunks = 64;
    let runs = [(8, 32, 2), (8, 8, 2), (8, 4, 2), (8, 2, 2), (8, 1, 2)];
    let runs = runs.into_iter().chain([(8, 8, 4), (64, 1, 2), (64, 1, 4)]);
    let runs = runs.map(|(nodes, groups, epochs)| run(nodes, groups, epochs));
    runs.chain([dropped]).collect()
}

fn group() -> Vec<Run> {
    let mut runs = Vec::new();
    let mut add = |what: &str, scenario: Scenario| {
        for (known, knows_groups) in [("not known", false), ("known", true)] {
            let name = format!("{} groups, {known}{what}", scenario.groups);
            let scenario = Scenario {
                knows_groups,
                ..scenario
            };
            runs.push(named(name, scenario));
        }
    };
    let storm = |nodes, groups| Scenario {
        groups,
        ..Scenario::storm(nodes)
    };
    for (nodes, groups) in [(16, 2), (64, 4), (256, 8), (256, 64), (1000, 32)] {
        add("", storm(nodes, groups));
    }
    let storm = storm(256, 8);
    let run = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = storm;
        change(&mut scenario);
        scenario
    };
    add(", 10 ms apart", run(&|s| s.stagger_ns = 10 * MS));
    let random = run(&|s| s.pattern = Pattern::Random(200));
    add(", random 64 KiB", random);
    add(
        ", every 4th 128 KiB",
        run(&|s| s.pattern = Pattern::Strided(4)),
    );
    add(", 1 % lost", run(&|s| s.loss = 0.01));
    add(", a tenth slow", run(&|s| s.slow = 0.1));
    let dead = run(&|s| (s.dead, s.has_gossip) = (s.nodes / 10, true));
    add(", a tenth dead", dead);
    let churn = run(&|s| {
        (s.churn_ns, s.stagger_ns, s.has_gossip) = (100 * MS, MS, true);
    });
    add(", one dies and one joins", churn);
    runs
}

/// Returns the lines of [`Table::Members`] for these losses in percent, and whether all agree.
pub fn members<'a>(
    sizes: &'a [usize],
    losses: &'a [u32],
    seed: u64,
) -> impl Iterator<Item = (String, bool)> + 'a {
    let sizes = sizes.iter();
    let runs = sizes.flat_map(|n| losses.iter().map(|percent| (*n, *percent)));
    runs.map(move |(nodes, percent)| {
        let loss = f64::from(percent) / 100.0;
        let Some(m) = membership(nodes, loss, seed) else {
            return (
                format!("not ok {nodes} nodes, {percent} % lost: no agreement"),
                false,
            );
        };
        let (joined, sent, peace) = (m.joined_ms, m.joined_datagrams, m.datagrams_per_s);
        let (wrong, noticed) = (m.wrong_ppm, m.noticed_ms);
        let line = format!(
            "| {nodes} | {percent} % | {joined} | {sent} | {peace:.1} | {wrong:.0} | {noticed} |"
        );
        (line, true)
    })
}

/// The line above these.
pub const MEMBERS_HEAD: &str = concat!(
    "| nodes | lost | all know all after, ms | datagrams of a node until then | later, in a second ",
    "| wrongly suspected, ppm | a death is known to all after, ms |\n",
    "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
);

/// The figures of a run, as a line.
#[derive(Clone, Debug)]
pub struct Row {
    name: String,
    seed: u64,
    scenario: Scenario,
    outcome: Outcome,
}

impl Row {
    /// The line above the rows.
    pub const HEAD: &'static str = concat!(
        "| nodes | what | gfsd bytes / file | last reader, ms | read p50, ms | p99, ms ",
        "| slowest / mean reader | busiest node sent, files | busiest / mean ",
        "| datagrams / page | timeouts | left groups, files |\n",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );

    /// Makes the row of a run with a seed.
    pub fn new(run: &Run, seed: u64, outcome: &Outcome) -> Self {
        Self {
            name: run.name.clone(),
            seed,
            scenario: run.scenario,
            outcome: outcome.clone(),
        }
    }

    /// Returns the row as a JSON object.
    pub fn json(&self, table: Table) -> String {
        let (o, s) = (&self.outcome, &self.scenario);
        let violation = o
            .violation
            .map_or("null".into(), |what| format!("{what:?}"));
        let numbers = [
            ("seed", self.seed as f64),
            ("nodes", s.nodes as f64),
            ("readers", o.readers as f64),
            ("gfsd_files", o.gfsd_files),
            ("last_ms", o.last_ms),
            ("p50_ms", o.p50_ms),
            ("p99_ms", o.p99_ms),
            ("max_ms", o.max_ms),
            ("unfairness", o.unfairness),
            ("hottest_files", o.hottest_files),
            ("hottest", o.hottest),
            ("datagrams_per_page", o.datagrams_per_page),
            ("overruns", o.overruns as f64),
            ("timeouts", o.timeouts as f64),
            ("misses", o.misses as f64),
            ("busy", o.busy as f64),
            ("from_nodes", o.from_nodes),
            ("groups", s.groups as f64),
            ("far_files", o.far_files),
            ("late", o.late as f64),
            ("rejected", o.rejected as f64),
            ("discarded", o.discarded as f64),
            ("forwards", o.forwards as f64),
            ("cuts", o.cuts as f64),
            ("gossip", o.gossip as f64),
            ("events", o.events as f64),
        ];
        let numbers = numbers.map(|(name, value)| format!("\"{name}\":{value}"));
        format!(
            "{{\"table\":\"{table:?}\",\"run\":{:?},\"violation\":{violation},{}}}",
            self.name,
            numbers.join(",")
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (o, s) = (&self.outcome, &self.scenario);
        write!(
            f,
            "| {} | {} | {:.2} | {:.0} | {:.2} | {:.1} | {:.2} | {:.1} | {:.1} | {:.3} | {} | {:.0} |",
            s.nodes,
            self.name,
            o.gfsd_files,
            o.last_ms,
            o.p50_ms,
            o.p99_ms,
            o.unfairness,
            o.hottest_files,
            o.hottest,
            o.datagrams_per_page,
            o.timeouts,
            o.far_files,
        )?;
        if s.source == Source::FileServer {
            for (branches, by_chunks) in [(2, false), (2, true), (8, true)] {
                let t = tree(s, branches, by_chunks);
                let what = if by_chunks { "chunks" } else { "whole files" };
                write!(f, "\n| {} | tree of {branches}, {what} | 1.00 ", s.nodes)?;
                let (last_ms, sent) = (t.last_ms, t.hottest_files);
                write!(f, "| {last_ms:.0} | | | | {sent:.1} | | | | |")?;
            }
        }
        Ok(())
    }
}
