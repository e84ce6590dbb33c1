// SPDX-License-Identifier: GPL-2.0
/* Who may do what with an inode. As in helpers.c, all functions are exported. */
#include <linux/cred.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/uidgid.h>
#include "helpers.h"

/* The user of the current task, as the mount's user namespace numbers users; -1 if it has none there. */
u32 vfs_ext_helper_fsuid(const struct super_block *sb)
{
	return from_kuid(sb->s_user_ns, current_fsuid());
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_fsuid);

/*
 * Checks by mode, owner and group; where the server decides, that a file is one to be run only, as
 * FUSE does.
 */
int vfs_ext_helper_may(struct mnt_idmap *idmap, struct inode *inode, int mask, bool server_decides)
{
	umode_t mode = READ_ONCE(inode->i_mode);

	if (!server_decides)
		return generic_permission(idmap, inode, mask);
	return S_ISREG(mode) && (mask & MAY_EXEC) && !(mode & S_IXUGO) ? -EACCES : 0;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_may);

/* What a file is opened for. */
int vfs_ext_helper_open_mask(const struct file *file)
{
	return MAY_OPEN | (file->f_flags & __FMODE_EXEC ? MAY_EXEC : ACC_MODE(file->f_flags));
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_open_mask);

struct mnt_idmap *vfs_ext_helper_file_idmap(const struct file *file)
{
	return file_mnt_idmap(file);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_file_idmap);
