package pebble

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// reservedFiles is the number of descriptors that the store keeps for itself. A leader whose log
// cannot be opened ends. The last descriptor of the process may be taken by code that knows
// nothing of the store.
const reservedFiles = 64

// openTables is the number of tables that stay open for reading. With a dozen other files of the
// store they are fewer than the reserve, so commits alone do not use it up.
const openTables = 32

// reserve is a file system that keeps descriptors in reserve. When the process has none left,
// opening a file takes descriptors from the reserve. Closing a file of the store returns its
// descriptor to the reserve. The reserve is also refilled when the process has descriptors again.
type reserve struct {
	vfs.FS
	missing atomic.Int32 // number of descriptors that the reserve lacks

	mu struct {
		sync.Mutex
		files  []io.Closer
		null   *os.File // /dev/null; nil if it could not be opened
		closed bool
	}
}

// newReserve fills the reserve as far as it can.
func newReserve(fs vfs.FS) *reserve {
	r := &reserve{FS: fs}
	r.missing.Store(reservedFiles)
	r.mu.null, _ = os.Open(os.DevNull) // without it, files are closed as usual
	r.fill()
	return r
}

// fill refills the reserve, as far as the process has descriptors.
func (r *reserve) fill() {
	if r.missing.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.mu.closed && len(r.mu.files) < reservedFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // a later call tries again
		}
		r.mu.files = append(r.mu.files, f)
		r.missing.Add(-1)
	}
}

// release gives up one descriptor of the reserve, and reports whether there was one. It gives up
// only one: the rest of the process may take it, and then it is lost until others close files.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.mu.files) - 1
	if last < 0 {
		return false
	}
	_ = r.mu.files[last].Close() // the file was never used
	r.mu.files = r.mu.files[:last]
	r.missing.Add(1)
	return true
}

// close gives up the whole reserve.
func (r *reserve) close() {
	r.mu.Lock()
	r.mu.closed = true
	if r.mu.null != nil {
		_ = r.mu.null.Close() // the file was never used
	}
	r.mu.Unlock()
	for r.release() {
		continue
	}
}

// reservedFile is an open file of the store. When it is closed, its descriptor goes to the reserve
// if that lacks one.
type reservedFile struct {
	vfs.File
	reserve *reserve
}

// Close implements vfs.File.
func (f *reservedFile) Close() error {
	if f.reserve.keep(f.File) {
		return nil
	}
	return f.File.Close()
}

// keep closes a file by putting /dev/null in its place, so that no other code gets its descriptor.
// It returns false if the reserve is full. An error of closing is lost, but not an error of a
// sync.
func (r *reserve) keep(file vfs.File) bool {
	if r.missing.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed || r.mu.null == nil || len(r.mu.files) >= reservedFiles || file.Fd() == vfs.InvalidFd {
		return false
	}
	if err := unix.Dup3(int(r.mu.null.Fd()), int(file.Fd()), unix.O_CLOEXEC); err != nil {
		return false
	}
	r.mu.files = append(r.mu.files, file)
	r.missing.Add(-1)
	return true
}

// file wraps a file so that its descriptor can return to the reserve.
func (r *reserve) file(opened vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &reservedFile{opened, r}, nil
}

func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// opening opens a file. If the process has no descriptors left, it uses those of the reserve.
func opening[T any](r *reserve, open func() (T, error)) (T, error) {
	for {
		opened, err := open()
		if !outOfFiles(err) || !r.release() {
			if err == nil {
				r.fill()
			}
			return opened, err
		}
	}
}

// Create implements vfs.FS.
func (r *reserve) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return r.file(opening(r, func() (vfs.File, error) { return r.FS.Create(name, category) }))
}

// Open implements vfs.FS.
func (r *reserve) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return r.file(opening(r, func() (vfs.File, error) { return r.FS.Open(name, opts...) }))
}

// OpenReadWrite implements vfs.FS.
func (r *reserve) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return r.file(opening(r, func() (vfs.File, error) { return r.FS.OpenReadWrite(name, category, opts...) }))
}

// ReuseForWrite implements vfs.FS.
func (r *reserve) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := r.FS.ReuseForWrite(oldname, newname, category)
	if !outOfFiles(err) {
		return r.file(file, err)
	}
	// ReuseForWrite renames first; a second call would find nothing to rename.
	if _, statErr := r.Stat(newname); statErr != nil {
		return r.file(opening(r, func() (vfs.File, error) { return r.FS.ReuseForWrite(oldname, newname, category) }))
	}
	return r.file(opening(r, func() (vfs.File, error) { return r.FS.OpenReadWrite(newname, category) }))
}

// OpenDir implements vfs.FS.
func (r *reserve) OpenDir(name string) (vfs.File, error) {
	return r.file(opening(r, func() (vfs.File, error) { return r.FS.OpenDir(name) }))
}

// List implements vfs.FS.
func (r *reserve) List(dir string) ([]string, error) {
	return opening(r, func() ([]string, error) { return r.FS.List(dir) })
}

// Unwrap implements vfs.FS.
func (r *reserve) Unwrap() vfs.FS { return r.FS }
