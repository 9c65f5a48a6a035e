package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// refusal is an error as a caller in JSON receives it.
type refusal struct {
	Code    string
	Message string
	Details []struct{ Debug struct{ Field string } }
}

// A typo in JSON is an error that names the field and the nearest name. Nothing reaches the leader.
func TestWhatIsNotKnownInAUsersJSONIsAnErrorThatNamesIt(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	const submit, list = plimsollv1connect.JobServiceSubmitJobProcedure, plimsollv1connect.JobServiceListJobsProcedure
	for _, c := range []struct{ name, path, body, want string }{
		{
			"a field of a list", submit,
			`{"spec":{"id":"x","groups":[{"name":"a","command":["true"]},{"name":"b","cuont":3}]}}`,
			`spec.groups[1].cuont: unknown field; did you mean "count"?`,
		},
		{"a field at the top", list, `{"qeue":"root.batch"}`, `qeue: unknown field; did you mean "queue"?`},
		{
			"a field that is like none", list, `{"zzzzzz":1}`,
			"zzzzzz: unknown field; possible are queue, owner, states, limit, after",
		},
		{
			"a field of a message in a map", submit,
			`{"spec":{"groups":[{"constraints":{"traits":{"ssd":{"flga":true}}}}]}}`,
			`spec.groups[0].constraints.traits.ssd.flga: unknown field; did you mean "flag"?`,
		},
		{
			"a word of a list", list, `{"states":["JOB_STATE_RUNNING","JOB_STATE_RUNNNG"]}`,
			`states[1]: "JOB_STATE_RUNNNG" is not known; did you mean "JOB_STATE_RUNNING"?`,
		},
		{
			"a word without its prefix", list, `{"states":["Running"]}`,
			`states[0]: "Running" is not known; did you mean "JOB_STATE_RUNNING"?`,
		},
		{"a number of a list", list, `{"states":[99]}`, "states[0]: 99 is not known; possible are JOB_STATE_NEW, "},
		{"a word that stands for none", list, `{"states":["JOB_STATE_UNSPECIFIED"]}`, "states[0]: 0 is not known; "},
		{
			"a word of a field", plimsollv1connect.NodeServiceSetNodeModeProcedure,
			`{"id":"n1","mode":"NODE_MODE_DRIANING"}`,
			`mode: "NODE_MODE_DRIANING" is not known; did you mean "NODE_MODE_DRAINING"?`,
		},
		{
			"a count of nothing", submit, `{"spec":{"id":"x","groups":[{"name":"a","count":0,"command":["true"]}]}}`,
			"spec.groups[0].count: is 0; give 1 or more, or leave it out for one task",
		},
		{
			"behind other values", submit,
			"{ \"spec\" : { \"labels\" : {\"a,}\\\"\":\"{[\"} ,\n\t\"groups\":[ " +
				"{\"command\":[\"]\",\"\\\\\"],\"count\":-1.5e3 , \"namee\":null} ]}}",
			`spec.groups[0].namee: unknown field; did you mean "name"?`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := s.do(t, http.MethodPost, c.path, "application/json", []byte(c.body))
			var said refusal
			if err := json.Unmarshal([]byte(body), &said); err != nil || status != http.StatusBadRequest ||
				said.Code != "invalid_argument" || !strings.HasPrefix(said.Message, c.want) {
				t.Fatalf("%d %s (%v); want %s", status, body, err, c.want)
			}
			field, _, _ := strings.Cut(c.want, ": ")
			if len(said.Details) != 1 || said.Details[0].Debug.Field != field {
				t.Errorf("the detail of %s does not name %s", body, field)
			}
		})
	}
	watch := []byte(`{"di":"a"}`)
	_, body := s.do(t, http.MethodPost, plimsollv1connect.JobServiceWatchJobProcedure, "application/connect+json",
		append([]byte{0, 0, 0, 0, byte(len(watch))}, watch...))
	if !strings.Contains(body, `di: unknown field; did you mean \"id\"?`) {
		t.Errorf("of a stream: %q", body)
	}
	if sent := f.sent(); len(sent) > 0 {
		t.Errorf("the leader was sent %v", sent)
	}
}

