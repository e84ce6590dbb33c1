// SPDX-License-Identifier: GPL-2.0
/*
 * A fault of an RDMA device for tests: while this module is loaded, the device refuses to move a queue pair to the
 * error state, so that no user can drain one. Everything else works. Not installed.
 */

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

static char *netdev = "eth0";
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "Network interface of the RDMA device (default: eth0)");

static struct ib_device *faulty;
static int (*modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);

static int refuse_error_state(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_ERR)
		return -EIO;
	return modify_qp(qp, attr, mask, udata);
}

static int __init fault_init(void)
{
	struct net_device *interface = dev_get_by_name(&init_net, netdev);

	if (!interface)
		return -ENODEV;
	faulty = ib_device_get_by_netdev(interface, RDMA_DRIVER_UNKNOWN);
	dev_put(interface);
	if (!faulty)
		return -ENODEV;
	modify_qp = faulty->ops.modify_qp;
	WRITE_ONCE(faulty->ops.modify_qp, refuse_error_state);
	return 0;
}

static void __exit fault_exit(void)
{
	WRITE_ONCE(faulty->ops.modify_qp, modify_qp);
	/* A call that has begun may sleep in the driver, and returns to this module. */
	msleep(1000);
	ib_device_put(faulty);
}

module_init(fault_init);
module_exit(fault_exit);
MODULE_AUTHOR("The Ferrofabric developers");
MODULE_DESCRIPTION("Fault of an RDMA device that does not flush queue pairs, for tests");
MODULE_LICENSE("GPL");
