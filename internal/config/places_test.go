package config_test

import (
	"errors"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// An error found later in a policy is reported with the file and the line of its field.
func TestALaterErrorIsLocated(t *testing.T) {
	_, places, err := config.ParsePoliciesAt("qos.yaml", []byte(policyFile))
	if err != nil {
		t.Fatal(err)
	}
	ref := plimsoll.PolicyRef{Kind: plimsoll.PolicyNodeQOS, Name: "busy"}
	for field, want := range map[string]string{
		"rules[1].metric":  "qos.yaml:15: NodeQOS busy: rules[1].metric: is wrong",
		"rules[1].release": "qos.yaml:14: NodeQOS busy: rules[1].release: is wrong",
		"options.lag":      "qos.yaml:11: NodeQOS busy: options.lag: is wrong",
		"":                 "qos.yaml:1: NodeQOS busy: is wrong",
	} {
		wrong := &plimsoll.Error{Code: plimsoll.CodeConflict, Field: field, Msg: "is wrong"}
		got := places.Locate(plimsoll.InPolicy(ref, wrong))
		if got.Error() != want || plimsoll.CodeOf(got) != plimsoll.CodeConflict {
			t.Errorf("%s: %v (%v)", field, got, plimsoll.CodeOf(got))
		}
	}
	other := errors.New("no such host")
	if got := places.Locate(other); !errors.Is(got, other) {
		t.Errorf("an error of something else became %v", got)
	}
	both := errors.Join(plimsoll.InPolicy(ref, plimsoll.Invalid("rules", "is wrong")), other)
	if got := places.Locate(both).Error(); got != "qos.yaml:12: NodeQOS busy: rules: is wrong\nno such host" {
		t.Errorf("two errors became %s", got)
	}
}
