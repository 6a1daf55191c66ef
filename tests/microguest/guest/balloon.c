/* balloon: pages given to a virtio-balloon device and taken back, or reported as free. A page that was given or reported reads
 * as zeros from then on, and keeps what is written to it afterwards. Whenever the device asks for statistics, it gets the next
 * ones. */

#include "apic.h"
#include "channel.h"
#include "checksum.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "mmio.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

#define BALLOON_TYPE 5
#define STATISTICS_FEATURE (1 << 1)
#define REPORTING_FEATURE (1 << 5)
#define INFLATE 0
#define DEFLATE 1
#define STATISTICS 2
#define REPORTING 3
#define CONFIG_ACTUAL 4

#define PAGE_SIZE 4096
#define FIRST_PAGE 0x1000 /* at 16 MiB */
#define PAGES 64
#define LARGEST 8

/* What it says is free follows from what it says is there: as `BalloonWork::free_of` of src/balloon.rs has it. */
#define TAG_FREE 4
#define TAG_TOTAL 5

struct statistic {
	u16 tag;
	u64 value;
} __attribute__((packed));

static struct channel inflate, deflate, statistics, reporting;
static struct statistic said[2];
static u64 times_said;
static u32 numbers[LARGEST];
/* By page: what its words were made of, or 0 for zeros. */
static u64 seeds[PAGES];

/* The first and the last word are enough: a page is given whole. */
static volatile u64 *word_of(u64 page, int last)
{
	return (volatile u64 *)((FIRST_PAGE + page) * PAGE_SIZE + (last ? PAGE_SIZE - sizeof(u64) : 0));
}

static void fill(u64 page, u64 seed)
{
	seeds[page] = seed;
	for (int last = 0; last < 2; last++)
		*word_of(page, last) = word_at(page * 2 + last, seed);
}

static void check_all(void)
{
	for (u64 page = 0; page < PAGES; page++)
		for (int last = 0; last < 2; last++) {
			u64 found = *word_of(page, last);

			if (found != (seeds[page] ? word_at(page * 2 + last, seeds[page]) : 0))
				give_up(FAILURE_CONTENT, found);
		}
}

static void say_statistics(void)
{
	times_said++;
	said[0] = (struct statistic){TAG_FREE, word_at(times_said, 0)};
	said[1] = (struct statistic){TAG_TOTAL, times_said};
	channel_offer(&statistics, said, sizeof said, 0);
}

/* The device has given the last ones back: it wants others. */
static int is_asked(void)
{
	u32 length;

	return channel_is_done(&statistics, &length);
}

static void report_free(u64 first, u64 count)
{
	void *pages = (void *)((FIRST_PAGE + first) * PAGE_SIZE);

	channel_pass(&reporting, pages, count * PAGE_SIZE, DESCRIPTOR_WRITE);
	check_all();
}

static void give(const struct virtio *virtio, u64 count)
{
	channel_pass(&inflate, numbers, count * sizeof *numbers, 0);
	write32(virtio->device + CONFIG_ACTUAL, count);
	check_all();
	channel_pass(&deflate, numbers, count * sizeof *numbers, 0);
	write32(virtio->device + CONFIG_ACTUAL, 0);
}

static u64 give_and_take(const struct virtio *virtio, u64 rounds, u64 draw)
{
	u64 pages = 0;

	for (; rounds; rounds--) {
		u64 first, count;

		draw = next_draw(draw);
		count = 1 + (u32)draw % LARGEST;
		first = (draw >> 32) % (PAGES - LARGEST);
		for (u64 at = 0; at < count; at++) {
			numbers[at] = FIRST_PAGE + first + at;
			seeds[first + at] = 0;
		}
		if (draw >> 31 & 1)
			report_free(first, count);
		else
			give(virtio, count);
		for (u64 at = 0; at < count; at++)
			fill(first + at, draw);
		virtio_check(virtio);
		check_all();
		if (is_asked())
			say_statistics();
		pages += count;
	}
	return pages;
}

void command_balloon(const char *command)
{
	struct virtio virtio = virtio_find(BALLOON_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 required = VIRTIO_VERSION_1 | STATISTICS_FEATURE | REPORTING_FEATURE;
	u64 features = virtio_agree(&virtio, required, wanted), pages;

	apic_enable();
	for (u64 page = 0; page < PAGES; page++)
		fill(page, page + 1);
	channel_open(&virtio, INFLATE, &inflate, features);
	channel_open(&virtio, DEFLATE, &deflate, features);
	channel_open(&virtio, STATISTICS, &statistics, features);
	channel_open(&virtio, REPORTING, &reporting, features);
	virtio_go(&virtio);
	say_statistics();
	pages = give_and_take(&virtio, setting(command, "rounds", 16), setting(command, "seed", 1));
	/* The device asks when it likes, which may be after all else. */
	while (times_said <= setting(command, "asked", 0)) {
		while (!is_asked())
			wait_for_any_interrupt();
		say_statistics();
		virtio_check(&virtio);
	}
	virtio_stop(&virtio);
	say("balloon: ");
	say_number(pages);
	say(" pages\n");
}
