/* write, fill and check: known words at known places. */

#include "checksum.h"
#include "commands.h"
#include "report.h"
#include "settings.h"

#define PAGE_SIZE 4096

struct range {
	u64 first, end, step, seed;
};

static struct range range_of(const char *command)
{
	u64 first = setting(command, "first", IMAGE_END);

	return (struct range){
		first,
		first + setting(command, "pages", 1) * PAGE_SIZE,
		setting(command, "step", sizeof(u64)),
		setting(command, "seed", 0),
	};
}

void command_write(const char *command)
{
	u64 address = setting(command, "first", IMAGE_END);
	u64 pages = setting(command, "pages", 1);
	u64 step = setting(command, "step", PAGE_SIZE);
	u64 value = setting(command, "value", 1);

	for (u64 page = 0; page < pages; page++, address += step)
		*(volatile u64 *)address = value;
	report(EVENT_WRITTEN, pages);
}

void command_fill(const char *command)
{
	struct range range = range_of(command);
	u64 words = 0;

	for (u64 address = range.first; address < range.end; address += range.step, words++)
		*(volatile u64 *)address = word_at(address, range.seed);
	report(EVENT_FILLED, words);
}

void command_check(const char *command)
{
	struct range range = range_of(command);
	u64 wrong = 0, checksum = 0;

	for (u64 address = range.first; address < range.end; address += range.step) {
		u64 word = *(volatile u64 *)address;

		wrong += word != word_at(address, range.seed);
		checksum = checksum_with(checksum, word);
	}
	report(EVENT_WRONG_WORDS, wrong);
	report(EVENT_CHECKSUM, checksum);
}
