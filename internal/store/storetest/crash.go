package storetest

import "github.com/cockroachdb/pebble/v2/vfs"

// CrashableFS is a file system in memory. CrashClone copies it as a crash of the machine would
// leave it, while other goroutines write to it.
type CrashableFS struct{ *vfs.MemFS }

// NewCrashableFS returns an empty file system.
func NewCrashableFS() CrashableFS { return CrashableFS{vfs.NewCrashableMem()} }

// CrashClone returns the file system that a crash at this instant would leave.
func (f CrashableFS) CrashClone(cfg vfs.CrashCloneCfg) CrashableFS {
	return CrashableFS{f.MemFS.CrashClone(cfg)}
}

// ReuseForWrite implements vfs.FS. That of MemFS takes the lock of CrashClone twice. If CrashClone
// asks for the lock in between, the two block each other for ever.
func (f CrashableFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return f.OpenReadWrite(newname, category)
}
