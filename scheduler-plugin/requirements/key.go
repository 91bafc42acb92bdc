package requirements

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

// key returns a hash of all that is required. It is equal for equal claims, whatever their names are.
func (s *parsedClaims) key() string {
	var k keyEncoder
	k.number(len(s.requests))
	for _, r := range s.requests {
		k.string(r.short)
		k.number(len(r.alternatives))
		for i := range r.alternatives {
			k.alternative(&r.alternatives[i])
		}
	}
	for _, c := range s.constraints {
		k.string(string(c.attribute))
		k.bool(c.distinct)
		k.number(len(c.members))
		for _, m := range c.members {
			k.number(m.Request)
			k.number(m.Alternative)
		}
	}
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:])
}

// keyEncoder encodes values unambiguously: strings are prefixed with their length.
type keyEncoder []byte

func (k *keyEncoder) number(n int) { *k = binary.AppendVarint(*k, int64(n)) }

func (k *keyEncoder) bool(b bool) {
	if b {
		*k = append(*k, 1)
		return
	}
	*k = append(*k, 0)
}

func (k *keyEncoder) string(s string) {
	k.number(len(s))
	*k = append(*k, s...)
}

func (k *keyEncoder) alternative(a *alternative) {
	k.string(a.name)
	k.string(a.class)
	k.number(a.count)
	k.number(len(a.selectors))
	for _, s := range a.selectors {
		k.string(s)
	}
	k.number(len(a.tolerations))
	for _, t := range a.tolerations {
		k.string(t.Key)
		k.string(string(t.Operator))
		k.string(t.Value)
		k.string(string(t.Effect))
	}
	k.number(len(a.capacity))
	for _, name := range slices.Sorted(maps.Keys(a.capacity)) {
		q := a.capacity[name]
		k.string(string(name))
		k.string(q.String())
	}
}
