// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs for datagrams that send exactly what the input says.
 *
 * One command a line on standard input, one answer a line on standard output: "ok ..." or "err ...". Numbers are
 * decimal or 0x..., bytes and addresses (GIDs) are hexadecimal ("-" for none). Queue pairs are small numbers.
 *
 *   open <device> <gid index> <key>                             ok <number> <queue pair> <gid>
 *   send <number> <gid> <queue pair> <key> <immediate> <bytes>  ok
 *   receive <number> <milliseconds>                             ok <queue pair> <immediate> <bytes>, or ok none
 *   barrage <number> <gid> <queue pair> <key> <count> <seed> <bytes>    ok <count>
 *   stream <number> <gid> <queue pair> <key> <count> <length>   ok <received> <microseconds>; to another one of here
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAIRS = 16, RECEIVES = 512, SENDS = 64, GRH = 40, DATAGRAM_MAX = 4096, SLOT = GRH + DATAGRAM_MAX, LINE_MAX = 1 << 14 };
enum { AHS = 8 };

struct pair {
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *receive_cq;
	struct ibv_comp_channel *channel;	/* of what is received */
	struct ibv_mr *mr;
	unsigned char *buffer;	/* the slots of receives, then one for each send */
	unsigned int sent, done;
};

static struct pair pairs[PAIRS];
static struct ibv_context *device;
static struct ibv_pd *pd;
static int gid_index;
static struct { union ibv_gid gid; struct ibv_ah *ah; } handles[AHS];

static int fail(const char *what)
{
	printf("err %s: %s\n", what, strerror(errno));
	return -1;
}

static size_t from_hex(const char *text, unsigned char *bytes, size_t max)
{
	size_t count = 0;
	unsigned int byte;

	while (count < max && text[0] != '-' && sscanf(text + 2 * count, "%2x", &byte) == 1)
		bytes[count++] = byte;
	return count;
}

static void print_hex(const unsigned char *bytes, size_t size)
{
	if (!size)
		putchar('-');
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
}

static int post_receive(struct pair *pair, unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (unsigned long)(pair->buffer + (size_t)slot * SLOT), .length = SLOT, .lkey = pair->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(pair->qp, &wr, &bad);
}

static int open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && !device; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			device = ibv_open_device(list[i]);
	if (device)
		pd = ibv_alloc_pd(device);
	return pd ? 0 : -1;
}

static int start(struct pair *pair, unsigned int qkey)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };

	if (ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static void do_open(const char *name, int index, unsigned int qkey)
{
	struct ibv_qp_init_attr init = { .cap = { SENDS, RECEIVES, 1, 1, 0 }, .qp_type = IBV_QPT_UD };
	size_t size = (size_t)SLOT * (RECEIVES + SENDS);
	union ibv_gid gid;
	int number = 0;

	while (number < PAIRS && pairs[number].qp)
		number++;
	if (number == PAIRS || (!pd && open_device(name)) || ibv_query_gid(device, 1, index, &gid)) {
		fail("open");
		return;
	}
	struct pair *pair = &pairs[number];

	gid_index = index;
	pair->buffer = calloc(1, size);
	pair->mr = pair->buffer ? ibv_reg_mr(pd, pair->buffer, size, IBV_ACCESS_LOCAL_WRITE) : NULL;
	init.send_cq = pair->send_cq = ibv_create_cq(device, SENDS, NULL, NULL, 0);
	pair->channel = ibv_create_comp_channel(device);
	init.recv_cq = pair->receive_cq = ibv_create_cq(device, RECEIVES, NULL, pair->channel, 0);
	if (pair->mr && init.send_cq && init.recv_cq)
		pair->qp = ibv_create_qp(pd, &init);
	if (!pair->qp || start(pair, qkey)) {
		fail("open");
		return;
	}
	for (unsigned int slot = 0; slot < RECEIVES; slot++)
		post_receive(pair, slot);
	printf("ok %d %u ", number, pair->qp->qp_num);
	print_hex(gid.raw, sizeof(gid));
	putchar('\n');
}

static struct ibv_ah *handle_of(const union ibv_gid *gid)
{
	int i = 0;

	while (i < AHS - 1 && handles[i].ah && memcmp(&handles[i].gid, gid, sizeof(*gid)))
		i++;
	if (!handles[i].ah || memcmp(&handles[i].gid, gid, sizeof(*gid))) {
		struct ibv_ah_attr attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 },
		};

		if (handles[i].ah)
			ibv_destroy_ah(handles[i].ah);
		handles[i].gid = *gid;
		handles[i].ah = ibv_create_ah(pd, &attr);
	}
	return handles[i].ah;
}

