// SPDX-License-Identifier: GPL-2.0

//! The key that a user shares with the servers, and that of the cooperative cache: which file has
//! it, and whether it is of use.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{
        Path,
        PathBuf, //
    },
};

use proto::gfarm::{
    cache::wire::Key,
    key::SharedKey, //
};

use crate::Failure;

/// The name of the file in the home directory.
pub const FILE_NAME: &str = ".gfarm_shared_key";

/// The longest file that is read, in bytes; a key has 74.
const FILE_LEN_MAX: u64 = 4096;

/// Returns the file to read: that of `keyfile=`, else of `shared_key_file`, else of the home of the
/// local account that is named as the user of Gfarm, else of the home of who mounts.
///
/// # Errors
///
/// Returns [`Failure::Usage`] if there is no home.
pub fn file_of(
    option: Option<&str>,
    configured: Option<&str>,
    home_of_user: Option<PathBuf>,
    own_home: Option<PathBuf>,
) -> Result<PathBuf, Failure> {
    if let Some(path) = option.or(configured) {
        return Ok(PathBuf::from(path));
    }
    let home = home_of_user.or(own_home);
    let home = home.ok_or_else(|| {
        Failure::Usage("there is no home directory with a key: add -o keyfile=FILE".to_owned())
    })?;
    Ok(home.join(FILE_NAME))
}

/// Reads a key and returns its line, which the kernel gets.
///
/// # Errors
///
/// Returns [`Failure::Usage`] if the file is missing, if others may read it, or if its key is
/// malformed or has expired at `now_s`, in seconds since 1970.
pub fn read(path: &Path, now_s: u64) -> Result<String, Failure> {
    let refuse = |why: &str| refused(path, why);
    let line = secret_line(
        path,
        "run `gfkey -c` as the user, give the same key to the servers, or add -o keyfile=FILE",
    )?;
    let mut key = SharedKey::empty();
    key.read(line.as_bytes())
        .map_err(|why| refuse(&why.to_string()))?;
    if key.is_expired(now_s) {
        return Err(refuse(
            "the key has expired: run `gfkey -f -p SECONDS` as the user, and give the new key to \
             the servers",
        ));
    }
    Ok(line)
}

/// Reads a key of the cooperative cache, and returns its line.
///
/// # Errors
///
/// Returns [`Failure::Usage`] if the file is missing, if others may read it, or if it has anything
/// but a key.
pub fn read_of_cache(path: &Path) -> Result<String, Failure> {
    let line = secret_line(
        path,
        "copy the one of another node, or make one for all nodes",
    )?;
    match Key::empty().read(line.as_bytes()) {
        true => Ok(line),
        false => Err(refused(path, "the key is not 32 hexadecimal digits")),
    }
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("{}: {why}", path.display()))
}

/// Reads a file of one line that none but its owner may read.
fn secret_line(path: &Path, cure: &str) -> Result<String, Failure> {
    let refuse = |why: &str| refused(path, why);
    let about = fs::metadata(path).map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => refuse(&format!("no such key file: {cure}")),
        _ => refuse(&why.to_string()),
    })?;
    if !about.is_file() || about.len() > FILE_LEN_MAX {
        return Err(refuse("is no key file"));
    }
    if about.mode() & 0o077 != 0 {
        let text = format!(
            "others than its owner can read it: run `chmod 600 {}`, and make a new key if they \
             may have done so",
            path.display()
        );
        return Err(refuse(&text));
    }
    let text = fs::read_to_string(path).map_err(|why| refuse(&why.to_string()))?;
    Ok(text.trim().to_owned())
}
