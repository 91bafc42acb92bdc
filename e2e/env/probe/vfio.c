// What a virtual machine monitor gets in this container, in one line:
//   {"group":"12","viable":true,"device":"0000:1b:00.0","pci":true,"reset":true,"regions":9,"interrupts":5,"reads":"10de2330"}
// It opens the IOMMU group below /dev/vfio, and then the device through it, as QEMU does (Documentation/driver-api/vfio.rst). Only the group's node and
// sysfs are read: the address of the device is that of the member of the group.
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int failed(const char *what) {
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

// entry copies the name of the first entry of a folder that is neither hidden nor excluded.
static int entry(const char *folder, const char *excluded, char *name, size_t size) {
	DIR *dir = opendir(folder);
	if (dir == NULL)
		return -1;
	struct dirent *e;
	int found = -1;
	while (found != 0 && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.' && strcmp(e->d_name, excluded) != 0)
			found = snprintf(name, size, "%s", e->d_name) < (int)size ? 0 : -1;
	closedir(dir);
	return found;
}

int vfio(void) {
	char group[64], path[256], address[64];
	if (entry("/dev/vfio", "vfio", group, sizeof group) != 0)
		return failed("find a group in /dev/vfio");
	snprintf(path, sizeof path, "/sys/kernel/iommu_groups/%s/devices", group);
	if (entry(path, "", address, sizeof address) != 0)
		return failed("find the device of the group");
	int container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	if (container < 0)
		return failed("open /dev/vfio/vfio");
	snprintf(path, sizeof path, "/dev/vfio/%s", group);
	int opened = open(path, O_RDWR | O_CLOEXEC);
	if (opened < 0)
		return failed("open the group");
	struct vfio_group_status status = {.argsz = sizeof status};
	if (ioctl(opened, VFIO_GROUP_GET_STATUS, &status) != 0)
		return failed("VFIO_GROUP_GET_STATUS");
	if (ioctl(opened, VFIO_GROUP_SET_CONTAINER, &container) != 0)
		return failed("VFIO_GROUP_SET_CONTAINER");
	if (ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0)
		return failed("VFIO_SET_IOMMU");
	int device = ioctl(opened, VFIO_GROUP_GET_DEVICE_FD, address);
	if (device < 0)
		return failed("VFIO_GROUP_GET_DEVICE_FD");
	struct vfio_device_info info = {.argsz = sizeof info};
	if (ioctl(device, VFIO_DEVICE_GET_INFO, &info) != 0)
		return failed("VFIO_DEVICE_GET_INFO");
	if ((info.flags & VFIO_DEVICE_FLAGS_RESET) != 0 && ioctl(device, VFIO_DEVICE_RESET) != 0)
		return failed("VFIO_DEVICE_RESET");
	struct vfio_region_info config = {.argsz = sizeof config, .index = VFIO_PCI_CONFIG_REGION_INDEX};
	if (ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &config) != 0)
		return failed("VFIO_DEVICE_GET_REGION_INFO");
	unsigned short ids[2];
	if (pread(device, ids, sizeof ids, (off_t)config.offset) != sizeof ids)
		return failed("read the configuration space");
	printf("{\"group\":\"%s\",\"viable\":%s,\"device\":\"%s\",\"pci\":%s,\"reset\":%s,\"regions\":%u,\"interrupts\":%u,\"reads\":\"%04x%04x\"}\n", group,
		(status.flags & VFIO_GROUP_FLAGS_VIABLE) != 0 ? "true" : "false", address, (info.flags & VFIO_DEVICE_FLAGS_PCI) != 0 ? "true" : "false",
		(info.flags & VFIO_DEVICE_FLAGS_RESET) != 0 ? "true" : "false", info.num_regions, info.num_irqs, ids[0], ids[1]);
	return 0;
}
