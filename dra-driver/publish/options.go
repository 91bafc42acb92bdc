package publish

import (
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Options returns the options of the devices that a node with the configuration publishes. It fails only for an invalid configuration.
func Options(c v1alpha1.NodeConfigSpec) (wire.Options, error) {
	offer, err := c.Offer()
	options := wire.Options{Driver: c.DriverName, Offer: offer, Full: c.Attributes == v1alpha1.Full, Evict: c.Health.Evict}
	switch c.ConsumableShares {
	case "":
	case v1alpha1.ConsumableMemory:
		options.Consumable = wire.ConsumeMemory
	default:
		options.Consumable = wire.ConsumeShares
	}
	return options, err
}
