// SPDX-License-Identifier: GPL-2.0

//! Drivers of multi-queue block devices.
//!
//! A driver implements [`Operations`] and allocates a [`TagSet`]: the requests in flight, shared by
//! all disks of one transport. Each disk on it is a [`Disk`](super::disk::Disk). For every IO the
//! block layer passes an owned [`Request`] to [`Operations::queue_rq`]; the driver moves it (it is
//! one word long) and ends it exactly once. Dropping a request ends it with `EIO`, so that no
//! request is lost.
//!
//! # States of a request
//!
//! | state | owner | ends by |
//! |---|---|---|
//! | idle | block layer | `queue_rq` is called: the request has been started |
//! | driver's | the owner of the [`Request`] | [`Request::end`], [`Request::complete`], drop; or [`Rejected`] / [`Request::requeue_later`] |
//! | completing | block layer | the block layer ends the bios; idle again |
//!
//! A [`Request`] keeps its disk: [`Disk::remove`](super::disk::Disk::remove) waits until every
//! request has ended. When its transport disconnects, a driver must therefore end (or fail) its
//! requests in flight before or during the removal of the disk.
//!
//! # Examples
//!
//! A disk that ignores all data:
//!
//! ```ignore
//! struct Null;
//!
//! #[vtable]
//! impl Operations for Null {
//!     type Set = ();
//!     type Queue = ();
//!     type Pdu = ();
//!
//!     fn queue_rq(
//!         _hw: HwQueue<'_, Self>,
//!         _queue: &(),
//!         rq: Request<Self>,
//!     ) -> Result<(), Rejected<Self>> {
//!         rq.end(Ok(()));
//!         Ok(())
//!     }
//! }
//!
//! let set = TagSet::<Null>::new(TagSetConfig::new(1, 64, 32), ())?;
//! let disk = Disk::new(&set, &THIS_MODULE, config, Arc::new((), GFP_KERNEL)?, ())?;
//! let disk = disk.add()?;
//! disk.remove();
//! ```
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

mod copy;
mod hw_queue;
mod integrity;
mod operations;
mod request;
mod request_list;
mod tag_set;
mod vtable;

pub use hw_queue::HwQueue;
pub use operations::Operations;
pub use request::{
    Rejected,
    Request, //
};
pub use request_list::{
    First,
    RequestList, //
};
pub use tag_set::{
    TagSet,
    TagSetConfig, //
};
