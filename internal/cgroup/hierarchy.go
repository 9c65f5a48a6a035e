package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// DefaultRoot is the mount point of control groups on nearly every Linux machine.
const DefaultRoot = "/sys/fs/cgroup"

// Version is the kind of control groups that is mounted.
type Version uint8

// The versions.
const (
	V1     Version = iota + 1 // one hierarchy per controller
	V2                        // one hierarchy for all controllers
	Hybrid                    // v1 for the controllers, and a v2 hierarchy beside them
)

// String returns the version in words, such as "cgroup v2".
func (v Version) String() string {
	switch v {
	case V1:
		return "cgroup v1"
	case V2:
		return "cgroup v2"
	case Hybrid:
		return "cgroup v1 with v2 beside it"
	}
	return "no cgroups"
}

// Names of controllers that set limits.
const (
	cpuController    = "cpu"
	memoryController = "memory"
	pidsController   = "pids"

	// freezerController stops groups of v1. Groups of v2 need no controller for that.
	freezerController = "freezer"
)

// v1Names are the v1 hierarchies that a process is put in. They limit, count or freeze; systemd's
// own is included so that killing a service's group does not kill the tasks.
var v1Names = [...]string{cpuController, memoryController, pidsController, "cpuacct", freezerController, "systemd"}

// limiting names the controllers that limit a group.
var limiting = [...]string{cpuController, memoryController, pidsController}

// mount is one mounted hierarchy.
type mount struct {
	path string
	// controllers are the usable controllers of the hierarchy.
	controllers []string
	v2          bool
}

func (m *mount) has(controller string) bool { return slices.Contains(m.controllers, controller) }

// Hierarchy is the set of mounted hierarchies that Detect found. It does not change.
type Hierarchy struct {
	root    string
	version Version
	mounts  []mount // Invariant: not empty
}

// Detect finds the writable hierarchies at root, which is DefaultRoot or a directory delegated to
// the process. If there are none, the error is CodeUnavailable and gives the reason.
func Detect(root string) (*Hierarchy, error) {
	h := &Hierarchy{root: root}
	if _, err := os.Stat(root); err != nil {
		return nil, unavailable("there are no control groups at %s: %v", root, err)
	}
	if exists(filepath.Join(root, "cgroup.controllers")) {
		h.version = V2
		m, err := v2Mount(root)
		if err != nil {
			return nil, err
		}
		h.mounts = []mount{m}
	} else {
		h.version = V1
		h.mounts = v1Mounts(root)
		if len(h.mounts) == 0 {
			return nil, unavailable("no control group hierarchy is mounted below %s", root)
		}
		if unified := filepath.Join(root, "unified"); exists(filepath.Join(unified, "cgroup.controllers")) {
			m, err := v2Mount(unified)
			if err != nil {
				return nil, err
			}
			h.version = Hybrid
			h.mounts = append(h.mounts, m)
		}
	}
	for i := range h.mounts {
		if err := writable(h.mounts[i].path); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func v1Mounts(root string) []mount {
	var mounts []mount
	for _, name := range v1Names {
		// Several controllers in one hierarchy (cpu,cpuacct) are links to the same directory.
		path, err := filepath.EvalSymlinks(filepath.Join(root, name))
		if err != nil || !exists(filepath.Join(path, "cgroup.procs")) {
			continue // not mounted
		}
		if i := slices.IndexFunc(mounts, func(m mount) bool { return m.path == path }); i >= 0 {
			mounts[i].controllers = append(mounts[i].controllers, name)
			continue
		}
		mounts = append(mounts, mount{path: path, controllers: []string{name}})
	}
	return mounts
}

func v2Mount(path string) (mount, error) {
	data, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return mount{}, unavailable("the controllers of %s cannot be read: %v", path, err)
	}
	m := mount{path: path, v2: true}
	for _, name := range strings.Fields(string(data)) {
		if slices.Contains(limiting[:], name) {
			m.controllers = append(m.controllers, name)
		}
	}
	return m, nil
}

func writable(path string) error {
	err := unix.Access(path, unix.W_OK)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EROFS):
		return unavailable("%s is mounted read-only", path)
	case errors.Is(err, unix.EACCES) && os.Geteuid() != 0:
		return unavailable("%s may be written by root only, and this process runs as uid %d", path, os.Geteuid())
	}
	return unavailable("%s cannot be written: %v", path, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func unavailable(format string, args ...any) error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, format, args...)
}

