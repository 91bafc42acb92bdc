package survey

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/bootid"
)

// Kernel returns the release of the running kernel.
func Kernel(r host.Roots) (string, error) { return line(r.Proc, "sys/kernel/osrelease") }

// BootID returns the ID of the boot, as reported by kubelet.
func BootID(r host.Roots) (string, error) { return bootid.Read(r.Proc) }

// Machine returns the product name of the machine from its firmware (DMI); empty if there is none, as on many machines with Arm processors.
func Machine(r host.Roots) (string, error) {
	name, err := line(r.Sys, "class/dmi/id/product_name")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return name, err
}

func line(root, path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return "", fmt.Errorf("read the kernel's state: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// System is an operating system.
type System struct {
	// Tag is the name in tags of driver images, such as ubuntu24.04. Name is the display name.
	Tag, Name string
}

// OS returns the host's operating system, from os-release(5). Tags are ID and VERSION_ID, as in the tags of NVIDIA's driver images: for Rocky Linux,
// Oracle Linux and RHEL from 10 on only the major version (rocky9, rhel10), for RHEL 8 and 9 with the minor version (rhel9.4).
func OS(r host.Roots) (System, error) {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		seen, err := r.See(path)
		if err != nil {
			return System{}, err
		}
		text, err := os.ReadFile(seen)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return System{}, fmt.Errorf("read the host's operating system: %w", err)
		}
		return parseOS(string(text))
	}
	return System{}, fmt.Errorf("read the host's operating system: no etc/os-release and no usr/lib/os-release under %s", r.Host)
}

func parseOS(text string) (System, error) {
	fields := map[string]string{}
	for entry := range strings.Lines(text) {
		key, value, found := strings.Cut(strings.TrimSpace(entry), "=")
		if found && !strings.HasPrefix(key, "#") {
			fields[key] = unquote(value)
		}
	}
	id, version := fields["ID"], fields["VERSION_ID"]
	if id == "" {
		return System{}, errors.New("read the host's operating system: os-release has no ID")
	}
	major, _, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(major)
	if id == "rocky" || id == "ol" || id == "rhel" && err == nil && number >= 10 {
		version = major
	}
	name := fields["PRETTY_NAME"]
	if name == "" {
		name = strings.TrimSpace(fields["NAME"] + " " + fields["VERSION_ID"])
	}
	return System{Tag: id + version, Name: name}, nil
}

// unquote removes shell quotes from a value. Names have no relevant escapes.
func unquote(value string) string {
	value = strings.TrimSpace(value)
	for _, quote := range []string{`"`, `'`} {
		if len(value) >= 2 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return value[1 : len(value)-1]
		}
	}
	return value
}

// SecureBoot reports whether the kernel accepts only signed modules: the firmware's variable SecureBoot is on, and validation is not disabled in shim
// (`mokutil --disable-validation`), as the kernel decides (drivers/firmware/efi/libstub/secureboot.c, efi_get_secureboot). It is false for a machine
// without EFI or without a visible efivarfs.
func SecureBoot(r host.Roots) (bool, error) {
	firmware, _, err := efiVariable(r, "SecureBoot")
	if err != nil || firmware != 1 {
		return false, err
	}
	// Only shim can set the variable without the attribute that keeps it over a boot.
	disabled, attributes, err := efiVariable(r, "MokSBStateRT")
	const nonVolatile = 1
	return disabled != 1 || attributes&nonVolatile != 0, err
}

// efiVariable returns the value and the first byte of the attributes of a variable of one byte, which follows four bytes of attributes (UEFI 2.10,
// 3.3); zero if there is none.
func efiVariable(r host.Roots, name string) (value, attributes byte, err error) {
	paths, err := filepath.Glob(filepath.Join(r.Sys, "firmware/efi/efivars", name+"-*"))
	if err != nil {
		return 0, 0, err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return 0, 0, fmt.Errorf("read whether secure boot is on: %w", err)
		}
		if len(content) == 5 {
			return content[4], content[0], nil
		}
	}
	return 0, 0, nil
}

// Module is a loaded kernel module.
type Module struct {
	Name string
	// Refs is the use count, by programs and modules. By are the modules that use it.
	Refs int
	By   []string
}

// Modules returns the loaded modules, from the procfs file modules: name, size, references, dependent modules, state and address. If that file does
// not exist, the list is empty.
func Modules(r host.Roots) ([]Module, error) {
	file, err := os.Open(filepath.Join(r.Proc, "modules"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the loaded modules: %w", err)
	}
	defer file.Close()
	var modules []Module
	for lines := bufio.NewScanner(file); ; {
		if !lines.Scan() {
			return modules, lines.Err()
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		refs, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("read the loaded modules: references of %s: %w", fields[0], err)
		}
		m := Module{Name: fields[0], Refs: refs}
		if fields[3] != "-" {
			m.By = strings.FieldsFunc(fields[3], func(c rune) bool { return c == ',' })
		}
		modules = append(modules, m)
	}
}
