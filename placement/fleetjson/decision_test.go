package fleetjson_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// A text that is not a decision is refused, and the error says so.
func TestJunkIsNoDecision(t *testing.T) {
	for _, test := range []struct{ data, want string }{
		{"", "cannot be read"},
		{`{"request": 5}`, "cannot be read: the request is a number"},
		{"{}", "names no servers"},
		{
			`{"names":["cpu","memory","disk"],"servers":[{"record":{"ID":"a"}}],"chain":["pipe","none"]}`,
			`"none" is not the name of a stage`,
		},
	} {
		d, err := fleetjson.ReadDecision([]byte(test.data))
		if err == nil {
			_, err = d.Replay(nil)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.data, err, test.want)
		}
	}
}
