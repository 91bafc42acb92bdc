#include "binding.h"

#include <dlfcn.h>
#include <string.h>

// The table that forward.S lays out: a name, and where a call of it goes.
struct function {
	const char *name;
	void *address;
};

extern struct function tessera_nvml_functions[];

static void *library;

// absent stands in for a function that the library does not have: NVML_ERROR_FUNCTION_NOT_FOUND.
static int absent(void) { return 13; }

// no_text stands in for nvmlErrorString, the one function in use that returns no code: go-nvml asks it
// even when no library is open.
static const char *no_text(int code)
{
	(void)code;
	return "no driver library is open";
}

static void *address_of(const char *name)
{
	void *address = library ? dlsym(library, name) : NULL;

	if (!address)
		address = strcmp(name, "nvmlErrorString") ? (void *)absent : (void *)no_text;
	return address;
}

static void point(void)
{
	for (struct function *f = tessera_nvml_functions; f->name; f++)
		f->address = address_of(f->name);
}

char *tessera_nvml_bind(const char *path)
{
	if (library)
		return strdup("a driver library is open already in this process");
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!library)
		return strdup(dlerror());
	if (!dlsym(library, "nvmlInitWithFlags")) {
		tessera_nvml_unbind(1);
		return strdup("not an NVML library");
	}
	point();
	return NULL;
}

void tessera_nvml_unbind(int handles)
{
	void *open = library;

	library = NULL;
	point();
	while (handles-- > 0)
		dlclose(open);
}
