/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions that Rust cannot call. */
#ifndef BLOCK_EXT_HELPERS_H
#define BLOCK_EXT_HELPERS_H
#include <linux/types.h>

struct block_device;
struct gendisk;
struct page;
struct request_queue;

bool block_ext_helper_bdev_write_cache(struct block_device *bdev);
bool block_ext_helper_is_swapped_to(struct gendisk *disk);
void *block_ext_helper_page_address(struct page *page);
void block_ext_helper_kick_requeue_list_by(struct request_queue *q, unsigned long msecs);

#endif
