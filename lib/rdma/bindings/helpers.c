// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of ib_core's headers that Rust cannot call: one wrapper each. They are exported, since
 * inlined Rust functions call them from the modules of their users.
 */
#include <linux/dma-mapping.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/netdevice.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/swiotlb.h>
#include <rdma/ib_cache.h>
#include "helpers.h"

bool rdma_helper_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}
EXPORT_SYMBOL_GPL(rdma_helper_device_try_get);

/* iWARP is a property of the ports; no device has it on some of them only. */
bool rdma_helper_is_iwarp(struct ib_device *dev)
{
	return rdma_protocol_iwarp(dev, rdma_start_port(dev));
}
EXPORT_SYMBOL_GPL(rdma_helper_is_iwarp);

/* Whether the offset in a page of 4 KiB, the smallest of registrations, is the same at the DMA address. */
bool rdma_helper_keeps_page_offsets(struct ib_device *dev)
{
	struct device *dma_device = dev->dma_device;

	if (ib_uses_virt_dma(dev) || !is_swiotlb_force_bounce(dma_device))
		return true;
	return (dma_get_min_align_mask(dma_device) & (SZ_4K - 1)) == SZ_4K - 1;
}
EXPORT_SYMBOL_GPL(rdma_helper_keeps_page_offsets);

/* The interface with this name in the initial network namespace; 0 if there is none. */
int rdma_helper_interface_index(const char *name)
{
	struct net_device *dev;
	int index = 0;

	rcu_read_lock();
	dev = dev_get_by_name_rcu(&init_net, name);
	if (dev)
		index = dev->ifindex;
	rcu_read_unlock();
	return index;
}
EXPORT_SYMBOL_GPL(rdma_helper_interface_index);

u64 rdma_helper_ib_dma_map_page(struct ib_device *dev, struct page *page, unsigned long offset, size_t size,
				enum dma_data_direction dir)
{
	return ib_dma_map_page(dev, page, offset, size, dir);
}
EXPORT_SYMBOL_GPL(rdma_helper_ib_dma_map_page);

void rdma_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	ib_dma_unmap_page(dev, addr, size, dir);
}
EXPORT_SYMBOL_GPL(rdma_helper_ib_dma_unmap_page);

int rdma_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}
EXPORT_SYMBOL_GPL(rdma_helper_ib_dma_mapping_error);

void rdma_helper_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}
EXPORT_SYMBOL_GPL(rdma_helper_sync_for_cpu);

void rdma_helper_sync_for_device(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}
EXPORT_SYMBOL_GPL(rdma_helper_sync_for_device);

int rdma_helper_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents, enum dma_data_direction dir)
{
	return ib_dma_map_sg(dev, sg, nents, dir);
}
EXPORT_SYMBOL_GPL(rdma_helper_map_sg);

void rdma_helper_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents, enum dma_data_direction dir)
{
	ib_dma_unmap_sg(dev, sg, nents, dir);
}
EXPORT_SYMBOL_GPL(rdma_helper_unmap_sg);

int rdma_helper_req_notify_cq(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS);
}
EXPORT_SYMBOL_GPL(rdma_helper_req_notify_cq);

static void rdma_helper_drained(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_helper_drain *drain = container_of(wc->wr_cqe, struct rdma_helper_drain, cqe);

	complete(&drain->done);
}

/* Moves the queue pair into the error state: the device flushes all posted work requests. */
int rdma_helper_flush(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}
EXPORT_SYMBOL_GPL(rdma_helper_flush);

/* Posts the last receive of a queue pair in the error state. */
int rdma_helper_post_last_recv(struct ib_qp *qp, struct rdma_helper_drain *drain, struct ib_ah *ah)
{
	struct ib_recv_wr last = { .wr_cqe = &drain->cqe };

	drain->cqe.done = rdma_helper_drained;
	init_completion(&drain->done);
	return ib_post_recv(qp, &last, NULL);
}
EXPORT_SYMBOL_GPL(rdma_helper_post_last_recv);

/* Posts the last send of a queue pair in the error state: to ah, if it sends datagrams. */
int rdma_helper_post_last_send(struct ib_qp *qp, struct rdma_helper_drain *drain, struct ib_ah *ah)
{
	struct ib_rdma_wr write = { .wr = { .wr_cqe = &drain->cqe, .opcode = IB_WR_RDMA_WRITE } };
	struct ib_ud_wr datagram = { .wr = { .wr_cqe = &drain->cqe, .opcode = IB_WR_SEND }, .ah = ah };

	drain->cqe.done = rdma_helper_drained;
	init_completion(&drain->done);
	return ib_post_send(qp, ah ? &datagram.wr : &write.wr, NULL);
}
EXPORT_SYMBOL_GPL(rdma_helper_post_last_send);

/* Waits for up to ms milliseconds; returns whether the last work request has completed. */
bool rdma_helper_await_last(struct rdma_helper_drain *drain, unsigned int ms)
{
	if (!ms)
		return try_wait_for_completion(&drain->done);
	return wait_for_completion_timeout(&drain->done, msecs_to_jiffies(ms)) != 0;
}
EXPORT_SYMBOL_GPL(rdma_helper_await_last);

/* Whether the driver has functions that drain a queue pair; they can end the work of a dead device. */
bool rdma_helper_has_drain(struct ib_qp *qp)
{
	return qp->device->ops.drain_sq && qp->device->ops.drain_rq;
}
EXPORT_SYMBOL_GPL(rdma_helper_has_drain);

void rdma_helper_drain_by_driver(struct ib_qp *qp)
{
	ib_drain_qp(qp);
}
EXPORT_SYMBOL_GPL(rdma_helper_drain_by_driver);

