package executor

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// Bounds of the uids for attempts, if Users names no others.
const (
	DefaultFirstUID = 600000
	DefaultLastUID  = 665535
)

// Users selects the users of a node's tasks if its supervisor is root. Any other supervisor runs
// all tasks as itself. The zero value gives each attempt its own uid and permits no other user.
type Users struct {
	UIDs      UIDRange // range for an attempt's own uid; zero: the default range
	Default   string   // user of tasks that name none; empty: the attempt's own uid
	Allowed   []string // users that tasks may name
	AllowRoot bool     // tasks may name root
}

// UIDRange is the uids from First to Last. The same numbers serve as gids.
type UIDRange struct{ First, Last uint32 }

// maxUID is the largest uid; the next number means "none" to the kernel.
const maxUID = 1<<32 - 2

// ParseUIDRange reads a range such as 600000-665535.
func ParseUIDRange(text string) (UIDRange, error) {
	low, high, _ := strings.Cut(text, "-")
	first, err1 := strconv.ParseUint(low, 10, 32)
	last, err2 := strconv.ParseUint(high, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return UIDRange{}, plimsoll.Invalid(
			"task-uids", "%q is not a range of uids; write for example %d-%d", text, DefaultFirstUID, DefaultLastUID,
		)
	}
	r := UIDRange{uint32(first), uint32(last)}
	return r, r.validate()
}

func (r UIDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r UIDRange) validate() error {
	if r.First < 1 || r.Last < r.First || r.Last > maxUID {
		return plimsoll.Invalid("task-uids", "%v does not go from a uid above 0, which is root, up to one of at most %d; write for example %d-%d",
			r, uint32(maxUID), DefaultFirstUID, DefaultLastUID)
	}
	return nil
}

func (r UIDRange) holds(id uint32) bool { return r.First <= id && id <= r.Last }

func (r UIDRange) size() int { return int(r.Last-r.First) + 1 }

// Validate fills in defaults and reports the first field that is wrong.
func (u *Users) Validate() error {
	if u.UIDs == (UIDRange{}) {
		u.UIDs = UIDRange{DefaultFirstUID, DefaultLastUID}
	}
	if err := u.UIDs.validate(); err != nil {
		return err
	}
	for _, name := range u.Allowed {
		if name == "" {
			return plimsoll.Invalid(
				"allow-users", "holds an empty name; write names or uids with commas between them, such as alice,1001",
			)
		}
		if name == "root" || name == "0" {
			return plimsoll.Invalid("allow-users", "names root; what allows it is --allow-root-tasks")
		}
	}
	return nil
}

func (u *Users) toProto() *pb.TaskUsers {
	return &pb.TaskUsers{
		FirstUid: u.UIDs.First, LastUid: u.UIDs.Last, DefaultUser: u.Default, Allowed: u.Allowed,
		AllowRoot: u.AllowRoot,
	}
}

func usersFromProto(m *pb.TaskUsers) (Users, error) {
	u := Users{
		UIDs: UIDRange{m.GetFirstUid(), m.GetLastUid()}, Default: m.GetDefaultUser(), Allowed: m.GetAllowed(),
		AllowRoot: m.GetAllowRoot(),
	}
	return u, u.Validate()
}

// Describe says in a sentence which user runs the tasks that name none. The sentence is for people
// who start a node.
func (u Users) Describe() string {
	switch {
	case os.Geteuid() != 0:
		return fmt.Sprintf("tasks run as uid %d, as this agent does, and can do whatever it can", os.Geteuid())
	case u.Default != "":
		name, _, _ := strings.Cut(u.Default, ":")
		return fmt.Sprintf("tasks that name no user run as user %s", name)
	}
	return fmt.Sprintf("each attempt of a task runs as a uid of its own, out of %v", u.UIDs)
}

// identity is the user of an attempt.
type identity struct {
	cred *syscall.Credential // nil: the supervisor's user
	home string              // empty: the supervisor's home
	own  bool                // with its own uid, which is set once it is allocated
}

// root reports whether the attempt keeps the rights of a supervisor that is root.
func (id *identity) root() bool { return id.cred != nil && id.cred.Uid == 0 }

// identify finds the user of a task. A forbidden user is the task's own fault.
func identify(spec *plimsoll.GroupSpec, users *Users) (identity, error) {
	if os.Geteuid() != 0 {
		return identifyAsOurselves(spec)
	}
	name, asked := spec.User, spec.User != ""
	switch {
	case !asked && spec.UserGroup != "":
		return identity{}, cannotStart("it names the group %q and no user; name the user too", spec.UserGroup)
	case !asked && users.Default == "":
		return identity{cred: &syscall.Credential{}, own: true}, nil
	case !asked:
		name = users.Default
	}
	acct, err := lookUpUser(name)
	if err != nil {
		return identity{}, err
	}
	if err := acct.permitted(name, asked, users); err != nil {
		return identity{}, err
	}
	if spec.UserGroup != "" {
		if err := acct.changeGroup(name, spec.UserGroup); err != nil {
			return identity{}, err
		}
	}
	return identity{cred: &acct.cred, home: acct.home}, nil
}

