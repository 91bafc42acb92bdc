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

// The type of the answer in JSON.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "DoctorReport"
)

// Report is the answer.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Time is when the cluster was looked at.
	Time metav1.Time `json:"time"`
	// Summary is the report in a sentence or two.
	Summary string `json:"summary"`
	// Cluster is what is wrong and belongs to no node, Nodes are the nodes with GPUs, the worst first.
	Cluster []Finding `json:"cluster,omitempty"`
	Nodes   []Node    `json:"nodes"`
	// Problems are what could not be looked at, in sentences.
	Problems []string `json:"problems,omitempty"`
}

// Node is a node with GPUs.
type Node struct {
	Name string `json:"name"`
	// Severity is that of the worst finding; absent where all is well.
	Severity string `json:"severity,omitempty"`
	// GPUs is how many are published.
	GPUs int `json:"gpus"`
	// Findings are what is wrong, the worst first.
	Findings []Finding `json:"findings,omitempty"`
	// History are the remediations that are over, the latest first.
	History []v1alpha1.RemedyRecord `json:"history,omitempty"`
}

// Finding is one thing that is wrong.
type Finding struct {
	// Severity is Warning, Critical or Fatal.
	Severity string `json:"severity"`
	// Reason is one word for it.
	Reason Reason `json:"reason"`
	// GPU and Index are the GPU that it is about; absent: it is the node, or the cluster.
	GPU   string `json:"gpu,omitempty"`
	Index *int   `json:"index,omitempty"`
	// Ailment is the fault, of ReasonFault only.
	Ailment *gpus.Ailment `json:"ailment,omitempty"`
	// Message is what is wrong.
	Message string       `json:"message"`
	Since   *metav1.Time `json:"since,omitempty"`
	// Pods are those that suffer from it.
	Pods []Sufferer `json:"pods,omitempty"`
	// Doing is what is being done, in sentences; Help is what to do.
	Doing []string `json:"doing,omitempty"`
	Help  string   `json:"help,omitempty"`
}

// Sufferer is a pod with a device that is not well.
type Sufferer struct {
	Namespace string `json:"namespace"`
	// Pod is absent where no pod uses the claim.
	Pod    string `json:"pod,omitempty"`
	Phase  string `json:"phase,omitempty"`
	Claim  string `json:"claim"`
	Device string `json:"device"`
	// Says is what the pod's status says of its device, or the claim's of one that could not be prepared.
	Says string `json:"says,omitempty"`
}

// Reason says in a word what is wrong.
type Reason string

// The reasons.
const (
	ReasonFault             Reason = "Fault"             // the hardware is not well
	ReasonHeld              Reason = "Held"              // a GPU is out of service for a remedy
	ReasonConflict          Reason = "Conflict"          // claims that do not fit beside each other
	ReasonWithheld          Reason = "Withheld"          // MIG instances that Tessera did not make
	ReasonTainted           Reason = "Tainted"           // devices that somebody else keeps claims away from
	ReasonRefused           Reason = "Refused"           // a claim that could not be prepared
	ReasonPodUnhealthy      Reason = "PodUnhealthy"      // a pod says that its device is not well, and nobody else does
	ReasonDeviceGone        Reason = "DeviceGone"        // a claim holds a device that is not published
	ReasonNodeNotReady      Reason = "NodeNotReady"      // the node's kubelet does not answer
	ReasonAgentMissing      Reason = "AgentMissing"      // no agent runs on the node
	ReasonAgentNotReady     Reason = "AgentNotReady"     // the agent does not serve
	ReasonAgentSilent       Reason = "AgentSilent"       // what is known of the node is from before its last boot
	ReasonNoSlices          Reason = "NoSlices"          // GPUs or claims, and no device is published
	ReasonSlicesIncomplete  Reason = "SlicesIncomplete"  // the scheduler uses none of the pool
	ReasonStrangeDevices    Reason = "StrangeDevices"    // devices that are not Tessera's
	ReasonDriverMissing     Reason = "DriverMissing"     // GPUs without a driver
	ReasonGPUsMissing       Reason = "GPUsMissing"       // the driver sees fewer GPUs than the bus
	ReasonMaintenance       Reason = "Maintenance"       // the installer has taken the node's GPUs out of service
	ReasonNotInService      Reason = "NotInService"      // the installer has not brought the node into service
	ReasonRebootRequired    Reason = "RebootRequired"    // a reboot is asked for
	ReasonNobodyLeads       Reason = "NobodyLeads"       // replicas that wait for a leader
	ReasonComponentNotReady Reason = "ComponentNotReady" // a part of Tessera without a node that does not serve
)

// Bad reports whether anything is Critical or worse: somebody should act, or is about to.
func (r Report) Bad() bool {
	return slices.ContainsFunc(r.Cluster, Finding.bad) ||
		slices.ContainsFunc(r.Nodes, func(n Node) bool { return slices.ContainsFunc(n.Findings, Finding.bad) })
}

func (f Finding) bad() bool { return gpus.Rank(f.Severity) > int(gpu.Warning) }

// worstFirst orders findings by severity, and then as they were found.
func worstFirst(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(gpus.Rank(b.Severity), gpus.Rank(a.Severity)) })
}

// summarize says in a sentence or two how things stand.
func (r Report) summarize() string {
	var sick []string
	pods := map[string]bool{}
	for _, n := range r.Nodes {
		if n.Severity != "" {
			sick = append(sick, n.Name+" "+n.Severity)
		}
		for _, f := range n.Findings {
			for _, p := range f.Pods {
				if p.Pod != "" {
					pods[p.Namespace+"/"+p.Pod] = true
				}
			}
		}
	}
	all := count(len(r.Nodes), "node")
	text := "Nothing is wrong with " + all + "."
	switch {
	case len(r.Nodes) == 0:
		text = "No node has GPUs that Tessera knows."
	case len(sick) > mostNamed:
		text = fmt.Sprintf("%d of %s not well: %s and %d more.", len(sick), all, strings.Join(sick[:mostNamed], ", "), len(sick)-mostNamed)
	case len(sick) > 0:
		text = fmt.Sprintf("%d of %s not well: %s.", len(sick), all, strings.Join(sick, ", "))
	}
	if n := len(pods); n > 0 {
		text += " " + count(n, "pod") + " concerned."
	}
	if n := len(r.Cluster); n > 0 {
		text += " " + count(n, "finding") + " beside the nodes."
	}
	return text
}

// mostNamed is how many nodes the summary names.
const mostNamed = 5

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
