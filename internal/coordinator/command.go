package coordinator

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// command is a kind of command of gateways, with its decoder and the encoder of its answer. A
// question has inquire instead: it does not go to the engine, and writes its answer itself. Nor do
// commands on the events for resource managers and on leadership, which have ofTerm.
type command struct {
	name    string // name of the field in the message Command, and of the label in metrics
	decode  func(gateway string, cmd *pb.Command) (engine.Operation, error)
	encode  func(reply *pb.Reply, answer any)
	inquire func(cmd *pb.Command) (inquiry, error) // decoder of a question; nil for others

	// ofTerm carries out a command on the events for resource managers, or on leadership; nil for
	// others.
	ofTerm func(t *term, cmd *pb.Command, answer requestAnswer)

	ofAgents bool // the command comes from an agent, or from a gateway about one
}

// newCommands returns the table of all commands. A new command needs a row here and an operation in
// package engine. If its answer is not Done, it also needs a field in the message Reply. A question
// needs an inquiry instead of an operation.
func newCommands() []command {
	return []command{
		row("submit_job", (*pb.Command).GetSubmitJob, decodeSubmit, done),
		row("kill_job", (*pb.Command).GetKillJob, decodeKill, done),
		row("scale_job", (*pb.Command).GetScaleJob, decodeScale, done),
		row("delete_job", (*pb.Command).GetDeleteJob, decodeDelete, done),
		row("set_node_mode", (*pb.Command).GetSetNodeMode, decodeNodeMode, done),
		row("remove_node", (*pb.Command).GetRemoveNode, decodeRemove, done),
		row("set_queue_config", (*pb.Command).GetSetQueueConfig, decodeQueues, done),
		row("set_event_settings", (*pb.Command).GetSetEventSettings, decodeEventSettings, done),
		row("report_historian", (*pb.Command).GetReportHistorian, decodeHistorianReport, done),
		row("remove_historian", (*pb.Command).GetRemoveHistorian, decodeHistorianName, done),
		ofAgents(row("register_node", (*pb.Command).GetRegisterNode, decodeRegister, encodeRegistration)),
		ofAgents(row("node_liveness", (*pb.Command).GetNodeLiveness, decodeSilence, done)),
		ofAgents(row("report_tasks", (*pb.Command).GetReportTasks, decodeReports, done)),
		ofAgents(row("report_node", (*pb.Command).GetReportNode, decodeNodeReport, done)),
		ofAgents(row("leave_node", (*pb.Command).GetLeaveNode, decodeLeave, done)),
		row("apply_policies", (*pb.Command).GetApplyPolicies, decodePolicies, encodeOutcomes),
		row("delete_policy", (*pb.Command).GetDeletePolicy, decodePolicyRef, done),
		inquiryRow("explain_task", (*pb.Command).GetExplainTask, readExplain),
		inquiryRow("explain_waiting", (*pb.Command).GetExplainWaiting, readWaiting),
		inquiryRow("node_capacity", (*pb.Command).GetNodeCapacity, readCapacity),
		inquiryRow("place_job", (*pb.Command).GetPlaceJob, readPlace),
		inquiryRow("plan_moves", (*pb.Command).GetPlanMoves, readPlan),
		requestsRow("poll_request_events", (*pb.Command).GetPollRequestEvents, (*requestStore).poll),
		requestsRow(
			"acknowledge_request_events", (*pb.Command).GetAcknowledgeRequestEvents, (*requestStore).acknowledge,
		),
		{name: "get_leader", ofTerm: (*term).getLeader},
		{name: "step_down", ofTerm: (*term).stepDown},
	}
}

// row makes a row of the table. The type parameters make the encoder match the operation's answer.
func row[M any, O engine.Answering[A], A any](
	name string, message func(*pb.Command) M, decode func(gateway string, m M) (O, error), encode func(*pb.Reply, A),
) command {
	return command{
		name: name,
		decode: func(gateway string, cmd *pb.Command) (engine.Operation, error) {
			do, err := decode(gateway, message(cmd))
			if err != nil {
				return nil, err
			}
			return do, nil
		},
		// The type assertion holds: O is Answering[A].
		encode: func(reply *pb.Reply, answer any) { encode(reply, answer.(A)) },
	}
}

