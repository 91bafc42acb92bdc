// Package address chooses networks for a lab that do not overlap the host's routes. It has no side effects.
package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// MaxNodes is the maximum number of nodes of a plan.
const MaxNodes = 128

// ErrNoneFree is returned if every candidate network overlaps a route of the host.
var ErrNoneFree = errors.New("no private /16 network is free of the host's routes")

// Plan is the address plan of one lab: one /16 of IPv4, of which only the node network is visible to the host.
//
//	x.y.0.0/24    the lab bridge: .1 control plane, .10+i node i, .254 the host's own end
//	x.y.16.0/20   Services
//	x.y.128+i/24  pods of node i
type Plan struct {
	Network netip.Prefix `json:"network"`
}

// Choose returns the first candidate network that does not overlap the taken prefixes.
func Choose(taken []netip.Prefix) (Plan, error) {
	for _, network := range candidates() {
		if !overlapsAny(network, taken) {
			return Plan{Network: network}, nil
		}
	}
	return Plan{}, ErrNoneFree
}

// Nodes returns the network of the lab bridge.
func (p Plan) Nodes() netip.Prefix { return netip.PrefixFrom(p.at(0, 0), 24) }

// Services returns the range of Service addresses.
func (p Plan) Services() netip.Prefix { return netip.PrefixFrom(p.at(16, 0), 20) }

// Pods returns the pod network of node i.
func (p Plan) Pods(i int) netip.Prefix { return netip.PrefixFrom(p.at(128+i, 0), 24) }

// ControlPlane returns the address of the API server, which is also the router between the nodes.
func (p Plan) ControlPlane() netip.Addr { return p.at(0, 1) }

// FirstService returns the address of the Service kubernetes.default.
func (p Plan) FirstService() netip.Addr { return p.at(16, 1) }

// Host returns the host's address on the lab bridge.
func (p Plan) Host() netip.Addr { return p.at(0, 254) }

// Node returns the address of node i, 0 <= i < MaxNodes.
func (p Plan) Node(i int) netip.Addr { return p.at(0, 10+i) }

// MAC returns the link address for an IPv4 address: locally administered, and the same after every boot. With a random
// address, neighbors would use the old one until their ARP entry expires, which takes up to a minute. A bridge without
// a fixed address even changes it when a port is added or removed.
func MAC(addr netip.Addr) net.HardwareAddr {
	a := addr.As4()
	return net.HardwareAddr{0x02, 0, a[0], a[1], a[2], a[3]}
}

func (p Plan) at(third, fourth int) netip.Addr {
	a := p.Network.Addr().As4()
	a[2], a[3] = byte(third), byte(fourth)
	return netip.AddrFrom4(a)
}

// Taken parses the output of `ip -json -4 route show table all` and returns every destination except the default route.
func Taken(routes []byte) ([]netip.Prefix, error) {
	var entries []struct {
		Destination string `json:"dst"`
	}
	if err := json.Unmarshal(routes, &entries); err != nil {
		return nil, fmt.Errorf("read the host's routes: %w", err)
	}
	var taken []netip.Prefix
	for _, entry := range entries {
		prefix, err := destination(entry.Destination)
		if err != nil {
			return nil, fmt.Errorf("read the host's routes: %w", err)
		}
		if prefix.Bits() > 0 {
			taken = append(taken, prefix)
		}
	}
	return taken, nil
}

// destination parses a route's destination: "default", a prefix, or a single address.
func destination(text string) (netip.Prefix, error) {
	if text == "default" {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("destination %q: %w", text, err)
	}
	return netip.PrefixFrom(addr, addr.BitLen()), nil
}

// candidates lists the networks that a lab may use: private space (RFC 1918), then shared space (RFC 6598), then the
// benchmarking range (RFC 2544).
func candidates() []netip.Prefix {
	var list []netip.Prefix
	add := func(first byte, low, high int) {
		for second := low; second <= high; second++ {
			list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{first, byte(second)}), 16))
		}
	}
	add(10, 64, 254)
	add(172, 18, 31)
	add(100, 64, 127)
	add(198, 18, 19)
	return list
}

func overlapsAny(network netip.Prefix, taken []netip.Prefix) bool {
	for _, other := range taken {
		if network.Overlaps(other) {
			return true
		}
	}
	return false
}
