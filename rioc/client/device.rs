// SPDX-License-Identifier: GPL-2.0

//! `/dev/rioc`: a program opens it, attaches a session by its name, and asks by an ioctl.
//!
//! A lease belongs to the file over which it was taken, and ends with it. A file belongs to the
//! life of the store that it has attached to: when a store in memory was begun anew, or another
//! store has its name, what the program has written before is gone, and it is told so. Nothing is
//! changed there over the file, also by what has waited meanwhile: see
//! [`Sendings`](crate::proto::retry::Sendings).

use kernel::{
    fs::File,
    ioctl::_IOWR,
    miscdevice::{
        MiscDevice,
        MiscDeviceRegistration, //
    },
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::errno;
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

use super::{
    call,
    session::{
        Attachment,
        User, //
    },
    Client, //
};
use crate::proto::{
    ioctl::{
        self,
        Call,
        Request, //
    },
    message::Operation,
};

/// The most bytes of the name of a session.
const NAME_MAX: usize = 254;

/// The leases of an open file, and the work item that ends them with it.
#[pin_data]
struct Leases {
    at: Attachment,
    #[pin]
    numbers: Mutex<KVec<u32>>,
    #[pin]
    ending: Work<Leases>,
}

impl_has_work! {
    impl HasWork<Self> for Leases { self.ending }
}

impl WorkItem for Leases {
    type Pointer = Arc<Leases>;

    fn run(leases: Arc<Leases>) {
        let numbers = core::mem::take(&mut *leases.numbers.lock());
        for number in &numbers {
            call::release(&leases.at, *number);
        }
    }
}

impl Leases {
    fn new(at: Attachment) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                at,
                numbers <- new_mutex!(KVec::new()),
                ending <- new_work!("rioc_client::Leases::ending"),
            }),
            GFP_KERNEL,
        )
    }
}

/// The session that a file has attached, and its leases.
struct Use {
    leases: Arc<Leases>,
    /// The session is not disconnected while it is there.
    _user: User,
}

/// An open file.
pub(crate) struct Opened(SetOnce<Use>);

#[vtable]
impl MiscDevice for Opened {
    type Ptr = Arc<Self>;

    fn open(_file: &File, _misc: &MiscDeviceRegistration<Self>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(SetOnce::new()), GFP_KERNEL)?)
    }

    fn release(opened: Arc<Self>, _file: &File) {
        let Some(Use { leases, .. }) = opened.0.as_ref() else {
            return;
        };
        if leases.numbers.lock().is_empty() {
            return;
        }
        // The task may have been killed, and the server be away.
        let queue = &leases.at.client().wq;
        let _ = queue.enqueue::<Arc<Leases>, 0>(leases.clone());
    }

    fn ioctl(opened: ArcBorrow<'_, Self>, _file: &File, cmd: u32, arg: usize) -> Result<isize> {
        if cmd != _IOWR::<Request>(ioctl::TYPE.into(), ioctl::NUMBER.into()) {
            return Err(ENOTTY);
        }
        let mut bytes = [0; size_of::<Request>()];
        let program = || UserSlice::new(UserPtr::from_addr(arg), size_of::<Request>());
        program().reader().read_slice(&mut bytes)?;
        let mut request = Request::read_from_bytes(&bytes).map_err(|_| EINVAL)?;
        let call = request.call().map_err(|reason| reason.errno())?;
        let done = match call {
            Call::Attach(bytes) => opened.attach(&mut request, bytes),
            call => opened.carry_out(&mut request, call),
        };
        program().writer().write_slice(request.as_bytes())?;
        done.map(|()| 0)
    }
}

impl Opened {
    fn attach(&self, request: &mut Request, bytes: u64) -> Result {
        let mut name = [0; NAME_MAX];
        let len = usize::try_from(bytes).map_err(|_| EINVAL)?;
        let name = name.get_mut(..len).ok_or(EINVAL)?;
        let address = usize::try_from(request.buffer).map_err(|_| EFAULT)?;
        let from = UserSlice::new(UserPtr::from_addr(address), len);
        from.reader().read_slice(name)?;
        let user = Client::get()?.user(name)?;
        let at = Attachment::new(user.session())?;
        let attached = *at.attached();
        let attaches = Use {
            leases: Leases::new(at)?,
            _user: user,
        };
        if !self.0.populate(attaches) {
            return Err(EBUSY);
        }
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        request.boot = attached.boot;
        request.io_bytes_max = attached.io_bytes_max;
        request.state =
            bit(attached.is_durable, ioctl::DURABLE) | bit(attached.has_backing, ioctl::BACKING);
        Ok(())
    }

    fn carry_out(&self, request: &mut Request, call: Call) -> Result {
        let used = self.0.as_ref().ok_or(errno::ENOTCONN)?;
        let done = used.carry_out(request, call);
        // What is in the store of now was written by others since, or by who has attached again;
        // and a part of the call may be in no store.
        used.leases.at.check()?;
        done
    }
}

impl Use {
    fn carry_out(&self, request: &mut Request, call: Call) -> Result {
        let (at, leases) = (&self.leases.at, &self.leases.numbers);
        match call {
            Call::One(Operation::Lease { .. }) => {
                // One that could not be kept would not be ended.
                leases.lock().reserve(1, GFP_KERNEL)?;
                call::carry_out(at, request, call)?;
                Ok(leases.lock().push(request.lease, GFP_KERNEL)?)
            }
            Call::One(Operation::Release) => {
                if !leases.lock().contains(&request.lease) {
                    // It is that of another file of the session, or none.
                    return Err(errno::ESTALE);
                }
                let released = call::carry_out(at, request, call);
                // One that may be left is ended with the file.
                if matches!(released, Ok(()) | Err(errno::ESTALE)) {
                    leases.lock().retain(|lease| *lease != request.lease);
                }
                released
            }
            call => call::carry_out(at, request, call),
        }
    }
}
