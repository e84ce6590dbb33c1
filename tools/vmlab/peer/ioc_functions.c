/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Uses all functions of ioc-client.h, and says what was not as it should be.
 *
 *     ioc_functions all SERVER               each of them, with a store that is empty
 *     ioc_functions hold SERVER              registers 5:5 for writing, says so, and writes until it fails
 *     ioc_functions excluded SERVER          what another session gets meanwhile
 *     ioc_functions fails_to_copy SERVER     copies for ever what another session has for itself
 *     ioc_functions writes_there SERVER      writes where that one copies to
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ioc-client.h"

#define LARGE (3 << 20)
#define THREADS 4

static int failures;

#define EQ(got, wanted) equal(__LINE__, #got, (long long)(got), (long long)(wanted))

static void equal(int line, const char *what, long long got, long long wanted)
{
	if (got == wanted)
		return;
	printf("line %d: %s is %lld and not %lld (errno %d)\n", line, what, got, wanted, errno);
	failures++;
}

static int filled(const char *bytes, size_t size, char with)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != with)
			return 0;
	return 1;
}

static void bytes_and_holes(ioc_client_t *client, char *bytes)
{
	/* What is not there is zeroes, and is not made by a read. */
	memset(bytes, 7, LARGE);
	EQ(ioc_client_obj_read(client, 1, 1, bytes, 16384, 0), 0);
	EQ(filled(bytes, 16384, 0), 1);
	EQ(ioc_client_obj_cow(client, 1, 1, 1, 2, true, 0, 0), -1);
	EQ(errno, ENOENT);
	EQ(ioc_client_obj_flush(client, 1, 1, 0, 0), 0);
	EQ(ioc_client_obj_create(client, 1, 1), 0);
	EQ(ioc_client_obj_create(client, 1, 1), 0);
	EQ(ioc_client_obj_write(client, 1, 1, bytes, 0, 0), 0);
	/* All sizes, also over what was two segments of iocatcher. */
	memset(bytes, 'a', LARGE);
	EQ(ioc_client_obj_write(client, 1, 1, bytes, LARGE, 100), 0);
	EQ(ioc_client_obj_write(client, 1, 1, "xyz", 3, (8 << 20) - 1), 0);
	memset(bytes, 7, LARGE);
	EQ(ioc_client_obj_read(client, 1, 1, bytes, LARGE, 0), 0);
	EQ(filled(bytes, 100, 0) && filled(bytes + 100, LARGE - 100, 'a'), 1);
	EQ(ioc_client_obj_read(client, 1, 1, bytes, 16384, (8 << 20) - 8192), 0);
	EQ(filled(bytes, 8191, 0) && !memcmp(bytes + 8191, "xyz", 3) && filled(bytes + 8194, 8190, 0), 1);
	EQ(ioc_client_obj_read(client, 1, 1, bytes, 1, 1UL << 50), -1);
	EQ(ioc_client_obj_read(client, 1, 1, NULL, 1, 0), -1);
	EQ(errno, EFAULT);
	EQ(ioc_client_obj_flush(client, 1, 1, 0, 0), 0);
	EQ(ioc_client_obj_flush(client, 1, 1, 4096, 100), 0);
	/* Names are any numbers. */
	EQ(ioc_client_obj_write(client, -1, INT64_MIN, "neg", 3, 0), 0);
	EQ(ioc_client_obj_read(client, -1, INT64_MIN, bytes, 4, 0), 0);
	EQ(memcmp(bytes, "neg", 4), 0);
}

static void copies(ioc_client_t *client, char *bytes)
{
	EQ(ioc_client_obj_cow(client, 1, 1, 2, 2, false, 0, 0), 0);
	EQ(ioc_client_obj_cow(client, 1, 1, 2, 2, false, 0, 0), -1);
	EQ(errno, EEXIST);
	EQ(ioc_client_obj_write(client, 1, 1, "b", 1, 100), 0);
	EQ(ioc_client_obj_read(client, 2, 2, bytes, 1, 100), 0);
	EQ(bytes[0], 'a');
	/* A range, over what is there, and with edges that are no blocks. */
	EQ(ioc_client_obj_cow(client, 1, 1, 3, 3, false, 50, 5000), 0);
	EQ(ioc_client_obj_cow(client, 1, 1, 3, 3, false, 50, 5000), -1);
	EQ(ioc_client_obj_cow(client, 9, 9, 3, 4, true, 50, 5000), -1);
	/* One that fails leaves no destination. */
	EQ(ioc_client_obj_cow(client, 1, 1, 5, 5, false, 1UL << 50, 10), -1);
	EQ(ioc_client_obj_cow(client, 1, 1, 5, 5, false, 0, 10), 0);
	EQ(ioc_client_obj_cow(client, 1, 1, 6, 6, true, 1UL << 50, 10), -1);
	EQ(ioc_client_obj_cow(client, 1, 1, 6, 6, false, 0, 0), 0);
	EQ(ioc_client_obj_read(client, 3, 3, bytes, 6000, 0), 0);
	EQ(filled(bytes, 100, 0) && bytes[100] == 'b' && filled(bytes + 101, 4949, 'a'), 1);
	EQ(filled(bytes + 5050, 950, 0), 1);
	EQ(ioc_client_obj_cow(client, 2, 2, 3, 3, true, 100, 1), 0);
	EQ(ioc_client_obj_read(client, 3, 3, bytes, 2, 100), 0);
	EQ(filled(bytes, 2, 'a'), 1);
}

