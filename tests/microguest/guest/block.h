/* virtio-blk (Virtio 1.2, section 5.2). */
#ifndef BLOCK_H
#define BLOCK_H

#include "types.h"

#define BLOCK_TYPE 2
#define BLOCK_FEATURE_FLUSH (1ul << 9)
#define BLOCK_CONFIG_CAPACITY 0

#define BLOCK_READ 0
#define BLOCK_WRITE 1
#define BLOCK_FLUSH 4
#define BLOCK_GET_ID 8
#define BLOCK_DISCARD 11
#define BLOCK_WRITE_ZEROES 13

#define BLOCK_OK 0
/* No device says this. */
#define BLOCK_NO_STATUS 0xff

struct block_header {
	u32 type, reserved;
	u64 sector;
};

#endif
