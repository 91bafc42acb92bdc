#include "binding.h"

#include <dlfcn.h>
#include <stdio.h>
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

// address_of never returns NULL. nvmlErrorString is the one function that go-nvml uses and that
// returns no code; tessera_nvml_bind sees to it that it is there.
static void *address_of(const char *name)
{
	void *address = library ? dlsym(library, name) : NULL;

	return address ? address : (void *)absent;
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
	if (!dlsym(library, "nvmlInitWithFlags") || !dlsym(library, "nvmlErrorString")) {
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
