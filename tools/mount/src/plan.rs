// SPDX-License-Identifier: GPL-2.0

//! Plans what a call asks the kernel to do, with everything looked up.

use std::{
    collections::HashMap,
    fmt, io,
    net::SocketAddr,
    path::{
        Path,
        PathBuf, //
    },
};

use rustix::mount::MountAttrFlags;

use crate::{
    command_line::CommandLine,
    config::Config,
    key,
    maps,
    options::{
        self,
        Sorted,
        Word, //
    },
    servers,
    Failure, //
};

/// Finds numbers by names in a database of the system.
pub type IdsOf<'a> = dyn Fn(&str, &[String]) -> HashMap<String, u32> + 'a;

/// The surroundings of a call, on which it depends beside its arguments; tests give their own.
pub struct Surroundings<'a> {
    /// The file that `$GFARM_CONFIG_FILE` names.
    pub config_file: Option<PathBuf>,
    /// The home of who mounts.
    pub home: Option<PathBuf>,
    /// Finds the home of a local account by its name.
    pub home_of: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// Finds the numbers of users (`passwd`) or groups (`group`) by their local names.
    pub ids_of: &'a IdsOf<'a>,
    /// Finds the addresses of a host, each with the port.
    pub look_up: &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    /// The time, in seconds since 1970.
    pub now_s: u64,
}

/// The key for the kernel.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The name by which the kernel finds it.
    pub description: String,
    /// The line of the file.
    line: String,
    /// The file.
    pub file: PathBuf,
}

impl Key {
    /// Returns what is secret.
    pub fn line(&self) -> &str {
        &self.line
    }
}

/// Does not show the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.description, self.file.display())
    }
}

/// The plan of a mount: all that the kernel is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The source, in addresses.
    pub source: String,
    /// The mount point.
    pub directory: PathBuf,
    /// The options of the file system.
    pub words: Vec<Word>,
    /// The attributes of the mount point.
    pub attributes: MountAttrFlags,
    /// Whether a mount that exists is changed.
    pub is_remount: bool,
    /// The key; `None` if the user has put one into a keyring.
    pub key: Option<Key>,
    /// The key of the cooperative cache, if it is in a file.
    pub cache_key: Option<Key>,
    /// Warnings, which the user sees; the mount goes on.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Looks everything up that a call needs.
    ///
    /// # Errors
    ///
    /// Returns the reason why the kernel would refuse the mount, as far as it is known here.
    pub fn new(line: &CommandLine, around: &Surroundings<'_>) -> Result<Self, Failure> {
        let sorted = options::sort(&line.options, line.is_sloppy)?;
        let warnings: Vec<String> = sorted
            .skipped
            .iter()
            .map(|name| format!("option {name} is unknown, and skipped as -s asks for"))
            .collect();
        let mut plan = Self {
            source: String::new(),
            directory: PathBuf::from(&line.directory),
            words: sorted.words.clone(),
            attributes: sorted.attributes,
            is_remount: sorted.is_remount,
            key: None,
            cache_key: None,
            warnings,
        };
        if plan.is_remount {
            plan.renew_key(&sorted, around);
            return Ok(plan);
        }
        let config = config(&sorted, around)?;
        let user = user_of(&sorted)?;
        let named = servers::named(&line.source, &config)?;
        plan.source = servers::resolve(&named, around.look_up, &mut plan.warnings)?;
        plan.add_maps(&config, around)?;
        if sorted.value_of("key").is_none() {
            plan.key = Some(find_key(user, &sorted, &config, around)?);
        }
        if let Some(file) = &sorted.cache_key_file {
            let file = PathBuf::from(file);
            plan.cache_key = Some(Key {
                description: options::CACHE_KEY.to_owned(),
                line: key::read_of_cache(&file)?,
                file,
            });
        }
        Ok(plan)
    }

    /// Adds the maps of gfarm2.conf behind those of the options, of which the first entry counts.
    fn add_maps(&mut self, config: &Config, around: &Surroundings<'_>) -> Result<(), Failure> {
        for (option, database, files) in [
            ("usermap", "passwd", &config.user_maps),
            ("groupmap", "group", &config.group_maps),
        ] {
            let ids_of = |names: &[String]| (around.ids_of)(database, names);
            let map = maps::read(files, ids_of, &mut self.warnings)?;
            if !map.is_empty() {
                self.words.extend(options::words(option, Some(&map)));
            }
        }
        Ok(())
    }

    /// Has a remount give the kernel the key that the file has now, if one can be found.
    fn renew_key(&mut self, sorted: &Sorted, around: &Surroundings<'_>) {
        let Some(user) = sorted.value_of("username") else {
            return;
        };
        if sorted.value_of("key").is_some() {
            return;
        }
        let found = config(sorted, around);
        match found.and_then(|config| find_key(user, sorted, &config, around)) {
            Ok(key) => self.key = Some(key),
            Err(why) => self.warnings.push(format!("the key stays as it is: {why}")),
        }
    }
}

fn config(sorted: &Sorted, around: &Surroundings<'_>) -> Result<Config, Failure> {
    Config::load(
        sorted.config.as_deref().map(Path::new),
        around.config_file.clone(),
        around.home.as_deref(),
    )
}

/// Returns the name of the user in Gfarm.
fn user_of(sorted: &Sorted) -> Result<&str, Failure> {
    sorted.value_of("username").ok_or_else(|| {
        Failure::Usage("whose files are these in Gfarm? add -o user=NAME".to_owned())
    })
}

fn find_key(
    user: &str,
    sorted: &Sorted,
    config: &Config,
    around: &Surroundings<'_>,
) -> Result<Key, Failure> {
    let file = key::file_of(
        sorted.key_file.as_deref(),
        config.key_file.as_deref(),
        (around.home_of)(user),
        around.home.clone(),
    )?;
    Ok(Key {
        description: format!("gfarm:{user}"),
        line: key::read(&file, around.now_s)?,
        file,
    })
}
