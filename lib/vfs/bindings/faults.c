// SPDX-License-Identifier: GPL-2.0
/* How much is read ahead by whom. As in helpers.c, all functions are exported. */
#include <linux/backing-dev.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include "helpers.h"

/*
 * Who reads has the window of the mount. The last use of a file counts: a program that reads the
 * head of a file and maps the rest does so with one descriptor.
 */
void vfs_ext_helper_read_window(struct file *file)
{
	unsigned int pages = inode_to_bdi(file->f_mapping->host)->ra_pages;

	if (READ_ONCE(file->f_ra.ra_pages) < pages)
		WRITE_ONCE(file->f_ra.ra_pages, pages);
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_read_window);

/* A fault reads the whole window around its address: the VFS's own, unless the mapping is read in its order. */
static vm_fault_t vfs_ext_fault(struct vm_fault *vmf)
{
	struct file *file = vmf->vma->vm_file;

	if (vmf->vma->vm_flags & VM_SEQ_READ)
		vfs_ext_helper_read_window(file);
	else if (READ_ONCE(file->f_ra.ra_pages) > VM_READAHEAD_PAGES)
		WRITE_ONCE(file->f_ra.ra_pages, VM_READAHEAD_PAGES);
	return filemap_fault(vmf);
}

static const struct vm_operations_struct vfs_ext_vm_ops = {
	.fault = vfs_ext_fault,
	.map_pages = filemap_map_pages,
};

int vfs_ext_helper_mmap_prepare(struct vm_area_desc *desc)
{
	int ret = generic_file_readonly_mmap_prepare(desc);

	if (!ret)
		desc->vm_ops = &vfs_ext_vm_ops;
	return ret;
}
EXPORT_SYMBOL_GPL(vfs_ext_helper_mmap_prepare);
