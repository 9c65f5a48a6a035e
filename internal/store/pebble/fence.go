package pebble

import (
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// fence is a file system between Pebble and the disk. After the first failed write it refuses all
// others, because Pebble would retry, or stumble on where it expects the process to have ended. A
// Pebble that cannot change a file cannot lose acknowledged data. The fence also remembers the
// file that was read last, for errors that do not name their file.
//
// Failures of logs, manifests, markers and directories are not reported to Pebble at all. It would
// panic beyond recovery: it unlocks a mutex twice, or continues with a list of files that was
// changed for a version that was never written. A caller that waits for a sync must therefore ask
// the fence afterwards. The fence is shut before Pebble receives such a false success. So no
// success from before the failure is doubted, and no false one is believed.
type fence struct {
	vfs.FS
	lastRead atomic.Pointer[string]

	once  sync.Once
	cause error         // why the fence is shut; written before down is closed
	down  chan struct{} // closed when the fence is shut

	// hung is closed when a flush cannot succeed. Pebble retries a failed flush at once and for
	// ever; behind a shut fence such a retry waits for closing.
	hungOnce sync.Once
	hung     chan struct{}
	closing  chan struct{}
}

func newFence(fs vfs.FS) *fence {
	return &fence{FS: fs, down: make(chan struct{}), hung: make(chan struct{}), closing: make(chan struct{})}
}

// shut refuses every write from now on. Only the first cause is kept.
func (f *fence) shut(cause error) {
	f.once.Do(func() {
		f.cause = cause
		close(f.down)
	})
}

// err returns the cause for which the fence is shut, or nil.
func (f *fence) err() error {
	select {
	case <-f.down:
		return f.cause
	default:
		return nil
	}
}

// pass returns the outcome of a write, and shuts the fence if the write failed.
func (f *fence) pass(err error) error {
	if err != nil {
		f.shut(err)
	}
	return err
}

func isLog(name string) bool      { return strings.HasSuffix(name, ".log") }
func isManifest(base string) bool { return strings.HasPrefix(base, "MANIFEST-") }

func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// isMarker recognizes the files by which Pebble switches from one manifest, or format, to the
// next.
func isMarker(base string) bool { return strings.HasPrefix(base, "marker.") }

func (f *fence) recordRead(name *string) { f.lastRead.Store(name) }

// last returns the file that was opened, looked up or read last.
func (f *fence) last() string {
	if p := f.lastRead.Load(); p != nil {
		return *p
	}
	return ""
}

func (f *fence) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, name: name, unreported: f.unreported(name)}, nil
}

// unreported recognizes the files whose failures are not reported to Pebble.
func (f *fence) unreported(name string) bool {
	base := f.PathBase(name)
	return isLog(base) || isManifest(base) || isMarker(base)
}

func (f *fence) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.err(); err != nil {
		if isTable(name) {
			f.hungOnce.Do(func() { close(f.hung) })
			<-f.closing
		}
		return f.substitute(name, err)
	}
	if isMarker(f.PathBase(name)) {
		// After a crash the marker must not be there without the file that it names. Pebble trusts
		// the file system to keep new names in order.
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return f.substitute(name, f.pass(err))
		}
	}
	file, err := f.FS.Create(name, category)
	if f.pass(err) != nil {
		return f.substitute(name, err)
	}
	return f.wrap(name, file, nil)
}

// substitute returns a replacement for a file that could not be made. For an unreported file it
// discards all writes; for others the error is returned.
func (f *fence) substitute(name string, err error) (vfs.File, error) {
	if !f.unreported(name) {
		return nil, err
	}
	return &fencedFile{File: vfs.NewMemFile(nil), fence: f, name: name, unreported: true}, nil
}

func (f *fence) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenReadWrite(name, category, opts...)
	return f.wrap(name, file, f.pass(err))
}

func (f *fence) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.err(); err != nil {
		return f.substitute(newname, err)
	}
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if f.pass(err) != nil {
		return f.substitute(newname, err)
	}
	return f.wrap(newname, file, nil)
}

func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f.recordRead(&name)
	file, err := f.FS.Open(name, opts...)
	return f.wrap(name, file, err)
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, name: name, unreported: true}, nil
}

func (f *fence) Stat(name string) (vfs.FileInfo, error) {
	f.recordRead(&name)
	return f.FS.Stat(name)
}

func (f *fence) Rename(oldname, newname string) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.pass(f.FS.Rename(oldname, newname))
}

func (f *fence) Link(oldname, newname string) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.FS.Link(oldname, newname)
}

func (f *fence) MkdirAll(dir string, perm os.FileMode) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir, perm)
}

// Remove does not shut the fence when it fails: a file that stays too long is harmless.
func (f *fence) Remove(name string) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *fence) RemoveAll(name string) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

// Lock returns a lock without effect. The Store holds the real one, from before Pebble is opened
// until after it is closed.
func (f *fence) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

type fencedFile struct {
	vfs.File
	fence      *fence
	name       string
	unreported bool // failures are not reported to Pebble
}

// write performs a write unless the fence is shut, and returns the outcome to report to Pebble.
func (f *fencedFile) write(do func() error) error {
	err := f.fence.err()
	if err == nil {
		err = f.fence.pass(do())
	}
	if f.unreported {
		return nil
	}
	return err
}

func (f *fencedFile) Read(p []byte) (int, error) {
	f.fence.recordRead(&f.name)
	return f.File.Read(p)
}

func (f *fencedFile) ReadAt(p []byte, off int64) (int, error) {
	f.fence.recordRead(&f.name)
	return f.File.ReadAt(p, off)
}

func (f *fencedFile) Write(p []byte) (n int, err error) {
	err = f.write(func() (err error) {
		n, err = f.File.Write(p)
		return err
	})
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *fencedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.write(func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *fencedFile) Sync() error     { return f.write(f.File.Sync) }
func (f *fencedFile) SyncData() error { return f.write(f.File.SyncData) }

func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.write(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Preallocate only saves time, so a disk that does not support it has not failed.
func (f *fencedFile) Preallocate(offset, length int64) error {
	if f.fence.err() != nil {
		return nil
	}
	err := f.File.Preallocate(offset, length)
	if f.unreported {
		return nil
	}
	return err
}

// Close closes the file, also behind a shut fence.
func (f *fencedFile) Close() error {
	err := f.File.Close()
	if !f.unreported {
		return err
	}
	_ = f.fence.pass(err) // it shuts the fence; nothing else can be done about a file that does not close
	return nil
}

var (
	_ vfs.FS     = (*fence)(nil)
	_ lsm.Logger = (*logger)(nil)
)
