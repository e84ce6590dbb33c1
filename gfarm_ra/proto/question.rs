// SPDX-License-Identifier: GPL-2.0

//! The questions of a mount to gfmd: each one is one round trip that walks from the root by names,
//! so it needs no descriptor and means the same to a restarted gfmd.
//!
//! ```text
//!   walk to the directory --> open the object --> verify its type --> body --> list --> export
//! ```
//!
//! The directories may have been renamed since their names were learned: the answer tells which
//! objects were met, and the driver compares them with those that it knows.
//!
//! The answer is read part by part ([`Answer`]): once by the driver that receives it, to find its
//! end, and once by the task that has asked.

use super::{
    attr::{
        Attr,
        DirEntry,
        FileId,
        FileType,
        ReplicaHost, //
    },
    closing::Fds,
    command::*,
    error::{
        decode_status,
        GfarmError, //
    },
    gfm::{
        Base,
        Close,
        Fd,
        Fstat,
        GetDirEntsPlus,
        GetFd,
        Open,
        Opened,
        Readlink,
        ScheduleFile,
        Seek,
        Statfs,
        Usage,
        VerifyType,
        Walk, //
    },
    name::{
        Name,
        Path, //
    },
    operation::{
        ListOperation,
        Operation,
        ReplyError, //
    },
    request::Request,
    xdr::{
        Decoder,
        Encoder, //
    },
};

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The attributes of the object.
    Attributes,
    /// The attributes of the file, if the user may read it: no descriptor is left open.
    Permission,
    /// The target of the symbolic link.
    Link,
    /// The entries of the directory.
    List {
        /// The position of the first one.
        at: u64,
        /// The maximum number of entries; gfmd limits it to 10,240.
        max: u32,
    },
    /// A descriptor of the file to read it; its attributes; the gfsds that have it.
    Open,
    /// Nothing: the descriptors are closed, in their order. Those behind one that is not open stay
    /// open.
    Close(Fds),
    /// The space of the file system.
    Usage,
}

impl Kind {
    /// Returns how statistics name it.
    pub const fn request(self) -> Request {
        match self {
            Self::Attributes | Self::Permission => Request::Attributes,
            Self::Link => Request::Link,
            Self::List { .. } => Request::List,
            Self::Open => Request::Open,
            Self::Close(_) => Request::Close,
            Self::Usage => Request::Usage,
        }
    }
}

/// A question about the object with this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'n> {
    kind: Kind,
    path: Path<'n>,
}

impl<'n> Question<'n> {
    /// Asks about the object with this path; an empty one is that of the root. For [`Kind::Close`]
    /// and [`Kind::Usage`] the path has no meaning.
    pub const fn new(kind: Kind, path: Path<'n>) -> Self {
        Self { kind, path }
    }

    /// Returns what is asked.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the size of a buffer that the request fits, in bytes.
    pub fn len_max(&self) -> usize {
        const FIXED: usize = 96;
        // Command, length and flags; command and type.
        const EACH: usize = 12 + 8;
        // Command and number; command.
        const CLOSED: usize = 8 + 4;

        if let Kind::Close(fds) = self.kind {
            return FIXED.saturating_add(fds.len().saturating_mul(CLOSED));
        }
        self.path.names().fold(FIXED, |sum, name| {
            sum.saturating_add(EACH)
                .saturating_add(name.as_bytes().len())
        })
    }

