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
	diskInterval = time.Second // between two looks at the disk of the agent's directory
	fullPause    = time.Second // before an agent starts again that could not, because that disk was full
)

// diskWatch stops new tasks while the disk of the agent's directory has too little room for those
// that run.
type diskWatch struct {
	dir     string
	measure func(dir string) (disk.Space, error)
	news    *newsbox
	trouble func(Trouble)
	gate    disk.Gate
	shut    bool // as the newsbox knows
}

// run looks now and every second until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		w.look()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look says once what is missing, with the numbers of then: each report of the node costs the
// coordinator a commit.
func (w *diskWatch) look() {
	space, err := w.measure(w.dir)
	if err != nil {
		return // what was known last holds
	}
	was := w.shut
	if w.shut = w.gate.Shut(space); w.shut == was {
		return
	}
	if !w.shut {
		w.news.setShortage("")
		return
	}
	why := space.Shortage()
	w.trouble(Trouble{Kind: TroubleDisk, Err: errors.New(why + "; tasks are taken again with " + space.Enough())})
	w.news.setShortage(why)
}

// noSpace reports whether something failed because the disk is full.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// cutText returns so many bytes of a text at most, whole characters.
func cutText(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
