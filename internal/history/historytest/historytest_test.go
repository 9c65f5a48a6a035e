package historytest

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// The history in memory passes the suite as any other.
func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		m := NewMemory()
		return Harness{
			Writer: func() (history.Writer, error) { return m, nil },
			Reader: func() (history.Reader, error) { return m, nil },
			Crash:  func() error { return nil },
		}
	})
}
