package executor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
)

// CheckUsers reports why tasks could not run on this machine as users says, with their directories
// below dir. dir need not exist.
func CheckUsers(dir string, users Users) error {
	if err := users.Validate(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	user, err := identify(&plimsoll.GroupSpec{}, &users)
	if err != nil {
		return plimsoll.Invalid("task-user", "%s", err)
	}
	if user.own {
		user.cred.Uid, user.cred.Gid = users.UIDs.First, users.UIDs.First
	}
	if err := mapped(users.UIDs); err != nil {
		return err
	}
	if at := user.blockedAt(dir); at != "" {
		return errUnreachable(dir, at, user.cred.Uid)
	}
	return nil
}

// mapped reports whether the user namespace of this process has these uids and gids.
func mapped(all UIDRange) error {
	for _, name := range []string{"uid_map", "gid_map"} {
		data, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			return nil //nolint:nilerr // a kernel without user namespaces has all
		}
		if !covers(string(data), all) {
			return plimsoll.Invalid(
				"task-uids", "this user namespace has not all of %v: see /proc/self/%s, and give a range that is in it",
				all, name,
			)
		}
	}
	return nil
}

// covers reports whether one line of a uid_map holds all of a range.
func covers(table string, all UIDRange) bool {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(fields[0], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if errors.Join(err1, err2) == nil && first <= uint64(all.First) && uint64(all.Last) < first+count {
			return true
		}
	}
	return false
}

// blockedAt returns the first directory on the way down to path that the identity may not enter;
// empty: none. A missing directory does not block. Only permission bits are checked, so the kernel
// may still refuse.
func (id *identity) blockedAt(path string) string {
	if id.cred == nil || id.cred.Uid == 0 {
		return ""
	}
	var above []string
	for dir := filepath.Dir(filepath.Clean(path)); ; dir = filepath.Dir(dir) {
		above = append(above, dir)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, dir := range slices.Backward(above) {
		info, err := os.Stat(dir)
		if err != nil {
			return ""
		}
		if !id.mayExecute(info) {
			return dir
		}
	}
	return ""
}

// mayExecute reports whether the permission bits let the identity execute a file, or pass through a
// directory.
func (id *identity) mayExecute(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || id.cred == nil || id.cred.Uid == 0 {
		return true
	}
	mode := info.Mode().Perm()
	switch {
	case st.Uid == id.cred.Uid:
		return mode&0o100 != 0
	case st.Gid == id.cred.Gid || slices.Contains(id.cred.Groups, st.Gid):
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}
