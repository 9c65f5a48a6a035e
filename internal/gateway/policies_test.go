package gateway

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func putPolicy(p plimsoll.Policy) wire.Mutation {
	return wire.Mutation{Kind: wire.KindPolicy, Key: wire.PolicyKey(p.Ref()), Value: wire.AppendPolicy(nil, &p)}
}

func shed(revision uint64) plimsoll.Policy {
	return plimsoll.Policy{
		Revision: revision, Action: &plimsoll.Action{Name: "shed", CoolDown: 1, DisableScheduling: true},
	}
}

func watching(name, rack string) plimsoll.Policy {
	n := &plimsoll.NodeQOS{
		Name: name, Rules: []plimsoll.Rule{{Name: "r", Metric: "load", Waterline: "3", Action: "shed"}},
	}
	if rack != "" {
		n.Selector = map[string]string{"rack": rack}
	}
	return plimsoll.Policy{NodeQOS: n}
}

var batch = plimsoll.Policy{
	TaskQOS: &plimsoll.TaskQOS{Name: "batch", Labels: map[string]string{"tier": "batch"}, Allowed: []string{"shed"}},
}

// Policies are read from the replica, by kind and name.
func TestPoliciesAreRead(t *testing.T) {
	f := cluster()
	f.put(putPolicy(watching("b", "")), putPolicy(watching("a", "")), putPolicy(batch), putPolicy(shed(0)))
	s := serve(t, Config{}, f)
	for _, test := range []struct {
		kind pb.PolicyKind
		want string
	}{
		{0, "Action shed, TaskQOS batch, NodeQOS a, NodeQOS b"},
		{pb.PolicyKind_POLICY_KIND_NODE_QOS, "NodeQOS a, NodeQOS b"},
	} {
		var got []string
		for _, m := range must(t, s.policies.ListPolicies, &pb.ListPoliciesRequest{Kind: test.kind}).GetPolicies() {
			p := wire.PolicyFromProto(m)
			got = append(got, p.Ref().String())
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("kind %v: got %s, want %s", test.kind, text, test.want)
		}
	}
	if p := must(
		t, s.policies.GetPolicy, &pb.GetPolicyRequest{Kind: pb.PolicyKind_POLICY_KIND_TASK_QOS, Name: "batch"},
	).GetPolicy(); p.GetTaskQos().GetName() != "batch" {
		t.Errorf("got %v", p)
	}
	_, err := call(s.policies.GetPolicy, &pb.GetPolicyRequest{Kind: pb.PolicyKind_POLICY_KIND_ACTION, Name: "batch"})
	if plimsoll.CodeOf(err) != plimsoll.CodeNotFound || !strings.Contains(err.Error(), "there is no Action batch") {
		t.Error(err)
	}
	for _, req := range []*pb.GetPolicyRequest{
		{Name: "a"}, {Kind: 9, Name: "a"}, {Kind: pb.PolicyKind_POLICY_KIND_ACTION},
	} {
		if _, err := call(s.policies.GetPolicy, req); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// A set goes to the leader as a whole; one with a fault does not go at all, and the error names the
// policy and the field.
func TestPoliciesAreApplied(t *testing.T) {
	f := cluster()
	f.answer = func(*pb.Command) *pb.Reply {
		return &pb.Reply{
			ApplyPolicies: &pb.ApplyPoliciesResponse{
				Outcomes: []*pb.PolicyOutcome{{Change: pb.PolicyChange_POLICY_CHANGE_CREATED}},
			},
		}
	}
	s := serve(t, Config{}, f)
	good, step := shed(0), shed(0)
	step.Action.Throttle = &plimsoll.ThrottleAction{MinRatio: 5}
	set := func(policies ...plimsoll.Policy) *pb.ApplyPoliciesRequest {
		req := &pb.ApplyPoliciesRequest{DryRun: true}
		for i := range policies {
			req.Policies = append(req.Policies, wire.PolicyToProto(&policies[i]))
		}
		return req
	}
	if n := len(must(t, s.policies.ApplyPolicies, set(good, batch)).GetOutcomes()); n != 1 {
		t.Errorf("%d outcomes", n)
	}
	if sent := f.sent(); len(sent) != 1 || len(
		sent[0].GetApplyPolicies().GetPolicies(),
	) != 2 || !sent[0].GetApplyPolicies().GetDryRun() {
		t.Errorf("the leader was sent %v", sent)
	}
	for want, req := range map[string]*pb.ApplyPoliciesRequest{
		"policies: is empty":                  set(),
		"Action shed: throttle.step: is 0":    set(batch, step),
		"policies: Action shed stands twice":  set(good, good),
		"kind: is missing":                    set(plimsoll.Policy{}),
		"policies: has 1001 entries; at most": set(make([]plimsoll.Policy, 1001)...),
		"TaskQOS batch: match[0].scope: is not ": set(
			plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{Name: "batch", Match: []plimsoll.Requirement{{}}}},
		),
	} {
		if _, err := call(
			s.policies.ApplyPolicies, req,
		); plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	must(t, s.policies.DeletePolicy, &pb.DeletePolicyRequest{Kind: pb.PolicyKind_POLICY_KIND_ACTION, Name: "shed"})
	if sent := f.sent(); len(sent) != 1 || sent[0].GetDeletePolicy().GetName() != "shed" {
		t.Errorf("the leader was sent %v", sent)
	}
}

// An agent is sent all policies that concern its node before the marker, and then what changes:
// also when it is the node that changes.
func TestAgentsAreSentTheirPolicies(t *testing.T) {
	f := cluster()
	node := func(rack string) wire.Mutation {
		return putNode(
			plimsoll.Node{ID: "n1", Incarnation: 3, Ready: true, Attributes: map[string]string{"rack": rack}},
		)
	}
	f.put(
		node("a"), putPolicy(watching("all", "")), putPolicy(watching("rack-a", "a")),
		putPolicy(watching("rack-b", "b")), putPolicy(batch), putPolicy(shed(1)),
	)
	s := serve(t, Config{}, f)
	stream := open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3})
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"what is there", func() {}, "Action shed 1; NodeQOS all 0; NodeQOS rack-a 0; TaskQOS batch 0; end"},
		{"a change", func() { f.put(putPolicy(shed(2))) }, "Action shed 2"},
		{"another rack", func() { f.put(node("b")) }, "NodeQOS rack-b 0; -NodeQOS rack-a"},
		{
			"a policy that goes, and one of others",
			func() { f.put(deleted(putPolicy(batch)), deleted(putPolicy(watching("rack-a", "")))) }, "-TaskQOS batch",
		},
	} {
		step.do()
		m := receive(t, stream)
		var got []string
		for _, p := range m.GetChangedPolicies() {
			policy := wire.PolicyFromProto(p)
			got = append(got, fmt.Sprint(policy.Ref(), " ", policy.Revision))
		}
		for _, ref := range m.GetRemovedPolicies() {
			got = append(got, "-"+wire.PolicyRefFromProto(ref).String())
		}
		if m.GetSnapshotEnd() {
			got = append(got, "end")
		}
		if text := strings.Join(got, "; "); text != step.want {
			t.Fatalf("%s: got %q, want %q", step.name, text, step.want)
		}
	}
}

