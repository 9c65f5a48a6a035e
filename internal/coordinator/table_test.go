package coordinator

import (
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// good returns commands of every kind that succeed in this order.
func good() []*pb.Command {
	action := plimsoll.Policy{
		Action: &plimsoll.Action{Name: "shed", CoolDown: time.Minute, Weight: &plimsoll.WeightAction{Shares: 2}},
	}
	shed := &pb.PolicyRef{Kind: pb.PolicyKind(plimsoll.PolicyAction), Name: "shed"}
	tree := plimsoll.DefaultQueues()
	return []*pb.Command{
		setQueues(&tree),
		{
			Kind: &pb.Command_SetEventSettings{
				SetEventSettings: &pb.SetEventSettingsRequest{
					Settings: map[string]string{"ringBufferAge": "1h", "requestEventsEnabled": "true"},
				},
			},
		},
		pollRequests("shim", "", "s1", 0),
		acknowledgeRequests("shim", "", "its store", 0),
		getLeader(),
		{Kind: &pb.Command_ReportHistorian{ReportHistorian: &pb.ReportHistorianRequest{Name: "h", Next: 3}}},
		{Kind: &pb.Command_RemoveHistorian{RemoveHistorian: &pb.RemoveHistorianRequest{Name: "h"}}},
		register("n", 1),
		submit(job("a", 1)),
		scale("a", 2),
		reportTasks("n", &pb.TaskReport{Task: "a.work.0", Attempt: 1, State: pb.TaskState(plimsoll.TaskRunning)}),
		{
			Kind: &pb.Command_ReportNode{
				ReportNode: &pb.ReportNodeRequest{Node: "n", Incarnation: 1, Sequence: 1, Report: &pb.NodeReport{}},
			},
		},
		explain("a.work.0"),
		{Kind: &pb.Command_ExplainWaiting{ExplainWaiting: &pb.ExplainWaitingRequest{Job: "a"}}},
		{Kind: &pb.Command_NodeCapacity{NodeCapacity: &pb.NodeCapacityRequest{Nodes: []string{"n"}}}},
		place(job("b", 1), "", 0),
		{Kind: &pb.Command_PlanMoves{PlanMoves: &pb.PlanMovesRequest{Limit: 1}}},
		{
			Kind: &pb.Command_ApplyPolicies{
				ApplyPolicies: &pb.ApplyPoliciesRequest{Policies: []*pb.Policy{wire.PolicyToProto(&action)}},
			},
		},
		{
			Kind: &pb.Command_DeletePolicy{
				DeletePolicy: &pb.DeletePolicyRequest{Kind: shed.GetKind(), Name: shed.GetName()},
			},
		},
		kill("a"),
		reportTasks("n", &pb.TaskReport{
			Task: "a.work.0", Attempt: 1, State: pb.TaskState(plimsoll.TaskFinished),
			Result: pb.TaskResult(plimsoll.ResultKilled),
		}, &pb.TaskReport{
			Task: "a.work.1", Attempt: 1, State: pb.TaskState(plimsoll.TaskFinished),
			Result: pb.TaskResult(plimsoll.ResultKilled),
		}),
		{Kind: &pb.Command_DeleteJob{DeleteJob: &pb.DeleteJobRequest{Id: "a"}}},
		{
			Kind: &pb.Command_SetNodeMode{
				SetNodeMode: &pb.SetNodeModeRequest{Id: "n", Mode: pb.NodeMode(plimsoll.NodeDraining)},
			},
		},
		register("m", 1),
		{Kind: &pb.Command_NodeLiveness{NodeLiveness: &pb.NodeLiveness{Node: "m"}}}, // of the registration before it
		{Kind: &pb.Command_LeaveNode{LeaveNode: &pb.LeaveNodeRequest{Node: "m", Incarnation: 1, Empty: true}}},
		{Kind: &pb.Command_RemoveNode{RemoveNode: &pb.RemoveNodeRequest{Id: "m"}}},
		stepDown(1), // ends the term
	}
}

// read decodes a command or a question.
func read(t *commandTable, cmd *pb.Command) (c *command, what any, err error) {
	if c, err = t.find(cmd); err != nil {
		return nil, nil, err
	}
	switch {
	case c.inquire != nil:
		what, err = c.inquire(cmd)
	case c.ofTerm != nil: // it is given the message as it is
		m := cmd.ProtoReflect()
		what = m.Get(m.WhichOneof(t.kind)).Message().Interface()
	default:
		what, err = c.decode("gw", cmd)
	}
	return c, what, err
}

// says reports whether the message of a command has fields.
func says(cmd *pb.Command, t *commandTable) bool {
	m := cmd.ProtoReflect()
	return m.WhichOneof(t.kind).Message().Fields().Len() > 0
}

const newCommand = `a new command needs
  - an operation that is Answering something, in internal/engine/command.go, and its apply in internal/engine/apply.go;
    a question: an inquiry in internal/coordinator/inquiry.go
    one on the events for resource managers: a method in internal/coordinator/requests.go
    one on leadership: a method in internal/coordinator/handover.go
  - a row in newCommands of internal/coordinator/command.go, with its decoder there
  - its encoder in internal/coordinator/answer.go and a field of the message Reply, if its answer is not Done
  - a command of the kind in good of internal/coordinator/table_test.go`

// Every field of the message Command has a row of the table. Every row has a field, an operation of
// its own, and a command that succeeds. These commands fill all answer fields of the message Reply.
func TestEveryCommandIsDecodedAppliedAndAnswered(t *testing.T) {
	table, operations := newCommandTable(), map[reflect.Type]string{}
	fields := table.kind.Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if table.byName[field.Name()] == nil {
			t.Errorf("nothing decodes %s: there is no row for it; %s", field.Name(), newCommand)
		}
	}
	if rows := len(newCommands()); rows != len(table.byName) {
		t.Errorf("%d rows have %d names; each name has one row", rows, len(table.byName))
	}
	for name := range table.byName {
		if fields.ByName(name) == nil {
			t.Errorf("the row %s has no field in the message Command; its name must be that of the field", name)
		}
	}
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	var registration uint64 // the latest
	var requests string     // store of the resource manager
	kinds, answers := map[protoreflect.Name]bool{}, map[protoreflect.Name]bool{}
	for _, cmd := range good() {
		name := cmd.ProtoReflect().WhichOneof(table.kind).Name()
		kinds[name] = true
		if c, do, err := read(table, cmd); err == nil {
			kind := reflect.TypeOf(do)
			if before, ok := operations[kind]; ok && before != c.name {
				t.Errorf(
					"%s and %s both decode to %s; give each the accessor and the decoder of its own message", before,
					c.name, kind,
				)
			}
			operations[kind] = c.name
			empty := (&pb.Command{}).ProtoReflect()
			empty.Set(
				cmd.ProtoReflect().WhichOneof(table.kind), empty.NewField(cmd.ProtoReflect().WhichOneof(table.kind)),
			)
			if _, nothing, err := read(
				table, empty.Interface().(*pb.Command),
			); err == nil && reflect.DeepEqual(do, nothing) && says(cmd, table) {
				t.Errorf("%s decodes to %+v whatever it says; its row reads another message", name, do)
			}
		}
		if m := cmd.GetNodeLiveness(); m != nil {
			m.Registration = registration
		}
		if m := cmd.GetAcknowledgeRequestEvents(); m != nil {
			m.Store = requests
		}
		reply := l.must(cmd)
		requests = reply.GetPollRequestEvents().GetStore()
		registration = max(registration, reply.GetRegistration())
		reply.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			answers[field.Name()] = true
			return true
		})
	}
	for i := range fields.Len() {
		if name := fields.Get(i).Name(); !kinds[name] {
			t.Errorf(
				"nothing shows that %s is applied and answered: there is no command of the kind; %s", name, newCommand,
			)
		}
	}
	replies := (&pb.Reply{}).ProtoReflect().Descriptor().Fields()
	for i := range replies.Len() {
		if name := replies.Get(i).Name(); name != "error" && !answers[name] {
			t.Errorf("nothing encodes the field %s of the message Reply; %s", name, newCommand)
		}
	}
}
