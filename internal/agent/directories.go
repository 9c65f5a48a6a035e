package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

const (
	markFile = "reported.json" // in an attempt's directory: its end was acknowledged
	workDir  = "work"          // in a task's directory: shared by its attempts
)

// keptDir is the directory of an attempt, found at the start of the agent.
type keptDir struct {
	key   attemptKey
	end   *plimsoll.TaskReport // its end, if that was acknowledged; else nil
	worth *worth               // nil: unknown
}

// mark is the content of markFile.
type mark struct {
	Result   string `json:"result"`
	ExitCode int32  `json:"exitCode"`
	Message  string `json:"message,omitempty"`
	At       int64  `json:"at"`
}

// scanDirs finds the directories of attempts. Other entries are left alone. An unreadable directory
// is reported, and left to the supervisor, which knows its attempts.
func scanDirs(root string, trouble func(Trouble)) ([]keptDir, error) {
	tasks, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the tasks that are on this node: %w", err)
	}
	var dirs []keptDir
	for _, t := range tasks {
		if !t.IsDir() || validateLocalName(t.Name()) != nil {
			continue
		}
		attempts, err := os.ReadDir(filepath.Join(root, t.Name()))
		if err != nil {
			trouble(Trouble{Kind: TroubleScan, Task: executor.TaskOf(t.Name()), Err: err})
		}
		for _, a := range attempts {
			n, err := strconv.ParseInt(a.Name(), 10, 32)
			if err != nil || n < 1 || strconv.FormatInt(n, 10) != a.Name() {
				continue
			}
			key := attemptKey{t.Name(), int32(n)}
			dirs = append(dirs, readDir(filepath.Join(root, t.Name(), a.Name()), key))
		}
	}
	return dirs, nil
}

// readDir reads the agent's notes in an attempt's directory. The worth of an ended attempt is not
// needed.
func readDir(dir string, key attemptKey) keptDir {
	d := keptDir{key: key, end: readMark(dir, key)}
	if d.end == nil {
		d.worth = readWorth(dir)
	}
	return d
}

// readMark returns the acknowledged end of an attempt. Without a readable mark it returns nil, and
// the attempt's state is found again.
func readMark(dir string, key attemptKey) *plimsoll.TaskReport {
	data, err := os.ReadFile(filepath.Join(dir, markFile))
	if err != nil {
		return nil
	}
	var m mark
	if err := json.Unmarshal(data, &m); err != nil {
		return nil
	}
	end := named(key.task, key.attempt)
	end.State, end.Result, end.ExitCode = plimsoll.TaskFinished, parseResult(m.Result), m.ExitCode
	end.Message, end.At = m.Message, m.At
	return &end
}

func parseResult(s string) plimsoll.TaskResult {
	if r, ok := plimsoll.ParseTaskResult(s); ok && r != plimsoll.ResultNone {
		return r
	}
	return plimsoll.ResultLost
}

// writeMark records that an end was acknowledged. It is not synced: without it the end is reported
// once more.
func writeMark(dir string, end *plimsoll.TaskReport) error {
	data, err := json.Marshal(mark{end.Result.String(), end.ExitCode, end.Message, end.At})
	if err != nil {
		return fmt.Errorf("encode the end of an attempt: %w", err)
	}
	err = os.WriteFile(filepath.Join(dir, markFile), append(data, '\n'), 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the directory was never made, or is gone already
	}
	return err
}

// isRemovable reports whether a directory may be removed: its attempt has ended, is acknowledged,
// and cannot be asked about again. The directory of an assigned attempt stays, because it prevents
// a second start. The caller holds mu.
func (l *ledger) isRemovable(task string, e *entry) bool {
	if w, ok := l.wanted(task); !e.onDisk || !l.mu.synced || !l.mu.connected || ok && w.attempt == e.attempt {
		return false
	}
	return e.phase == phaseEnded && e.acked || e.phase == phaseOrphan
}

// retire moves the directory of an attempt to the trash, if it may be removed; gone is false if it
// may not yet. With a task's last attempt it also moves the task's own directory. It only renames;
// emptyDir removes.
func (l *ledger) retire(key attemptKey) (gone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(key)
	if e == nil {
		return true, nil
	}
	if !l.isRemovable(key.task, e) {
		return false, nil
	}
	if err := l.discard(l.attemptDir(key)); err != nil {
		return false, err
	}
	l.remove(key)
	_, wanted := l.wanted(key.task)
	if wanted || len(l.mu.entries[key.task]) > 0 {
		return true, nil
	}
	return true, l.discard(filepath.Join(l.root, key.task))
}

func (l *ledger) discard(path string) error {
	l.mu.discarded++
	err := os.Rename(path, filepath.Join(l.trash, strconv.FormatUint(l.mu.discarded, 10)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("put a directory away: %w", err)
	}
	return nil
}

// discardedBefore returns the highest number in the trash. Later directories get higher ones.
func discardedBefore(trash string) (last uint64, err error) {
	entries, err := os.ReadDir(trash)
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			last = max(last, n)
		}
	}
	return last, err
}

// emptyDir removes the entries of the trash, until ctx ends. A task with many files takes long.
func emptyDir(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil
		}
		failed = errors.Join(failed, removeAll(filepath.Join(dir, e.Name())))
	}
	return failed
}

// removeAll removes a task's files. Tasks make directories without write permission, such as Go's
// module cache. Without root's rights the mode of these must be changed first.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(dir) // a link that a task puts there cannot lead out of it
	if err != nil {
		return err
	}
	var failed error
	walked := fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() { // before it is read; links are not followed
			failed = errors.Join(failed, root.Chmod(path, 0o700))
		}
		return nil
	})
	closed := root.Close()
	if err := os.RemoveAll(dir); err != nil {
		return errors.Join(err, failed, walked, closed)
	}
	return nil
}