// An assignment says what TaskQOS are matched by.
func TestAssignmentsSayLabelsAndQueue(t *testing.T) {
	f := cluster()
	spec := specNamed("a")
	spec.Labels, spec.Queue = map[string]string{"tier": "batch"}, "root.batch"
	f.put(putSpec(spec))
	s := serve(t, Config{}, f)
	m := receive(t, open(t, s.agents.WatchAssignments, &pb.WatchAssignmentsRequest{Node: "n1", Incarnation: 3}))
	if a := m.GetChanged()[0]; a.GetLabels()["tier"] != "batch" || a.GetQueue() != "root.batch" {
		t.Errorf("got %v", a)
	}
}

// A report of a QoS agent goes to the leader; what is out of bounds does not.
func TestNodeReports(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	report := func(change func(*pb.ReportNodeRequest)) *pb.ReportNodeRequest {
		req := &pb.ReportNodeRequest{Node: "n1", Incarnation: 3, Sequence: 1, Report: &pb.NodeReport{
			SchedulingDisabled: true, SchedulingReason: "cpu",
			Extended: wire.ResourcesToProto(plimsoll.Resources{plimsoll.ExtCPU: 500}),
			Events:   []*pb.QOSEvent{{Kind: pb.QOSEventKind_QOS_EVENT_KIND_THROTTLED, Task: "a.map.0", Attempt: 1}},
		}}
		change(req)
		return req
	}
	must(t, s.agents.ReportNode, report(func(*pb.ReportNodeRequest) {}))
	if sent := f.sent(); len(sent) != 1 || sent[0].GetReportNode().GetSequence() != 1 {
		t.Errorf("the leader was sent %v", sent)
	}
	for want, change := range map[string]func(*pb.ReportNodeRequest){
		"node: is empty":     func(r *pb.ReportNodeRequest) { r.Node = "" },
		"incarnation: is 0":  func(r *pb.ReportNodeRequest) { r.Incarnation = 0 },
		"sequence: is 0":     func(r *pb.ReportNodeRequest) { r.Sequence = 0 },
		"report: is missing": func(r *pb.ReportNodeRequest) { r.Report = nil },
		"occupied.memory: is -1 bytes": func(r *pb.ReportNodeRequest) {
			r.Report.Occupied = &pb.NodeUse{Memory: -1}
		},
		"extended.cpu: cannot be offered": func(r *pb.ReportNodeRequest) { r.Report.Extended.Amounts["cpu"] = 1 },
		"extended.ext-cpu: is negative": func(
			r *pb.ReportNodeRequest,
		) {
			r.Report.Extended.Amounts["ext-cpu"] = -1
		},
		"schedulingReason: has no meaning": func(r *pb.ReportNodeRequest) { r.Report.SchedulingDisabled = false },
		"schedulingReason: is 513 bytes": func(
			r *pb.ReportNodeRequest,
		) {
			r.Report.SchedulingReason = strings.Repeat("x", 513)
		},
		"events: has 501 entries": func(
			r *pb.ReportNodeRequest,
		) {
			r.Report.Events = make([]*pb.QOSEvent, 501)
		},
		"events[0].kind: is not known":   func(r *pb.ReportNodeRequest) { r.Report.Events[0].Kind = 99 },
		"events[0].attempt: is negative": func(r *pb.ReportNodeRequest) { r.Report.Events[0].Attempt = -1 },
		"events[0].message: is 513 bytes": func(
			r *pb.ReportNodeRequest,
		) {
			r.Report.Events[0].Message = strings.Repeat("x", 513)
		},
		`events.task: "x" is not the id of a`: func(r *pb.ReportNodeRequest) { r.Report.Events[0].Task = "x" },
	} {
		if _, err := call(
			s.agents.ReportNode, report(change),
		); plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if sent := f.sent(); len(sent) != 0 {
		t.Errorf("the leader was sent %v", sent)
	}
}

// agentQOS is an agent's QOSService.
type agentQOS struct{ asked chan *pb.WatchQOSRequest }

func (a agentQOS) WatchQOS(
	ctx context.Context, req *connect.Request[pb.WatchQOSRequest], stream *connect.ServerStream[pb.WatchQOSResponse],
) error {
	a.asked <- req.Msg
	for i := range uint64(2) {
		if err := stream.Send(
			&pb.WatchQOSResponse{Status: &pb.NodeQOSStatus{Node: req.Msg.GetNode(), Sequence: i + 1}},
		); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// An agent's readings and planned actions are relayed for as long as a caller watches; what cannot
// be says why.
func TestNodeQOSIsRelayed(t *testing.T) {
	agent, address := agentQOS{make(chan *pb.WatchQOSRequest, 1)}, "unix:"+filepath.Join(t.TempDir(), "qos.sock")
	nameAgent(t, address, "n1")
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewQOSServiceHandler(agent))
	t.Cleanup(serveUntil(t, l, mux, transport.ServeConfig{}))
	_, older := startAgent(t)
	nameAgent(t, older, "old")
	f := cluster()
	f.put(putNode(
		plimsoll.Node{ID: "n1", Address: address, Incarnation: 1},
	), putNode(plimsoll.Node{ID: "old", Address: older, Incarnation: 1}),
		putNode(plimsoll.Node{ID: "gone", Address: "unix:" + filepath.Join(t.TempDir(), "gone"), Incarnation: 1}))
	s := serve(t, Config{}, f)
	stream := open(t, s.nodes.WatchNodeQOS, &pb.WatchNodeQOSRequest{Node: "n1", IntervalNanos: 5})
	for want := range uint64(2) {
		if status := receive(t, stream).GetStatus(); status.GetSequence() != want+1 || status.GetNode() != "n1" {
			t.Errorf("got %v", status)
		}
	}
	if asked := <-agent.asked; asked.GetIntervalNanos() != 5 {
		t.Errorf("the agent was asked %v", asked)
	}
	for _, test := range []struct {
		req  *pb.WatchNodeQOSRequest
		code plimsoll.Code
		want string
	}{
		{&pb.WatchNodeQOSRequest{Node: "n9"}, plimsoll.CodeNotFound, `there is no node "n9"`},
		{&pb.WatchNodeQOSRequest{Node: "n2"}, plimsoll.CodeConflict, "its agent gave no address"},
		{&pb.WatchNodeQOSRequest{Node: "n1", IntervalNanos: -1}, plimsoll.CodeInvalid, "interval: is negative"},
		{&pb.WatchNodeQOSRequest{Node: "old"}, plimsoll.CodeUnimplemented, "may be of an older version"},
		{&pb.WatchNodeQOSRequest{Node: "gone"}, plimsoll.CodeUnavailable, "cannot be reached"},
	} {
		err := ending(t, open(t, s.nodes.WatchNodeQOS, test.req))
		if plimsoll.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v", test.req, err)
		}
	}
}
