package intree

import (
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// Handle is the framework's handle for in-tree plugins, with another manager of claims and devices and an uncancelable
// client.
type Handle struct {
	fwk.Handle
	manager fwk.SharedDRAManager
	factory informers.SharedInformerFactory
}

// NewHandle returns a handle with the manager, for the in-tree plugin of a profile.
func NewHandle(h fwk.Handle, manager fwk.SharedDRAManager) Handle {
	return Handle{Handle: h, manager: manager, factory: h.SharedInformerFactory()}
}

// SharedDRAManager returns the other manager.
func (h Handle) SharedDRAManager() fwk.SharedDRAManager { return h.manager }

// ClientSet returns the uncancelable client.
func (h Handle) ClientSet() kubernetes.Interface { return uncancelableClient{h.Handle.ClientSet()} }

// SharedInformerFactory returns the factory given to the handle.
func (h Handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// unindexed is a factory of informers whose pods accept no indexers. Every in-tree plugin adds one for its queueing
// hints, which instances of a pool do not use.
type unindexed struct {
	informers.SharedInformerFactory
}

// Core returns the core group.
func (f unindexed) Core() coreinformers.Interface {
	return unindexedGroup{f.SharedInformerFactory.Core()}
}

type unindexedGroup struct {
	coreinformers.Interface
}

// V1 returns the version v1.
func (g unindexedGroup) V1() corev1informers.Interface { return unindexedVersion{g.Interface.V1()} }

type unindexedVersion struct {
	corev1informers.Interface
}

// Pods returns the informer of pods.
func (v unindexedVersion) Pods() corev1informers.TypedPodInformer {
	return unindexedPods{v.Interface.Pods()}
}

type unindexedPods struct {
	corev1informers.TypedPodInformer
}

// Informer returns the shared informer.
func (p unindexedPods) Informer() cache.SharedIndexInformer {
	return unindexedInformer{p.TypedPodInformer.Informer()}
}

type unindexedInformer struct {
	cache.SharedIndexInformer
}

// AddIndexers adds nothing.
func (unindexedInformer) AddIndexers(cache.Indexers) error { return nil }
