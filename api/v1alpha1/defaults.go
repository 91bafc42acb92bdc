package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The defaults of the installer's kinds. The CRDs have no defaults: the API server does not write them into objects, so that a new release can
// change a default for every object that does not set the field. A test compares the fields' comments with them.
const (
	defaultPriorityClass    = "system-node-critical"
	defaultDriverDir        = "/run/nvidia/driver"
	defaultKubeletRoot      = "/var/lib/kubelet"
	defaultCDIDir           = "/var/run/cdi"
	defaultContainerdConfig = "/etc/containerd/config.toml"
	defaultMinVersion       = "535"
	defaultTimeZone         = "UTC"
	defaultVGPUConfig       = "default"

	defaultSchedulerReplicas = 2
	defaultScrapeInterval    = 15 * time.Second
	defaultStartupTimeout    = 25 * time.Minute
	defaultValidationTimeout = 10 * time.Minute
	defaultSoak              = 5 * time.Minute
	defaultRetryAfter        = 5 * time.Minute
	defaultDrainTimeout      = 5 * time.Minute
	defaultMaxUnavailable    = "25%"
	defaultUpgradeAttempts   = 2
	defaultCanary            = 1
	defaultMaxParallel       = 1
	defaultNodesThatMayFail  = 1

	defaultRemedyParallel = 1
	defaultRemedyAttempts = 2
)

// Weekdays returns the names of the days of a maintenance window, Sunday first as in time.Weekday.
func Weekdays() []string { return []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"} }

// Complete returns a deep copy of the spec with a value in every field that has a default. All readers of a policy use the completed spec.
// Complete is idempotent. Images stay empty: they are those of the release. NodeConfigs are not completed, because the node agent does that; a
// pool without one gets that of nodeAgent.
func (s ClusterPolicySpec) Complete() ClusterPolicySpec {
	c := *s.DeepCopy()
	c.DaemonSets.complete()
	c.HostPaths.complete()
	c.Discovery.complete(true)
	or(&c.Discovery.Source, DiscoverAuto)
	c.Driver = c.Driver.Complete()
	c.Toolkit.complete(true)
	or(&c.Toolkit.ContainerdConfig, defaultContainerdConfig)
	c.NodeAgent.complete(true)
	for i := range c.NodeAgent.Pools {
		if pool := &c.NodeAgent.Pools[i]; pool.Config == nil {
			pool.Config = c.NodeAgent.Config.DeepCopy()
		}
	}
	c.Scheduler.complete(true)
	or(&c.Scheduler.Mode, SchedulerAdditional)
	pointer(&c.Scheduler.Replicas, defaultSchedulerReplicas)
	c.DCGM.complete(false)
	c.DCGMExporter.complete(true)
	duration(&c.DCGMExporter.Interval, defaultScrapeInterval)
	c.Validator.complete(true)
	pointer(&c.Validator.MIG, true)
	duration(&c.Validator.Timeout, defaultValidationTimeout)
	pointer(&c.FeatureLabels.Enabled, true)
	c.VGPUManager.complete(false)
	c.VGPUDeviceManager.complete(true)
	or(&c.VGPUDeviceManager.Config.Default, defaultVGPUConfig)
	c.Upgrade = c.Upgrade.Complete()
	c.Remediation = c.Remediation.Complete()
	return c
}

// Complete returns a deep copy of the driver with a value in every field that has a default.
func (s DriverSpec) Complete() DriverSpec {
	c := *s.DeepCopy()
	c.complete(true)
	or(&c.KernelModuleType, ModulesAuto)
	c.RDMA.complete(false)
	c.GDS.complete(false)
	c.GDRCopy.complete(false)
	duration(&c.StartupTimeout, defaultStartupTimeout)
	or(&c.HostDriver, HostDriverKeep)
	or(&c.MinVersion, defaultMinVersion)
	return c
}

// Complete returns a deep copy of the policy with a value in every field that has a default. A drain without a waitTimeout waits without
// limit, and a drain without waitFor does not wait. Without a window, changes start at any time.
func (p UpgradePolicy) Complete() UpgradePolicy {
	c := *p.DeepCopy()
	pointer(&c.Auto, true)
	pointer(&c.Canary, intstr.FromInt32(defaultCanary))
	duration(&c.Soak, defaultSoak)
	pointer(&c.MaxParallel, defaultMaxParallel)
	pointer(&c.MaxUnavailable, intstr.FromString(defaultMaxUnavailable))
	pointer(&c.FailureBudget, intstr.FromInt32(defaultNodesThatMayFail))
	pointer(&c.Attempts, defaultUpgradeAttempts)
	duration(&c.RetryAfter, defaultRetryAfter)
	c.Drain.complete()
	if c.Window != nil {
		or(&c.Window.TimeZone, defaultTimeZone)
		if len(c.Window.Days) == 0 {
			c.Window.Days = Weekdays()
		}
	}
	return c
}

// Complete returns a deep copy of the remediation with a value in every field that has a default. Its drain has the defaults of that of an
// upgrade.
func (r RemediationSpec) Complete() RemediationSpec {
	c := *r.DeepCopy()
	or(&c.Mode, RemediationSuggest)
	pointer(&c.MaxParallel, defaultRemedyParallel)
	pointer(&c.Attempts, defaultRemedyAttempts)
	pointer(&c.Reboot, true)
	c.Drain.complete()
	return c
}

func (d *DrainSpec) complete() {
	duration(&d.Timeout, defaultDrainTimeout)
	pointer(&d.DeleteEmptyDir, true)
}

func (d *DaemonSetsSpec) complete() {
	if len(d.Tolerations) == 0 {
		d.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	or(&d.PriorityClassName, defaultPriorityClass)
}

func (p *HostPathsSpec) complete() {
	or(&p.Root, "/")
	or(&p.DriverInstallDir, defaultDriverDir)
	or(&p.KubeletRoot, defaultKubeletRoot)
	or(&p.CDI, defaultCDIDir)
}

// complete sets whether the component is deployed, unless the field is set.
func (c *Component) complete(enabled bool) { pointer(&c.Enabled, enabled) }

// or sets a field if it has the zero value.
func or[T comparable](field *T, value T) {
	var empty T
	if *field == empty {
		*field = value
	}
}

// pointer sets a field if it is nil.
func pointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// duration sets a duration if it is nil.
func duration(field **metav1.Duration, value time.Duration) {
	pointer(field, metav1.Duration{Duration: value})
}
