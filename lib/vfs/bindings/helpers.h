/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions and macros, and of fields of netfs, that Rust cannot reach. */
#ifndef VFS_EXT_HELPERS_H
#define VFS_EXT_HELPERS_H
#include <linux/netfs.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct dentry;
struct dentry_operations;
struct dir_context;
struct file;
struct folio;
struct fs_context;
struct inode;
struct iov_iter;
struct key;
struct kiocb;
struct kmem_cache;
struct mnt_idmap;
struct netfs_io_request;
struct netfs_io_subrequest;
struct netfs_request_ops;
struct page;
struct proc_dir_entry;
struct qstr;
struct scatterlist;
struct seq_file;
struct super_block;
struct vm_area_desc;

/* An inode, before what a file system adds. */
struct vfs_ext_inode {
	struct netfs_inode netfs;
	/* Puts a reference that may be the last one. */
	struct work_struct put;
	/* When its attributes were asked for that are set, in jiffies; 0: never. */
	unsigned long told;
};

/* What super_block.s_fs_info begins with. */
struct vfs_ext_mount {
	/* The requests that have a reference to their inode. */
	atomic_t requests;
};

/* The attributes of an inode; the owners are those of the mount's user namespace. */
struct vfs_ext_attributes {
	u64 size;
	u64 blocks;
	s64 atime_s;
	s64 mtime_s;
	s64 ctime_s;
	u32 atime_ns;
	u32 mtime_ns;
	u32 ctime_ns;
	u32 uid;
	u32 gid;
	u32 links;
	u16 mode;
};

/* How a subrequest ends. */
enum vfs_ext_end {
	VFS_EXT_END_MORE,
	VFS_EXT_END_OF_FILE,
	VFS_EXT_END_RETRY,
	VFS_EXT_END_FAILED,
};

struct kmem_cache *vfs_ext_helper_cache_create(const char *name, unsigned int size);
void *vfs_ext_helper_cache_alloc(struct kmem_cache *cache, struct super_block *sb);
void vfs_ext_helper_inode_init(struct vfs_ext_inode *inode, const struct netfs_request_ops *ops);
bool vfs_ext_helper_inode_is_new(struct inode *inode);
void vfs_ext_helper_inode_set(struct inode *inode, const struct vfs_ext_attributes *to);
void vfs_ext_helper_inode_set_size(struct inode *inode, u64 size);
struct inode *vfs_ext_helper_inode_find(struct super_block *sb, u64 hash,
					int (*test)(struct inode *inode, void *data), void *data);
unsigned int vfs_ext_helper_folio_take(struct inode *inode, u64 index, unsigned int pages_max,
				       struct folio **folio, struct page **page);
void vfs_ext_helper_folio_put(struct folio *folio);
u32 vfs_ext_helper_page_crc32c(struct page *first, unsigned int number, unsigned int len);
void vfs_ext_helper_inode_unhash(struct inode *inode);
u64 vfs_ext_helper_inode_size(struct inode *inode);
void vfs_ext_helper_inode_evict(struct inode *inode);
void vfs_ext_helper_inode_large_folios(struct inode *inode);
int vfs_ext_helper_inode_zap(struct inode *inode, u64 size);
void vfs_ext_helper_folio_drop(struct inode *inode, struct folio *folio);
int vfs_ext_helper_super_setup(struct super_block *sb, const struct dentry_operations *dops,
			       unsigned long readahead_pages);
u32 vfs_ext_helper_super_minor(const struct super_block *sb);
void vfs_ext_helper_fail(struct fs_context *fc, const char *name, const char *what);
void vfs_ext_helper_mounter(const struct fs_context *fc, u32 *uid, u32 *gid);
u32 vfs_ext_helper_fsuid(const struct super_block *sb);
u32 vfs_ext_helper_name(const struct qstr *name, const unsigned char **bytes);
const struct qstr *vfs_ext_helper_dentry_name(const struct dentry *dentry);
struct dentry *vfs_ext_helper_file_dentry(const struct file *file);
int vfs_ext_helper_may(struct mnt_idmap *idmap, struct inode *inode, int mask, bool server_decides);
int vfs_ext_helper_open_mask(const struct file *file);
void vfs_ext_helper_read_window(struct file *file);
int vfs_ext_helper_mmap_prepare(struct vm_area_desc *desc);
struct mnt_idmap *vfs_ext_helper_file_idmap(const struct file *file);
struct inode *vfs_ext_helper_dentry_inode(const struct dentry *dentry);
unsigned long vfs_ext_helper_now(void);
void vfs_ext_helper_dentry_renew(struct dentry *dentry, unsigned long since);
u64 vfs_ext_helper_dentry_age_ms(const struct dentry *dentry);
void vfs_ext_helper_inode_told(struct inode *inode, u64 age_ms);
u64 vfs_ext_helper_inode_age_ms(const struct inode *inode);
bool vfs_ext_helper_emit_dots(struct file *file, struct dir_context *ctx);
bool vfs_ext_helper_emit(struct dir_context *ctx, const char *name, int len, u64 ino, u16 mode,
			 loff_t next);