static void ranges(ioc_client_t *client)
{
	int32_t one = ioc_client_obj_range_register(client, 4, 4, 0, 8192, false);
	int32_t two = ioc_client_obj_range_register(client, 4, 4, 4096, 8192, false);

	EQ(one > 0 && two > one, 1);
	EQ(ioc_client_obj_range_register(client, 4, 4, 0, 10, true), -1);
	EQ(errno, EBUSY);
	EQ(ioc_client_obj_range_unregister(client, one, 4, 4, 0, 8192, true), -1);
	EQ(ioc_client_obj_range_unregister(client, one, 4, 4, 0, 8191, false), -1);
	EQ(ioc_client_obj_range_unregister(client, two + 1, 4, 4, 0, 8192, false), -1);
	EQ(ioc_client_obj_range_unregister(client, one, 4, 4, 0, 8192, false), 0);
	EQ(ioc_client_obj_range_unregister(client, one, 4, 4, 0, 8192, false), -1);
	EQ(ioc_client_obj_range_unregister(client, two, 4, 4, 4096, 8192, false), 0);
	one = ioc_client_obj_range_register(client, 4, 4, 0, 8192, true);
	EQ(one > two, 1);
	EQ(ioc_client_obj_write(client, 4, 4, "in", 2, 0), 0);
	EQ(ioc_client_obj_write(client, 4, 4, "out", 3, 8190), 0);
	EQ(ioc_client_obj_range_register(client, 4, 4, 0, 0, true), -1);
	EQ(ioc_client_obj_range_unregister(client, one, 4, 4, 0, 8192, true), 0);
}

static ioc_client_t *shared;

static void *writes_and_reads(void *number)
{
	size_t at = (size_t)number * 200000;
	char *bytes = malloc(200000);

	for (char round = 'A'; round < 'A' + 5; round++) {
		memset(bytes, round, 200000);
		EQ(ioc_client_obj_write(shared, 6, 6, bytes, 200000, at), 0);
		memset(bytes, 0, 200000);
		EQ(ioc_client_obj_read(shared, 6, 6, bytes, 200000, at), 0);
		EQ(filled(bytes, 200000, round), 1);
	}
	free(bytes);
	return NULL;
}

static void threads(ioc_client_t *client)
{
	pthread_t all[THREADS];

	shared = client;
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&all[i], NULL, writes_and_reads, (void *)i);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
}

static void all(ioc_client_t *client)
{
	char *bytes = malloc(LARGE);

	EQ(strcmp(ioc_client_provider_name(client), "rtrs"), 0);
	ioc_client_set_passive_wait(client, false);
	ioc_client_ping_pong(client, 10, 100, 100000);
	bytes_and_holes(client, bytes);
	copies(client, bytes);
	ranges(client);
	threads(client);
	free(bytes);
}

static void hold(ioc_client_t *client)
{
	int32_t id = ioc_client_obj_range_register(client, 5, 5, 0, 4096, true);

	EQ(id > 0, 1);
	puts("held");
	fflush(stdout);
	while (ioc_client_obj_write(client, 5, 5, "mine", 4, 0) == 0)
		usleep(100000);
	printf("lost, errno %d\n", errno);
	EQ(ioc_client_obj_range_unregister(client, id, 5, 5, 0, 4096, true), -1);
}

static void excluded(ioc_client_t *client)
{
	char bytes[4];

	EQ(ioc_client_obj_read(client, 5, 5, bytes, 4, 0), -1);
	EQ(errno, EBUSY);
	EQ(ioc_client_obj_write(client, 5, 5, "they", 4, 4092), -1);
	EQ(errno, EBUSY);
	EQ(ioc_client_obj_range_register(client, 5, 5, 4095, 1, false), -1);
	EQ(ioc_client_obj_write(client, 5, 5, "they", 4, 4096), 0);
}

/* Copies to a new object, of one that another session has for itself: each copy fails. */
static void fails_to_copy(ioc_client_t *client)
{
	for (;;)
		ioc_client_obj_cow(client, 7, 1, 7, 2, false, 0, 6);
}

/* Writes that object and reads what was acknowledged; nobody else writes it. */
static void writes_there(ioc_client_t *client)
{
	char bytes[4];
	int done = 0;

	for (int i = 0; i < 100 && !failures; i++) {
		if (ioc_client_obj_write(client, 7, 2, "mine", 4, 0) < 0) {
			EQ(errno, EBUSY);	/* The other one is at it. */
			continue;
		}
		memset(bytes, 0, 4);
		/* Busy again only if it has begun anew, which it cannot as the object is there. */
		while (ioc_client_obj_read(client, 7, 2, bytes, 4, 0) < 0 && errno == EBUSY)
			;
		EQ(memcmp(bytes, "mine", 4), 0);
		done++;
		/* There copies do nothing. */
		while (system("rioc rm dd 7:2 2>/dev/null"))
			;
	}
	EQ(done > 0, 1);
}

int main(int argc, char **argv)
{
	ioc_client_t *client;

	if (argc != 3)
		return 2;
	client = ioc_client_init(argv[2], "8556");
	if (!client) {
		printf("no client, errno %d\n", errno);
		return 3;
	}
	if (!strcmp(argv[1], "all"))
		all(client);
	else if (!strcmp(argv[1], "hold"))
		hold(client);
	else if (!strcmp(argv[1], "fails_to_copy"))
		fails_to_copy(client);
	else if (!strcmp(argv[1], "writes_there"))
		writes_there(client);
	else
		excluded(client);
	ioc_client_fini(client);
	printf("%d failures\n", failures);
	return failures != 0;
}
