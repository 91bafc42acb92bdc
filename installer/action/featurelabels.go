package action

import (
	"cmp"
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
	labelRuntime = "nvidia.com/cuda.runtime-version."
	labelMIG     = "nvidia.com/mig.capable"
	labelClique  = "nvidia.com/gpu.clique"
	labelMachine = "nvidia.com/gpu.machine"
	labelMode    = "nvidia.com/gpu.mode"
	labelShares  = "nvidia.com/gpu.replicas"
	labelSharing = "nvidia.com/gpu.sharing-strategy"
)

const (
	bytesPerMiB = 1 << 20
	// maxLabelValue is how many characters the value of a label may have.
	maxLabelValue = 63
)

// FeatureLabelKeys returns the keys of all labels that FeatureLabels can return.
func FeatureLabelKeys() []string {
	return []string{
		v1alpha1.LabelPresent, labelProduct, labelCount, labelMemory, labelFamily, labelMajor, labelMinor,
		labelDriver + "major", labelDriver + "minor", labelDriver + "revision", labelDriver + "full",
		labelRuntime + "major", labelRuntime + "minor", labelRuntime + "full",
		labelMIG, labelClique, labelMachine, labelMode, labelShares, labelSharing,
	}
}

// FeatureLabels returns the labels that describe the GPUs of a node, from what discovery and agent reported last. Keys and values are those of GPU Feature
// Discovery (k8s-device-plugin internal/lm), where it can be known without a configured device plugin.
func FeatureLabels(status v1alpha1.GPUNodeStatus) map[string]string {
	labels := map[string]string{}
	if status.Hardware != nil && status.Hardware.GPUs > 0 {
		labels[v1alpha1.LabelPresent] = "true"
		labels[labelMachine] = cmp.Or(sanitizeName(status.Hardware.Machine), "unknown")
		labels[labelMode] = status.Hardware.Mode
	}
	agent := status.Agent
	if agent == nil || agent.GPUs == 0 {
		return labels
	}
	labels[v1alpha1.LabelPresent] = "true"
	first, _, _ := strings.Cut(agent.Product, ", ")
	labels[labelProduct] = sanitizeName(first)
	labels[labelCount] = strconv.Itoa(int(agent.GPUs))
	if agent.Memory > 0 {
		labels[labelMemory] = strconv.FormatInt(agent.Memory/bytesPerMiB, 10)
	}
	labels[labelFamily] = sanitizeLabelValue(strings.ToLower(agent.Architecture))
	labels[labelMIG] = strconv.FormatBool(agent.MIGCapable)
	labels[labelClique] = sanitizeLabelValue(agent.Clique)
	// One nvidia.com/gpu is one GPU: claims, not replicas of the extended resource, share GPUs.
	labels[labelShares], labels[labelSharing] = "1", "none"
	if major, minor, ok := strings.Cut(agent.ComputeCapability, "."); ok {
		labels[labelMajor], labels[labelMinor] = sanitizeLabelValue(major), sanitizeLabelValue(minor)
	}
	addVersion(labels, labelDriver, agent.DriverVersion, "major", "minor", "revision")
	addVersion(labels, labelRuntime, agent.CUDAVersion, "major", "minor")
	return labels
}

// addVersion adds the labels of a version and of its first parts.
func addVersion(labels map[string]string, prefix, version string, parts ...string) {
	if version == "" {
		return
	}
	labels[prefix+"full"] = sanitizeLabelValue(version)
	for i, number := range strings.SplitN(version, ".", len(parts)) {
		labels[prefix+parts[i]] = sanitizeLabelValue(number)
	}
}

// sanitizeName returns a name as GPU Feature Discovery does: without the characters that a label may not have, and with dashes for blanks.
func sanitizeName(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == ' ' || allowedInLabel(r) {
			return r
		}
		return -1
	}, text)
	return sanitizeLabelValue(strings.Join(strings.Fields(text), "-"))
}

func allowedInLabel(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
}

// sanitizeLabelValue returns text as the value of a label: at most maxLabelValue characters, with a dash for each that is not allowed.
func sanitizeLabelValue(text string) string {
	text = strings.Map(func(r rune) rune {
		if allowedInLabel(r) {
			return r
		}
		return '-'
	}, text)
	return strings.Trim(text[:min(len(text), maxLabelValue)], "-_.")
}