// The names of the contract and those of JSON are both known, and a missing field has its default.
func TestAJobThatLeavesOutTheCountHasOneTask(t *testing.T) {
	f := newFake()
	f.answer = accept(f)
	s := serve(t, Config{}, f)
	status, body := s.do(t, http.MethodPost, plimsollv1connect.JobServiceSubmitJobProcedure, "application/json",
		[]byte(`{"spec":{"id":"x","groups":[{"name":"a","command":["true"],"workDir":"/a","max_runtime_nanos":"7"}]}}`))
	if status != http.StatusOK || !strings.Contains(body, `"count":1`) {
		t.Errorf("%d %s", status, body)
	}
	spec := plimsoll.JobSpec{ID: "y", Queue: "root.batch"}
	spec.Groups = []plimsoll.GroupSpec{{Name: "a", Command: []string{"true"}}}
	must(t, s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
	for i, cmd := range f.sent() {
		if n := cmd.GetSubmitJob().GetSpec().GetGroups()[0].GetCount(); n != plimsoll.DefaultCount {
			t.Errorf("job %d was sent with %d tasks", i, n)
		}
	}
}

// Each enumeration in each request of a user is checked in binary form too, however deep it stands.
func TestAnUnknownEnumInAUsersBinaryRequestIsAnError(t *testing.T) {
	found := 0
	for _, name := range []string{
		plimsollv1connect.JobServiceName, plimsollv1connect.NodeServiceName, plimsollv1connect.QueueServiceName,
		plimsollv1connect.PolicyServiceName, plimsollv1connect.EventServiceName,
		plimsollv1connect.RequestEventServiceName,
	} {
		for path, m := range methodsOf(name) {
			for at, request := range enumsIn(t, m.input.ProtoReflect().Descriptor()) {
				found++
				err := checkRequest(path, request)
				var e *plimsoll.Error
				if !asError(err, &e) || e.Code != plimsoll.CodeInvalid || e.Field != at {
					t.Errorf("%s with 99 at %s: %v", path, at, err)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d enumerations were found", found)
	}
	s := directly(newGateway(t, Config{}, cluster()))
	for _, states := range [][]pb.JobState{{99}, {pb.JobState_JOB_STATE_RUNNING, 0}, {-1}} {
		_, err := call(s.jobs.ListJobs, &pb.ListJobsRequest{States: states})
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "JOB_STATE_RUNNING") {
			t.Errorf("%v: %v", states, err)
		}
	}
}

func asError(err error, into **plimsoll.Error) (ok bool) {
	*into, ok = err.(*plimsoll.Error) //nolint:errorlint // it is made just so
	return ok
}

// enumsIn returns for each field of an enumeration a message in which it alone is set, to 99.
func enumsIn(t *testing.T, d protoreflect.MessageDescriptor, within ...protoreflect.FullName) map[string]proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]proto.Message{}
	for i := range d.Fields().Len() {
		f, m := d.Fields().Get(i), kind.New()
		switch {
		case f.Kind() == protoreflect.EnumKind && f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfEnum(99))
			all[f.JSONName()+"[0]"] = m.Interface()
		case f.Kind() == protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(99))
			all[f.JSONName()] = m.Interface()
		case f.Message() == nil || f.IsMap() || slices.Contains(within, f.Message().FullName()):
			continue // a map of messages holds none, and a tree looks the same at each depth
		default:
			for at, inner := range enumsIn(t, f.Message(), append(within, d.FullName())...) {
				m, place := kind.New(), f.JSONName()
				if f.IsList() {
					m.Mutable(f).List().Append(protoreflect.ValueOfMessage(inner.ProtoReflect()))
					place += "[0]"
				} else {
					m.Set(f, protoreflect.ValueOfMessage(inner.ProtoReflect()))
				}
				all[place+"."+at] = m.Interface()
			}
		}
	}
	return all
}

// A message of a newer version passes in binary form, with fields that this version does not know.
func TestAFieldOfANewerVersionPassesAGateway(t *testing.T) {
	newer := protowire.AppendString(protowire.AppendTag(nil, 1999, protowire.BytesType), "of a newer version")
	f := newFake()
	f.answer = accept(f)
	s := serve(t, Config{}, f)
	spec := specNamed("new")
	request := &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)}
	request.ProtoReflect().SetUnknown(newer)
	request.GetSpec().GetGroups()[0].ProtoReflect().SetUnknown(newer)
	must(t, s.jobs.SubmitJob, request)
	sent := f.sent()[0].GetSubmitJob()
	for _, m := range []proto.Message{sent, sent.GetSpec().GetGroups()[0]} {
		if got := m.ProtoReflect().GetUnknown(); string(got) != string(newer) {
			t.Errorf("the leader was sent %T with %q", m, got)
		}
	}
	status := wire.AppendJobStatus(nil, &plimsoll.JobStatus{ID: "new", State: plimsoll.JobRunning})
	f.put(wire.Mutation{Kind: wire.KindJobStatus, Key: "new", Value: append(status, newer...)})
	job := must(t, s.jobs.GetJob, &pb.GetJobRequest{Id: "new"}).GetJob()
	if got := job.GetStatus().ProtoReflect().GetUnknown(); string(got) != string(newer) {
		t.Errorf("the user was sent a status with %q", got)
	}
	const get = plimsollv1connect.JobServiceGetJobProcedure
	code, body := s.do(t, http.MethodPost, get, "application/json", []byte(`{"id":"new"}`))
	if code != http.StatusOK || !strings.Contains(body, "JOB_STATE_RUNNING") {
		t.Errorf("in JSON, where nothing can be kept: %d %s", code, body)
	}
}
