package main

import (
	"os"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// nodeMask is the umask of the processes of a node, whatever the umask of the shell is. Tasks that
// run as other users must pass through directories of the agent; private files have modes of their
// own.
const nodeMask = 0o022

// userFlags belong to the commands that make this machine a node. They choose the user of a task if
// the agent is root.
type userFlags struct {
	TaskUIDs       string   `name:"task-uids" help:"If the agent is root: range of uids; each attempt of a task gets a uid of its own. Default: 600000-665535." placeholder:"FIRST-LAST"`
	TaskUser       string   `help:"If the agent is root: user of the tasks that name none, instead of a uid of their own. Under sudo dev takes the user who called sudo, unless this or --task-uids is given." placeholder:"USER"`
	AllowUsers     []string `help:"Users that tasks may name to run as, such as alice,1001." placeholder:"USER"`
	AllowRootTasks bool     `help:"Let tasks run as root if they name it. They can then do everything on this machine."`
}

// parse reads the flags. environment returns the variables of sudo; nil: there are none.
func (f *userFlags) parse(environment func(string) string) (executor.Users, error) {
	if err := f.needRoot(); err != nil {
		return executor.Users{}, err
	}
	u := executor.Users{Default: f.TaskUser, Allowed: f.AllowUsers, AllowRoot: f.AllowRootTasks}
	if f.TaskUIDs != "" {
		var err error
		if u.UIDs, err = executor.ParseUIDRange(f.TaskUIDs); err != nil {
			return u, err
		}
	}
	if f.TaskUIDs == "" && f.TaskUser == "" && environment != nil && os.Geteuid() == 0 {
		u.Default = sudoCaller(environment)
	}
	return u, u.Validate()
}

// needRoot refuses flags that would have no effect: only root can run tasks as another user.
func (f *userFlags) needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"task-uids", f.TaskUIDs != ""},
		{"task-user", f.TaskUser != ""},
		{"allow-users", len(f.AllowUsers) > 0},
		{"allow-root-tasks", f.AllowRootTasks},
	} {
		if flag.given {
			return plimsoll.Invalid(
				flag.name,
				"needs root: all tasks of an agent of uid %d run as that user; start it as root, or leave this out",
				os.Geteuid(),
			)
		}
	}
	return nil
}

// sudoCaller returns the user who has called sudo, as uid:gid; empty: none, or root.
func sudoCaller(environment func(string) string) string {
	uid, err := strconv.ParseUint(environment("SUDO_UID"), 10, 32)
	if err != nil || uid == 0 {
		return ""
	}
	return environment("SUDO_UID") + ":" + environment("SUDO_GID")
}
