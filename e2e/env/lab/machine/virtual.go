package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/disk"
	"github.com/tessera-gpu/tessera/e2e/env/lab/netns"
)

// Virtual is a machine with its own kernel: QEMU emulates it without help of the host's processor, which works everywhere and computes about 12 times
// slower. systemd starts the services of its spec. Like Machine, it is identified by its folder, and the value has no state.
type Virtual struct {
	Machine
	// Switch is the network namespace with Tap, the end of the machine's cable. The caller creates both before each boot.
	Switch netns.Namespace
	Tap    string
	// Address is the machine's address, with the length of its network, Gateway its router, MAC the address of its link.
	Address netip.Prefix
	Gateway netip.Addr
	MAC     string
	// Functions are the addresses of its PCI functions; see functions.
	Functions []string
}

// Files of a virtual machine's folder.
const (
	diskLink    = "base"       // the disk of all virtual machines
	layerFile   = "disk.qcow2" // what the machine has written, above the disk of all virtual machines
	archiveFile = "files.tar"  // the second disk
	kernelFile  = "kernel"
	initrdFile  = "initrd"
	keyFile     = "key" // of root's SSH key
	// unpackedMark exists when the machine has the content of its mounts.
	unpackedMark = "unpacked"
	// variablesFile has the variables of UEFI. Without it, the firmware is a BIOS.
	variablesFile = "uefi-variables.fd"
	consoleFile   = "console.log"
	qemuLog       = "qemu.log"
)

const (
	memoryMIB   = 3072
	virtualCPUs = 2
)

// Install creates the machine's disk above d, and a key for its root. The machine boots the first of the disk's kernels.
func (v Virtual) Install(ctx context.Context, d disk.Disk) error {
	for _, folder := range []string{v.Disk(), v.Logs()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("make the machine's folder: %w", err)
		}
	}
	for _, args := range [][]string{
		{"qemu-img", "create", "-q", "-f", "qcow2", "-b", d.Image(), "-F", "raw", v.file(layerFile)},
		{"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", v.file(keyFile)},
	} {
		if output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("make the machine's disk: %s: %w: %s", args[0], err, output)
		}
	}
	if err := os.Symlink(string(d), v.file(diskLink)); err != nil {
		return fmt.Errorf("make the machine's disk: %w", err)
	}
	kernels, err := d.Kernels()
	if err != nil {
		return err
	}
	return v.SetKernel(kernels[0])
}

// Base returns the disk below that of the machine.
func (v Virtual) Base() (disk.Disk, error) {
	folder, err := os.Readlink(v.file(diskLink))
	return disk.Disk(folder), err
}

// SetKernel selects the kernel of the next boots, one of those that the disk has.
func (v Virtual) SetKernel(release string) error {
	d, err := v.Base()
	if err != nil {
		return fmt.Errorf("select kernel %s: %w", release, err)
	}
	kernel, initrd := d.Kernel(release)
	for name, target := range map[string]string{kernelFile: kernel, initrdFile: initrd} {
		if _, err := os.Stat(target); err != nil {
			return fmt.Errorf("select kernel %s: %w", release, err)
		}
		if err := os.Remove(v.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("select kernel %s: %w", release, err)
		}
		if err := os.Symlink(target, v.file(name)); err != nil {
			return fmt.Errorf("select kernel %s: %w", release, err)
		}
	}
	return nil
}

// EnableSecureBoot makes UEFI with secure boot the firmware of the next boots. The kernel is the same: the firmware does not have the key of its signature, and
// loads it by Linux' older protocol, which has no signature. The kernel reads the variable and locks itself down.
func (v Virtual) EnableSecureBoot() error {
	d, err := v.Base()
	if err != nil {
		return fmt.Errorf("enable secure boot: %w", err)
	}
	_, variables := d.Firmware()
	text, err := os.ReadFile(variables)
	if err != nil {
		return fmt.Errorf("enable secure boot: %w", err)
	}
	return os.WriteFile(v.file(variablesFile), text, 0o644)
}

// DisableSecureBoot makes a BIOS the firmware of the next boots, as it is at first.
func (v Virtual) DisableSecureBoot() error { return os.RemoveAll(v.file(variablesFile)) }

