#include "apic.h"
#include "report.h"
#include "traps.h"

#define VECTORS 256
#define EXCEPTIONS 32
#define STUB_SIZE 16
#define CODE_SELECTOR 8
#define INTERRUPT_GATE 0x8e00

struct gate {
	u16 offset_low;
	u16 selector;
	u16 type;
	u16 offset_middle;
	u32 offset_high;
	u32 reserved;
};

struct table_register {
	u16 limit;
	u64 base;
} __attribute__((packed));

/* As the stubs in traps.S leave it. */
struct frame {
	u64 vector;
	u64 error_code;
	u64 rip;
};

extern const u8 trap_stubs[];
void trap_taken(const struct frame *frame);

static struct gate gates[VECTORS];
static volatile u64 taken[VECTORS];

void catch_traps(void)
{
	const struct table_register idt = {sizeof gates - 1, (u64)gates};

	for (u64 vector = 0; vector < VECTORS; vector++) {
		u64 stub = (u64)trap_stubs + vector * STUB_SIZE;

		gates[vector] = (struct gate){stub, CODE_SELECTOR, INTERRUPT_GATE, stub >> 16, stub >> 32, 0};
	}
	asm volatile("lidt %0" : : "m"(idt));
}

static void exception(const struct frame *frame)
{
	u64 fault_address;

	asm volatile("mov %%cr2, %0" : "=r"(fault_address));
	report(EVENT_ERROR_CODE, frame->error_code);
	report(EVENT_FAULT_ADDRESS, fault_address);
	report(EVENT_EXCEPTION + frame->vector, frame->rip);
	halt();
}

void trap_taken(const struct frame *frame)
{
	if (frame->vector < EXCEPTIONS)
		exception(frame);
	taken[frame->vector]++;
	if (frame->vector != SPURIOUS_VECTOR)
		apic_end_of_interrupt();
}

u64 interrupts_on(u8 vector)
{
	return taken[vector];
}

void wait_for_interrupt(u8 vector, u64 seen)
{
	while (taken[vector] <= seen)
		wait_for_any_interrupt();
}

void wait_for_any_interrupt(void)
{
	/* STI takes effect after the next instruction, so no interrupt comes between the caller's look and the HLT. */
	asm volatile("sti; hlt; cli" : : : "memory");
}

void let_interrupts_in(void)
{
	asm volatile("sti" : : : "memory");
}

void keep_interrupts_out(void)
{
	asm volatile("cli" : : : "memory");
}
