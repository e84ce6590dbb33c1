// SPDX-License-Identifier: GPL-2.0

//! The gfsds of a mount, and the connections to each.

mod idle;

use core::net::{
    IpAddr,
    SocketAddr, //
};

use ferro_proto::text::Escaped;
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork, //
    }, //
};
use kernel_ext::{
    errno::{
        EHOSTUNREACH,
        ESHUTDOWN, //
    },
    memory,
    new_wait_queue,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            Ordering, //
        },
        WaitQueue, //
    },
    workqueue::WorkQueue, //
};

use net_ext::{
    dns,
    TcpStream, //
};

use super::{
    gfsd::Connection,
    login,
    setup::{
        Setup,
        Shown,
        Trouble,
        LOG, //
    },
};
use crate::proto::{
    attr::ReplicaHost,
    gfm::{
        Fd,
        Process, //
    },
    options::Options,
    replica::{
        Connecting,
        Health,
        HostId,
        Rank, //
    },
    retry::Fault,
    setting::Setting, //
};

/// The maximum number of gfsds that a mount remembers; others are not read from.
const HOSTS_MAX: usize = 4096;

/// A gfsd.
#[pin_data]
pub(super) struct Host {
    id: HostId,
    name: KVec<u8>,
    port: u16,
    /// `None` if each connection looks its name up.
    address: Option<IpAddr>,
    /// The gfsd has an address, or a name that may have one.
    is_reachable: bool,
    /// Its address, as it was known last, is one of this machine.
    is_near: AtomicBool,
    #[pin]
    state: SpinLock<State>,
    /// A connection was made, or has failed.
    #[pin]
    changed: WaitQueue,
}

/// The state of a gfsd.
struct State {
    health: Health,
    /// The connections, each with the number of its users; there is room for all.
    pool: KVec<Pooled>,
    /// The number of connections that are being made.
    making: usize,
    /// Their sockets; there is room for all.
    sockets: KVec<Arc<TcpStream>>,
    is_loss_logged: bool,
    is_name_logged: bool,
    /// The gfsd has told the same of the last file as gfmd.
    did_agree: bool,
}

struct Pooled {
    connection: Arc<Connection>,
    users: u32,
    /// The time since which it has no user, in milliseconds.
    since_ms: u64,
}

/// The gfsds of a mount.
#[pin_data]
pub(super) struct Hosts {
    setup: Arc<Setup>,
    queue: Arc<WorkQueue>,
    #[pin]
    known: Mutex<KVVec<Arc<Host>>>,
    /// The number of changes of the key for which refusals were forgotten.
    key_changes: AtomicU32,
    /// The time at which unused connections are looked at, in milliseconds.
    #[pin]
    looks_at_ms: SpinLock<Option<u64>>,
    #[pin]
    idle: DelayedWork<Hosts>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Hosts { self.idle }
}

/// Returns the address of a gfsd, if no name has to be looked up.
fn address(options: &Options, name: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(name).ok();
    let mapped = options.hosts().find(name);
    mapped.or_else(|| text.and_then(|text| text.parse().ok()))
}

