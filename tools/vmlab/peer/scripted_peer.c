// SPDX-License-Identifier: GPL-2.0
/*
 * A scripted RDMA peer: it does on reliable connections exactly what its input says, true or false.
 *
 * One command a line on standard input, one answer a line on standard output: "ok ..." or
 * "err ...". Numbers are decimal or 0x..., bytes are hexadecimal ("-" for none). Endpoints are
 * small numbers. What lies and what does not is decided by the script that drives it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENDPOINTS = 64, BUFFER_SIZE = 1 << 20, QUEUE_LEN = 1024, PRIVATE_MAX = 56, WAIT_MS = 10000, LINE_MAX = 1 << 17 };

struct endpoint {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *buffer;
};

static struct endpoint endpoints[ENDPOINTS];
static struct rdma_event_channel *channel;
static struct ibv_pd *pd;

static void answer(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

static void fail(const char *what)
{
	answer("err %s: %s", what, strerror(errno));
}

static size_t from_hex(const char *text, unsigned char *bytes, size_t max)
{
	size_t count = 0;
	unsigned int byte;

	while (count < max && sscanf(text + 2 * count, "%2x", &byte) == 1)
		bytes[count++] = byte;
	return count;
}

static void print_hex(const void *data, size_t size)
{
	const unsigned char *bytes = data;

	if (!size)
		putchar('-');
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
}

static struct endpoint *endpoint_at(long number)
{
	return number >= 0 && number < ENDPOINTS && endpoints[number].id ? &endpoints[number] : NULL;
}

static int new_endpoint(struct rdma_cm_id *id)
{
	for (int i = 0; i < ENDPOINTS; i++) {
		if (endpoints[i].id)
			continue;
		endpoints[i] = (struct endpoint){ .id = id };
		id->context = (void *)(long)i;
		return i;
	}
	return -1;
}

/* Prints "<name> <endpoint> <status> <private data>"; a connect request makes a new endpoint. */
static void print_event(struct rdma_cm_event *event)
{
	long number = (long)event->id->context;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		number = new_endpoint(event->id);
	printf("ok %s %ld %d ", rdma_event_str(event->event), number, event->status);
	print_hex(event->param.conn.private_data, event->param.conn.private_data_len);
	answer("");
}

static struct rdma_cm_event *next_event(int timeout_ms)
{
	struct pollfd descriptor = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&descriptor, 1, timeout_ms) != 1 || rdma_get_cm_event(channel, &event))
		return NULL;
	return event;
}

static void do_event(int timeout_ms)
{
	struct rdma_cm_event *event = next_event(timeout_ms);

	if (!event) {
		answer("ok none -1 0 -");
		return;
	}
	print_event(event);
	rdma_ack_cm_event(event);
}

static int expect(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(WAIT_MS);
	enum rdma_cm_event_type got;

	if (!event)
		return -1;
	got = event->event;
	rdma_ack_cm_event(event);
	errno = EPROTO;
	return got == wanted ? 0 : -1;
}

static int make_queues(struct endpoint *end)
{
	struct ibv_qp_init_attr attributes = {
		.cap = { QUEUE_LEN, QUEUE_LEN, 2, 1, 0 }, .qp_type = IBV_QPT_RC,
	};

	if (!pd && !(pd = ibv_alloc_pd(end->id->verbs)))
		return -1;
	end->cq = ibv_create_cq(end->id->verbs, 2 * QUEUE_LEN, NULL, NULL, 0);
	end->buffer = calloc(1, BUFFER_SIZE);
	if (!end->cq || !end->buffer)
		return -1;
	end->mr = ibv_reg_mr(pd, end->buffer, BUFFER_SIZE,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	attributes.send_cq = attributes.recv_cq = end->cq;
	return end->mr ? rdma_create_qp(end->id, pd, &attributes) : -1;
}

static int resolve(struct endpoint *end, const char *address, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return -1;
	if (rdma_resolve_addr(end->id, NULL, (struct sockaddr *)&to, WAIT_MS) || expect(RDMA_CM_EVENT_ADDR_RESOLVED))
		return -1;
	if (rdma_resolve_route(end->id, WAIT_MS) || expect(RDMA_CM_EVENT_ROUTE_RESOLVED))
		return -1;
	return make_queues(end);
}

static void do_open(const char *address, int port)
{
	struct rdma_cm_id *id;
	int number;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || (number = new_endpoint(id)) < 0 ||
	    resolve(&endpoints[number], address, port))
		fail("open");
	else
		answer("ok %d %#lx %#x", number, (unsigned long)endpoints[number].buffer, endpoints[number].mr->rkey);
}

static void do_listen(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct rdma_cm_id *id;
	int number;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || (number = new_endpoint(id)) < 0 ||
	    rdma_bind_addr(id, (struct sockaddr *)&at) || rdma_listen(id, 64))
		fail("listen");
	else
		answer("ok %d", number);
}

/* connect, accept: with any private data at all. */
static void do_join(struct endpoint *end, const char *hex, int is_connect)
{
	unsigned char private_data[PRIVATE_MAX];
	struct rdma_conn_param parameter = {
		.private_data = private_data, .retry_count = 7, .rnr_retry_count = 7,
		.responder_resources = 1, .initiator_depth = 1,
	};
	int status;

	parameter.private_data_len = from_hex(hex, private_data, sizeof(private_data));
	if (!is_connect && make_queues(end)) {
		fail("accept");
		return;
	}
	status = is_connect ? rdma_connect(end->id, &parameter) : rdma_accept(end->id, &parameter);
	if (status)
		fail(is_connect ? "connect" : "accept");
	else if (is_connect)
		do_event(WAIT_MS);
	else
		answer("ok %#lx %#x", (unsigned long)end->buffer, end->mr->rkey);
}

