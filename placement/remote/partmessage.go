package remote

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/placement"
)

func queryToProto(q *placement.Query) *pb.PlacementQuery {
	c := plimsoll.Constraints{
		Traits: q.Traits, Networks: q.Networks, Nodes: q.Nodes, Reservoir: q.Reservoir,
		Class: q.Class,
	}
	m := &pb.PlacementQuery{
		Setup: q.Setup, Running: q.Running, Unreserved: q.Unreserved, NoHeadnodes: q.NoHeadnodes,
		Constraints: wire.ConstraintsToProto(&c),
		NoTraits:    q.NoTraits, NetworksGiven: q.Networks != nil, OneClass: q.OneClass,
	}
	for _, p := range q.Platforms {
		m.Platforms = append(m.Platforms, &pb.PlatformRange{Min: labelsToProto(p.Min), Max: labelsToProto(p.Max)})
	}
	return m
}

// queryFromProto reads a query. An unknown use of reservoirs leaves no server out.
func queryFromProto(m *pb.PlacementQuery) placement.Query {
	c := wire.ConstraintsFromProto(m.GetConstraints())
	q := placement.Query{
		Setup: m.GetSetup(), Running: m.GetRunning(), Unreserved: m.GetUnreserved(), NoHeadnodes: m.GetNoHeadnodes(),
		Traits: c.Traits, NoTraits: m.GetNoTraits(), Networks: c.Networks, Nodes: c.Nodes, Reservoir: c.Reservoir,
		Class: c.Class, OneClass: m.GetOneClass(),
	}
	if m.GetNetworksGiven() && q.Networks == nil {
		q.Networks = [][]string{}
	}
	if !wire.Known[plimsoll.ReservoirUse](m.GetConstraints().GetReservoir()) {
		q.Reservoir = plimsoll.ReservoirLast
	}
	for _, p := range m.GetPlatforms() {
		q.Platforms = append(q.Platforms, plimsoll.PlatformRange{Min: p.GetMin(), Max: p.GetMax()})
	}
	return q
}

func ticketsToProto(tickets []placement.Ticket) []*pb.PlacementTicket {
	var out []*pb.PlacementTicket
	for i := range tickets {
		t := &tickets[i]
		out = append(out, &pb.PlacementTicket{
			Id: text(t.ID), Server: text(t.Server),
			Instance: instanceToProto(t.Instance),
		})
	}
	return out
}

func ticketsFromProto(list []*pb.PlacementTicket) []placement.Ticket {
	var out []placement.Ticket
	for _, t := range list {
		out = append(out, placement.Ticket{
			ID: t.GetId(), Server: t.GetServer(),
			Instance: instanceFromProto(t.GetInstance()),
		})
	}
	return out
}

func spreadToProto(s *placement.GroupSpread) *pb.PlacementSpread {
	m := &pb.PlacementSpread{Instances: make(map[string]int32, len(s.Instances)), Fewest: s.Fewest}
	for value, n := range s.Instances {
		m.Instances[text(value)] = n
	}
	return m
}

func spreadFromProto(m *pb.PlacementSpread) placement.GroupSpread {
	return placement.GroupSpread{Instances: m.GetInstances(), Fewest: m.GetFewest()}
}

func spreadQuestionToProto(q *SpreadQuestion) (*pb.CountSpreadRequest, error) {
	chain, err := chainToProto(&q.Chain)
	if err != nil {
		return nil, err
	}
	return &pb.CountSpreadRequest{
		Request: requestToProto(&q.Request), Chain: chain, Tickets: ticketsToProto(q.Tickets),
		ResourceNames: q.Names, Now: q.Now,
	}, nil
}

func spreadQuestionFromProto(m *pb.CountSpreadRequest) (*SpreadQuestion, error) {
	q := &SpreadQuestion{Tickets: ticketsFromProto(m.GetTickets()), Names: m.GetResourceNames(), Now: m.GetNow()}
	var err error
	if q.Request, err = requestFromProto(m.GetRequest()); err != nil {
		return nil, err
	}
	q.Chain, err = chainFromProto(m.GetChain())
	return q, err
}

func tallyToProto(t placement.SpreadTally) *pb.PlacementTally {
	m := &pb.PlacementTally{Values: make(map[string]*pb.PlacementSpreadValue, len(t))}
	for value, n := range t {
		m.Values[text(value)] = &pb.PlacementSpreadValue{Instances: n.Instances, Counts: n.Counts}
	}
	return m
}

func tallyFromProto(m *pb.PlacementTally) placement.SpreadTally {
	t := make(placement.SpreadTally, len(m.GetValues()))
	for value, n := range m.GetValues() {
		t[value] = placement.SpreadValue{Instances: n.GetInstances(), Counts: n.GetCounts()}
	}
	return t
}

func capacityQuestionToProto(q *CapacityQuestion) *pb.CapacityRequest {
	m := &pb.CapacityRequest{Tickets: ticketsToProto(q.Tickets), ResourceNames: q.Names, Now: q.Now}
	for i := range q.Servers {
		m.Servers = append(m.Servers, serverToProto(&q.Servers[i]))
	}
	return m
}

func capacityQuestionFromProto(m *pb.CapacityRequest) (*CapacityQuestion, error) {
	if err := checkCounts(len(m.GetServers()), len(m.GetTickets()), len(m.GetResourceNames())); err != nil {
		return nil, err
	}
	q := &CapacityQuestion{Tickets: ticketsFromProto(m.GetTickets()), Names: m.GetResourceNames(), Now: m.GetNow()}
	for _, s := range m.GetServers() {
		q.Servers = append(q.Servers, serverFromProto(s))
	}
	return q, nil
}

func capacityToProto(c *Capacity) *pb.PlacementCapacity {
	return &pb.PlacementCapacity{Cpu: c.CPU, Memory: c.Memory, Disk: c.Disk, Uncounted: text(c.Uncounted)}
}

func capacityFromProto(m *pb.PlacementCapacity) Capacity {
	return Capacity{CPU: m.GetCpu(), Memory: m.GetMemory(), Disk: m.GetDisk(), Uncounted: m.GetUncounted()}
}
