// SPDX-License-Identifier: GPL-2.0

//! Words of what is printed.

use std::fmt::Write;

use anyhow::{
    Context,
    Result, //
};
use clap::ValueEnum;
use seglog::members::Members;
use serde::Serialize;

/// Form of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Words and tables
    Table,
    /// One object
    Json,
}

/// Returns a UUID as the module shows it.
pub fn uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (place, byte) in uuid.iter().enumerate() {
        let dash = if matches!(place, 4 | 6 | 8 | 10) {
            "-"
        } else {
            ""
        };
        // A string takes all.
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}

/// Parses a UUID: 32 digits, with or without dashes.
///
/// # Errors
///
/// Returns that it is none.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let is_right = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_right);
    let number = number.ok_or("a UUID has 32 hexadecimal digits")?;
    Ok(number.to_be_bytes())
}

/// Returns the identifier of an epoch or of a device, as it is printed.
pub fn id(id: u64) -> String {
    format!("{id:016x}")
}

/// Returns members as a list of numbers; "none" if there is none.
pub fn members(members: Members) -> String {
    if members.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<String> = members.iter().map(|member| member.to_string()).collect();
    each.join(", ")
}

/// Returns a number and what is counted: one of it, or several.
pub fn count(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns an object as one line.
///
/// # Errors
///
/// Returns the error of the serializer.
pub fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).context("cannot be printed as JSON")
}

/// Returns rows as a table, of which each column is as wide as it has to be.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
