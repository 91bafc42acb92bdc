package requirements

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	celgo "github.com/google/cel-go/cel"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// selector is a compiled CEL selector with cached results. Devices with equal keys have equal results, on whatever node: one
// evaluation of CEL costs more than a hundred lookups. It is safe for concurrent use.
type selector struct {
	text    string
	program cel.CompilationResult
	reads   readSet
	// readsUnknown means that the read fields are unknown: any field of a device may matter. No result is cached.
	readsUnknown bool

	mu    sync.Mutex
	known map[string]matchResult
	// scratch is the buffer for keys; evaluated counts evaluations, for tests.
	scratch   []byte
	evaluated int
}

// matchResult is the result for a device. An error applies to every device with the same key.
type matchResult struct {
	matches bool
	err     error
}

// newSelector compiles the expression as the allocator does.
func newSelector(expression string) (*selector, error) {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	program := compiler.CompileCELExpression(expression, cel.Options{DisableCostEstimation: true})
	if program.Error != nil {
		return nil, fmt.Errorf("compile selector %q: %w", expression, program.Error)
	}
	parsed, issues := program.Environment.Parse(expression)
	if issues != nil && issues.Err() != nil {
		return nil, fmt.Errorf("parse selector %q: %w", expression, issues.Err())
	}
	s := &selector{text: expression, program: program, known: map[string]matchResult{}}
	s.reads, s.readsUnknown = findReadSet(parsed.NativeRep().Expr())
	return s, nil
}

// Steps of the budget (fit.StepTime): the compilation of a selector and of a character of it (BenchmarkCompile), its
// evaluation on a device, the lookup of a cached result, one unit of the cost that CEL counts, of which an evaluation may have
// a million (resourceapi.CELSelectorExpressionMaxCost), and to parse an alternative and look up its results on a node.
const (
	compileSteps     = 400
	characterStep    = 5
	evaluateSteps    = 40
	lookupSteps      = 1
	costPerStep      = 2
	alternativeSteps = 40
)

// stepsToCompile returns the steps that it takes to compile the selector.
func stepsToCompile(text string) int { return compileSteps + characterStep*len(text) }

// matches evaluates the selector.
func (s *selector) matches(driver string, d *resourceapi.Device, b *fit.Budget) (bool, error) {
	// Evaluation does no I/O; the cost limit of the program ends it.
	matches, details, err := s.program.DeviceMatches(context.Background(), cel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	b.Spend(evaluateSteps + costOf(details)/costPerStep)
	if err != nil {
		return false, fmt.Errorf("evaluate selector %q: %w", s.text, cel.EnhanceRuntimeError(err))
	}
	return matches, nil
}

// costOf returns the cost of an evaluation.
func costOf(details *celgo.EvalDetails) int {
	if details == nil || details.ActualCost() == nil {
		return 0
	}
	return int(*details.ActualCost())
}

// filter returns the devices of the set that match.
func (s *selector) filter(driver string, devices []*resourceapi.Device, in fit.Set, b *fit.Budget) (fit.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields := s.reads.keyFieldsOf(driver)
	s.scratch = append(strconv.AppendQuote(s.scratch[:0], driver), ' ')
	start := len(s.scratch)
	out := fit.NewSet(len(devices))
	for i, d := range devices {
		if !in.Has(i) {
			continue
		}
		if !b.Spend(lookupSteps) {
			return nil, fit.ErrTooComplex
		}
		s.scratch = s.scratch[:start]
		v := s.matchCached(driver, d, fields, b)
		if v.err != nil {
			return nil, v.err
		}
		if v.matches {
			out.Add(i)
		}
	}
	return out, nil
}

// matchCached returns the result for the device, from the cache if possible.
func (s *selector) matchCached(driver string, d *resourceapi.Device, fields keyFields, b *fit.Budget) matchResult {
	if s.readsUnknown {
		return s.evaluate(driver, d, b)
	}
	s.scratch = fields.appendKey(s.scratch, d)
	if v, ok := s.known[string(s.scratch)]; ok {
		return v
	}
	if len(s.known) >= maxMatchResults {
		clear(s.known)
	}
	v := s.evaluate(driver, d, b)
	s.known[string(s.scratch)] = v
	return v
}

func (s *selector) evaluate(driver string, d *resourceapi.Device, b *fit.Budget) matchResult {
	s.evaluated++
	matches, err := s.matches(driver, d, b)
	return matchResult{matches: matches && err == nil, err: err}
}
