package informer_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/informer"
)

func TestDeltaTypesHaveNames(t *testing.T) {
	for i, want := range []string{"Added", "Updated", "Deleted", "Replaced", "Sync", "unknown"} {
		if got := informer.DeltaType(i).String(); got != want {
			t.Errorf("%d is %q", i, got)
		}
	}
}