/* The caller ensures that sg is an array of count mapped entries, and that to has room for them. */
void rdma_helper_sg_gather(struct scatterlist *sg, u32 count, struct ib_sge *to, u32 lkey)
{
	for (; count; count--, sg++, to++) {
		to->addr = sg_dma_address(sg);
		to->length = sg_dma_len(sg);
		to->lkey = lkey;
	}
}
EXPORT_SYMBOL_GPL(rdma_helper_sg_gather);

/* An index beyond the table is ignored. */
void rdma_helper_sg_set_dma(struct sg_table *table, u32 index, u64 addr, u32 length)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(table->sgl, sg, table->nents, i) {
		if (i != index)
			continue;
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = length;
		return;
	}
}
EXPORT_SYMBOL_GPL(rdma_helper_sg_set_dma);

/* Allocates zeroed coherent memory; devices in software use its CPU address. */
void *rdma_helper_alloc_coherent(struct ib_device *dev, size_t size, u64 *addr)
{
	dma_addr_t dma;
	void *cpu;

	if (ib_uses_virt_dma(dev)) {
		cpu = alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
		*addr = (uintptr_t)cpu;
		return cpu;
	}
	cpu = dma_alloc_coherent(dev->dma_device, size, &dma, GFP_KERNEL | __GFP_NOWARN);
	*addr = dma;
	return cpu;
}
EXPORT_SYMBOL_GPL(rdma_helper_alloc_coherent);

void rdma_helper_free_coherent(struct ib_device *dev, size_t size, void *cpu, u64 addr)
{
	if (ib_uses_virt_dma(dev))
		free_pages_exact(cpu, size);
	else
		dma_free_coherent(dev->dma_device, size, cpu, addr);
}
EXPORT_SYMBOL_GPL(rdma_helper_free_coherent);

/* Makes a queue pair for datagrams ready to receive and to send. */
int rdma_helper_datagram_start(struct ib_qp *qp, u32 port, u16 pkey_index, u32 qkey)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = port, .pkey_index = pkey_index, .qkey = qkey };
	int ret;

	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTR;
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTS;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}
EXPORT_SYMBOL_GPL(rdma_helper_datagram_start);

/* Starts a queue pair for datagrams again that is in the error state, and has no work request. */
int rdma_helper_datagram_restart(struct ib_qp *qp, u32 port, u16 pkey_index, u32 qkey)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	int ret;

	ret = ib_modify_qp(qp, &attr, IB_QP_STATE);
	return ret ? ret : rdma_helper_datagram_start(qp, port, pkey_index, qkey);
}
EXPORT_SYMBOL_GPL(rdma_helper_datagram_restart);

/* What is posted stays posted. */
int rdma_helper_set_qkey(struct ib_qp *qp, u32 qkey)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTS, .qkey = qkey };

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_QKEY);
}
EXPORT_SYMBOL_GPL(rdma_helper_set_qkey);

struct ib_qp *rdma_helper_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, const char *caller)
{
	return ib_create_qp_kernel(pd, attr, caller);
}
EXPORT_SYMBOL_GPL(rdma_helper_create_qp);

int rdma_helper_query_port(struct ib_device *dev, u32 port, struct rdma_helper_port *to)
{
	struct ib_port_attr attr;
	int ret;

	ret = ib_query_port(dev, port, &attr);
	if (ret)
		return ret;
	to->active_mtu = max(ib_mtu_enum_to_int(attr.active_mtu), 0);
	to->gid_count = max(attr.gid_tbl_len, 0);
	to->pkey_count = attr.pkey_tbl_len;
	to->lid = attr.lid > U16_MAX ? 0 : attr.lid;
	to->is_active = attr.state == IB_PORT_ACTIVE;
	to->is_infiniband = rdma_cap_ib_sa(dev, port);
	return 0;
}
EXPORT_SYMBOL_GPL(rdma_helper_query_port);

/* Writes the 16 bytes of the identifier, and its type (enum ib_gid_type). */
int rdma_helper_gid_at(struct ib_device *dev, u32 port, int index, u8 *gid, u32 *type)
{
	const struct ib_gid_attr *attr = rdma_get_gid_attr(dev, port, index);

	if (IS_ERR(attr))
		return PTR_ERR(attr);
	memcpy(gid, attr->gid.raw, sizeof(attr->gid.raw));
	*type = attr->gid_type;
	rdma_put_gid_attr(attr);
	return 0;
}
EXPORT_SYMBOL_GPL(rdma_helper_gid_at);

/* Which fields there are the caller has decided. */
static void rdma_helper_ah_attr(struct ib_device *device, const struct rdma_helper_peer *to,
				struct rdma_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->type = rdma_ah_find_type(device, to->port);
	rdma_ah_set_port_num(attr, to->port);
	rdma_ah_set_sl(attr, to->sl);
	if (to->is_global) {
		rdma_ah_set_grh(attr, NULL, to->flow_label, to->gid_index, to->hop_limit, to->traffic_class);
		rdma_ah_set_dgid_raw(attr, (void *)to->gid);
	}
	if (attr->type == RDMA_AH_ATTR_TYPE_IB)
		rdma_ah_set_dlid(attr, to->lid);
}

/* rdma_create_ah() does not look up the MAC address of a RoCE peer; this one does, for the kernel too. */
struct ib_ah *rdma_helper_create_ah(struct ib_pd *pd, const struct rdma_helper_peer *to)
{
	struct rdma_ah_attr attr;

	rdma_helper_ah_attr(pd->device, to, &attr);
	return rdma_create_user_ah(pd, &attr, NULL);
}
EXPORT_SYMBOL_GPL(rdma_helper_create_ah);

void rdma_helper_destroy_ah(struct ib_ah *ah)
{
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
}
EXPORT_SYMBOL_GPL(rdma_helper_destroy_ah);
