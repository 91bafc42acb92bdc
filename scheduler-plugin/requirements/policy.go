package requirements

import (
	"errors"
	"math"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// policy is which amounts of a capacity can be taken: those of a range or of a list, or any if there is neither.
type policy struct {
	ranged            bool
	least, most, step int64
	// values are in ascending order, which the API requires.
	values []int64
}

func readPolicy(p *resourceapi.CapacityRequestPolicy) (policy, error) {
	var read policy
	var problems []error
	get := func(q *resource.Quantity) int64 {
		n, err := wholeNumber(*q)
		problems = append(problems, err)
		return n
	}
	if r := p.ValidRange; r != nil {
		read = policy{ranged: true, most: math.MaxInt64, step: 1}
		if r.Min == nil {
			return policy{}, errors.New("a range without a least value")
		}
		read.least = get(r.Min)
		if r.Max != nil {
			read.most = get(r.Max)
		}
		if r.Step != nil {
			read.step = max(1, get(r.Step))
		}
		return read, errors.Join(problems...)
	}
	for i := range p.ValidValues {
		read.values = append(read.values, get(&p.ValidValues[i]))
	}
	return read, errors.Join(problems...)
}

// round returns the least permitted amount that is not smaller, or n if there is none.
func (p policy) round(n int64) int64 {
	if p.ranged {
		n = max(n, p.least)
		if over := (n - p.least) % p.step; over > 0 {
			n += p.step - over
		}
		return n
	}
	for _, v := range p.values {
		if v >= n {
			return v
		}
	}
	return n
}

// allows reports whether the amount is permitted.
func (p policy) allows(n int64) bool {
	if p.ranged {
		return n <= p.most && (n-p.least)%p.step == 0
	}
	return len(p.values) == 0 || slices.Contains(p.values, n)
}