func ofAgents(c command) command {
	c.ofAgents = true
	return c
}

// inquiryRow makes a row of the table for a question.
func inquiryRow[M any, Q inquiry](name string, message func(*pb.Command) M, read func(m M) (Q, error)) command {
	return command{name: name, inquire: func(cmd *pb.Command) (inquiry, error) {
		q, err := read(message(cmd))
		if err != nil {
			return nil, err
		}
		return q, nil
	}}
}

// requestsRow makes a row of the table for a command on the events for resource managers.
func requestsRow[M any](
	name string, message func(*pb.Command) M, do func(s *requestStore, m M, answer requestAnswer),
) command {
	return command{name: name, ofTerm: func(t *term, cmd *pb.Command, answer requestAnswer) {
		do(t.requests, message(cmd), answer)
	}}
}

// commandTable finds commands by the field of the message Command that holds them.
type commandTable struct {
	kind   protoreflect.OneofDescriptor
	byName map[protoreflect.Name]*command
}

func newCommandTable() *commandTable {
	t := &commandTable{
		kind:   (&pb.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind"),
		byName: map[protoreflect.Name]*command{},
	}
	for _, c := range newCommands() {
		t.byName[protoreflect.Name(c.name)] = &c
	}
	return t
}

// find returns the row of a command. Beside an error it returns a row with the name "unknown".
func (t *commandTable) find(cmd *pb.Command) (*command, error) {
	if field := cmd.ProtoReflect().WhichOneof(t.kind); field != nil {
		if c := t.byName[field.Name()]; c != nil {
			return c, nil
		}
	}
	return &command{name: "unknown"}, plimsoll.Errorf(plimsoll.CodeUnimplemented,
		"the leader does not know this command; it is older than the gateway")
}

// refusal returns the reply to a command that was refused before the engine.
func refusal(err error) *pb.Reply { return &pb.Reply{Error: wire.ErrorToProto(err)} }

// encodeReply turns the engine's answer to a command into the gateway's.
func encodeReply(c *command, r *engine.Reply, revision uint64) *pb.Reply {
	if r.Err != nil {
		return &pb.Reply{Revision: revision, Error: wire.ErrorToProto(r.Err)}
	}
	m := &pb.Reply{Revision: revision}
	c.encode(m, r.Answer)
	return m
}

func decodeSubmit(_ string, m *pb.SubmitJobRequest) (*engine.SubmitJob, error) {
	spec := wire.JobSpecFromProto(m.GetSpec())
	return &engine.SubmitJob{Spec: &spec, Replace: m.GetReplace()}, nil
}

func decodeKill(_ string, m *pb.KillJobRequest) (*engine.KillJob, error) {
	uid, err := uidFromProto(m.GetUid())
	return &engine.KillJob{ID: m.GetId(), Reason: m.GetReason(), UID: uid}, err
}

func decodeScale(_ string, m *pb.ScaleJobRequest) (*engine.ScaleJob, error) {
	uid, err := uidFromProto(m.GetUid())
	return &engine.ScaleJob{ID: m.GetId(), Group: m.GetGroup(), Count: m.GetCount(), UID: uid}, err
}

func decodeDelete(_ string, m *pb.DeleteJobRequest) (*engine.DeleteJob, error) {
	uid, err := uidFromProto(m.GetUid())
	return &engine.DeleteJob{ID: m.GetId(), UID: uid}, err
}

// uidFromProto reads the uid of a request; zero if there is none.
func uidFromProto(text string) (plimsoll.UID, error) {
	if text == "" {
		return plimsoll.UID{}, nil
	}
	return plimsoll.ParseUID(text) //nolint:wrapcheck // it names the field
}

func decodeNodeMode(_ string, m *pb.SetNodeModeRequest) (*engine.SetNodeMode, error) {
	return &engine.SetNodeMode{ID: m.GetId(), Mode: plimsoll.NodeMode(m.GetMode())}, nil
}

func decodeRemove(_ string, m *pb.RemoveNodeRequest) (*engine.RemoveNode, error) {
	return &engine.RemoveNode{ID: m.GetId()}, nil
}

func decodeQueues(_ string, m *pb.SetQueueConfigRequest) (*engine.SetQueueConfig, error) {
	return &engine.SetQueueConfig{Config: wire.QueueConfigFromProto(m.GetConfig()), DryRun: m.GetDryRun()}, nil
}

func decodeEventSettings(_ string, m *pb.SetEventSettingsRequest) (*engine.SetEventSettings, error) {
	return &engine.SetEventSettings{Settings: m.GetSettings()}, nil
}

func decodeHistorianReport(_ string, m *pb.ReportHistorianRequest) (*engine.ReportHistorian, error) {
	return &engine.ReportHistorian{Name: m.GetName(), Instance: m.GetInstanceUuid(), Next: m.GetNext()}, nil
}

func decodeHistorianName(_ string, m *pb.RemoveHistorianRequest) (*engine.RemoveHistorian, error) {
	return &engine.RemoveHistorian{Name: m.GetName()}, nil
}

func decodeRegister(gateway string, m *pb.RegisterNodeRequest) (*engine.RegisterNode, error) {
	return &engine.RegisterNode{Node: wire.NodeFromProto(m.GetNode()), Gateway: gateway}, nil
}

func decodeSilence(_ string, m *pb.NodeLiveness) (*engine.NodeSilent, error) {
	return &engine.NodeSilent{ID: m.GetNode(), Registration: m.GetRegistration()}, nil
}

func decodeReports(_ string, m *pb.ReportTasksRequest) (*engine.ReportTasks, error) {
	cmd := &engine.ReportTasks{
		Node: m.GetNode(), Incarnation: m.GetIncarnation(), Reports: make([]engine.Report, len(m.GetReports())),
	}
	for i, report := range m.GetReports() {
		job, group, index, ok := wire.SplitTaskID(report.GetTask())
		if !ok {
			return nil, badTaskID("reports.task", report.GetTask())
		}
		cmd.Reports[i] = engine.Report{
			Job: job, Group: group, Index: index, TaskReport: wire.TaskReportFromProto(report),
		}
	}
	return cmd, nil
}

func decodeNodeReport(_ string, m *pb.ReportNodeRequest) (*engine.ReportNode, error) {
	report := wire.NodeReportFromProto(m.GetReport())
	return &engine.ReportNode{
		Node: m.GetNode(), Incarnation: m.GetIncarnation(), Sequence: m.GetSequence(), Report: report,
	}, nil
}

func decodeLeave(_ string, m *pb.LeaveNodeRequest) (*engine.LeaveNode, error) {
	return &engine.LeaveNode{
		Node: m.GetNode(), Incarnation: m.GetIncarnation(), Running: m.GetRunning(), Empty: m.GetEmpty(),
	}, nil
}

func decodePolicies(_ string, m *pb.ApplyPoliciesRequest) (*engine.ApplyPolicies, error) {
	cmd := &engine.ApplyPolicies{DryRun: m.GetDryRun()}
	for _, policy := range m.GetPolicies() {
		cmd.Policies = append(cmd.Policies, wire.PolicyFromProto(policy))
	}
	return cmd, nil
}

func decodePolicyRef(_ string, m *pb.DeletePolicyRequest) (*engine.DeletePolicy, error) {
	return &engine.DeletePolicy{Ref: wire.PolicyRefFromProto(&pb.PolicyRef{Kind: m.GetKind(), Name: m.GetName()})}, nil
}

func badTaskID(field, id string) error {
	return plimsoll.Invalid(field, "%q is not a task id; write for example wordcount.map.3", id)
}