// firmware returns QEMU's arguments for the machine's firmware. Only code in system management mode can change the variables.
func (v Virtual) firmware() ([]string, error) {
	if _, err := os.Stat(v.file(variablesFile)); errors.Is(err, fs.ErrNotExist) {
		return []string{"-machine", "q35"}, nil
	}
	d, err := v.Base()
	if err != nil {
		return nil, err
	}
	code, _ := d.Firmware()
	return []string{
		"-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1",
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + code, "-drive", "if=pflash,unit=1,format=raw,file=" + v.file(variablesFile),
	}, nil
}

func (v Virtual) file(name string) string { return filepath.Join(v.folder, name) }

// Boot starts the machine and returns when its services are about to start; see Machine.Boot. The content of the spec's mounts is copied at the first boot;
// later, the machine has its own.
func (v Virtual) Boot(ctx context.Context, guest string, spec Spec) error {
	if running, err := v.Running(); err != nil || running {
		return errors.Join(err, fmt.Errorf("boot %s: it runs already, or its state is unknown", spec.Name))
	}
	if err := v.pack(guest, spec); err != nil {
		return fmt.Errorf("boot %s: %w", spec.Name, err)
	}
	if err := v.power(spec.Name); err != nil {
		return errors.Join(fmt.Errorf("boot %s: %w", spec.Name, err), v.Kill(context.WithoutCancel(ctx)))
	}
	if err := v.awaitShell(ctx); err != nil {
		return fmt.Errorf("boot %s: %w; its console is %s", spec.Name, err, filepath.Join(v.Logs(), consoleFile))
	}
	if err := os.WriteFile(v.file(unpackedMark), nil, 0o644); err != nil {
		return fmt.Errorf("boot %s: %w", spec.Name, err)
	}
	return nil
}

// power starts QEMU. It outlives the calling process, and belongs to the machine's control groups.
func (v Virtual) power(name string) error {
	log, err := os.OpenFile(filepath.Join(v.Logs(), qemuLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open QEMU's log: %w", err)
	}
	defer log.Close() //nolint:errcheck // QEMU has its own copy
	// AVX2 is off, because Go would hash images with it, and its emulation takes more than twice as long as that of other instructions.
	args := []string{
		"-name", name, "-nodefaults", "-no-user-config", "-display", "none",
		"-device", "intel-iommu", "-accel", "tcg,thread=multi", "-cpu", "max,avx2=off", "-smp", strconv.Itoa(virtualCPUs), "-m", strconv.Itoa(memoryMIB),
		"-kernel", v.file(kernelFile), "-initrd", v.file(initrdFile),
		"-append", "root=/dev/vda rw console=ttyS0 panic=-1 net.ifnames=0 mitigations=off intel_iommu=on systemd.show_status=no systemd.journald.forward_to_console=1",
		"-drive", "id=layer,if=none,format=qcow2,cache=unsafe,file=" + v.file(layerFile), "-device", "virtio-blk-pci,drive=layer,bus=pcie.0",
		"-drive", "id=files,if=none,format=raw,readonly=on,file=" + v.file(archiveFile), "-device", "virtio-blk-pci,drive=files,bus=pcie.0",
		"-netdev", "tap,id=cable,ifname=" + v.Tap + ",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=cable,bus=pcie.0,romfile=,mac=" + v.MAC, "-device", "virtio-rng-pci,bus=pcie.0",
		"-chardev", "file,id=console,append=on,path=" + filepath.Join(v.Logs(), consoleFile), "-serial", "chardev:console",
	}
	firmware, err := v.firmware()
	if err != nil {
		return err
	}
	functions, err := functions(v.Functions)
	if err != nil {
		return err
	}
	cmd := exec.Command("qemu-system-x86_64", slices.Concat(firmware, args, functions)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := v.Switch.Do(cmd.Start); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	go func() { _ = cmd.Wait() }() // reaps QEMU if it exits before this process
	return v.adopt(cmd.Process.Pid)
}

// functions returns QEMU's arguments for PCI functions at these addresses. The firmware numbers buses in their order, so that a root complex with the number
// of the bus before, which has one port, gives the function its address.
func functions(addresses []string) ([]string, error) {
	var args []string
	for i, address := range addresses {
		var bus int
		if n, err := fmt.Sscanf(address, "0000:%x:00.0", &bus); n != 1 || err != nil || bus < 2 {
			return nil, fmt.Errorf("PCI address %q: must be like 0000:1b:00.0", address)
		}
		args = append(args,
			"-device", fmt.Sprintf("pxb-pcie,id=root%d,bus=pcie.0,bus_nr=%d", i, bus-1),
			"-device", fmt.Sprintf("pcie-root-port,id=port%d,bus=root%d,chassis=%d", i, i, i+1),
			"-device", fmt.Sprintf("virtio-rng-pci,bus=port%d,disable-legacy=on,iommu_platform=on", i))
	}
	return args, nil
}

// awaitShell returns when the machine executes commands: its network is up, and its files are unpacked, since the key is the last of them.
func (v Virtual) awaitShell(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		output, err := v.run(ctx, "true")
		if err == nil {
			return nil
		}
		if running, _ := v.Running(); !running {
			log, _ := os.ReadFile(filepath.Join(v.Logs(), qemuLog))
			return fmt.Errorf("%w: %s", ErrDown, bytes.TrimSpace(log))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for its shell: %w: %w: %s", ctx.Err(), err, output)
		case <-ticker.C:
		}
	}
}

// Command prepares a program to run inside the machine, as root. Paths are those inside the machine.
func (v Virtual) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	if running, err := v.Running(); err != nil || !running {
		return nil, errors.Join(err, ErrDown)
	}
	var words []string
	for _, arg := range args {
		words = append(words, "'"+strings.ReplaceAll(arg, "'", `'\''`)+"'")
	}
	return exec.CommandContext(ctx, "ssh",
		"-i", v.file(keyFile), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "ConnectTimeout=10", "-o", "BatchMode=yes", "root@"+v.Address.Addr().String(), "--",
		"set -a; . "+environmentFile+"; exec "+strings.Join(words, " ")), nil
}

