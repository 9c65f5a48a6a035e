package sim

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the heap grow further between two collections, which saves a tenth of the time, and
// looks for leaked goroutines.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}
