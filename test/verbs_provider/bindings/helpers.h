/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions and macros that Rust cannot call. */
#ifndef VERBS_PROVIDER_HELPERS_H
#define VERBS_PROVIDER_HELPERS_H

#include <linux/types.h>

struct device;
struct net_device;

struct net_device *verbs_provider_helper_find_netdev(const char *name);
void verbs_provider_helper_put_netdev(struct net_device *dev);
struct device *verbs_provider_helper_add_dma_device(const char *name, unsigned int min_align_mask);
void verbs_provider_helper_remove_dma_device(struct device *dev);
void *verbs_provider_helper_dma_to_virt(struct device *dev, u64 addr);
void verbs_provider_helper_drain(void *qp, bool is_send, int (*post)(void *qp, u64 id));

#endif
