// SPDX-License-Identifier: GPL-2.0

//! The file system `gfarm`.
//!
//! | file | what |
//! |---|---|
//! | `options` | the options of a mount |
//! | `mount` | a mount: its key, its connections, its statistics |
//! | `inode` | what an inode has: its place, its label, the age of its attributes |
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
mod inode;
mod mount;
mod name;
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
    ActiveRefs,
    Entries,
    FileSystem,
    Freshness,
    Inode,
    InodeRef,
    Judge,
    Met,
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
    freshness::is_within,
    setting::Setting,
    READ_LEN_MAX, //
};
use directory::Listing;
use file::OpenFile;
use inode::InodeData;
use mount::Mount;
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
    type Inode = Arc<InodeData>;
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
        let mount = sb.data();
        options.check_same(context, mount.options(), mount.maps())?;
        mount.renew_key(context)
    }

    fn active_refs(mount: &Mount) -> Option<&ActiveRefs<Self>> {
        Some(mount.active_refs())
    }

    fn readahead_pages(mount: &Mount) -> u32 {
        mount.options().get(Setting::Readahead)
    }

    fn statistics(sb: &SuperBlock<Self>) -> Result<Statistics> {
        sb.data().statistics()
    }

    fn show_options(sb: &SuperBlock<Self>, shown: &mut ShownOptions<'_>) -> Result {
        let mount = sb.data();
        shown.formatted(fmt!("{}{}", mount.options(), mount.maps()));
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

    fn holds(mount: &Mount, name: &Met) -> bool {
        let options = mount.options();
        // When a file was opened last is known to its data. With `nocto` it may be not long ago.
        let asks = || mount.judge(name.user) == Ok(Judge::Server) && !options.is_nocto();
        name::holds(options, name, asks)
    }

    fn judge(mount: &Mount, user: u32, age_ms: u64) -> Option<Judge> {
        let max_s = mount.options().get(Setting::Actimeo);
        let judge = mount.judge(user).ok()?;
        (judge == Judge::Server || is_within(age_ms, max_s)).then_some(judge)
    }

    fn refresh(inode: &Inode<Self>, freshness: Freshness) -> Result<bool> {
        inode::refresh(inode, freshness)
    }

    fn permission(inode: &Inode<Self>, access: Access) -> Result<Judge> {
        inode.super_block().data().judge(access.user)
    }

    fn read_link(inode: &Inode<Self>) -> Result<KVec<u8>> {
        inode::read_link(inode)
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
        inode::drop_outdated(inode)
    }

    fn read_bytes_max(_file: &OpenFile) -> u32 {
        READ_LEN_MAX
    }

    fn read(subrequest: Subrequest<Self>) {
        file::read(subrequest);
    }
}
