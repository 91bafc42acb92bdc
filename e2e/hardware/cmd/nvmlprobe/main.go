// nvmlprobe prints, as JSON, what the driver's libnvidia-ml of this machine answers to every question of the node agent.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/e2e/hardware/nvmlcalls"
)

func main() {
	library := flag.String("library", "libnvidia-ml.so.1", "path or name of the library")
	functions := flag.String("functions", "", "file with names of functions, of which those that the library lacks are printed")
	index := flag.Int("gpu", 0, "index of the GPU")
	flag.Parse()
	if err := run(*library, *functions, *index); err != nil {
		fmt.Fprintln(os.Stderr, "nvmlprobe:", err)
		os.Exit(1)
	}
}

func run(library, functions string, index int) error {
	var names []string
	if functions != "" {
		content, err := os.ReadFile(functions)
		if err != nil {
			return err
		}
		names = strings.Fields(string(content))
	}
	lib := nvml.New(nvml.WithLibraryPath(library))
	if code := lib.Init(); code != nvml.SUCCESS {
		return fmt.Errorf("initialize %s: %w", library, code)
	}
	recording, code := nvmlcalls.Record(lib, index, names)
	if code != nvml.SUCCESS {
		return fmt.Errorf("read GPU %d: %w", index, code)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	return out.Encode(recording)
}
