package executor

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// Every field of Users reaches the supervisor.
func TestEveryFieldOfUsersPasses(t *testing.T) {
	var in Users
	fill.Fill(&in, fill.Options{})
	in.UIDs = UIDRange{7, 9}
	out, err := usersFromProto(in.toProto())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range fill.Differences(&in, &out) {
		t.Errorf("Users.%s is lost between agent and supervisor (%s). It belongs into: message TaskUsers in "+
			"proto/plimsoll/v1/agent.proto, then make generate; toProto and usersFromProto in users.go", d.Path, d)
	}
}

// Every field of a status reaches the agent, also after the supervisor was started anew.
func TestEveryFieldOfAStatusPasses(t *testing.T) {
	var in Status
	fill.Fill(&in, fill.Options{})
	out := statusFromProto(statusToProto(&in))
	for _, d := range fill.Differences(&in, &out) {
		t.Errorf("Status.%s is lost between supervisor and agent (%s). It belongs into: message AttemptStatus "+
			"in proto/plimsoll/v1/agent.proto, "+
			"then make generate; statusToProto and statusFromProto in attempt.go", d.Path, d)
	}
}
