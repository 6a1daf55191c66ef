/* Numbers drawn one after the other by Marsaglia's xorshift, with the shifts 13, 7 and 17. The same as in src/draw.rs. */
#ifndef DRAW_H
#define DRAW_H

#include "types.h"

/* What follows `draw`, which is not 0. */
static inline u64 next_draw(u64 draw)
{
	draw ^= draw << 13;
	draw ^= draw >> 7;
	return draw ^ draw << 17;
}

#endif
