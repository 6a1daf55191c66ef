/* Memory-mapped registers. */
#ifndef MMIO_H
#define MMIO_H

#include "types.h"

static inline u8 read8(u64 address)
{
	return *(volatile u8 *)address;
}

static inline u16 read16(u64 address)
{
	return *(volatile u16 *)address;
}

static inline u32 read32(u64 address)
{
	return *(volatile u32 *)address;
}

static inline u64 read64(u64 address)
{
	return *(volatile u64 *)address;
}

static inline void write8(u64 address, u8 value)
{
	*(volatile u8 *)address = value;
}

static inline void write16(u64 address, u16 value)
{
	*(volatile u16 *)address = value;
}

static inline void write32(u64 address, u32 value)
{
	*(volatile u32 *)address = value;
}

static inline void write64(u64 address, u64 value)
{
	*(volatile u64 *)address = value;
}

#endif
