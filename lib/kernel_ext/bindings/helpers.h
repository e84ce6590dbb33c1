/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions and macros that Rust cannot call. */
#ifndef KERNEL_EXT_HELPERS_H
#define KERNEL_EXT_HELPERS_H
#include <linux/gfp.h>
#include <linux/cpumask.h>
#include <linux/idr.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>

void kernel_ext_helper_spin_lock_irq_counted(spinlock_t *lock);
bool kernel_ext_helper_spin_trylock_irq_counted(spinlock_t *lock);
void kernel_ext_helper_spin_unlock_irq_counted(spinlock_t *lock);
void kernel_ext_helper_ida_init(struct ida *ida);
struct page *kernel_ext_helper_alloc_pages(unsigned int order);
void *kernel_ext_helper_page_address(struct page *page);
bool kernel_ext_helper_cpu_possible(unsigned int cpu);
unsigned long kernel_ext_helper_per_cpu_offset(unsigned int cpu);
unsigned long kernel_ext_helper_this_cpu_offset(void);
unsigned int kernel_ext_helper_num_online_cpus(void);
bool kernel_ext_helper_irqs_disabled(void);
unsigned int kernel_ext_helper_memalloc_save(bool reserves);
void kernel_ext_helper_memalloc_restore(unsigned int flags);
bool kernel_ext_helper_may_start_io(void);
void kernel_ext_helper_global_prepare_lock(void);
void kernel_ext_helper_global_prepare_unlock(void);

#endif
