/* The same arithmetic as in src/lib.rs. */
#ifndef CHECKSUM_H
#define CHECKSUM_H

#include "protocol.h"
#include "types.h"

static inline u64 word_at(u64 address, u64 seed)
{
	return (address ^ seed) * WORD_MULTIPLIER;
}

static inline u64 checksum_with(u64 checksum, u64 word)
{
	return (checksum << CHECKSUM_ROTATION | checksum >> (64 - CHECKSUM_ROTATION)) ^ word;
}

#endif
