/* One stub a vector, all of one size, so the IDT is filled by arithmetic. Each leaves the same frame: vector and error
 * code (a zero where the processor pushes none), then what the processor pushed. */

#define STUB_SIZE 16
#define VECTORS_WITH_ERROR_CODE ((1 << 8) | (0x1f << 10) | (1 << 17) | (1 << 21) | (1 << 29) | (1 << 30))

	.text
	.balign STUB_SIZE
	.globl trap_stubs
trap_stubs:
	.set vector, 0
	.rept 256
	.balign STUB_SIZE
	.if vector >= 32 || !((VECTORS_WITH_ERROR_CODE >> vector) & 1)
	pushq $0
	.endif
	pushq $vector
	jmp trap_common
	.set vector, vector + 1
	.endr

	.balign STUB_SIZE
trap_common:
	push %rax
	push %rcx
	push %rdx
	push %rsi
	push %rdi
	push %r8
	push %r9
	push %r10
	push %r11
	cld
	lea 72(%rsp), %rdi
	call trap_taken
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rdx
	pop %rcx
	pop %rax
	add $16, %rsp
	iretq
