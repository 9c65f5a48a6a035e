package executor

import (
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// limitMark is a number that all processes of an attempt carry where there are no control groups:
// as their limit on processor time under real-time scheduling, in microseconds. It is so large that
// it limits nothing. A child inherits it, and neither a new session, nor another parent, nor an
// empty environment, nor closed files take it away; a process would have to lower that very limit.
// It follows from the directory, so that the next supervisor finds the same.
func (a *attempt) limitMark() uint64 {
	const least = 1 << 61
	sum := sha256.Sum256([]byte(a.dir))
	return least | binary.LittleEndian.Uint64(sum[:])>>4
}

// imprint marks a process, before its first instruction. One that has such a limit already runs
// below another supervisor, which finds it by that.
func imprint(pid int, mark uint64) {
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &old); err != nil || old.Max != unix.RLIM_INFINITY {
		return
	}
	// a sandbox may forbid it: then its environment is left
	_ = unix.Prlimit(pid, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: mark, Max: mark}, nil)
}

// carries reports whether a process has a mark. One that may not be asked is not ours.
func carries(pid int, mark uint64) bool {
	var limit unix.Rlimit
	return unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit) == nil && limit.Max == mark
}
