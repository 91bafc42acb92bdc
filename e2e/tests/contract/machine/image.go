package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Image is a container image: a folder and what its configuration sets.
type Image struct {
	Folder     string
	Env        []string
	WorkingDir string
	Entrypoint []string
}

// hostPrograms are the programs of this host that an image of a distribution has. Everything else that an entry point calls is a replacement, or fails.
var hostPrograms = strings.Fields("bash sh cat cp mv rm ln ls mkdir mktemp touch chmod chroot head tail cut tr sort wc tee tac seq env id dirname basename " +
	"readlink true false test grep sed awk xargs find findmnt flock getopt expr")

// replaced are the programs of a distribution that the recorder replaces.
var replaced = strings.Fields("modprobe rmmod lsmod dmesg mount umount sleep uname pgrep apt-get apt-cache apt-mark dpkg dnf yum rpm file depmod make ld " +
	"strip nvidia-run chcon update-ca-certificates extract-vmlinux strings")

// BuildImage writes the image of a distribution into an empty folder: programs of this host with their libraries, and the recorder under the names of
// the programs that it replaces.
//
// In RHEL's images sh is bash, in Ubuntu's it is not.
func BuildImage(folder, recorder string, bashIsSh bool) (Image, error) {
	for _, name := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/local/bin", "usr/src", "etc/modprobe.d", "tmp", "root", "drivers", "run", "opt",
		"var/cache", "var/lib/apt/lists", "usr/local/share/ca-certificates", "lib/modules"} {
		if !strings.HasPrefix(name, "lib/") {
			if err := os.MkdirAll(filepath.Join(folder, name), 0o755); err != nil {
				return Image{}, err
			}
		}
	}
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "../run"} {
		if err := os.Symlink(target, filepath.Join(folder, link)); err != nil {
			return Image{}, err
		}
	}
	if err := installHostPrograms(folder, bashIsSh); err != nil {
		return Image{}, err
	}
	if err := installRecorder(folder, recorder, "/usr/bin", replaced); err != nil {
		return Image{}, err
	}
	return Image{Folder: folder, WorkingDir: "/drivers"}, nil
}

// RecordImage makes an image of the root of a real one: the recorder precedes, in PATH, the programs that reach the kernel, a GPU or a package archive.
func RecordImage(folder, recorder string) (Image, error) {
	for _, name := range []string{"mount", "umount"} {
		if err := copyFile(filepath.Join(folder, "usr/bin", name), filepath.Join(folder, "usr/lib/contract", name)); err != nil {
			return Image{}, err
		}
	}
	programs := strings.Fields("modprobe rmmod lsmod dmesg mount umount sleep uname apt-get nvidia-smi nvidia-persistenced")
	return Image{Folder: folder, WorkingDir: "/"}, installRecorder(folder, recorder, "/usr/local/sbin", programs)
}

// installRecorder installs the recorder in an image, under the names of programs.
func installRecorder(folder, recorder, programs string, names []string) error {
	if err := copyFile(recorder, filepath.Join(folder, recorderPath)); err != nil {
		return err
	}
	if err := os.Symlink("recorder", filepath.Join(folder, "usr/lib/contract/kernel")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, programs), 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink(recorderPath, filepath.Join(folder, programs, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, tracePath), []byte(trace), 0o644)
}

// installHostPrograms copies the programs of this host that entry points and recorder run.
func installHostPrograms(folder string, bashIsSh bool) error {
	for _, name := range hostPrograms {
		program := name
		if bashIsSh && name == "sh" {
			program = "bash"
		}
		if err := installHostProgram(folder, program, "/usr/bin/"+name); err != nil {
			return err
		}
	}
	for _, name := range []string{"mount", "umount"} {
		if err := installHostProgram(folder, name, "/usr/lib/contract/"+name); err != nil {
			return err
		}
	}
	return nil
}

const (
	recorderPath = "/usr/lib/contract/recorder"
	tracePath    = "/usr/lib/contract/trace.bash"
)

// trace is what bash reads before an entry point. Before each command it exports the command's file and line, which recorded programs record, and it
// records each change of the files that containers and host share. With functrace, a trap on RETURN would also run in other functions than the one that
// sets it; it is removed there.
const trace = `{ contract_set=$-; set +x; } 2>/dev/null
CONTRACT_AT=
declare -A contract_files
set -o functrace
trap '{ contract_set=$-; set +x; } 2>/dev/null
for contract_file in /run/nvidia/*.pid /run/nvidia/*.state /run/nvidia/validations/.driver-{ctr-ready,daemons-status} \
	/sys/module/firmware_class/parameters/path /run/kernel/postinst.d/*; do
	[[ -f $contract_file ]] || continue
	contract_text=; read -r contract_text <"$contract_file" || :
	[[ ${contract_files[$contract_file]-none} == "$contract_text" ]] && continue
	contract_files[$contract_file]=$contract_text
	[[ ${CONTRACT_AT-} ]] || continue
	printf "{\"container\":\"%s\",\"program\":\"write\",\"args\":[\"%s\",\"%s\"],\"at\":\"%s\"}\n" \
		"$CONTRACT_CONTAINER" "$contract_file" "${contract_text//\"/}" "$CONTRACT_AT" >>/proc/self/fd/200/.log
done
for contract_file in "${!contract_files[@]}"; do
	[[ -f $contract_file ]] && continue
	unset "contract_files[$contract_file]"
	printf "{\"container\":\"%s\",\"program\":\"remove\",\"args\":[\"%s\"],\"at\":\"%s\"}\n" \
		"$CONTRACT_CONTAINER" "$contract_file" "$CONTRACT_AT" >>/proc/self/fd/200/.log
done
export CONTRACT_AT="${BASH_SOURCE[0]##*/}:$LINENO"
if [[ ${contract_returns-} && ${FUNCNAME[0]-} != "$contract_returns" ]]; then
	trap - RETURN
	contract_returns=
fi
if [[ $BASH_COMMAND == trap*RETURN* ]]; then contract_returns=${FUNCNAME[0]-}; fi
[[ $contract_set == *x* ]] && set -x' DEBUG
[[ $contract_set == *x* ]] && set -x
`

// installHostProgram copies a program of this host and the libraries that it needs.
func installHostProgram(folder, name, to string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("find %s: %w; install it on this host", name, err)
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return err
	}
	if err := copyFile(program, filepath.Join(folder, to)); err != nil {
		return err
	}
	return copyLibraries(folder, program)
}

var library = regexp.MustCompile(`(/\S+\.so\S*)`)

// copyLibraries copies the shared libraries of a program, as ldd(1) lists them.
func copyLibraries(folder, program string) error {
	output, err := exec.Command("ldd", program).CombinedOutput() //nolint:noctx // ends at once
	if err != nil {
		if strings.Contains(string(output), "not a dynamic executable") {
			return nil
		}
		return fmt.Errorf("list the libraries of %s: %w: %s", program, err, output)
	}
	for _, match := range library.FindAllString(string(output), -1) {
		to := match
		if strings.HasPrefix(to, "/lib") {
			to = "/usr" + to
		}
		if _, err := os.Stat(filepath.Join(folder, to)); err == nil {
			continue
		}
		if err := copyFile(match, filepath.Join(folder, to)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file with its mode.
func copyFile(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// InstallProgram copies a program of this host into an image, with its libraries.
func InstallProgram(image Image, program, to string) error {
	return installHostProgram(image.Folder, program, to)
}
