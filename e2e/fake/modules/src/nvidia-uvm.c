// SPDX-License-Identifier: GPL-2.0
/* The devices of nvidia-uvm. */
#include <linux/module.h>

#include "fake.h"
#include "version.h"

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a fake of nvidia-uvm");
MODULE_VERSION(FAKE_VERSION);

int fake_nvidia_version(void);

static struct fake_devices devices = { .name = "nvidia-uvm", .major = FAKE_MAJOR + 1, .minor = 0, .count = 2 };

static int __init load(void)
{
	int error = fake_nvidia_version();

	return error ? error : fake_register(&devices, THIS_MODULE);
}

static void __exit unload(void)
{
	fake_unregister(&devices);
}

module_init(load);
module_exit(unload);
