package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready is the type of the condition in a claim's status.devices by which a node's agent says whether
// the device is usable.
const Ready = "Ready"

// Healthy is the type of the one by which it says whether the device is well.
const Healthy = "Healthy"

// Reason returns why a condition is as it is.
func Reason(c metav1.Condition) string {
	switch {
	case c.Message == "":
		return c.Reason
	case c.Reason == "":
		return c.Message
	}
	return c.Reason + ": " + c.Message
}
