package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of the outputs of a task.
const (
	// MaxOutputFiles is the largest number of files that are sent.
	MaxOutputFiles = 10_000
	// MaxOutputPathBytes bounds the bytes of their paths, with the paths and waitingBytes of the
	// directories that wait to be listed.
	MaxOutputPathBytes = 1 << 20
	// waitingBytes are the bytes of a waiting directory beside those of its path: the string's
	// header.
	waitingBytes = 16
	// maxOutputEntries bounds the entries of directories that are looked at.
	maxOutputEntries = 100_000
	// maxOutputDepth bounds how deep directories are entered.
	maxOutputDepth = 64
	// MaxRefusals is the number of refused entries that are named.
	MaxRefusals = 16
)

// OutputFile is a file below a task's own directory.
type OutputFile struct {
	Path       string // relative, with slashes, of plain characters
	Size       int64  // bytes; a hole counts too
	Executable bool
}

// OutputRefusal is an entry that is not sent.
type OutputRefusal struct {
	Path   string // quoted if it has other than plain characters
	Reason string
}

// Outputs are the files of a task that match its declared outputs. The caller closes them.
//
// The task may have put anything in its directory, and other tasks may be changing it. The agent
// may be root. So each file is reached from descriptor to descriptor, no link is followed, and only
// regular files are opened that the task's user may read.
type Outputs struct {
	Files    []OutputFile // in the order of their paths
	Bytes    int64
	Refused  int64           // entries that are not sent
	Refusals []OutputRefusal // the first of them

	root      *os.File // the task's own directory
	uid, gid  uint32   // of its owner, which is the user of the last attempt
	most      int64
	patterns  [][]string // the parts of each output, each output once
	pathBytes int
	entries   int
}

// FindOutputs lists the files below a directory that match one of the outputs, which are as
// plimsoll.ValidateOutputs takes them. A directory that matches stands for everything below it.
// Most bounds the bytes of all files. The error is CodeExhausted if there is more than a bound.
func FindOutputs(ctx context.Context, dir string, outputs []string, most int64) (*Outputs, error) {
	if err := plimsoll.ValidateOutputs("outputs", outputs); err != nil {
		return nil, err
	}
	root, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, fmt.Errorf("open the task's own directory: %w", err)
	}
	o := &Outputs{root: root, most: most}
	if err := o.find(ctx, outputs); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	slices.SortFunc(o.Files, func(a, b OutputFile) int { return cmp.Compare(a.Path, b.Path) })
	return o, nil
}

// Close closes the task's own directory.
func (o *Outputs) Close() error { return o.root.Close() }

// Open opens a file of the list for reading.
func (o *Outputs) Open(f *OutputFile) (*os.File, error) {
	dir, name := path.Split(f.Path)
	parent, err := o.enter(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return nil, err
	}
	file, err := o.openFile(parent, name)
	return file, errors.Join(err, o.leave(parent))
}

// openFile opens a regular file of a directory. O_NONBLOCK keeps a FIFO or a lease that has taken
// the place of the file from holding the caller up.
func (o *Outputs) openFile(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(
		int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0,
	)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if why := o.refuses(&st); why != "" {
		return nil, errors.Join(errors.New(why), f.Close())
	}
	return f, nil
}

// enter opens a directory below the task's own one, part for part.
func (o *Outputs) enter(dir string) (*os.File, error) {
	at := o.root
	for part := range strings.SplitSeq(dir, "/") {
		if dir == "" {
			break
		}
		below, err := openDir(int(at.Fd()), part)
		if err := errors.Join(err, o.leave(at)); err != nil {
			return nil, err
		}
		at = below
		var st unix.Stat_t
		if err := unix.Fstat(int(at.Fd()), &st); err != nil {
			return nil, errors.Join(err, at.Close())
		}
		if !o.allows(&st, 0o5) {
			return nil, errors.Join(syscall.EACCES, at.Close())
		}
	}
	return at, nil
}

// leave closes a directory that enter has opened.
func (o *Outputs) leave(dir *os.File) error {
	if dir == o.root {
		return nil
	}
	return dir.Close()
}

// refuses returns why a file is not sent; empty: it is.
func (o *Outputs) refuses(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return "is a symbolic link"
	case unix.S_IFDIR:
		return "is a directory now"
	default:
		return "is no regular file"
	}
	if !o.allows(st, 0o4) {
		return "may not be read by the task's user"
	}
	return ""
}

// allows reports whether the task's user has rights, such as 4 for reading, to a file. A task may
// have a hard link to a file of others in its directory, and root may read anything.
func (o *Outputs) allows(st *unix.Stat_t, rights uint32) bool {
	switch {
	case o.uid == 0, st.Uid == o.uid:
		return true
	case st.Gid == o.gid:
		return st.Mode>>3&rights == rights
	}
	return st.Mode&rights == rights
}

// outputsBelow is a directory that is listed, with the patterns that apply to its entries. Many
// directories may wait to be listed, so their patterns are found again when their turn has come.
type outputsBelow struct {
	dir      string
	patterns [][]string // the parts of each that are left
	all      bool       // everything below matches
}

func (o *Outputs) find(ctx context.Context, outputs []string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(o.root.Fd()), &st); err != nil {
		return fmt.Errorf("look at the task's own directory: %w", err)
	}
	o.uid, o.gid = st.Uid, st.Gid
	for _, output := range slices.Compact(slices.Sorted(slices.Values(outputs))) {
		o.patterns = append(o.patterns, strings.Split(output, "/"))
	}
	waiting, err := o.list(ctx, "")
	for err == nil && len(waiting) > 0 {
		next := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		o.pathBytes -= len(next) + waitingBytes
		var below []string
		below, err = o.list(ctx, next)
		waiting = append(waiting, below...)
	}
	return err
}

