// SPDX-License-Identifier: GPL-2.0

//! The file system `ferrotest`.

mod answer;
mod lent;
pub(crate) mod options;
mod remote;
mod stats;
mod tree;

use kernel::{
    error::Error,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};
use kernel_ext::{
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering::Relaxed, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};
use net_ext::Namespace;
use options::Options;
use remote::Remote;
use stats::Stats;
use tree::{
    Node,
    ENTRY_NAME_BYTES,
    ROOT, //
};
use vfs_ext::{
    keyring,
    proc,
    Access,
    ActiveRefs,
    Attributes,
    Entries,
    Entry,
    FileSystem,
    Freshness,
    Inode,
    InodeRef,
    Judge,
    Key,
    MountContext,
    Name,
    OpenedName,
    OptionError,
    ShownOptions,
    Statistics,
    Subrequest,
    SuperBlock,
    Timestamp,
    Validity, //
};

/// The number of the next mount.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The file system; a mount of it is a [`Mount`].
pub(crate) struct Ferrotest;

/// The data of a mount. The queue is dropped first, which waits for answers that run.
pub(crate) struct Mount {
    queue: WorkQueue,
    options: Options,
    /// The generation of the files of the server. A remount changes it.
    generation: AtomicU32,
    /// Set by `umount -f`: nothing is answered any more.
    is_aborted: AtomicBool,
    /// The server in user space, if it has one.
    remote: Option<Remote>,
    active_refs: ActiveRefs<Ferrotest>,
    stats: Arc<Stats>,
    _state: proc::File<Stats>,
}

/// The data of an open file.
pub(crate) struct OpenFile {
    read_bytes_max: u32,
}

impl Mount {
    fn new(options: Options, namespace: Namespace) -> Result<Arc<Self>> {
        let id = NEXT.fetch_add(1, Relaxed);
        let stats = Arc::new(Stats::default(), GFP_KERNEL)?;
        if let Some(secret) = &options.secret {
            let bytes = keyring::with_key(secret, <[u8]>::len)?;
            stats.secret_bytes.store(bytes as u64, Relaxed);
        }
        let name = CString::try_from_fmt(fmt!("fs/ferrotest/{id}"))?;
        let directory = proc::Directory::new(&name, None)?;
        let state = proc::File::new(&crate::THIS_MODULE, directory, c"state", stats.clone())?;
        let mount = Mount {
            queue: WorkQueue::new(c"ferrotest", Flags::UNBOUND | Flags::MEM_RECLAIM, 0)?,
            generation: AtomicU32::new(options.generation.unwrap_or(1)),
            is_aborted: AtomicBool::new(false),
            remote: match options.port {
                Some(port) => Some(Remote::new(namespace, u16::try_from(port)?)?),
                None => None,
            },
            options,
            active_refs: ActiveRefs::new(),
            stats,
            _state: state,
        };
        Ok(Arc::new(mount, GFP_KERNEL)?)
    }

    /// Returns the key of a node: only files have generations.
    fn key(&self, number: u64, node: Node) -> Key {
        let generation = match node {
            Node::File { .. } => self.generation.load(Relaxed).into(),
            _ => 0,
        };
        Key { number, generation }
    }

    /// Returns what the server has under a name now.
    fn child(&self, dir: u64, name: &[u8]) -> Option<(Key, Node)> {
        let number = tree::child(dir, name).filter(|number| self.has(*number))?;
        let node = tree::node(number)?;
        Some((self.key(number, node), node))
    }

    /// Returns whether the server has this entry now. One appears with the second generation.
    fn has(&self, number: u64) -> bool {
        number != tree::LATE || self.generation.load(Relaxed) > 1
    }
}

fn attributes(node: Node) -> Attributes {
    let time = Timestamp {
        seconds: 1_000_000_000,
        nanoseconds: 123_456_789,
    };
    Attributes {
        kind: node.kind(),
        permissions: node.permissions(),
        uid: 1000,
        gid: 100,
        size: node.size(),
        links: 1,
        accessed: time,
        modified: time,
        changed: time,
    }
}

fn inode(sb: &SuperBlock<Ferrotest>, key: Key, node: Node) -> Result<InodeRef<'_, Ferrotest>> {
    let stats = sb.data().stats.clone();
    let attributes = attributes(node);
    let inode = sb.inode(key, &attributes, || Ok(stats::Counted::new(stats)))?;
    inode.set_attributes(&attributes)?;
    Ok(inode)
}

#[vtable]
impl FileSystem for Ferrotest {
    const NAME: &'static CStr = c"ferrotest";
    const MAGIC: u32 = 0x6665_7272;

    type Options = Options;
    type Super = Mount;
    type Inode = stats::Counted;
    type File = OpenFile;
    type Directory = ();

    fn set_option(
        _context: &MountContext<'_>,
        options: &mut Options,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), OptionError> {
        options.set(name, value)
    }

    fn mount(context: &MountContext<'_>, options: Options) -> Result<Arc<Mount>> {
        if context.source() != Some(c"none") {
            context.fail(fmt!("the source is none"));
            return Err(EINVAL);
        }
        Mount::new(options, context.namespace()?)
    }

