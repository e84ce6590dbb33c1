// SPDX-License-Identifier: GPL-2.0

//! A mount.

use core::net::SocketAddr;

use ferro_proto::{
    forward_display,
    text::Escaped, //
};
use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    errno::{
        ECONNREFUSED,
        ECONNRESET,
        EHOSTUNREACH,
        EKEYEXPIRED,
        EKEYREJECTED,
        ENOKEY,
        EPROTO,
        EPROTONOSUPPORT, //
    },
    memory,
    random,
    text::c_string, //
};
use vfs_ext::{
    keyring,
    ActiveRefs,
    Judge,
    MountContext,
    Statistics, //
};

use super::{
    attributes::{
        attributes,
        Told, //
    },
    cached::CachedPages,
    options::{
        Bytes,
        Collected, //
    },
    state::StateFiles,
    Gfarm, //
};
use crate::{
    cache::{
        Limits,
        Node,
        Place,
        Reads,
        Secret,
        Sums,
        View, //
    },
    net::{
        now_s,
        Client,
        Seen, //
    },
    proto::{
        attr::Attr,
        cache::{
            address::{
                random_qkey,
                Group, //
            },
            directory,
            place::{
                Unusable,
                Wish, //
            },
            sums::Verify, //
        },
        hosts::{
            number_of,
            servers, //
        },
        id_map::{
            Maps,
            Mounter,
            Standing, //
        },
        key::{
            KeyError,
            SharedKey, //
        },
        options::Options,
        setting::Setting, //
    }, //
};

forward_display! {
    KeyError,
    Unusable,
}

/// The bytes of a block in `statfs(2)`, in KiB.
const BLOCK_KIB: u32 = 4;

/// The data of a mount.
#[pin_data(PinnedDrop)]
pub(crate) struct Mount {
    /// Dropped first: it asks the page cache.
    node: Option<Node>,
    active_refs: Arc<ActiveRefs<Gfarm>>,
    client: Arc<Client>,
    options: Arc<Options>,
    maps: Maps<Bytes>,
    mounter: Mounter,
    /// The number of the file system.
    id: u64,
    #[pin]
    files: Mutex<Option<StateFiles>>,
}

