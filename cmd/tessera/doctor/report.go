package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// The type of the report in JSON and YAML.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "DoctorReport"
)

// Report is the diagnosis of a cluster at one moment.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Time is when the objects were read.
	Time metav1.Time `json:"time"`
	// Summary is one to three sentences; see summarize.
	Summary string `json:"summary"`
	// Cluster are the findings that belong to no node. Nodes are all nodes with GPUs, healthy ones included. Both begin with the most severe.
	Cluster []Finding `json:"cluster,omitempty"`
	Nodes   []Node    `json:"nodes"`
	// Named is whether the caller has named the nodes: Draw then writes the healthy ones too.
	Named bool `json:"-"`
	// Reduced are sentences about functions that the version of Kubernetes does not permit. They are no findings: nothing is to be repaired.
	Reduced []string `json:"reduced,omitempty"`
	// Problems are sentences about objects that could not be read. Findings that need these objects are absent.
	Problems []string `json:"problems,omitempty"`
}

// Node is the diagnosis of a node with GPUs.
type Node struct {
	Name string `json:"name"`
	// Severity is that of the most severe finding; empty for a healthy node.
	Severity string `json:"severity,omitempty"`
	// GPUs is the number of GPUs in the node's ResourceSlices.
	GPUs int `json:"gpus"`
	// Driver is the version of the driver that the agent uses in this boot, Kernel the release of the running kernel; empty if it is not known.
	Driver string `json:"driver,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	// Findings begin with the most severe.
	Findings []Finding `json:"findings,omitempty"`
	// History are the completed remediations, the latest first.
	History []v1alpha1.RemediationRecord `json:"history,omitempty"`
}

// Finding is one fault of a GPU, a node or a component, with its effects.
type Finding struct {
	// Severity is Warning, Critical or Fatal.
	Severity string `json:"severity"`
	Reason   Reason `json:"reason"`
	// GPU and Index name the GPU; both are absent when the finding concerns the node or the cluster.
	GPU   string `json:"gpu,omitempty"`
	Index *int   `json:"index,omitempty"`
	// Fault is the hardware fault; present only with ReasonFault.
	Fault *gpus.Fault `json:"fault,omitempty"`
	// Message states the fault. Since is when it began, if that is recorded.
	Message string       `json:"message"`
	Since   *metav1.Time `json:"since,omitempty"`
	// Pods are the pods that the finding affects.
	Pods []AffectedPod `json:"pods,omitempty"`
	// Status has sentences about the progress of the remediation. NextStep is what an administrator can do.
	Status   []string `json:"status,omitempty"`
	NextStep string   `json:"nextStep,omitempty"`
}

// AffectedPod is a pod, or a claim that no pod uses, with an affected device.
type AffectedPod struct {
	Namespace string `json:"namespace"`
	// Pod is empty for a claim that no pod uses.
	Pod    string `json:"pod,omitempty"`
	Phase  string `json:"phase,omitempty"`
	Claim  string `json:"claim"`
	Device string `json:"device"`
	// Health is the device's health in the pod's status; without one, the condition of the device in the claim's status.
	Health string `json:"health,omitempty"`
}

// Reason is the machine-readable kind of a finding.
type Reason string

// The reasons.
const (
	ReasonFault                    Reason = "Fault"                    // hardware fault that the agent reported
	ReasonHeld                     Reason = "Held"                     // GPU out of service for remediation, without a current fault
	ReasonConflict                 Reason = "Conflict"                 // allocations of one GPU that overlap
	ReasonWithheld                 Reason = "Withheld"                 // memory slices used by MIG devices of another program
	ReasonTainted                  Reason = "Tainted"                  // taint that Tessera did not set
	ReasonRefused                  Reason = "Refused"                  // claim whose preparation was refused
	ReasonPodUnhealthy             Reason = "PodUnhealthy"             // unhealthy device in a pod's status without a fault of the GPU
	ReasonDeviceGone               Reason = "DeviceGone"               // allocated device that is no longer published
	ReasonNodeNotReady             Reason = "NodeNotReady"             // kubelet does not report the node as Ready
	ReasonKubeletTooOld            Reason = "KubeletTooOld"            // kubelet that starts pods with extended resources without their GPUs
	ReasonAgentMissing             Reason = "AgentMissing"             // no agent pod on the node
	ReasonAgentNotReady            Reason = "AgentNotReady"            // no agent pod of the node is ready
	ReasonAgentNotReporting        Reason = "AgentNotReporting"        // the agent's last report is from before the node's last boot
	ReasonNoResourceSlices         Reason = "NoResourceSlices"         // GPUs or allocations, but no published device
	ReasonResourceSlicesIncomplete Reason = "ResourceSlicesIncomplete" // incomplete pool, which the scheduler ignores
	ReasonInvalidDevices           Reason = "InvalidDevices"           // published devices that do not decode as Tessera's
	ReasonPoolRefused              Reason = "PoolRefused"              // pool that no agent publishes: of another node, or beyond a bound
	ReasonDriverMissing            Reason = "DriverMissing"            // GPUs without a driver
	ReasonGPUsMissing              Reason = "GPUsMissing"              // the driver lists fewer GPUs than the PCI bus
	ReasonNVIDIARuntimeDefault     Reason = "NVIDIARuntimeDefault"     // the default handler gives GPUs to containers without a claim
	ReasonMaintenance              Reason = "Maintenance"              // GPUs out of service for the installer's work
	ReasonNotInService             Reason = "NotInService"             // node that the installer has not brought into service
	ReasonRebootRequired           Reason = "RebootRequired"           // pending reboot request
	ReasonNoLeader                 Reason = "NoLeader"                 // replicas without an elected leader
	ReasonComponentNotReady        Reason = "ComponentNotReady"        // scheduler or installer without a ready pod
)

// Bad reports whether any finding is Critical or Fatal.
func (r Report) Bad() bool {
	return slices.ContainsFunc(r.Cluster, Finding.bad) ||
		slices.ContainsFunc(r.Nodes, func(n Node) bool { return slices.ContainsFunc(n.Findings, Finding.bad) })
}

func (f Finding) bad() bool { return gpus.SeverityRank(f.Severity) > int(gpu.Warning) }

// sortBySeverity sorts the findings, the most severe first; equal ones keep their order.
func sortBySeverity(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Compare(gpus.SeverityRank(b.Severity), gpus.SeverityRank(a.Severity))
	})
}

// maxSummaryNodes is the number of unhealthy nodes that the summary names.
const maxSummaryNodes = 5

// summarize returns the number of unhealthy nodes with their names, the number of affected pods and that of cluster findings, such as
// "1 of 3 nodes unhealthy: gpu-a Fatal. 2 pods affected".
func (r Report) summarize() string {
	var unhealthy []string
	for _, n := range r.Nodes {
		if n.Severity != "" {
			unhealthy = append(unhealthy, n.Name+" "+n.Severity)
		}
	}
	nodes := quantity(len(r.Nodes), "node")
	var text string
	switch {
	case len(r.Nodes) == 0:
		text = "No nodes with GPUs of Tessera."
	case len(unhealthy) == 0:
		text = nodes + " healthy."
	case len(unhealthy) > maxSummaryNodes:
		text = fmt.Sprintf("%d of %s unhealthy: %s and %d more.", len(unhealthy), nodes,
			strings.Join(unhealthy[:maxSummaryNodes], ", "), len(unhealthy)-maxSummaryNodes)
	default:
		text = fmt.Sprintf("%d of %s unhealthy: %s.", len(unhealthy), nodes, strings.Join(unhealthy, ", "))
	}
	if n := r.countAffectedPods(); n > 0 {
		text += " " + quantity(n, "pod") + " affected."
	}
	if n := len(r.Cluster); n > 0 {
		text += " " + quantity(n, "cluster finding") + "."
	}
	return text
}

// countAffectedPods counts each pod of the nodes' findings once, whatever the number of its findings.
func (r Report) countAffectedPods() int {
	pods := map[string]bool{}
	for _, n := range r.Nodes {
		for _, f := range n.Findings {
			for _, p := range f.Pods {
				if p.Pod != "" {
					pods[p.Namespace+"/"+p.Pod] = true
				}
			}
		}
	}
	return len(pods)
}

// healthy reports whether no node has a finding.
func (r Report) healthy() bool {
	return !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Severity != "" })
}

// quantity returns the number with the noun in singular or plural, such as "2 nodes".
func quantity(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