    /// Returns the name of the object; `None` for the root, and if there is no object.
    fn object(&self) -> Option<Name<'n>> {
        match self.kind {
            Kind::Close(_) | Kind::Usage => None,
            _ => self.path.names().last(),
        }
    }

    fn directories(&self) -> Walk<'n> {
        Walk(self.path.parent())
    }

    fn base(&self) -> Base {
        match self.kind {
            Kind::List { .. } if self.object().is_none() => Base::RootToRead,
            _ => Base::Root,
        }
    }

    /// Returns the request that opens the object, if it is not the root.
    fn open(&self) -> Option<Open<'n>> {
        self.object().map(|name| match self.kind {
            Kind::List { .. } | Kind::Open | Kind::Permission => Open::to_read(name),
            _ => Open::to_look_up(name),
        })
    }

    /// Returns the type that the object must have: it is opened to read it.
    const fn verified(&self) -> Option<VerifyType> {
        match self.kind {
            Kind::List { .. } => Some(VerifyType(FileType::Directory)),
            Kind::Open | Kind::Permission => Some(VerifyType(FileType::Regular)),
            _ => None,
        }
    }

    /// Writes the request.
    pub fn encode(&self, to: &mut Encoder<'_>) {
        if self.kind == Kind::Usage {
            return Statfs.encode(to);
        }
        to.u32(GFM_PROTO_COMPOUND_BEGIN);
        if let Kind::Close(fds) = self.kind {
            for fd in fds.iter() {
                Base::Fd(fd).encode(to);
                Close.encode(to);
            }
            to.u32(GFM_PROTO_COMPOUND_END);
            return;
        }
        self.base().encode(to);
        if let Some(open) = self.open() {
            self.directories().encode(to);
            open.encode(to);
        }
        if let Some(verify) = self.verified() {
            verify.encode(to);
        }
        match self.kind {
            Kind::Attributes | Kind::Permission => Fstat.encode(to),
            Kind::Link => Readlink.encode(to),
            Kind::List { at, max } => {
                if at != 0 {
                    Seek(at).encode(to);
                }
                GetDirEntsPlus(max).encode(to);
            }
            Kind::Open => {
                Fstat.encode(to);
                ScheduleFile.encode(to);
                GetFd.encode(to);
            }
            Kind::Close(_) | Kind::Usage => {}
        }
        to.u32(GFM_PROTO_COMPOUND_END);
    }
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A request was carried out that has no values.
    Done,
    /// The next directory on the way was opened: the last one of them is that of the object.
    Directory(FileId),
    /// The object was opened.
    Object(Opened),
    /// The attributes of the object.
    Attr(Attr<'a>),
    /// The target of the link.
    Link(&'a [u8]),
    /// The number of entries, or hosts, that follow.
    Count(u32),
    /// An entry of the directory.
    Entry(DirEntry<'a>),
    /// A gfsd with a replica.
    Host(ReplicaHost<'a>),
    /// The descriptor, which is open from now on.
    Exported(Fd),
    /// The space of the file system.
    Usage(Usage),
    /// The answer is over.
    Over,
}

/// The part of an answer that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Base,
    Directories {
        left: usize,
    },
    Object,
    Type,
    Position,
    Body,
    Count,
    Items {
        left: u32,
    },
    Export,
    /// The two statuses of each descriptor.
    Closing {
        left: usize,
    },
    End,
    Over,
}

/// Reads an answer, one part a call.
///
/// After [`ReplyError::NeedMore`] the same part is decoded again, with more bytes. Any other error
/// is the last thing of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    stage: Stage,
}

impl Answer {
    /// Returns the reader of an answer of which nothing was read yet.
    pub fn new(question: &Question<'_>) -> Self {
        let stage = match question.kind {
            Kind::Usage => Stage::Body,
            _ => Stage::Begin,
        };
        Self { stage }
    }

    /// Returns whether nothing follows any more.
    pub const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Returns how many descriptors gfmd has not looked at of those that it was `asked` to close,
    /// after an error: those behind the one that it has refused, or all.
    pub const fn left_open(&self, asked: usize) -> usize {
        match self.stage {
            Stage::Begin => asked,
            // The statuses of the one that was refused are among them, or one of the two.
            Stage::Closing { left } => left.saturating_sub(1) / 2,
            _ => 0,
        }
    }

    /// Returns whether `error`, which came for the next part, means that the object, or a directory
    /// on the way, is not where it was: its names have to be looked up again. `NO_SUCH_FILE` for
    /// the name of the object itself is not such an error.
    pub const fn is_stale(&self, error: GfarmError) -> bool {
        match self.stage {
            Stage::Directories { .. } => matches!(
                error,
                GfarmError::NO_SUCH_FILE_OR_DIRECTORY
                    | GfarmError::NOT_A_DIRECTORY
                    | GfarmError::STALE_FILE_HANDLE
                    | GfarmError::NO_SUCH_OBJECT
                    | GfarmError::IS_A_SYMBOLIC_LINK
            ),
            // The connection errors among them are decided before.
            Stage::Type => true,
            _ => false,
        }
    }

    /// Reads the next part.
    pub fn part<'a>(
        &mut self,
        question: &Question<'_>,
        from: &mut Decoder<'a>,
    ) -> Result<Part<'a>, ReplyError> {
        let part = self.decode(question, from)?;
        self.stage = self.after(question, &part);
        Ok(part)
    }

    fn decode<'a>(
        &self,
        question: &Question<'_>,
        from: &mut Decoder<'a>,
    ) -> Result<Part<'a>, ReplyError> {
        let is_list = matches!(question.kind, Kind::List { .. });
        match (self.stage, question.kind) {
            (Stage::Directories { .. }, _) => Walk::decode_directory(from).map(Part::Directory),
            (Stage::Object, _) => Opened::decode(from).map(Part::Object),
            (Stage::Position, _) => Seek(0).decode(from).map(|_| Part::Done),
            (Stage::Body, Kind::Link) => Readlink.decode(from).map(Part::Link),
            (Stage::Body, Kind::Usage) => Statfs.decode(from).map(Part::Usage),
            (Stage::Body, Kind::Attributes | Kind::Permission | Kind::Open) => {
                Fstat.decode(from).map(Part::Attr)
            }
            (Stage::Count, kind) => {
                decode_status(from)?;
                let max = match kind {
                    Kind::List { max, .. } => GetDirEntsPlus(max).count_max(),
                    _ => ScheduleFile.count_max(),
                };
                Ok(Part::Count(from.count("entries", max)?))
            }
            (Stage::Items { .. }, _) if is_list => {
                GetDirEntsPlus::decode_item(from).map(Part::Entry)
            }
            (Stage::Items { .. }, _) => ScheduleFile::decode_item(from).map(Part::Host),
            (Stage::Export, _) => GetFd.decode(from).map(Part::Exported),
            (Stage::Over, _) => Ok(Part::Over),
            (
                Stage::Begin
                | Stage::Base
                | Stage::Type
                | Stage::Body
                | Stage::Closing { .. }
                | Stage::End,
                _,
            ) => decode_status(from).map(|()| Part::Done),
        }
    }

    fn after(&self, question: &Question<'_>, part: &Part<'_>) -> Stage {
        let is_open = question.kind == Kind::Open;
        let has_list = is_open || matches!(question.kind, Kind::List { .. });
        let verified = match question.verified() {
            Some(_) => Stage::Type,
            None => Stage::Body,
        };
        let after_items = if is_open { Stage::Export } else { Stage::End };
        match (self.stage, part) {
            (Stage::Begin, _) => match question.kind {
                Kind::Close(fds) if fds.is_empty() => Stage::End,
                Kind::Close(fds) => Stage::Closing {
                    left: fds.len().saturating_mul(2),
                },
                _ => Stage::Base,
            },
            (Stage::Closing { left: 0 | 1 }, _) => Stage::End,
            (Stage::Closing { left }, _) => Stage::Closing {
                left: left.wrapping_sub(1),
            },
            (Stage::Base, _) => match question.object() {
                Some(_) => match question.path.depth() {
                    0 | 1 => Stage::Object,
                    names => Stage::Directories {
                        left: names.wrapping_sub(1),
                    },
                },
                None => verified,
            },
            (Stage::Directories { left: 0 | 1 }, _) => Stage::Object,
            (Stage::Directories { left }, _) => Stage::Directories {
                left: left.wrapping_sub(1),
            },
            (Stage::Object, _) => verified,
            (Stage::Type, _) => match question.kind {
                Kind::List { at: 0, .. } => Stage::Count,
                Kind::List { .. } => Stage::Position,
                _ => Stage::Body,
            },
            (Stage::Position, _) => Stage::Count,
            (Stage::Body, Part::Usage(_)) => Stage::Over,
            (Stage::Body, _) if has_list => Stage::Count,
            (Stage::Body, _) => Stage::End,
            (Stage::Count, Part::Count(left @ 1..)) => Stage::Items { left: *left },
            (Stage::Count, _) => after_items,
            (Stage::Items { left: 0 | 1 }, _) => after_items,
            (Stage::Items { left }, _) => Stage::Items {
                left: left.wrapping_sub(1),
            },
            (Stage::Export, _) => Stage::End,
            (Stage::End | Stage::Over, _) => Stage::Over,
        }
    }
}
