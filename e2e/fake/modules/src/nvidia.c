// SPDX-License-Identifier: GPL-2.0
/*
 * The part of NVIDIA's kernel driver that programs see without a GPU: character devices with its names, its files in /proc, a version, and a use count
 * while a device is open. The numbers are those of the fake GPUs. files.h and version.h are generated.
 */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "fake.h"
#include "files.h"
#include "version.h"

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a fake of NVIDIA's kernel driver");
MODULE_VERSION(FAKE_VERSION);

/* Modules that need this one call it, so that the kernel counts them as its users. */
int fake_nvidia_version(void);
int fake_nvidia_version(void)
{
	return 0;
}
EXPORT_SYMBOL_GPL(fake_nvidia_version);

static int show(struct seq_file *out, void *unused)
{
	seq_puts(out, out->private);
	return 0;
}

static int open_file(struct inode *inode, struct file *file)
{
	return single_open(file, show, pde_data(inode));
}

static const struct proc_ops file_ops = {
	.proc_open = open_file,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static struct fake_devices gpus = { .name = "nvidia", .major = FAKE_MAJOR, .minor = 0, .count = 254 };
static struct fake_devices control = { .name = "nvidiactl", .major = FAKE_MAJOR, .minor = 255, .count = 1 };
static struct fake_devices capabilities = { .name = "nvidia-caps", .major = FAKE_MAJOR + 2, .minor = 0, .count = 4400 };

/* make_files creates the files, folders before their content: files.h lists a folder without a text. */
static int make_files(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fake_files); i++) {
		const struct fake_file *f = &fake_files[i];
		void *made = f->text ? (void *)proc_create_data(f->path, 0444, NULL, &file_ops, (void *)f->text) : (void *)proc_mkdir(f->path, NULL);

		if (!made)
			return -ENOMEM;
	}
	return 0;
}

static void remove_files(void)
{
	remove_proc_subtree("driver/nvidia", NULL);
	remove_proc_subtree("driver/nvidia-caps", NULL);
}

static int __init load(void)
{
	int error = fake_register(&gpus, THIS_MODULE);

	if (error)
		return error;
	error = fake_register(&control, THIS_MODULE);
	if (error)
		goto no_control;
	error = fake_register(&capabilities, THIS_MODULE);
	if (error)
		goto no_capabilities;
	error = make_files();
	if (error)
		goto no_files;
	return 0;

no_files:
	remove_files();
	fake_unregister(&capabilities);
no_capabilities:
	fake_unregister(&control);
no_control:
	fake_unregister(&gpus);
	return error;
}

static void __exit unload(void)
{
	remove_files();
	fake_unregister(&capabilities);
	fake_unregister(&control);
	fake_unregister(&gpus);
}

module_init(load);
module_exit(unload);
