/* The parser of PTX. */
#define _GNU_SOURCE
#include "ptx.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

struct reader {
	const char *at;
	struct program *program;
	struct entry *entry; /* the one whose body is read */
	char token[64];
	bool failed;
};

/* skip passes blanks and comments. */
static void skip(struct reader *r)
{
	for (;;) {
		while (isspace((unsigned char)*r->at))
			r->at++;
		if (r->at[0] == '/' && r->at[1] == '/')
			r->at += strcspn(r->at, "\n");
		else if (r->at[0] == '/' && r->at[1] == '*' && strstr(r->at + 2, "*/"))
			r->at = strstr(r->at + 2, "*/") + 2;
		else
			return;
	}
}

/* next reads a word, with its dots, or one other character; the empty token is the end. */
static const char *next(struct reader *r)
{
	size_t length = 0;

	skip(r);
	while (r->at[length] && (isalnum((unsigned char)r->at[length]) || strchr("._%$-", r->at[length])))
		length++;
	length += !length && *r->at;
	r->failed |= length >= sizeof r->token;
	if (r->failed)
		length = 0;
	memcpy(r->token, r->at, length);
	r->token[length] = '\0';
	r->at += length;
	return r->token;
}

static bool is(const struct reader *r, const char *token) { return !strcmp(r->token, token); }

static void want(struct reader *r, const char *token)
{
	next(r);
	r->failed |= !is(r, token);
}

static int find(const struct names *names, const char *name)
{
	for (unsigned i = 0; i < names->count; i++)
		if (!strcmp(names->list[i], name))
			return (int)i;
	return -1;
}

/* add declares a name, which must be new. */
static int add(struct reader *r, struct names *names, const char *name)
{
	r->failed |= names->count == NAMES || strlen(name) >= sizeof names->list[0] || find(names, name) >= 0;
	if (r->failed)
		return 0;
	strcpy(names->list[names->count], name);
	return (int)names->count++;
}

/* type_of reads the last part of an opcode or directive, such as .u32. */
static enum type type_of(struct reader *r, const char *suffix)
{
	static const char *const names[] = {".b32", ".u32", ".s32", ".f32", ".b64", ".u64", ".s64", ".pred"};

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (suffix && !strcmp(suffix, names[i]))
			return (enum type)i;
	r->failed = true;
	return B32;
}

/* declare reads ".reg .b32 %r<5>, %x;" after .reg: the name in angle brackets stands for %r0 to %r4. */
static void declare(struct reader *r)
{
	enum type type = type_of(r, next(r));

	do {
		char name[sizeof r->token + 16], prefix[sizeof r->token];
		unsigned count = 1;
		strcpy(prefix, next(r));
		skip(r);
		bool many = *r->at == '<';
		if (many) {
			next(r);
			count = (unsigned)strtoul(next(r), NULL, 10);
			want(r, ">");
		}
		for (unsigned i = 0; i < count && !r->failed; i++) {
			snprintf(name, sizeof name, many ? "%s%u" : "%s", prefix, i);
			int number = add(r, &r->entry->registers, name);
			r->entry->types[number] = type;
		}
		next(r);
	} while (is(r, ",") && !r->failed);
	r->failed |= !is(r, ";");
}

/* operand reads a register, a special register, a number, a parameter or a label. */
static void operand(struct reader *r, struct operand *o)
{
	static const char *const special[] = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x"};
	char *end;

	int number = find(&r->entry->registers, r->token);
	*o = (struct operand){.kind = REGISTER, .number = (unsigned)number};
	if (number >= 0)
		return;
	for (unsigned i = 0; i < sizeof special / sizeof *special; i++)
		if (is(r, special[i])) {
			*o = (struct operand){.kind = SPECIAL, .number = i};
			return;
		}
	if ((number = find(&r->entry->parameters, r->token)) >= 0) {
		*o = (struct operand){.kind = PARAMETER, .number = (unsigned)number};
		return;
	}
	bool single = !strncmp(r->token, "0f", 2) && strlen(r->token) == 10; /* the bits of a float */
	*o = (struct operand){.kind = NUMBER, .value = strtoull(r->token + 2 * single, &end, single ? 16 : 0)};
	if (*r->token && end != r->token && !*end)
		return;
	*o = (struct operand){.kind = LABEL};
	snprintf(o->label, sizeof o->label, "%s", r->token);
}

/* operands reads "a, [b+4], c;". */
static void operands(struct reader *r, struct instruction *in)
{
	next(r);
	while (!is(r, ";") && !r->failed) {
		r->failed |= in->count == OPERANDS;
		if (r->failed)
			return;
		struct operand *o = &in->operands[in->count++];
		bool memory = is(r, "[");
		if (memory)
			next(r);
		operand(r, o);
		o->memory = memory;
		next(r);
		if (memory && is(r, "+")) {
			o->offset = strtoull(next(r), NULL, 0);
			next(r);
		}
		if (memory) {
			r->failed |= !is(r, "]");
			next(r);
		}
		if (is(r, ","))
			next(r);
		else
			r->failed |= !is(r, ";");
	}
}

