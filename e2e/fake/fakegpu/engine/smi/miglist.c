/* The possible and the existing instances of MIG. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int smaller(const void *a, const void *b)
{
	const nvmlGpuInstanceProfileInfo_v2_t *x = &((const struct profile *)a)->info, *y = &((const struct profile *)b)->info;

	if (x->sliceCount != y->sliceCount)
		return x->sliceCount < y->sliceCount ? -1 : 1;
	if (x->memorySizeMB != y->memorySizeMB)
		return x->memorySizeMB < y->memorySizeMB ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

unsigned profiles(nvmlDevice_t device, struct profile *list, unsigned room)
{
	unsigned count = 0;
	nvmlReturn_t code = NVML_SUCCESS;

	for (unsigned constant = 0; code != NVML_ERROR_INVALID_ARGUMENT && count < room; constant++) {
		struct profile *p = &list[count];
		p->info.version = nvmlGpuInstanceProfileInfo_v2;
		code = nv.nvmlDeviceGetGpuInstanceProfileInfoV(device, constant, &p->info);
		if (code != NVML_SUCCESS)
			continue;
		p->count = p->free = 0;
		nv.nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, p->info.id, p->placements, &p->count);
		nv.nvmlDeviceGetGpuInstanceRemainingCapacity(device, p->info.id, &p->free);
		count++;
	}
	qsort(list, count, sizeof *list, smaller);
	return count;
}

static void rule(int width, char with)
{
	putchar(with == '=' ? '|' : '+');
	for (int i = 0; i < width; i++)
		putchar(with);
	puts(with == '=' ? "|" : "+");
}

static void list_profiles(struct gpus gpus)
{
	struct profile list[MOST_PROFILES];

	rule(79, '-');
	printf("| %-78s|\n", "GPU instance profiles:");
	printf("| %-78s|\n", "GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC");
	printf("| %-78s|\n", "                               Free/Total   GiB              CE    JPEG  OFA");
	rule(79, '=');
	for (unsigned g = 0; g < gpus.count; g++) {
		unsigned count = profiles(gpus.list[g], list, MOST_PROFILES);
		for (unsigned i = 0; i < count; i++) {
			const nvmlGpuInstanceProfileInfo_v2_t *p = &list[i].info;
			printf("| %3u  %-18s %3u    %2u/%-2u       %-6.2f     %-7s%-6u %u     %u   |\n", index_of(gpus.list[g]), p->name,
			       p->id, list[i].free, p->instanceCount, p->memorySizeMB / 1024.0, p->isP2pSupported ? "Yes" : "No",
			       p->multiprocessorCount, p->decoderCount, p->encoderCount);
			printf("| %60s%3u   %3u   %3u   |\n", "", p->copyEngineCount, p->jpegCount, p->ofaCount);
			rule(79, '-');
		}
	}
}

static void list_placements(struct gpus gpus)
{
	struct profile list[MOST_PROFILES];

	for (unsigned g = 0; g < gpus.count; g++) {
		unsigned count = profiles(gpus.list[g], list, MOST_PROFILES);
		for (unsigned i = 0; i < count; i++) {
			printf("GPU %2u Profile ID %2u Placement%s: {", index_of(gpus.list[g]), list[i].info.id, list[i].count > 1 ? "s" : " ");
			for (unsigned k = 0; k < list[i].count; k++)
				printf("%s%u", k ? "," : "", list[i].placements[k].start);
			printf("}:%u\n", list[i].placements[0].size);
		}
	}
}

static const char *profile_name(nvmlDevice_t device, unsigned id)
{
	static struct profile list[MOST_PROFILES];
	unsigned count = profiles(device, list, MOST_PROFILES);

	for (unsigned i = 0; i < count; i++)
		if (list[i].info.id == id)
			return list[i].info.name;
	return "?";
}

static void list_instances(struct gpus gpus)
{
	nvmlGpuInstance_t handle;
	nvmlGpuInstanceInfo_t info;
	unsigned count = 0;

	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned id = 0; id < MOST_INSTANCES; id++) {
			if (nv.nvmlDeviceGetGpuInstanceById(gpus.list[g], id, &handle) != NVML_SUCCESS)
				continue;
			if (!count++) {
				rule(55, '-');
				printf("| %-54s|\n", "GPU instances:");
				printf("| %-54s|\n", "GPU   Name             Profile  Instance   Placement");
				printf("| %-54s|\n", "                         ID       ID       Start:Size");
				rule(55, '=');
			}
			check(nv.nvmlGpuInstanceGetInfo(handle, &info), "Failed to get the GPU instance");
			printf("| %3u  %-19s %2u       %2u         %2u:%-2u    |\n", index_of(gpus.list[g]),
			       profile_name(gpus.list[g], info.profileId), info.profileId, info.id, info.placement.start, info.placement.size);
			rule(55, '-');
		}
	if (!count)
		fail(NVML_ERROR_NOT_FOUND, "No GPU instances found: Not Found\n");
}

/* compute_name returns the name of a compute instance profile; false if it does not exist. */
static bool compute_profile(nvmlGpuInstance_t instance, unsigned constant, nvmlComputeInstanceProfileInfo_v2_t *info)
{
	info->version = nvmlComputeInstanceProfileInfo_v2;
	return nv.nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, constant, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, info) ==
	       NVML_SUCCESS;
}

