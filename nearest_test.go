package plimsoll_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// Names are similar if one letter is added, missing or changed, or if two are transposed. The style
// of naming does not count.
func TestTheNearestNameIsTheOneThatWasMeant(t *testing.T) {
	names := []string{"name", "count", "command", "workDir", "resources"}
	for typo, want := range map[string]string{
		"cuont": "count", "cont": "count", "countt": "count", "Count": "count", "comand": "command",
		"workdir": "workDir", "resuorces": "resources", "replicas": "", "x": "",
		"work_dir": "workDir", "work-dri": "workDir",
		strings.Repeat("count", 1000): "", strings.Repeat("\xff", 64): "", strings.Repeat("Ⱥ", 32): "",
	} {
		if got := plimsoll.Nearest(typo, names); got != want {
			t.Errorf("%.20q: %q, want %q", typo, got, want)
		}
	}
	if got, want := plimsoll.Suggest("cuont", names), `did you mean "count"?`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := plimsoll.Suggest("replicas", names[:2]), "possible are name, count"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
