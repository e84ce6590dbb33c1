// SPDX-License-Identifier: GPL-2.0

//! Reads the statements of gfarm2.conf(5) that a mount needs.
//!
//! The user's file (`$GFARM_CONFIG_FILE`, else `~/.gfarm2rc`) is read before the system's, and the
//! first statement of a kind holds, as for the other programs of Gfarm.

use std::{
    fs, io,
    path::{
        Path,
        PathBuf, //
    },
};

use crate::Failure;

/// The system's file, where Debian's packages have it.
pub const SYSTEM_FILE: &str = "/etc/gfarm2.conf";

/// The settings that were found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Config {
    /// `metadb_server_list`: all gfmds, as `HOST[:PORT]`.
    pub server_list: Vec<String>,
    /// `metadb_server_host`.
    pub server_host: Option<String>,
    /// `metadb_server_port`.
    pub server_port: Option<String>,
    /// `shared_key_file`.
    pub key_file: Option<String>,
    /// `local_user_map`: files with the names here of Gfarm's users.
    pub user_maps: Vec<String>,
    /// `local_group_map`.
    pub group_maps: Vec<String>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// Reads the files that a user's programs read; one that does not exist is left out. `only`
    /// names a file to read instead of all, which has to exist.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Usage`] if a file cannot be read.
    pub fn load(
        only: Option<&Path>,
        from_environment: Option<PathBuf>,
        home: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut config = Self::default();
        if let Some(path) = only {
            let text = fs::read_to_string(path).map_err(|why| unreadable(path, &why))?;
            config.take(path, &text);
            return Ok(config);
        }
        let of_user = from_environment.or_else(|| home.map(|home| home.join(".gfarm2rc")));
        for path in of_user.into_iter().chain([PathBuf::from(SYSTEM_FILE)]) {
            match fs::read_to_string(&path) {
                Ok(text) => config.take(&path, &text),
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(unreadable(&path, &why)),
            }
        }
        Ok(config)
    }

    /// Takes the statements of a file that were not in an earlier one.
    pub fn take(&mut self, path: &Path, text: &str) {
        self.files.push(path.to_owned());
        let joined = text.replace("\\\n", " ");
        for line in joined.lines() {
            let words = words_of(line);
            let Some((name, values)) = words.split_first() else {
                continue;
            };
            let first = values.first().cloned();
            match name.as_str() {
                "metadb_server_list" if self.server_list.is_empty() => {
                    self.server_list = values.to_vec();
                }
                "metadb_server_host" => keep(&mut self.server_host, first),
                "metadb_server_port" => keep(&mut self.server_port, first),
                "local_user_map" => self.user_maps.extend(first),
                "local_group_map" => self.group_maps.extend(first),
                "shared_key_file" => keep(&mut self.key_file, first),
                _ => {}
            }
        }
    }

    /// Returns the gfmds, as `HOST[:PORT]`; none if the files name none.
    pub fn servers(&self) -> Vec<String> {
        if !self.server_list.is_empty() {
            return self.server_list.clone();
        }
        let with_port = |host: &String| match &self.server_port {
            Some(port) => format!("{host}:{port}"),
            None => host.clone(),
        };
        self.server_host.iter().map(with_port).collect()
    }
}

fn keep(kept: &mut Option<String>, found: Option<String>) {
    if kept.is_none() {
        *kept = found;
    }
}

pub(crate) fn unreadable(path: &Path, why: &io::Error) -> Failure {
    Failure::Usage(format!("{}: {why}", path.display()))
}

/// Splits a line into words: quotes keep spaces together, a backslash takes the next character as
/// it is, and a word that starts with `#` ends the line.
pub(crate) fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (Some('\''), _) => word.get_or_insert_default().push(letter),
            (_, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
