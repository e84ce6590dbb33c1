// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of C that Rust cannot call: one wrapper each. They are exported, as generic and
 * inlined functions of the crate call them from its users' modules.
 */
#include <linux/export.h>
#include <linux/sched/mm.h>
#include "helpers.h"

/*
 * How many locks of this kind the CPU holds, and whether interrupts were on before the first. The
 * last one to be released restores them, in whichever order that is. Only accessed with interrupts
 * off, by code that no interrupt can interrupt.
 */
struct irq_count {
	unsigned int locks;
	unsigned long flags;
};

static DEFINE_PER_CPU(struct irq_count, irq_count);

static void irq_count_up(void)
{
	struct irq_count *count;
	unsigned long flags;

	local_irq_save(flags);
	count = this_cpu_ptr(&irq_count);
	if (!count->locks++)
		count->flags = flags;
}

static void irq_count_down(void)
{
	struct irq_count *count = this_cpu_ptr(&irq_count);

	if (!--count->locks)
		local_irq_restore(count->flags);
}

void kernel_ext_helper_spin_lock_irq_counted(spinlock_t *lock)
{
	irq_count_up();
	spin_lock(lock);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_spin_lock_irq_counted);

bool kernel_ext_helper_spin_trylock_irq_counted(spinlock_t *lock)
{
	irq_count_up();
	if (spin_trylock(lock))
		return true;
	irq_count_down();
	return false;
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_spin_trylock_irq_counted);

void kernel_ext_helper_spin_unlock_irq_counted(spinlock_t *lock)
{
	spin_unlock(lock);
	irq_count_down();
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_spin_unlock_irq_counted);

void kernel_ext_helper_ida_init(struct ida *ida)
{
	ida_init(ida);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_ida_init);

/* A compound page: a reference to one of the pages (by a socket buffer) keeps all of them. */
struct page *kernel_ext_helper_alloc_pages(unsigned int order)
{
	if (order > MAX_PAGE_ORDER)
		return NULL;
	return alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP | __GFP_NOWARN, order);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_alloc_pages);

void *kernel_ext_helper_page_address(struct page *page)
{
	return page_address(page);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_page_address);

bool kernel_ext_helper_cpu_possible(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_possible(cpu);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_cpu_possible);

unsigned long kernel_ext_helper_per_cpu_offset(unsigned int cpu)
{
	return per_cpu_offset(cpu);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_per_cpu_offset);

unsigned long kernel_ext_helper_this_cpu_offset(void)
{
	return __my_cpu_offset;
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_this_cpu_offset);

unsigned int kernel_ext_helper_num_online_cpus(void)
{
	return num_online_cpus();
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_num_online_cpus);

/* The first user of a `Global` initialises its mutex under this one. */
static DEFINE_MUTEX(global_prepare);

void kernel_ext_helper_global_prepare_lock(void)
{
	mutex_lock(&global_prepare);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_global_prepare_lock);

void kernel_ext_helper_global_prepare_unlock(void)
{
	mutex_unlock(&global_prepare);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_global_prepare_unlock);

bool kernel_ext_helper_irqs_disabled(void)
{
	return irqs_disabled();
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_irqs_disabled);

unsigned int kernel_ext_helper_memalloc_save(bool reserves)
{
	return memalloc_flags_save(PF_MEMALLOC_NOIO | (reserves ? PF_MEMALLOC : 0));
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_memalloc_save);

void kernel_ext_helper_memalloc_restore(unsigned int flags)
{
	memalloc_flags_restore(flags);
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_memalloc_restore);

bool kernel_ext_helper_may_start_io(void)
{
	return current_gfp_context(GFP_KERNEL) & __GFP_IO;
}
EXPORT_SYMBOL_GPL(kernel_ext_helper_may_start_io);
