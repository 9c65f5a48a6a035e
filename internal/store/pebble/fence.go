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

// fence stands between Pebble and the file system. After the first write that failed it lets no
// other through, because Pebble retries or stumbles on where it expects the process to have ended:
// a zombie that cannot change a file can lose nothing that was acknowledged, whatever it does. It
// also remembers which file was read last, so that an error that does not say so can be blamed on a
// file.
//
// Of a log, a manifest, a marker and a directory Pebble is not even told that they failed, neither
// the first time nor after: it panics then, in a way that nothing can recover from (it unlocks a
// mutex twice, or it goes on with a picture of its files that was changed for a version that never
// came to be). So who waits for a sync must ask the fence afterwards. The fence is shut before
// Pebble hears of such a success, so no success that came before the failure is ever doubted
// wrongly, and none that is false believed.
type fence struct {
	vfs.FS
	touched atomic.Pointer[string]

	once  sync.Once
	cause error         // why the fence is shut; written before down is closed
	down  chan struct{} // closed when the fence is shut

	// Pebble retries a failed flush at once and for ever. With the fence down such a retry waits
	// for closing, and hung tells those who wait for the flush that it will not come.
	hungOnce sync.Once
	hung     chan struct{}
	closing  chan struct{}
}

func newFence(fs vfs.FS) *fence {
	return &fence{FS: fs, down: make(chan struct{}), hung: make(chan struct{}), closing: make(chan struct{})}
}

// shut lets no write through from now on. Only the first cause counts.
func (f *fence) shut(cause error) {
	f.once.Do(func() {
		f.cause = cause
		close(f.down)
	})
}

// err returns why the fence is shut, or nil.
func (f *fence) err() error {
	select {
	case <-f.down:
		return f.cause
	default:
		return nil
	}
}

// pass returns the outcome of a write, and shuts the fence if it failed.
func (f *fence) pass(err error) error {
	if err != nil {
		f.shut(err)
	}
	return err
}

func isLog(name string) bool      { return strings.HasSuffix(name, ".log") }
func isManifest(base string) bool { return strings.HasPrefix(base, "MANIFEST-") }

func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// isMarker tells the files by which Pebble goes over from one manifest, or format, to the next.
func isMarker(base string) bool { return strings.HasPrefix(base, "marker.") }

func (f *fence) touch(name *string) { f.touched.Store(name) }

// last returns the file that was opened, looked up or read last.
func (f *fence) last() string {
	if p := f.touched.Load(); p != nil {
		return *p
	}
	return ""
}

func (f *fence) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, name: name, quiet: f.quiet(name)}, nil
}

// quiet tells the files of whose failures Pebble is not told.
func (f *fence) quiet(name string) bool {
	base := f.PathBase(name)
	return isLog(base) || isManifest(base) || isMarker(base)
}

func (f *fence) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.err(); err != nil {
		if isTable(name) {
			f.hungOnce.Do(func() { close(f.hung) })
			<-f.closing
		}
		return f.dead(name, err)
	}
	if isMarker(f.PathBase(name)) {
		// The marker must not be there after a crash without the file that it names. Pebble trusts
		// the file system to keep new names in order.
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return f.dead(name, f.pass(err))
		}
	}
	file, err := f.FS.Create(name, category)
	if f.pass(err) != nil {
		return f.dead(name, err)
	}
	return f.wrap(name, file, nil)
}

// dead stands in for a file that could not be made: for one that is quiet, a file that swallows
// all; for others, the error.
func (f *fence) dead(name string, err error) (vfs.File, error) {
	if !f.quiet(name) {
		return nil, err
	}
	return &fencedFile{File: vfs.NewMemFile(nil), fence: f, name: name, quiet: true}, nil
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
		return f.dead(newname, err)
	}
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if f.pass(err) != nil {
		return f.dead(newname, err)
	}
	return f.wrap(newname, file, nil)
}

func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f.touch(&name)
	file, err := f.FS.Open(name, opts...)
	return f.wrap(name, file, err)
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, name: name, quiet: true}, nil
}

func (f *fence) Stat(name string) (vfs.FileInfo, error) {
	f.touch(&name)
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

// Remove does not shut the fence when it fails: a file that stays too long does no harm.
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

// Lock gives Pebble a lock without meaning: the Store holds the real one, from before Pebble is
// opened until after it is closed.
func (f *fence) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

type fencedFile struct {
	vfs.File
	fence *fence
	name  string
	quiet bool // Pebble is not told of failures
}

// write does a write unless the fence is shut, and returns what Pebble is told of it.
func (f *fencedFile) write(do func() error) error {
	err := f.fence.err()
	if err == nil {
		err = f.fence.pass(do())
	}
	if f.quiet {
		return nil
	}
	return err
}

func (f *fencedFile) Read(p []byte) (int, error) {
	f.fence.touch(&f.name)
	return f.File.Read(p)
}

func (f *fencedFile) ReadAt(p []byte, off int64) (int, error) {
	f.fence.touch(&f.name)
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

// Preallocate only saves time, so a disk that cannot do it has not failed.
func (f *fencedFile) Preallocate(offset, length int64) error {
	if f.fence.err() != nil {
		return nil
	}
	err := f.File.Preallocate(offset, length)
	if f.quiet {
		return nil
	}
	return err
}

// Close closes the file also behind a shut fence.
func (f *fencedFile) Close() error {
	err := f.File.Close()
	if !f.quiet {
		return err
	}
	_ = f.fence.pass(err) // it shuts the fence, which is all that can be done about a file that does not close
	return nil
}

var (
	_ vfs.FS     = (*fence)(nil)
	_ lsm.Logger = (*logger)(nil)
)
