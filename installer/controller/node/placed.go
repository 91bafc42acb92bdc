package node

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/render"
)

// placedDriver returns the driver that the label of a node places, read from its DaemonSet, where the GPUNode lacks it: the GPUNode was deleted or restored
// without its status, and the driver still runs. It returns nil where the GPUNode is complete, and where there is no label or no such DaemonSet.
func (r *Reconciler) placedDriver(ctx context.Context, o *nodestate.Observation) (*v1alpha1.DesiredDriver, error) {
	label := o.Node.Labels.Driver
	if label == "" || o.Spec.Driver != nil && o.Status.LastGoodDriver != nil {
		return nil, nil //nolint:nilnil // no driver is a valid answer
	}
	set := &appsv1.DaemonSet{}
	name := o.Assignment.DriverOperand() + "-" + label
	switch err := r.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: r.Cluster.Namespace, Name: name}, set); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no driver is a valid answer
	case err != nil:
		return nil, fmt.Errorf("read DaemonSet %s: %w", name, err)
	}
	digest, pod := set.Spec.Template.Annotations[render.AnnotationDigest], set.Spec.Template.Spec
	if digest == "" || len(pod.Containers) == 0 {
		return nil, nil //nolint:nilnil // another program created it
	}
	driver := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: digest, Image: pod.Containers[0].Image}
	// NVIDIA's tags are the version, a dash and the operating system. The registry may have a port, so the tag is cut from the last path element.
	_, tag, _ := strings.Cut(driver.Image[strings.LastIndex(driver.Image, "/")+1:], ":")
	driver.Version, _, _ = strings.Cut(tag, "-")
	if len(pod.InitContainers) > 0 {
		// The verb preflight has the driver's target as flags.
		for _, arg := range pod.InitContainers[0].Args {
			if system, ok := strings.CutPrefix(arg, "--os="); ok {
				driver.OS = system
			}
			if kernel, ok := strings.CutPrefix(arg, "--kernel="); ok {
				driver.Kernel = kernel
			}
		}
	}
	return driver, nil
}
