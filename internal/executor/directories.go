package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Modes of directories. Who knows the name of what is below a passage may go on to it.
const (
	passageMode = 0o711
	privateMode = 0o700
	sharedMode  = 0o770 | fs.ModeSetgid // what is made in it belongs to its group
)

// Protect takes from all but its user what lies in an agent's directory, and leaves a passage to
// the tasks' own directories.
func Protect(dir string) error {
	if err := setMode(dir, func(os.FileMode) os.FileMode { return passageMode }); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("protect the agent's directory: %w", err)
	}
	for _, e := range entries {
		change := func(m os.FileMode) os.FileMode { return m &^ 0o077 }
		if e.Name() == tasksDir {
			change = func(os.FileMode) os.FileMode { return passageMode }
		}
		if e.Type() == fs.ModeSymlink {
			continue // it has no mode of its own
		}
		if err := setMode(filepath.Join(dir, e.Name()), change); err != nil {
			return err
		}
	}
	return nil
}

// setMode changes the permissions of what is there. A directory that everybody may write to is not
// the agent's own and is left alone.
func setMode(path string, change func(os.FileMode) os.FileMode) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("protect the agent's directory: %w", err)
	}
	mode := info.Mode()
	if want := change(mode.Perm()); mode&fs.ModeSticky == 0 && mode.Perm() != want.Perm() {
		if err := os.Chmod(
			path, want|mode&(fs.ModeSetgid|fs.ModeSetuid),
		); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("protect the agent's directory: %w", err)
		}
	}
	return nil
}

// makePassage makes a directory that anybody may pass through who knows what is in it.
func makePassage(path string) error {
	err := os.Mkdir(path, privateMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, passageMode) // whatever the umask
}

// tenancy is whose a task's own directory is. It is in the record of each attempt, so that it costs
// nothing to make it durable.
type tenancy struct {
	Owner string `json:"owner,omitempty"`
	Group uint32 `json:"gid,omitempty"` // of the directory; tasks that have its files get it too; 0: not known
}

// accommodate gives an attempt what it needs to run as somebody else than the supervisor: a uid, if
// it is to have one of its own, and the groups of the directories that it may use. The task's own
// directory becomes its.
func (s *Supervisor) accommodate(ctx context.Context, a *attempt, req *StartRequest, id *identity) error {
	taskDir := TaskDir(s.cfg.Dir, a.key.task)
	err := os.Mkdir(taskDir, privateMode)
	made := err == nil
	if info, e := os.Lstat(taskDir); errors.Is(err, fs.ErrExist) && e == nil && info.IsDir() {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("make the task's own directory: %w", err)
	}
	if id.cred == nil {
		return nil
	}
	if id.own {
		uid, err := s.uids.take(req.Users.UIDs, a.dir)
		if err != nil {
			return err
		}
		id.cred.Uid, id.cred.Gid = uid, uid
		a.uid = uid
	}
	var before tenancy
	if !made {
		if before, err = s.evict(a.key.task, req.Owner, taskDir); err != nil {
			return err
		}
	}
	group, err := s.groupOf(a, before, taskDir, id, &req.Users)
	if err != nil {
		return err
	}
	shared, err := s.sharedGroups(req)
	if err != nil {
		return err
	}
	id.cred.Groups = append(append(id.cred.Groups, group), shared...)
	s.mu.Lock()
	a.tenancy = tenancy{req.Owner, group}
	s.mu.Unlock()
	return giveTaskDir(ctx, taskDir, id.cred.Uid, group, req.Users.UIDs)
}

// evict replaces the task's own directory if a task of another owner had this name: what that has
// left is not for the new one. Of a directory from before owners were written down nothing is
// known, and it is kept. It returns whose the directory is after that.
func (s *Supervisor) evict(task, owner, taskDir string) (tenancy, error) {
	before, err := s.tenancyOf(task)
	if err != nil || before.Group == 0 || before.Owner == owner {
		return before, err
	}
	if err := os.RemoveAll(taskDir); err != nil {
		return tenancy{}, fmt.Errorf("remove what a task of another owner has left: %w", err)
	}
	if err := os.Mkdir(taskDir, privateMode); err != nil {
		return tenancy{}, fmt.Errorf("make the task's own directory: %w", err)
	}
	return tenancy{}, nil
}

