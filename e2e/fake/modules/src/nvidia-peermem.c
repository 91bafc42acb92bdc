// SPDX-License-Identifier: GPL-2.0
/* A module that needs nvidia, and nothing else. */
#include <linux/module.h>

#include "fake.h"
#include "version.h"

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a fake of nvidia-peermem");
MODULE_VERSION(FAKE_VERSION);

int fake_nvidia_version(void);

static int __init load(void)
{
	int error = fake_nvidia_version();

	return error ? error : 0;
}

static void __exit unload(void)
{
}

module_init(load);
module_exit(unload);
