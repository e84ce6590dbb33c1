// SPDX-License-Identifier: GPL-2.0

//! One client session, and the store that it has attached to.

use kernel::{
    prelude::*,
    str::CString,
    sync::{
        new_mutex,
        rcu,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    errno,
    sync::RcuArc,
    workqueue, //
};
use rtrs_server::{
    Operation,
    OperationQueue,
    Service,
    SessionService,
    SharedService, //
};
use zerocopy::IntoBytes;

use super::{
    message::{
        message_of,
        refuse, //
    },
    store::StoreService,
    stores::Stores,
    LOG_LIMIT, //
};
use crate::proto::{
    answer::Attached,
    message,
    wire, //
};

/// The store that a session uses.
struct Use {
    store: Arc<dyn StoreService>,
    answer: Attached,
}

/// A client session.
#[pin_data]
pub(super) struct Session {
    name: CString,
    uuid: [u64; 2],
    io_bytes_max: u32,
    stores: Arc<Stores>,
    attached: RcuArc<Use>,
    /// Held while it attaches.
    #[pin]
    attaching: Mutex<()>,
    /// Messages that are not for a store.
    #[pin]
    messages: OperationQueue,
    #[pin]
    work: Work<Session>,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.work }
}

impl WorkItem for Session {
    type Pointer = Arc<Session>;

    fn run(session: Arc<Session>) {
        while let Some(operation) = session.messages.pop() {
            session.answer(operation);
        }
    }
}

impl Session {
    fn new(stores: &Arc<Stores>, rtrs: &rtrs_server::Session) -> Result<Arc<Self>> {
        let name = CString::try_from(rtrs.name())?;
        let number = u128::from_le_bytes(*rtrs.uuid());
        let io_bytes_max = rtrs.data_bytes_max();
        Arc::pin_init(
            pin_init!(Self {
                name,
                // CAST: Both halves.
                uuid: [(number >> u64::BITS) as u64, number as u64],
                io_bytes_max: io_bytes_max.saturating_sub(wire::READ_ANSWER_BYTES),
                stores: stores.clone(),
                attached: RcuArc::new(None),
                attaching <- new_mutex!((), "rioc_server::Session::attaching"),
                messages <- OperationQueue::new(),
                work <- new_work!("rioc_server::Session::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Answers a message that is not for a store. Sleeps.
    fn answer(&self, mut operation: Operation) {
        let asked = message_of(&operation).map(|message| match message.operation {
            message::Operation::Attach { store } => Some(self.attach(store)),
            _ => None,
        });
        match asked {
            Err(why) => refuse(operation, &self.name, why),
            Ok(None) => self.pass_on(operation),
            Ok(Some(attached)) => {
                let written = match operation.is_discarded() {
                    // Its chunk may have the client's next message by now.
                    true => Err(errno::ECONNABORTED),
                    false => attached
                        .and_then(|answer| operation.write_reply(answer.to_wire().as_bytes())),
                };
                operation.reply(written);
            }
        }
    }

    /// Passes a request to the store, if it has one by now.
    fn pass_on(&self, operation: Operation) {
        match self.attached.get() {
            Some(of) => of.store.clone().request(of.answer.client, operation),
            None => operation.reply(Err(errno::ENOTCONN)),
        }
    }

    /// Attaches to the store with this name.
    fn attach(&self, name: &[u8]) -> Result<Attached> {
        let _attaching = self.attaching.lock();
        if let Some(of) = self.attached.get().filter(|of| !of.store.is_stopped()) {
            let is_same = of.store.name().to_bytes() == name;
            return if is_same { Ok(of.answer) } else { Err(EBUSY) };
        }
        let store = self.stores.find(name).ok_or(ENOENT)?;
        let mut answer = store.attach(self.uuid, &self.name)?;
        answer.io_bytes_max = answer.io_bytes_max.min(self.io_bytes_max);
        let client = answer.client;
        let attached = Arc::new(
            Use {
                store: store.clone(),
                answer,
            },
            GFP_KERNEL,
        );
        let attached = attached.inspect_err(|_| store.detach(client))?;
        drop(self.attached.replace(Some(attached)));
        Ok(answer)
    }
}

/// The session's implementation of the RTRS session service.
struct SessionHandler(Arc<Session>);

impl SessionService for SessionHandler {
    fn request(&self, operation: Operation) {
        let session = &self.0;
        let is_attach = operation.user().first() == Some(&wire::ATTACH);
        let guard = rcu::read_lock();
        let of = session.attached.read(&guard).filter(|_| !is_attach);
        let store = of.map(|of| (of.store.clone(), of.answer.client));
        drop(guard);
        match store {
            Some((store, client)) => store.request(client, operation),
            None => {
                session.messages.push(operation);
                let queue = session.stores.queue();
                // If the item is queued already, it will take this message.
                let _ = queue.enqueue::<Arc<Session>, 0>(session.clone());
            }
        }
    }

    fn link_down(&self) {
        let session = &self.0;
        // The item may not have returned from the last message yet.
        workqueue::flush::<_, 0>(session);
        if let Some(of) = session.attached.replace(None) {
            of.store.detach(of.answer.client);
        }
        if LOG_LIMIT.allow().is_some() {
            pr_info!("session {} ended\n", &*session.name);
        }
    }
}

/// The server's implementation of the RTRS service.
pub(crate) struct RtrsService(pub(crate) Arc<Stores>);

impl Service for RtrsService {
    fn link_up(&self, rtrs: &Arc<rtrs_server::Session>) -> Result<SharedService> {
        let session = Session::new(&self.0, rtrs)?;
        if LOG_LIMIT.allow().is_some() {
            pr_info!("session {} connected\n", &*session.name);
        }
        let service: KBox<dyn SessionService> = KBox::new(SessionHandler(session), GFP_KERNEL)?;
        Ok(Arc::new(service, GFP_KERNEL)?)
    }
}
