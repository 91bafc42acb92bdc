// Every NVML function that go-nvml refers to, as a jump through an entry of one table. binding.c fills
// the entries from the driver's library; see binding.go for the reason.
//
// A jump changes no register and no stack, so one line of code serves every signature.

.macro forward function
	.section .rodata
name_\function:
	.asciz "\function"

	.section .data.rel, "aw"
entry_\function:
	.quad name_\function
	.quad 0

	.text
	.balign 16
	.globl \function
	.hidden \function
	.type \function, %function
\function:
#if defined(__x86_64__)
	jmp *entry_\function+8(%rip)
#elif defined(__aarch64__)
	adrp x16, entry_\function+8
	ldr x16, [x16, :lo12:entry_\function+8]
	br x16
#else
#error "tell how to jump through a pointer on this architecture"
#endif
	.size \function, . - \function
.endm

	.section .data.rel, "aw"
	.balign 16
	.globl tessera_nvml_functions
	.hidden tessera_nvml_functions
tessera_nvml_functions:

#define FORWARD(function) forward function
#include "symbols.h"

	.section .data.rel, "aw"
	.quad 0
	.quad 0

	.section .note.GNU-stack, "", %progbits