// groupOf returns the group of the task's own directory: the one that was given to it before, or
// else a new one. A task may have changed the group of its directory, to any that it is in.
func (s *Supervisor) groupOf(
	a *attempt, before tenancy, taskDir string, id *identity, users *Users,
) (group uint32, err error) {
	if before.Group != 0 {
		return before.Group, nil
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(taskDir, &st); err != nil {
		return 0, fmt.Errorf("look at the task's own directory: %w", err)
	}
	task := filepath.Dir(a.dir)
	switch {
	case st.Mode&syscall.S_ISGID != 0 && users.UIDs.holds(st.Gid):
		return st.Gid, nil // it was given to an attempt that has left no record
	case id.own:
		s.uids.hold(id.cred.Gid, task)
		return id.cred.Gid, nil
	}
	return s.uids.take(users.UIDs, task)
}

// sharedGroups returns the groups of the directories that a task has the files of. They must be
// those of tasks of its own owner.
func (s *Supervisor) sharedGroups(req *StartRequest) (groups []uint32, err error) {
	for i, task := range req.Spec.Constraints.VolumesFrom {
		if err := (attemptKey{task, 1}).validate(); err != nil {
			return nil, cannotStart("volumesFrom[%d]: %v", i, err)
		}
		t, err := s.tenancyOf(task)
		if err != nil {
			return nil, err
		}
		if t.Group == 0 {
			continue // it has no directory here, or not yet
		}
		if t.Owner != req.Owner {
			return nil, cannotStart(
				"volumesFrom[%d]: %s is a task of another owner, whose files are not shared", i, task,
			)
		}
		groups = append(groups, t.Group)
	}
	return groups, nil
}

// tenancyOf returns whose the own directory of a task is: as its newest attempt with a record says,
// or one that is just being started.
func (s *Supervisor) tenancyOf(task string) (found tenancy, err error) {
	dir := filepath.Join(s.cfg.Dir, tasksDir, task)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tenancy{}, fmt.Errorf("look whose the directory of a task is: %w", err)
	}
	newest := int64(0)
	for _, e := range entries {
		n, err := strconv.ParseInt(e.Name(), 10, 32)
		if err != nil || n <= newest {
			continue // the task's own directory, or older
		}
		var r attemptRecord
		if ok, err := readJSON(filepath.Join(dir, e.Name(), attemptFile), &r); err == nil && ok {
			newest, found = n, r.Tenancy
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.attempts {
		if key.task == task && int64(key.attempt) > newest && a.tenancy.Group != 0 {
			newest, found = int64(key.attempt), a.tenancy
		}
	}
	return found, nil
}

// giveTaskDir gives the task's own directory to an attempt, with what attempts before it have left
// there.
func giveTaskDir(ctx context.Context, dir string, uid, gid uint32, all UIDRange) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("make the task's own directory: %w", err)
	}
	err = handOver(ctx, f, uid, gid, all)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("give the task its directory: %w", err)
	}
	return nil
}

func handOver(ctx context.Context, dir *os.File, uid, gid uint32, all UIDRange) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if st.Uid != uid || st.Gid != gid {
		h := handover{from: st.Uid, to: uid, group: gid, links: all.holds(st.Uid)}
		if err := h.entries(ctx, dir, 0); err != nil {
			return err
		}
	}
	// The directory itself comes last, so that a handover that was cut short is seen.
	if err := dir.Chown(int(uid), int(gid)); err != nil {
		return err
	}
	return dir.Chmod(sharedMode)
}

