package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The fields of answers that hold records.
var ( //nolint:gochecknoglobals // constants
	fieldJob      = wire.AnswerField{Number: 1, Name: "job"}
	fieldSpec     = wire.AnswerField{Number: 1, Name: "spec"}
	fieldStatus   = wire.AnswerField{Number: 2, Name: "status"}
	fieldJobs     = wire.AnswerField{Number: 1, Name: "jobs", List: true}
	fieldTask     = wire.AnswerField{Number: 1, Name: "task"}
	fieldTasks    = wire.AnswerField{Number: 1, Name: "tasks", List: true}
	fieldNodes    = wire.AnswerField{Number: 1, Name: "nodes", List: true}
	fieldNode     = wire.AnswerField{Number: 1, Name: "node"}
	fieldQueues   = wire.AnswerField{Number: 1, Name: "queues", List: true}
	fieldConfig   = wire.AnswerField{Number: 1, Name: "config"}
	fieldPolicy   = wire.AnswerField{Number: 1, Name: "policy"}
	fieldPolicies = wire.AnswerField{Number: 1, Name: "policies", List: true}
)

// encodedReads mounts the reads whose answers are put together from records as they are kept. The
// services do not have these methods, since an answer is no decoded message.
func (g *Gateway) encodedReads(mount func(path string, read *plainRead), options []connect.HandlerOption) {
	jobs, nodes, queues, policies := jobService{g: g}, nodeService{g: g}, queueService{g: g}, policyService{g: g}
	mount(encodedRead(plimsollv1connect.JobServiceGetJobProcedure, g, jobs.getJob, options))
	mount(encodedRead(plimsollv1connect.JobServiceListJobsProcedure, g, jobs.listJobs, options))
	mount(encodedRead(plimsollv1connect.JobServiceGetTaskProcedure, g, jobs.getTask, options))
	mount(encodedRead(plimsollv1connect.JobServiceListTasksProcedure, g, jobs.listTasks, options))
	mount(encodedRead(plimsollv1connect.NodeServiceListNodesProcedure, g, nodes.listNodes, options))
	mount(encodedRead(plimsollv1connect.QueueServiceListQueuesProcedure, g, queues.listQueues, options))
	mount(encodedRead(plimsollv1connect.QueueServiceGetQueueConfigProcedure, g, queues.getQueueConfig, options))
	mount(encodedRead(plimsollv1connect.PolicyServiceGetPolicyProcedure, g, policies.getPolicy, options))
	mount(encodedRead(plimsollv1connect.PolicyServiceListPoliciesProcedure, g, policies.listPolicies, options))
}

// encodedRead returns the path and the handler of one read. read fills the answer.
func encodedRead[Q any, M message[Q]](
	procedure string, g *Gateway, read func(context.Context, *Q, *answer) error, options []connect.HandlerOption,
) (string, *plainRead) {
	byConnect := connect.NewUnaryHandler(
		procedure,
		func(ctx context.Context, req *connect.Request[Q]) (*connect.Response[wire.Answer], error) {
			a := &answer{Answer: wire.NewAnswer(inJSON(req.Header())), g: g, request: ctx, charge: chargeOf(ctx)}
			if err := a.fill(func() error { return read(ctx, req.Msg, a) }); err != nil {
				return nil, err
			}
			return connect.NewResponse(a.Answer), nil
		}, options...,
	)
	return procedure, &plainRead{
		g: g, procedure: procedure, byConnect: byConnect,
		request: func() proto.Message { return M(new(Q)) },
		read: func(ctx context.Context, req proto.Message, a *answer) error {
			return read(ctx, req.(M), a) //nolint:forcetypeassert // request makes no other
		},
	}
}

// fill fills an answer with read, and charges the request with the rest of its bytes.
func (a *answer) fill(read func() error) error {
	if err := read(); err != nil {
		return err
	}
	return a.charge.holdAnswer(a.unheld)
}

// inJSON reports whether the answer to a request is in JSON: it has the encoding of the request.
func inJSON(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.HasSuffix(strings.ToLower(strings.TrimSpace(kind)), "json")
}

// answer is the answer to one read, under construction.
type answer struct {
	*wire.Answer
	g       *Gateway
	charge  *charge         // of the request; nil: none
	request context.Context //nolint:containedctx // the value lives as long as the request
	records int             // bytes of the records that were added
	unheld  int             // bytes of the answer that are not charged yet. Invariant: below chargeStep

	seen *view            // the state for the request, if it was looked for already
	of   replica.Identity // the state on which alone the answer depends; zero: there is none
}

// chargeStep is the number of bytes after which an answer is charged to its request.
const chargeStep = 32 << 10

// hold charges the request with the bytes of a record that is in the answer as it is kept: once in
// the answer, and once more if that is compressed.
func (a *answer) hold(n int) error {
	if a.unheld += partBytes + 2*n; a.unheld < chargeStep {
		return nil
	}
	n, a.unheld = a.unheld, 0
	return a.charge.holdAnswer(n)
}

// jobUIDs returns the uids of the jobs of the tasks of a list, and charges the request with them.
func (a *answer) jobUIDs(uids []plimsoll.UID) ([]string, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	if err := a.charge.holdAnswer(len(uids) * jobUIDBytes); err != nil {
		return nil, err
	}
	texts := make([]string, len(uids))
	for i, uid := range uids {
		texts[i] = uid.Text()
	}
	return texts, nil
}

// jobUIDBytes bounds the memory of one uid beside its task: the uid, its text and the header of
// that, and the text in the answer twice.
const jobUIDBytes = 16 + 16 + 4*(plimsoll.UIDText+6)

