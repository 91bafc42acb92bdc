/* The GPUs: -L, -q, --query-gpu, and the overview. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 128 };

/* The form of the lines is that of published captures from pods on A100 and H100: TestListHasTheFormOfTheDriver. */
void command_list(struct gpus gpus)
{
	char name[TEXT], uuid[TEXT];
	nvmlDevice_t mig;

	if (!gpus.count)
		fail(NVML_ERROR_NOT_FOUND, "No devices found.\n");
	for (unsigned i = 0; i < gpus.count; i++) {
		check(nv.nvmlDeviceGetName(gpus.list[i], name, TEXT), "Failed to get the name");
		check(nv.nvmlDeviceGetUUID(gpus.list[i], uuid, TEXT), "Failed to get the UUID");
		printf("GPU %u: %s (UUID: %s)\n", index_of(gpus.list[i]), name, uuid);
		for (unsigned m = 0; nv.nvmlDeviceGetMigDeviceHandleByIndex(gpus.list[i], m, &mig) == NVML_SUCCESS; m++) {
			check(nv.nvmlDeviceGetName(mig, name, TEXT), "Failed to get the name");
			check(nv.nvmlDeviceGetUUID(mig, uuid, TEXT), "Failed to get the UUID");
			printf("  %-15s Device %2u: (UUID: %s)\n", strstr(name, "MIG "), m, uuid);
		}
	}
}

static void on_off(char *text, nvmlReturn_t code, unsigned value)
{
	snprintf(text, TEXT, "%s", code != NVML_SUCCESS ? "[N/A]" : value ? "Enabled" : "Disabled");
}

static void field_memory(nvmlDevice_t device, const char *field, char *text)
{
	nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};

	check(nv.nvmlDeviceGetMemoryInfo_v2(device, &memory), "Failed to get the memory");
	unsigned long long value = !strcmp(field, "memory.total") ? memory.total : !strcmp(field, "memory.free") ? memory.free : memory.used;
	snprintf(text, TEXT, "%llu MiB", value >> 20);
}

static void field_mig(nvmlDevice_t device, const char *field, char *text)
{
	unsigned current, pending;
	nvmlReturn_t code = nv.nvmlDeviceGetMigMode(device, &current, &pending);

	on_off(text, code, strstr(field, "pending") ? pending : current);
}

static void field_number(nvmlDevice_t device, const char *field, char *text)
{
	unsigned number = 0;

	check(*field == 'c' ? nv.nvmlDeviceGetCount_v2(&number) : nv.nvmlDeviceGetIndex(device, &number), field);
	snprintf(text, TEXT, "%u", number);
}

static void field_bus(nvmlDevice_t device, const char *field, char *text)
{
	(void)field;
	snprintf(text, TEXT, "%s", bus_id(device));
}

static void field_name(nvmlDevice_t device, const char *field, char *text) { check(nv.nvmlDeviceGetName(device, text, TEXT), field); }
static void field_uuid(nvmlDevice_t device, const char *field, char *text) { check(nv.nvmlDeviceGetUUID(device, text, TEXT), field); }
static void field_serial(nvmlDevice_t device, const char *field, char *text) { check(nv.nvmlDeviceGetSerial(device, text, TEXT), field); }

static void field_driver(nvmlDevice_t device, const char *field, char *text)
{
	(void)device;
	check(nv.nvmlSystemGetDriverVersion(text, TEXT), field);
}

static void field_capability(nvmlDevice_t device, const char *field, char *text)
{
	int major, minor;

	check(nv.nvmlDeviceGetCudaComputeCapability(device, &major, &minor), field);
	snprintf(text, TEXT, "%d.%d", major, minor);
}

static void field_persistence(nvmlDevice_t device, const char *field, char *text)
{
	nvmlEnableState_t mode;

	(void)field;
	nvmlReturn_t code = nv.nvmlDeviceGetPersistenceMode(device, &mode);
	on_off(text, code, mode);
}

static void field_ecc(nvmlDevice_t device, const char *field, char *text)
{
	nvmlEnableState_t current, pending;
	nvmlReturn_t code = nv.nvmlDeviceGetEccMode(device, &current, &pending);

	on_off(text, code, strstr(field, "pending") ? pending : current);
}

static void field_compute_mode(nvmlDevice_t device, const char *field, char *text)
{
	static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
	nvmlComputeMode_t mode;

	check(nv.nvmlDeviceGetComputeMode(device, &mode), field);
	snprintf(text, TEXT, "%s", names[mode]);
}

