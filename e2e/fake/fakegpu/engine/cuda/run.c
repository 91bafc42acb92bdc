/* The instructions of PTX: which exist, what their operands must be, and what they do. */
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "ptx.h"

enum { STEPS = 1 << 20, THREADS = 1024 };

/* The forms of instructions: the kinds of their operands. D is a register of the type, S a value of the type, W a
 * register of twice its size, P a predicate, M memory at a 64-bit address, A a parameter, L a label. */
static const struct form {
	const char *opcode;
	enum operation operation;
	const char *types, *operands;
} forms[] = {
	{"ld.param", LD_PARAM, "u32 s32 b32 f32 u64 s64 b64", "DA"},
	{"ld.global", LD_GLOBAL, "u32 s32 b32 f32 u64 s64 b64", "DM"},
	{"st.global", ST_GLOBAL, "u32 s32 b32 f32 u64 s64 b64", "MS"},
	{"mov", MOV, "u32 s32 b32 f32 u64 s64 b64", "DS"},
	{"cvta.to.global", CVTA, "u64", "DS"},
	{"add", ADD, "u32 s32 f32 u64 s64", "DSS"},
	{"sub", SUB, "u32 s32 f32 u64 s64", "DSS"},
	{"mul.lo", MUL_LO, "u32 s32 u64 s64", "DSS"},
	{"mul.wide", MUL_WIDE, "u32 s32", "WSS"},
	{"mad.lo", MAD_LO, "u32 s32 u64 s64", "DSSS"},
	{"xor", XOR, "b32 b64", "DSS"},
	{"and", AND, "b32 b64", "DSS"},
	{"or", OR, "b32 b64", "DSS"},
	{"setp.ge", SETP_GE, "u32 s32 u64 s64", "PSS"},
	{"setp.lt", SETP_LT, "u32 s32 u64 s64", "PSS"},
	{"setp.eq", SETP_EQ, "u32 s32 b32 u64 s64 b64", "PSS"},
	{"setp.ne", SETP_NE, "u32 s32 b32 u64 s64 b64", "PSS"},
	{"bra", BRA, "", "L"},
	{"ret", RET, "", ""},
};

/* fits reports whether a register of one type can hold a value of another: untyped and integer types of one size mix. */
static bool fits(enum type registered, enum type used)
{
	if (registered == PRED || used == PRED)
		return registered == used;
	if (type_size(registered) != type_size(used))
		return false;
	return registered == used || registered == B32 || registered == B64 || (registered != F32 && used != F32);
}

static bool operand_valid(char kind, const struct entry *e, enum type type, const struct operand *o)
{
	enum type registered = o->kind == REGISTER ? e->types[o->number] : B32;

	switch (kind) {
	case 'D':
		return !o->memory && o->kind == REGISTER && fits(registered, type);
	case 'S':
		if (o->kind == REGISTER)
			return !o->memory && fits(registered, type);
		return !o->memory && (o->kind == NUMBER || (o->kind == SPECIAL && type_size(type) == 4 && type != F32));
	case 'W':
		return !o->memory && o->kind == REGISTER && type_size(registered) == 8;
	case 'P':
		return !o->memory && o->kind == REGISTER && registered == PRED;
	case 'M':
		return o->memory && o->kind == REGISTER && type_size(registered) == 8;
	case 'A':
		return o->memory && o->kind == PARAMETER && e->sizes[o->number] == type_size(type) && !o->offset;
	default:
		return !o->memory && o->kind == LABEL;
	}
}

static const struct form *form_of(const char *opcode, struct instruction *in)
{
	static const char *const names[] = {"b32", "u32", "s32", "f32", "b64", "u64", "s64"};

	for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++) {
		size_t length = strlen(forms[i].opcode);
		if (strncmp(opcode, forms[i].opcode, length))
			continue;
		if (!opcode[length] && !*forms[i].types)
			return &forms[i];
		for (unsigned t = 0; opcode[length] == '.' && t < sizeof names / sizeof *names; t++)
			if (!strcmp(opcode + length + 1, names[t]) && strstr(forms[i].types, names[t])) {
				in->type = (enum type)t;
				return &forms[i];
			}
	}
	return NULL;
}

bool instruction_known(const char *opcode, const struct entry *e, struct instruction *in)
{
	const struct form *form = form_of(opcode, in);

	if (!form || strlen(form->operands) != in->count)
		return false;
	in->operation = form->operation;
	for (unsigned i = 0; i < in->count; i++)
		if (!operand_valid(form->operands[i], e, in->type, &in->operands[i]))
			return false;
	return true;
}

