// SPDX-License-Identifier: GPL-2.0

//! The numbers here of Gfarm's users and groups, by the files of `local_user_map` and
//! `local_group_map` in gfarm2.conf(5): a name of Gfarm and a local one in each line.

use std::{
    collections::HashMap,
    fs,
    path::Path, //
};

use proto::gfarm::id_map::IdMap;

use crate::{
    config::{
        unreadable,
        words_of, //
    },
    Failure, //
};

/// Returns the entries of files as the kernel takes them, `NAME/NUMBER` with `+` between them. A
/// line that is of no use is left out, with a warning.
///
/// # Errors
///
/// Returns [`Failure::Usage`] if a file cannot be read.
pub fn read(
    files: &[String],
    ids_of: impl Fn(&[String]) -> HashMap<String, u32>,
    warnings: &mut Vec<String>,
) -> Result<String, Failure> {
    let mut pairs = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|why| unreadable(Path::new(file), &why))?;
        for (number, line) in (1..).zip(text.lines()) {
            match words_of(line).as_slice() {
                [] => {}
                [name, local] => {
                    pairs.push((format!("{file}:{number}"), name.clone(), local.clone()))
                }
                _ => warnings.push(format!("{file}:{number}: left out: not two names")),
            }
        }
    }
    let locals: Vec<_> = pairs.iter().map(|(_, _, local)| local.clone()).collect();
    let ids = ids_of(&locals);
    let mut entries = Vec::new();
    for (at, name, local) in pairs {
        let entry = ids.get(&local).map(|id| format!("{name}/{id}"));
        match entry.filter(|entry| IdMap::parse(entry.as_bytes()).is_some()) {
            Some(entry) => entries.push(entry),
            None => warnings.push(format!(
                "{at}: left out: {local} is not known here, or {name} no name"
            )),
        }
    }
    Ok(entries.join("+"))
}
