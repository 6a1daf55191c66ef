/* Port I/O. */
#ifndef PORT_H
#define PORT_H

#include "types.h"

static inline void out8(u16 port, u8 value)
{
	asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline void out16(u16 port, u16 value)
{
	asm volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static inline void out32(u16 port, u32 value)
{
	asm volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}

static inline u8 in8(u16 port)
{
	u8 value;
	asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline u16 in16(u16 port)
{
	u16 value;
	asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline u32 in32(u16 port)
{
	u32 value;
	asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

/* Of 1, 2 or 4 bytes. */
static inline u32 in_sized(u16 port, u64 size)
{
	return size == 1 ? in8(port) : size == 2 ? in16(port) : in32(port);
}

static inline void out_sized(u16 port, u64 size, u32 value)
{
	if (size == 1)
		out8(port, value);
	else if (size == 2)
		out16(port, value);
	else
		out32(port, value);
}

#endif
