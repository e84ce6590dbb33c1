// SPDX-License-Identifier: GPL-2.0

//! Devices that are used, and the memory regions in which chunks lie.

use proto::{
    rtrs::{
        device::{
            fewer_pieces,
            Capabilities,
            Division,
            Unfit, //
        },
        signal::{
            QueueLimits,
            QueueSizes, //
        },
    },
    test_device::send_queue::blocks,
};

const KIB: u32 = 1024;
const ANY: u64 = 0xffff_f000;
/// irdma: what it does not list it encodes as 4 KiB.
const IRDMA: u64 = 1 << 12 | 1 << 21 | 1 << 30;

fn device(page_sizes: u64, pages_max: u32) -> Capabilities {
    Capabilities {
        fast_registration: true,
        iwarp: false,
        page_sizes,
        pages_max,
        queues: QueueLimits {
            work_requests: 1 << 15,
            completions: 1 << 20,
        },
    }
}

#[test]
fn devices_without_what_the_protocol_needs_are_refused() {
    let good = device(ANY, 512);
    assert_eq!(good.check(), Ok(()));
    let old = Capabilities {
        fast_registration: false,
        ..good
    };
    assert_eq!(old.check(), Err(Unfit::NoFastRegistration));
    // With two pages no request that begins inside a page could have data.
    assert_eq!(device(ANY, 2).check(), Err(Unfit::NoFastRegistration));
    assert_eq!(device(ANY, 3).check(), Ok(()));
    let iwarp = Capabilities {
        iwarp: true,
        ..good
    };
    assert_eq!(iwarp.check(), Err(Unfit::Iwarp));
    assert_eq!(Unfit::Iwarp.errno().get(), 95);
    assert!(Unfit::Iwarp.to_string().contains("iWARP"));
}

#[test]
fn pages_are_the_largest_that_device_and_addresses_allow() {
    let divided = |page_sizes, alignment| {
        let division = device(page_sizes, 512).divide(512, 128 * KIB, alignment, 1);
        division.map(|d| (d.page_size / KIB, d.chunks))
    };
    assert_eq!(divided(ANY, 1 << 17), Ok((128, 1)));
    assert_eq!(divided(ANY, 1 << 30), Ok((128, 1)));
    // A bounce buffer.
    assert_eq!(divided(ANY, 1 << 12), Ok((4, 1)));
    assert_eq!(divided(ANY, 1 << 14), Ok((16, 1)));
    assert_eq!(divided(IRDMA, 1 << 17), Ok((4, 1)));
    // A driver that lists nothing has the smallest.
    assert_eq!(divided(0, 1 << 17), Ok((4, 1)));
}

#[test]
fn a_region_has_no_more_pages_than_the_device_allows() {
    let all = |sizes, pages_max| device(sizes, pages_max).divide(512, 131072, 1 << 17, 512);
    let division = |page_size, chunks| Ok(Division { page_size, chunks });
    assert_eq!(all(ANY, 512), division(131072, 512));
    assert_eq!(all(ANY, 511), division(131072, 256));
    assert_eq!(all(IRDMA, 512), division(4096, 16));
    assert_eq!(all(IRDMA, 33), division(4096, 1));
    let error = Unfit::Pages {
        needed: 32,
        most: 31,
    };
    assert_eq!(all(IRDMA, 31), Err(error));
    let text = "device registers 31 pages at a time, a chunk has 32";
    assert_eq!(error.to_string(), text);
}

#[test]
fn every_chunk_is_in_one_region_and_all_regions_are_equal() {
    for depth in (1..600).chain([1024, 65535]) {
        for chunk_size in [8 * KIB, 64 * KIB, 1024 * KIB] {
            for page_sizes in [0, ANY, IRDMA] {
                for pages_max in [1, 31, 256, 512, u32::MAX] {
                    let able = device(page_sizes, pages_max);
                    let Ok(division) = able.divide(depth, chunk_size, 1 << 20, depth) else {
                        continue;
                    };
                    let pages = chunk_size / division.page_size;
                    assert!(division.page_size >= 4096 && pages * division.page_size == chunk_size);
                    assert!(division.chunks > 0 && depth % division.chunks == 0);
                    assert!(u32::from(division.chunks) * pages <= pages_max);
                }
            }
        }
    }
}

#[test]
fn a_send_queue_that_is_too_long_has_fewer_segments() {
    let tried: Vec<u32> = std::iter::successors(Some(16), |pieces| fewer_pieces(*pieces)).collect();
    assert_eq!(tried, [16, 8, 4, 2, 1]);
    assert_eq!(fewer_pieces(0), None);
    // mlx5: 32768 blocks, and as many work requests as have 4 of them.
    let limits = QueueLimits {
        work_requests: 8192,
        completions: 1 << 22,
    };
    let room = |depth| {
        let sizes = QueueSizes::client_io(depth, limits).ok()?;
        let fits = |pieces: &u32| blocks(sizes.send + 1, pieces + 1) <= 32768;
        tried.iter().copied().find(fits)
    };
    assert_eq!(
        [512, 1337, 1338, 1871, 1872].map(room),
        [16, 16, 8, 8, 4].map(Some)
    );
    // All depths that the queues' lengths permit.
    let depths = (1..).take_while(|depth| QueueSizes::client_io(*depth, limits).is_ok());
    assert!(depths.map(room).all(|pieces| pieces.is_some()));
}
