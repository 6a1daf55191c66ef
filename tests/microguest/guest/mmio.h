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

/* Of 1, 2, 4 or 8 bytes. */
static inline u64 read_sized(u64 address, u64 size)
{
	return size == 1   ? read8(address)
	       : size == 2 ? read16(address)
	       : size == 4 ? read32(address)
			   : read64(address);
}

static inline void write_sized(u64 address, u64 size, u64 value)
{
	if (size == 1)
		write8(address, value);
	else if (size == 2)
		write16(address, value);
	else if (size == 4)
		write32(address, value);
	else
		write64(address, value);
}

#endif
