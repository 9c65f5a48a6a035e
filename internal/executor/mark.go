package executor

import (
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// limitMark returns a number that identifies the attempt's processes where there are no control
// groups. It is their limit on processor time under real-time scheduling, in microseconds, and so
// large that it limits nothing.
//
// A child inherits the limit. A new session, another parent, an empty environment or closed files
// do not remove it; a process would have to lower this very limit. The number follows from the
// directory, so that the next supervisor computes the same.
func (a *attempt) limitMark() uint64 {
	const least = 1 << 61
	sum := sha256.Sum256([]byte(a.dir))
	return least | binary.LittleEndian.Uint64(sum[:])>>4
}

// setLimitMark marks a process, before its first instruction. A process that has such a limit
// already runs below another supervisor, which recognizes it by that limit.
func setLimitMark(pid int, mark uint64) {
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &old); err != nil || old.Max != unix.RLIM_INFINITY {
		return
	}
	// A sandbox may forbid it: then the environment alone identifies the process.
	_ = unix.Prlimit(pid, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: mark, Max: mark}, nil)
}

// hasLimitMark reports whether a process has a mark. A process that may not be read has none.
func hasLimitMark(pid int, mark uint64) bool {
	var limit unix.Rlimit
	return unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit) == nil && limit.Max == mark
}
