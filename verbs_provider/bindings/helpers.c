// SPDX-License-Identifier: GPL-2.0
/* Inline functions of the kernel's headers that Rust cannot call: one wrapper each. */
#include <linux/netdevice.h>
#include <net/net_namespace.h>
#include "helpers.h"

/* Returns a reference to the network device of this name in the first namespace, or NULL. */
struct net_device *verbs_provider_helper_find_netdev(const char *name)
{
	return dev_get_by_name(&init_net, name);
}

void verbs_provider_helper_put_netdev(struct net_device *dev)
{
	dev_put(dev);
}
