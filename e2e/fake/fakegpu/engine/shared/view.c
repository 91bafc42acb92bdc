#define _GNU_SOURCE
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "state.h"

/*
 * sees_all is true on the host, where device nodes are not needed unless their folder was named: a program of the host that the
 * test gives no folder has no /dev of the machine.
 */
static bool sees_all(void) { return state_writable() && !getenv("FAKE_NVML_DEV"); }

/* granted reports whether the node has the numbers and may be opened. */
static bool granted(const char *name, unsigned major, unsigned minor, int flags)
{
	const char *folder = getenv("FAKE_NVML_DEV");
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", folder ? folder : "/dev", name);
	if (lstat(path, &st) || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(major, minor))
		return false;
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno == ENXIO;
}

static bool granted_capability(unsigned minor)
{
	char name[64];

	snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", minor);
	return granted(name, hardware()->major_caps, minor, O_RDONLY);
}

bool visible_control(void)
{
	return sees_all() || granted("nvidiactl", hardware()->major_gpu, 255, O_RDWR);
}

bool visible_uvm(void)
{
	return sees_all() || granted("nvidia-uvm", hardware()->major_uvm, 0, O_RDWR);
}

bool visible_gpu(unsigned gpu)
{
	unsigned minor = hardware()->gpus[gpu].minor;
	char name[32];

	if (sees_all())
		return true;
	snprintf(name, sizeof name, "nvidia%u", minor);
	return granted(name, hardware()->major_gpu, minor, O_RDWR);
}

bool visible_instance(unsigned gpu, unsigned instance, unsigned compute)
{
	unsigned capability = 3 + 135 * hardware()->gpus[gpu].minor + 9 * instance;

	return state_writable() ||
	       (granted_capability(capability) && granted_capability(capability + 1 + compute));
}
