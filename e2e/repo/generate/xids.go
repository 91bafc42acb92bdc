package main

import (
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const xidsHead = `# XIDs

<!-- Written by go generate ./e2e/repo/generate from api/gpu. Change api/gpu/xid.go instead. -->

An XID is an error that NVIDIA's driver reports with a number, in the kernel log and to Tessera. The meaning of each number and the action follow
[NVIDIA's XID catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). The severity is Tessera's decision; ${health.xids}$ of a
[NodeConfig](reference.md#nodeconfig) overrides it for any number.

| severity | effect on the device |
|---|---|
| Harmless | none: the error concerns a program; it is counted |
| Warning | it is reported; the device is still allocated |
| Critical | no new claims; running pods continue |
| Fatal | running pods have failed or have wrong results: no new claims; with ${health.evict}$ the pods are evicted |

| remedy | cleared when |
|---|---|
| Wait | the condition is absent for the quiet period, or as with Reset |
| Restart | no claim holds the device any more, or as with Reset |
| Reset | the GPU responds after a reset, or in another boot, without the fault |
| Reboot | the GPU responds in another boot without the fault |
| Replace | another GPU is in its place |

An XID of a MIG device affects this device and all that share memory slices with it; an XID of the GPU affects all of its devices. The driver reports the
number without its message; where the action depends on the message, the table has the more severe one.

## By number

Each entry has the severity, the remedy, the meaning and the action.

`

const conditionsHead = `
Any other number has severity %v and remedy %v: %s.

## Conditions

The agent checks each GPU for these conditions once a second.

`

// renderXIDs returns docs/health-xids.md, the meanings of XIDs and of the other signals.
func renderXIDs() string {
	var page strings.Builder
	page.WriteString(strings.NewReplacer("${", "`", "}$", "`").Replace(xidsHead))
	var rules gpu.Rules
	entry := func(name string, j gpu.Judgement) {
		writeEntry(&page, fmt.Sprintf("%s (%v, %v)", name, j.Severity, j.Remedy), sentence(j.Meaning)+" "+sentence(j.Help))
	}
	for _, x := range rules.Table() {
		entry(fmt.Sprintf("**%d**", x.Number), x.Judgement)
	}
	unknown := rules.Judge(gpu.SignalXID, 0)
	fmt.Fprintf(&page, conditionsHead, unknown.Severity, unknown.Remedy, unknown.Help)
	for _, s := range gpu.Signals() {
		if s != gpu.SignalXID {
			entry("`"+string(s)+"`", rules.Judge(s, 0))
		}
	}
	return page.String()
}