// below returns a directory with the patterns that apply to its entries.
func (o *Outputs) below(dir string) outputsBelow {
	at := outputsBelow{dir: dir, patterns: o.patterns}
	for part := range strings.SplitSeq(dir, "/") {
		if dir == "" {
			break
		}
		at.patterns, at.all = at.match(part)
	}
	return at
}

// list adds the files of a directory that match, and returns the directories to be listed next.
func (o *Outputs) list(ctx context.Context, listed string) (below []string, err error) {
	at := o.below(listed)
	dir, err := o.enter(at.dir)
	if err != nil {
		o.refuse(at.dir, reasonOf(err))
		return nil, nil
	}
	defer func() { err = errors.Join(err, o.leave(dir)) }()
	if names, only := at.names(); only {
		return o.look(dir, &at, names)
	}
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(1024)
		more, lookErr := o.look(dir, &at, names)
		if below = append(below, more...); lookErr != nil {
			return nil, lookErr
		}
		if len(names) == 0 || err != nil {
			return below, nil // an unreadable directory has nothing to send
		}
	}
	return nil, fmt.Errorf("list the outputs: %w", ctx.Err())
}

// names returns the names that the patterns ask for; ok is false if one is not a plain name.
func (b *outputsBelow) names() (names []string, ok bool) {
	if b.all {
		return nil, false
	}
	for _, p := range b.patterns {
		if strings.ContainsAny(p[0], `*?[\`) {
			return nil, false
		}
		names = append(names, p[0])
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// match returns what is left of the patterns below an entry. matched is true if the entry itself
// matches one.
func (b *outputsBelow) match(name string) (left [][]string, matched bool) {
	matched = b.all
	for _, p := range b.patterns {
		if ok, err := path.Match(p[0], name); err != nil || !ok {
			continue // the patterns were checked
		}
		if len(p) == 1 {
			matched = true
		} else {
			left = append(left, p[1:])
		}
	}
	return left, matched
}

// look adds the entries that match.
func (o *Outputs) look(dir *os.File, at *outputsBelow, names []string) (below []string, err error) {
	for _, name := range names {
		if o.entries++; o.entries > maxOutputEntries {
			return nil, plimsoll.Errorf(plimsoll.CodeExhausted,
				"the directories of the outputs have more than %d entries; write the outputs to a directory of their own",
				maxOutputEntries)
		}
		left, matched := at.match(name)
		if len(left) == 0 && !matched {
			continue
		}
		file := path.Join(at.dir, name)
		var st unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				o.refuse(file, reasonOf(err))
			}
			continue
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		switch {
		case !plimsoll.PlainName(name):
			o.refuse(file, "has a control character in its name, or is no UTF-8")
		case isDir && strings.Count(file, "/") >= maxOutputDepth:
			o.refuse(file, fmt.Sprintf("is deeper than %d directories", maxOutputDepth))
		case isDir:
			below = append(below, file)
			err = o.hold(len(file) + waitingBytes)
		case !matched && st.Mode&unix.S_IFMT != unix.S_IFLNK: // a file in the place of a directory
		default:
			err = o.add(file, &st)
		}
		if err != nil {
			return nil, err
		}
	}
	return below, nil
}

// add adds a file, or refuses it.
func (o *Outputs) add(file string, st *unix.Stat_t) error {
	if why := o.refuses(st); why != "" {
		o.refuse(file, why)
		return nil
	}
	if len(o.Files) == MaxOutputFiles {
		return plimsoll.Errorf(
			plimsoll.CodeExhausted,
			"the outputs are more than %d files, as many as are sent; declare fewer, or pack them into one", MaxOutputFiles,
		)
	}
	if st.Size > o.most-o.Bytes {
		return plimsoll.Errorf(
			plimsoll.CodeExhausted,
			"the outputs up to %s are more than %s, which the node keeps and sends at most; declare fewer of them", file,
			plimsoll.FormatQuantity(plimsoll.Disk, o.most),
		)
	}
	o.Bytes += st.Size
	o.Files = append(o.Files, OutputFile{Path: file, Size: st.Size, Executable: st.Mode&0o111 != 0})
	return o.hold(len(file))
}

// hold counts the bytes of a path that is kept.
func (o *Outputs) hold(bytes int) error {
	if o.pathBytes += bytes; o.pathBytes > MaxOutputPathBytes {
		return plimsoll.Errorf(
			plimsoll.CodeExhausted,
			"the paths of the outputs, and of the directories to look in, take more than %d bytes; "+
				"declare fewer, or pack them into one file", MaxOutputPathBytes,
		)
	}
	return nil
}

func (o *Outputs) refuse(file, reason string) {
	if o.Refused++; len(o.Refusals) == MaxRefusals {
		return
	}
	if !plimsoll.PlainName(file) {
		file = strconv.QuoteToASCII(file)
	}
	o.Refusals = append(o.Refusals, OutputRefusal{file, reason})
}

// reasonOf says why a directory cannot be entered.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		return "is a symbolic link, or no directory any more"
	case errors.Is(err, fs.ErrPermission):
		return "may not be entered by the task's user"
	case errors.Is(err, fs.ErrNotExist):
		return "has just vanished"
	}
	return reason(err).Error()
}
