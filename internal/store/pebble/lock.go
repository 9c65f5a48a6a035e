package pebble

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockHolder names the process that holds the lock, as far as the kernel tells. It must not be
// called for a lock of this process: closing the file would release that lock.
func lockHolder(path string) string {
	const another = "another process"
	file, err := os.Open(path)
	if err != nil {
		return another
	}
	lk := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	err = syscall.FcntlFlock(file.Fd(), syscall.F_GETLK, &lk)
	_ = file.Close() // the file was only queried; nothing was written
	if err != nil || lk.Type == syscall.F_UNLCK || lk.Pid <= 0 {
		return another
	}
	return fmt.Sprintf("process %d", lk.Pid)
}
