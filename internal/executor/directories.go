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

// Modes of directories. A passage cannot be listed; an entry is reached only by its name.
const (
	passageMode = 0o711
	privateMode = 0o700
	sharedMode  = 0o770 | fs.ModeSetgid // new files belong to the directory's group
)

// Protect makes an agent's directory private to its user, except for a passage to the tasks' own
// directories.
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
			continue // a link has no mode of its own
		}
		if err := setMode(filepath.Join(dir, e.Name()), change); err != nil {
			return err
		}
	}
	return nil
}

// setMode changes the permissions of a file or directory, if it exists. A directory with the sticky
// bit is a public one, not the agent's own, and stays as it is.
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

// makePassage makes a directory that can be passed through but not listed.
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

// ownership says to whom a task's own directory belongs. It is in the record of each attempt, so
// making it durable costs nothing.
type ownership struct {
	Owner string `json:"owner,omitempty"`
	// Group is the directory's group, which tasks that share its files get too; 0: unknown.
	Group uint32 `json:"gid,omitempty"`
}

// assignUser prepares an attempt to run as another user than the supervisor. It gets its own uid,
// if it is to have one, and the groups of the directories that it may use. The task's own directory
// becomes its property.
func (s *Supervisor) assignUser(ctx context.Context, a *attempt, req *StartRequest, id *identity) error {
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
	var before ownership
	if !made {
		if before, err = s.replaceForeign(a.key.task, req.Owner, taskDir); err != nil {
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
	a.ownership = ownership{req.Owner, group}
	s.mu.Unlock()
	return giveTaskDir(ctx, taskDir, id.cred.Uid, group, req.Users.UIDs)
}

// replaceForeign replaces the task's own directory if a task of another owner had the same name:
// the files left there are not for the new task. A directory without a recorded owner is kept. The
// result is the ownership of the directory that is there afterwards.
func (s *Supervisor) replaceForeign(task, owner, taskDir string) (ownership, error) {
	before, err := s.ownershipOf(task)
	if err != nil || before.Group == 0 || before.Owner == owner {
		return before, err
	}
	if err := os.RemoveAll(taskDir); err != nil {
		return ownership{}, fmt.Errorf("remove the files of a task of another owner: %w", err)
	}
	if err := os.Mkdir(taskDir, privateMode); err != nil {
		return ownership{}, fmt.Errorf("make the task's own directory: %w", err)
	}
	return ownership{}, nil
}

// groupOf returns the group of the task's own directory: the recorded group, or else a new one. The
// present group of the directory is no proof, because the task may have changed it to any of its
// groups.
func (s *Supervisor) groupOf(
	a *attempt, before ownership, taskDir string, id *identity, users *Users,
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
		return st.Gid, nil // an attempt had it, and left no record
	case id.own:
		s.uids.hold(id.cred.Gid, task)
		return id.cred.Gid, nil
	}
	return s.uids.take(users.UIDs, task)
}

// sharedGroups returns the groups of the directories whose files a task shares. All must belong to
// tasks of the same owner.
func (s *Supervisor) sharedGroups(req *StartRequest) (groups []uint32, err error) {
	for i, task := range req.Spec.Constraints.VolumesFrom {
		if err := (attemptKey{task, 1}).validate(); err != nil {
			return nil, cannotStart("volumesFrom[%d]: %v", i, err)
		}
		t, err := s.ownershipOf(task)
		if err != nil {
			return nil, err
		}
		if t.Group == 0 {
			continue // there is no directory here, or not yet
		}
		if t.Owner != req.Owner {
			return nil, cannotStart(
				"volumesFrom[%d]: %s is a task of another owner, whose files are not shared", i, TaskOf(task),
			)
		}
		groups = append(groups, t.Group)
	}
	return groups, nil
}

// ownershipOf returns the ownership of a task's own directory, from the newest attempt that has a
// record or is being started.
func (s *Supervisor) ownershipOf(task string) (found ownership, err error) {
	dir := filepath.Join(s.cfg.Dir, tasksDir, task)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ownership{}, fmt.Errorf("find the owner of a task's directory: %w", err)
	}
	newest := int64(0)
	for _, e := range entries {
		n, err := strconv.ParseInt(e.Name(), 10, 32)
		if err != nil || n <= newest {
			continue // the task's own directory, or an older attempt
		}
		var r attemptRecord
		if ok, err := readJSON(filepath.Join(dir, e.Name(), attemptFile), &r); err == nil && ok {
			newest, found = n, r.Ownership
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.attempts {
		if key.task == task && int64(key.attempt) > newest && a.ownership.Group != 0 {
			newest, found = int64(key.attempt), a.ownership
		}
	}
	return found, nil
}

// giveTaskDir gives the task's own directory to an attempt, with the files of earlier attempts.
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
		h := handover{from: st.Uid, to: uid, group: gid, hardLinks: all.holds(st.Uid)}
		if err := h.entries(ctx, dir, 0); err != nil {
			return err
		}
	}
	// The directory itself comes last, so that an interrupted handover is noticed.
	if err := dir.Chown(int(uid), int(gid)); err != nil {
		return err
	}
	return dir.Chmod(sharedMode)
}

