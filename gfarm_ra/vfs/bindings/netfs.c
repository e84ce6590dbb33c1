// SPDX-License-Identifier: GPL-2.0
/*
 * Fields of requests of netfs, which Rust cannot reach. As in helpers.c, all functions are exported.
 */
#include <linux/export.h>
#include <linux/netfs.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>
#include "helpers.h"

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
 */
void vfs_ext_helper_request_init(struct netfs_io_request *rreq, void *data, unsigned int rsize)
{
	rreq->netfs_priv = data;
	rreq->rsize = rsize;
	rreq->io_streams[0].sreq_max_len = rsize;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_request_init);

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
	struct netfs_io_request *rreq = sreq->rreq;
	size_t fresh = vfs_ext_account(sreq);
	bool is_cached = rreq->origin != NETFS_UNBUFFERED_READ && rreq->origin != NETFS_DIO_READ;

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
