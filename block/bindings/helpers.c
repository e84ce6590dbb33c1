// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of C that Rust cannot call: one wrapper each. They are exported, as generic and
 * inlined functions of the crate call them from its users' modules.
 */
#include <linux/blkdev.h>
#include <linux/export.h>
#include <linux/mm.h>
#include "helpers.h"

bool block_ext_helper_bdev_write_cache(struct block_device *bdev)
{
	return bdev_write_cache(bdev);
}
EXPORT_SYMBOL_GPL(block_ext_helper_bdev_write_cache);

void *block_ext_helper_page_address(struct page *page)
{
	return page_address(page);
}
EXPORT_SYMBOL_GPL(block_ext_helper_page_address);
