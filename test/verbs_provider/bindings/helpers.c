// SPDX-License-Identifier: GPL-2.0
/* Inline functions of the kernel's headers that Rust cannot call: one wrapper each. */
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/iommu-dma.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
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

/*
 * Adds a platform device whose DMA addresses are physical ones, or those of bounce buffers where the machine forces them.
 * These keep the bits of min_align_mask of an address. Returns -EOPNOTSUPP where an IOMMU would translate addresses.
 */
struct device *verbs_provider_helper_add_dma_device(const char *name, unsigned int min_align_mask)
{
	struct platform_device *pdev = platform_device_register_simple(name, PLATFORM_DEVID_AUTO, NULL, 0);
	int err;

	if (IS_ERR(pdev))
		return ERR_CAST(pdev);
	err = dma_coerce_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (!err && (get_dma_ops(&pdev->dev) || use_dma_iommu(&pdev->dev)))
		err = -EOPNOTSUPP;
	if (err) {
		platform_device_unregister(pdev);
		return ERR_PTR(err);
	}
	dma_set_min_align_mask(&pdev->dev, min_align_mask);
	/* As irdma, bnxt_re and efa do. */
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	return &pdev->dev;
}

void verbs_provider_helper_remove_dma_device(struct device *dev)
{
	platform_device_unregister(to_platform_device(dev));
}

/* Returns the kernel's address of memory that is mapped at addr for a device of the function above. */
void *verbs_provider_helper_dma_to_virt(struct device *dev, u64 addr)
{
	return phys_to_virt(dma_to_phys(dev, addr));
}

/* The last work request of a queue. */
struct last_request {
	struct ib_cqe cqe;
	struct completion done;
};

static void last_request_done(struct ib_cq *cq, struct ib_wc *wc)
{
	complete(&container_of(wc->wr_cqe, struct last_request, cqe)->done);
}

/*
 * Drains the queue for sends or receives of qp as mlx5_ib_drain_sq() and mlx5_ib_drain_rq() do: post() posts the last
 * work request, also where the device has failed and takes no others. Sleeps.
 */
void verbs_provider_helper_drain(void *arg, bool is_send, int (*post)(void *qp, u64 id))
{
	struct ib_qp *qp = arg;
	struct ib_cq *cq = is_send ? qp->send_cq : qp->recv_cq;
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct last_request last = { .cqe.done = last_request_done };

	init_completion(&last.done);
	/* A device that has failed refuses it, and flushes. */
	ib_modify_qp(qp, &attr, IB_QP_STATE);
	if (WARN_ONCE(post(qp, (uintptr_t)&last.cqe), "the last work request of a queue cannot be posted\n"))
		return;
	if (cq->poll_ctx != IB_POLL_DIRECT)
		wait_for_completion(&last.done);
	else
		while (!wait_for_completion_timeout(&last.done, HZ / 10))
			ib_process_cq_direct(cq, -1);
}
