// SPDX-License-Identifier: GPL-2.0

//! A session: one client's chunks, and the paths that lead to them.

mod connect_backlog;
pub(crate) mod table;

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    },
};
use kernel_ext::{
    pages::PageBlock,
    random,
    sync::{
        atomic::{
            AtomicU32,
            Ordering::Relaxed, //
        },
        RcuArc, //
    },
    workqueue::WorkQueue, //
};
use rtrs_core::proto::{
    chunk_policy::ChunkPolicy,
    fence::{
        self,
        Life, //
    },
    geometry::Geometry,
    HDR_SIZE_MAX, //
};

use crate::server::{
    io::{
        carriers::ChunkCarriers,
        operation::Operation, //
    },
    path::{
        fence::Members,
        Path, //
    },
    quota::Charge,
    session::table::Registry,
    sysfs::{
        PathFiles,
        SessionFiles, //
    }, //
};

/// The upper layer of a server, which is called for each client's session.
pub trait Service: Send + Sync + 'static {
    /// The first path of `session` is up: returns the service of its requests. Process context,
    /// may sleep.
    ///
    /// An error closes the path.
    fn link_up(&self, session: &Arc<Session>) -> Result<SharedService>;
}

/// The service of a session, which its paths share. The box is for the IO path: where the object is
/// in an `Arc` of a trait object is computed at each call.
pub type SharedService = Arc<KBox<dyn SessionService>>;

/// Serves the requests of one session.
pub trait SessionService: Send + Sync + 'static {
    /// Serves a request: now, or later through the [`Operation`].
    ///
    /// Process context (the handler of a completion queue), on several CPUs at a time. It may sleep
    /// for memory, but for nothing else: the requests and the heartbeats of the connection wait
    /// meanwhile, and a path whose heartbeats wait counts as dead. A request that takes longer is
    /// added to an [`OperationQueue`] and served by a work item.
    ///
    /// [`OperationQueue`]: crate::OperationQueue
    fn request(&self, operation: Operation);

    /// A path of the session is being torn down, which waits until its operations have been
    /// answered: so one of which [`Operation::is_discarded`] says that the client does not get the
    /// answer is dropped here if the service uses its memory no more, and may not answer it for
    /// long. Process context; from other paths operations may still come.
    fn path_closing(&self) {}

    /// The last path of the session is down, and all its requests have been answered. Process
    /// context, may sleep.
    fn link_down(&self);
}

/// The state of a session that has a path which is up.
struct Link {
    /// Paths that are up.
    paths: usize,
    service: Option<SharedService>,
    files: Option<SessionFiles>,
}

/// A client's session.
///
/// All paths share its memory and register it for their devices. It exists from the connect request
/// of its first path to the teardown of its last.
#[pin_data]
pub struct Session {
    pub(crate) registry: Arc<Registry>,
    uuid: [u8; 16],
    /// A random number, by which a client tells this session from its predecessors.
    incarnation: u64,
    /// The number of the last path that got one; written with the lock of `paths` held.
    last_number: AtomicU32,
    chunks: KVVec<Arc<PageBlock>>,
    pub(crate) policy: ChunkPolicy,
    name: SetOnce<CString>,
    /// Paths in any state, those being torn down included.
    #[pin]
    pub(crate) paths: Mutex<KVec<Arc<Path>>>,
    /// Paths that carry requests.
    pub(crate) members: RcuArc<Members>,
    /// The paths that carry a request in a chunk, by its id.
    carriers: KVVec<Arc<ChunkCarriers>>,
    /// Held while `members` changes.
    #[pin]
    pub(crate) membership: Mutex<()>,
    #[pin]
    link: Mutex<Link>,
    /// Dropped last.
    _charge: Charge,
}

