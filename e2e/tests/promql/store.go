package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// store keeps the series of a few scrapes. It is a storage.Queryable and a storage.Querier.
type store struct {
	series map[string]*series
	// order is that of the first scrapes.
	order []string
	// labels are the names of the labels of every metric.
	labels map[string]map[string]bool
}

type series struct {
	labels labels.Labels
	points []chunks.Sample
}

// scrape reads the target's answers.
func (t task) scrape() (*store, error) {
	s := &store{series: map[string]*series{}, labels: map[string]map[string]bool{}}
	for i, text := range t.Scrapes {
		at := model.TimeFromUnixNano(t.at(i).UnixNano())
		seen, err := s.take(text, t.Target, at)
		if err != nil {
			return nil, fmt.Errorf("read scrape %d: %w", i, err)
		}
		up := 0.0
		if text != "" {
			up = 1
		}
		seen[s.add(model.Metric{model.MetricNameLabel: "up"}, t.Target, at, up)] = true
		for key, gone := range s.series {
			if !seen[key] {
				gone.points = append(gone.points, point{int64(at), math.Float64frombits(value.StaleNaN)})
			}
		}
	}
	return s, nil
}

// take adds one answer and returns the keys of its series.
func (s *store) take(text string, target map[string]string, at model.Time) (map[string]bool, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, family := range families {
		vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: at}, family)
		if err != nil {
			return nil, err
		}
		for _, v := range vector {
			seen[s.add(v.Metric, target, at, float64(v.Value))] = true
		}
	}
	return seen, nil
}

// add adds a point. A label that the metric has wins against the target's, also with an empty value,
// which then stands for none.
func (s *store) add(metric model.Metric, target map[string]string, at model.Time, number float64) string {
	all := map[string]string{}
	for name, text := range target {
		all[name] = text
	}
	for name, text := range metric {
		all[string(name)] = string(text)
	}
	name := all[model.MetricNameLabel]
	if s.labels[name] == nil {
		s.labels[name] = map[string]bool{}
	}
	for label := range all {
		s.labels[name][label] = true
	}
	own := labels.NewBuilder(labels.FromMap(all))
	for label, text := range all {
		if text == "" {
			own.Del(label)
		}
	}
	key := own.Labels().String()
	if s.series[key] == nil {
		s.series[key] = &series{labels: own.Labels()}
		s.order = append(s.order, key)
	}
	s.series[key].points = append(s.series[key].points, point{int64(at), number})
	return key
}

// Querier returns the store itself.
func (s *store) Querier(int64, int64) (storage.Querier, error) { return s, nil }

// Select returns the series that match, with all their points.
func (s *store) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &found{next: -1}
	for _, key := range s.order {
		one := s.series[key]
		if matches(one.labels, matchers) {
			set.all = append(set.all, storage.NewListSeries(one.labels, one.points))
		}
	}
	return set
}

func matches(l labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

var errNotNeeded = errors.New("queries do not need this")

// LabelValues is not needed by queries.
func (s *store) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errNotNeeded
}

// LabelNames is not needed by queries.
func (s *store) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errNotNeeded
}

// Close does nothing.
func (s *store) Close() error { return nil }

// found are the series that match.
type found struct {
	all  []storage.Series
	next int
}

func (f *found) Next() bool {
	f.next++
	return f.next < len(f.all)
}

func (f *found) At() storage.Series                { return f.all[f.next] }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }

// point is a float at a time in milliseconds.
type point struct {
	at     int64
	number float64
}

func (p point) T() int64                      { return p.at }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.number }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }
