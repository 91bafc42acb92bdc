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

// card is one GPU with everything around it: what is wrong with it, who uses it, what stands of it in the GPUNode.
type card struct {
	exists bool
	// ill is what ends the fault, well when there is none; seen is whether it was seen in this boot. That a reset, a reboot or a proof does not
	// help is hidden in the hardware.
	ill                                       gpu.Remedy
	seen                                      bool
	badReset, hangs, stubborn, dead, badProof bool
	// open is whether somebody outside of Kubernetes has the GPU open, touched whether a reset that was
	// ordered of it has begun in this boot and no proof has come since. What an agent begins while the order is being taken back is not meant.
	open, touched bool
	// gate is the order that the agent knows, with the ID; state what it says to it.
	gate     v1alpha1.RemediationOrder
	gateID   string
	state    v1alpha1.AgentRemediationState
	toldUsed bool
	prepared bool
	user     phase.PodState
	proved   bool
	// The GPUNode.
	has                bool
	step               v1alpha1.RemediationStep
	reason, id         string
	attempts           int32
	about              string
	began, late        bool
	asked              uint8 // the boot, counted from one
	order              v1alpha1.RemediationOrder
	orderID            string
	records            [3]v1alpha1.RemediationOutcome // the latest first
	recordID           string
	recordReset        [3]bool
	recordBusy         [3]bool  // a maintenance came between
	recordBoot         [3]uint8 // the boot in which somebody was asked, counted from one
	rested             bool
	owed               bool // a remediation has begun of which there is no record
	check              phase.ValidationState
	checkID            string
	begun              bool // its claim is there, its pod not yet
	started, checkLate bool
}

// world is a node with two GPUs, one of which may be missing. It is comparable, so that a search knows where it has been.
type world struct {
	cards [2]card
	boot  uint8
	// agent is whether one runs, spoken whether it has in this boot, broken that none comes back.
	agent, spoken, broken bool
	monitored             bool
	mode                  v1alpha1.RemediationMode
	paused, busy          bool
	noReboot, noValidator bool
	// blocked is whether no pod may be evicted, stays whether none is even asked to go, waited whether pods are waited for, rebooter whether somebody reboots nodes of which it is asked.
	blocked, stays, waited, rebooter bool
	unplaced                         bool // nobody places the pods of proofs
	turn                             uint8
	// budget is how many disturbances are still to come.
	budget uint8
}

const (
	well gpu.Remedy = -1
	// turns is after how many IDs one comes again; fewer are remembered.
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

// observe returns what the installer sees of a GPU.
func (w *world) observe(i int) Observed {
	c := &w.cards[i]
	o := Observed{
		Now: now.Add(time.Duration(w.turn) * time.Millisecond), GPU: fmt.Sprintf("gpu-%d", i), BootID: bootID(w.boot), Speaks: w.agent && w.spoken,
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
	if c.ill > gpu.Wait || c.ill == gpu.Wait {
		f := v1alpha1.GPUFault{
			GPU: o.GPU, UUID: "GPU-1", Signal: "xid", XID: int32(100 + int(c.ill)), Severity: "Critical", Remedy: c.ill.String(),
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
			o.Drain.Staying = []phase.BlockedPod{{Name: "user/pod", Reason: "no controller would make it again"}}
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
		if c.asked > 0 {
			o.Status.BootID = bootID(c.asked - 1)
		}
	}
	if c.order != "" {
		o.Order = &v1alpha1.Remediation{ID: c.orderID, GPU: o.GPU, Step: c.order, Since: since(true)}
		if c.gate != "" && c.gateID == c.orderID && w.spoken {
			o.Agent = &v1alpha1.AgentRemediation{ID: c.gateID, State: c.state}
			if c.toldUsed {
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

// granted is what the budget says, as the installer asks it for all GPUs.
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
