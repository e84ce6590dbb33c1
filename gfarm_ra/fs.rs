// SPDX-License-Identifier: GPL-2.0

//! The file system `gfarm`.
//!
//! | file | what |
//! |---|---|
//! | `options` | the options of a mount |
//! | `mount` | a mount: its key, its connections, its statistics |
//! | `node` | what an inode has: its place, its label, the age of its attributes |
//! | `attributes` | what `stat(2)` shows |
//! | `name` | lookup and revalidation of names |
//! | `directory` | reading of directories |
//! | `cached` | what is cached of files, for other nodes |
//! | `file` | open files, and reading of files |
//! | `state` | files below `/proc/fs/gfarm` |
//!
//! `proto` decides, `net` talks to the servers.

mod attributes;
mod cached;
mod directory;
mod file;
mod mount;
mod name;
mod node;
mod options;
mod state;

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};
use vfs_ext::{
    Access,
    Entrance,
    Entries,
    FileSystem,
    Freshness,
    Inode,
    InodeRef,
    Judge,
    MountContext,
    Name,
    OpenedName,
    OptionError,
    ShownOptions,
    Statistics,
    Subrequest,
    SuperBlock,
    Validity, //
};

use crate::proto::{
    setting::Setting,
    READ_LEN_MAX, //
};
use directory::Listing;
use file::OpenFile;
use mount::Mount;
use node::Node;
use options::Collected;

/// The file system; a mount of it is a [`Mount`].
pub(crate) struct Gfarm;

#[vtable]
impl FileSystem for Gfarm {
    const NAME: &'static CStr = c"gfarm";
    /// "gfrm".
    const MAGIC: u32 = 0x6766_726d;

    type Options = Collected;
    type Super = Mount;
    type Inode = Arc<Node>;
    type File = OpenFile;
    type Directory = Pin<KBox<Listing>>;

    fn set_option(
        context: &MountContext<'_>,
        options: &mut Collected,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), OptionError> {
        options.set(context, name, value)
    }

    fn mount(context: &MountContext<'_>, options: Collected) -> Result<Arc<Mount>> {
        Mount::new(context, options)
    }

    fn root(sb: &SuperBlock<Self>) -> Result<InodeRef<'_, Self>> {
        name::root(sb)
    }

    fn reconfigure(
        sb: &SuperBlock<Self>,
        context: &MountContext<'_>,
        options: Collected,
    ) -> Result {
        options.check_same(context, sb.data().options())?;
        sb.data().renew_key(context)
    }

    fn entrance(mount: &Mount) -> Option<&Entrance<Self>> {
        Some(mount.entrance())
    }

    fn readahead_pages(mount: &Mount) -> u32 {
        mount.options().get(Setting::Readahead)
    }

    fn statistics(sb: &SuperBlock<Self>) -> Result<Statistics> {
        sb.data().statistics()
    }

    fn show_options(sb: &SuperBlock<Self>, shown: &mut ShownOptions<'_>) -> Result {
        shown.formatted(fmt!("{}", sb.data().options()));
        Ok(())
    }

    fn ending(mount: &Mount) {
        mount.end_reads();
        mount.withdraw();
    }

    fn umount_begin(sb: &SuperBlock<Self>) {
        sb.data().interrupt();
    }

    fn lookup<'a>(dir: &'a Inode<Self>, name: &[u8]) -> Result<Option<InodeRef<'a, Self>>> {
        name::lookup(dir, name)
    }

    fn revalidate(dir: &Inode<Self>, name: &Name<'_, Self>) -> Result<Validity> {
        name::revalidate(dir, name)
    }

    fn refresh(inode: &Inode<Self>, freshness: Freshness) -> Result<bool> {
        node::refresh(inode, freshness)
    }

    fn permission(inode: &Inode<Self>, access: Access) -> Result<Judge> {
        inode.super_block().data().judge(access.user)
    }

    fn read_link(inode: &Inode<Self>) -> Result<KVec<u8>> {
        node::read_link(inode)
    }

    fn open_directory(_inode: &Inode<Self>) -> Result<Pin<KBox<Listing>>> {
        Listing::new()
    }

    fn read_directory(
        inode: &Inode<Self>,
        directory: &Pin<KBox<Listing>>,
        entries: &mut Entries<'_, Self>,
    ) -> Result {
        directory.read(inode, entries)
    }

    fn open(inode: &Inode<Self>, name: &OpenedName<'_, Self>) -> Result<Arc<OpenFile>> {
        OpenFile::new(inode, name)
    }

    fn before_read(inode: &Inode<Self>, _file: ArcBorrow<'_, OpenFile>) -> Result {
        node::drop_outdated(inode)
    }

    fn read_bytes_max(_file: &OpenFile) -> u32 {
        READ_LEN_MAX
    }

    fn read(subrequest: Subrequest<Self>) {
        file::read(subrequest);
    }
}
