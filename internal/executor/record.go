package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// attemptRecord is attempt.json.
type attemptRecord struct {
	Job string `json:"job"`
	PID int    `json:"pid"`
	// Start is field 22 of /proc/<pid>/stat; together with the boot id it identifies the process
	// for ever.
	Start     uint64        `json:"startTicks"`
	Boot      string        `json:"bootId"`
	Started   int64         `json:"startedUnixNanos"`
	Cgroup    string        `json:"cgroup,omitempty"`
	UID       uint32        `json:"uid,omitempty"` // the attempt's own uid
	Ownership ownership     `json:"tenancy"`       // the key is as earlier versions wrote it
	Limits    attemptLimits `json:"limits"`
}

// exitRecord is exit.json.
type exitRecord struct {
	Result   plimsoll.TaskResult `json:"result"`
	Word     string              `json:"resultWord"` // for people
	ExitCode int32               `json:"exitCode"`
	Signal   int                 `json:"signal,omitempty"`
	OOMKills int64               `json:"oomKills,omitempty"`
	Message  string              `json:"message,omitempty"`
	Started  int64               `json:"startedUnixNanos,omitempty"`
	Finished int64               `json:"finishedUnixNanos"`
	PID      int                 `json:"pid,omitempty"`
}

func (r *exitRecord) apply(s *Status) {
	s.State, s.Result, s.ExitCode, s.Message = plimsoll.TaskFinished, r.Result, r.ExitCode, r.Message
	s.Started, s.Finished, s.PID = r.Started, r.Finished, r.PID
}

// writeExit makes exit.json durable in one step.
func writeExit(dir string, r exitRecord) error {
	r.Word = r.Result.String()
	return replaceJSON(dir, exitFile, r)
}

// replaceJSON writes a file by rename, and makes it durable.
func replaceJSON(dir, name string, v any) error {
	temp := filepath.Join(dir, name+".new")
	if err := writeJSON(temp, v); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return syncDir(dir)
}

// writeJSON writes and syncs a file; its name is durable when its directory is synced too.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readJSON reads a record. ok is false if the file does not exist.
func readJSON(path string, v any) (ok bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a record: %w", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, &plimsoll.Error{
			Code: plimsoll.CodeCorrupt, Op: "read " + path, Msg: "is not a whole record", Err: err,
		}
	}
	return true, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// lockPath opens (or makes) a file and locks it while it stays open. ok is false if another process
// holds the lock. Programs that are started do not inherit it. The lock belongs to the open file
// (fcntl, F_OFD_SETLK), because such a lock can be tested without taking it.
func lockPath(path string) (f *os.File, ok bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open the lock: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, true, nil
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return nil, false, f.Close()
	}
	return nil, false, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
}

// lockHeld reports whether some process holds the lock. A missing file is not locked.
func lockHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the lock: %w", err)
	}
	l := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l)
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("look at the lock %s: %w", path, err)
	}
	return l.Type != unix.F_UNLCK, nil
}
