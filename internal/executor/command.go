package executor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
)

// defaultPath is the PATH of tasks when the supervisor has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command is a group's spec, prepared for exec on this machine.
type command struct {
	path string
	argv []string
	env  []string
	dir  string
	user identity
}

// neverStarted is a reason for not starting that lies with the task; its text is the attempt's
// message. Every other error of a start is the node's fault.
type neverStarted struct {
	reason   string
	exitCode int32 // as of a shell: 126, 127; -1 if the program is not the reason
}

// Exit codes of a program that never ran, as in a shell.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

func (e *neverStarted) Error() string { return e.reason }

func cannotStart(format string, args ...any) error {
	return &neverStarted{fmt.Sprintf(format, args...), -1}
}

// notFound is cannotStart for a program that does not exist.
func notFound(format string, args ...any) error {
	return &neverStarted{fmt.Sprintf(format, args...), exitNotFound}
}

// notExecutable is cannotStart for a program that exists.
func notExecutable(format string, args ...any) error {
	return &neverStarted{fmt.Sprintf(format, args...), exitNotExecutable}
}

// prepare resolves first the working directory, then the program, which may be relative to it.
func prepare(req *StartRequest, taskDir string, user identity) (*command, error) {
	c := &command{argv: req.Spec.Command, dir: taskDir, user: user}
	if len(c.argv) == 0 || c.argv[0] == "" {
		return nil, cannotStart("there is no command")
	}
	home := user.home
	if user.own {
		home = taskDir
	}
	if dir := req.Spec.WorkDir; filepath.IsAbs(dir) {
		c.dir = dir
	} else {
		c.dir = filepath.Join(taskDir, dir)
	}
	env := environment(req, taskDir, home)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.env = append(c.env, name+"="+env[name])
	}
	if at := user.blockedAt(c.dir); at != "" {
		return nil, cannotStart(
			"the working directory %s cannot be used: uid %d may not enter %s", c.dir, user.cred.Uid, at,
		)
	}
	if c.dir != taskDir {
		info, err := os.Stat(c.dir)
		if err != nil {
			return nil, cannotStart("the working directory %s cannot be used: %v", c.dir, reason(err))
		}
		if !info.IsDir() {
			return nil, cannotStart("the working directory %s is not a directory", c.dir)
		}
	}
	var err error
	c.path, err = user.lookPath(c.argv[0], env["PATH"], c.dir)
	return c, err
}

func environment(req *StartRequest, taskDir, home string) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	if home != "" {
		env["HOME"] = home
	}
	maps.Copy(env, req.Spec.Env)
	env["PLIMSOLL_JOB_ID"] = req.Job
	env["PLIMSOLL_TASK_ID"] = cmp.Or(req.ID, req.Task)
	env["PLIMSOLL_ATTEMPT"] = strconv.Itoa(int(req.Attempt))
	env["PLIMSOLL_TASK_DIR"] = taskDir
	env["PLIMSOLL_NODE"] = req.Node
	if names := req.Spec.Constraints.VolumesFrom; len(names) > 0 {
		env["PLIMSOLL_VOLUMES_FROM"] = volumes(taskDir, names)
	}
	return env
}

// volumes lists the directories of the tasks in volumesFrom, in their order there. They are
// siblings of the task's own directory.
func volumes(taskDir string, tasks []string) string {
	dirs := make([]string, len(tasks))
	for i, task := range tasks {
		dirs[i] = filepath.Join(filepath.Dir(filepath.Dir(taskDir)), task, workDir)
	}
	return strings.Join(dirs, ":")
}

// lookPath finds the program as a shell would, with the task's own PATH and working directory.
func (id *identity) lookPath(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, id.executable(file)
	}
	var denied error
	for _, pathDir := range filepath.SplitList(path) {
		if !filepath.IsAbs(pathDir) {
			pathDir = filepath.Join(dir, pathDir)
		}
		file := filepath.Join(pathDir, name)
		if _, err := os.Stat(file); err != nil {
			continue // not in this directory
		}
		err := id.executable(file)
		if err == nil {
			return file, nil
		}
		if denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	if strings.Contains(name, " ") {
		return "", notFound(
			"there is no command %q in PATH; it is one word, because no shell takes it apart: write sh -c before it",
			name,
		)
	}
	return "", notFound("the command %q was not found in PATH %s", name, path)
}

func (id *identity) executable(file string) error {
	if at := id.blockedAt(file); at != "" {
		return notExecutable("the command %s cannot be used: uid %d, which the task runs as, may not enter %s; put the program where everybody may, "+
			"or name in user a user that may", file, id.cred.Uid, at)
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFound("the command %s was not found", file)
	case err != nil:
		return notExecutable("the command %s cannot be used: %v", file, reason(err))
	case info.IsDir():
		return notExecutable("the command %s is a directory", file)
	case info.Mode()&0o111 == 0:
		return notExecutable("the command %s is not executable; chmod +x makes it so", file)
	case !id.mayExecute(info):
		return notExecutable(
			"uid %d, which the task runs as, may not execute %s; chmod o+rx lets everybody", id.cred.Uid, file,
		)
	}
	return nil
}

// resourceErrors are errors of exec for lack of resources, whatever the program.
var resourceErrors = []error{
	syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EDQUOT, syscall.EIO,
	syscall.EBUSY, syscall.EROFS,
}

// explain turns an error of exec into a reason for people.
func (c *command) explain(err error) error {
	switch {
	case slices.ContainsFunc(resourceErrors, func(s error) bool { return errors.Is(err, s) }):
		return fmt.Errorf("the node could not start the command %s: %w", c.path, err)
	case errors.Is(err, syscall.ENOENT):
		return notExecutable(
			"the command %s could not be started: the interpreter in its first line, or the loader it needs, was not found",
			c.path,
		)
	case errors.Is(err, syscall.ENOEXEC):
		return notExecutable("the command %s is not a program; a script needs a first line such as #!/bin/sh", c.path)
	case errors.Is(err, syscall.EACCES) && c.user.cred != nil:
		return notExecutable(
			"uid %d, which the task runs as, may not execute %s or may not enter the working directory %s",
			c.user.cred.Uid, c.path, c.dir,
		)
	case errors.Is(err, syscall.E2BIG):
		return notExecutable("the command's arguments and environment are larger than the kernel takes")
	}
	return notExecutable("the command %s could not be started: %v", c.path, err)
}

// reason drops the operation and path, which the surrounding sentence already names.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// StartRequest asks for the start of one attempt.
type StartRequest struct {
	Task     string // its local name
	ID       string // of the task, for its program; empty: Task
	Attempt  int32
	Job      string
	Node     string
	Spec     plimsoll.GroupSpec
	NoCgroup bool // run without control group, and so without limits
	Owner    string
	Users    Users // filled in by the Client

	Pids        int64 // most processes and threads of the attempt at once; 0: no limit
	TasksMemory int64 // bytes for all tasks of the node together; 0: the limit stays as it is
}
