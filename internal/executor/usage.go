package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// direntBuffer bounds the names of one directory that are in memory at once.
	direntBuffer = 8 << 10
	// manyLinks bounds the number of files with several names that are remembered, so that each
	// counts once.
	manyLinks = 1 << 16
)

// usage measures the disk usage of directories, a few entries at a time. It counts blocks, so holes
// do not count. Each file counts once, however many names it has. Links are not followed, and other
// mounts are not entered. Between two steps it holds no descriptor. Its memory for a directory is
// bounded by its buffer, however many files a task makes.
type usage struct {
	roots  []string
	levels []level // from the present root down to the directory that is being read
	seen   map[inode]struct{}
	buf    [direntBuffer]byte

	bytes   int64
	entries int64 // entries checked so far
	failed  error // first error
}

// level is one directory on the present path.
type level struct {
	name   string   // name in the level above; for the first level the root's path
	offset int64    // position for the next read of the directory
	below  []string // directories in it that are yet to be entered
	done   bool     // the directory was read to its end
}

type inode struct{ dev, ino uint64 }

// newUsage counts the open files first, whose names are unknown, then the files below the roots.
func newUsage(files []*os.File, roots ...string) *usage {
	u := &usage{roots: roots, seen: map[inode]struct{}{}}
	for _, f := range files {
		var st unix.Stat_t
		conn, err := f.SyscallConn()
		if err == nil {
			err = errors.Join(conn.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }), err)
		}
		if err != nil {
			continue // it is closed: the attempt has ended
		}
		u.seen[inode{st.Dev, st.Ino}] = struct{}{}
		u.bytes += st.Blocks * 512
	}
	return u
}

// step checks about so many more entries, and reports whether there are any left.
func (u *usage) step(entries int) (more bool) {
	for until := u.entries + int64(entries); u.entries < until; {
		if len(u.levels) == 0 {
			if len(u.roots) == 0 {
				return false
			}
			u.levels = append(u.levels, level{name: u.roots[0]})
			u.roots = u.roots[1:]
		}
		top := &u.levels[len(u.levels)-1]
		switch last := len(top.below) - 1; {
		case last >= 0:
			name := top.below[last]
			top.below = top.below[:last]
			u.levels = append(u.levels, level{name: name})
		case top.done:
			u.levels = u.levels[:len(u.levels)-1]
		default:
			u.entries++ // an empty directory counts as one entry
			if err := u.read(top); err != nil {
				top.done = true
				if u.failed == nil {
					u.failed = err
				}
			}
		}
	}
	return true
}

// read checks the next entries of a directory.
func (u *usage) read(top *level) error {
	fd, err := u.open()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENOTDIR) {
		top.done = true // it is gone or was replaced
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into %s: %w", u.path(), err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	if top.offset > 0 {
		if _, err := unix.Seek(fd, top.offset, unix.SEEK_SET); err != nil {
			return fmt.Errorf("go on in %s: %w", u.path(), err)
		}
	}
	n, err := unix.ReadDirent(fd, u.buf[:])
	if err != nil {
		return fmt.Errorf("read %s: %w", u.path(), err)
	}
	if n == 0 {
		top.done = true
		return nil
	}
	_, _, names := unix.ParseDirent(u.buf[:n], -1, nil)
	if top.offset, err = unix.Seek(fd, 0, unix.SEEK_CUR); err != nil {
		return fmt.Errorf("note where to go on in %s: %w", u.path(), err)
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != nil {
			continue // it is gone
		}
		u.entries++
		if u.count(&st); st.Mode&unix.S_IFMT == unix.S_IFDIR {
			top.below = append(top.below, name)
		}
	}
	return nil
}

// open opens the directory of the last level.
func (u *usage) open() (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	root, err := unix.Open(u.levels[0].name, flags, 0)
	if err != nil || len(u.levels) == 1 {
		return root, err
	}
	defer func() { _ = unix.Close(root) }() // nothing was written to it
	below := u.below()
	fd, err = unix.Openat2(root, below, &unix.OpenHow{
		Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	// Before Linux 5.6, or in an old sandbox.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		fd, err = unix.Openat(root, below, flags, 0)
	}
	return fd, err
}

// below returns the path below the root of the directory that is being read.
func (u *usage) below() string {
	var b strings.Builder
	for i := range u.levels[1:] {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(u.levels[1+i].name)
	}
	return b.String()
}

func (u *usage) path() string { return filepath.Join(u.levels[0].name, u.below()) }

func (u *usage) count(st *unix.Stat_t) {
	bytes := st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && len(u.seen) > 0 || st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		_, known := u.seen[key]
		switch {
		case known:
			return
		// Directories have one name each.
		case st.Nlink <= 1 || st.Mode&unix.S_IFMT == unix.S_IFDIR:
		case len(u.seen) < manyLinks:
			u.seen[key] = struct{}{}
		default:
			bytes /= int64(st.Nlink) // all names together count the file once
		}
	}
	u.bytes += bytes
}
