// SPDX-License-Identifier: GPL-2.0

//! Tests of the pure protocol folders. One binary, so that it links once; a file is a noun.
//!
//! Tests named `dN_...` show that defect N of the C driver is absent.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod access;
mod addr;
mod admin_lock;
mod admission;
mod agreement;
mod answer_time;
mod availability;
mod backoff;
mod boot;
mod budget;
mod cache;
mod carriers;
mod chance;
mod chunk4k;
mod chunk_policy;
mod connect_backlog;
mod connect_retry;
mod control;
mod crc32_umr;
mod credit;
mod device;
mod doubt;
mod failover;
mod fence;
mod fuzz;
mod geometry;
mod gfarm;
mod golden;
mod handshake;
mod heartbeat;
mod identity;
mod imm;
mod info;
mod invalidation;
mod io_queues;
mod io_state;
mod map;
mod memory;
mod message;
mod message_queue;
mod occasion;
mod outage;
mod path;
mod path_name;
mod path_validation;
mod permit;
mod pi;
mod policy;
mod quarantine;
mod range;
mod rdma_address;
mod rdma_retirement;
mod read_buffers;
mod recovery;
mod recovery_state;
mod refusal;
mod request;
mod retry;
mod settings;
mod shortage;
mod sidecar;
mod signal;
mod siphash;
mod slot;
mod submission;
mod targets;
mod test_device;
mod test_device_fabric;
mod test_device_faults;
mod text;
mod timeouts;
mod told;
mod transfer_layout;
