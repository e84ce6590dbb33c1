// SPDX-License-Identifier: GPL-2.0
/*
 * Fields of requests of netfs, which Rust cannot reach, and the folios of a file. As in helpers.c, all functions are exported.
 */
#include <linux/crc32.h>
#include <linux/export.h>
#include <linux/folio_batch.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/iov_iter.h>
#include <linux/netfs.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include "helpers.h"

/*
 * Whether this is a read for which a task waits, into its own memory. One into the kernel's, as by splice(2),
 * goes through the page cache from now on: netfs_unbuffered_read_iter() would wait for it, and take no signal.
 */
bool vfs_ext_helper_is_direct(struct kiocb *iocb, const struct iov_iter *to)
{
	if (!(iocb->ki_flags & IOCB_DIRECT) || !is_sync_kiocb(iocb))
		return false;
	if (user_backed_iter(to))
		return true;
	iocb->ki_flags &= ~IOCB_DIRECT;
	return false;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_is_direct);

size_t vfs_ext_helper_iter_count(const struct iov_iter *iter)
{
	return iov_iter_count(iter);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_iter_count);

/* Returns how many bytes were cut off. */
size_t vfs_ext_helper_iter_truncate(struct iov_iter *iter, size_t bytes)
{
	size_t before = iov_iter_count(iter);

	iov_iter_truncate(iter, bytes);
	return before - iov_iter_count(iter);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_iter_truncate);

/* Gives back what was cut off. Returns how many bytes there were before. */
size_t vfs_ext_helper_iter_expand(struct iov_iter *iter, size_t bytes)
{
	size_t before = iov_iter_count(iter);

	iov_iter_reexpand(iter, before + bytes);
	return before;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_iter_expand);

/*
 * Reads a folio, which is locked, and waits until that has ended: netfs_read_folio() would wait, and take
 * no signal, so this is a read ahead of one folio. It ends with the lock of the folio. Returns 1 if it
 * was not read: an error of the inode says why.
 */
int vfs_ext_helper_read_folio(struct file *file, struct folio *folio)
{
	struct file_ra_state ra = { };
	DEFINE_READAHEAD(ractl, file, &ra, folio->mapping, folio->index);
	int ret;

	ractl._nr_pages = folio_nr_pages(folio);
	/* One that is read ahead has a reference for it, which netfs drops. */
	folio_get(folio);
	netfs_readahead(&ractl);
	/* Without memory it has not taken the folio. */
	if (!ractl._batch_count) {
		folio_put(folio);
		folio_unlock(folio);
		return -ENOMEM;
	}
	ret = folio_wait_locked_killable(folio);
	if (ret)
		return ret;
	return folio_test_uptodate(folio) || !folio->mapping ? 0 : 1;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_read_folio);

struct inode *vfs_ext_helper_folio_inode(const struct folio *folio)
{
	return folio->mapping->host;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_folio_inode);

/* For how long who drops folios keeps others from adding some, who cannot be killed while they wait for that. */
#define VFS_EXT_SHUT_TIME (HZ / 5)
/* For how long it looks for a moment in which no task adds some, before it keeps new ones from beginning. */
#define VFS_EXT_PATIENCE HZ

