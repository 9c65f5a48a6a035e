package coordinator

import (
	"context"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// withToken sets the token of a user's command. It returns false if the request has no such field.
func withToken(table *commandTable, cmd *pb.Command, token string) bool {
	if m := cmd.GetSubmitJob(); m != nil {
		m.Spec.Token = token
		return true
	}
	m := cmd.ProtoReflect()
	request := m.Mutable(m.WhichOneof(table.kind)).Message()
	field := request.Descriptor().Fields().ByName("token")
	if field == nil {
		return false
	}
	request.Set(field, protoreflect.ValueOfString(token))
	return true
}

// Every command of users can be repeated: its request has a token, which the leader reads. A dry
// run of policies or queues changes nothing and leaves no outcome. Reports of historians, and the
// polls and acknowledgements of resource managers, have none either: a repetition has the same
// effect, and an outcome for each would cost more than the command. Nor has a step-down, which
// names the epoch that it is to end.
func TestEveryUserCommandCarriesAToken(t *testing.T) {
	repeatable := []string{
		"report_historian", "poll_request_events", "acknowledge_request_events", "get_leader", "step_down",
	}
	table := newCommandTable()
	for _, cmd := range good() {
		row, err := table.find(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if row.inquire != nil || row.ofAgents || slices.Contains(repeatable, row.name) {
			continue
		}
		none, err := table.repetitionOf(cmd)
		if err != nil || none != (repetition{}) {
			t.Errorf("%s without a token: %+v, %v", row.name, none, err)
		}
		if !withToken(table, cmd, "t") {
			t.Errorf("the request of %s has no field token; without one its caller cannot try it again", row.name)
			continue
		}
		if got, err := table.repetitionOf(cmd); err != nil || got.token != "t" || got.digest == 0 {
			t.Errorf("%s with a token: %+v, %v", row.name, got, err)
		}
	}
	trial := &pb.ApplyPoliciesRequest{DryRun: true, Token: "t"}
	cmd := &pb.Command{Kind: &pb.Command_ApplyPolicies{ApplyPolicies: trial}}
	if got, err := table.repetitionOf(cmd); err != nil || got.token != "" {
		t.Errorf("a trial: %+v, %v", got, err)
	}
	check := &pb.SetQueueConfigRequest{DryRun: true, Token: "t"}
	cmd = &pb.Command{Kind: &pb.Command_SetQueueConfig{SetQueueConfig: check}}
	if got, err := table.repetitionOf(cmd); err != nil || got.token != "" {
		t.Errorf("a check of queues: %+v, %v", got, err)
	}
}

// scaleWith returns a scaling with a token.
func scaleWith(token, id string, count int32) *pb.Command {
	cmd := scale(id, count)
	cmd.GetScaleJob().Token = token
	return cmd
}

// An outcome is durable before the reply: a repetition after a crash has no second effect. Outcomes
// are stored and not replicated.
func TestOutcomesSurviveACrash(t *testing.T) {
	fs := storetest.NewCrashableFS()
	first := lead(t, Config{}, openStore(t, fs, store.Limits{}))
	first.must(submit(job("j", 1)))
	first.must(scaleWith("mine", "j", 5))
	first.must(scaleWith("theirs", "j", 7))
	refused, refusal := first.Do(context.Background(), scaleWith("refused", "no", 7))
	if refused == nil || plimsoll.CodeOf(refusal) != plimsoll.CodeNotFound {
		t.Fatal(refusal)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	for key := range first.Latest().Scan(wire.KindOutcome, "", "") {
		t.Errorf("the outcome of %q was replicated", key)
	}
	first.stop()

	second := lead(t, Config{}, openStore(t, crashed, store.Limits{}))
	defer second.stop()
	second.must(scaleWith("mine", "j", 5))
	data, _ := second.Latest().Get(wire.KindJobSpec, "j")
	if spec, err := wire.DecodeJobSpec(data); err != nil || spec.Groups[0].Count != 7 {
		t.Errorf("the repetition left %+v, %v; want 7 tasks", spec, err)
	}
	second.must(submit(job("no", 1)))
	_, err := second.Do(context.Background(), scaleWith("refused", "no", 7))
	if err == nil || err.Error() != refusal.Error() {
		t.Errorf("the repetition was refused with %v, the first with %v", err, refusal)
	}
	for key := range second.Latest().Scan(wire.KindOutcome, "", "") {
		t.Errorf("the outcome of %q was replicated", key)
	}
}

// The record of an outcome holds all its fields. A missing field would be lost with the leader.
func TestEveryFieldOfAnOutcomePassesItsRecord(t *testing.T) {
	var in state.Outcome
	fill.Fill(&in, fill.Options{Values: map[string]func(int) any{
		"Code": func(int) any { return plimsoll.CodeConflict },
		"Kind": func(int) any { return plimsoll.PolicyTaskQOS },
	}})
	out, err := decodeOutcome(in.Token, appendOutcome(nil, &in))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range fill.Differences(&in, &out) {
		t.Errorf("%s is lost in the record: %s", d.Path, d)
	}
	if _, err := decodeOutcome("t", []byte{0xff}); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("no record at all: %v", err)
	}
}
