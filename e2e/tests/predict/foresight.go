// Package predict returns the scheduler's choice for the state of the API server, computed by the
// scheduler's own packages in the process of the caller.
package predict

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Foresight is a cluster as it was when it was read.
type Foresight struct {
	index  *index.Index
	reader *requirements.Reader
}

// classes finds DeviceClasses among those that are installed.
type classes map[string]*resourceapi.DeviceClass

// Get returns a class.
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("find DeviceClass %s: it is not installed", name)
}

// Read reads what is published under the driver's name and what is allocated.
func Read(ctx context.Context, client kubernetes.Interface, driver string) (*Foresight, error) {
	x := index.New(index.Config{Drivers: []string{driver}})
	api := client.ResourceV1()
	published, err := api.ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	for i := range published.Items {
		x.SetSlice(&published.Items[i])
	}
	claims, err := api.ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	for i := range claims.Items {
		x.SetClaim(&claims.Items[i])
	}
	installed, err := api.DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	known := classes{}
	for i := range installed.Items {
		known[installed.Items[i].Name] = &installed.Items[i]
	}
	return &Foresight{x, requirements.NewReader(known, x)}, nil
}

// Answer is the result of fit for one node.
type Answer struct {
	// Devices are those that the claim would get there; none when the node refuses.
	Devices []string
	// Score compares nodes: higher leaves more for the pods to come.
	Score int64
	// Text is the choice, or the refusal, for people.
	Text string
}

// On returns what a node has for a claim that is not allocated.
func (f *Foresight) On(node string, claim *resourceapi.ResourceClaim) (Answer, error) {
	n, ok := f.index.Node(node)
	if !ok {
		return Answer{Text: "publishes no devices"}, nil
	}
	requested, err := f.reader.Read([]*resourceapi.ResourceClaim{claim}, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("read claim %s: %w", claim.Name, err)
	}
	here, err := requested.OnNode(n, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("look for claim %s on %s: %w", claim.Name, node, err)
	}
	choice, ok := fit.Choose(&n.Fit, here, nil)
	if !ok {
		return Answer{Text: fit.Explain(&n.Fit, here, nil).String()}, nil
	}
	answer := Answer{Score: choice.Score, Text: fit.Describe(&n.Fit, here, choice)}
	for _, pick := range choice.Picks {
		for _, device := range pick.Devices {
			answer.Devices = append(answer.Devices, n.Devices[device].Name)
		}
	}
	return answer, nil
}

// Contradiction returns which of a node's allocations contradict each other; nil when none do.
func (f *Foresight) Contradiction(node string) error {
	n, ok := f.index.Node(node)
	if !ok {
		return nil
	}
	return n.DelegateReason
}