impl Mount {
    /// Connects to gfmd, and starts the node of the cooperative cache if the options ask for one.
    /// Sleeps, killable.
    ///
    /// # Errors
    ///
    /// `EINVAL` for options that do not fit, `ENOKEY` and others of the keyrings, and those of
    /// [`Client::connect`]; the log of the mount says which.
    pub(super) fn new(context: &MountContext<'_>, options: Collected) -> Result<Arc<Self>> {
        let (options, maps) = options.finish(context)?;
        let servers = addresses(context, &options)?;
        let active_refs = Arc::new(ActiveRefs::new(), GFP_KERNEL)?;
        let node = node(context, &options, &active_refs)?;
        let key = find_key(&options).inspect_err(|error| {
            let description = Escaped(options.key().unwrap_or(options.user()));
            context.fail(fmt!(
                "no valid key for {description} in the keyrings of who mounts ({error:?})"
            ));
        })?;
        let key = checked_key(context, key)?;
        let client = Client::connect(context.namespace()?, servers, options.clone(), key);
        let client = client.inspect_err(|error| {
            let source = Escaped(context.source().unwrap_or_default().to_bytes());
            context.fail(fmt!("gfmd at {source}: {} ({error:?})", reason(*error)));
        })?;
        let (uid, gid) = context.mounter();
        Arc::pin_init(
            pin_init!(Self {
                node,
                active_refs,
                client,
                options,
                maps,
                mounter: Mounter { uid, gid },
                id: number_of(context.source().unwrap_or_default().to_bytes()),
                files <- new_mutex!(None, "Mount::files"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the key that the keyrings of the remounting task have now; without one the key stays.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// Those of the keyring, and `EKEYREJECTED` for a key that is malformed.
    pub(super) fn renew_key(&self, context: &MountContext<'_>) -> Result {
        match find_key(&self.options) {
            Err(ENOKEY) => Ok(()),
            key => self.client.renew(checked_key(context, key?)?),
        }
    }

    /// Creates the files of the mount below `/proc/fs/gfarm`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn publish(&self, device_minor: u32) -> Result {
        let view = self.node.as_ref().map(View::of);
        let files = StateFiles::new(device_minor, &self.client, view)?;
        *self.files.lock() = Some(files);
        Ok(())
    }

    /// Removes them. The number of the device may be another mount's from then on. Sleeps: waits
    /// for who reads them.
    pub(super) fn withdraw(&self) {
        let files = self.files.lock().take();
        // Not under the lock.
        drop(files);
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns how files are read from other nodes, if this mount does so.
    pub(super) fn reads(&self) -> Option<Reads> {
        self.node.as_ref().map(Node::reads)
    }

    /// Returns where the sums of pages go that a gfsd has sent, if they are made.
    pub(super) fn sums(&self) -> Option<&Sums> {
        self.node.as_ref().and_then(Node::sums)
    }

    /// Fails all waits for servers, as `umount -f` asks. A task that waits for another node asks
    /// the file server then, and fails there.
    pub(super) fn interrupt(&self) {
        self.client.interrupt();
        if let Some(node) = &self.node {
            node.interrupt();
        }
    }

    /// Ends all waits of reads: no file is open, and read-ahead is of no use.
    pub(super) fn end_reads(&self) {
        // First: what waits for another node asks the file servers then.
        if let Some(node) = &self.node {
            node.end_reads();
        }
        self.client.close();
    }

    pub(super) fn active_refs(&self) -> &ActiveRefs<Gfarm> {
        &self.active_refs
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn maps(&self) -> &Maps<Bytes> {
        &self.maps
    }

    /// Returns the numbers of the owner and the group of a file, which Gfarm has by name.
    fn owner(&self, attr: &Attr<'_>) -> (u32, u32) {
        let uid = self.mounter.uid_of(attr.user, &self.options, &self.maps);
        (
            uid,
            self.mounter.gid_of(attr.group, &self.options, &self.maps),
        )
    }

    /// Returns by what is decided what a local user may do.
    ///
    /// # Errors
    ///
    /// Returns `EACCES` if the user may not use the mount.
    pub(super) fn judge(&self, user: u32) -> Result<Judge> {
        match self.mounter.standing(user, &self.options) {
            Standing::Own => Ok(Judge::Server),
            Standing::Other => Ok(Judge::Attributes),
            Standing::Stranger => Err(EACCES),
        }
    }

    /// Returns what gfmd has told of an object, as this mount shows it.
    pub(super) fn told(&self, seen: &Seen<'_>) -> Told {
        Told {
            observed: seen.observation(),
            attributes: attributes(&seen.attr, self.owner(&seen.attr)),
            asked_at: seen.query.at,
        }
    }

    /// Returns what `statfs(2)` shows: the space of all gfsds. A mount that is only read has no
    /// free inodes.
    pub(super) fn statistics(&self) -> Result<Statistics> {
        let usage = self.client.usage()?;
        let blocks = |kib: u64| kib / u64::from(BLOCK_KIB);
        Ok(Statistics {
            id: self.id,
            block_bytes: BLOCK_KIB << 10,
            blocks: blocks(usage.used_kib.saturating_add(usage.avail_kib)),
            blocks_free: blocks(usage.avail_kib),
            blocks_available: blocks(usage.avail_kib),
            files: usage.files,
            files_free: 0,
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Mount {
    fn drop(self: Pin<&mut Self>) {
        self.client.close();
    }
}

/// Returns the addresses of the gfmds: the source of the mount.
fn addresses(context: &MountContext<'_>, options: &Options) -> Result<KVec<SocketAddr>> {
    let source = context.source().unwrap_or_default().to_bytes();
    let mut addresses = KVec::new();
    for server in servers(source) {
        let Some(server) = server else {
            context.fail(fmt!("source is not ADDRESS[:PORT][,ADDRESS[:PORT]...]"));
            return Err(EINVAL);
        };
        let address = server.address();
        let Some(address) = address.or_else(|| options.hosts().find(server.host)) else {
            let host = Escaped(server.host);
            context.fail(fmt!("{host}: not an address: use mount.gfarm, or hosts="));
            return Err(EINVAL);
        };
        addresses.push(SocketAddr::new(address, server.port), GFP_KERNEL)?;
    }
    Ok(addresses)
}

/// Returns the key of the mount's user in the keyrings of the current task.
fn find_key(options: &Options) -> Result<keyring::Key> {
    let description = match options.key() {
        Some(key) => c_string(key)?,
        None => CString::try_from_fmt(fmt!("gfarm:{}", Escaped(options.user())))?,
    };
    keyring::Key::find(&description)
}

/// Returns a key if it is of use at this time, and says why it is not.
fn checked_key(context: &MountContext<'_>, key: keyring::Key) -> Result<Arc<keyring::Key>> {
    let mut shared = SharedKey::empty();
    let is_key = key.read(|line| shared.read(line))?;
    match is_key.map(|()| shared.is_expired(now_s())) {
        Ok(false) => Ok(Arc::new(key, GFP_KERNEL)?),
        Ok(true) => {
            context.fail(fmt!("key has expired: run gfkey -c"));
            Err(EKEYEXPIRED)
        }
        Err(reason) => {
            context.fail(fmt!("{reason}"));
            Err(EKEYREJECTED)
        }
    }
}

/// Makes the mount a node of the cooperative cache, if it is to be one. Its stack is not below that
/// of the connection to gfmd.
#[inline(never)]
fn node(
    context: &MountContext<'_>,
    options: &Options,
    active_refs: &Arc<ActiveRefs<Gfarm>>,
) -> Result<Option<Node>> {
    let Some(description) = options.node() else {
        return Ok(None);
    };
    let secret = match Secret::find(&c_string(description)?) {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            context.fail(fmt!("cc_key: the key is not 32 hexadecimal digits"));
            return Err(EKEYREJECTED);
        }
        Err(error) => {
            context.fail(fmt!(
                "cc_key: no valid key of this description in the keyrings of who mounts ({error:?})"
            ));
            return Err(error);
        }
    };
    let device = options.ib_devname().map(c_string).transpose()?;
    let byte = |value: u32| u8::try_from(value).map_err(|_| EINVAL);
    let wish = Wish {
        port: byte(options.get(Setting::IbPort))?,
        gid_index: options.given(Setting::IbGid).map(byte).transpose()?,
        mtu_bytes: Some(options.get(Setting::IbMtu)).filter(|mtu| *mtu != 0),
        pkey: u16::try_from(options.get(Setting::IbPkey))
            .ok()
            .filter(|pkey| *pkey != 0),
    };
    let place = Place {
        device: device.as_deref(),
        wish,
        service_level: byte(options.get(Setting::IbSl))?,
        traffic_class: byte(options.get(Setting::IbTclass))?,
        // Who has not seen the address of the node does not reach it.
        qkey: match options.get(Setting::IbQkey) {
            0 => random_qkey(random::number()),
            given => given,
        },
        group: Group::new(byte(options.get(Setting::CcGroup))?),
    };
    let directory_mib = options.get(Setting::CcDirectory);
    let limits = Limits {
        serving: u16::try_from(options.get(Setting::IbNumRrpc)).map_err(|_| EINVAL)?,
        asking: u16::try_from(options.get(Setting::IbNumSrpc)).map_err(|_| EINVAL)?,
        timeout_us_max: options.get(Setting::CcTimeoutMs).saturating_mul(1000),
        read_us: u64::from(options.get(Setting::CcWaitMs)).saturating_mul(1000),
        rate_bytes: u64::from(options.get(Setting::CcShare)) << 20,
        verify: Verify::new(options.get(Setting::CcVerify)),
        directory_len_bytes: directory::len_bytes(directory_mib, memory::total_bytes()),
    };
    let pages = Arc::new(CachedPages(active_refs.clone()), GFP_KERNEL)?;
    let mut has_said = false;
    let find = || {
        place.find(|why| {
            has_said = true;
            context.fail(fmt!("cc: {why}"));
        })
    };
    let node = Node::new(find, &limits, secret, pages);
    let node = node.inspect_err(|error| {
        if !has_said {
            context.fail(fmt!("cc: the RDMA device has not enough ({error:?})"));
        }
    })?;
    Ok(Some(node))
}

/// Returns why gfmd cannot be used, for who mounts.
fn reason(error: Error) -> &'static str {
    match error {
        EKEYREJECTED => "user not known, or another key: give the servers the key of gfkey",
        EKEYEXPIRED => "key has expired, or is another: run gfkey -c, and give it to the servers",
        ETIMEDOUT => "no answer within connect_timeout",
        ECONNREFUSED => "no gfmd has this address and port",
        EHOSTUNREACH => "address cannot be reached",
        EACCES => "user is not let in",
        EPROTO => "what answers there is no gfmd",
        EPROTONOSUPPORT => "server has no authentication with a shared key",
        ECONNRESET => "server has ended the connection",
        _ => "connecting failed",
    }
}
