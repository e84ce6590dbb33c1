// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions of C, and fields of `struct sock`, that Rust cannot reach. They are exported, as
 * generic and inlined functions of the crate call them from its users' modules.
 *
 * No call of this file blocks in the socket: each passes MSG_DONTWAIT or O_NONBLOCK, and tasks wait
 * in net_ext_helper_wait(), where only a fatal signal interrupts them.
 */
#include <linux/export.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>
#include "helpers.h"

struct net *net_ext_helper_current_net(void)
{
	return get_net(current->nsproxy->net_ns);
}
EXPORT_SYMBOL_GPL(net_ext_helper_current_net);

void net_ext_helper_get_net(struct net *net)
{
	get_net(net);
}
EXPORT_SYMBOL_GPL(net_ext_helper_get_net);

void net_ext_helper_put_net(struct net *net)
{
	put_net(net);
}
EXPORT_SYMBOL_GPL(net_ext_helper_put_net);

/*
 * A TCP socket that keeps its namespace, does not delay small segments, and whose allocations do
 * not wait for a file system.
 */
int net_ext_helper_create(struct net *net, bool is_v6, struct socket **sock)
{
	struct sock *sk;
	int ret;

	ret = sock_create_kern(net, is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM, IPPROTO_TCP, sock);
	if (ret)
		return ret;
	sk = (*sock)->sk;
	sk_net_refcnt_upgrade(sk);
	sk->sk_allocation = GFP_NOFS;
	sk->sk_use_task_frag = false;
	tcp_sock_set_nodelay(sk);
	return 0;
}
EXPORT_SYMBOL_GPL(net_ext_helper_create);

/* Begins to connect; -EINPROGRESS if the peer has not answered yet. */
int net_ext_helper_connect(struct socket *sock, const struct net_ext_address *to)
{
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(to->port), .sin6_scope_id = to->scope,
	};
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(to->port) };

	if (to->is_v6) {
		memcpy(&v6.sin6_addr, to->ip, sizeof(v6.sin6_addr));
		return kernel_connect(sock, (struct sockaddr_unsized *)&v6, sizeof(v6), O_NONBLOCK);
	}
	memcpy(&v4.sin_addr, to->ip, sizeof(v4.sin_addr));
	return kernel_connect(sock, (struct sockaddr_unsized *)&v4, sizeof(v4), O_NONBLOCK);
}
EXPORT_SYMBOL_GPL(net_ext_helper_connect);

/* The result of a connect that has ended: 0, or the error, which is cleared. */
int net_ext_helper_connect_result(struct socket *sock)
{
	int ret = sock_error(sock->sk);

	if (ret)
		return ret;
	return READ_ONCE(sock->sk->sk_state) == TCP_ESTABLISHED ? 0 : -ENOTCONN;
}
EXPORT_SYMBOL_GPL(net_ext_helper_connect_result);

void net_ext_helper_keepalive(struct socket *sock, int idle_s, int interval_s, int probes)
{
	tcp_sock_set_keepidle(sock->sk, idle_s);
	tcp_sock_set_keepintvl(sock->sk, interval_s);
	tcp_sock_set_keepcnt(sock->sk, probes);
	sock_set_keepalive(sock->sk);
}
EXPORT_SYMBOL_GPL(net_ext_helper_keepalive);

/*
 * Sockets wake interruptible sleepers only, and one that other signals than fatal ones cannot
 * interrupt is not among them: hence this function, which ignores the mode.
 */
static int net_ext_wake(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	return default_wake_function(entry, TASK_NORMAL, flags, key);
}

/*
 * Waits until the socket can send, or has something to receive, or has failed. Returns -ETIMEDOUT
 * after *left_ms milliseconds, -ERESTARTSYS on a fatal signal; updates *left_ms.
 *
 * Who waits for more has received all that has come. If that is not acknowledged yet, the peer is
 * told now: one that has not switched Nagle's algorithm off holds the end of its answer back until
 * then, and the timer of a delayed acknowledgement runs for 40 ms. An answer that comes whole costs
 * no packet of its own: who only looks whether there is something, with no time left, waits for no
 * more.
 */
int net_ext_helper_wait(struct socket *sock, bool to_send, unsigned int *left_ms)
{
	__poll_t events = EPOLLERR | EPOLLHUP | (to_send ? EPOLLOUT : EPOLLIN | EPOLLRDHUP);
	long left = msecs_to_jiffies(*left_ms);
	DEFINE_WAIT_FUNC(entry, net_ext_wake);
	int ret = 0;

	if (!to_send && left && inet_csk_ack_scheduled(sock->sk))
		tcp_sock_set_quickack(sock->sk, 1);
	add_wait_queue(&sock->wq.wait, &entry);
	for (;;) {
		set_current_state(TASK_KILLABLE);
		if (READ_ONCE(sock->ops)->poll(NULL, sock, NULL) & events)
			break;
		ret = fatal_signal_pending(current) ? -ERESTARTSYS : left ? 0 : -ETIMEDOUT;
		if (ret)
			break;
		left = schedule_timeout(left);
	}
	__set_current_state(TASK_RUNNING);
	remove_wait_queue(&sock->wq.wait, &entry);
	*left_ms = jiffies_to_msecs(left);
	return ret;
}
EXPORT_SYMBOL_GPL(net_ext_helper_wait);

/* Whether an address is one of the namespace itself. Does not sleep. */
bool net_ext_helper_is_local(struct net *net, const struct net_ext_address *address)
{
	struct in6_addr v6;
	__be32 v4;

	if (address->is_v6) {
		memcpy(&v6, address->ip, sizeof(v6));
		return ipv6_chk_addr(net, &v6, NULL, 0);
	}
	memcpy(&v4, address->ip, sizeof(v4));
	return inet_addr_type(net, v4) == RTN_LOCAL;
}
EXPORT_SYMBOL_GPL(net_ext_helper_is_local);

int net_ext_helper_send(struct socket *sock, const void *data, size_t bytes)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec part = { .iov_base = (void *)data, .iov_len = bytes };

	return kernel_sendmsg(sock, &msg, &part, 1, bytes);
}
EXPORT_SYMBOL_GPL(net_ext_helper_send);

int net_ext_helper_receive(struct socket *sock, void *to, size_t bytes)
{
	struct msghdr msg = { };
	struct kvec part = { .iov_base = to, .iov_len = bytes };

	return kernel_recvmsg(sock, &msg, &part, 1, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}
EXPORT_SYMBOL_GPL(net_ext_helper_receive);

/* Receives up to so many bytes, and advances the iterator by what was received. */
int net_ext_helper_receive_iter(struct socket *sock, struct iov_iter *to, size_t bytes)
{
	struct msghdr msg = { .msg_iter = *to };
	int ret;

	iov_iter_truncate(&msg.msg_iter, bytes);
	ret = sock_recvmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (ret > 0)
		iov_iter_advance(to, ret);
	return ret;
}
EXPORT_SYMBOL_GPL(net_ext_helper_receive_iter);

size_t net_ext_helper_iter_count(const struct iov_iter *iter)
{
	return iov_iter_count(iter);
}
EXPORT_SYMBOL_GPL(net_ext_helper_iter_count);