    fn root(sb: &SuperBlock<Self>) -> Result<InodeRef<'_, Self>> {
        let node = tree::node(ROOT).ok_or(EINVAL)?;
        inode(sb, sb.data().key(ROOT, node), node)
    }

    fn reconfigure(sb: &SuperBlock<Self>, _context: &MountContext<'_>, options: Options) -> Result {
        if let Some(generation) = options.generation {
            sb.data().generation.store(generation, Relaxed);
        }
        Ok(())
    }

    fn active_refs(mount: &Mount) -> Option<&ActiveRefs<Self>> {
        Some(&mount.active_refs)
    }

    fn readahead_pages(mount: &Mount) -> u32 {
        mount.options.readahead_pages.unwrap_or(64)
    }

    fn statistics(_sb: &SuperBlock<Self>) -> Result<Statistics> {
        Ok(Statistics {
            id: 1,
            block_bytes: 4096,
            blocks: 1000,
            blocks_free: 300,
            blocks_available: 200,
            files: 5012,
            files_free: 7,
        })
    }

    fn show_options(sb: &SuperBlock<Self>, shown: &mut ShownOptions<'_>) -> Result {
        let mount = sb.data();
        let generation = mount.generation.load(Relaxed);
        mount.options.show(generation, shown)
    }

    fn umount_begin(sb: &SuperBlock<Self>) {
        let mount = sb.data();
        mount.is_aborted.store(true, Relaxed);
        if let Some(remote) = &mount.remote {
            remote.abort();
        }
    }

    fn lookup<'a>(dir: &'a Inode<Self>, name: &[u8]) -> Result<Option<InodeRef<'a, Self>>> {
        let sb = dir.super_block();
        sb.data().stats.lookups.fetch_add(1, Relaxed);
        match sb.data().child(dir.key().number, name) {
            Some((key, node)) => inode(sb, key, node).map(Some),
            None => Ok(None),
        }
    }

    fn revalidate(dir: &Inode<Self>, name: &Name<'_, Self>) -> Result<Validity> {
        let mount = dir.super_block().data();
        if name.age_ms < u64::from(mount.options.assume_ms.unwrap_or(0)) && !name.is_forced {
            return Ok(Validity::Assumed);
        }
        mount.stats.revalidations.fetch_add(1, Relaxed);
        let now = mount.child(dir.key().number, name.bytes);
        if now.map(|(key, _)| key) == name.inode.map(Inode::key) {
            Ok(Validity::Confirmed)
        } else {
            Ok(Validity::Gone)
        }
    }

    fn refresh(inode: &Inode<Self>, freshness: Freshness) -> Result<bool> {
        let is_asked = freshness == Freshness::Forced;
        if is_asked {
            let stats = &inode.super_block().data().stats;
            stats.refreshes.fetch_add(1, Relaxed);
        }
        Ok(is_asked)
    }

    fn permission(inode: &Inode<Self>, access: Access) -> Result<Judge> {
        if inode.key().number == tree::DENIED && access.read {
            return Err(EACCES);
        }
        Ok(Judge::Attributes)
    }

    fn read_link(inode: &Inode<Self>) -> Result<KVec<u8>> {
        let Some(Node::Link { target }) = tree::node(inode.key().number) else {
            return Err(EINVAL);
        };
        let mut text = KVec::new();
        text.extend_from_slice(target.as_bytes(), GFP_KERNEL)?;
        Ok(text)
    }

    fn open_directory(_inode: &Inode<Self>) -> Result<()> {
        Ok(())
    }

    fn read_directory(
        inode: &Inode<Self>,
        _directory: &(),
        entries: &mut Entries<'_, Self>,
    ) -> Result {
        let mount = inode.super_block().data();
        let mut name = [0; ENTRY_NAME_BYTES];
        let mut at = entries.position();
        loop {
            let Some((name, number)) = tree::entry(inode.key().number, at, &mut name) else {
                return Ok(());
            };
            if !mount.has(number) {
                at = at.saturating_add(1);
                continue;
            }
            let node = tree::node(number).ok_or(EIO)?;
            let kind = node.kind();
            if mount.options.remember {
                let sb = inode.super_block();
                entries.remember(name, self::inode(sb, mount.key(number, node), node)?, 0)?;
            }
            let next = at.saturating_add(1);
            if !entries.emit(Entry {
                name,
                number,
                kind,
                next,
            })? {
                return Ok(());
            }
            at = next;
        }
    }

    fn open(inode: &Inode<Self>, _name: &OpenedName<'_, Self>) -> Result<Arc<OpenFile>> {
        let mount = inode.super_block().data();
        mount.stats.opens.fetch_add(1, Relaxed);
        if mount.options.forget {
            inode.drop_cached_data(inode.size())?;
        }
        let file = OpenFile {
            read_bytes_max: mount.options.read_bytes.unwrap_or(1 << 20),
        };
        Ok(Arc::new(file, GFP_KERNEL)?)
    }

    fn before_read(inode: &Inode<Self>, _file: ArcBorrow<'_, OpenFile>) -> Result {
        if inode.super_block().data().options.doubt {
            inode.drop_cached_data(inode.size())?;
        }
        Ok(())
    }

    fn read_bytes_max(file: &OpenFile) -> u32 {
        file.read_bytes_max
    }

    fn read(subrequest: Subrequest<Self>) {
        answer::begin(subrequest);
    }
}

/// Returns an error unless `holds`, and logs it.
fn check(holds: bool) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("a promise of vfs_ext does not hold\n");
    Err(EINVAL)
}

/// The error of a request that is not served any more.
const ABORTED: Error = EIO;
