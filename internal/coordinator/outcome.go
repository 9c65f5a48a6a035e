package coordinator

import (
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// repetition identifies the repetitions of a command for the engine. The zero value is for commands
// that are not repeated.
type repetition struct {
	token  string
	digest uint64
}

// repetitionOf reads the token of a command and computes its digest. The digest distinguishes the
// command from others that are sent with the same token by mistake.
func (t *commandTable) repetitionOf(cmd *pb.Command) (repetition, error) {
	m := cmd.ProtoReflect()
	field := m.WhichOneof(t.kind)
	if field == nil {
		return repetition{}, nil
	}
	token, content := "", m.Get(field).Message().Interface()
	switch of := content.(type) {
	case *pb.SubmitJobRequest:
		token = of.GetSpec().GetToken()
	case *pb.ApplyPoliciesRequest:
		if !of.GetDryRun() {
			token = of.GetToken()
		}
	case *pb.SetQueueConfigRequest:
		if !of.GetDryRun() {
			token = of.GetToken()
		}
	case interface{ GetToken() string }:
		token = of.GetToken()
	}
	if token == "" {
		return repetition{}, nil
	}
	if err := plimsoll.ValidateToken(token); err != nil {
		return repetition{}, err
	}
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(content)
	if err != nil {
		return repetition{}, plimsoll.Invalid("command", "cannot be encoded: %v", err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(field.Name())) // a hash takes everything
	_, _ = h.Write(bytes)
	return repetition{token, h.Sum64()}, nil
}

// engineCommand returns the command for the engine.
func (r *request) engineCommand(id uint64) engine.Command {
	return engine.Command{ID: id, Do: r.do, Token: r.repetition.token, Digest: r.repetition.digest}
}

// appendOutcome encodes the record of an outcome.
func appendOutcome(dst []byte, o *state.Outcome) []byte {
	m := &pb.Outcome{Time: o.Time, Digest: o.Digest}
	if err := o.Refusal(); err != nil {
		m.Error = wire.ErrorToProto(err)
	}
	if len(o.Policies) > 0 {
		m.ApplyPolicies = policyOutcomes(o.Policies)
	}
	return appendStored(dst, m)
}

// appendStored encodes a record that is stored and not replicated.
func appendStored(dst []byte, m proto.Message) []byte {
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
	if err != nil {
		panic("coordinator: encode a record: " + err.Error()) // its texts are valid UTF-8
	}
	return out
}

// decodeOutcome decodes the record of an outcome, whose key is its token.
func decodeOutcome(token string, data []byte) (state.Outcome, error) {
	var m pb.Outcome
	if err := proto.Unmarshal(data, &m); err != nil {
		return state.Outcome{}, plimsoll.Errorf(plimsoll.CodeCorrupt, "outcome: %v", err)
	}
	o := state.Outcome{Token: token, Digest: m.GetDigest(), Time: m.GetTime()}
	if e := m.GetError(); e != nil {
		o.Refused, o.Code = true, plimsoll.ParseCode(e.GetCode())
		o.Op, o.Field, o.Msg = e.GetOp(), e.GetField(), e.GetMessage()
	}
	for _, p := range m.GetApplyPolicies().GetOutcomes() {
		o.Policies = append(o.Policies, state.PolicyOutcome{
			Ref: wire.PolicyRefFromProto(p.GetPolicy()), Change: state.PolicyChange(p.GetChange()),
		})
	}
	return o, nil
}

// storedOnly reports whether records of a kind are stored and not replicated.
func storedOnly(kind wire.Kind) bool { return kind == wire.KindOutcome || kind == wire.KindQueuePast }

// replicated returns a batch without the records that are stored and not replicated.
func replicated(b *wire.Batch) *wire.Batch {
	stored := 0
	for i := range b.Mutations {
		if storedOnly(b.Mutations[i].Kind) {
			stored++
		}
	}
	if stored == 0 {
		return b
	}
	out := *b
	out.Mutations = make([]wire.Mutation, 0, len(b.Mutations)-stored)
	for i := range b.Mutations {
		if !storedOnly(b.Mutations[i].Kind) {
			out.Mutations = append(out.Mutations, b.Mutations[i])
		}
	}
	return &out
}