int vfs_ext_helper_remember(struct file *dir, const char *name, u32 len, struct inode *inode, u64 age_ms);
void vfs_ext_helper_show(struct seq_file *m, const char *name, const char *value);

/* A file below /proc that is shown as a whole, and written in one piece. */
struct vfs_ext_proc_file {
	int (*show)(struct seq_file *m, void *v);
	int (*store)(void *data, const char *bytes, size_t len);
	void *data;
	bool is_private;
};

struct proc_dir_entry *vfs_ext_helper_proc_create(const char *name, struct proc_dir_entry *parent,
						  struct vfs_ext_proc_file *file);
struct key *vfs_ext_helper_key_find(const char *description);
int vfs_ext_helper_key_lock(struct key *key, const u8 **bytes, size_t *len);
void vfs_ext_helper_key_unlock(struct key *key);
void vfs_ext_helper_wipe(void *bytes, size_t len);

bool vfs_ext_helper_is_direct(struct kiocb *iocb, const struct iov_iter *to);
size_t vfs_ext_helper_iter_count(const struct iov_iter *iter);
size_t vfs_ext_helper_iter_truncate(struct iov_iter *iter, size_t bytes);
size_t vfs_ext_helper_iter_expand(struct iov_iter *iter, size_t bytes);
int vfs_ext_helper_read_folio(struct file *file, struct folio *folio);
struct inode *vfs_ext_helper_folio_inode(const struct folio *folio);
struct inode *vfs_ext_helper_request_inode(const struct netfs_io_request *rreq);
void *vfs_ext_helper_request_data(const struct netfs_io_request *rreq);
void vfs_ext_helper_request_init(struct netfs_io_request *rreq, void *data, unsigned int rsize);
void vfs_ext_helper_request_issued(struct netfs_io_request *rreq);
void vfs_ext_helper_request_release(struct netfs_io_request *rreq);
int vfs_ext_helper_mount_requests(const struct vfs_ext_mount *mount);
struct netfs_io_request *vfs_ext_helper_sreq_request(const struct netfs_io_subrequest *sreq);
u64 vfs_ext_helper_sreq_position(const struct netfs_io_subrequest *sreq);
size_t vfs_ext_helper_sreq_fresh(const struct netfs_io_subrequest *sreq);
size_t vfs_ext_helper_sreq_left(const struct netfs_io_subrequest *sreq);
u8 vfs_ext_helper_sreq_retries(const struct netfs_io_subrequest *sreq);
u32 vfs_ext_helper_sreq_crc32c(const struct netfs_io_subrequest *sreq, size_t back, size_t len);
bool vfs_ext_helper_sreq_is_cached(const struct netfs_io_subrequest *sreq);
struct iov_iter *vfs_ext_helper_sreq_iter(struct netfs_io_subrequest *sreq);
void vfs_ext_helper_sreq_part(const struct netfs_io_subrequest *sreq, size_t offset, size_t len,
			      struct iov_iter *to);
int vfs_ext_helper_sreq_pieces(const struct netfs_io_subrequest *sreq, size_t offset, size_t len,
			       struct scatterlist *sg, u32 capacity, u32 *entries);
void vfs_ext_helper_sreq_advance(struct netfs_io_subrequest *sreq, size_t bytes);
void vfs_ext_helper_sreq_rewind(struct netfs_io_subrequest *sreq);
void vfs_ext_helper_sreq_progress(struct netfs_io_subrequest *sreq);
void vfs_ext_helper_sreq_end(struct netfs_io_subrequest *sreq, enum vfs_ext_end how, int error);

void vfs_ext_helper_trace_request(const char *name, size_t len, u64 us, int error);
void vfs_ext_helper_trace_connected(const char *server, size_t len);
void vfs_ext_helper_trace_again(const char *server, size_t len, u64 requests, int error);
void vfs_ext_helper_trace_received(u64 position, u64 bytes);

#endif
