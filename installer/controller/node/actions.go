package node

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// nodeStep is one decision about a node, with the observation that it was made from.
type nodeStep struct {
	*Reconciler
	catalog     *catalog.Catalog
	observation *nodeObservation
	decision    phase.Decision
}

// actions returns what performs each action of the phase table.
func (s nodeStep) actions() map[phase.Action]func(context.Context) error {
	node := s.observation.GPUNode
	return map[phase.Action]func(context.Context) error{
		phase.Wait: func(context.Context) error { return nil },
		phase.Place: func(ctx context.Context) error {
			return s.placeOperands(ctx, &s.observation.Observation, s.decision.Labels)
		},
		phase.KeepHost:    func(ctx context.Context) error { return s.Cluster.GrantDriver(ctx, node, s.decision.Driver) },
		phase.Adopt:       s.adoptDriver,
		phase.Taint:       s.taint,
		phase.Untaint:     func(ctx context.Context) error { return s.Cluster.UntaintNodeGPUs(ctx, node) },
		phase.Enter:       s.enterMaintenance,
		phase.Leave:       func(ctx context.Context) error { return s.Cluster.LeaveMaintenance(ctx, node) },
		phase.Evict:       func(ctx context.Context) error { return s.Drainer.Evict(ctx, node, node.Name, s.observation.victims) },
		phase.Operate:     s.changeMIGMode,
		phase.EndOperate:  func(ctx context.Context) error { return s.Cluster.DeleteMIGModePod(ctx, node.Name) },
		phase.Validate:    func(ctx context.Context) error { return s.createNodeValidation(ctx, s.catalog, s.observation) },
		phase.EndValidate: s.deleteValidation,
		phase.Record:      s.recordValidated,
		phase.RollBack:    s.rollBack,
	}
}

// perform performs the action that was decided.
func (s nodeStep) perform(ctx context.Context) error {
	act, known := s.actions()[s.decision.Action]
	if !known {
		return fmt.Errorf("perform %q on node %s: no such action", s.decision.Action, s.observation.GPUNode.Name)
	}
	return act(ctx)
}

// adoptDriver records the last good driver before it writes the spec: after a crash between the two, the action is decided again.
func (s nodeStep) adoptDriver(ctx context.Context) error {
	if s.decision.Good {
		if err := s.Cluster.RecordLastGoodDriver(ctx, s.observation.GPUNode, s.decision.Driver); err != nil {
			return err
		}
	}
	return s.Cluster.GrantDriver(ctx, s.observation.GPUNode, s.decision.Driver)
}

func (s nodeStep) taint(ctx context.Context) error {
	operation := string(s.decision.Maintenance.Operation)
	return s.Cluster.TaintNodeGPUs(ctx, s.observation.GPUNode, s.observation.Assignment.DRADriver, operation)
}

func (s nodeStep) enterMaintenance(ctx context.Context) error {
	return s.Cluster.EnterMaintenance(ctx, s.observation.GPUNode, s.decision.Maintenance, s.observation.Now)
}

func (s nodeStep) deleteValidation(ctx context.Context) error {
	return s.Cluster.DeleteValidation(ctx, s.observation.GPUNode.Name, action.NodeValidationParts()...)
}

func (s nodeStep) recordValidated(ctx context.Context) error {
	o := s.observation
	if o.Status.Validated == nil {
		s.Metrics.ObserveTimeToReady(o.Now.Sub(o.GPUNode.CreationTimestamp.Time))
	}
	return s.Cluster.RecordValidated(ctx, o.GPUNode, o.Node.BootID, s.decision.Attempt, o.Now, o.Validation.Message)
}

func (s nodeStep) rollBack(ctx context.Context) error {
	grant := action.Grant{Driver: s.decision.Driver, AgentPool: s.observation.Spec.AgentPool, MIGMode: s.decision.MIGMode}
	return s.Cluster.RollBack(ctx, s.observation.GPUNode, grant, s.decision.Attempt)
}

func (s nodeStep) changeMIGMode(ctx context.Context) error {
	spec := s.catalog.Policy.Spec
	return s.Cluster.CreateMIGModePod(ctx, action.MIGModeChange{
		Node: s.observation.GPUNode, Mode: s.observation.Spec.MIGMode, Image: cmp.Or(spec.NodeAgent.Image, s.Images.Node),
		PullSecrets: spec.DaemonSets.ImagePullSecrets, Paths: spec.HostPaths,
	})
}
