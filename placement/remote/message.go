package remote

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// text returns text that can be sent: bytes that are not UTF-8 are replaced, so that one bad record
// does not spoil its batch.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func batchToProto(b *Batch) (*pb.EvaluateRequest, error) {
	chain, err := chainToProto(&b.Chain)
	if err != nil {
		return nil, err
	}
	m := &pb.EvaluateRequest{
		Request: requestToProto(&b.Request), Chain: chain, Seed: b.Seed, Now: b.Now, ResourceNames: b.Names,
		Tickets: ticketsToProto(b.Tickets),
	}
	for i := range b.Servers {
		m.Servers = append(m.Servers, serverToProto(&b.Servers[i]))
	}
	for i := range b.Spreads {
		m.Spreads = append(m.Spreads, spreadToProto(&b.Spreads[i]))
	}
	return m, nil
}

func batchFromProto(m *pb.EvaluateRequest) (*Batch, error) {
	b := &Batch{Seed: m.GetSeed(), Now: m.GetNow(), Names: m.GetResourceNames()}
	if n := len(m.GetServers()); n > MaxServers {
		return nil, plimsoll.Invalid("servers", "has %d entries; at most %d are possible in a batch", n, MaxServers)
	}
	var err error
	if b.Request, err = requestFromProto(m.GetRequest()); err != nil {
		return nil, err
	}
	if b.Chain, err = chainFromProto(m.GetChain()); err != nil {
		return nil, err
	}
	for _, s := range m.GetServers() {
		b.Servers = append(b.Servers, serverFromProto(s))
	}
	b.Tickets = ticketsFromProto(m.GetTickets())
	for _, s := range m.GetSpreads() {
		b.Spreads = append(b.Spreads, spreadFromProto(s))
	}
	return b, nil
}

// chainToProto writes the name of a chain, or the whole chain if it has none.
func chainToProto(c *Chain) (*pb.PlacementChain, error) {
	if c.Name != "" {
		return &pb.PlacementChain{Name: text(c.Name)}, nil
	}
	expression, err := json.Marshal(c.Text)
	if err != nil {
		return nil, fmt.Errorf("write the chain: %w", err)
	}
	return &pb.PlacementChain{Expression: text(string(expression)), Settings: settingsToProto(&c.Settings)}, nil
}

func serverToProto(s *placement.Server) *pb.PlacementServer {
	return &pb.PlacementServer{
		Id: text(s.ID), Setup: s.Setup, Status: text(s.Status), Reserved: text(s.Reserved), Fault: text(s.Fault),
		Capacity: resourcesToProto(s.Capacity), Labels: labelsToProto(s.Labels),
		Facts:         wire.NodeFactsToProto(&s.NodeFacts),
		NetworksKnown: s.Networks != nil,
	}
}

func serverFromProto(m *pb.PlacementServer) placement.Server {
	s := placement.Server{
		ID: m.GetId(), Setup: m.GetSetup(), Status: m.GetStatus(), Reserved: m.GetReserved(), Fault: m.GetFault(),
		Capacity: resourcesFromProto(m.GetCapacity()), Labels: m.GetLabels(),
		NodeFacts: wire.NodeFactsFromProto(m.GetFacts()),
	}
	if m.GetNetworksKnown() && s.Networks == nil {
		s.Networks = map[string]bool{}
	}
	return s
}

func instanceToProto(in *placement.Instance) *pb.PlacementInstance {
	if in == nil {
		return nil
	}
	return &pb.PlacementInstance{
		Id: text(in.ID), Owner: text(in.Owner), Job: text(in.Job), Group: text(in.Group),
		Labels:    labelsToProto(in.Labels),
		Resources: resourcesToProto(in.Resources), Failed: in.Failed, Modified: in.Modified,
		Left: resourcesToProto(in.Left),
	}
}

func instanceFromProto(m *pb.PlacementInstance) *placement.Instance {
	if m == nil {
		return nil
	}
	return &placement.Instance{
		ID: m.GetId(), Owner: m.GetOwner(), Job: m.GetJob(), Group: m.GetGroup(), Labels: m.GetLabels(),
		Resources: resourcesFromProto(m.GetResources()), Failed: m.GetFailed(), Modified: m.GetModified(),
		Left: resourcesFromProto(m.GetLeft()),
	}
}

