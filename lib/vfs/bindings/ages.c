// SPDX-License-Identifier: GPL-2.0
/* The ages of what the kernel knows of names and inodes. As in helpers.c, all functions are exported. */
#include <linux/dcache.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/netfs.h>
#include <linux/stringhash.h>
#include "helpers.h"

/* The time, for the functions that take one. */
unsigned long vfs_ext_helper_now(void)
{
	return jiffies;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_now);

/* When something was that is so old, at the latest: what is too old for its age is asked for again. */
static unsigned long vfs_ext_since(u64 age_ms)
{
	return jiffies - DIV_ROUND_UP_ULL(age_ms * HZ, MSEC_PER_SEC);
}

/* The age of a name is counted from a time. Written and read without a lock, in one word. */
void vfs_ext_helper_dentry_renew(struct dentry *dentry, unsigned long since)
{
	WRITE_ONCE(dentry->d_time, since);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_dentry_renew);

/* jiffies_to_msecs() begins anew after 49 days, with a name that is young. */
static u64 vfs_ext_age_ms(unsigned long since)
{
	return (u64)(jiffies - since) * MSEC_PER_SEC / HZ;
}

u64 vfs_ext_helper_dentry_age_ms(const struct dentry *dentry)
{
	return vfs_ext_age_ms(READ_ONCE(dentry->d_time));
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_dentry_age_ms);

/* Walks under RCU see the attributes that were set before. */
void vfs_ext_helper_inode_told(struct inode *inode, u64 age_ms)
{
	smp_store_release(&container_of(inode, struct vfs_ext_inode, netfs.inode)->told,
			  vfs_ext_since(age_ms) ?: 1);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_told);

u64 vfs_ext_helper_inode_age_ms(const struct inode *inode)
{
	unsigned long told = smp_load_acquire(&container_of(inode, struct vfs_ext_inode, netfs.inode)->told);

	return told ? vfs_ext_age_ms(told) : U64_MAX;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_inode_age_ms);

/*
 * Makes the kernel know what a name in an open directory names, and has named so long ago, as a lookup does. The caller
 * holds the directory's lock, shared, and passes its reference to the inode on, also with an error.
 */
int vfs_ext_helper_remember(struct file *dir, const char *name, u32 len, struct inode *inode, u64 age_ms)
{
	unsigned long since = vfs_ext_since(age_ms);
	struct dentry *parent = dir->f_path.dentry, *dentry, *alias;
	struct qstr q = QSTR_INIT(name, len);
	int ret = 0;

	if (inode->i_sb != parent->d_sb) {
		iput(inode);
		return -EXDEV;
	}
	q.hash = full_name_hash(parent, name, len);
	dentry = d_lookup(parent, &q);
	if (dentry && d_inode(dentry) != inode) {
		d_invalidate(dentry);
		dput(dentry);
		dentry = NULL;
	}
	if (!dentry)
		dentry = d_alloc_parallel(parent, &q);
	if (IS_ERR(dentry)) {
		iput(inode);
		return PTR_ERR(dentry);
	}
	if (!d_in_lookup(dentry)) {
		/* Known, or another task has looked it up meanwhile. */
		if (d_inode(dentry) == inode)
			vfs_ext_helper_dentry_renew(dentry, since);
		iput(inode);
		dput(dentry);
		return 0;
	}
	vfs_ext_helper_dentry_renew(dentry, since);
	alias = d_splice_alias(inode, dentry);
	d_lookup_done(dentry);
	if (IS_ERR(alias)) {
		ret = PTR_ERR(alias);
	} else if (alias) {
		vfs_ext_helper_dentry_renew(alias, since);
		dput(alias);
	}
	dput(dentry);
	return ret;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_remember);