// Version returns the kind of control groups.
func (h *Hierarchy) Version() Version { return h.version }

// Root returns the directory that Detect searched.
func (h *Hierarchy) Root() string { return h.root }

// Missing names, in a sentence, the limits that cannot be set; empty if all can.
func (h *Hierarchy) Missing() string {
	var missing []string
	for _, controller := range limiting {
		if h.mountOf(controller) < 0 {
			missing = append(missing, controller)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s at %s has no controller for %s, which stays without limit", h.version, h.root,
		strings.Join(missing, " and "),
	)
}

// mountOf returns the index of the mount that has the controller, or -1.
func (h *Hierarchy) mountOf(controller string) int {
	return slices.IndexFunc(h.mounts, func(m mount) bool { return m.has(controller) })
}

// unified returns the index of the v2 mount, or -1.
func (h *Hierarchy) unified() int {
	return slices.IndexFunc(h.mounts, func(m mount) bool { return m.v2 })
}

// Subtree is one directory in every hierarchy. Groups are made directly below it.
type Subtree struct {
	h    *Hierarchy
	path string   // below the root of each hierarchy
	dirs []string // Invariant: one for each of h.mounts, in their order
}

// Subtree makes or finds the directory path, such as plimsoll/node-1, in every hierarchy. It turns
// the controllers on for groups below it.
func (h *Hierarchy) Subtree(path string) (*Subtree, error) {
	if !fs.ValidPath(path) || path == "." {
		return nil, plimsoll.Invalid(
			"cgroup", "%q is not a path below the root of the control groups; write for example plimsoll/node-1", path,
		)
	}
	s := &Subtree{h: h, path: path}
	for i := range h.mounts {
		m := &h.mounts[i]
		if err := m.enable(m.path); err != nil {
			return nil, err
		}
		dir := m.path
		for part := range strings.SplitSeq(path, "/") {
			dir = filepath.Join(dir, part)
			if err := mkdir(dir); err != nil {
				return nil, err
			}
			if err := m.enable(dir); err != nil {
				return nil, err
			}
		}
		s.dirs = append(s.dirs, dir)
	}
	return s, nil
}

// enable lets the children of dir use the controllers of the mount. With v1 they always can.
func (m *mount) enable(dir string) error {
	if !m.v2 || len(m.controllers) == 0 {
		return nil
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	data, err := os.ReadFile(file)
	if err != nil {
		return unavailable("which controllers are on in %s cannot be read: %v", dir, err)
	}
	on := strings.Fields(string(data))
	var want []string
	for _, c := range m.controllers {
		if !slices.Contains(on, c) && !slices.Contains(on, "+"+c) {
			want = append(want, "+"+c)
		}
	}
	if len(want) == 0 {
		return nil
	}
	err = write(file, strings.Join(want, " "))
	if errors.Is(err, syscall.EBUSY) {
		return unavailable(
			"controllers cannot be turned on in %s, because processes sit in that group itself; move them to a group below it",
			dir,
		)
	}
	if err != nil {
		return unavailable("controllers %s cannot be turned on in %s: %v", strings.Join(want, " "), dir, err)
	}
	return nil
}

// Leave puts a process back in the root group of every hierarchy, so that its former groups can be
// removed.
func (h *Hierarchy) Leave(pid int) error {
	for i := range h.mounts {
		if err := write(filepath.Join(h.mounts[i].path, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("put process %d back in %s: %w", pid, h.mounts[i].path, err)
		}
	}
	return nil
}

// Hierarchy returns the hierarchies that the subtree is in.
func (s *Subtree) Hierarchy() *Hierarchy { return s.h }

// Path returns the path below the root of each hierarchy.
func (s *Subtree) Path() string { return s.path }

// List returns the names of all groups in the subtree, in order, empty groups included.
func (s *Subtree) List() ([]string, error) {
	var names []string
	for _, dir := range s.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list the groups in %s: %w", dir, err)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Remove removes the subtree, which must hold no group. Directories above it stay.
func (s *Subtree) Remove() error {
	var errs []error
	for _, dir := range s.dirs {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return unavailable("the control group %s cannot be made: %v", dir, err)
	}
	return nil
}

// write writes a kernel file, which must exist: control groups have no other files.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