// encoded returns a record in the encoding of the answer, and charges the request with its bytes.
func (a *answer) encoded(kind wire.Kind, key string, data []byte) ([]byte, error) {
	a.records += len(data)
	if !a.JSON() {
		if err := checkFields(kind, key, data); err != nil {
			return nil, err
		}
		return data, a.hold(len(data))
	}
	text, has := a.g.rendered.find(kind, data)
	if !has {
		if err := holding(a.request, len(data)); err != nil {
			return nil, err
		}
		m := messageOf(kind)
		if err := decode(kind, key, data, m); err != nil {
			return nil, err
		}
		var err error
		if text, err = wire.AppendJSON(nil, m); err != nil {
			return nil, err
		}
		a.g.rendered.keep(kind, data, text)
	}
	return text, a.hold(len(text))
}

// checkFields fails for a record whose fields are malformed. The leader has encoded the record, so
// one that begins with its id is not gone over.
func checkFields(kind wire.Kind, key string, data []byte) error {
	if wire.BeginsWithKey(data, key) {
		return nil
	}
	if err := wire.CheckFields(data); err != nil {
		return undecodable(kind, key, err)
	}
	return nil
}

// add adds a record.
func (a *answer) add(f wire.AnswerField, kind wire.Kind, key string, data []byte) error {
	record, err := a.encoded(kind, key, data)
	if err == nil {
		a.Add(f, record)
	}
	return err
}

// jobStatus returns the status of a job in the encoding of the answer. A status that names the
// resources of the nodes is made anew at each read. Where no job waits for such a resource, no
// status is looked at.
func (a *answer) jobStatus(s *replica.Snapshot, id string, data []byte) ([]byte, error) {
	if s.JobsLacking() == 0 || !wire.NoResourceIn(data) {
		return a.encoded(wire.KindJobStatus, id, data)
	}
	a.records += len(data)
	if err := holding(a.request, len(data)); err != nil {
		return nil, err
	}
	status := &pb.JobStatus{}
	if err := decode(wire.KindJobStatus, id, data, status); err != nil {
		return nil, err
	}
	if err := addKnown(s, status); err != nil {
		return nil, err
	}
	encode := func() ([]byte, error) { return proto.MarshalOptions{Deterministic: true}.Marshal(status) }
	if a.JSON() {
		encode = func() ([]byte, error) { return wire.AppendJSON(nil, status) }
	}
	made, err := encode()
	if err != nil {
		return nil, fmt.Errorf("encode the status of job %q: %w", id, err)
	}
	return made, a.hold(len(made))
}

// The fields of objects, for masks.
var ( //nolint:gochecknoglobals // constants
	jobFields    = (&pb.Job{}).ProtoReflect().Descriptor()
	statusFields = (&pb.JobStatus{}).ProtoReflect().Descriptor()
	taskFields   = (&pb.Task{}).ProtoReflect().Descriptor()
)

// chosen returns the fields of a record that a mask leaves, in the encoding of the answer. A nil
// mask leaves all. passing is set for a record that is not kept: one of the archive.
func (a *answer) chosen(kind wire.Kind, key string, data []byte, mask *wire.Mask, passing bool) ([]byte, error) {
	if mask == nil && !passing {
		return a.encoded(kind, key, data)
	}
	if mask != nil {
		var err error
		if data, err = mask.Append(nil, data); err != nil {
			return nil, undecodable(kind, key, err)
		}
	}
	return a.passing(kind, key, data)
}

// chosenStatus is chosen for the status of a job.
func (a *answer) chosenStatus(
	s *replica.Snapshot, id string, data []byte, mask *wire.Mask, passing bool,
) ([]byte, error) {
	if !passing {
		if mask == nil {
			return a.jobStatus(s, id, data)
		}
		var err error
		if data, err = known(s, id, data); err != nil {
			return nil, err
		}
	}
	return a.chosen(wire.KindJobStatus, id, data, mask, passing)
}

// known returns the record of a job as addKnown completes it.
func known(s *replica.Snapshot, id string, data []byte) ([]byte, error) {
	o, err := completed(s, wire.KindJobStatus, id, replica.Object{Value: data})
	return o.Value, err
}

// passing returns a record that belongs to this answer alone in its encoding. It is not kept for
// other answers: nobody will find it at the place of its bytes.
func (a *answer) passing(kind wire.Kind, key string, data []byte) ([]byte, error) {
	a.records += len(data)
	if !a.JSON() {
		if err := checkFields(kind, key, data); err != nil {
			return nil, err
		}
		return data, a.hold(2 * len(data)) // it is a copy, and stands in the answer
	}
	if err := holding(a.request, len(data)); err != nil {
		return nil, err
	}
	m := messageOf(kind)
	if err := decode(kind, key, data, m); err != nil {
		return nil, err
	}
	text, err := wire.AppendJSON(nil, m)
	if err != nil {
		return nil, err
	}
	return text, a.hold(2 * len(text))
}

// messageOf returns an empty message for the records of a kind that answers hold.
func messageOf(kind wire.Kind) proto.Message {
	switch kind {
	case wire.KindJobSpec:
		return &pb.JobSpec{}
	case wire.KindJobStatus:
		return &pb.JobStatus{}
	case wire.KindTask:
		return &pb.Task{}
	case wire.KindNode:
		return &pb.Node{}
	case wire.KindNodeStatus:
		return &pb.NodeStatus{}
	case wire.KindQueueConfig:
		return &pb.QueueConfig{}
	case wire.KindQueueStatus:
		return &pb.QueueStatus{}
	case wire.KindPolicy:
		return &pb.Policy{}
	}
	panic(fmt.Sprintf("gateway: records of kind %d are in no answer", kind)) // a broken invariant
}
