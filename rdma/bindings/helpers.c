// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of ib_core's headers that Rust cannot call: one wrapper each. They are exported, since
 * inlined Rust functions call them from the modules of their users.
 */
#include <linux/dma-mapping.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/scatterlist.h>
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

/* The core never arms a queue of IB_POLL_DIRECT; its handler only prints a warning. */
void rdma_helper_cq_wake(struct ib_cq *cq, ib_comp_handler handler, void *context)
{
	cq->cq_context = context;
	cq->comp_handler = handler;
}
EXPORT_SYMBOL_GPL(rdma_helper_cq_wake);

int rdma_helper_req_notify_cq(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS);
}
EXPORT_SYMBOL_GPL(rdma_helper_req_notify_cq);

struct rdma_helper_drain {
	struct ib_cqe cqe;
	struct completion done;
};

static void rdma_helper_drained(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rdma_helper_drain *drain = container_of(wc->wr_cqe, struct rdma_helper_drain, cqe);

	complete(&drain->done);
}

static int rdma_helper_drain_recv(struct ib_qp *qp, struct rdma_helper_drain *drain)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_recv_wr last = { .wr_cqe = &drain->cqe };

	drain->cqe.done = rdma_helper_drained;
	init_completion(&drain->done);
	return ib_modify_qp(qp, &attr, IB_QP_STATE) ?: ib_post_recv(qp, &last, NULL);
}

static int rdma_helper_drain_send(struct ib_qp *qp, struct rdma_helper_drain *drain)
{
	struct ib_rdma_wr last = { .wr = { .wr_cqe = &drain->cqe, .opcode = IB_WR_RDMA_WRITE } };

	reinit_completion(&drain->done);
	return ib_post_send(qp, &last.wr, NULL);
}

static void rdma_helper_await_drain(struct ib_cq *cq, struct rdma_helper_drain *drain)
{
	unsigned int looks;

	if (cq->poll_ctx != IB_POLL_DIRECT) {
		wait_for_completion(&drain->done);
		return;
	}
	for (looks = 0; ; looks++) {
		ib_process_cq_direct(cq, -1);
		if (try_wait_for_completion(&drain->done))
			return;
		/* Usually the device has flushed all requests by then. */
		if (looks < 20)
			usleep_range(20, 50);
		else if (wait_for_completion_timeout(&drain->done, 1))
			return;
	}
}

/*
 * Drains up to RDMA_HELPER_DRAIN_MAX queue pairs concurrently: all enter the error state before the first is
 * waited for. Receives are drained first, as their handlers may post sends. Unlike this, ib_drain_qp()
 *
 *  - drains one after the other,
 *  - and sleeps a tenth of a second before it polls a completion queue without interrupts (mlx5, mlx4 and
 *    hns use their own functions, which can end the work of a dead device).
 *
 * ib_drain_qp() drains a queue pair whose device rejects the last request.
 */
void rdma_helper_drain_qps(struct ib_qp **qps, unsigned int count)
{
	struct rdma_helper_drain drains[RDMA_HELPER_DRAIN_MAX];
	unsigned long refused = 0;
	unsigned int i;

	count = min(count, RDMA_HELPER_DRAIN_MAX);
	for (i = 0; i < count; i++)
		if (rdma_helper_drain_recv(qps[i], &drains[i]))
			refused |= BIT(i);
	for (i = 0; i < count; i++)
		if (!(refused & BIT(i)))
			rdma_helper_await_drain(qps[i]->recv_cq, &drains[i]);
	for (i = 0; i < count; i++)
		if (!(refused & BIT(i)) && rdma_helper_drain_send(qps[i], &drains[i]))
			refused |= BIT(i);
	for (i = 0; i < count; i++)
		if (!(refused & BIT(i)))
			rdma_helper_await_drain(qps[i]->send_cq, &drains[i]);
	for (i = 0; i < count; i++)
		if (refused & BIT(i))
			ib_drain_qp(qps[i]);
}
EXPORT_SYMBOL_GPL(rdma_helper_drain_qps);

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