// maxDepth is how far down files are handed over. What lies deeper stays with the attempt before.
const maxDepth = 256

// handover gives the files of one user to another. It names each by its descriptor and never
// follows a link, because processes of the user before may still be at work there, and it runs with
// root's rights.
type handover struct {
	from, to, group uint32
	links           bool // files with several names too: all of them are in what a task has made
}

// entries hands over what is in a directory.
func (h *handover) entries(ctx context.Context, dir *os.File, depth int) error {
	if depth == maxDepth {
		return nil
	}
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if err := h.entry(ctx, dir, name, depth); err != nil {
				return err
			}
		}
		if len(names) == 0 || err != nil {
			return nil // what cannot be listed stays as it is
		}
	}
}

func (h *handover) entry(ctx context.Context, dir *os.File, name string, depth int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // it has gone meanwhile
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir {
		if err := h.below(ctx, fd, depth); err != nil {
			return err
		}
	}
	if st.Uid != h.from || !isDir && st.Nlink > 1 && !h.links {
		return nil
	}
	if err := unix.Fchownat(fd, "", int(h.to), int(h.group), unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	return nil
}

// below hands over what is in a directory that was opened as a name only.
func (h *handover) below(ctx context.Context, fd, depth int) error {
	listed, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // what cannot be listed stays as it is
	}
	dir := os.NewFile(uintptr(listed), "a task's directory")
	return errors.Join(h.entries(ctx, dir, depth+1), dir.Close())
}

// protectTasks brings the directories of tasks that earlier supervisors have made to the modes of
// today, and notes whose uids they hold.
func (s *Supervisor) protectTasks() error {
	if err := Protect(s.cfg.Dir); err != nil {
		return err
	}
	root := filepath.Join(s.cfg.Dir, tasksDir)
	tasks, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for tasks: %w", err)
	}
	for _, task := range tasks {
		if !task.IsDir() {
			continue // nothing of ours
		}
		if err := s.protectTask(filepath.Join(root, task.Name())); err != nil {
			s.cfg.Events.Trouble(Trouble{Kind: TroubleProtect, Task: task.Name(), Err: err})
		}
	}
	return nil
}

// protectTask does so for one task. Its directory comes first: a task of an agent without root's
// rights may have taken from the agent the right to list it.
func (s *Supervisor) protectTask(dir string) error {
	err := setMode(dir, func(os.FileMode) os.FileMode { return passageMode })
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return err // the agent has just put it away
	}
	for _, e := range entries {
		err = errors.Join(err, s.protectEntry(filepath.Join(dir, e.Name()), e))
	}
	return err
}

func (s *Supervisor) protectEntry(path string, e fs.DirEntry) error {
	if _, err := strconv.ParseInt(e.Name(), 10, 32); err == nil && e.IsDir() {
		// Its output belongs to whom it ran as, before its record says so.
		s.holdOwner(filepath.Join(path, Stdout), path)
		return setMode(path, func(os.FileMode) os.FileMode { return privateMode })
	}
	if e.Name() == workDir && e.IsDir() {
		s.holdOwner(path, path)
		return setMode(path, func(m os.FileMode) os.FileMode { return m &^ 0o007 })
	}
	return nil
}

// holdOwner notes that the user and group of a file are in use as long as path is there.
func (s *Supervisor) holdOwner(file, path string) {
	var st syscall.Stat_t
	if err := syscall.Lstat(file, &st); err != nil {
		return // there is none, or it has just gone
	}
	ids := []uint32{st.Uid, st.Gid}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id != 0 {
			s.uids.hold(id, path)
		}
	}
}

// errUnreachable is the error for a directory that tasks cannot get to.
func errUnreachable(dir, at string, uid uint32) error {
	return plimsoll.Invalid("data", "tasks run as users of their own, and uid %d may not enter %s on the way to %s; choose a directory such as "+
		"/var/lib/plimsoll, or let others pass with chmod o+x %s", uid, at, dir, at)
}
