// SPDX-License-Identifier: GPL-2.0

//! Runs scenarios of the cooperative page cache and prints their figures.

use std::{
    io::{
        self,
        IsTerminal,
        Write, //
    },
    process::ExitCode, //
};

use clap::{
    Parser,
    ValueEnum, //
};
use sim_cache::{
    tables::{
        self,
        Row,
        Table, //
    },
    Scenario, //
};

/// The cooperative page cache of many nodes, simulated: tables of figures.
///
/// The same seed gives the same figures each time. The last line is 'N passed, M failed': a run
/// fails if a rule was broken (a page of another content, a read without an end).
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Tables to show; all if none is named
    tables: Vec<Table>,
    /// The numbers of nodes, in tables of several
    #[arg(long, value_delimiter = ',', default_values_t = tables::SIZES)]
    nodes: Vec<usize>,
    /// The numbers of nodes in the table of members
    #[arg(long, value_delimiter = ',', default_values_t = tables::MEMBERS)]
    members: Vec<usize>,
    /// The datagrams that are lost in it, in percent
    #[arg(long, value_delimiter = ',', default_values_t = tables::LOSSES)]
    losses: Vec<u32>,
    /// The number of nodes in the other tables
    #[arg(long, default_value_t = 256)]
    size: usize,
    /// The seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds of each run, one after the other; the figures are those of the worst one
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Form {
    Text,
    Json,
}

fn run(args: &Args) -> anyhow::Result<(usize, usize)> {
    let (mut out, mut progress) = (io::stdout().lock(), io::stderr().lock());
    let is_watched = io::stderr().is_terminal();
    let (mut passed, mut failed) = (0, 0);
    let tables: &[Table] = match &args.tables[..] {
        [] => Table::value_variants(),
        named => named,
    };
    for table in tables {
        if *table == Table::Members && args.output == Form::Text {
            // Its figures are others; only the text has them.
            writeln!(out, "\n{}\n\n{}", table.title(), tables::MEMBERS_HEAD)?;
            for (line, is_ok) in tables::members(&args.members, &args.losses, args.seed) {
                writeln!(out, "{line}")?;
                *(if is_ok { &mut passed } else { &mut failed }) += 1;
            }
            continue;
        }
        let runs = table.runs(&args.nodes, args.size);
        if args.output == Form::Text {
            writeln!(out, "\n{}\n\n{}", table.title(), Row::HEAD)?;
        }
        let count = runs.len();
        for (index, run) in runs.into_iter().enumerate() {
            if is_watched {
                write!(progress, "\r{} of {count}: {:40}\r", index + 1, run.name)?;
            }
            let seeds = args.seed..args.seed + args.seeds.max(1);
            let scenario = |seed| Scenario {
                seed,
                ..run.scenario
            };
            let outcomes = seeds.map(|seed| (seed, sim_cache::run(&scenario(seed))));
            let outcomes: Vec<_> = outcomes.collect();
            for (seed, outcome) in &outcomes {
                match outcome.violation {
                    None => passed += 1,
                    Some(what) => {
                        failed += 1;
                        writeln!(out, "not ok {}, seed {seed}: {what}", run.name)?;
                    }
                }
            }
            let worst = outcomes
                .into_iter()
                .max_by(|a, b| a.1.gfsd_files.total_cmp(&b.1.gfsd_files));
            if let Some((seed, outcome)) = worst {
                let row = Row::new(&run, seed, &outcome);
                match args.output {
                    Form::Text => writeln!(out, "{row}")?,
                    Form::Json => writeln!(out, "{}", row.json(*table))?,
                }
            }
        }
    }
    if args.output == Form::Text {
        writeln!(out, "\n{passed} passed, {failed} failed")?;
    }
    Ok((passed, failed))
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok((_, 0)) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // A closed pipe (`| head`) is not an error.
            if io::stderr().is_terminal() || error.downcast_ref::<io::Error>().is_none() {
                let _ = writeln!(io::stderr(), "sim-cache: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