/* Waits until at most `left` sends are under way. */
static int reap(struct pair *pair, unsigned int left)
{
	struct ibv_wc wc;
	int count;

	while (pair->sent - pair->done > left) {
		count = ibv_poll_cq(pair->send_cq, 1, &wc);
		if (count < 0)
			return -1;
		pair->done += count;
	}
	return 0;
}

struct to {
	struct ibv_ah *ah;
	unsigned int qpn, qkey;
};

/* Sends what is in the next slot of sends. */
static int post_send(struct pair *pair, const struct to *to, const char *imm, unsigned int size)
{
	unsigned char *at = pair->buffer + (size_t)SLOT * (RECEIVES + pair->sent % SENDS);
	struct ibv_sge sge = { .addr = (unsigned long)at, .length = size, .lkey = pair->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = to->ah, .remote_qpn = to->qpn, .remote_qkey = to->qkey },
	}, *bad;

	if (imm && imm[0] != '-') {
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = htonl(strtoul(imm, NULL, 0));
	}
	if (ibv_post_send(pair->qp, &wr, &bad))
		return -1;
	pair->sent++;
	return 0;
}

static unsigned char *next_slot(struct pair *pair)
{
	return pair->buffer + (size_t)SLOT * (RECEIVES + pair->sent % SENDS);
}

static void do_send(struct pair *pair, const struct to *to, const char *imm, const char *hex)
{
	size_t size = from_hex(hex, next_slot(pair), DATAGRAM_MAX);

	if (post_send(pair, to, imm, size) || reap(pair, 0))
		fail("send");
	else
		puts("ok");
}

static void do_receive(struct pair *pair, long wait_ms)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc;
	int count;

	for (;; wait_ms--) {
		count = ibv_poll_cq(pair->receive_cq, 1, &wc);
		if (count || wait_ms <= 0)
			break;
		nanosleep(&pause, NULL);
	}
	if (count < 0 || (count && wc.status)) {
		fail("receive");
		return;
	}
	if (!count) {
		puts("ok none");
		return;
	}
	printf("ok %u ", wc.src_qp);
	if (wc.wc_flags & IBV_WC_WITH_IMM)
		printf("%u ", ntohl(wc.imm_data));
	else
		printf("- ");
	print_hex(pair->buffer + (size_t)wc.wr_id * SLOT + GRH, wc.byte_len - GRH);
	putchar('\n');
	post_receive(pair, wc.wr_id);
}

/* xorshift64*: the same numbers from the same seed on every machine. */
static unsigned int chance(unsigned long long *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1DULL >> 32;
}

/* Random bytes of any length, or a message with some bytes changed, cut off, or more. */
static unsigned int any_message(unsigned char *out, const unsigned char *message, unsigned int size,
				unsigned long long *state)
{
	unsigned int length = chance(state) % 1025, changes = chance(state) % 4;

	if (!size || chance(state) % 4 == 0) {
		for (unsigned int i = 0; i < length; i++)
			out[i] = chance(state);
		return length;
	}
	memset(out, 0, length);
	memcpy(out, message, size);
	while (changes--)
		out[chance(state) % size] = chance(state);
	return chance(state) % 4 ? size : length;
}

static void do_barrage(struct pair *pair, const struct to *to, unsigned int count, unsigned long long seed,
		       const char *hex)
{
	unsigned char message[DATAGRAM_MAX];
	unsigned int size = from_hex(hex, message, sizeof(message)), i;
	char imm[16];

	seed = seed * 2 + 1;
	for (i = 0; i < count; i++) {
		snprintf(imm, sizeof(imm), "%u", chance(&seed));
		if (reap(pair, SENDS - 1) ||
		    post_send(pair, to, chance(&seed) % 2 ? imm : "-",
			      any_message(next_slot(pair), message, size, &seed)))
			break;
	}
	if (i < count || reap(pair, 0))
		fail("barrage");
	else
		printf("ok %u\n", i);
}

/* Posts up to `count` sends of the same bytes, with one call. */
static int post_sends(struct pair *pair, const struct to *to, unsigned int count, unsigned int size)
{
	struct ibv_sge sge = { .addr = (unsigned long)next_slot(pair), .length = size, .lkey = pair->mr->lkey };
	struct ibv_send_wr wr[SENDS], *bad;

	for (unsigned int i = 0; i < count; i++)
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < count ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(i),
			.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED,
			.wr.ud = { .ah = to->ah, .remote_qpn = to->qpn, .remote_qkey = to->qkey },
		};
	return ibv_post_send(pair->qp, wr, &bad);
}

