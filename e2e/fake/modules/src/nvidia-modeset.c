// SPDX-License-Identifier: GPL-2.0
/* The device of nvidia-modeset. */
#include <linux/module.h>

#include "fake.h"
#include "version.h"

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a fake of nvidia-modeset");
MODULE_VERSION(FAKE_VERSION);

int fake_nvidia_version(void);

static struct fake_devices device = { .name = "nvidia-modeset", .major = FAKE_MAJOR, .minor = 254, .count = 1 };

static int __init load(void)
{
	int error = fake_nvidia_version();

	return error ? error : fake_register(&device, THIS_MODULE);
}

static void __exit unload(void)
{
	fake_unregister(&device);
}

module_init(load);
module_exit(unload);
