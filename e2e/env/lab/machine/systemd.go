package machine

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/lab/disk"
)

// What a virtual machine unpacks at each boot, in addition to the files of its spec.
const (
	target          = "lab.target"
	unitFolder      = "/etc/systemd/system"
	environmentFile = disk.Folder + "/environment"
	guestProgram    = disk.Folder + "/guest"
	// persistent keeps the mounts with a target in /run, which is empty after a boot.
	persistent = disk.Folder + "/run"
)

// pack writes the archive that the machine unpacks at its next boot: the content of the mounts, unless the machine has it, then the files, and root's key as
// the last of them.
func (v Virtual) pack(guest string, spec Spec) (err error) {
	_, missing := os.Stat(v.file(unpackedMark))
	file, err := os.Create(v.file(archiveFile))
	if err != nil {
		return fmt.Errorf("write the machine's files: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	archive := tar.NewWriter(file)
	key, err := os.ReadFile(v.file(keyFile) + ".pub")
	if err != nil {
		return err
	}
	files := append(v.systemd(spec), spec.Files...)
	files = append(files, File{Path: "/root/.ssh/authorized_keys", Content: key, Mode: 0o600})
	if errors.Is(missing, fs.ErrNotExist) {
		if err := addTree(archive, guest, guestProgram); err != nil {
			return fmt.Errorf("write the machine's files: %w", err)
		}
		for _, mount := range spec.Mounts {
			if err := addTree(archive, mount.Source, kept(mount.Target)); err != nil {
				return fmt.Errorf("write the machine's files: %w", err)
			}
		}
	}
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: relative(f.Path), Size: int64(len(f.Content)), Mode: int64(cmp.Or(f.Mode, 0o644))}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write the machine's files: %w", err)
		}
		if _, err := archive.Write(f.Content); err != nil {
			return fmt.Errorf("write the machine's files: %w", err)
		}
	}
	return archive.Close()
}

func relative(path string) string { return strings.TrimPrefix(path, "/") }

// kept returns where the content of a mount is on the machine's disk.
func kept(target string) string {
	if strings.HasPrefix(target, "/run/") {
		return path.Join(persistent, target)
	}
	return target
}

// addTree adds a file, or a folder with everything in it, under another path.
func addTree(archive *tar.Writer, source, target string) error {
	return filepath.WalkDir(source, func(place string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(place); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		header.Name = relative(target + strings.TrimPrefix(place, source))
		if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(place)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // opened for reading
		_, err = io.Copy(archive, file)
		return err
	})
}

// systemd returns the files by which systemd starts the services of a spec.
func (v Virtual) systemd(spec Spec) []File {
	var wants []string
	var files []File
	for _, service := range spec.Services {
		wants = append(wants, service.Name+".service")
		files = append(files, text(path.Join(unitFolder, service.Name+".service"), unit(service)))
	}
	all := strings.Join(wants, " ")
	return append(files,
		text(path.Join(unitFolder, target), fmt.Sprintf("[Unit]\nDescription=The services of %s\nWants=%s\nAfter=%s\n", spec.Name, all, all)),
		text(environmentFile, fmt.Sprintf("PATH=%s\nHOME=/root\n", spec.Path)),
		text(disk.BootScript, v.bootScript(spec)),
	)
}

func text(path, content string) File {
	return File{Path: path, Content: []byte(content), Mode: 0o644}
}

// bootScript connects the machine, mounts and sets what a boot has lost, and starts the services.
func (v Virtual) bootScript(spec Spec) string {
	lines := []string{
		"set -e",
		"hostname " + spec.Name,
		"ip link set eth0 up",
		"ip address replace " + v.Address.String() + " dev eth0",
		"ip route replace default via " + v.Gateway.String(),
	}
	for _, mount := range spec.Mounts {
		if from := kept(mount.Target); from != mount.Target {
			lines = append(lines, "mkdir -p "+mount.Target, "mount --bind "+from+" "+mount.Target)
		}
	}
	for _, setting := range spec.Settings {
		lines = append(lines, fmt.Sprintf("printf %%s '%s' >%s", strings.TrimSpace(string(setting.Content)), setting.Path))
	}
	return strings.Join(append(lines, "systemctl daemon-reload", "systemctl start --no-block "+target), "\n") + "\n"
}

// unit returns the unit of a service. Its processes outlive it, as those of containerd and kubelet do with the units of their projects.
func unit(service Service) string {
	var needs []string
	for _, need := range service.Needs {
		needs = append(needs, need+".service")
	}
	lines := []string{"[Unit]", "StartLimitIntervalSec=0"}
	if len(needs) > 0 {
		all := strings.Join(needs, " ")
		lines = append(lines, "Wants="+all, "After="+all)
	}
	command := "/usr/bin/env"
	for _, arg := range service.Args {
		command += " " + quoted(arg)
	}
	lines = append(lines, "[Service]", "EnvironmentFile="+environmentFile, "ExecStart="+command, "TimeoutStartSec=infinity", "RestartSec=1")
	if service.Ready.Exit {
		lines = append(lines, "Type=oneshot", "RemainAfterExit=yes", "Restart=on-failure")
	} else {
		probe, _ := json.Marshal(service.Ready) // a struct of texts
		lines = append(lines, "Type=exec", "ExecStartPost="+guestProgram+" probe "+quoted(string(probe)),
			"Restart=always", "KillMode=process", "Delegate=yes", "LimitNOFILE=infinity", "TasksMax=infinity",
			"TimeoutStopSec="+strconv.Itoa(int(cmp.Or(service.Grace, virtualGrace).Seconds())))
	}
	return strings.Join(lines, "\n") + "\n"
}

// quoted returns a word of systemd's command lines (systemd.service(5), "Command lines").
func quoted(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "%", "%%", "$", "$$").Replace(word) + `"`
}

// parseUnits reads the output of `systemctl show` for services.
func parseUnits(output string) ([]ServiceStatus, error) {
	states := map[string]State{"active": Ready, "activating": Starting, "failed": Failed, "deactivating": Stopped, "inactive": Stopped}
	var list []ServiceStatus
	for block := range strings.SplitSeq(strings.TrimSpace(output), "\n\n") {
		values := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values[key] = value
		}
		pid, err := strconv.Atoi(values["MainPID"])
		if err != nil {
			return nil, fmt.Errorf("read the services: %q", block)
		}
		restarts, err := strconv.Atoi(values["NRestarts"])
		if err != nil {
			return nil, fmt.Errorf("read the services: %q", block)
		}
		list = append(list, ServiceStatus{
			Name: strings.TrimSuffix(values["Id"], ".service"), PID: pid, State: states[values["ActiveState"]], Restarts: restarts,
		})
	}
	slices.SortFunc(list, func(a, b ServiceStatus) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
