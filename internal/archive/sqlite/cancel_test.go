package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// A change whose caller goes away at any moment leaves no transaction open: the next change works.
func TestChangeAfterACanceledOne(t *testing.T) {
	w := lead(t, filepath.Join(t.TempDir(), "jobs.db"))
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_, err := w.Fence(ctx, 1)
		if code := plimsoll.CodeOf(err); err != nil && code != plimsoll.CodeCanceled {
			t.Fatalf("the canceled change: %v", err)
		}
		<-ctx.Done()
		if _, err := w.Fence(t.Context(), 1); err != nil {
			t.Fatalf("the change behind it: %v", err)
		}
	}
}