/* statement reads an instruction whose opcode, or predicate, is the current token. */
static void statement(struct reader *r)
{
	struct entry *e = r->entry;

	r->failed |= e->count == INSTRUCTIONS;
	if (r->failed)
		return;
	struct instruction *in = &e->instructions[e->count++];
	*in = (struct instruction){.guard = -1};
	if (is(r, "@")) {
		skip(r);
		in->negated = *r->at == '!';
		r->at += in->negated;
		in->guard = find(&e->registers, next(r));
		r->failed |= in->guard < 0 || e->types[in->guard] != PRED;
		next(r);
	}
	char opcode[sizeof r->token];
	strcpy(opcode, r->token);
	operands(r, in);
	if (!instruction_known(opcode, e, in))
		r->failed = true;
}

/* resolve points branches at the instructions of their labels. */
static void resolve(struct reader *r)
{
	for (unsigned i = 0; i < r->entry->count; i++)
		for (unsigned o = 0; o < r->entry->instructions[i].count; o++) {
			struct operand *at = &r->entry->instructions[i].operands[o];
			if (at->kind != LABEL)
				continue;
			int label = find(&r->entry->labels, at->label);
			r->failed |= label < 0;
			at->number = label < 0 ? 0 : r->entry->targets[label];
		}
}

static void body(struct reader *r)
{
	struct entry *e = r->entry;

	want(r, "{");
	for (next(r); !is(r, "}") && !r->failed; next(r)) {
		skip(r);
		if (!*r->token)
			r->failed = true;
		else if (is(r, ".reg"))
			declare(r);
		else if (*r->at == ':' && !is(r, "@")) {
			e->targets[add(r, &e->labels, r->token)] = e->count;
			r->at++;
		} else
			statement(r);
	}
	resolve(r);
}

/* entry reads "name(.param .u64 a, …) { … }". */
static void entry(struct reader *r)
{
	struct program *p = r->program;

	r->failed |= p->count == ENTRIES;
	if (r->failed)
		return;
	r->entry = &p->entries[p->count++];
	snprintf(r->entry->name, sizeof r->entry->name, "%s", next(r));
	want(r, "(");
	for (next(r); !is(r, ")") && !r->failed; next(r)) {
		if (is(r, ","))
			next(r);
		r->failed |= !is(r, ".param");
		enum type type = type_of(r, next(r));
		r->entry->sizes[add(r, &r->entry->parameters, next(r))] = type_size(type);
	}
	body(r);
}

static unsigned number_after(struct reader *r, const char *prefix)
{
	char *end;
	const char *token = next(r);
	size_t length = strlen(prefix);

	r->failed |= strncmp(token, prefix, length) != 0;
	unsigned value = r->failed ? 0 : (unsigned)strtoul(token + length, &end, 10);
	r->failed |= !value;
	return value;
}

/* header reads the three directives with which a module begins, in their order. */
static CUresult header(struct reader *r, int cuda_version, int compute)
{
	unsigned major, minor;

	want(r, ".version");
	if (r->failed || sscanf(next(r), "%u.%u", &major, &minor) != 2)
		return CUDA_ERROR_INVALID_PTX;
	/* PTX 6.0 came with CUDA 9.0, 7.0 with 11.0, 8.0 with 12.0 and 9.0 with 13.0 (PTX ISA, "Release Notes"). */
	unsigned cuda = (unsigned)cuda_version / 1000;
	if (cuda >= 11 && major > cuda - 4)
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	want(r, ".target");
	unsigned target = number_after(r, "sm_");
	want(r, ".address_size");
	want(r, "64");
	if (r->failed)
		return CUDA_ERROR_INVALID_PTX;
	return target > (unsigned)compute ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

CUresult program_parse(const char *text, int cuda_version, int compute, struct program **program)
{
	struct reader r = {.at = text, .program = calloc(1, sizeof *r.program)};

	if (!r.program)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = header(&r, cuda_version, compute);
	for (next(&r); result == CUDA_SUCCESS && *r.token; next(&r)) {
		if (is(&r, ".visible"))
			next(&r);
		if (is(&r, ".entry"))
			entry(&r);
		else
			r.failed = true;
		if (r.failed)
			result = CUDA_ERROR_INVALID_PTX;
	}
	if (r.failed && result == CUDA_SUCCESS)
		result = CUDA_ERROR_INVALID_PTX;
	*program = r.program;
	if (result != CUDA_SUCCESS)
		program_free(r.program);
	return result;
}

void program_free(struct program *program) { free(program); }

int program_entry(const struct program *program, const char *name)
{
	for (unsigned i = 0; i < program->count; i++)
		if (!strcmp(program->entries[i].name, name))
			return (int)i;
	return -1;
}
