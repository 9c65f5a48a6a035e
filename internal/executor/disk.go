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

// DefaultMeasureDisk is the interval between measurements of an attempt's disk usage.
const DefaultMeasureDisk = 10 * time.Second

// DiskMeasured is the value of Capabilities.Disk where disk usage is measured.
const DiskMeasured = "measured"

const (
	diskSlice = 1000        // entries per step
	diskRests = 3           // pause after a step, as a multiple of the step's time
	diskPause = time.Second // interval of checking for due measurements
)

// diskWatch is the state of measuring one attempt's disk usage.
type diskWatch struct {
	began      time.Time // start of the present measurement, or else of the last one
	usage      *usage    // present measurement; nil: none
	late       bool      // a measurement that took too long was reported
	unreadable bool      // an unreadable directory was reported
}

// watchDisk measures the disk usage of attempts with an amount of disk, and ends those that exceed
// it, until ctx ends. It takes a few entries of each attempt in turn, and works a quarter of the
// time at most. So a task with ten million files delays only its own measurement.
func (s *Supervisor) watchDisk(ctx context.Context) error {
	known := map[*attempt]*diskWatch{}
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
		running := map[*attempt]*diskWatch{}
		underWay = false
		for _, a := range s.running() {
			if a.limits.Disk <= 0 {
				continue
			}
			m := known[a]
			if m == nil {
				m = &diskWatch{}
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

// measure does one step of an attempt's measurement; false: none is due.
func (s *Supervisor) measure(a *attempt, m *diskWatch, now time.Time) bool {
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
	if u.failed != nil && !m.unreadable {
		m.unreadable = true
		s.trouble(TroubleDisk, a.key, u.failed)
	}
	return true
}

// overDisk ends an attempt that uses more disk than its request.
func (s *Supervisor) overDisk(a *attempt, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginStop(a, 0, stopRequest{
		result: plimsoll.ResultOutOfDisk,
		message: fmt.Sprintf("it used %s of disk, and asked for %s",
			plimsoll.FormatQuantity(plimsoll.Disk, bytes), plimsoll.FormatQuantity(plimsoll.Disk, a.limits.Disk)),
	})
}

// probeDisk returns DiskMeasured, or says that the file system does not report the blocks of files.
func probeDisk(dir string) string {
	const size = 64 << 10
	f, err := os.CreateTemp(dir, "probe-")
	if err != nil {
		return DiskMeasured // a faulty directory is reported elsewhere
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
	return DiskMeasured // also after an error such as a full disk, which proves nothing
}
