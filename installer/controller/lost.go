package controller

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// placedDriver returns the driver that the label of a node stands for, as its DaemonSet says, where the GPUNode does not know what is good; else nil.
func (r *nodeReconciler) placedDriver(ctx context.Context, s *nodeObservation) (*v1alpha1.DesiredDriver, error) {
	label := s.Node.Labels.Driver
	if label == "" || s.Spec.Driver != nil && s.Status.LastGoodDriver != nil {
		return nil, nil //nolint:nilnil // there is nothing to know
	}
	set := &appsv1.DaemonSet{}
	name := DriverOperand(s.Assignment) + "-" + label
	switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, set); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is nothing to know
	case err != nil:
		return nil, fmt.Errorf("read DaemonSet %s: %w", name, err)
	}
	digest, pod := set.Spec.Template.Annotations[render.AnnotationDigest], set.Spec.Template.Spec
	if digest == "" || len(pod.Containers) == 0 {
		return nil, nil //nolint:nilnil // it is none of ours
	}
	driver := &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: digest, Image: pod.Containers[0].Image}
	// Tags are version-os, as NVIDIA writes them.
	_, tag, _ := strings.Cut(driver.Image[strings.LastIndex(driver.Image, "/")+1:], ":")
	driver.Version, _, _ = strings.Cut(tag, "-")
	return driver, nil
}
