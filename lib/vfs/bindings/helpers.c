// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of C that Rust cannot reach; those of requests are in netfs.c, and
 * those of permissions in rights.c, those of mappings in faults.c, those of ages in ages.c. They are exported,
 * as generic and inlined functions of the crate call them from its users' modules.
 */
#include <linux/backing-dev.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/key.h>
#include <linux/netfs.h>
#include <linux/pagemap.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <keys/user-type.h>
#include "helpers.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static void vfs_ext_inode_once(void *slot)
{
	struct netfs_inode *inode = slot;

	inode_init_once(&inode->inode);
}

/* Slots that begin with a netfs_inode. */
struct kmem_cache *vfs_ext_helper_cache_create(const char *name, unsigned int size)
{
	struct kmem_cache_args args = { .ctor = vfs_ext_inode_once };

	return kmem_cache_create(name, size, &args,
				 SLAB_HWCACHE_ALIGN | SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_cache_create);

void *vfs_ext_helper_cache_alloc(struct kmem_cache *cache, struct super_block *sb)
{
	return alloc_inode_sb(sb, cache, GFP_KERNEL);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_cache_alloc);

/* The last one may evict the inode, which waits until netfs has freed its requests, and so may not be put by netfs. */
static void vfs_ext_inode_put(struct work_struct *work)
{
	struct inode *inode = &container_of(work, struct vfs_ext_inode, put)->netfs.inode;
	struct vfs_ext_mount *mount = inode->i_sb->s_fs_info;

	iput(inode);
	/* The mount may end from here on. */
	atomic_fetch_dec_release(&mount->requests);
}

/* Everything that netfs reads of an inode, before it has a size. */
void vfs_ext_helper_inode_init(struct vfs_ext_inode *inode, const struct netfs_request_ops *ops)
{
	netfs_inode_init(&inode->netfs, ops, false);
	inode->netfs._remote_i_size = 0;
	INIT_WORK(&inode->put, vfs_ext_inode_put);
	inode->told = 0;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_init);

bool vfs_ext_helper_inode_is_new(struct inode *inode)
{
	return inode_state_read_once(inode) & I_NEW;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_is_new);

/*
 * Readers of the attributes take no lock. The size changes under i_lock, which makes that of the
 * inode and that of netfs one.
 */
void vfs_ext_helper_inode_set(struct inode *inode, const struct vfs_ext_attributes *to)
{
	struct timespec64 atime = { .tv_sec = to->atime_s, .tv_nsec = to->atime_ns };
	struct timespec64 mtime = { .tv_sec = to->mtime_s, .tv_nsec = to->mtime_ns };
	struct timespec64 ctime = { .tv_sec = to->ctime_s, .tv_nsec = to->ctime_ns };

	spin_lock(&inode->i_lock);
	WRITE_ONCE(inode->i_mode, to->mode);
	i_uid_write(inode, to->uid);
	i_gid_write(inode, to->gid);
	/* set_nlink() counts files that were removed while in use, which a server does, not we. */
	if (inode->i_nlink != to->links && inode->i_nlink && to->links)
		set_nlink(inode, to->links);
	inode_set_atime_to_ts(inode, atime);
	inode_set_mtime_to_ts(inode, mtime);
	inode_set_ctime_to_ts(inode, ctime);
	inode->i_blocks = to->blocks;
	netfs_write_sizes(inode, to->size, to->size, LLONG_MAX);
	spin_unlock(&inode->i_lock);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_set);

/* The size alone, when the server has told another one than before. */
void vfs_ext_helper_inode_set_size(struct inode *inode, u64 size)
{
	spin_lock(&inode->i_lock);
	netfs_write_sizes(inode, size, size, LLONG_MAX);
	spin_unlock(&inode->i_lock);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_set_size);

struct vfs_ext_wanted {
	int (*test)(struct inode *inode, void *data);
	void *data;
};

/* The caller holds the lock of the table of inodes. */
static int vfs_ext_inode_match(struct inode *inode, u64 hash, void *data)
{
	struct vfs_ext_wanted *wanted = data;
	int ret = -1;

	if (!wanted->test(inode, wanted->data))
		return 0;
	spin_lock(&inode->i_lock);
	if (!(inode_state_read(inode) & (I_NEW | I_CREATING | I_FREEING | I_WILL_FREE))) {
		__iget(inode);
		ret = 1;
	}
	spin_unlock(&inode->i_lock);
	return ret;
}

/* An inode that is in use or cached, with a reference. Others are not waited for. */
struct inode *vfs_ext_helper_inode_find(struct super_block *sb, u64 hash,
					int (*test)(struct inode *inode, void *data), void *data)
{
	struct vfs_ext_wanted wanted = { .test = test, .data = data };

	return find_inode_nowait(sb, hash, vfs_ext_inode_match, &wanted);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_find);

void vfs_ext_helper_inode_unhash(struct inode *inode)
{
	remove_inode_hash(inode);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_unhash);

/*
 * A reference to the folio of this page, if it is cached and up to date, and the number of pages from
 * this one on that are in it. It is not locked: it may be truncated meanwhile, and keeps its bytes.
 */
unsigned int vfs_ext_helper_folio_take(struct inode *inode, u64 index, unsigned int pages_max,
				       struct folio **folio, struct page **page)
{
	struct address_space *mapping = inode->i_mapping;
	struct folio *found;