static void print_computes(unsigned gpu, nvmlGpuInstance_t instance, unsigned id, unsigned *count)
{
	nvmlComputeInstance_t handle;
	nvmlComputeInstanceInfo_t info;
	nvmlComputeInstanceProfileInfo_v2_t profile;

	for (unsigned c = 0; c < MOST_COMPUTES; c++) {
		if (nv.nvmlGpuInstanceGetComputeInstanceById(instance, c, &handle) != NVML_SUCCESS)
			continue;
		if (!(*count)++) {
			rule(68, '-');
			printf("| %-67s|\n", "Compute instances:");
			printf("| %-67s|\n", "GPU     GPU       Name             Profile   Instance   Placement");
			printf("| %-67s|\n", "      Instance                       ID        ID       Start:Size");
			printf("| %-67s|\n", "        ID");
			rule(68, '=');
		}
		check(nv.nvmlComputeInstanceGetInfo_v2(handle, &info), "Failed to get the compute instance");
		for (unsigned constant = 0; constant < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; constant++)
			if (compute_profile(instance, constant, &profile) && profile.id == info.profileId)
				break;
		printf("| %3u     %2u       %-19s %2u        %2u         %2u:%-2u    |\n", gpu, id, profile.name, info.profileId, info.id,
		       info.placement.start, info.placement.size);
		rule(68, '-');
	}
}

static void list_computes(struct gpus gpus)
{
	nvmlGpuInstance_t handle;
	unsigned count = 0;

	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned id = 0; id < MOST_INSTANCES; id++)
			if (nv.nvmlDeviceGetGpuInstanceById(gpus.list[g], id, &handle) == NVML_SUCCESS)
				print_computes(index_of(gpus.list[g]), handle, id, &count);
	if (!count)
		fail(NVML_ERROR_NOT_FOUND, "No compute instances found: Not Found\n");
}

static void print_compute_profiles(unsigned gpu, nvmlGpuInstance_t instance, unsigned id, unsigned *count)
{
	nvmlComputeInstanceProfileInfo_v2_t p;

	for (unsigned constant = 0; constant < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; constant++) {
		unsigned free = 0;
		if (!compute_profile(instance, constant, &p))
			continue;
		if (!(*count)++) {
			rule(86, '-');
			printf("| %-85s|\n", "Compute instance profiles:");
			printf("| %-85s|\n", "GPU     GPU       Name             Profile  Instances   Exclusive       Shared");
			printf("| %-85s|\n", "      Instance                       ID     Free/Total     SM       DEC   ENC   OFA");
			printf("| %-85s|\n", "        ID                                                          CE    JPEG");
			rule(86, '=');
		}
		nv.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, p.id, &free);
		bool whole = !strchr(p.name, 'c'); /* MIG 3g.40gb, not MIG 1c.3g.40gb */
		printf("| %3u     %2u       %-18s %2u%c     %2u/%-2u          %3u      %3u   %3u   %3u   |\n", gpu, id, p.name, p.id,
		       whole ? '*' : ' ', free, p.instanceCount, p.multiprocessorCount, p.sharedDecoderCount, p.sharedEncoderCount,
		       p.sharedOfaCount);
		printf("| %67s%3u   %3u         |\n", "", p.sharedCopyEngineCount, p.sharedJpegCount);
		rule(86, '-');
	}
}

static void list_compute_profiles(struct gpus gpus)
{
	nvmlGpuInstance_t handle;
	unsigned count = 0;

	for (unsigned g = 0; g < gpus.count; g++)
		for (unsigned id = 0; id < MOST_INSTANCES; id++)
			if (nv.nvmlDeviceGetGpuInstanceById(gpus.list[g], id, &handle) == NVML_SUCCESS)
				print_compute_profiles(index_of(gpus.list[g]), handle, id, &count);
	if (!count)
		fail(NVML_ERROR_NOT_FOUND, "No GPU instances found: Not Found\n");
}

bool mig_lists(struct arguments *arguments, struct gpus gpus)
{
	static const struct { const char *brief, *verbose; void (*run)(struct gpus); } lists[] = {
		{"-lgipp", "--list-gpu-instance-possible-placements", list_placements},
		{"-lgip", "--list-gpu-instance-profiles", list_profiles},
		{"-lgi", "--list-gpu-instances", list_instances},
		{"-lcip", "--list-compute-instance-profiles", list_compute_profiles},
		{"-lci", "--list-compute-instances", list_computes},
	};

	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		if (flag(arguments, lists[i].brief, lists[i].verbose)) {
			none_left(arguments);
			lists[i].run(gpus);
			return true;
		}
	return false;
}
