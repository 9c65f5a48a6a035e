package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// DefaultMeasureDisk is how often it is measured what an attempt takes of the disk.
const DefaultMeasureDisk = 10 * time.Second

// DiskMeasured is Capabilities.Disk where it is seen what tasks take.
const DiskMeasured = "measured"

const (
	diskSlice = 1000        // entries that are looked at in one go
	diskRests = 3           // times as long as it took to look
	diskPause = time.Second // between two looks at which measurements are due
)

// measured is what the watch of the disk knows of an attempt.
type measured struct {
	began time.Time // the measurement that is under way, or the last one
	usage *usage    // nil: none is under way
	late  bool      // it was told that it takes long
	blind bool      // it was told that something cannot be looked at
}

// watchDisk measures what attempts with an amount of disk take of it, and ends those that take
// more, until ctx ends. It looks at all of them in turn, some entries at a time, and for a quarter
// of the time at most: a task with ten million files delays itself and slows nobody down.
func (s *Supervisor) watchDisk(ctx context.Context) error {
	known := map[*attempt]*measured{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	rest := func(d time.Duration) bool {
		timer.Reset(d)
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for underWay := false; underWay || rest(min(diskPause, s.cfg.MeasureDisk)); {
		running := map[*attempt]*measured{}
		underWay = false
		for _, a := range s.running() {
			if a.limits.Disk <= 0 {
				continue
			}
			m := known[a]
			if m == nil {
				m = &measured{}
			}
			running[a] = m
			began := time.Now()
			if !s.measure(a, m, began) {
				continue
			}
			if !rest(diskRests * time.Since(began)) {
				return nil
			}
			underWay = underWay || m.usage != nil
		}
		known = running
	}
	return nil
}

// measure goes on with the measurement of an attempt; false: none is due.
func (s *Supervisor) measure(a *attempt, m *measured, now time.Time) bool {
	if m.usage == nil {
		if now.Sub(m.began) < s.cfg.MeasureDisk {
			return false
		}
		m.began = now
		m.usage = newUsage(a.logs, filepath.Join(filepath.Dir(a.dir), workDir), a.dir)
	}
	u := m.usage
	more := u.step(diskSlice)
	if u.bytes > a.limits.Disk {
		s.overDisk(a, u.bytes)
	} else if more {
		return true
	}
	m.usage = nil
	if took := time.Since(m.began); took > s.cfg.MeasureDisk && !m.late {
		m.late = true
		s.trouble(
			TroubleDiskLate, a.key, fmt.Errorf("to look at its %d files took %v", u.entries, took.Round(time.Second)),
		)
	}
	if u.failed != nil && !m.blind {
		m.blind = true
		s.trouble(TroubleDisk, a.key, u.failed)
	}
	return true
}

// overDisk ends an attempt that takes more of the disk than it asked for.
func (s *Supervisor) overDisk(a *attempt, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginStop(a, 0, stopRequest{
		result: plimsoll.ResultOutOfDisk,
		message: fmt.Sprintf("it used %s of disk, and asked for %s",
			plimsoll.FormatQuantity(plimsoll.Disk, bytes), plimsoll.FormatQuantity(plimsoll.Disk, a.limits.Disk)),
	})
}

// probeDisk returns DiskMeasured if the file system says how many blocks a file has, and otherwise
// that it does not.
func probeDisk(dir string) string {
	const size = 64 << 10
	f, err := os.CreateTemp(dir, "probe-")
	if err != nil {
		return DiskMeasured // what is wrong with the directory shows elsewhere
	}
	var st syscall.Stat_t
	_, err = f.Write(make([]byte, size))
	err = errors.Join(err, f.Sync())
	if err == nil {
		err = syscall.Stat(f.Name(), &st)
	}
	if removeErr := errors.Join(os.Remove(f.Name()), f.Close()); err == nil {
		err = removeErr
	}
	if err == nil && st.Blocks == 0 {
		return "the file system of " + dir + " does not say how many blocks files have"
	}
	return DiskMeasured // or it is full, which says nothing
}
