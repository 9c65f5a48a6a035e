package archivetest

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

func memory() Harness {
	return of(NewMemory())
}

// of returns a harness of an archive in memory, which is always open and loses nothing.
func of(m interface {
	archive.Writer
	archive.Reader
},
) Harness {
	return Harness{
		Writer: func() (archive.Writer, error) { return m, nil },
		Reader: func() (archive.Reader, error) { return m, nil },
		Crash:  func() error { return nil },
	}
}

// The archive in memory is an archive.
func TestMemory(t *testing.T) { Run(t, func(*testing.T) Harness { return memory() }) }
