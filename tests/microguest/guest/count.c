/* count: the guest that is moved from one virtual machine to another while it runs. Registers hold the counter and
 * its checksum, memory holds both again and a trail of earlier numbers over several pages: whatever of the two is lost
 * or put back twice on the way shows at the next step. */

#include "checksum.h"
#include "commands.h"
#include "report.h"
#include "settings.h"

#define PAGE_SIZE 4096

struct counter {
	volatile u64 number, checksum;
};

static volatile u64 *trail_of(const struct counter *counter, u64 number)
{
	return (volatile u64 *)((u64)counter + PAGE_SIZE * (1 + number % TRAIL_PAGES));
}

static u64 earlier(u64 number)
{
	return number > TRAIL_PAGES ? number - TRAIL_PAGES : 0;
}

void command_count(const char *command)
{
	struct counter *counter = (struct counter *)setting(command, "first", IMAGE_END);
	u64 every = setting(command, "every", 64), until_report = every, checksum = 0;

	counter->number = counter->checksum = 0;
	for (u64 page = 0; page < TRAIL_PAGES; page++)
		*trail_of(counter, page) = 0;

	for (u64 number = 1;; number++) {
		volatile u64 *trail = trail_of(counter, number);

		if (counter->number != number - 1 || counter->checksum != checksum || *trail != earlier(number))
			report(EVENT_LOST, number);
		checksum = checksum_with(checksum, word_at(number, 0));
		counter->number = *trail = number;
		counter->checksum = checksum;
		if (--until_report == 0) {
			until_report = every;
			report(EVENT_COUNTER, number);
			report(EVENT_COUNTER_CHECKSUM, checksum);
		}
	}
}