impl Session {
    /// Creates a session with all its chunks, zeroed. Sleeps.
    pub(crate) fn new(
        registry: &Arc<Registry>,
        uuid: [u8; 16],
        charge: Charge,
    ) -> Result<Arc<Self>> {
        let geometry = registry.geometry;
        let order = PageBlock::order_for(geometry.chunk_size() as usize);
        let depth = geometry.queue_depth();
        let mut chunks = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
        for _ in 0..depth {
            let chunk = PageBlock::new(order)?;
            chunks.push(Arc::new(chunk, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut carriers = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
        for _ in 0..depth {
            carriers.push(Arc::new(ChunkCarriers::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut incarnation = [0; 8];
        random::fill(&mut incarnation);
        Arc::pin_init(
            pin_init!(Self {
                registry: registry.clone(),
                uuid,
                incarnation: u64::from_ne_bytes(incarnation),
                last_number: AtomicU32::new(0),
                chunks,
                policy: registry.shared.chunk_policy(),
                name: SetOnce::new(),
                paths <- new_mutex!(KVec::new(), "Session::paths"),
                members: RcuArc::new(None),
                carriers,
                membership <- new_mutex!((), "Session::membership"),
                link <- new_mutex!(Link {
                    paths: 0,
                    service: None,
                    files: None,
                }, "Session::link"),
                _charge: charge,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the name that the client has given; empty before the first path is up.
    pub fn name(&self) -> &CStr {
        self.name.as_ref().map_or(c"", |name| name)
    }

    /// Returns the identifier of the client's session: that of a client which comes back, also to a
    /// server that was started again, is the same.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// Returns the most bytes of data that a request may have.
    pub fn data_bytes_max(&self) -> u32 {
        self.geometry().chunk_size().saturating_sub(HDR_SIZE_MAX)
    }

    /// Returns the number of chunks, that is of requests that the client can have in flight.
    pub fn queue_depth(&self) -> u16 {
        self.geometry().queue_depth()
    }

    /// Closes all paths without waiting; [`SessionService::link_down`] is called at the end.
    pub fn close(&self) {
        for path in self.paths.lock().iter() {
            path.close();
        }
    }

    /// Gives the session its name, which the caller knows to be free; returns whether it has that
    /// name now.
    pub(crate) fn set_name(&self, name: CString) -> bool {
        match self.name.as_ref() {
            Some(old) => **old == *name,
            None => self.name.populate(name),
        }
    }

    /// Returns the name of the next path whose client knows the fence message; `None` if all names
    /// are used up. The caller holds the lock of `paths`.
    pub(crate) fn next_life(&self) -> Option<Life> {
        let number = fence::next_number(self.last_number())?;
        self.last_number.store(number, Relaxed);
        Life::new(self.incarnation, number)
    }

    /// Returns the number of the last path that got one. Any context.
    pub(crate) fn last_number(&self) -> u32 {
        self.last_number.load(Relaxed)
    }

    /// Returns whether this is the session with the client's identifier.
    pub(crate) fn is(&self, uuid: &[u8; 16]) -> bool {
        self.uuid == *uuid
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.registry.geometry
    }

    /// Returns whether each chunk has a key of its own, which an answer may replace.
    #[inline]
    pub(crate) fn always_invalidate(&self) -> bool {
        self.policy.always_invalidate()
    }

    /// Returns whether an older path that `path` replaces is not torn down yet.
    pub(crate) fn has_predecessor_of(&self, path: &Arc<Path>) -> bool {
        self.paths
            .lock()
            .iter()
            .take_while(|earlier| !Arc::ptr_eq(earlier, path))
            .any(|earlier| earlier.precedes(path))
    }

    /// Returns the chunks, by their ids.
    pub(crate) fn chunks(&self) -> &[Arc<PageBlock>] {
        &self.chunks
    }

    /// Returns the paths that carry a request in a chunk, by its id.
    pub(crate) fn carriers(&self) -> &[Arc<ChunkCarriers>] {
        &self.carriers
    }

    /// Returns the work queue of set-up and teardown of the paths, and of their deferred requests.
    pub(crate) fn queue(&self) -> &WorkQueue {
        &self.registry.shared.queue
    }

    /// Returns the work queue of the ticks of the paths, and of answers to fence messages.
    pub(crate) fn ticks(&self) -> &WorkQueue {
        &self.registry.shared.ticks
    }

    /// Prepares a path to be up: creates its files, and for the first one those of the session, and
    /// asks the upper layer for the session's service.
    pub(crate) fn link_up(self: &Arc<Self>, path: &Arc<Path>) -> Result {
        let mut link = self.link.lock();
        let link = &mut *link;
        if link.files.is_none() {
            let class = &self.registry.shared.class;
            link.files = Some(SessionFiles::new(class, self.name())?);
        }
        let files = match &link.files {
            Some(files) => PathFiles::new(files, path),
            None => Err(ENODEV),
        };
        let service = match &link.service {
            Some(service) => Ok(service.clone()),
            None => self.registry.service.link_up(self),
        };
        match (files, service) {
            (Ok(files), Ok(service)) => {
                link.service = Some(service.clone());
                link.paths = link.paths.saturating_add(1);
                *path.files.lock() = Some(files);
                path.serve_with(service);
                Ok(())
            }
            (files, service) => {
                let refused = service.as_ref().err().copied();
                let error = files.err().or(refused).unwrap_or(EIO);
                if link.paths == 0 {
                    if let Ok(service) = service {
                        service.link_down();
                    }
                    link.service = None;
                    link.files = None;
                }
                Err(error)
            }
        }
    }

    /// Handles the end of a path for which [`link_up`](Self::link_up) succeeded; its files are
    /// removed.
    pub(crate) fn link_down(&self) {
        let mut link = self.link.lock();
        link.paths = link.paths.saturating_sub(1);
        if link.paths == 0 {
            if let Some(service) = link.service.take() {
                service.link_down();
            }
            link.files = None;
        }
    }
}
