package agent

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/disk"
)

const (
	diskInterval = time.Second // between two checks of free space in the agent's directory
	fullPause    = time.Second // before another start of an agent that failed on a full disk
)

// diskWatch stops new tasks while the disk of the agent's directory has too little room for the
// running ones.
type diskWatch struct {
	dir     string
	measure func(dir string) (disk.Space, error)
	nodeOut *nodeOutbox
	trouble func(Trouble)
	gate    disk.Gate
	closed  bool // the state in nodeOut
}

// run checks the disk now and every second, until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		w.check()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// check reports a change of the shortage, once, with the numbers of that moment. Each report of the
// node costs the coordinator a commit.
func (w *diskWatch) check() {
	space, err := w.measure(w.dir)
	if err != nil {
		return // the last state stays
	}
	was := w.closed
	if w.closed = w.gate.Shut(space); w.closed == was {
		return
	}
	if !w.closed {
		w.nodeOut.setShortage("")
		return
	}
	why := space.Shortage()
	w.trouble(Trouble{Kind: TroubleDisk, Err: errors.New(why + "; tasks are taken again with " + space.Enough())})
	w.nodeOut.setShortage(why)
}

// noSpace reports whether an operation failed because the disk is full.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// cutText returns at most most bytes of a text, in whole characters.
func cutText(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
