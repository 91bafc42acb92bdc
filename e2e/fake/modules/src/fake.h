/* SPDX-License-Identifier: GPL-2.0 */
#pragma once
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>

/* The first of three local majors, which no driver gets: GPUs, nvidia-uvm, capabilities (e2e/fake/fakegpu/nodes.go). */
#define FAKE_MAJOR 120

/* A range of character devices. Opening one succeeds, and keeps the module in use until it is closed. */
struct fake_devices {
	const char *name;
	unsigned int major, minor, count;
	struct cdev cdev;
	struct file_operations ops;
};

static inline int fake_register(struct fake_devices *d, struct module *owner)
{
	dev_t first = MKDEV(d->major, d->minor);
	int error = register_chrdev_region(first, d->count, d->name);

	if (error)
		return error;
	d->ops.owner = owner;
	cdev_init(&d->cdev, &d->ops);
	d->cdev.owner = owner;
	error = cdev_add(&d->cdev, first, d->count);
	if (error)
		unregister_chrdev_region(first, d->count);
	return error;
}

static inline void fake_unregister(struct fake_devices *d)
{
	cdev_del(&d->cdev);
	unregister_chrdev_region(MKDEV(d->major, d->minor), d->count);
}
