package requirements

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// selector is a compiled CEL selector.
type selector struct {
	text    string
	program cel.CompilationResult
	sight   sight
	// opaque says that sight is not known: everything about a device may count.
	opaque bool
}

// newSelector compiles the expression as the allocator does.
func newSelector(expression string) (selector, error) {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	program := compiler.CompileCELExpression(expression, cel.Options{DisableCostEstimation: true})
	if program.Error != nil {
		return selector{}, fmt.Errorf("compile selector %q: %w", expression, program.Error)
	}
	parsed, issues := program.Environment.Parse(expression)
	if issues != nil && issues.Err() != nil {
		return selector{}, fmt.Errorf("parse selector %q: %w", expression, issues.Err())
	}
	s := selector{text: expression, program: program}
	s.sight, s.opaque = look(parsed.NativeRep().Expr())
	return s, nil
}

// matches evaluates the selector.
func (s *selector) matches(driver string, d *resourceapi.Device) (bool, error) {
	// Evaluation does no I/O; the cost limit of the program ends it.
	matches, _, err := s.program.DeviceMatches(context.Background(), cel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	if err != nil {
		return false, fmt.Errorf("evaluate selector %q: %w", s.text, cel.EnhanceRuntimeError(err))
	}
	return matches, nil
}

// stage is a row of selectors that are evaluated in order, up to the first that does not match, and what
// they said about the devices seen so far. Devices that look the same to them are the same to them, on
// whatever node: one evaluation costs more than a hundred look-ups.
type stage struct {
	selectors []selector
	sight     sight
	// blind stages remember nothing.
	blind bool

	mu    sync.Mutex
	known map[string]verdict
	// scratch is where the look of a device is written; evaluated counts, for tests.
	scratch   []byte
	evaluated int
}

// verdict is what a stage says about a device. An error is one for every device that looks the same.
type verdict struct {
	matches bool
	err     error
}

func newStage(row []selector) *stage {
	s := &stage{selectors: row, known: map[string]verdict{}}
	for _, one := range row {
		s.blind = s.blind || one.opaque
		s.sight = s.sight.and(one.sight)
	}
	return s
}

// filter returns those of the devices in the set that match.
func (s *stage) filter(driver string, devices []*resourceapi.Device, in fit.Set) (fit.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	glance := s.sight.of(driver)
	s.scratch = append(strconv.AppendQuote(s.scratch[:0], driver), ' ')
	start := len(s.scratch)
	out := fit.NewSet(len(devices))
	for i, d := range devices {
		if !in.Has(i) {
			continue
		}
		s.scratch = s.scratch[:start]
		v := s.look(driver, d, glance)
		if v.err != nil {
			return nil, v.err
		}
		if v.matches {
			out.Add(i)
		}
	}
	return out, nil
}

// look returns the verdict on the device, from memory when it looks like one seen before.
func (s *stage) look(driver string, d *resourceapi.Device, glance glance) verdict {
	if s.blind {
		return s.evaluate(driver, d)
	}
	s.scratch = glance.append(s.scratch, d)
	if v, ok := s.known[string(s.scratch)]; ok {
		return v
	}
	if len(s.known) >= maxVerdicts {
		clear(s.known)
	}
	v := s.evaluate(driver, d)
	s.known[string(s.scratch)] = v
	return v
}

func (s *stage) evaluate(driver string, d *resourceapi.Device) verdict {
	s.evaluated++
	for i := range s.selectors {
		matches, err := s.selectors[i].matches(driver, d)
		if err != nil || !matches {
			return verdict{err: err}
		}
	}
	return verdict{matches: true}
}
