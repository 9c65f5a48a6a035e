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

	"github.com/plimsoll-dev/plimsoll"
)

// Streams of an attempt, which are also the names of their files.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

var streams = [...]string{Stdout, Stderr}

// Intervals of checking log sizes. The short one is in use while a file grows by a good part of its
// limit per check.
const (
	trimSlowly = time.Second
	trimFast   = 50 * time.Millisecond
)

// OpenLog opens a log for reading, without waiting. Only a regular file is opened, because a task
// that runs as the directory's user may have replaced the log.
func OpenLog(path string) (*os.File, error) { return openRegular(path, os.O_RDONLY) }

func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	// A link; or a socket, or a FIFO without reader.
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, notALog(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("look at a log: %w", err)
	case !info.Mode().IsRegular():
		err = notALog(path)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

func notALog(path string) error {
	return plimsoll.Errorf(
		plimsoll.CodeConflict, "%s is no log: the task has put something else in the place of the file",
		filepath.Base(path),
	)
}

// LogData returns the position of the next bytes of a log, from an offset on. Bytes that were given
// back or never written are a hole. If no bytes follow, begin is the end of the file.
func LogData(f *os.File, from int64) (begin, end int64, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("find the data of %s: %w", f.Name(), err)
	}
	var seekErr error
	err = conn.Control(func(fd uintptr) {
		begin, seekErr = unix.Seek(int(fd), from, unix.SEEK_DATA)
		switch {
		case errors.Is(seekErr, syscall.ENXIO): // a hole up to the end, or an offset beyond it
			begin, seekErr = unix.Seek(int(fd), 0, io.SeekEnd)
			end = begin
		case seekErr == nil:
			end, seekErr = unix.Seek(int(fd), begin, unix.SEEK_HOLE)
		}
	})
	if err := errors.Join(err, seekErr); err != nil {
		return 0, 0, fmt.Errorf("find the data of %s: %w", f.Name(), err)
	}
	return begin, end, nil
}

// trim keeps the logs of all running attempts at their limits, and notes when they grow, until ctx
// ends.
func (s *Supervisor) trim(ctx context.Context) error {
	timer := time.NewTimer(trimSlowly)
	defer timer.Stop()
	var times logTimers
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		next := trimSlowly
		running := s.running()
		s.lookAtLogs(&times, running, time.Now())
		for _, a := range running {
			cut, err := trimLogs(a.logs, a.limits.LogLimit)
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

// trimLogs cuts an attempt's logs to their limit; cut reports whether any was over it.
func trimLogs(logs []*os.File, limit int64) (cut bool, err error) {
	for _, f := range logs {
		c, e := trimLog(f, limit)
		if errors.Is(e, os.ErrClosed) {
			continue // the attempt has just ended
		}
		cut, err = cut || c, errors.Join(err, e)
	}
	return cut, err
}

// blockSize is a multiple of the block size of every usual file system. Only whole blocks can be
// given back.
const blockSize = 4096

// trimLog cuts the open file that the program writes to, even if the task has removed or replaced
// its name.
func trimLog(f *os.File, limit int64) (cut bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("look at a log: %w", err)
	}
	blocks := int64(0)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		blocks = st.Blocks
	}
	// A file's blocks include metadata of the file system, so a little more than the limit is
	// allowed.
	slack := max(limit/8, 4*blockSize)
	if blocks*512 <= limit+slack {
		return false, nil
	}
	keepFrom := (info.Size() - limit) / blockSize * blockSize
	if keepFrom <= 0 { // the other blocks were reserved beyond the end
		err = f.Truncate(info.Size())
	} else if err = punch(f, keepFrom); errors.Is(err, syscall.EOPNOTSUPP) {
		err = f.Truncate(0)
	}
	if err != nil {
		return false, fmt.Errorf("cut %s to its limit: %w", f.Name(), err)
	}
	return true, nil
}

// punch gives the blocks at a file's beginning back to the file system.
func punch(f *os.File, length int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var punched error
	err = conn.Control(func(fd uintptr) {
		punched = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, length)
	})
	return errors.Join(err, punched)
}

// openLogs opens the logs of an attempt that an earlier supervisor started, and holds them. A log
// that the task has removed or replaced is left out: only the task can reach its file.
func openLogs(dir string) (logs []*os.File, err error) {
	for _, stream := range streams {
		f, e := openRegular(filepath.Join(dir, stream), os.O_WRONLY)
		if errors.Is(e, fs.ErrNotExist) || plimsoll.CodeOf(e) == plimsoll.CodeConflict {
			continue
		}
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		logs = append(logs, f)
	}
	return logs, err
}