static void do_reject(struct endpoint *end, const char *hex)
{
	unsigned char private_data[PRIVATE_MAX];
	size_t size = from_hex(hex, private_data, sizeof(private_data));

	if (rdma_reject(end->id, private_data, size))
		fail("reject");
	else
		answer("ok");
}

static void do_receive(struct endpoint *end, unsigned long offset, unsigned int size, unsigned int count)
{
	struct ibv_sge piece = { (uint64_t)(unsigned long)end->buffer + offset, size, end->mr->lkey };
	struct ibv_recv_wr request = { .sg_list = &piece, .num_sge = size ? 1 : 0 }, *bad;

	while (count--) {
		request.wr_id = offset;
		errno = ibv_post_recv(end->id->qp, &request, &bad);
		if (errno) {
			fail("receive");
			return;
		}
		piece.addr += size;
		offset += size;
	}
	answer("ok");
}

/* post <endpoint> <send|write|sendinv> <offset> <size> <address> <key> <imm or -> */
static void do_post(struct endpoint *end, const char *kind, unsigned long offset, unsigned int size,
		    unsigned long address, unsigned int key, const char *imm)
{
	struct ibv_sge piece = { (uint64_t)(unsigned long)end->buffer + offset, size, end->mr->lkey };
	struct ibv_send_wr request = { .sg_list = &piece, .num_sge = size ? 1 : 0, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	int has_imm = strcmp(imm, "-");

	if (!strcmp(kind, "write")) {
		request.opcode = has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
		request.wr.rdma.remote_addr = address;
		request.wr.rdma.rkey = key;
	} else if (!strcmp(kind, "sendinv")) {
		request.opcode = IBV_WR_SEND_WITH_INV;
		request.invalidate_rkey = key;
	} else {
		request.opcode = has_imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
	}
	if (has_imm)
		request.imm_data = htonl(strtoul(imm, NULL, 0));
	errno = ibv_post_send(end->id->qp, &request, &bad);
	if (errno)
		fail("post");
	else
		answer("ok");
}

/* Prints the next completion: "<status> <opcode> <bytes> <imm> <flags> <wr_id>", or "none". */
static void do_completion(struct endpoint *end, int timeout_ms)
{
	struct ibv_wc completion;

	for (int waited = 0; waited <= timeout_ms; waited++) {
		int count = ibv_poll_cq(end->cq, 1, &completion);

		if (count < 0) {
			fail("completion");
			return;
		}
		if (count) {
			answer("ok %d %d %u %#x %d %lu", completion.status, completion.opcode, completion.byte_len,
			       ntohl(completion.imm_data), completion.wc_flags, (unsigned long)completion.wr_id);
			return;
		}
		poll(NULL, 0, 1);
	}
	answer("ok none");
}

static void do_set(struct endpoint *end, unsigned long offset, const char *hex)
{
	size_t size = offset < BUFFER_SIZE ? from_hex(hex, end->buffer + offset, BUFFER_SIZE - offset) : 0;

	answer("ok %zu", size);
}

static void do_get(struct endpoint *end, unsigned long offset, unsigned long size)
{
	if (offset > BUFFER_SIZE || size > BUFFER_SIZE - offset) {
		answer("err get: out of range");
		return;
	}
	printf("ok ");
	print_hex(end->buffer + offset, size);
	answer("");
}

#include "barrage.h"

static void obey(char *line)
{
	char *words[9] = { 0 };
	unsigned long numbers[9] = { 0 };
	struct endpoint *end;
	int count = 0;

	for (char *word = strtok(line, " \n"); word && count < 9; word = strtok(NULL, " \n")) {
		numbers[count] = strtoul(word, NULL, 0);
		words[count++] = word;
	}
	if (!count)
		return;
	end = count > 1 ? endpoint_at(numbers[1]) : NULL;
	if (!strcmp(words[0], "open") && count == 3)
		do_open(words[1], numbers[2]);
	else if (!strcmp(words[0], "listen") && count == 2)
		do_listen(numbers[1]);
	else if (!strcmp(words[0], "event") && count == 2)
		do_event(numbers[1]);
	else if (!end)
		answer("err no such command or endpoint");
	else if (!strcmp(words[0], "connect") && count == 3)
		do_join(end, words[2], 1);
	else if (!strcmp(words[0], "accept") && count == 3)
		do_join(end, words[2], 0);
	else if (!strcmp(words[0], "reject") && count == 3)
		do_reject(end, words[2]);
	else if (!strcmp(words[0], "receive") && count == 5)
		do_receive(end, numbers[2], numbers[3], numbers[4]);
	else if (!strcmp(words[0], "post") && count == 8)
		do_post(end, words[2], numbers[3], numbers[4], numbers[5], numbers[6], words[7]);
	else if (!strcmp(words[0], "completion") && count == 3)
		do_completion(end, numbers[2]);
	else if (!strcmp(words[0], "set") && count == 4)
		do_set(end, numbers[2], words[3]);
	else if (!strcmp(words[0], "get") && count == 4)
		do_get(end, numbers[2], numbers[3]);
	else if (!strcmp(words[0], "barrage") && count == 5)
		do_barrage(end, numbers[2], numbers[3], numbers[4]);
	else if (!strcmp(words[0], "disconnect") && count == 2)
		answer(rdma_disconnect(end->id) ? "err disconnect" : "ok");
	else
		answer("err no such command");
}

int main(void)
{
	static char line[LINE_MAX];

	channel = rdma_create_event_channel();
	if (!channel) {
		fail("event channel");
		return 1;
	}
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	return 0;
}
