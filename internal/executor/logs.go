package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The streams of an attempt, which are the names of their files too.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

var streams = [...]string{Stdout, Stderr}

// How often log sizes are looked at: when nothing much is written, and when a file grows by a good part of its limit between two looks.
const (
	trimSlowly = time.Second
	trimFast   = 50 * time.Millisecond
)

// LogStart returns the offset of the first byte of a log that was kept.
func LogStart(f *os.File) (int64, error) {
	start, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) { // nothing but a hole, or empty
		return f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return 0, fmt.Errorf("find the start of %s: %w", f.Name(), err)
	}
	return start, nil
}

// trim keeps the logs of all running attempts at their limits, until ctx ends.
func (s *Supervisor) trim(ctx context.Context) error {
	timer := time.NewTimer(trimSlowly)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		next := trimSlowly
		for _, a := range s.running() {
			cut, err := trimLogs(a.dir, a.limits.LogLimit)
			if err != nil {
				s.trouble(TroubleTrim, a.key, err)
			}
			if cut {
				next = trimFast
			}
		}
		timer.Reset(next)
	}
}

// trimLogs cuts an attempt's logs to their limit; cut reports whether one was over it.
func trimLogs(dir string, limit int64) (cut bool, err error) {
	for _, stream := range streams {
		c, e := trimLog(filepath.Join(dir, stream), limit)
		cut, err = cut || c, errors.Join(err, e)
	}
	return cut, err
}

// blockSize is a multiple of the block size of every usual file system: only whole blocks can be given back.
const blockSize = 4096

func trimLog(path string, limit int64) (cut bool, err error) {
	var st syscall.Stat_t
	err = syscall.Lstat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it was never opened, or the task has removed it
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	// A file's blocks include some of the file system's own, so a little more than the limit is allowed.
	slack := max(limit/8, 4*blockSize)
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Blocks*512 <= limit+slack {
		return false, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, fmt.Errorf("cut a log: %w", err)
	}
	keepFrom := (st.Size - limit) / blockSize * blockSize
	if keepFrom > 0 {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, keepFrom)
	}
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = f.Truncate(0)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("cut %s to its limit: %w", path, err)
	}
	return true, nil
}
