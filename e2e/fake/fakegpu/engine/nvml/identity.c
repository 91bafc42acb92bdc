/* The identity of a GPU or MIG device: index, UUID, names, PCI. */
#include "session.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static nvmlReturn_t open_gpu(unsigned gpu, nvmlDevice_t *device)
{
	struct target target;

	*device = gpu_handle(gpu);
	return known_target(*device, &target);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	ENTER();
	REQUIRE(device && index < session_count());
	return open_gpu(session_gpu(index), device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	ENTER();
	REQUIRE(serial && device);
	for (unsigned i = 0; i < session_count(); i++)
		if (!strcmp(hardware()->gpus[session_gpu(i)].serial, serial))
			return open_gpu(session_gpu(i), device);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	unsigned domain, bus, number, function = 0;

	ENTER();
	REQUIRE(bus_id && device && sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &number, &function) >= 3);
	for (unsigned i = 0; i < session_count(); i++) {
		const struct gpu_part *part = &hardware()->gpus[session_gpu(i)];
		if (part->domain == domain && part->bus == bus && part->device == number && function == 0)
			return open_gpu(session_gpu(i), device);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* find_mig searches one GPU for the MIG device with the UUID, in the new or the legacy form. */
static bool find_mig(const struct target *target, const char *uuid, nvmlDevice_t *device)
{
	char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	for (unsigned i = 0; i < MAX_INSTANCES; i++)
		for (unsigned c = 0; c < MAX_COMPUTES; c++) {
			const struct compute *compute = &target->state.instances[i].computes[c];
			if (!compute->used || !visible_instance(target->gpu, i, c))
				continue;
			*device = mig_handle(target, i, c);
			mig_uuid(text, sizeof text, compute);
			if (!strcasecmp(text, uuid))
				return true;
			snprintf(text, sizeof text, "MIG-%s/%u/%u", target->part->uuid, i, c);
			if (!strcasecmp(text, uuid))
				return true;
		}
	return false;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct target target;

	ENTER();
	REQUIRE(uuid && device);
	for (unsigned i = 0; i < session_count(); i++) {
		if (!strcasecmp(hardware()->gpus[session_gpu(i)].uuid, uuid))
			return open_gpu(session_gpu(i), device);
		if (gpu_target(gpu_handle(session_gpu(i)), &target) == NVML_SUCCESS && find_mig(&target, uuid, device))
			return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct target target;

	ENTER_DEVICE(&target, index);
	*index = 0;
	if (!target.mig) {
		while (session_gpu(*index) != target.gpu)
			++*index;
		return NVML_SUCCESS;
	}
	for (unsigned i = 0; i <= target.instance; i++)
		for (unsigned c = 0; c < (i == target.instance ? target.compute : MAX_COMPUTES); c++)
			*index += target.state.instances[i].computes[c].used && visible_instance(target.gpu, i, c);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct target target;
	char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	ENTER_DEVICE(&target, uuid);
	if (!target.mig)
		return write_text(uuid, length, target.part->uuid);
	mig_uuid(text, sizeof text, &target.state.instances[target.instance].computes[target.compute]);
	return write_text(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct target target;
	char profile_name[64], text[sizeof target.model->product + sizeof profile_name];

	ENTER_DEVICE(&target, name);
	if (!target.mig)
		return write_text(name, length, target.model->product);
	const struct instance *instance = &target.state.instances[target.instance];
	const struct profile_part *profile = profile_by_id(target.model, instance->profile);
	mig_name(profile_name, sizeof profile_name, profile,
		 compute_by_id(profile, instance->computes[target.compute].profile));
	snprintf(text, sizeof text, "%s %s", target.model->product, profile_name);
	return write_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	struct target target;

	ENTER_GPU(&target, minor);
	*minor = target.part->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module)
{
	struct target target;

	ENTER_GPU(&target, module);
	*module = target.part->module_id;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	struct target target;

	ENTER_GPU(&target, serial);
	return write_text(serial, length, target.part->serial);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number, unsigned int length)
{
	struct target target;
	char text[32];

	ENTER_GPU(&target, number);
	snprintf(text, sizeof text, "900-2%04X-0000-000", target.model->pci_device >> 16);
	return write_text(number, length, text);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
	struct target target;

	ENTER_DEVICE(&target, brand);
	*brand = target.model->brand;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture)
{
	struct target target;

	ENTER_DEVICE(&target, architecture);
	*architecture = target.model->architecture;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	struct target target;

	ENTER_DEVICE(&target, major && minor);
	*major = target.model->compute_major;
	*minor = target.model->compute_minor;
	return NVML_SUCCESS;
}

void pci_text(nvmlPciInfo_t *pci)
{
	snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, NVML_DEVICE_PCI_BUS_ID_FMT_ARGS(pci));
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT,
		 pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct target target;

	ENTER();
	REQUIRE(pci);
	TRY(known_target(device, &target));
	*pci = (nvmlPciInfo_t){
		.domain = target.part->domain, .bus = target.part->bus, .device = target.part->device,
		.pciDeviceId = target.model->pci_device, .pciSubSystemId = target.model->pci_subsystem,
	};
	pci_text(pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
	struct target target;

	ENTER_GPU(&target, cores);
	*cores = target.model->cores;
	return target.state.mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}