// identifyAsOurselves is identify for a supervisor without root's rights.
func identifyAsOurselves(spec *plimsoll.GroupSpec) (identity, error) {
	if spec.User == "" && spec.UserGroup == "" {
		return identity{}, nil
	}
	acct := account{cred: syscall.Credential{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}}
	var err error
	if spec.User != "" {
		if acct, err = lookUpUser(spec.User); err != nil {
			return identity{}, err
		}
	}
	if spec.UserGroup != "" {
		if acct.cred.Gid, err = lookUpGroup(spec.UserGroup); err != nil {
			return identity{}, err
		}
	}
	if int(acct.cred.Uid) != os.Geteuid() || int(acct.cred.Gid) != os.Getegid() {
		return identity{}, cannotStart("the agent runs as uid %d without root's rights, so no task runs %s; leave that out",
			os.Geteuid(), named(spec))
	}
	return identity{home: acct.home}, nil
}

// named returns the user and group that a task names, for messages.
func named(spec *plimsoll.GroupSpec) string {
	switch {
	case spec.UserGroup == "":
		return fmt.Sprintf("as user %q", spec.User)
	case spec.User == "":
		return fmt.Sprintf("with userGroup %q", spec.UserGroup)
	}
	return fmt.Sprintf("as user %q with userGroup %q", spec.User, spec.UserGroup)
}

// account is a user of this machine.
type account struct {
	cred syscall.Credential
	home string
}

// lookUpUser finds a user by name or uid. A uid without an entry in the user database is possible.
// Its group is the one after a colon, or else the group of the same number.
func lookUpUser(name string) (account, error) {
	number, group, _ := strings.Cut(name, ":")
	u, err := user.Lookup(number)
	if err != nil {
		uid, parseErr := strconv.ParseUint(number, 10, 32)
		if parseErr != nil || uid > maxUID {
			return account{}, cannotStart("there is no user %q on this node", name)
		}
		if u, err = user.LookupId(number); err != nil {
			gid, parseErr := strconv.ParseUint(group, 10, 32)
			if parseErr != nil {
				gid = uid
			}
			return account{cred: syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, home: "/"}, nil
		}
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	groups, err := u.GroupIds()
	if err := errors.Join(uidErr, gidErr, err); err != nil {
		return account{}, cannotStart("the user database's entry of %q cannot be used: %v", name, err)
	}
	acct := account{cred: syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, home: u.HomeDir}
	for _, g := range groups {
		id, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return account{}, cannotStart("the user database's entry of %q cannot be used: %v", name, err)
		}
		acct.cred.Groups = append(acct.cred.Groups, uint32(id))
	}
	return acct, nil
}

// permitted reports whether tasks may run as the user. The agent's default user needs no
// permission, unless it is root. A user that tasks may name has the groups of the agent's entry for
// that user.
func (a *account) permitted(name string, asked bool, users *Users) error {
	if a.cred.Uid == 0 {
		if users.AllowRoot {
			return nil
		}
		return cannotStart(
			"user %q is root, and the agent of this node runs no tasks as root; it does with --allow-root-tasks", name,
		)
	}
	if !asked {
		return nil
	}
	for _, allowed := range append(slices.Clone(users.Allowed), users.Default) {
		acct, err := lookUpUser(allowed)
		if err != nil || acct.cred.Uid != a.cred.Uid {
			continue
		}
		if _, _, group := strings.Cut(name, ":"); group && acct.cred.Gid != a.cred.Gid {
			continue
		}
		*a = acct
		return nil
	}
	return cannotStart(
		"the agent of this node runs no tasks as user %q; it does for users named in its --allow-users", name,
	)
}

// changeGroup makes one of the user's groups the first. Root may use any group.
func (a *account) changeGroup(name, group string) error {
	gid, err := lookUpGroup(group)
	if err != nil {
		return err
	}
	if a.cred.Uid != 0 && gid != a.cred.Gid && !slices.Contains(a.cred.Groups, gid) {
		return cannotStart("user %q is not in the group %q of this node", name, group)
	}
	a.cred.Gid = gid
	return nil
}

func lookUpGroup(name string) (gid uint32, err error) {
	id := name
	if g, err := user.LookupGroup(name); err == nil {
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n > maxUID {
		return 0, cannotStart("there is no group %q on this node", name)
	}
	return uint32(n), nil
}

// mask returns the attempt's first umask.
func (id *identity) mask() int {
	if id.own {
		return ownTaskMask
	}
	return taskMask
}
