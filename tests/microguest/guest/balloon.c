/* balloon: pages given to a virtio-balloon device and taken back. A page that was given reads as zeros from then on, and
 * keeps what is written to it after it was taken back. */

#include "apic.h"
#include "channel.h"
#include "checksum.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "mmio.h"
#include "report.h"
#include "settings.h"

#define BALLOON_TYPE 5
#define INFLATE 0
#define DEFLATE 1
#define CONFIG_ACTUAL 4

#define PAGE_SIZE 4096
#define FIRST_PAGE 0x1000 /* at 16 MiB */
#define PAGES 64
#define LARGEST 8

static struct channel inflate, deflate;
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
		channel_pass(&inflate, numbers, count * sizeof *numbers, 0);
		write32(virtio->device + CONFIG_ACTUAL, count);
		check_all();
		channel_pass(&deflate, numbers, count * sizeof *numbers, 0);
		write32(virtio->device + CONFIG_ACTUAL, 0);
		for (u64 at = 0; at < count; at++)
			fill(first + at, draw);
		virtio_check(virtio);
		check_all();
		pages += count;
	}
	return pages;
}

void command_balloon(const char *command)
{
	struct virtio virtio = virtio_find(BALLOON_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1, wanted), pages;

	apic_enable();
	for (u64 page = 0; page < PAGES; page++)
		fill(page, page + 1);
	channel_open(&virtio, INFLATE, &inflate, features);
	channel_open(&virtio, DEFLATE, &deflate, features);
	virtio_go(&virtio);
	pages = give_and_take(&virtio, setting(command, "rounds", 16), setting(command, "seed", 1));
	virtio_stop(&virtio);
	say("balloon: ");
	say_number(pages);
	say(" pages\n");
}
