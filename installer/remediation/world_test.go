package remediation

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// card is one GPU with its environment: its fault, its users, its entries in the GPUNode.
type card struct {
	exists bool
	// remedy is that of the fault, noFault if there is none; seen reports whether it was observed in this boot. Whether a reset, a reboot or a
	// validation helps is hidden in the hardware.
	remedy                                    gpu.Remedy
	seen                                      bool
	badReset, hangs, stubborn, dead, badProof bool
	// open reports whether a process outside of Kubernetes has the GPU open, touched whether an ordered reset has started in this boot without a
	// later validation. A reset that the agent starts while the order is being withdrawn is excluded.
	open, touched bool
	// gate is the order that the agent has, with its ID; state is the agent's status of it.
	gate         v1alpha1.RemediationOrder
	gateID       string
	state        v1alpha1.AgentRemediationState
	reportedUsed bool
	prepared     bool
	user         phase.PodState
	proved       bool
	// The GPUNode.
	has                bool
	step               v1alpha1.RemediationStep
	reason, id         string
	attempts           int32
	about              string
	began, late        bool
	requestedBoot      uint8 // the boot, counted from one
	order              v1alpha1.RemediationOrder
	orderID            string
	records            [3]v1alpha1.RemediationOutcome // newest first
	recordID           string
	recordReset        [3]bool
	recordBusy         [3]bool  // a maintenance occurred in between
	recordBoot         [3]uint8 // the boot of the request, counted from one
	rested             bool
	owed               bool // a remediation has started that has no record
	check              phase.ValidationState
	checkID            string
	begun              bool // its claim exists, its pod does not yet
	started, checkLate bool
}

// world is a node with two GPUs, one of which may be missing. It is comparable, so that a search can record visited states.
type world struct {
	cards [2]card
	boot  uint8
	// agent reports whether an agent runs, reported whether it has reported in this boot, broken that none returns.
	agent, reported, broken bool
	monitored               bool
	mode                    v1alpha1.RemediationMode
	paused, busy            bool
	noReboot, noValidator   bool
	// blocked reports whether no pod may be evicted, stays whether no eviction is requested, waited whether pods are waited for, rebooter whether
	// requested reboots happen.
	blocked, stays, waited, rebooter bool
	unplaced                         bool // no scheduler places the pods of validations
	turn                             uint8
	// budget is the number of remaining disturbances.
	budget uint8
}

const (
	noFault gpu.Remedy = -1
	// turns is the number of IDs after which one is reused; fewer are recorded.
	turns = 6
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func since(late bool) metav1.Time {
	if late {
		return metav1.NewTime(now.Add(-12 * time.Hour))
	}
	return metav1.NewTime(now)
}

func bootID(n uint8) string { return fmt.Sprintf("boot-%d", n) }

// bootNumber counts boots from one; 0 is none.
func bootNumber(id string) uint8 {
	if id == "" {
		return 0
	}
	return id[len(id)-1] - '0' + 1
}

func faultName(r gpu.Remedy) string { return fmt.Sprintf("XID %d", 100+int(r)) }

// observe returns the observation of a GPU by the installer.
func (w *world) observe(i int) Observed {
	c := &w.cards[i]
	o := Observed{
		Now: now.Add(time.Duration(w.turn) * time.Millisecond), GPU: fmt.Sprintf("gpu-%d", i), BootID: bootID(w.boot), AgentReports: w.agent && w.reported,
		Policy: Policy{
			Mode: w.mode, Attempts: 2, Reboot: !w.noReboot, Validates: !w.noValidator,
			DrainTimeout: time.Hour, WaitTimeout: 2 * time.Hour, ValidateTimeout: time.Hour,
		},
		Monitored: w.monitored,
	}
	if w.paused {
		o.Paused = "GPUNode node"
	}
	if w.busy {
		o.Busy = "the driver changes"
	}
	if c.remedy > gpu.Wait || c.remedy == gpu.Wait {
		f := v1alpha1.GPUFault{
			GPU: o.GPU, UUID: "GPU-1", Signal: "xid", XID: int32(100 + int(c.remedy)), Severity: "Critical", Remedy: c.remedy.String(),
			Since: since(c.rested), BootID: "an older one",
		}
		if c.seen {
			f.BootID = o.BootID
		}
		o.Faults = []v1alpha1.GPUFault{f}
	}
	w.observeGPUNode(c, &o)
	if c.user != phase.PodAbsent {
		o.Drain.Holders = []string{"user/pod"}
		switch {
		case c.user == phase.PodTerminating:
			o.Drain.Leaving = o.Drain.Holders
		case w.stays:
			o.Drain.Staying = []phase.BlockedPod{{Name: "user/pod", Reason: "no controller would recreate it"}}
			o.Drain.Blocked = o.Drain.Staying
		case w.blocked:
			o.Drain.Blocked = []phase.BlockedPod{{Name: "user/pod", Reason: "its budget allows no disruption"}}
		case w.waited:
			o.Drain.Waited = o.Drain.Holders
		}
	}
	switch {
	case c.check == phase.ValidationNone:
	case c.checkID == c.orderID && c.orderID != "":
		o.Validation = phase.Validation{State: c.check, Since: since(c.checkLate).Time, Begun: c.begun}
		o.Started = c.started
	default:
		o.Validation.Leftover = true
	}
	return o
}

func (w *world) observeGPUNode(c *card, o *Observed) {
	if c.has {
		o.Status = &v1alpha1.RemediationStatus{GPU: o.GPU, Step: c.step, Reason: c.reason, ID: c.id, Attempts: c.attempts, Since: since(c.late)}
		if c.began {
			began := since(true)
			o.Status.Began = &began
		}
		if c.about != "" {
			o.Status.Faults = strings.Split(c.about, ",")
		}
		if c.requestedBoot > 0 {
			o.Status.BootID = bootID(c.requestedBoot - 1)
		}
	}
	if c.order != "" {
		o.Order = &v1alpha1.Remediation{ID: c.orderID, GPU: o.GPU, Step: c.order, Since: since(true)}
		if c.gate != "" && c.gateID == c.orderID && w.reported {
			o.Agent = &v1alpha1.AgentRemediation{ID: c.gateID, State: c.state}
			if c.reportedUsed {
				o.Agent.PreparedClaims = 1
			}
			if c.open && c.state == v1alpha1.RemediationStateHolding && c.gate == v1alpha1.OrderReset {
				o.Agent.Message = "process 4711 has it open"
			}
		}
	}
	for i, outcome := range c.records {
		if outcome == "" {
			continue
		}
		r := v1alpha1.RemediationRecord{ID: "an older one", Outcome: outcome, Faults: []string{faultName(gpu.Reset), faultName(gpu.Reboot)}, Ended: since(c.rested)}
		if i == 0 {
			r.ID = c.recordID
		}
		if c.recordReset[i] {
			r.Attempts = 1
		}
		if c.recordBusy[i] {
			r.Reason = ReasonNodeBusy
		}
		if c.recordBoot[i] > 0 {
			r.BootID = bootID(c.recordBoot[i] - 1)
		}
		o.History = append(o.History, r)
	}
}

// granted returns the result of the budget, evaluated for all GPUs as in the installer.
func (w *world) granted(i int, table []rule) bool {
	var candidates []Candidate
	for j := range w.cards {
		if !w.cards[j].exists {
			continue
		}
		if c, wants := w.observe(j).candidate("node", table); wants {
			candidates = append(candidates, c)
		}
	}
	return Grant(candidates, 1)[Key{"node", fmt.Sprintf("gpu-%d", i)}]
}