/* Takes what has come, and posts the receives again, with one call. Returns how much. */
static int take(struct pair *pair)
{
	struct ibv_recv_wr wr[SENDS], *bad;
	struct ibv_sge sge[SENDS];
	struct ibv_wc wc[SENDS];
	int count = ibv_poll_cq(pair->receive_cq, SENDS, wc);

	for (int i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){ .addr = (unsigned long)(pair->buffer + (size_t)wc[i].wr_id * SLOT),
					   .length = SLOT, .lkey = pair->mr->lkey };
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < count ? &wr[i + 1] : NULL, .wr_id = wc[i].wr_id,
					      .sg_list = &sge[i], .num_sge = 1 };
	}
	if (count > 0 && ibv_post_recv(pair->qp, wr, &bad))
		return -1;
	return count;
}

/* The same, and waits until something has come, for a second at most: who polls takes the processor from the device. */
static int await(struct pair *pair)
{
	struct pollfd event = { .fd = pair->channel->fd, .events = POLLIN };
	int count = take(pair);
	struct ibv_cq *cq;
	void *context;

	if (count)
		return count;
	if (ibv_req_notify_cq(pair->receive_cq, 0))
		return -1;
	count = take(pair);
	if (count || poll(&event, 1, 1000) <= 0)
		return count;
	if (ibv_get_cq_event(pair->channel, &cq, &context))
		return -1;
	ibv_ack_cq_events(cq, 1);
	return take(pair);
}

static unsigned long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

/* Sends datagrams to another queue pair of this program as fast as it takes them: what the device can do. */
static void do_stream(struct pair *pair, const struct to *to, unsigned int count, unsigned int size)
{
	enum { LOST_US = 1000000 };
	unsigned int sent = 0, received = 0, batch;
	unsigned long long began = now_us(), last = began;
	struct pair *end = NULL;
	struct ibv_wc wc;
	int number;

	for (int i = 0; i < PAIRS; i++)
		if (pairs[i].qp && pairs[i].qp->qp_num == to->qpn)
			end = &pairs[i];
	if (!end || size > DATAGRAM_MAX) {
		puts("err no such queue pair, or too long");
		return;
	}
	while (received < count && now_us() - last < LOST_US) {
		batch = count - sent < SENDS / 2 ? count - sent : SENDS / 2;
		/* One half is on its way while the other one is taken. */
		if (batch && sent - received <= SENDS / 2 && ibv_poll_cq(pair->send_cq, 1, &wc) >= 0) {
			if (post_sends(pair, to, batch, size))
				break;
			sent += batch;
		}
		number = await(end);
		if (number < 0)
			break;
		received += number;
		if (number)
			last = now_us();
	}
	while (ibv_poll_cq(pair->send_cq, 1, &wc) > 0)
		;
	printf("ok %u %llu\n", received, last - began);
}

static void do_line(char *line)
{
	char *words[9] = { 0 }, *rest = line;
	struct pair *pair;
	union ibv_gid gid;
	struct to to;
	int count = 0;

	while (count < 9 && (words[count] = strtok_r(rest, " \n", &rest)))
		count++;
	if (count == 4 && !strcmp(words[0], "open")) {
		do_open(words[1], atoi(words[2]), strtoul(words[3], NULL, 0));
		return;
	}
	pair = count > 1 ? &pairs[strtoul(words[1], NULL, 0) % PAIRS] : NULL;
	if (!pair || !pair->qp) {
		puts("err no such queue pair");
		return;
	}
	if (count == 3 && !strcmp(words[0], "receive")) {
		do_receive(pair, strtol(words[2], NULL, 0));
		return;
	}
	if (count < 7 || from_hex(words[2], gid.raw, sizeof(gid)) != sizeof(gid)) {
		puts("err what?");
		return;
	}
	to = (struct to){ handle_of(&gid), strtoul(words[3], NULL, 0), strtoul(words[4], NULL, 0) };
	if (!to.ah)
		fail("address");
	else if (count == 7 && !strcmp(words[0], "send"))
		do_send(pair, &to, words[5], words[6]);
	else if (count == 7 && !strcmp(words[0], "stream"))
		do_stream(pair, &to, strtoul(words[5], NULL, 0), strtoul(words[6], NULL, 0));
	else if (count == 8 && !strcmp(words[0], "barrage"))
		do_barrage(pair, &to, strtoul(words[5], NULL, 0), strtoull(words[6], NULL, 0), words[7]);
	else
		puts("err what?");
}

int main(void)
{
	static char line[LINE_MAX];

	while (fgets(line, sizeof(line), stdin)) {
		do_line(line);
		fflush(stdout);
	}
	return 0;
}
