/* Both entries, up to the first line of C in long mode on the guest's own tables. */

#include "protocol.h"

#define CR0_PROTECTION_AND_PAGING 0x80000001
#define CR4_PAE 0x20
#define EFER 0xc0000080
#define EFER_LONG_MODE 0x100
#define XEN_ELFNOTE_PHYS32_ENTRY 18

#define CODE_SELECTOR 8
#define DATA_SELECTOR 16

/* The processor sets accessed and dirty bits where it finds them clear. Set beforehand, the tables are never written
 * and stay out of the dirty log. */
#define TABLE 0x23      /* present, writable, accessed */
#define LARGE_PAGE 0xe3 /* present, writable, accessed, dirty, 2 MiB */

	.section .note.pvh, "a", @note
	.balign 4
	.long 4
	.long 4
	.long XEN_ELFNOTE_PHYS32_ENTRY
	.ascii "Xen\0"
	.long pvh_start

	.section .text.boot, "ax", @progbits

/* PVH: 32-bit protected mode, flat segments, paging off, EBX = start_info. */
	.code32
pvh_start:
	cli
	cld
	lgdt gdt_register
	mov $page_map, %eax
	mov %eax, %cr3
	mov %cr4, %eax
	or $CR4_PAE, %eax
	mov %eax, %cr4
	mov $EFER, %ecx
	rdmsr
	or $EFER_LONG_MODE, %eax
	wrmsr
	mov %cr0, %eax
	or $CR0_PROTECTION_AND_PAGING, %eax
	mov %eax, %cr0
	ljmp $CODE_SELECTOR, $pvh_long_mode

	.code64
pvh_long_mode:
	mov %ebx, %edi
	mov $ENTRY_PVH, %esi
	jmp long_mode

/* Linux boot protocol: long mode, paging on (somebody else's tables), RSI = boot_params. */
	.globl _start
_start:
	cli
	cld
	lgdt gdt_register
	mov $page_map, %eax
	mov %rax, %cr3
	mov %rsi, %rdi
	mov $ENTRY_64, %esi

long_mode:
	mov $DATA_SELECTOR, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	xor %eax, %eax
	mov %eax, %fs
	mov %eax, %gs
	mov $stack_top, %esp
	pushq $CODE_SELECTOR
	pushq $1f
	lretq
1:	call guest_start
2:	cli
	hlt
	jmp 2b

/* Where another CPU starts: in real mode, wherever this was copied to. Paging and long mode are turned on at once. */
	.code16
	.globl other_start
other_start:
	cli
	mov %cs, %ax
	mov %ax, %ds
	lgdtl other_gdt_register - other_start
	mov $CR4_PAE, %eax
	mov %eax, %cr4
	mov $page_map, %eax
	mov %eax, %cr3
	mov $EFER, %ecx
	rdmsr
	or $EFER_LONG_MODE, %eax
	wrmsr
	mov %cr0, %eax
	or $CR0_PROTECTION_AND_PAGING, %eax
	mov %eax, %cr0
	ljmpl $CODE_SELECTOR, $other_long_mode
	.balign 4
other_gdt_register:
	.word gdt_end - gdt - 1
	.long gdt
	.globl other_end
other_end:

	.code64
other_long_mode:
	mov $DATA_SELECTOR, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	mov $other_stack_top, %esp
	call other_main
	jmp 2b

	.data
	.balign 8
gdt:
	.quad 0
	.quad 0x00af9b000000ffff /* code, 64 bit, accessed */
	.quad 0x00cf93000000ffff /* data, accessed */
gdt_end:
gdt_register:
	.word gdt_end - gdt - 1
	.quad gdt

/* The first 4 GiB mapped onto themselves. */
	.balign 4096
page_map:
	.quad directory_pointers + TABLE
	.fill 511, 8, 0
directory_pointers:
	.quad directories + TABLE
	.quad directories + 0x1000 + TABLE
	.quad directories + 0x2000 + TABLE
	.quad directories + 0x3000 + TABLE
	.fill 508, 8, 0
directories:
	.set page, 0
	.rept 2048
	.quad page + LARGE_PAGE
	.set page, page + 0x200000
	.endr

	.bss
	.balign 4096
	.fill 8192, 1, 0
stack_top:
	.fill 8192, 1, 0
other_stack_top:
