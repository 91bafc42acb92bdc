package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// task is the scrapes and the queries, or a discovery.
type task struct {
	// Config is the path of a configuration file, whose jobs discover the pods in the cluster of Kubeconfig.
	Config     string `json:"config"`
	Kubeconfig string `json:"kubeconfig"`
	// Pods is how many pods the jobs discover before they choose.
	Pods int `json:"pods"`
	// Target are the labels that Prometheus gives to the target; those of the metrics win (honor_labels).
	Target map[string]string `json:"target"`
	// Scrapes are the target's answers, Interval seconds apart. An empty one stands for a target that
	// did not answer.
	Scrapes  []string `json:"scrapes"`
	Interval int      `json:"interval"`
	// Queries are evaluated at the time of the last scrape.
	Queries []string `json:"queries"`
}

// answer is everything about the queries, in their order, or the labels of the targets that are discovered.
type answer struct {
	Results []result            `json:"results,omitempty"`
	Targets []map[string]string `json:"targets,omitempty"`
}

// result is what one query gives.
type result struct {
	// Error is why it is no query.
	Error string `json:"error,omitempty"`
	// Unknown names the selectors that match nothing because there is no such metric, or none with one
	// of the labels.
	Unknown []string `json:"unknown,omitempty"`
	Samples []sample `json:"samples,omitempty"`
}

// sample is one series of a result. Its value is text, because JSON has no NaN.
type sample struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
}

func (t task) answer(ctx context.Context) (answer, error) {
	if t.Config != "" {
		found, err := targets(ctx, t.Config, t.Kubeconfig, t.Pods)
		return answer{Targets: found}, err
	}
	kept, err := t.scrape()
	if err != nil {
		return answer{}, err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	defer engine.Close()
	var a answer
	for _, query := range t.Queries {
		r, err := kept.query(ctx, engine, query, t.last())
		if err != nil {
			r.Error = err.Error()
		}
		a.Results = append(a.Results, r)
	}
	return a, nil
}

// at returns when the target was scraped.
func (t task) at(scrape int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(scrape*t.Interval) * time.Second)
}

func (t task) last() time.Time { return t.at(len(t.Scrapes) - 1) }

func (s *store) query(ctx context.Context, engine *promql.Engine, text string, at time.Time) (result, error) {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return result{}, err
	}
	r := result{Unknown: s.unknown(expression)}
	query, err := engine.NewInstantQuery(ctx, s, nil, text, at)
	if err != nil {
		return r, err
	}
	defer query.Close()
	answered := query.Exec(ctx)
	if answered.Err != nil {
		return r, answered.Err
	}
	if number, is := answered.Value.(promql.Scalar); is {
		r.Samples = []sample{{Value: format(number.V)}}
		return r, nil
	}
	vector, err := answered.Vector()
	if err != nil {
		return r, errors.Join(err, fmt.Errorf("answered with a %s", answered.Value.Type()))
	}
	for _, v := range vector {
		r.Samples = append(r.Samples, sample{v.Metric.Map(), format(v.F)})
	}
	return r, nil
}

func format(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// unknown names what the expression selects or groups by that no series has.
func (s *store) unknown(expression parser.Expr) []string {
	var found []string
	all := map[string]bool{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		known := s.labels[selector.Name]
		if known == nil {
			found = append(found, selector.String())
		}
		maps.Copy(all, known)
		for _, m := range selector.LabelMatchers {
			if known != nil && m.Name != model.MetricNameLabel && !known[m.Name] {
				found = append(found, fmt.Sprintf("%s: label %s", selector, m.Name))
			}
		}
		return nil
	})
	for _, name := range grouping(expression) {
		if !all[name] {
			found = append(found, fmt.Sprintf("%s: label %s", expression, name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// grouping returns the labels by which the expression aggregates and joins.
func grouping(expression parser.Expr) []string {
	var names []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = append(names, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = append(append(names, n.VectorMatching.MatchingLabels...), n.VectorMatching.Include...)
			}
		}
		return nil
	})
	return names
}