impl Hosts {
    pub(super) fn new(setup: &Arc<Setup>) -> Result<Arc<Self>> {
        let queue = setup.queue().ok_or(ESHUTDOWN)?;
        Arc::pin_init(
            pin_init!(Self {
                setup: setup.clone(),
                queue,
                known <- new_mutex!(KVVec::new(), "Hosts::known"),
                key_changes: AtomicU32::new(0),
                looks_at_ms <- new_spinlock!(None, "Hosts::looks_at_ms"),
                idle <- new_delayed_work!("Hosts::idle"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the gfsd with this number.
    pub(super) fn get(&self, id: HostId) -> Option<Arc<Host>> {
        // CAST: From 32 bits to 64.
        self.known.lock().get(id.0 as usize).cloned()
    }

    /// Returns a gfsd that gfmd has named, and how good it is for a read that fails since
    /// `since_ms`; `None` if it cannot be used. May sleep.
    pub(super) fn rank(
        &self,
        told: &ReplicaHost<'_>,
        since_ms: Option<u64>,
    ) -> Option<(HostId, Rank)> {
        let mut known = self.known.lock();
        let is_told = |host: &&Arc<Host>| host.port == told.port && *host.name == *told.name;
        let host = match known.iter().find(is_told) {
            Some(host) => host.clone(),
            None if known.len() >= HOSTS_MAX => return None,
            None => memory::without_io(|| self.add(&mut known, told)).ok()?,
        };
        self.look_at_key(&known);
        drop(known);
        if !host.is_reachable {
            return None;
        }
        let mut rank = Rank::new(told, !host.is_near.load(Ordering::Relaxed));
        let is_sound = |pooled: &Pooled| !pooled.connection.is_broken();
        let (health, is_connected) = {
            let state = host.state.lock();
            (state.health, state.pool.iter().any(is_sound))
        };
        rank.note(&health, is_connected, since_ms, self.setup.now_ms());
        Some((host.id, rank))
    }

    /// Forgets what was refused to another key.
    fn look_at_key(&self, known: &[Arc<Host>]) {
        let changes = self.setup.key.changes();
        if self.key_changes.swap(changes, Ordering::Relaxed) != changes {
            for host in known {
                host.state.lock().health.accepted();
            }
        }
    }

    fn add(&self, known: &mut KVVec<Arc<Host>>, told: &ReplicaHost<'_>) -> Result<Arc<Host>> {
        let address = address(&self.setup.options, told.name);
        // A gfmd may name any number of hosts. Those whose addresses are given keep their places.
        if address.is_none() && known.len() >= HOSTS_MAX / 2 {
            return Err(EHOSTUNREACH);
        }
        let is_reachable = address.is_some() || dns::is_name(told.name);
        if !is_reachable && LOG.allow().is_some() {
            pr_warn!("gfsd {}: not the name of a host\n", Escaped(told.name));
        }
        let is_near = address.is_some_and(|ip| self.setup.namespace.is_local(ip));
        let max = self.setup.options.get(Setting::Connections);
        let mut name = KVec::new();
        name.extend_from_slice(told.name, GFP_KERNEL)?;
        let state = State {
            health: Health::default(),
            // CAST: From 32 bits to 64.
            pool: KVec::with_capacity(max as usize, GFP_KERNEL)?,
            making: 0,
            sockets: KVec::with_capacity(max as usize, GFP_KERNEL)?,
            is_loss_logged: false,
            is_name_logged: false,
            did_agree: true,
        };
        let id = HostId(u32::try_from(known.len())?);
        let host = Arc::pin_init(
            pin_init!(Host {
                id,
                name,
                port: told.port,
                address,
                is_reachable,
                is_near: AtomicBool::new(is_near),
                state <- new_spinlock!(state, "Host::state"),
                changed <- new_wait_queue!("Host::changed"),
            }),
            GFP_KERNEL,
        )?;
        known.push(host.clone(), GFP_KERNEL)?;
        Ok(host)
    }

    /// Ends all connections: what waits for them fails.
    pub(super) fn abandon_all(&self) {
        for host in self.known.lock().iter() {
            // Shutting down may sleep: one at a time, outside of the lock.
            while let Some(connection) = host.next_sound() {
                connection.abandon();
            }
            while let Some(socket) = host.next_socket() {
                socket.shutdown();
            }
            host.changed.wake_all();
        }
    }

    /// Calls `each` with the name of each gfsd and the number of connections to it.
    pub(super) fn for_each(&self, mut each: impl FnMut(&[u8], usize)) {
        for host in self.known.lock().iter() {
            let connections = host.state.lock().pool.len();
            each(&host.name, connections);
        }
    }
}

/// The connection that a user of a gfsd gets next.
enum Choice {
    Take(Arc<Connection>),
    Make,
    Wait,
}

/// A connection that is taken.
pub(super) struct Taken {
    pub(super) host: Arc<Host>,
    pub(super) connection: Arc<Connection>,
    /// The descriptor that is open there.
    pub(super) fd: Option<(Fd, u32)>,
}

impl Host {
    pub(super) fn id(&self) -> HostId {
        self.id
    }

    /// Returns whether it has told the same as gfmd of the last file.
    pub(super) fn did_agree(&self) -> bool {
        self.state.lock().did_agree
    }

    /// Notes whether it tells the same as gfmd of a file.
    pub(super) fn set_did_agree(&self, did_agree: bool) {
        self.state.lock().did_agree = did_agree;
    }

    fn next_sound(&self) -> Option<Arc<Connection>> {
        let state = self.state.lock();
        let mut sound = state.pool.iter().filter(|p| !p.connection.is_broken());
        sound.next().map(|pooled| pooled.connection.clone())
    }

    fn next_socket(&self) -> Option<Arc<TcpStream>> {
        self.state.lock().sockets.pop()
    }

    /// Takes a connection that no other file uses, or makes one, or shares one. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// The reason why no connection could be made.
    pub(super) fn take(
        &self,
        setup: &Arc<Setup>,
        process: &Process,
        epoch: u32,
    ) -> Result<Arc<Connection>, Trouble> {
        let interrupts = setup.interrupts();
        loop {
            match self.choose(setup.now_ms()) {
                Choice::Take(connection) => return Ok(connection),
                Choice::Make => return self.make(setup, process, epoch),
                Choice::Wait => {
                    let is_over = || {
                        let state = self.state.lock();
                        state.making < state.pool.capacity()
                            || !state.pool.is_empty()
                            || setup.interrupts() != interrupts
                    };
                    self.changed.wait_until_killable(is_over)?;
                }
            }
            if setup.interrupts() != interrupts {
                return Err(Trouble::of(Fault::Disconnected));
            }
        }
    }

    fn choose(&self, now_ms: u64) -> Choice {
        self.drop_broken();
        let mut state = self.state.lock();
        let has_room = state.pool.len().saturating_add(state.making) < state.pool.capacity();
        let health = state.health;
        let least = state.pool.iter_mut().min_by_key(|pooled| pooled.users);
        let users = least.as_ref().map(|pooled| pooled.users);
        match (health.connecting(users, has_room, now_ms), least) {
            (Connecting::Take, Some(pooled)) => {
                pooled.users = pooled.users.saturating_add(1);
                Choice::Take(pooled.connection.clone())
            }
            (Connecting::Make, _) => {
                state.making = state.making.saturating_add(1);
                Choice::Make
            }
            _ => Choice::Wait,
        }
    }

    /// Drops connections that do not work and that no file uses.
    fn drop_broken(&self) {
        loop {
            let mut state = self.state.lock();
            let is_broken = |p: &Pooled| p.connection.is_broken();
            let Some(index) = state.pool.iter().position(is_broken) else {
                return;
            };
            let broken = state.pool.remove(index);
            drop(state);
            // The last reference closes the socket, which may sleep.
            drop(broken);
        }
    }

    fn make(
        &self,
        setup: &Arc<Setup>,
        process: &Process,
        epoch: u32,
    ) -> Result<Arc<Connection>, Trouble> {
        let made = memory::without_io(|| self.connect(setup, process, epoch));
        let mut state = self.state.lock();
        state.making = state.making.saturating_sub(1);
        if let Ok(connection) = &made {
            state.health.accepted();
            let connection = connection.clone();
            // There is room, as the connection was counted while it was made.
            let _ = state.pool.push_within_capacity(Pooled {
                connection,
                users: 1,
                since_ms: 0,
            });
        }
        drop(state);
        self.changed.wake_all();
        made
    }

    fn connect(
        &self,
        setup: &Arc<Setup>,
        process: &Process,
        epoch: u32,
    ) -> Result<Arc<Connection>, Trouble> {
        let interrupts = setup.interrupts();
        let to = self.resolve(setup)?;
        let is_near = setup.namespace.is_local(to);
        self.is_near.store(is_near, Ordering::Relaxed);
        let socket = login::socket(setup, SocketAddr::new(to, self.port))?;
        let known = socket.clone();
        // There is room for those of all connections that are being made.
        let _ = self.state.lock().sockets.push_within_capacity(known);
        // An interruption that came before has not seen the socket.
        let made = match setup.interrupts() == interrupts && !setup.is_closed() {
            true => Connection::new(setup, socket.clone(), process, epoch),
            false => Err(Trouble::of(Fault::Disconnected)),
        };
        let mut state = self.state.lock();
        let is_it = |known: &Arc<TcpStream>| Arc::ptr_eq(known, &socket);
        if let Some(index) = state.sockets.iter().position(is_it) {
            // This function has a reference, so none is the last one.
            let _ = state.sockets.remove(index);
        }
        drop(state);
        made
    }

    /// Returns the address, after a program of user space has looked it up if need be. Sleeps.
    fn resolve(&self, setup: &Setup) -> Result<IpAddr> {
        if let Some(address) = self.address {
            return Ok(address);
        }
        let found = dns::resolve(&setup.namespace, &self.name);
        let was_logged = {
            let mut state = self.state.lock();
            core::mem::replace(&mut state.is_name_logged, found.is_err())
        };
        // The reason is a number of the program's own.
        if let (Err(_), false, Some(_)) = (&found, was_logged, LOG.allow()) {
            pr_warn!(
                "gfsd {}: its address is not found: add it to hosts=, or where key.dns_resolver looks\n",
                Escaped(&self.name)
            );
        }
        found.map_err(|_| EHOSTUNREACH)
    }

    /// Gives a connection back. Returns whether no open file uses it any more.
    fn give_back(&self, connection: &Arc<Connection>, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        let is_same = |p: &&mut Pooled| Arc::ptr_eq(&p.connection, connection);
        let Some(pooled) = state.pool.iter_mut().find(is_same) else {
            return false;
        };
        pooled.users = pooled.users.saturating_sub(1);
        pooled.since_ms = now_ms;
        pooled.users == 0
    }

    /// A request was answered.
    pub(super) fn answered(&self) {
        let mut state = self.state.lock();
        state.health.answered();
        let was_lost = core::mem::take(&mut state.is_loss_logged);
        drop(state);
        if was_lost && LOG.allow().is_some() {
            pr_info!("gfsd {}: answers again\n", Escaped(&self.name));
        }
    }

    /// A connection or a request has failed.
    pub(super) fn failed(&self, setup: &Setup, trouble: Trouble) {
        let mut state = self.state.lock();
        state.health.failed(setup.now_ms(), trouble.fault.refusal());
        let was_logged = state.is_loss_logged;
        drop(state);
        if was_logged || setup.is_closed() {
            return;
        }
        if let Some(_suppressed) = LOG.allow() {
            self.state.lock().is_loss_logged = true;
            let (name, fault) = (Escaped(&self.name), Shown(trouble.fault));
            let errno = trouble.error.to_errno();
            pr_warn!(
                "gfsd {}: {} (error {}); reads go to another replica, or wait\n",
                name,
                fault,
                errno
            );
        }
    }
}
