/* A parsed module of PTX. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { NAMES = 64, OPERANDS = 4, INSTRUCTIONS = 128, ENTRIES = 4 };

enum type { B32, U32, S32, F32, B64, U64, S64, PRED };

struct names {
	unsigned count;
	char list[NAMES][64];
};

struct operand {
	enum { REGISTER, SPECIAL, PARAMETER, NUMBER, LABEL } kind;
	bool memory; /* in square brackets */
	unsigned number;
	uint64_t value, offset;
	char label[64];
};

enum operation { LD_PARAM, LD_GLOBAL, ST_GLOBAL, MOV, CVTA, ADD, SUB, MUL_LO, MUL_WIDE, MAD_LO, XOR, AND, OR, SETP_GE, SETP_LT, SETP_EQ, SETP_NE, BRA, RET };

struct instruction {
	enum operation operation;
	enum type type;
	int guard; /* the register of the predicate, or -1 */
	bool negated;
	unsigned count;
	struct operand operands[OPERANDS];
};

struct entry {
	char name[64];
	struct names parameters, registers, labels;
	unsigned sizes[NAMES];   /* of parameters, in bytes */
	enum type types[NAMES];  /* of registers */
	unsigned targets[NAMES]; /* of labels */
	unsigned count;
	struct instruction instructions[INSTRUCTIONS];
};

struct program {
	unsigned count;
	struct entry entries[ENTRIES];
};

static inline unsigned type_size(enum type type) { return type == B64 || type == U64 || type == S64 ? 8 : 4; }

/* instruction_known completes an instruction from its opcode, and checks its operands and their types. */
bool instruction_known(const char *opcode, const struct entry *entry, struct instruction *instruction);
