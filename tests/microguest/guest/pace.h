/* Exits to the host at places of a round that are drawn, and no more than a number of them. Wherever a guest is restored, it
 * may have to do a round again; so each comes to its end. */
#ifndef PACE_H
#define PACE_H

#include "virtio.h"

#define PACE_PLACES 8

struct pace {
	const struct virtio *virtio;
	u64 left, first, place;
};

/* Begins a round with at most so many exits, the first of them at a place drawn. */
static inline void pace_round(struct pace *pace, u64 exits, u64 draw)
{
	pace->left = exits;
	pace->first = (draw >> 48) % PACE_PLACES;
}

/* Begins the round, or begins it again. */
static inline void pace_attempt(struct pace *pace)
{
	pace->place = 0;
}

/* A place where the guest may be stopped. */
static inline void pace_here(struct pace *pace)
{
	if (pace->place++ < pace->first || pace->left == 0)
		return;
	pace->left--;
	virtio_check(pace->virtio);
}

#endif