func requestToProto(r *placement.Request) *pb.PlacementRequest {
	m := &pb.PlacementRequest{
		Owner: text(r.Owner), Job: text(r.Job), Group: text(r.Group), Resources: resourcesToProto(r.Resources),
		Needs:       resourcesToProto(r.Needs),
		Constraints: wire.ConstraintsToProto(&r.Constraints), Preferences: wire.PreferencesToProto(&r.Preferences),
		OwnOnly:  r.OwnOnly,
		AnyClass: r.AnyClass, NetworksGiven: r.Constraints.Networks != nil,
	}
	for _, p := range r.Platforms {
		m.Platforms = append(m.Platforms, &pb.PlatformRange{Min: labelsToProto(p.Min), Max: labelsToProto(p.Max)})
	}
	for _, x := range r.Except {
		m.Except = append(m.Except, &pb.PlacementExclusion{Server: text(x.Server), Why: text(x.Why)})
	}
	return m
}

func requestFromProto(m *pb.PlacementRequest) (placement.Request, error) {
	if !wire.Known[plimsoll.ReservoirUse](m.GetConstraints().GetReservoir()) {
		return placement.Request{}, plimsoll.Invalid(
			"constraints.reservoir", "is not known to this evaluator; use last, never or only",
		)
	}
	if err := knownStrategy("preferences.strategy", m.GetPreferences().GetStrategy()); err != nil {
		return placement.Request{}, err
	}
	r := placement.Request{
		Owner: m.GetOwner(), Job: m.GetJob(), Group: m.GetGroup(), Resources: resourcesFromProto(m.GetResources()),
		Needs: resourcesFromProto(m.GetNeeds()), Constraints: wire.ConstraintsFromProto(m.GetConstraints()),
		Preferences: wire.PreferencesFromProto(m.GetPreferences()), OwnOnly: m.GetOwnOnly(), AnyClass: m.GetAnyClass(),
	}
	if m.GetNetworksGiven() && r.Constraints.Networks == nil {
		r.Constraints.Networks = [][]string{}
	}
	for _, p := range m.GetPlatforms() {
		r.Platforms = append(r.Platforms, plimsoll.PlatformRange{Min: p.GetMin(), Max: p.GetMax()})
	}
	for _, x := range m.GetExcept() {
		r.Except = append(r.Except, placement.Exclusion{Server: x.GetServer(), Why: x.GetWhy()})
	}
	return r, nil
}

func knownStrategy(field string, s pb.Strategy) error {
	if !wire.Known[plimsoll.Strategy](s) {
		return plimsoll.Invalid(
			field, "is not known to this evaluator; use default, pack, spread, fewest-of-owner or random",
		)
	}
	return nil
}

func settingsToProto(s *placement.Settings) *pb.PlacementSettings {
	w := &s.Weights
	return &pb.PlacementSettings{
		Capness: s.Capness, Headnodes: s.Headnodes, NoRoom: s.NoRoom, MaxInstances: int32(min(s.MaxInstances, 1<<30)),
		LargeServers: s.LargeServers,
		OwnerSpread:  s.OwnerSpread, SickFor: s.SickFor, Strategy: pb.Strategy(s.Strategy),
		OwnerRules: labelsToProto(s.OwnerRules),
		Weights: &pb.PlacementWeights{
			UnreservedMemory: w.UnreservedMemory, UnreservedDisk: w.UnreservedDisk,
			UnreservedCustom: w.UnreservedCustom,
			OwnerInstances:   w.OwnerInstances, CurrentPlatform: w.CurrentPlatform, NextReboot: w.NextReboot,
			Random: w.Random, Near: w.Near,
			Spread: w.Spread,
		},
	}
}

