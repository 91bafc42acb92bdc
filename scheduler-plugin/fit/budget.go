package fit

import (
	"errors"
	"sync/atomic"
	"time"
)

// Budget limits the work of searches, in steps: a step is about the evaluation of one device. Since it counts work and
// not time, the result of a search depends only on its arguments. A nil budget has no limit. It is safe for concurrent use.
type Budget struct {
	whole *Budget
	limit int64
	spent atomic.Int64
}

// NodeSteps is the number of steps that the search for the devices of one node may take. Requirements of existing
// workloads take less than a tenth of it.
const NodeSteps = 10_000

// StepTime is the duration of a step on a slow processor (BenchmarkStep measures 35 to 250 ns). It converts limits of
// time into steps.
const StepTime = 250 * time.Nanosecond

// ReasonTooComplex is the reason of a pod that is rejected because a budget was exceeded.
const ReasonTooComplex = "RequestTooComplex"

// ErrTooComplex means that a budget was exceeded.
var ErrTooComplex = errors.New("the combinations of requests, alternatives, selectors and constraints exceed the limit of the search")

// NewBudget returns a budget of so many steps.
func NewBudget(steps int) *Budget { return &Budget{limit: int64(steps)} }

// Part returns a budget of at most so many steps. They are taken from b as well.
func (b *Budget) Part(steps int) *Budget { return &Budget{whole: b, limit: int64(steps)} }

// Half returns a budget of half of the steps of b, from which they are taken as well.
func (b *Budget) Half() *Budget {
	if b == nil {
		return nil
	}
	return b.Part(int(b.limit / 2))
}

// Spend takes steps and reports whether the budget allowed them. Once it returns false, it always does.
func (b *Budget) Spend(steps int) bool {
	if b == nil {
		return true
	}
	own := b.spent.Add(int64(steps)) <= b.limit
	return b.whole.Spend(steps) && own
}

// Exceeded reports whether more steps were needed than the budget, or the one that it is a part of, has. Then a search
// that found nothing has not been completed.
func (b *Budget) Exceeded() bool {
	return b != nil && (b.spent.Load() > b.limit || b.whole.Exceeded())
}

// Spent returns the steps that were taken, which are no more than the limit: those that were refused are not among them.
func (b *Budget) Spent() int {
	if b == nil {
		return 0
	}
	return int(min(b.spent.Load(), b.limit))
}
