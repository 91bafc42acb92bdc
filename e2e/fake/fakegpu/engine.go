package fakegpu

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed engine
var sources embed.FS

// Engine is the compiled fake: a folder with its libraries and programs, without versions in their
// names.
type Engine struct {
	folder string
}

// target is one file that gcc makes.
type target struct {
	output  string
	folders []string
	flags   []string
}

// nvmlLibrary is the target of the newest driver's library; those of older branches are installed under its name.
const nvmlLibrary = "libnvidia-ml.so"

func targets() []target {
	list := []target{
		{nvmlLibrary, []string{"shared", "nvml"}, library("libnvidia-ml.so.1")},
		{"libcuda.so", []string{"shared", "cuda", "mps"}, library("libcuda.so.1")},
		{"nvidia-smi", []string{"smi"}, program()},
		{mpsControl, []string{"mps", "mpscontrol"}, append(program(), "-DNEWEST=1")},
		{oldMPSControl, []string{"mps", "mpscontrol"}, append(program(), "-DNEWEST=0")},
		{"nvidia-cuda-mps-server", []string{"mps", "mpsserver"}, program()},
	}
	for _, b := range branches() {
		flags := append(library("libnvidia-ml.so.1"), "-DOLD_DRIVER", "-Wl,--version-script,"+b.library+".map")
		list = append(list, target{b.library, []string{"shared", "nvml"}, flags})
	}
	for _, companion := range companions() {
		list = append(list, target{companion.name, []string{"companion"}, append(library(companion.soname), "-nostdlib")})
	}
	return list
}

func library(soname string) []string {
	return []string{"-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname," + soname}
}

// program sets the rpath, so that a program finds the libraries of the driver root that contains
// it.
func program() []string {
	return []string{"-Wl,-rpath,$ORIGIN/../lib/x86_64-linux-gnu:$ORIGIN/../lib64", "-ldl"}
}

// The program of the MPS control daemon, and that of drivers before 615, without MPS version 3.
const (
	mpsControl    = "nvidia-cuda-mps-control"
	oldMPSControl = "nvidia-cuda-mps-control-2"
)

// programs returns the driver's tools that the fake has for a version, by the name of the compiled file.
func programs(version string) map[string]string {
	control := mpsControl
	if branchNumber(version) < 615 {
		control = oldMPSControl
	}
	return map[string]string{"nvidia-smi": "nvidia-smi", control: mpsControl, "nvidia-cuda-mps-server": "nvidia-cuda-mps-server"}
}

// companion is another library of a driver: it has no contents, but containers must receive it.
type companion struct {
	name, soname string
}

func companions() []companion {
	return []companion{
		{"libcudadebugger.so", "libcudadebugger.so.1"},
		{"libnvidia-nvvm.so", "libnvidia-nvvm.so.4"},
		{"libnvidia-opencl.so", "libnvidia-opencl.so.1"},
		{"libnvidia-ptxjitcompiler.so", "libnvidia-ptxjitcompiler.so.1"},
	}
}

// DefaultCache is the folder of compiled engines: $TESSERA_CACHE/fakegpu, or the user's cache.
func DefaultCache() (string, error) {
	if folder := os.Getenv("TESSERA_CACHE"); folder != "" {
		return filepath.Join(folder, "fakegpu"), nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache folder: %w", err)
	}
	return filepath.Join(folder, "tessera", "fakegpu"), nil
}

// Build compiles the engine into a folder of cacheDir that is named after the hash of all its
// inputs; an engine that exists is not compiled again. It needs gcc, and go with this module in the
// working directory: symbols and types are those of the header in the pinned go-nvml. Concurrent
// builds are harmless.
func Build(ctx context.Context, cacheDir string) (Engine, error) {
	files, err := engineFiles(ctx)
	if err != nil {
		return Engine{}, err
	}
	engine := Engine{folder: filepath.Join(cacheDir, fingerprint(files))}
	if _, err := os.Stat(engine.folder); err == nil {
		return engine, nil
	}
	if err := engine.compile(ctx, files); err != nil {
		return Engine{}, fmt.Errorf("build the fake GPU: %w", err)
	}
	return engine, nil
}

// engineFiles returns the text of every file that is compiled, by path.
func engineFiles(ctx context.Context) (map[string]string, error) {
	header, err := nvmlHeader(ctx)
	if err != nil {
		return nil, err
	}
	layout, _ := layoutHeader()
	files := map[string]string{
		"nvml.h":       header,
		"layout.h":     layout,
		"nvml/stubs.c": stubs(symbolsOf(header)),
	}
	for _, b := range branches() {
		files[b.library+".map"] = versionScript(b.lacking)
	}
	err = fs.WalkDir(sources, "engine", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		files[strings.TrimPrefix(path, "engine/")] = string(data)
		return err
	})
	return files, err
}

// nvmlHeader returns the text of nvml.h of the go-nvml that this module pins.
func nvmlHeader(ctx context.Context) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find go-nvml (needs this module in the working directory): %w", err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "pkg", "nvml", "nvml.h"))
	if err != nil {
		return "", fmt.Errorf("read the NVML header (go mod download fetches it): %w", err)
	}
	return string(data), nil
}

func fingerprint(files map[string]string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, targets(), commonFlags())
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n%s", path, len(files[path]), files[path])
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:12])
}

// compile builds in a temporary folder and moves the result into place when it is complete.
func (e Engine) compile(ctx context.Context, files map[string]string) error {
	parent := filepath.Dir(e.folder)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(parent, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for path, text := range files {
		if err := writeFile(filepath.Join(work, path), text); err != nil {
			return err
		}
	}
	out := filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	for _, t := range targets() {
		if err := t.compile(ctx, work, out); err != nil {
			return err
		}
	}
	err = os.Rename(out, e.folder)
	if _, built := os.Stat(e.folder); built == nil {
		return nil // by this process, or by another meanwhile
	}
	return err
}

func (t target) compile(ctx context.Context, work, out string) error {
	arguments := append(commonFlags(), "-o", filepath.Join(out, t.output))
	for _, folder := range t.folders {
		matches, err := filepath.Glob(filepath.Join(work, folder, "*.c"))
		if err != nil {
			return err
		}
		arguments = append(arguments, matches...)
	}
	command := exec.CommandContext(ctx, "gcc", append(arguments, t.flags...)...)
	command.Dir = work
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", t.output, err, output)
	}
	return nil
}

func commonFlags() []string {
	return []string{"-std=gnu11", "-O2", "-Wno-deprecated-declarations", "-I.", "-Ishared"}
}

// writeFile writes a file and the folders above it.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
