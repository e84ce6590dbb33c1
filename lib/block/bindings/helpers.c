// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of C that Rust cannot call: one wrapper each. They are exported, as generic and
 * inlined functions of the crate call them from its users' modules.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include "helpers.h"

bool block_ext_helper_bdev_write_cache(struct block_device *bdev)
{
	return bdev_write_cache(bdev);
}
EXPORT_SYMBOL_GPL(block_ext_helper_bdev_write_cache);

/*
 * Whether the disk or a partition of it is in use as swap: the inode of its device has S_SWAPFILE from swapon() to
 * swapoff(). As diskstats_show() does: RCU frees partitions, and the inodes behind their devices.
 */
bool block_ext_helper_is_swapped_to(struct gendisk *disk)
{
	struct block_device *part;
	bool is_swapped_to = false;
	unsigned long index;

	rcu_read_lock();
	xa_for_each(&disk->part_tbl, index, part)
		if (IS_SWAPFILE(part->bd_mapping->host))
			is_swapped_to = true;
	rcu_read_unlock();
	return is_swapped_to;
}
EXPORT_SYMBOL_GPL(block_ext_helper_is_swapped_to);

void *block_ext_helper_page_address(struct page *page)
{
	return page_address(page);
}
EXPORT_SYMBOL_GPL(block_ext_helper_page_address);

/*
 * Has the requests of the requeue list, to which the caller has added one, started in @msecs, or
 * sooner if they are anyway. blk_mq_delay_kick_requeue_list() alone puts a kick off that is due
 * sooner: under requests that come again and again none would be started.
 */
void block_ext_helper_kick_requeue_list_by(struct request_queue *q, unsigned long msecs)
{
	struct delayed_work *work = &q->requeue_work;

	/*
	 * The request is in the list before the item is looked at, as in queue_delayed_work(): an
	 * item that is pending has not looked at the list yet. A timer that does not run is of an
	 * item that is queued, or about to be.
	 */
	smp_mb();
	if (delayed_work_pending(work) &&
	    (!timer_pending(&work->timer) ||
	     time_before_eq(READ_ONCE(work->timer.expires), jiffies + msecs_to_jiffies(msecs))))
		return;
	blk_mq_delay_kick_requeue_list(q, msecs);
}
EXPORT_SYMBOL_GPL(block_ext_helper_kick_requeue_list_by);