	if (!pages_max || index > MAX_LFS_FILESIZE >> PAGE_SHIFT)
		return 0;
	found = filemap_get_folio(mapping, index);
	if (IS_ERR(found))
		return 0;
	if (!folio_test_uptodate(found) || READ_ONCE(found->mapping) != mapping ||
	    !folio_contains(found, index)) {
		folio_put(found);
		return 0;
	}
	*folio = found;
	*page = folio_file_page(found, index);
	return min_t(u64, pages_max, folio_next_index(found) - index);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_folio_take);

void vfs_ext_helper_folio_put(struct folio *folio)
{
	folio_put(folio);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_folio_put);

u64 vfs_ext_helper_inode_size(struct inode *inode)
{
	return i_size_read(inode);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_size);

/* Requests have ended, with their references; netfs uses the inode until it has freed the last one. */
void vfs_ext_helper_inode_evict(struct inode *inode)
{
	netfs_wait_for_outstanding_io(inode);
	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_evict);

void vfs_ext_helper_inode_large_folios(struct inode *inode)
{
	mapping_set_large_folios(inode->i_mapping);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_large_folios);

int vfs_ext_helper_super_setup(struct super_block *sb, const struct dentry_operations *dops,
			       unsigned long readahead_pages)
{
	int ret;

	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_time_gran = 1;
	if (dops)
		set_default_d_op(sb, dops);
	ret = super_setup_bdi(sb);
	if (ret)
		return ret;
	sb->s_bdi->ra_pages = readahead_pages;
	sb->s_bdi->io_pages = readahead_pages;
	return 0;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_super_setup);

/* Mounts without a block device have a number of their own, with a major of 0. */
u32 vfs_ext_helper_super_minor(const struct super_block *sb)
{
	return MINOR(sb->s_dev);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_super_minor);

/* Who mounts, as the mount's user namespace numbers users. */
void vfs_ext_helper_mounter(const struct fs_context *fc, u32 *uid, u32 *gid)
{
	*uid = from_kuid_munged(fc->user_ns, fc->cred->fsuid);
	*gid = from_kgid_munged(fc->user_ns, fc->cred->fsgid);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_mounter);

/* A line in the log of the mount, which fsopen(2) and mount(8) read, or else in the kernel's. */
void vfs_ext_helper_fail(struct fs_context *fc, const char *name, const char *what)
{
	if (name)
		errorfc(fc, "%s: %s", name, what);
	else
		errorfc(fc, "%s", what);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_fail);

/* The bytes of a name, which has no NUL at its end. */
u32 vfs_ext_helper_name(const struct qstr *name, const unsigned char **bytes)
{
	*bytes = name->name;
	return name->len;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_name);

/* Does not change while the directory is locked. */
const struct qstr *vfs_ext_helper_dentry_name(const struct dentry *dentry)
{
	return &dentry->d_name;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_dentry_name);

struct dentry *vfs_ext_helper_file_dentry(const struct file *file)
{
	return file_dentry(file);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_file_dentry);

struct inode *vfs_ext_helper_dentry_inode(const struct dentry *dentry)
{
	return READ_ONCE(dentry->d_inode);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_dentry_inode);

bool vfs_ext_helper_emit_dots(struct file *file, struct dir_context *ctx)
{
	return dir_emit_dots(file, ctx);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_emit_dots);

/* Emits the entry at the current position, and moves to the next one if there was room for it. */
bool vfs_ext_helper_emit(struct dir_context *ctx, const char *name, int len, u64 ino, u16 mode,
			 loff_t next)
{
	if (!dir_emit(ctx, name, len, ino, S_DT(mode)))
		return false;
	ctx->pos = next;
	return true;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_emit);

/* ",name" or ",name=value" in /proc/mounts. */
void vfs_ext_helper_show(struct seq_file *m, const char *name, const char *value)
{
	seq_putc(m, ',');
	seq_escape(m, name, ", \t\n\\=");
	if (!value)
		return;
	seq_putc(m, '=');
	seq_escape(m, value, ", \t\n\\");
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_show);

static int vfs_ext_proc_open(struct inode *inode, struct file *file)
{
	struct vfs_ext_proc_file *made = pde_data(inode);

	return single_open(file, made->show, made->data);
}

static ssize_t vfs_ext_proc_write(struct file *file, const char __user *from, size_t len, loff_t *at)
{
	struct vfs_ext_proc_file *made = pde_data(file_inode(file));
	char *bytes;
	int ret;

	/* Permissions do not keep root from here. */
	if (!made->store)
		return -EIO;
	if (len > SZ_64K)
		return -EFBIG;
	bytes = memdup_user_nul(from, len);
	if (IS_ERR(bytes))
		return PTR_ERR(bytes);
	ret = made->store(made->data, bytes, len);
	kfree(bytes);
	return ret < 0 ? ret : len;
}

static const struct proc_ops vfs_ext_proc_ops = {
	.proc_open = vfs_ext_proc_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = vfs_ext_proc_write,
};

/*
 * All may read it unless it is private, and root may write it if it stores. The caller keeps file until the entry is
 * removed.
 */
struct proc_dir_entry *vfs_ext_helper_proc_create(const char *name, struct proc_dir_entry *parent,
						  struct vfs_ext_proc_file *file)
{
	umode_t mode = (file->is_private ? 0400 : 0444) | (file->store ? 0200 : 0);

