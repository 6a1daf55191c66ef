/* What drivers of devices have in common. */
#ifndef DRIVER_H
#define DRIVER_H

#include "protocol.h"
#include "types.h"

/* Reports a FAILURE_... with what was found there, and stops for good. Interrupts must be off. */
void give_up(u8 failure, u64 found) __attribute__((noreturn));

#endif