// maxDepth bounds the depth of a handover. Deeper files stay with the previous user.
const maxDepth = 256

// handover gives the files of one user to another. It names each file by its descriptor and never
// follows a link: it runs with root's rights, and processes of the previous user may still change
// names.
type handover struct {
	from, to, group uint32
	// hardLinks includes files with several names. It is set if the previous uid was of the
	// attempts' range: then all such files are the task's.
	hardLinks bool
}

// entries hands over the entries of a directory.
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
			return nil // an unreadable directory stays as it is
		}
	}
}

func (h *handover) entry(ctx context.Context, dir *os.File, name string, depth int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // it has just vanished
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
	if st.Uid != h.from || !isDir && st.Nlink > 1 && !h.hardLinks {
		return nil
	}
	if err := unix.Fchownat(fd, "", int(h.to), int(h.group), unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	return nil
}

// below hands over the entries of a directory that was opened by name only.
func (h *handover) below(ctx context.Context, fd, depth int) error {
	listed, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // an unreadable directory stays as it is
	}
	dir := os.NewFile(uintptr(listed), "a task's directory")
	return errors.Join(h.entries(ctx, dir, depth+1), dir.Close())
}

// protectTasks gives the directories of earlier supervisors today's modes, and notes the uids that
// they hold.
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
			continue // not a task's directory
		}
		if err := s.protectTask(filepath.Join(root, task.Name())); err != nil {
			s.cfg.Events.Trouble(Trouble{Kind: TroubleProtect, Task: task.Name(), Err: err})
		}
	}
	return nil
}

// protectTask does the work for one task. The directory's own mode comes first, because without
// root's rights a task may have forbidden the agent to list it.
func (s *Supervisor) protectTask(dir string) error {
	err := setMode(dir, func(os.FileMode) os.FileMode { return passageMode })
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return err // the agent has just removed it
	}
	for _, e := range entries {
		err = errors.Join(err, s.protectEntry(filepath.Join(dir, e.Name()), e))
	}
	return err
}

func (s *Supervisor) protectEntry(path string, e fs.DirEntry) error {
	if _, err := strconv.ParseInt(e.Name(), 10, 32); err == nil && e.IsDir() {
		// The output belongs to the attempt's user even before the record names that user.
		s.holdOwner(filepath.Join(path, Stdout), path)
		return setMode(path, func(os.FileMode) os.FileMode { return privateMode })
	}
	if e.Name() == workDir && e.IsDir() {
		s.holdOwner(path, path)
		return setMode(path, func(m os.FileMode) os.FileMode { return m &^ 0o007 })
	}
	return nil
}

// holdOwner notes that the user and group of a file are in use while path exists.
func (s *Supervisor) holdOwner(file, path string) {
	var st syscall.Stat_t
	if err := syscall.Lstat(file, &st); err != nil {
		return // there is none, or it has just vanished
	}
	ids := []uint32{st.Uid, st.Gid}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id != 0 {
			s.uids.hold(id, path)
		}
	}
}

// errUnreachable is the error for a directory that tasks cannot enter.
func errUnreachable(dir, at string, uid uint32) error {
	return plimsoll.Invalid("data", "tasks run as users of their own, and uid %d may not enter %s on the way to %s; choose a directory such as "+
		"/var/lib/plimsoll, or let others pass with chmod o+x %s", uid, at, dir, at)
}
