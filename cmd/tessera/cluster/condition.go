package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready is the type of the condition in a claim's status.devices with which the agent reports whether the
// device is prepared.
const Ready = "Ready"

// Healthy is the type of the condition with which the agent reports the device's health.
const Healthy = "Healthy"

// ConditionText returns the condition's reason and message, separated by a colon.
func ConditionText(c metav1.Condition) string {
	switch {
	case c.Message == "":
		return c.Reason
	case c.Reason == "":
		return c.Message
	}
	return c.Reason + ": " + c.Message
}
