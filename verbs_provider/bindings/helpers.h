/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions and macros that Rust cannot call. */
#ifndef VERBS_PROVIDER_HELPERS_H
#define VERBS_PROVIDER_HELPERS_H

struct net_device;

struct net_device *verbs_provider_helper_find_netdev(const char *name);
void verbs_provider_helper_put_netdev(struct net_device *dev);

#endif
