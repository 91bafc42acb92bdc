package gpus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// driverVersion returns the version of a driver as NVIDIA writes it. The published version is semantic, without leading zeros: 580.65.6 is driver 580.65.06.
// Source is the agent's report; without one, the numbers after the first get two digits, as in all versions of NVIDIA's drivers.
func driverVersion(published string, node *v1alpha1.GPUNode) string {
	if node != nil && node.Status.Agent != nil && semantic(node.Status.Agent.DriverVersion) == published {
		return node.Status.Agent.DriverVersion
	}
	major, rest, ok := strings.Cut(published, ".")
	if !ok {
		return published
	}
	for part := range strings.SplitSeq(rest, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return published
		}
		major += fmt.Sprintf(".%02d", n)
	}
	return major
}

// semantic returns the version without leading zeros and with three numbers, as it is published.
func semantic(version string) string {
	numbers := []string{}
	for part := range strings.SplitSeq(version, ".") {
		numbers = append(numbers, strings.TrimLeft(part[:max(0, len(part)-1)], "0")+part[max(0, len(part)-1):])
	}
	for len(numbers) < 3 {
		numbers = append(numbers, "0")
	}
	return strings.Join(numbers, ".")
}
