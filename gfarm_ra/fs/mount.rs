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
    text::c_string, //
};
use vfs_ext::{
    keyring,
    Entrance,
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
    options::Collected,
    state::StateFiles,
    Gfarm, //
};
use crate::{
    cache::{
        Limits,
        Node,
        Place,
        Reads, //
    },
    net::{
        now_s,
        Client,
        Seen, //
    },
    proto::{
        cache::{
            place::{
                Unusable,
                Wish, //
            },
            wire::Key, //
        },
        hosts::servers,
        key::{
            KeyError,
            SharedKey, //
        },
        options::Options,
        owners::{
            Mounter,
            Standing, //
        },
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
    entrance: Arc<Entrance<Gfarm>>,
    client: Arc<Client>,
    options: Arc<Options>,
    mounter: Mounter,
    #[pin]
    files: Mutex<Option<StateFiles>>,
}

impl Mount {
    /// Connects to gfmd. Sleeps.
    pub(super) fn new(context: &MountContext<'_>, options: Collected) -> Result<Arc<Self>> {
        let options = options.finish(context)?;
        let servers = addresses(context, &options)?;
        let entrance = Arc::new(Entrance::new(), GFP_KERNEL)?;
        let node = node(context, &options, &entrance)?;
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
                entrance,
                client,
                options,
                mounter: Mounter { uid, gid },
                files <- new_mutex!(None, "Mount::files"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the key that the keyrings of who remounts have now; without one it stays.
    pub(super) fn renew_key(&self, context: &MountContext<'_>) -> Result {
        match find_key(&self.options) {
            Err(ENOKEY) => Ok(()),
            key => self.client.renew(checked_key(context, key?)?),
        }
    }

    /// Makes the files of the mount below `/proc/fs/gfarm`.
    pub(super) fn publish(&self, device_minor: u32) -> Result {
        let view = self.node.as_ref().map(Node::view);
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

    /// Has all that waits for servers fail, as `umount -f` asks. Who waits for another node asks
    /// the file server then, and fails there.
    pub(super) fn interrupt(&self) {
        self.client.interrupt();
        if let Some(node) = &self.node {
            node.interrupt();
        }
    }

    /// Has no read wait any more: no file is open, and what is read ahead is of no use.
    pub(super) fn end_reads(&self) {
        // First: what waits for another node asks the file servers then.
        if let Some(node) = &self.node {
            node.end_reads();
        }
        self.client.close();
    }

    pub(super) fn entrance(&self) -> &Entrance<Gfarm> {
        &self.entrance
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
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
            attributes: attributes(&seen.attr, &self.options, self.mounter),
        }
    }

    /// Returns what `statfs(2)` shows: the space of all gfsds. A mount that is only read has no
    /// free inodes.
    pub(super) fn statistics(&self) -> Result<Statistics> {
        let usage = self.client.usage()?;
        let blocks = |kib: u64| kib / u64::from(BLOCK_KIB);
        Ok(Statistics {
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
    let is_expired = key.read(|bytes| {
        SharedKey::parse(bytes).map(|mut key| {
            keyring::wipe(&mut key.secret);
            key.is_expired(now_s())
        })
    });
    match is_expired? {
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
    entrance: &Arc<Entrance<Gfarm>>,
) -> Result<Option<Node>> {
    let Some(description) = options.node() else {
        return Ok(None);
    };
    let key = match keyring::with_key(&c_string(description)?, Key::parse) {
        Ok(Some(key)) => key,
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
    };
    let place = Place {
        device: device.as_deref(),
        wish,
        service_level: byte(options.get(Setting::IbSl))?,
        qkey: options.get(Setting::IbQkey),
    };
    let limits = Limits {
        serving: u16::try_from(options.get(Setting::IbNumRrpc)).map_err(|_| EINVAL)?,
        asking: u16::try_from(options.get(Setting::IbNumSrpc)).map_err(|_| EINVAL)?,
        timeout_us_max: options.get(Setting::CcTimeoutMs).saturating_mul(1000),
        read_us: u64::from(options.get(Setting::CcWaitMs)).saturating_mul(1000),
        rate_bytes: u64::from(options.get(Setting::CcShare)) << 20,
    };
    let pages = Arc::new(CachedPages(entrance.clone()), GFP_KERNEL)?;
    let mut has_said = false;
    let find = || {
        place.find(|why| {
            has_said = true;
            context.fail(fmt!("cc: {why}"));
        })
    };
    let node = Node::new(find, &limits, key, pages);
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
