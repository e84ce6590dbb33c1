// SPDX-License-Identifier: GPL-2.0

//! Runs seeds of the simulation and prints violations.

use std::{
    collections::BTreeMap,
    io::{
        self,
        IsTerminal,
        Write, //
    },
    ops::Range,
    process::ExitCode,
    time::{
        Duration,
        Instant, //
    },
};

use clap::Parser;
use sim::{
    Mutation,
    Options,
    Outcome, //
};

/// Client and server of RTRS with several paths and faults, simulated.
///
/// The last line is 'N passed, M failed'. A seed is the same run each time.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Number of seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this one
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds to run after them that are new each time; the first is printed
    #[arg(long, default_value_t = 0)]
    fresh: u64,
    /// Print the timeline (of one seed, or of the first that fails)
    #[arg(long)]
    trace: bool,
    /// Let late packets through: the hole that the protocol leaves
    #[arg(long)]
    late_packets: bool,
    /// Break the model; a wrong name shows them all
    #[arg(long, value_parser = mutation)]
    mutation: Option<Mutation>,
}

fn mutation(name: &str) -> Result<Mutation, String> {
    let names = || Mutation::ALL.map(|m| format!("{m:?}")).join(" ");
    Mutation::ALL
        .into_iter()
        .find(|m| format!("{m:?}").eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("there are: {}", names()))
}

/// The results of several runs.
#[derive(Default)]
struct Sum {
    passed: u64,
    failed: u64,
    requests: u64,
    errors: u64,
    virtual_us: u64,
    kinds: BTreeMap<String, (u64, u64)>,
    reached: BTreeMap<&'static str, u64>,
}

impl Sum {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.requests += outcome.done;
        self.errors += outcome.failed;
        self.virtual_us += outcome.virtual_us;
        for (place, count) in &outcome.reached {
            *self.reached.entry(place).or_insert(0) += count;
        }
        match &outcome.violation {
            None => self.passed += 1,
            Some(violation) => {
                self.failed += 1;
                let kind = format!("{:?}", violation.kind);
                self.kinds.entry(kind).or_insert((0, seed)).0 += 1;
            }
        }
    }
}

fn print_trace(out: &mut impl Write, seed: u64, options: Options) -> anyhow::Result<()> {
    let options = Options {
        trace: true,
        ..options
    };
    for line in sim::run(seed, options)?.trace {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The arguments that run a seed again, with its timeline.
fn again(seed: u64, args: &Args) -> String {
    let late_packets = if args.late_packets {
        " --late-packets"
    } else {
        ""
    };
    let mutation = args
        .mutation
        .map_or(String::new(), |m| format!(" --mutation {m:?}"));
    format!(
        "cargo run --release -p ferrofabric-sim -- --seed {seed}{late_packets}{mutation} --trace"
    )
}

/// The seeds of this run, and the fresh ones.
fn seeds_of(args: &Args, out: &mut impl Write) -> anyhow::Result<[Range<u64>; 2]> {
    if let Some(seed) = args.seed {
        return Ok([seed..seed.saturating_add(1), 0..0]);
    }
    let fixed = args.first..args.first.saturating_add(args.seeds);
    // Ranges of different runs hardly ever meet, and none meets the fixed seeds.
    let first = fastrand::u64(1 << 40..1 << 62);
    if args.fresh != 0 {
        writeln!(out, "# fresh: --first {first} --seeds {}", args.fresh)?;
    }
    Ok([fixed, first..first.saturating_add(args.fresh)])
}

fn run(args: &Args) -> anyhow::Result<Sum> {
    let options = Options {
        trace: false,
        late_packets: args.late_packets,
        mutation: args.mutation,
    };
    let mut out = io::stdout().lock();
    let (mut sum, begun, mut told) = (Sum::default(), Instant::now(), Instant::now());
    let seeds = seeds_of(args, &mut out)?;
    let count: u64 = seeds.iter().map(|range| range.end - range.start).sum();
    for seed in seeds.into_iter().flatten() {
        let outcome = sim::run(seed, options)?;
        sum.add(seed, &outcome);
        let first_failure = outcome.violation.is_some() && sum.failed == 1;
        if args.trace && (args.seed.is_some() || first_failure) {
            print_trace(&mut out, seed, options)?;
        }
        if let (Some(violation), true) = (&outcome.violation, sum.failed <= 10) {
            writeln!(out, "not ok seed {seed}: {violation}")?;
            writeln!(out, "# again, in tools/: {}", again(seed, args))?;
        }
        if told.elapsed() > Duration::from_secs(3) {
            told = Instant::now();
            let (done, s) = (sum.passed + sum.failed, begun.elapsed().as_secs());
            writeln!(
                out,
                "# {done} of {count} seeds, {} failed, {s} s",
                sum.failed
            )?;
        }
    }
    for (kind, (count, seed)) in &sum.kinds {
        writeln!(out, "# {kind}: {count}, first with --seed {seed} --trace")?;
    }
    for (place, count) in &sum.reached {
        writeln!(out, "# {count:9}  {place}")?;
    }
    writeln!(
        out,
        "# {} requests, {} failed for want of a path, {} virtual minutes in {:.1} s",
        sum.requests,
        sum.errors,
        sum.virtual_us / 60_000_000,
        begun.elapsed().as_secs_f64(),
    )?;
    writeln!(out, "{} passed, {} failed", sum.passed, sum.failed)?;
    Ok(sum)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(sum) if sum.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // A closed pipe (`| head`) is not an error.
            if io::stderr().is_terminal() || error.downcast_ref::<io::Error>().is_none() {
                let _ = writeln!(io::stderr(), "sim: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
