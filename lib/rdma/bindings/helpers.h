/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions and macros that Rust cannot call. */
#ifndef RDMA_RUST_HELPERS_H
#define RDMA_RUST_HELPERS_H
#include <rdma/ib_verbs.h>

bool rdma_helper_device_try_get(struct ib_device *dev);
bool rdma_helper_is_iwarp(struct ib_device *dev);
bool rdma_helper_keeps_page_offsets(struct ib_device *dev);
int rdma_helper_interface_index(const char *name);
u64 rdma_helper_ib_dma_map_page(struct ib_device *dev, struct page *page, unsigned long offset, size_t size,
				enum dma_data_direction dir);
void rdma_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
int rdma_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
void rdma_helper_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
void rdma_helper_sync_for_device(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
int rdma_helper_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents, enum dma_data_direction dir);
void rdma_helper_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents, enum dma_data_direction dir);
int rdma_helper_req_notify_cq(struct ib_cq *cq);

/* The last work request of a queue. */
struct rdma_helper_drain {
	struct ib_cqe cqe;
	struct completion done;
};

int rdma_helper_flush(struct ib_qp *qp);
int rdma_helper_post_last_recv(struct ib_qp *qp, struct rdma_helper_drain *drain, struct ib_ah *ah);
int rdma_helper_post_last_send(struct ib_qp *qp, struct rdma_helper_drain *drain, struct ib_ah *ah);
bool rdma_helper_await_last(struct rdma_helper_drain *drain, unsigned int ms);
bool rdma_helper_has_drain(struct ib_qp *qp);
void rdma_helper_drain_by_driver(struct ib_qp *qp);
void rdma_helper_sg_gather(struct scatterlist *sg, u32 count, struct ib_sge *to, u32 lkey);
void rdma_helper_sg_set_dma(struct sg_table *table, u32 index, u64 addr, u32 length);
void *rdma_helper_alloc_coherent(struct ib_device *dev, size_t size, u64 *addr);
void rdma_helper_free_coherent(struct ib_device *dev, size_t size, void *cpu, u64 addr);

/* What is known of a port. */
struct rdma_helper_port {
	u32 active_mtu;
	u32 gid_count;
	u16 pkey_count;
	u16 lid;
	bool is_active;
	bool is_infiniband;
};

int rdma_helper_query_port(struct ib_device *dev, u32 port, struct rdma_helper_port *to);
int rdma_helper_gid_at(struct ib_device *dev, u32 port, int index, u8 *gid, u32 *type);

/* Where a datagram goes. */
struct rdma_helper_peer {
	u8 gid[16];
	u32 flow_label;
	u16 lid;
	u8 port;
	u8 sl;
	u8 gid_index;
	u8 hop_limit;
	u8 traffic_class;
	bool is_global;
};

int rdma_helper_datagram_start(struct ib_qp *qp, u32 port, u16 pkey_index, u32 qkey);
int rdma_helper_datagram_restart(struct ib_qp *qp, u32 port, u16 pkey_index, u32 qkey);
int rdma_helper_set_qkey(struct ib_qp *qp, u32 qkey);
struct ib_qp *rdma_helper_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr, const char *caller);
struct ib_ah *rdma_helper_create_ah(struct ib_pd *pd, const struct rdma_helper_peer *to);
void rdma_helper_destroy_ah(struct ib_ah *ah);

#endif