static const struct field {
	const char *name;
	void (*read)(nvmlDevice_t device, const char *field, char *text);
	const char *unit;
} fields[] = {
	{"index", field_number, ""}, {"count", field_number, ""}, {"name", field_name, ""}, {"gpu_name", field_name, ""},
	{"uuid", field_uuid, ""}, {"gpu_uuid", field_uuid, ""}, {"serial", field_serial, ""}, {"gpu_serial", field_serial, ""},
	{"pci.bus_id", field_bus, ""}, {"gpu_bus_id", field_bus, ""}, {"driver_version", field_driver, ""},
	{"compute_cap", field_capability, ""}, {"persistence_mode", field_persistence, ""},
	{"compute_mode", field_compute_mode, ""}, {"ecc.mode.current", field_ecc, ""}, {"ecc.mode.pending", field_ecc, ""},
	{"mig.mode.current", field_mig, ""}, {"mig.mode.pending", field_mig, ""},
	{"memory.total", field_memory, " [MiB]"}, {"memory.free", field_memory, " [MiB]"}, {"memory.used", field_memory, " [MiB]"},
};

static const struct field *find_field(const char *name)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	fail(NVML_ERROR_INVALID_ARGUMENT, "Field \"%s\" is not a valid field to query.\n", name);
}

void command_fields(struct gpus gpus, const char *names, const char *format)
{
	const struct field *chosen[32];
	unsigned count = 0;
	char *copy = strdup(names), *rest = copy, *name, text[TEXT];

	if (!format || strncmp(format, "csv", 3))
		fail(NVML_ERROR_INVALID_ARGUMENT, "Only --format=csv is known.\n");
	bool units = !strstr(format, "nounits");
	while ((name = strsep(&rest, ",")) && count < 32)
		chosen[count++] = find_field(name + (*name == ' '));
	for (unsigned i = 0; i < count && !strstr(format, "noheader"); i++)
		printf("%s%s%s", chosen[i]->name, units ? chosen[i]->unit : "", i + 1 < count ? ", " : "\n");
	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned i = 0; i < count; i++) {
			chosen[i]->read(gpus.list[g], chosen[i]->name, text);
			if (!units && *chosen[i]->unit)
				text[strcspn(text, " ")] = 0;
			printf("%s%s", text, i + 1 < count ? ", " : "\n");
		}
	free(copy);
}

static void print_versions(void)
{
	char driver[TEXT];
	int cuda;

	check(nv.nvmlSystemGetDriverVersion(driver, TEXT), "Failed to get the driver version");
	check(nv.nvmlSystemGetCudaDriverVersion_v2(&cuda), "Failed to get the CUDA version");
	printf("%-42s: %s\n%-42s: %d.%d\n", "Driver Version", driver, "CUDA Version", cuda / 1000, cuda % 1000 / 10);
}

void command_query(struct gpus gpus)
{
	static const struct { const char *label, *field; } lines[] = {
		{"Product Name", "name"}, {"Persistence Mode", "persistence_mode"}, {"Serial Number", "serial"},
		{"GPU UUID", "uuid"}, {"Compute Mode", "compute_mode"}, {"FB Memory Total", "memory.total"},
	};
	char text[TEXT];

	printf("\n==============NVSMI LOG==============\n\n");
	print_versions();
	printf("\n%-42s: %u\n", "Attached GPUs", gpus.count);
	for (unsigned g = 0; g < gpus.count; g++) {
		unsigned minor = 0;
		printf("GPU %s\n", bus_id(gpus.list[g]));
		for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
			find_field(lines[i].field)->read(gpus.list[g], lines[i].field, text);
			printf("    %-38s: %s\n", lines[i].label, text);
		}
		check(nv.nvmlDeviceGetMinorNumber(gpus.list[g], &minor), "Failed to get the minor number");
		printf("    %-38s: %u\n    MIG Mode\n", "Minor Number", minor);
		field_mig(gpus.list[g], "current", text);
		printf("        %-34s: %s\n", "Current", strcmp(text, "[N/A]") ? text : "N/A");
		field_mig(gpus.list[g], "pending", text);
		printf("        %-34s: %s\n", "Pending", strcmp(text, "[N/A]") ? text : "N/A");
	}
}

void command_overview(struct gpus gpus)
{
	char name[TEXT], memory[TEXT], mig[TEXT];

	print_versions();
	for (unsigned i = 0; i < gpus.count; i++) {
		check(nv.nvmlDeviceGetName(gpus.list[i], name, TEXT), "Failed to get the name");
		field_memory(gpus.list[i], "memory.total", memory);
		field_mig(gpus.list[i], "current", mig);
		printf("| %3u  %-44s | %s | %10s | MIG %-8s |\n", index_of(gpus.list[i]), name, bus_id(gpus.list[i]), memory, mig);
	}
}