struct thread {
	const struct entry *entry;
	struct launch launch;
	unsigned block, number;
	void **parameters;
	uint64_t registers[NAMES];
};

static uint64_t value(const struct thread *t, const struct operand *o)
{
	const uint64_t special[] = {t->number, t->launch.threads, t->block, t->launch.blocks};

	if (o->kind == REGISTER)
		return t->registers[o->number];
	return o->kind == SPECIAL ? special[o->number] : o->value;
}

static uint64_t load(const void *from, enum type type)
{
	uint64_t loaded = 0;

	memcpy(&loaded, from, type_size(type));
	return loaded;
}

static float single(uint64_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint64_t sum(enum type type, uint64_t a, uint64_t b, int sign)
{
	if (type != F32)
		return sign > 0 ? a + b : a - b;
	float f = sign > 0 ? single(a) + single(b) : single(a) - single(b);
	return load(&f, F32);
}

static uint64_t wide(enum type type, uint64_t a, uint64_t b)
{
	if (type == S32)
		return (uint64_t)((int64_t)(int32_t)a * (int32_t)b);
	return (uint64_t)(uint32_t)a * (uint32_t)b;
}

static bool less(enum type type, uint64_t a, uint64_t b)
{
	if (type == S32)
		return (int32_t)a < (int32_t)b;
	return type == S64 ? (int64_t)a < (int64_t)b : a < b;
}

/* access loads or stores; an address outside of the process's allocations is an illegal one, and so is an odd one. */
static CUresult access(struct thread *t, const struct instruction *in)
{
	bool store = in->operation == ST_GLOBAL;
	const struct operand *o = &in->operands[store ? 0 : 1];
	CUdeviceptr at = value(t, o) + o->offset;
	unsigned size = type_size(in->type);

	if (memory_inside(at, size) != CUDA_SUCCESS)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (at % size)
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	uint64_t stored = value(t, &in->operands[1]);
	if (store)
		memcpy((void *)(uintptr_t)at, &stored, size);
	else
		t->registers[in->operands[0].number] = load((void *)(uintptr_t)at, in->type);
	return CUDA_SUCCESS;
}

static uint64_t computed(const struct thread *t, const struct instruction *in)
{
	uint64_t a = 0, b = 0, c = 0;

	if (in->operation == LD_PARAM)
		return load(t->parameters[in->operands[1].number], in->type);
	if (in->count > 1)
		a = value(t, &in->operands[1]);
	if (in->count > 2)
		b = value(t, &in->operands[2]);
	if (in->count > 3)
		c = value(t, &in->operands[3]);
	switch (in->operation) {
	case ADD:
		return sum(in->type, a, b, 1);
	case SUB:
		return sum(in->type, a, b, -1);
	case MUL_LO:
	case MAD_LO:
		return a * b + c;
	case MUL_WIDE:
		return wide(in->type, a, b);
	case XOR:
		return a ^ b;
	case AND:
		return a & b;
	case OR:
		return a | b;
	case SETP_GE:
		return !less(in->type, a, b);
	case SETP_LT:
		return less(in->type, a, b);
	case SETP_EQ:
		return a == b;
	case SETP_NE:
		return a != b;
	default:
		return a; /* MOV, CVTA */
	}
}

static CUresult run_thread(struct thread *t)
{
	unsigned at = 0;

	for (unsigned steps = 0; at < t->entry->count; steps++) {
		const struct instruction *in = &t->entry->instructions[at++];
		if (steps == STEPS)
			return CUDA_ERROR_LAUNCH_TIMEOUT;
		if (in->guard >= 0 && !t->registers[in->guard] != in->negated)
			continue;
		if (in->operation == RET)
			return CUDA_SUCCESS;
		if (in->operation == BRA)
			at = in->operands[0].number;
		else if (in->operation == LD_GLOBAL || in->operation == ST_GLOBAL)
			TRY(access(t, in));
		else {
			const struct operand *to = &in->operands[0];
			uint64_t result = computed(t, in);
			bool narrow = type_size(t->entry->types[to->number]) == 4;
			t->registers[to->number] = narrow ? (uint32_t)result : result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult program_run(const struct program *program, unsigned entry, struct launch launch, void **parameters)
{
	struct thread t = {.entry = &program->entries[entry], .launch = launch, .parameters = parameters};

	for (unsigned i = 0; i < t.entry->parameters.count; i++)
		REQUIRE(parameters && parameters[i]);
	REQUIRE(launch.blocks && launch.threads && launch.threads <= THREADS);
	for (t.block = 0; t.block < launch.blocks; t.block++)
		for (t.number = 0; t.number < launch.threads; t.number++)
			TRY(run_thread(&t));
	return CUDA_SUCCESS;
}
