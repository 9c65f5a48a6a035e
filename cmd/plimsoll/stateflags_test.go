package main

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	working "github.com/plimsoll-dev/plimsoll/internal/state"
)

// The bounds follow from the limit of memory: a million tasks at 2 GiB, and some at any limit.
func TestTheBoundsOfTheStateFollowTheMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		limit        uint64
		tasks, bytes int
		nodes        int
	}{
		{2 << 30, 1 << 20, 256 << 20, 64 << 20},
		{8 << 30, 5 << 20, 1 << 30, 256 << 20},
		{1 << 30, 349_525, 128 << 20, 32 << 20},
		{256 << 20, 87_381, 32 << 20, 8 << 20},
	} {
		var cfg working.Config
		if err := (&stateFlags{}).within(&cfg, c.limit); err != nil {
			t.Fatal(err)
		}
		if cfg.MaxTasks != c.tasks || cfg.MaxBytes != c.bytes || cfg.MaxNodeBytes != c.nodes {
			t.Errorf("with %d bytes of memory: %d tasks, %d bytes and %d of nodes, want %d, %d and %d",
				c.limit, cfg.MaxTasks, cfg.MaxBytes, cfg.MaxNodeBytes, c.tasks, c.bytes, c.nodes)
		}
	}
}

// A flag takes precedence over the bound that follows from the memory. A wrong flag is refused by
// its name.
func TestTheBoundsOfTheStateCanBeSet(t *testing.T) {
	var cfg working.Config
	if err := (&stateFlags{StateTasks: 7, StateBytes: "3Mi"}).within(
		&cfg, 2<<30,
	); err != nil || cfg.MaxTasks != 7 || cfg.MaxBytes != 3<<20 {
		t.Errorf("%d tasks, %d bytes, %v; want 7, 3 Mi", cfg.MaxTasks, cfg.MaxBytes, err)
	}
	for _, wrong := range []stateFlags{{StateTasks: -1}, {StateBytes: "much"}, {StateBytes: "0"}, {StateBytes: "-1"}} {
		if err := wrong.within(&cfg, 2<<30); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
