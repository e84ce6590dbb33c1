// SPDX-License-Identifier: GPL-2.0

//! The printing of results.

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

/// The form of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines for people
    Text,
    /// JSON
    Json,
}

/// Prints a result, or its line.
///
/// # Errors
///
/// Returns that it cannot be written as JSON.
pub(crate) fn print(output: Output, result: &impl Serialize, line: &str) -> Result<()> {
    match output {
        Output::Json => println!("{}", serde_json::to_string(result)?),
        Output::Text if line.is_empty() => {}
        Output::Text => println!("{line}"),
    }
    Ok(())
}