// chainFromProto reads a chain. A written-out chain without settings gets
// placement.DefaultSettings.
func chainFromProto(m *pb.PlacementChain) (Chain, error) {
	c := Chain{Name: m.GetName(), Settings: placement.DefaultSettings()}
	if c.Name != "" {
		if m.GetExpression() != "" || m.GetSettings() != nil {
			return c, plimsoll.Invalid("chain", "has a name, and is written out too; give one of them")
		}
		return c, nil
	}
	if m.GetExpression() == "" {
		return c, plimsoll.Invalid("chain", "is missing; give the name of one that the evaluator has, or write it out")
	}
	if n := len(m.GetExpression()); n > MaxExpression {
		return c, plimsoll.Invalid("chain.expression", "is %d bytes long; at most %d are possible", n, MaxExpression)
	}
	if err := json.Unmarshal([]byte(m.GetExpression()), &c.Text); err != nil {
		return c, plimsoll.Invalid("chain.expression", "%s", err)
	}
	s := m.GetSettings()
	if s == nil {
		return c, nil
	}
	if err := knownStrategy("chain.settings.strategy", s.GetStrategy()); err != nil {
		return c, err
	}
	w := s.GetWeights()
	c.Settings = placement.Settings{
		Capness: s.GetCapness(), Headnodes: s.GetHeadnodes(), NoRoom: s.GetNoRoom(),
		MaxInstances: int(s.GetMaxInstances()),
		LargeServers: s.GetLargeServers(), OwnerSpread: s.GetOwnerSpread(), SickFor: s.GetSickFor(),
		Strategy:   wire.EnumFromProto[plimsoll.Strategy](s.GetStrategy()),
		OwnerRules: s.GetOwnerRules(),
		Weights: placement.Weights{
			UnreservedMemory: w.GetUnreservedMemory(), UnreservedDisk: w.GetUnreservedDisk(),
			UnreservedCustom: w.GetUnreservedCustom(),
			OwnerInstances:   w.GetOwnerInstances(), CurrentPlatform: w.GetCurrentPlatform(),
			NextReboot: w.GetNextReboot(),
			Random:     w.GetRandom(), Near: w.GetNear(), Spread: w.GetSpread(),
		},
	}
	return c, nil
}

func evaluationToProto(e *Evaluation) *pb.EvaluateResponse {
	m := &pb.EvaluateResponse{Loads: int32(e.Loads), Peak: int32(e.Peak)}
	for _, s := range e.Survivors {
		m.Survivors = append(m.Survivors, &pb.PlacementSurvivor{Server: int32(s.Place), Score: s.Score})
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		step := &pb.PlacementStep{
			Stage: int32(s.Place), Name: text(s.Stage), Kind: pb.PlacementStepKind(s.Kind) + 1,
			Received:  int32(s.Received),
			Remaining: int32(s.Remaining), Dropped: int32(s.Dropped),
		}
		for _, r := range s.Reasons {
			reason := &pb.PlacementReason{Text: text(r.Text), Servers: int32(r.Servers)}
			for _, id := range r.Examples {
				reason.Examples = append(reason.Examples, text(id))
			}
			step.Reasons = append(step.Reasons, reason)
		}
		m.Steps = append(m.Steps, step)
	}
	return m
}

func evaluationFromProto(m *pb.EvaluateResponse) *Evaluation {
	e := &Evaluation{Loads: int(m.GetLoads()), Peak: int(m.GetPeak())}
	for _, s := range m.GetSurvivors() {
		e.Survivors = append(e.Survivors, Survivor{Place: int(s.GetServer()), Score: s.GetScore()})
	}
	for _, s := range m.GetSteps() {
		step := Step{Place: int(s.GetStage()), Step: placement.Step{
			Stage: s.GetName(), Received: int(s.GetReceived()), Remaining: int(s.GetRemaining()),
			Dropped: int(s.GetDropped()),
		}}
		if kind := s.GetKind(); kind > 0 && kind <= pb.PlacementStepKind(placement.NotBest)+1 {
			step.Kind = placement.StepKind(kind - 1)
		}
		for _, r := range s.GetReasons() {
			step.Reasons = append(
				step.Reasons,
				placement.Reason{Text: r.GetText(), Servers: int(r.GetServers()), Examples: r.GetExamples()},
			)
		}
		e.Steps = append(e.Steps, step)
	}
	return e
}

func resourcesToProto(r plimsoll.Resources) *pb.Resources {
	if r == nil {
		return nil
	}
	m := &pb.Resources{Amounts: make(map[string]int64, len(r))}
	for _, name := range r.Names() {
		m.Amounts[text(name)] = r[name]
	}
	return m
}

func resourcesFromProto(m *pb.Resources) plimsoll.Resources {
	if m == nil {
		return nil
	}
	r := make(plimsoll.Resources, len(m.GetAmounts()))
	for name, n := range m.GetAmounts() {
		r[name] = n
	}
	return r
}

func labelsToProto(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for key, value := range labels {
		out[text(key)] = text(value)
	}
	return out
}
