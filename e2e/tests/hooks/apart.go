// Package hooks splits Tessera's CDI hook into the hooks of NVIDIA's programs, to compare the two.
package hooks

import "github.com/tessera-gpu/tessera/kubelet-plugin/hook"

// owners are the hooks by the flags that are theirs.
var owners = map[string]string{
	"--link": hook.CreateSymlinks, "--host-driver-version": hook.EnableCUDACompat, "--folder": hook.UpdateLDCache,
}

// Apart returns the arguments, each beginning with its name, of the single hooks that the arguments
// stand for. What is a single hook already comes back alone.
func Apart(args []string) [][]string {
	if len(args) == 0 || args[0] != hook.All {
		return [][]string{args}
	}
	var apart [][]string
	for _, name := range []string{hook.CreateSymlinks, hook.EnableCUDACompat, hook.UpdateLDCache, hook.DisableDeviceNodeModification} {
		one := []string{name}
		for i := 1; i+1 < len(args); i += 2 {
			if owners[args[i]] == name {
				one = append(one, args[i], args[i+1])
			}
		}
		apart = append(apart, one)
	}
	return apart
}
