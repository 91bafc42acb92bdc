package main

import (
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const xidsHead = `# What XIDs mean

<!-- Written by go generate ./e2e/repo/generate from api/gpu. Change api/gpu/xid.go instead. -->

An XID is an error that NVIDIA's driver reports with a number: in the kernel's log, and to Tessera, which judges it by this table. What a
number means and what helps follows [NVIDIA's XID catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html); how bad it is
for the devices is our decision, and yours: ${health.xids}$ of a [NodeConfig](reference.md#nodeconfig) judges any number otherwise.

| severity | what becomes of the device |
|---|---|
| Harmless | nothing: it concerns a program; it is counted |
| Warning | it is told, the device is still given to claims |
| Critical | no new claims; what runs there goes on |
| Fatal | what runs there is lost or its results are wrong: no new claims, and with ${health.evict}$ its pods are evicted |

| remedy | when it is over |
|---|---|
| Wait | when it was not there for the quiet time, or as with Reset |
| Restart | when no claim holds the device any more, or as with Reset |
| Reset | when the GPU answers after a reset, or another boot, and does not show it again |
| Reboot | when the GPU answers in another boot and does not show it again |
| Replace | when another GPU is in its place |

An XID of a MIG device concerns that device and what shares memory slices with it, one of the GPU every device of the GPU. The driver hands out the
number and not the rest of the message; where the catalog lets the action depend on that, the table has the worse one.

## By number

| XID | severity | remedy | what happened | what to do |
|---|---|---|---|---|
`

const conditionsHead = `
Any other number is a %v, remedy %v: %s.

## Conditions

Beside events, each GPU is looked at once a second. These are there or not.

| signal | severity | remedy | what it is | what to do |
|---|---|---|---|---|
`

// renderXIDs returns the page about what XIDs and the other signals mean.
func renderXIDs() string {
	var page strings.Builder
	page.WriteString(strings.NewReplacer("${", "`", "}$", "`").Replace(xidsHead))
	var rules gpu.Rules
	row := func(name string, j gpu.Judgement) {
		fmt.Fprintf(&page, "| %s | %v | %v | %s | %s |\n", name, j.Severity, j.Remedy, cell(j.Meaning), cell(j.Help))
	}
	for _, x := range rules.Table() {
		row(fmt.Sprint(x.Number), x.Judgement)
	}
	unknown := rules.Judge(gpu.SignalXID, 0)
	fmt.Fprintf(&page, conditionsHead, unknown.Severity, unknown.Remedy, unknown.Help)
	for _, s := range gpu.Signals() {
		if s != gpu.SignalXID {
			row("`"+string(s)+"`", rules.Judge(s, 0))
		}
	}
	return page.String()
}
