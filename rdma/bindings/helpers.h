/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions and macros that Rust cannot call. */
#ifndef RDMA_RUST_HELPERS_H
#define RDMA_RUST_HELPERS_H
#include <rdma/ib_verbs.h>

bool rdma_helper_device_try_get(struct ib_device *dev);
bool rdma_helper_is_iwarp(struct ib_device *dev);
u64 rdma_helper_ib_dma_map_page(struct ib_device *dev, struct page *page, unsigned long offset, size_t size,
				enum dma_data_direction dir);
void rdma_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
int rdma_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
void rdma_helper_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
void rdma_helper_sync_for_device(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
int rdma_helper_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents, enum dma_data_direction dir);
void rdma_helper_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents, enum dma_data_direction dir);
void rdma_helper_cq_wake(struct ib_cq *cq, ib_comp_handler handler, void *context);
int rdma_helper_req_notify_cq(struct ib_cq *cq);
#define RDMA_HELPER_DRAIN_MAX 16U
void rdma_helper_drain_qps(struct ib_qp **qps, unsigned int count);
void rdma_helper_sg_gather(struct scatterlist *sg, u32 count, struct ib_sge *to, u32 lkey);
void rdma_helper_sg_set_dma(struct sg_table *table, u32 index, u64 addr, u32 length);
void *rdma_helper_alloc_coherent(struct ib_device *dev, size_t size, u64 *addr);
void rdma_helper_free_coherent(struct ib_device *dev, size_t size, void *cpu, u64 addr);

#endif