	return proc_create_data(name, mode, parent, &vfs_ext_proc_ops, file);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_proc_create);

/* Searches the keyrings of the current task; asks no program in user space. */
struct key *vfs_ext_helper_key_find(const char *description)
{
	struct key *key = request_key(&key_type_logon, description, NULL);

	if (PTR_ERR_OR_ZERO(key) == -ENOKEY)
		key = request_key(&key_type_user, description, NULL);
	return key;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_key_find);

/* The payload of a key of either type, which does not change until the unlock. */
int vfs_ext_helper_key_lock(struct key *key, const u8 **bytes, size_t *len)
{
	const struct user_key_payload *payload;
	int ret;

	down_read(&key->sem);
	ret = key_validate(key);
	payload = ret ? NULL : user_key_payload_locked(key);
	if (!payload) {
		up_read(&key->sem);
		return ret ? ret : -EKEYREVOKED;
	}
	*bytes = payload->data;
	*len = payload->datalen;
	return 0;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_key_lock);

void vfs_ext_helper_key_unlock(struct key *key)
{
	up_read(&key->sem);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_key_unlock);

void vfs_ext_helper_wipe(void *bytes, size_t len)
{
	memzero_explicit(bytes, len);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_wipe);

void vfs_ext_helper_trace_request(const char *name, size_t len, u64 us, int error)
{
	trace_gfarm_request(name, len, us, error);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_trace_request);

void vfs_ext_helper_trace_connected(const char *server, size_t len)
{
	trace_gfarm_connected(server, len);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_trace_connected);

void vfs_ext_helper_trace_again(const char *server, size_t len, u64 requests, int error)
{
	trace_gfarm_again(server, len, requests, error);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_trace_again);

void vfs_ext_helper_trace_received(u64 position, u64 bytes)
{
	trace_gfarm_received(position, bytes);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_trace_received);
