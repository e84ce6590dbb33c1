/* SPDX-License-Identifier: GPL-2.0 */
/* Wrappers of inline functions, and of fields of `struct sock`, that Rust cannot reach. */
#ifndef NET_EXT_HELPERS_H
#define NET_EXT_HELPERS_H
#include <linux/types.h>

struct iov_iter;
struct net;
struct socket;

/* The address of a peer; the port is in the byte order of the CPU. */
struct net_ext_address {
	u8 ip[16];
	u32 scope;
	u16 port;
	bool is_v6;
};

struct net *net_ext_helper_current_net(void);
bool net_ext_helper_is_local(struct net *net, const struct net_ext_address *address);
void net_ext_helper_get_net(struct net *net);
void net_ext_helper_put_net(struct net *net);
int net_ext_helper_create(struct net *net, bool is_v6, struct socket **sock);
int net_ext_helper_connect(struct socket *sock, const struct net_ext_address *to);
int net_ext_helper_connect_result(struct socket *sock);
void net_ext_helper_keepalive(struct socket *sock, int idle_s, int interval_s, int probes);
int net_ext_helper_wait(struct socket *sock, bool to_send, unsigned int *left_ms);
int net_ext_helper_send(struct socket *sock, const void *data, size_t bytes);
int net_ext_helper_receive(struct socket *sock, void *to, size_t bytes);
int net_ext_helper_receive_iter(struct socket *sock, struct iov_iter *to, size_t bytes);
size_t net_ext_helper_iter_count(const struct iov_iter *iter);

#endif