// run runs a program inside the machine and returns what it has printed.
func (v Virtual) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd, err := v.Command(ctx, args...)
	if err != nil {
		return nil, err
	}
	output, err := Output(cmd)
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return output, err
}

// Shutdown stops the machine as its administrator does, and kills it after virtualGrace.
func (v Virtual) Shutdown(ctx context.Context) error {
	identity, ok, err := v.identity()
	if err != nil || !ok {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, virtualGrace)
	defer cancel()
	if _, err := v.run(limited, "systemctl", "poweroff"); err == nil {
		_ = identity.end(limited, 0) // waits; a machine that does not end is killed
	}
	return v.Kill(ctx)
}

// virtualGrace is the time that a virtual machine has to stop before it is killed: all its processes are slow.
const virtualGrace = 3 * time.Minute

// Status returns the state of the machine's services. It returns ErrDown if the machine does not run.
func (v Virtual) Status(ctx context.Context) ([]ServiceStatus, error) {
	output, err := v.run(ctx, "sh", "-c", "systemctl show --property=Id,MainPID,ActiveState,NRestarts "+
		"$(systemctl show --property=Wants --value "+target+")")
	if err != nil {
		return nil, err
	}
	return parseUnits(string(output))
}

// Wait returns when every service that was not stopped is ready.
func (v Virtual) Wait(ctx context.Context) error {
	const script = `until systemctl --quiet is-active ` + target + ` &&
! systemctl list-units --plain --no-legend --state=activating,failed,deactivating,reloading $(systemctl show --property=Wants --value ` + target + `) | grep -q .
do sleep 0.5; done`
	_, err := v.run(ctx, "sh", "-c", script)
	if err != nil {
		status, _ := v.Status(context.WithoutCancel(ctx))
		return fmt.Errorf("%w: %v", errors.Join(ctx.Err(), err), status)
	}
	return nil
}

// Control performs one operation on one service and waits for its effect.
func (v Virtual) Control(ctx context.Context, operation Operation, service string) error {
	commands := map[Operation][]string{
		OpStart: {"systemctl", "start", service},
		OpStop:  {"systemctl", "stop", service},
		OpKill:  {"systemctl", "kill", "--signal=KILL", "--kill-who=main", service},
	}
	if _, err := v.run(ctx, commands[operation]...); err != nil {
		return fmt.Errorf("%s %s: %w", operation, service, err)
	}
	return nil
}
