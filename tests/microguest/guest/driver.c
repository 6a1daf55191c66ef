#include "driver.h"
#include "report.h"

void give_up(u8 failure, u64 found)
{
	say("driver failed: ");
	say_number(failure);
	say(", found ");
	say_number(found);
	say("\n");
	report(EVENT_DRIVER_FAILED, found << 8 | failure);
	halt();
}
