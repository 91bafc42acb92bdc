package action

import (
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The labels that the ecosystem reads, besides v1alpha1.LabelPresent.
const (
	labelProduct  = "nvidia.com/gpu.product"
	labelCount    = "nvidia.com/gpu.count"
	labelMemory   = "nvidia.com/gpu.memory"
	labelFamily   = "nvidia.com/gpu.family"
	labelMajor    = "nvidia.com/gpu.compute.major"
	labelMinor    = "nvidia.com/gpu.compute.minor"
	labelDriver   = "nvidia.com/cuda.driver-version."
	labelMIG      = "nvidia.com/mig.capable"
	labelClique   = "nvidia.com/gpu.clique"
	bytesInMiB    = 1 << 20
	longestValue  = 63
	driverNumbers = 3
)

// FeatureKeys are the keys of all labels that Features can return.
func FeatureKeys() []string {
	return []string{
		v1alpha1.LabelPresent, labelProduct, labelCount, labelMemory, labelFamily, labelMajor, labelMinor,
		labelDriver + "major", labelDriver + "minor", labelDriver + "revision", labelDriver + "full", labelMIG, labelClique,
	}
}

// Features returns the labels that say what the GPUs of a node are, from what discovery and agent said last.
func Features(status v1alpha1.GPUNodeStatus) map[string]string {
	labels := map[string]string{}
	if status.Hardware != nil && status.Hardware.GPUs > 0 {
		labels[v1alpha1.LabelPresent] = "true"
	}
	agent := status.Agent
	if agent == nil || agent.GPUs == 0 {
		return labels
	}
	labels[v1alpha1.LabelPresent] = "true"
	labels[labelProduct] = labelValue(agent.Product)
	labels[labelCount] = strconv.Itoa(int(agent.GPUs))
	labels[labelMemory] = strconv.FormatInt(agent.Memory/bytesInMiB, 10)
	labels[labelFamily] = labelValue(strings.ToLower(agent.Architecture))
	labels[labelMIG] = strconv.FormatBool(agent.MIGCapable)
	labels[labelClique] = labelValue(agent.Clique)
	if major, minor, ok := strings.Cut(agent.ComputeCapability, "."); ok {
		labels[labelMajor], labels[labelMinor] = labelValue(major), labelValue(minor)
	}
	if agent.DriverVersion != "" {
		labels[labelDriver+"full"] = labelValue(agent.DriverVersion)
		numbers := strings.SplitN(agent.DriverVersion, ".", driverNumbers)
		for i, name := range []string{"major", "minor", "revision"} {
			if i < len(numbers) {
				labels[labelDriver+name] = labelValue(numbers[i])
			}
		}
	}
	return labels
}

// labelValue makes text the value of a label: what is not allowed becomes a dash.
func labelValue(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, text)
	return strings.Trim(text[:min(len(text), longestValue)], "-_.")
}
