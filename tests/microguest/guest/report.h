/* What the guest tells its host. */
#ifndef REPORT_H
#define REPORT_H

#include "protocol.h"
#include "types.h"

/* Text for people, on the serial console. */
void say(const char *text);

/* One result for the host. Interrupts must be off: one that reports in the middle of another's bytes would mix both. */
void report(u32 event, u64 value);

/* Stops for good. */
void halt(void) __attribute__((noreturn));

#endif
