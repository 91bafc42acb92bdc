/* The links of GPUs, their CPUs and their fabric. */
#include "session.h"

#include <string.h>

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level)
{
	struct target target, peer;

	ENTER_GPU(&target, level);
	TRY(gpu_target(other, &peer));
	*level = target.part->levels[peer.gpu];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int *count,
					      nvmlDevice_t *devices)
{
	struct target target;
	unsigned found = 0;

	ENTER_GPU(&target, count);
	for (unsigned i = 0; i < session_count(); i++) {
		unsigned gpu = session_gpu(i);
		if (gpu == target.gpu || target.part->levels[gpu] > level)
			continue;
		if (devices && found < *count)
			devices[found] = gpu_handle(gpu);
		found++;
	}
	bool fits = !devices || found <= *count;
	*count = found;
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static bool link_up(const struct target *target, unsigned link)
{
	return link < target->part->link_count && !(target->state.links_down & 1u << link);
}

/* linked reports whether an NVLink that is up leads from one GPU to the other, or to a switch. */
static bool linked(const struct target *from, const struct target *to)
{
	for (unsigned i = 0; i < from->part->link_count; i++) {
		const struct link_part *end = &from->part->nvlinks[i];
		bool there = end->kind == NVML_NVLINK_DEVICE_TYPE_SWITCH ||
			     (end->domain == to->part->domain && end->bus == to->part->bus && end->device == to->part->device);
		if (there && link_up(from, i))
			return true;
	}
	return false;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index,
				    nvmlGpuP2PStatus_t *status)
{
	struct target target, peer;

	ENTER_GPU(&target, status);
	TRY(gpu_target(other, &peer));
	REQUIRE(target.gpu != peer.gpu && index < NVML_P2P_CAPS_INDEX_UNKNOWN);
	bool link = linked(&target, &peer) && linked(&peer, &target);
	bool near = target.part->levels[peer.gpu] <= NVML_TOPOLOGY_NODE;
	if (target.state.mig || peer.state.mig)
		*status = NVML_P2P_STATUS_NOT_SUPPORTED;
	else if (link || (near && index != NVML_P2P_CAPS_INDEX_NVLINK && index != NVML_P2P_CAPS_INDEX_ATOMICS))
		*status = NVML_P2P_STATUS_OK;
	else
		*status = NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

/* link_target resolves the device and checks that it has such a link. A GPU whose links lead nowhere, as in a virtual machine without switches, has none. */
static nvmlReturn_t link_target(nvmlDevice_t device, unsigned link, struct target *target)
{
	TRY(gpu_target(device, target));
	if (!target->model->link_max || !target->part->link_count)
		return NVML_ERROR_NOT_SUPPORTED;
	REQUIRE(link < target->model->link_max);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)
{
	struct target target;

	ENTER();
	REQUIRE(active);
	TRY(link_target(device, link, &target));
	*active = link_up(&target, link) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
	struct target target;

	ENTER();
	REQUIRE(version);
	TRY(link_target(device, link, &target));
	*version = target.model->link_version;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
					   unsigned int *result)
{
	struct target target;

	ENTER();
	REQUIRE(result && capability < NVML_NVLINK_CAP_COUNT);
	TRY(link_target(device, link, &target));
	*result = capability == NVML_NVLINK_CAP_VALID || (capability != NVML_NVLINK_CAP_SLI_BRIDGE && link_up(&target, link));
	return NVML_SUCCESS;
}

/* link_end returns the far end of a link that is up. */
static nvmlReturn_t link_end(nvmlDevice_t device, unsigned link, const struct link_part **end)
{
	struct target target;

	TRY(link_target(device, link, &target));
	*end = &target.part->nvlinks[link];
	return link_up(&target, link) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
	const struct link_part *end;

	ENTER();
	REQUIRE(type);
	TRY(link_end(device, link, &end));
	*type = end->kind;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	const struct link_part *end;

	ENTER();
	REQUIRE(pci);
	TRY(link_end(device, link, &end));
	*pci = (nvmlPciInfo_t){.domain = end->domain, .bus = end->bus, .device = end->device};
	pci_text(pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
					     unsigned long long *value)
{
	struct target target;

	ENTER();
	REQUIRE(value && counter < NVML_NVLINK_ERROR_COUNT);
	TRY(link_target(device, link, &target));
	*value = counter == NVML_NVLINK_ERROR_DL_CRC_FLIT ? target.state.link_errors[link] : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes,
					 nvmlAffinityScope_t scope)
{
	struct target target;

	(void)scope;
	ENTER_GPU(&target, nodes && size);
	if (target.part->numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(nodes, 0, size * sizeof *nodes);
	nodes[0] = 1ul << target.part->numa;
	return NVML_SUCCESS;
}

static void copy_cpus(const struct target *target, unsigned size, unsigned long *cpus)
{
	memset(cpus, 0, size * sizeof *cpus);
	memcpy(cpus, target->part->cpus, (size < CPU_WORDS ? size : CPU_WORDS) * sizeof *cpus);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size, unsigned long *cpus)
{
	struct target target;

	ENTER_GPU(&target, cpus && size);
	copy_cpus(&target, size, cpus);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int size, unsigned long *cpus,
						 nvmlAffinityScope_t scope)
{
	struct target target;

	(void)scope;
	ENTER_GPU(&target, cpus && size);
	copy_cpus(&target, size, cpus);
	return NVML_SUCCESS;
}

/* fabric is, from Hopper on, an answer on GPUs without a fabric, too. */
static nvmlReturn_t fabric(const struct target *target, nvmlGpuFabricInfo_t *info)
{
	memset(info, 0, sizeof *info);
	if (!target->part->fabric)
		return target->model->compute_major < 9 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
	memcpy(info->clusterUuid, target->part->cluster, sizeof info->clusterUuid);
	info->status = target->state.fabric_status;
	info->cliqueId = target->part->clique;
	info->state = target->state.fabric_state ? target->state.fabric_state : NVML_GPU_FABRIC_STATE_COMPLETED;
	return NVML_SUCCESS;
}

/* fabric_degraded reports whether a bit of a degraded fabric is set: bandwidth, routes, timeouts. */
static bool fabric_degraded(const struct target *target)
{
	for (unsigned shift = 0; shift < NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION; shift += 2)
		if ((target->state.fabric_health >> shift & 3) == NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE)
			return true;
	return false;
}

static unsigned char fabric_summary(const struct target *target)
{
	return fabric_degraded(target) ? NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY : NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
	struct target target;

	ENTER_GPU(&target, info);
	return fabric(&target, info);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
	struct target target;
	nvmlGpuFabricInfo_t plain;

	ENTER_GPU(&target, info);
	if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	TRY(fabric(&target, &plain));
	memcpy(info->clusterUuid, plain.clusterUuid, sizeof info->clusterUuid);
	info->status = plain.status;
	info->cliqueId = plain.cliqueId;
	info->state = plain.state;
	info->healthMask = target.state.fabric_health;
	if (info->version == nvmlGpuFabricInfo_v3 && target.part->fabric)
		info->healthSummary = fabric_summary(&target);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo_v4(nvmlDevice_t device, nvmlGpuFabricInfo_v4_t *info)
{
	struct target target;
	nvmlGpuFabricInfo_t plain;

	ENTER_GPU(&target, info);
	TRY(fabric(&target, &plain));
	*info = (nvmlGpuFabricInfo_v4_t){
		.status = plain.status, .numCliques = 1, .state = plain.state,
		.healthMask = target.state.fabric_health, .healthSummary = fabric_summary(&target),
	};
	memcpy(info->clusterUuid, plain.clusterUuid, sizeof info->clusterUuid);
	info->cliques[0] = (nvmlGpuFabricClique_v1_t){NVML_GPU_FABRIC_CLIQUE_TYPE_UNICAST_POINTER, plain.cliqueId};
	return NVML_SUCCESS;
}
