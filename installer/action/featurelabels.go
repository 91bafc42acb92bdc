package action

import (
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The labels that other software reads, in addition to v1alpha1.LabelPresent.
const (
	labelProduct = "nvidia.com/gpu.product"
	labelCount   = "nvidia.com/gpu.count"
	labelMemory  = "nvidia.com/gpu.memory"
	labelFamily  = "nvidia.com/gpu.family"
	labelMajor   = "nvidia.com/gpu.compute.major"
	labelMinor   = "nvidia.com/gpu.compute.minor"
	labelDriver  = "nvidia.com/cuda.driver-version."
	labelMIG     = "nvidia.com/mig.capable"
	labelClique  = "nvidia.com/gpu.clique"
)

const (
	bytesPerMiB = 1 << 20
	// maxLabelValue is how many characters the value of a label may have.
	maxLabelValue = 63
	// maxVersionParts is how many parts of a driver version have labels.
	maxVersionParts = 3
)

// FeatureLabelKeys returns the keys of all labels that FeatureLabels can return.
func FeatureLabelKeys() []string {
	return []string{
		v1alpha1.LabelPresent, labelProduct, labelCount, labelMemory, labelFamily, labelMajor, labelMinor,
		labelDriver + "major", labelDriver + "minor", labelDriver + "revision", labelDriver + "full", labelMIG, labelClique,
	}
}

// FeatureLabels returns the labels that describe the GPUs of a node, from what discovery and agent reported last.
func FeatureLabels(status v1alpha1.GPUNodeStatus) map[string]string {
	labels := map[string]string{}
	if status.Hardware != nil && status.Hardware.GPUs > 0 {
		labels[v1alpha1.LabelPresent] = "true"
	}
	agent := status.Agent
	if agent == nil || agent.GPUs == 0 {
		return labels
	}
	labels[v1alpha1.LabelPresent] = "true"
	labels[labelProduct] = sanitizeLabelValue(agent.Product)
	labels[labelCount] = strconv.Itoa(int(agent.GPUs))
	labels[labelMemory] = strconv.FormatInt(agent.Memory/bytesPerMiB, 10)
	labels[labelFamily] = sanitizeLabelValue(strings.ToLower(agent.Architecture))
	labels[labelMIG] = strconv.FormatBool(agent.MIGCapable)
	labels[labelClique] = sanitizeLabelValue(agent.Clique)
	if major, minor, ok := strings.Cut(agent.ComputeCapability, "."); ok {
		labels[labelMajor], labels[labelMinor] = sanitizeLabelValue(major), sanitizeLabelValue(minor)
	}
	if agent.DriverVersion != "" {
		labels[labelDriver+"full"] = sanitizeLabelValue(agent.DriverVersion)
		numbers := strings.SplitN(agent.DriverVersion, ".", maxVersionParts)
		for i, name := range []string{"major", "minor", "revision"} {
			if i < len(numbers) {
				labels[labelDriver+name] = sanitizeLabelValue(numbers[i])
			}
		}
	}
	return labels
}

// sanitizeLabelValue returns text as the value of a label: at most maxLabelValue characters, with a dash for each that is not allowed.
func sanitizeLabelValue(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, text)
	return strings.Trim(text[:min(len(text), maxLabelValue)], "-_.")
}
