package agent

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxUsageDepth bounds how deep directories are measured. Each level under way takes a
	// descriptor and up to 17 KiB: the buffer of its directory, and usageNames names of 255 bytes.
	// Deeper files count nothing.
	maxUsageDepth = 256
	// usageNames is the number of names of a directory that are read at once.
	usageNames = 32
)

// diskUsage returns the disk usage of the files below a directory, with its own. Unreadable files
// count nothing, because tasks may have put anything there, and may be changing it. No link is
// followed. It takes 4.3 MB of memory at most, however many files there are. If ctx ends, the sum
// is that of the files so far.
func diskUsage(ctx context.Context, dir string) int64 {
	return usageAt(ctx, unix.AT_FDCWD, dir, 0)
}

// usageAt is diskUsage of an entry of the directory that at is open on.
func usageAt(ctx context.Context, at int, name string, depth int) (total int64) {
	var st unix.Stat_t
	if ctx.Err() != nil || unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	total = st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth == maxUsageDepth {
		return total
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return total
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close() //nolint:errcheck // nothing was written
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(usageNames)
		for _, below := range names {
			total += usageAt(ctx, fd, below, depth+1)
		}
		if err != nil { // at the end of the directory too
			break
		}
	}
	return total
}
