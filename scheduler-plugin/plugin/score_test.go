package plugin

import (
	"context"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
)

func TestNormalizeScore(t *testing.T) {
	tests := map[string]struct {
		verdicts map[string]*nodeVerdict
		want     map[string]int64
		near     []string
	}{
		"one node":          {map[string]*nodeVerdict{"a": {score: -5}}, map[string]int64{"a": 100}, nil},
		"equal nodes":       {map[string]*nodeVerdict{"b": {score: 7}, "a": {score: 7}}, map[string]int64{"a": 100, "b": 99}, nil},
		"a small advantage": {map[string]*nodeVerdict{"a": {score: 1 << 60}, "b": {score: 1<<60 + 1}, "c": {score: 0}}, map[string]int64{"b": 100, "a": 99, "c": 61}, nil},
		"the user's preference counts first": {
			map[string]*nodeVerdict{"a": {preference: 8, score: 0}, "b": {preference: 7, score: 100}, "c": {preference: 7, score: 50}},
			map[string]int64{"a": 100, "b": 80, "c": 61}, nil,
		},
		"the group's clique counts before the score": {
			map[string]*nodeVerdict{"a": {score: 100}, "b": {score: 1}, "c": {score: 0}}, map[string]int64{"b": 100, "c": 80, "a": 79}, []string{"b", "c"},
		},
		"and after the user's preference": {
			map[string]*nodeVerdict{"a": {preference: 8}, "b": {preference: 7}}, map[string]int64{"a": 100, "b": 80}, []string{"b"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(test.want, normalized(t.Context(), t, &cycle{verdicts: test.verdicts, preferred: sets.New(test.near...)})); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNormalizedScoresKeepTheOrder covers arbitrary nodes of one attempt with the default number of candidates.
func TestNormalizedScoresKeepTheOrder(t *testing.T) {
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		verdicts := rapid.MapOfN(rapid.StringN(1, 8, -1), rapid.Custom(func(t *rapid.T) *nodeVerdict {
			return &nodeVerdict{score: rapid.Int64().Draw(t, "score"), preference: rapid.Int64Range(0, 3).Draw(t, "preference")}
		}), 1, 64).Draw(t, "verdicts")
		got := normalized(ctx, t, &cycle{verdicts: verdicts})
		for a, x := range verdicts {
			if got[a] < 0 || got[a] > 100 {
				t.Errorf("%s has %d", a, got[a])
			}
			for b, y := range verdicts {
				better := compareScoredNodes(scoredNode{name: a, preference: x.preference, score: x.score}, scoredNode{name: b, preference: y.preference, score: y.score}) < 0
				if better && got[a] <= got[b] {
					t.Errorf("%s has %d, %s, which is worse, has %d", a, got[a], b, got[b])
				}
			}
		}
	})
}

func normalized(ctx context.Context, t rapid.TB, c *cycle) map[string]int64 {
	t.Helper()
	cs := framework.NewCycleState()
	cs.Write(cycleKey, c)
	var scores fwk.NodeScoreList
	for name, v := range c.verdicts {
		scores = append(scores, fwk.NodeScore{Name: name, Score: v.score})
	}
	if status := (&Plugin{}).NormalizeScore(ctx, cs, nil, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	got := map[string]int64{}
	for _, s := range scores {
		got[s.Name] = s.Score
	}
	return got
}
