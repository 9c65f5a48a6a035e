package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// NodeToProto converts a node.
func NodeToProto(n *plimsoll.Node) *pb.Node {
	m := &pb.Node{
		Id:          text(n.ID),
		Address:     text(n.Address),
		Capacity:    resourcesToProto(n.Capacity),
		Attributes:  textMapToProto(n.Attributes),
		Incarnation: n.Incarnation,
		Mode:        pb.NodeMode(n.Mode),
		Ready:       n.Ready,
		Registered:  n.Registered,
		Revision:    n.Revision,
		Facts:       NodeFactsToProto(&n.Facts),
		Key:         text(n.Key),
		Session:     text(n.Session),
		Peer:        text(n.Peer),
		OccupiedAt:  n.OccupiedAt,
	}
	if u := &n.Occupied; *u != (plimsoll.NodeUse{}) {
		m.Occupied = nodeUseToProto(u)
	}
	if g := &n.Gate; *g != (plimsoll.NodeGate{}) {
		m.Gate = &pb.NodeGate{Sequence: g.Sequence, Closed: g.Closed, Reason: text(g.Reason)}
	}
	for i := range n.Evictions {
		e := &n.Evictions[i]
		m.Evictions = append(
			m.Evictions, &pb.Eviction{Job: text(e.Job), Group: text(e.Group), Index: e.Index, Until: e.Until},
		)
	}
	return m
}

// NodeFromProto converts a node.
func NodeFromProto(m *pb.Node) plimsoll.Node {
	n := plimsoll.Node{
		ID:          m.GetId(),
		Address:     m.GetAddress(),
		Capacity:    resourcesFromProto(m.GetCapacity()),
		Attributes:  textMapFromProto(m.GetAttributes()),
		Incarnation: m.GetIncarnation(),
		Mode:        EnumFromProto[plimsoll.NodeMode](m.GetMode()),
		Ready:       m.GetReady(),
		Registered:  m.GetRegistered(),
		Revision:    m.GetRevision(),
		Facts:       NodeFactsFromProto(m.GetFacts()),
		Gate: plimsoll.NodeGate{
			Sequence: m.GetGate().GetSequence(), Closed: m.GetGate().GetClosed(), Reason: m.GetGate().GetReason(),
		},
		Key:        m.GetKey(),
		Session:    m.GetSession(),
		Peer:       m.GetPeer(),
		Occupied:   nodeUseFromProto(m.GetOccupied()),
		OccupiedAt: m.GetOccupiedAt(),
	}
	for _, e := range m.GetEvictions() {
		n.Evictions = append(
			n.Evictions,
			plimsoll.Eviction{Job: e.GetJob(), Group: e.GetGroup(), Index: e.GetIndex(), Until: e.GetUntil()},
		)
	}
	return n
}

func nodeUseToProto(u *plimsoll.NodeUse) *pb.NodeUse {
	return &pb.NodeUse{Cpu: u.CPU, Memory: u.Memory}
}

func nodeUseFromProto(m *pb.NodeUse) plimsoll.NodeUse {
	return plimsoll.NodeUse{CPU: m.GetCpu(), Memory: m.GetMemory()}
}

// AppendNode encodes a node.
func AppendNode(dst []byte, n *plimsoll.Node) []byte { return appendMessage(dst, NodeToProto(n)) }

// DecodeNode decodes a node.
func DecodeNode(data []byte) (plimsoll.Node, error) {
	var m pb.Node
	if err := decodeMessage("node", data, &m); err != nil {
		return plimsoll.Node{}, err
	}
	if err := checkEnum[plimsoll.NodeMode]("mode", m.GetMode()); err != nil {
		return plimsoll.Node{}, corrupt("node", err)
	}
	for _, ratios := range []map[string]float64{m.GetFacts().GetReserve(), m.GetFacts().GetOverprovision()} {
		if err := checkRatios(ratios); err != nil {
			return plimsoll.Node{}, corrupt("node", err)
		}
	}
	return NodeFromProto(&m), nil
}

// NodeStatusToProto converts the derived status of a node.
func NodeStatusToProto(s *plimsoll.NodeStatus) *pb.NodeStatus {
	return &pb.NodeStatus{
		Id: text(s.ID), Allocated: resourcesToProto(s.Allocated), Tasks: s.Tasks, SickUntil: s.SickUntil,
	}
}

// NodeStatusFromProto converts the derived status of a node.
func NodeStatusFromProto(m *pb.NodeStatus) plimsoll.NodeStatus {
	return plimsoll.NodeStatus{
		ID: m.GetId(), Allocated: resourcesFromProto(m.GetAllocated()), Tasks: m.GetTasks(),
		SickUntil: m.GetSickUntil(),
	}
}

// AppendNodeStatus encodes the derived status of a node.
func AppendNodeStatus(dst []byte, s *plimsoll.NodeStatus) []byte {
	return appendMessage(dst, NodeStatusToProto(s))
}

// DecodeNodeStatus decodes the derived status of a node.
func DecodeNodeStatus(data []byte) (plimsoll.NodeStatus, error) {
	var m pb.NodeStatus
	if err := decodeMessage("node status", data, &m); err != nil {
		return plimsoll.NodeStatus{}, err
	}
	return NodeStatusFromProto(&m), nil
}
