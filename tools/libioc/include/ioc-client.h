/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of iocatcher's client, for objects of rioc: libioc-client.so. The manual is libioc(3).
 *
 * An object is named by two numbers, and is there once it was written or created. What was never written is
 * zeroes. Functions that return a number return -1 when they fail, and set errno; a line on the standard error
 * says why. All of them but ioc_client_fini may be called by several threads at once.
 */
#ifndef IOC_CLIENT_H
#define IOC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ioc_client_s ioc_client_t;

/* Uses the session of rioc_client that has a path to this address, or that RIOC_SESSION names; NULL: there is none.
 * The port is that of the session. */
ioc_client_t *ioc_client_init(const char *ip, const char *port);
/* Ends a client, and its ranges. */
void ioc_client_fini(ioc_client_t *client);

/* Read and write `size` bytes; return 0, and not the size. */
ssize_t ioc_client_obj_read(ioc_client_t *client, int64_t high, int64_t low, void *buffer, size_t size, size_t offset);
ssize_t ioc_client_obj_write(ioc_client_t *client, int64_t high, int64_t low, const void *buffer, size_t size,
			     size_t offset);
/* Writes back to the files of the store, if it has some; size 0: all. Returns 0. */
int ioc_client_obj_flush(ioc_client_t *client, int64_t high, int64_t low, uint64_t offset, uint64_t size);
/* Makes an object; one that is there stays. Returns 0. */
int ioc_client_obj_create(ioc_client_t *client, int64_t high, int64_t low);
/* Copies by reference, to the same place; size 0: all, in place of the destination. Returns 0. */
int ioc_client_obj_cow(ioc_client_t *client, int64_t orig_high, int64_t orig_low, int64_t dest_high, int64_t dest_low,
		       bool allow_exist, size_t offset, size_t size);

/* Registers bytes for reading, or for one writer; returns an identifier above 0. */
int32_t ioc_client_obj_range_register(ioc_client_t *client, int64_t high, int64_t low, size_t offset, size_t size,
				      bool write);
/* Ends it; all numbers are those that it was registered with. Returns 0. */
int ioc_client_obj_range_unregister(ioc_client_t *client, int32_t id, int64_t high, int64_t low, size_t offset,
				    size_t size, bool write);

/* Asks the server `cnt` times for an answer, and prints the rate. The sizes are not used. */
void ioc_client_ping_pong(ioc_client_t *client, int cnt, size_t eager_size, size_t rdma_size);
/* The name of the transport. */
const char *ioc_client_provider_name(ioc_client_t *client);
/* Is taken, and changes nothing. */
void ioc_client_set_passive_wait(ioc_client_t *client, bool value);

#ifdef __cplusplus
}
#endif

#endif