/* Waits, killable, for the lock of a folio until a time. */
static int vfs_ext_await_folio(struct folio *folio, unsigned long end)
{
	while (folio_test_locked(folio)) {
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		schedule_timeout_killable(1);
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/*
 * Waits, killable, for the reads of all folios that are under way, because who drops them waits without regard to
 * signals; until a time, if there is one.
 */
static int vfs_ext_await_reads(struct address_space *mapping, const unsigned long *end)
{
	struct folio_batch batch;
	pgoff_t next = 0;
	int ret = 0;

	folio_batch_init(&batch);
	while (!ret && filemap_get_folios(mapping, &next, ULONG_MAX, &batch)) {
		for (unsigned int i = 0; i < folio_batch_count(&batch) && !ret; i++) {
			struct folio *folio = batch.folios[i];

			if (!folio_test_uptodate(folio))
				ret = end ? vfs_ext_await_folio(folio, *end) : folio_wait_locked_killable(folio);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
	return ret;
}

/*
 * Takes the lock under which folios are added, once no read of one is under way. A server may owe a read without end,
 * and a task that wants the lock cannot be killed, nor can who queues up behind one that waits for it: so reads are
 * awaited without the lock. With it, those are that have begun since, for a moment. Who adds folios may be so many that
 * one of them always has it: their reads end, as those before them did.
 */
static int vfs_ext_lock_idle(struct address_space *mapping)
{
	unsigned long patience = jiffies + VFS_EXT_PATIENCE, begun, end;
	int ret;

	for (;;) {
		begun = jiffies;
		ret = vfs_ext_await_reads(mapping, NULL);
		if (ret)
			return ret;
		/* A server that was silent may be so again: the lock is tried as if this were the first time. */
		if (time_after(jiffies, begun + VFS_EXT_PATIENCE / 2))
			patience = jiffies + VFS_EXT_PATIENCE;
		if (!down_write_trylock(&mapping->invalidate_lock)) {
			if (time_before(jiffies, patience)) {
				schedule_timeout_killable(1);
				if (fatal_signal_pending(current))
					return -EINTR;
				continue;
			}
			ret = down_write_killable(&mapping->invalidate_lock);
			if (ret)
				return ret;
		}
		end = jiffies + VFS_EXT_SHUT_TIME;
		ret = vfs_ext_await_reads(mapping, &end);
		if (!ret)
			return 0;
		filemap_invalidate_unlock(mapping);
		if (ret != -ETIMEDOUT)
			return ret;
	}
}

/*
 * Drops the cached data of a file, and sets its size before anything is read anew: a page that is read up to a smaller
 * size ends with zeroes.
 */
int vfs_ext_helper_inode_zap(struct inode *inode, u64 size)
{
	int ret;

	ret = vfs_ext_lock_idle(inode->i_mapping);
	if (ret)
		return ret;
	ret = invalidate_inode_pages2(inode->i_mapping);
	if (!ret)
		vfs_ext_helper_inode_set_size(inode, size);
	filemap_invalidate_unlock(inode->i_mapping);
	return ret;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_zap);

/*
 * Drops a folio to which there is a reference, if it is still one of the file, also if it is mapped: who uses it reads
 * it again. As what is done with bad memory, but the memory may be used for something else. A folio that is locked
 * stays: one may be so for as long as a server is silent.
 */
void vfs_ext_helper_folio_drop(struct inode *inode, struct folio *folio)
{
	if (!folio_trylock(folio))
		return;
	/* Looks at the mapping, which the lock keeps. */
	generic_error_remove_folio(inode->i_mapping, folio);
	folio_unlock(folio);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_folio_drop);

/* The CRC-32C of the first bytes of a page of a folio, to which there is a reference. */
u32 vfs_ext_helper_page_crc32c(struct page *first, unsigned int number, unsigned int len)
{
	void *bytes = kmap_local_page(first + number);
	u32 crc = ~crc32c(~0, bytes, len);

	kunmap_local(bytes);
	return crc;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_page_crc32c);

struct inode *vfs_ext_helper_request_inode(const struct netfs_io_request *rreq)
{
	return rreq->inode;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_request_inode);

void *vfs_ext_helper_request_data(const struct netfs_io_request *rreq)
{
	return rreq->netfs_priv;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_request_data);

/*
 * The size of all subrequests is limited here and not by prepare_read(): with that function, netfs
 * makes the subrequests of a retry anew, and fails with ENOMEM what is to be retried behind one that
 * is complete.
 *
 * netfs has no reference to the inode. Without one, who drops the last one waits for the server: a task that
 * takes memory back, or one that is killed.
 */
void vfs_ext_helper_request_init(struct netfs_io_request *rreq, void *data, unsigned int rsize)
{
	struct vfs_ext_mount *mount = rreq->inode->i_sb->s_fs_info;

	ihold(rreq->inode);
	atomic_inc(&mount->requests);
	rreq->netfs_priv = data;
	rreq->rsize = rsize;
	rreq->io_streams[0].sreq_max_len = rsize;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_request_init);

/* Gives back what the initialisation has taken, at the end. The request is still counted in its inode. */
void vfs_ext_helper_request_release(struct netfs_io_request *rreq)
{
	struct vfs_ext_inode *inode = container_of(netfs_inode(rreq->inode), struct vfs_ext_inode, netfs);
	struct vfs_ext_mount *mount = rreq->inode->i_sb->s_fs_info;

	if (atomic_add_unless(&inode->netfs.inode.i_count, -1, 1))
		atomic_fetch_dec_release(&mount->requests);
	else
		/* Cannot be queued already, with a reference that would be another one. */
		queue_work(system_dfl_wq, &inode->put);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_request_release);

/*
 * netfs has passed a subrequest on. Behind one that has failed it waits, and takes no signal, until the reads before it
 * have ended, and then asks for no more; of a task that was killed the rest fails at once instead.
 */
void vfs_ext_helper_request_issued(struct netfs_io_request *rreq)
{
	if (fatal_signal_pending(current))
		clear_bit(NETFS_RREQ_PAUSE, &rreq->flags);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_request_issued);

int vfs_ext_helper_mount_requests(const struct vfs_ext_mount *mount)
{
	return atomic_read_acquire(&mount->requests);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_mount_requests);

struct netfs_io_request *vfs_ext_helper_sreq_request(const struct netfs_io_subrequest *sreq)
{
	return sreq->rreq;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_request);

u64 vfs_ext_helper_sreq_position(const struct netfs_io_subrequest *sreq)
{
	return sreq->start + sreq->transferred;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_position);

/* What was written and is not accounted yet. */
size_t vfs_ext_helper_sreq_fresh(const struct netfs_io_subrequest *sreq)
{
	return sreq->len - sreq->transferred - iov_iter_count(&sreq->io_iter);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_fresh);

size_t vfs_ext_helper_sreq_left(const struct netfs_io_subrequest *sreq)
{
	return iov_iter_count(&sreq->io_iter);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_left);

u8 vfs_ext_helper_sreq_retries(const struct netfs_io_subrequest *sreq)
{
	return sreq->retry_count;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_retries);

/* Whether the pages stay in the cache: not those of a reader that has none. */
bool vfs_ext_helper_sreq_is_cached(const struct netfs_io_subrequest *sreq)
{
	enum netfs_io_origin origin = sreq->rreq->origin;

	return origin != NETFS_UNBUFFERED_READ && origin != NETFS_DIO_READ;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_is_cached);

static size_t vfs_ext_crc32c_step(void *from, size_t progress, size_t len, void *priv, void *priv2)
{
	u32 *crc = priv;

	*crc = crc32c(*crc, from, len);
	return 0;
}

/* The CRC-32C of bytes that were written and are not accounted yet: some of the last `back` ones, from the first on. */
u32 vfs_ext_helper_sreq_crc32c(const struct netfs_io_subrequest *sreq, size_t back, size_t len)
{
	struct iov_iter part = sreq->io_iter;
	u32 crc = ~0;

	iov_iter_revert(&part, back);
	iterate_and_advance_kernel(&part, len, &crc, NULL, vfs_ext_crc32c_step);
	return ~crc;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_crc32c);

struct iov_iter *vfs_ext_helper_sreq_iter(struct netfs_io_subrequest *sreq)
{
	return &sreq->io_iter;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_iter);

/* A part of what is left, which the caller has checked to be there. The iterator is not advanced. */
void vfs_ext_helper_sreq_part(const struct netfs_io_subrequest *sreq, size_t offset, size_t len,
			      struct iov_iter *to)
{
	*to = sreq->io_iter;
	iov_iter_advance(to, offset);
	iov_iter_truncate(to, len);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_part);

/*
 * Adds the pieces of a part of what is left to a list with *entries of capacity, and ends the list with
 * them. They are not pinned: the subrequest keeps them.
 */
int vfs_ext_helper_sreq_pieces(const struct netfs_io_subrequest *sreq, size_t offset, size_t len,
			       struct scatterlist *sg, u32 capacity, u32 *entries)
{
	struct sg_table table = { .sgl = sg + *entries };
	struct iov_iter part;
	ssize_t ret;

	if (user_backed_iter(&sreq->io_iter))
		return -EOPNOTSUPP;
	if (*entries >= capacity)
		return -ENOSPC;
	vfs_ext_helper_sreq_part(sreq, offset, len, &part);
	memset(table.sgl, 0, (capacity - *entries) * sizeof(*sg));
	ret = extract_iter_to_sg(&part, len, &table, capacity - *entries, 0);
	if (ret < 0)
		return ret;
	if (ret != len || !table.nents)
		return -ENOSPC;
	if (*entries)
		sg_unmark_end(&sg[*entries - 1]);
	*entries += table.nents;
	sg_mark_end(&sg[*entries - 1]);
	return 0;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_pieces);

/* These bytes have been written without the iterator. */
void vfs_ext_helper_sreq_advance(struct netfs_io_subrequest *sreq, size_t bytes)
{
	iov_iter_advance(&sreq->io_iter, bytes);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_advance);

/* What was transferred is what the iterator has been advanced by: it cannot be more. */
static size_t vfs_ext_account(struct netfs_io_subrequest *sreq)
{
	size_t transferred = sreq->len - iov_iter_count(&sreq->io_iter);
	size_t fresh = transferred - sreq->transferred;

	WRITE_ONCE(sreq->transferred, transferred);
	if (fresh)
		__set_bit(NETFS_SREQ_MADE_PROGRESS, &sreq->flags);
	return fresh;
}

/* What was written and is not accounted yet is written again. */
void vfs_ext_helper_sreq_rewind(struct netfs_io_subrequest *sreq)
{
	iov_iter_revert(&sreq->io_iter, vfs_ext_helper_sreq_fresh(sreq));
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_rewind);

/* Folios that are complete may be unlocked before the end. */
void vfs_ext_helper_sreq_progress(struct netfs_io_subrequest *sreq)
{
	if (vfs_ext_account(sreq))
		netfs_read_subreq_progress(sreq);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_progress);

void vfs_ext_helper_sreq_end(struct netfs_io_subrequest *sreq, enum vfs_ext_end how, int error)
{
	size_t fresh = vfs_ext_account(sreq);
	bool is_cached = vfs_ext_helper_sreq_is_cached(sreq);

	/* The number of retries wraps; without progress they end here. */
	if (how == VFS_EXT_END_RETRY && !fresh && sreq->retry_count == U8_MAX) {
		how = VFS_EXT_END_FAILED;
		error = -EIO;
	}
	sreq->error = 0;
	switch (how) {
	case VFS_EXT_END_MORE:
		break;
	case VFS_EXT_END_OF_FILE:
		__set_bit(NETFS_SREQ_HIT_EOF, &sreq->flags);
		if (is_cached)
			__set_bit(NETFS_SREQ_CLEAR_TAIL, &sreq->flags);
		break;
	case VFS_EXT_END_RETRY:
		__set_bit(NETFS_SREQ_NEED_RETRY, &sreq->flags);
		break;
	case VFS_EXT_END_FAILED:
		sreq->error = error;
		break;
	}
	netfs_read_subreq_terminated(sreq);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_sreq_end);
