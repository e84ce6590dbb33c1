// SPDX-License-Identifier: GPL-2.0

//! The requests of a mount, as its statistics and its tracepoint name them.

/// The kind of server that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The metadata server.
    Gfmd,
    /// A file server.
    Gfsd,
}

impl Server {
    /// Returns the name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gfmd => "gfmd",
            Self::Gfsd => "gfsd",
        }
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident: $server:ident $text:literal),* $(,)?) => {
        /// The kind of a request, of one round trip each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Request {
            $($(#[$doc])* $name),*
        }

        impl Request {
            /// The kinds in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns who is asked.
            pub const fn server(self) -> Server {
                match self {
                    $(Self::$name => Server::$server),*
                }
            }

            /// Returns a name for people: the program's and what is asked.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text),*
                }
            }
        }
    };
}

requests! {
    /// The attributes of an object, for a lookup too.
    Attributes: Gfmd "gfmd_attributes",
    /// The target of a symbolic link.
    Link: Gfmd "gfmd_link",
    /// The entries of a directory.
    List: Gfmd "gfmd_list",
    /// A descriptor of a file, its attributes and its replicas.
    Open: Gfmd "gfmd_open",
    /// The end of descriptors, up to [`FDS_MAX`](super::closing::FDS_MAX) at a time.
    Close: Gfmd "gfmd_close",
    /// The space of the file system.
    Usage: Gfmd "gfmd_usage",
    /// A descriptor is opened at a file server.
    OpenAtGfsd: Gfsd "gfsd_open",
    /// Bytes of a file, and its size and times behind them.
    Read: Gfsd "gfsd_read",
    /// The size and the times of a file alone.
    Stat: Gfsd "gfsd_stat",
    /// A descriptor is closed at a file server.
    CloseAtGfsd: Gfsd "gfsd_close",
}

impl Request {
    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns its number, below [`Self::COUNT`].
    pub const fn index(self) -> usize {
        // CAST: The number of a variant.
        self as usize
    }
}
